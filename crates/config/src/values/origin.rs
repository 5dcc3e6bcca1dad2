//! Origins of web pages, as browsers send them in the `Origin` header (RFC 6454).

use core::fmt;

/// An origin: scheme, host and port in the form that browsers send (RFC 6454, 6.2), or `null`, the origin of sandboxed
/// pages and pages from files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(String);

/// The default ports, which browsers omit (RFC 6454, 6.1).
const DEFAULT_PORTS: [(&str, &str); 2] = [("http", ":80"), ("https", ":443")];

impl Origin {
    /// Returns the value of the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        if text == "null" {
            return Some(Self(text));
        }
        let (scheme, authority) = text.split_once("://")?;
        let is_scheme =
            scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(is_scheme_byte);
        if !is_scheme {
            return None;
        }
        let (host, port) = split_port(authority)?;
        if host.is_empty() || !host.bytes().all(is_host_byte) {
            return None;
        }
        let is_default = DEFAULT_PORTS.contains(&(scheme, port));
        Some(Self(format!("{scheme}://{host}{}", if is_default { "" } else { port })))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Splits an authority into the host and the port with its colon. The port may be empty.
fn split_port(authority: &str) -> Option<(&str, &str)> {
    let end_of_host = authority.find(']').map_or(0, |bracket| bracket + 1);
    let colon = authority[end_of_host..].find(':').map(|colon| end_of_host + colon);
    let Some(colon) = colon else { return Some((authority, "")) };
    let (host, port) = authority.split_at(colon);
    let is_port = port[1..].parse::<u16>().is_ok_and(|number| number.to_string() == port[1..]);
    is_port.then_some((host, port))
}

const fn is_scheme_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// Returns whether a host may contain `byte`: names, IPv4, and IPv6 in brackets. Browsers send names in other scripts
/// in ASCII.
const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'[' | b']' | b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_kept_as_browsers_write_them() {
        for (written, expected) in [
            ("https://example.org", "https://example.org"),
            ("HTTPS://Example.ORG", "https://example.org"),
            ("https://example.org:443", "https://example.org"),
            ("http://example.org:80", "http://example.org"),
            ("http://example.org:443", "http://example.org:443"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
            ("null", "null"),
        ] {
            assert_eq!(Origin::parse(written).as_ref().map(Origin::as_str), Some(expected), "{written}");
        }
    }

    #[test]
    fn what_no_browser_sends_is_refused() {
        for text in [
            "",
            "*",
            "example.org",
            "https://",
            "https://:443",
            "https://example.org/",
            "https://example.org/path",
            "https://example.org:",
            "https://example.org:0443",
            "https://example.org:70000",
            "https://user@example.org",
            "https://exämple.org",
            "://example.org",
            "https://*.example.org",
        ] {
            assert_eq!(Origin::parse(text), None, "{text}");
        }
    }
}
