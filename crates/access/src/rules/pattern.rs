//! Patterns of texts that clients send: a User-Agent, and a host name.
//!
//! Both compare without regard to case, and look at a bounded part of the text.

use core::net::Ipv6Addr;

/// Maximum length of a pattern in bytes.
const PATTERN_BYTES_MAX: usize = 200;

/// The part of a `User-Agent` that patterns are compared with, in bytes. A head may have one of 8 KiB; those of clients
/// have less than a hundred bytes.
const USER_AGENT_BYTES_MAX: usize = 256;

/// Maximum length of a host name in bytes (RFC 1035, 2.3.4). A longer one matches no pattern.
const HOST_BYTES_MAX: usize = 253;

/// A text in which `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The parts between the stars, in lower case: one if there is no star.
    parts: Vec<Box<[u8]>>,
}

/// A host name, or all names below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The name in lower case, without a dot at the end.
    name: Box<str>,
    /// The address, if the name is an IPv6 address in brackets. An address has more than one form.
    ip: Option<Ipv6Addr>,
    /// Whether the names below it are meant (`*.name`), and not the name itself.
    is_below: bool,
}

impl Glob {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts = text.split('*').map(|part| part.to_ascii_lowercase().into_bytes().into()).collect();
        (text.len() <= PATTERN_BYTES_MAX).then_some(Self { parts })
    }

    /// Returns whether a `User-Agent` matches. Bytes after the first 256 count as absent.
    pub(super) fn matches(&self, user_agent: &[u8]) -> bool {
        let text = user_agent.get(..USER_AGENT_BYTES_MAX).unwrap_or(user_agent);
        let Some((first, others)) = self.parts.split_first() else { return false };
        let Some((last, middle)) = others.split_last() else { return text.eq_ignore_ascii_case(first) };
        let is_begun = text.get(..first.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(first));
        if !is_begun {
            return false;
        }
        let mut rest = &text[first.len()..];
        // The first place of a part leaves the most room for the others.
        for part in middle {
            match find(rest, part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.len() >= last.len() && rest[rest.len() - last.len()..].eq_ignore_ascii_case(last)
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window.eq_ignore_ascii_case(part))
}

impl HostPattern {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, is_below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_name_byte);
        let ip = address(name.as_bytes());
        let is_name = name.split('.').all(is_label) || (ip.is_some() && !is_below);
        (name.len() <= HOST_BYTES_MAX && is_name).then(|| Self { name: name.into(), ip, is_below })
    }

    /// Returns whether a [name](host_name) matches.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        if let Some(ip) = self.ip {
            return address(name) == Some(ip);
        }
        if !self.is_below {
            // Most clients send it in lower case, and whole words are compared sooner than single letters.
            return name == self.name.as_bytes() || name.eq_ignore_ascii_case(self.name.as_bytes());
        }
        let Some(above) = name.len().checked_sub(self.name.len() + 1) else { return false };
        above > 0 && name[above] == b'.' && name[above + 1..].eq_ignore_ascii_case(self.name.as_bytes())
    }
}

/// Returns the IPv6 address in brackets.
fn address(name: &[u8]) -> Option<Ipv6Addr> {
    core::str::from_utf8(name.strip_prefix(b"[")?.strip_suffix(b"]")?).ok()?.parse().ok()
}

/// Returns the name in a `Host` field: without the port, and without a dot at the end. Returns `None` if it is longer
/// than a name may be.
pub(super) fn host_name(host: &[u8]) -> Option<&[u8]> {
    // `[2001:db8::1]:80` has colons in its name.
    let end = host.iter().rposition(|&byte| matches!(byte, b':' | b']')).filter(|at| host[*at] == b':');
    let name = end.map_or(host, |at| &host[..at]);
    let name = name.strip_suffix(b".").unwrap_or(name);
    (name.len() <= HOST_BYTES_MAX).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, matching, others) in [
            ("Bot/1", &["Bot/1", "bot/1"][..], &["", "Bot/", "Bot/10", "a Bot/1"][..]),
            ("Bot/*", &["Bot/", "BOT/1.2 (x)"], &["Bot", "a Bot/1"]),
            ("*bot*", &["bot", "a Bot/1"], &["", "bo", "b ot"]),
            ("*/1.*", &["a/1.", "a/b/1.2"], &["a/1", "/2."]),
            ("a*b*c", &["abc", "a b c", "abcbc"], &["ab", "acb", "abcd"]),
            ("ab*ba", &["abba", "ab ba"], &["aba", "ab"]),
            ("*", &["", "anything"], &[]),
            ("", &[""], &["a"]),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            matching.iter().for_each(|text| assert!(glob.matches(text.as_bytes()), "{pattern} {text}"));
            others.iter().for_each(|text| assert!(!glob.matches(text.as_bytes()), "{pattern} {text}"));
        }
        assert_eq!(Glob::parse(&"x".repeat(PATTERN_BYTES_MAX + 1)), None);
    }

    #[test]
    fn only_the_beginning_of_a_long_user_agent_is_compared() {
        let long = [b"Bot/".as_slice(), &[b'x'; 8 << 10], b"end"].concat();
        assert!(Glob::parse("bot/*").unwrap().matches(&long));
        assert!(!Glob::parse("*end").unwrap().matches(&long));
    }

    #[test]
    fn a_host_matches_in_any_case_with_a_port_and_with_a_dot() {
        let matches = |pattern: &str, host: &str| {
            let pattern = HostPattern::parse(pattern).unwrap();
            host_name(host.as_bytes()).is_some_and(|name| pattern.matches(name))
        };
        for host in ["old.example", "OLD.Example", "old.example.", "old.example:6969", "old.example.:80"] {
            assert!(matches("Old.example", host), "{host}");
            assert!(!matches("*.old.example", host) && !matches("other.example", host), "{host}");
        }
        assert!(matches("*.old.example", "a.b.OLD.example.:1") && !matches("*.old.example", "xold.example"));
        for host in ["[2001:DB8::1]:80", "[2001:db8::1]", "[2001:db8:0:0::1]", "[2001:0db8::0.0.0.1]:6969"] {
            assert!(matches("[2001:db8::1]", host) && matches("[2001:DB8:0::1]", host), "{host}");
        }
        for host in ["[2001:db8::2]", "2001:db8::1", "[2001:db8::1", "[]", "[]:80"] {
            assert!(!matches("[2001:db8::1]", host), "{host}");
        }
        assert!(matches("192.0.2.1", "192.0.2.1:80"));
        assert!(!matches("old.example", "") && !matches("old.example", ":") && !matches("old.example", "."));
        assert_eq!(host_name(&[b'a'; HOST_BYTES_MAX + 1]), None);
    }
}
