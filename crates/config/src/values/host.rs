//! Host names, as they appear in the `Host` field of a request.

use core::fmt;
use core::net::Ipv6Addr;

/// The maximum length of a name in bytes (RFC 1035, 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// A host name without its port, in lower case and without a trailing dot; an IPv6 address in brackets, in its usual form; or
/// `*`, which matches every name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// Returns whether `name` is this name, or this is `*`.
    pub fn matches(&self, name: &str) -> bool {
        self.0 == "*" || self.0.eq_ignore_ascii_case(name.strip_suffix('.').unwrap_or(name))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(ip) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            return ip.parse::<Ipv6Addr>().ok().map(|ip| Self(format!("[{ip}]")));
        }
        let text = text.to_ascii_lowercase();
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_label_byte);
        let is_name = text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label);
        (is_name || text == "*").then_some(Self(text))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a label may contain `byte`. Underscores are accepted because names of containers contain them.
const fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_in_any_case_and_with_a_dot_at_the_end() {
        let name = HostName::parse("Tracker.Example").unwrap();
        assert_eq!(name.to_string(), "tracker.example");
        for other in ["tracker.example", "TRACKER.example", "tracker.example."] {
            assert!(name.matches(other), "{other}");
        }
        for other in ["", "tracker", "example", "a.tracker.example", "tracker.example.."] {
            assert!(!name.matches(other), "{other}");
        }
        assert!(HostName::parse("*").unwrap().matches("any.example"));
        let address = HostName::parse("[2001:DB8:0::1]").unwrap();
        assert_eq!(address.to_string(), "[2001:db8::1]");
        assert!(address.matches("[2001:DB8::1]") && !address.matches("2001:db8::1"));
    }

    #[test]
    fn what_is_no_name_of_a_host_is_refused() {
        let long = "a.".repeat(127) + "a";
        for text in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a:80",
            "http://a",
            "a/b",
            "*.a",
            "a b",
            "[::1",
            "[::1]:80",
            "[a]",
            "[192.0.2.1]",
            "2001:db8::1",
            &long,
        ] {
            assert_eq!(HostName::parse(text), None, "{text}");
        }
    }
}
