//! Ports that are never handed out.
//!
//! A client chooses its port, so it could make others connect to a mail server or a name server at its own address.
//! Such a port is treated like port 0: the client is served, and no reply contains it.

use core::fmt;
use core::ops::RangeInclusive;

const WORD_BITS: usize = u64::BITS as usize;

const WORDS: usize = (1 << u16::BITS) / WORD_BITS;

/// A range of ports, such as `25` or `1-1023`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

impl Ports {
    /// Parses a port or a range of ports. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first.trim())?, port(last.trim())?);
        (first <= last).then_some(Self(first..=last))
    }
}

/// Parses a port. A sign is not part of it.
fn port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// A set of ports. A lookup reads one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSet(Box<[u64; WORDS]>);

impl PortSet {
    /// Creates the set of all ports of some ranges.
    pub fn new(ranges: &[Ports]) -> Self {
        let mut words = Box::new([0; WORDS]);
        for port in ranges.iter().flat_map(|Ports(range)| range.clone()).map(usize::from) {
            words[port / WORD_BITS] |= 1 << (port % WORD_BITS);
        }
        Self(words)
    }

    /// Returns whether the set contains a port.
    #[inline]
    pub fn contains(&self, port: u16) -> bool {
        let port = usize::from(port);
        self.0[port / WORD_BITS] >> (port % WORD_BITS) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_ranges() {
        for (text, expected) in [
            ("25", Some(25..=25)),
            ("1-1023", Some(1..=1023)),
            (" 1 - 1023 ", Some(1..=1023)),
            ("0-65535", Some(0..=65535)),
            ("", None),
            ("-", None),
            ("1-", None),
            ("-1", None),
            ("+1", None),
            ("65536", None),
            ("9-5", None),
            ("1-2-3", None),
        ] {
            assert_eq!(Ports::parse(text), expected.map(Ports), "{text}");
        }
        assert_eq!(Ports(1..=1023).to_string(), "1-1023");
        assert_eq!(Ports(25..=25).to_string(), "25");
    }

    #[test]
    fn a_set_contains_exactly_its_ranges() {
        let set = PortSet::new(&[Ports(1..=1023), Ports(25..=25), Ports(6881..=6881), Ports(65535..=65535)]);
        for port in 0..=u16::MAX {
            let expected = (1..=1023).contains(&port) || [6881, 65535].contains(&port);
            assert_eq!(set.contains(port), expected, "{port}");
            assert!(!PortSet::new(&[]).contains(port));
        }
    }
}
