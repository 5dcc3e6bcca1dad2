//! The formats of lists of networks.
//!
//! | Line | Meaning |
//! |---|---|
//! | `192.0.2.0/24`, `2001:db8::/32` | a network; bits after the prefix are ignored |
//! | `192.0.2.1` | a single address |
//! | `192.0.2.5-192.0.2.9` | a range, both ends included |
//! | `Some Company:192.0.2.0-192.0.2.255` | a range of PeerGuardian, of either family |
//! | `192.000.002.000 - 192.000.002.255 , 100 , Company` | a range of eMule; ranges above level 127 are not blocked |
//!
//! Text after an address is a remark if a space, `;` or `#` precedes it. Empty lines and lines that begin with `#`, `;`
//! or `//` are skipped.
//!
//! Each line has one reading. A label of PeerGuardian may begin with an address, so a line that ends in `:` and a range
//! is a PeerGuardian line, unless a `#` or `;` after an address, or the `,` of eMule after a range, comes earlier.
//! The address before the `-` has as many groups of IPv6 as make a range. If a group may also belong to the label, and
//! both readings are plausible, the line is faulty.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::io::{self, BufRead};

use super::{Network, NetworkList};
use crate::faults::Faults;
use crate::text::{Lines, Text, decode};

/// Maximum length of a line. The labels of the common lists are much shorter.
pub const LINE_BYTES_MAX: usize = 4096;

/// Maximum number of networks of a list. The largest lists in use have some hundred thousand ranges.
pub const NETWORKS_MAX: usize = 4 << 20;

/// Ranges of eMule above this level are not blocked.
const EMULE_LEVEL_MAX: u32 = 127;

/// The network or networks of a line.
#[derive(Clone, Copy)]
enum Found {
    Network(Network),
    /// The first and the last address. A range has up to 254 networks.
    Range(IpAddr, IpAddr),
    /// Networks that are not blocked.
    Nothing,
}

/// Adds the networks of a list, which may have `bytes_max` bytes after decompression. Counts and skips faulty lines.
/// Fails if the list cannot be read to its end, or is too large.
pub fn read_networks(
    body: &mut dyn BufRead,
    bytes_max: u64,
    list: &mut NetworkList,
    faults: &mut Faults,
) -> io::Result<()> {
    let mut text = Text::new(body, bytes_max)?;
    let mut lines = Lines::after(0, LINE_BYTES_MAX);
    let mut each = |number: u64, line: &[u8]| match parse_line(line) {
        Ok(None) => {}
        Ok(Some(found)) => {
            faults.count();
            match found {
                Found::Network(network) => list.push(network),
                Found::Range(first, last) => {
                    Network::range(first, last).into_iter().flatten().for_each(|network| list.push(network));
                }
                Found::Nothing => {}
            }
        }
        Err(fault) => faults.add(number, fault),
    };
    text.for_each_piece(|piece| {
        lines.push(piece, &mut each);
        true
    })?;
    lines.finish(&mut each);
    list.check()
}

/// Parses a line. Returns `None` for an empty line or a comment.
fn parse_line(line: &[u8]) -> Result<Option<Found>, &'static str> {
    if line.len() > LINE_BYTES_MAX {
        return Err("the line is too long");
    }
    let text = decode(line);
    let text = text.trim();
    if text.is_empty() || text.starts_with(['#', ';']) || text.starts_with("//") {
        return Ok(None);
    }
    let beginning = plain(text);
    if !matches!(&beginning, Ok(Plain { is_last: true, .. }))
        && let Some((first, last)) = peer_guardian(text)?
    {
        return Ok(Some(Found::Range(first, last)));
    }
    beginning.map(|plain| Some(plain.found))
}

/// The network of a line that begins with an address.
struct Plain {
    found: Found,
    /// Whether no label can end later in the line.
    is_last: bool,
}

fn plain(text: &str) -> Result<Plain, &'static str> {
    let unknown = "expected a network such as 192.0.2.0/24, an address or a range of addresses";
    let end = text.find([' ', '\t', '-', '/', ',', ';', '#']).unwrap_or(text.len());
    let (first, rest) = text.split_at(end);
    let first = address(first).ok_or(unknown)?;
    let rest = rest.trim_start();
    if let Some(length) = rest.strip_prefix('/') {
        let end = length.find(|c: char| !c.is_ascii_digit()).unwrap_or(length.len());
        let (length, rest) = length.split_at(end);
        let network = length.parse().ok().and_then(|length| Network::new(first, length));
        let network = network.filter(|_| is_remark(rest)).ok_or("the length of the prefix is wrong")?;
        return Ok(Plain { found: Found::Network(network), is_last: is_comment(rest) });
    }
    if let Some(last) = rest.strip_prefix('-') {
        let last = last.trim_start();
        let end = last.find([' ', '\t', ',', ';', '#']).unwrap_or(last.len());
        let (last, rest) = last.split_at(end);
        let last = address(last).ok_or("the range has no last address")?;
        let (first, last) = range(first, last)?;
        let is_blocked = is_blocked(rest).ok_or("the level behind the range is no number")?;
        let found = if is_blocked { Found::Range(first, last) } else { Found::Nothing };
        return Ok(Plain { found, is_last: is_comment(rest) || rest.trim_start().starts_with(',') });
    }
    if !rest.starts_with(',') && (rest.len() < text.len() - end || is_remark(rest)) {
        return Ok(Plain { found: Found::Network(Network::single(first)), is_last: is_comment(rest) });
    }
    Err(unknown)
}

/// Reads a range after a label, which may contain anything. Returns `None` if the line does not end in such a range.
fn peer_guardian(text: &str) -> Result<Option<(IpAddr, IpAddr)>, &'static str> {
    let Some((before, last)) = text.rsplit_once('-') else { return Ok(None) };
    let before = before.trim_end();
    match address(last.trim()) {
        Some(last @ IpAddr::V4(_)) => {
            let first = before.rsplit_once(':').and_then(|(_label, first)| v4(first.trim()));
            first.map(|first| range(first.into(), last)).transpose()
        }
        Some(IpAddr::V6(last)) => peer_guardian_v6(before, last),
        None => Ok(None),
    }
}

/// Finds the first address of an IPv6 range after a label. Both may have groups of IPv6, so `before` may have several
/// readings. The right one is the longest that begins with the first group of `last`, or else the longest.
fn peer_guardian_v6(before: &str, last: Ipv6Addr) -> Result<Option<(IpAddr, IpAddr)>, &'static str> {
    let is_part = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.');
    let (label, run) = before.split_at(before.trim_end_matches(is_part).len());
    // The address is the whole run, unless the run begins within a word of the label, or the address begins after a
    // colon in it.
    let whole = label.chars().next_back().is_none_or(char::is_whitespace).then_some(run);
    let behind_colons = run.match_indices(':').map(|(at, _)| &run[at + 1..]);
    let mut readings = whole
        .into_iter()
        .chain(behind_colons)
        .filter_map(|text| Some((text.len(), text.parse::<Ipv6Addr>().ok()?)));
    let Some(longest) = readings.next() else { return Ok(None) };
    let is_near = |(_, first): &(usize, Ipv6Addr)| first.segments()[0] == last.segments()[0];
    let (length, first) = if is_near(&longest) { longest } else { readings.find(is_near).unwrap_or(longest) };
    // The whole run is the address after a label that has ended before, or the address of a line without a label.
    let is_labelled = label.trim_end().ends_with(':');
    let is_reading = |length: usize| length < run.len() || is_labelled || label.trim_end().is_empty();
    if !is_reading(length) {
        return Ok(None);
    }
    if length < longest.0 && is_reading(longest.0) && longest.1 <= last {
        return Err("the label in front of the range may be a part of the address");
    }
    range(first.into(), last.into()).map(Some)
}

const REVERSED: &str = "the range ends before it begins";

pub(super) fn range(first: IpAddr, last: IpAddr) -> Result<(IpAddr, IpAddr), &'static str> {
    let (first, last) = (first.to_canonical(), last.to_canonical());
    if first.is_ipv4() != last.is_ipv4() {
        Err("the ends of the range are of different families")
    } else if first > last {
        Err(REVERSED)
    } else {
        Ok((first, last))
    }
}

fn is_remark(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([' ', '\t', ';', '#'])
}

/// Returns whether the rest of a line is an explicit remark, or nothing.
fn is_comment(rest: &str) -> bool {
    rest.trim_start().starts_with([';', '#'])
}

/// Returns whether a range is to be blocked, by the eMule level after it, if any.
fn is_blocked(rest: &str) -> Option<bool> {
    match rest.trim_start().strip_prefix(',') {
        Some(fields) => {
            let level = fields.split(',').next()?.trim();
            Some(level.parse::<u32>().ok()? <= EMULE_LEVEL_MAX)
        }
        None => is_remark(rest).then_some(true),
    }
}

pub(super) fn address(text: &str) -> Option<IpAddr> {
    v4(text).map(IpAddr::V4).or_else(|| text.parse().ok())
}

/// Parses an IPv4 address with decimal numbers, which may have leading zeros as in eMule.
fn v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 3 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    fn read(list: &[u8]) -> (Vec<Network>, Faults) {
        let (mut networks, mut faults, mut body) =
            (NetworkList::within(&Budget::default()), Faults::default(), list);
        read_networks(&mut body, u64::MAX, &mut networks, &mut faults).unwrap();
        (networks.iter().collect(), faults)
    }

    fn parsed(list: &[u8]) -> Vec<Network> {
        let (networks, faults) = read(list);
        assert_eq!(faults.faulty, 0, "{faults}");
        networks
    }

    fn network(ip: &str, length: u8) -> Network {
        Network::new(ip.parse().unwrap(), length).unwrap()
    }

    #[test]
    fn every_format() {
        for line in [
            "192.0.2.0/24",
            "192.0.2.77/24",
            "  192.0.2.0/24\r",
            "192.0.2.0/24 ; SBL1234",
            "192.0.2.0/24;SBL1234",
            "192.0.2.0/24 # some reason",
            "192.0.2.0/24\tsome reason",
            "192.0.2.0-192.0.2.255",
            "192.0.2.0 - 192.0.2.255",
            "192.0.2.0 - 192.0.2.255 # reason",
            "Some Company:192.0.2.0-192.0.2.255",
            "Some: Company, http://example.com/:192.0.2.0-192.0.2.255",
            "10 Downing Street:192.0.2.0-192.0.2.255",
            "192.000.002.000 - 192.000.002.255 , 000 , Some Company",
            "192.0.2.0 - 192.0.2.255 , 127 , Some, Company",
            "::ffff:192.0.2.0/120",
            "::ffff:192.0.2.0-::ffff:192.0.2.255",
        ] {
            assert_eq!(parsed(line.as_bytes()), [network("192.0.2.0", 24)], "{line}");
        }
        assert_eq!(parsed(b"192.0.2.1"), [network("192.0.2.1", 32)]);
        assert_eq!(parsed(b"192.0.2.1 a reason"), [network("192.0.2.1", 32)]);
        assert_eq!(parsed(b"192.0.2.1 a reason - or two"), [network("192.0.2.1", 32)]);
        assert_eq!(parsed(b"2001:db8::/32"), [network("2001:db8::", 32)]);
        assert_eq!(parsed(b"2001:db8::1"), [network("2001:db8::1", 128)]);
        assert_eq!(parsed(b"2001:db8:: - 2001:db8::ffff"), [network("2001:db8::", 112)]);
        assert_eq!(parsed(b"Caf\xe9:192.0.2.0-192.0.2.255"), [network("192.0.2.0", 24)]);
    }

    #[test]
    fn a_label_may_begin_with_an_address() {
        for (line, expected) in [
            ("127.0.0.4 host of Evil:127.0.0.2-127.0.0.3", network("127.0.0.2", 31)),
            ("10.0.0.0/8 of Evil:127.0.0.2-127.0.0.3", network("127.0.0.2", 31)),
            ("10.0.0.0-10.0.0.9 of Evil:127.0.0.2-127.0.0.3", network("127.0.0.2", 31)),
            ("127.0.0.4:127.0.0.2-127.0.0.3", network("127.0.0.2", 31)),
            ("Evil #1; 10.0.0.0:127.0.0.2-127.0.0.3", network("127.0.0.2", 31)),
            // A comment, and the fields of eMule, come before.
            ("127.0.0.4 # see Evil:127.0.0.2-127.0.0.3", network("127.0.0.4", 32)),
            ("127.0.0.4/31;Evil:127.0.0.2-127.0.0.3", network("127.0.0.4", 31)),
            ("127.0.0.4-127.0.0.5 , 1 , Evil:127.0.0.2-127.0.0.3", network("127.0.0.4", 31)),
        ] {
            assert_eq!(parsed(line.as_bytes()), [expected], "{line}");
        }
    }

    #[test]
    fn peer_guardian_has_ranges_of_ipv6() {
        for (line, expected) in [
            ("blocklist_de:2001:41d0:203:5c64::-2001:41d0:203:5c64::", network("2001:41d0:203:5c64::", 128)),
            ("blocklist_de: 2001:db8:: - 2001:db8::ff", network("2001:db8::", 120)),
            // These labels are groups of IPv6, but no address with them is in front of the last one.
            ("dead:2001:db8::-2001:db8::ff", network("2001:db8::", 120)),
            ("so bad:2001:db8::-2001:db8::ff", network("2001:db8::", 120)),
            ("127.0.0.4 Evil:2001:db8::-2001:db8::ff", network("2001:db8::", 120)),
            ("x:::1-::1", network("::1", 128)),
            ("x:1:2:3:4:5:6:7:8-1:2:3:4:5:6:7:8", network("1:2:3:4:5:6:7:8", 128)),
            ("2001:db8::-2001:db8::ff", network("2001:db8::", 120)),
        ] {
            assert_eq!(parsed(line.as_bytes()), [expected], "{line}");
        }
    }

    #[test]
    fn what_emule_does_not_block_is_skipped() {
        assert_eq!(parsed(b"192.0.2.0 - 192.0.2.255 , 128 , Some Company"), []);
        assert_eq!(parsed(b"192.0.2.0 - 192.0.2.255 , 200 , Some Company"), []);
    }

    #[test]
    fn comments_are_skipped() {
        assert_eq!(parsed(b"\n# one\n; two\n// three\n\r\n  \n\x1a"), []);
        assert_eq!(parsed(b""), []);
    }

    #[test]
    fn marks_ends_and_encodings_of_other_systems_are_read() {
        let expected = [network("127.0.0.2", 32), network("127.0.0.3", 32)];
        for list in [
            &b"\xef\xbb\xbf127.0.0.2\r\n127.0.0.3\r\n"[..],
            b"127.0.0.2\r127.0.0.3\r",
            b"127.0.0.2\n127.0.0.3\n\x1a",
            b"127.0.0.2\n127.0.0.3\0\0\0",
            b"127.0.0.2 Caf\xe9\n127.0.0.3 \x93x\x94",
            b"\xff\xfe1\x002\x007\x00.\x000\x00.\x000\x00.\x002\x00\r\x00\n\x001\x002\x007\x00.\x000\x00.\x000\x00.\x003\x00",
        ] {
            assert_eq!(parsed(list), expected, "{}", list.escape_ascii());
        }
    }

    #[test]
    fn faulty_lines_are_named_and_the_others_count() {
        for fault in [
            "garbage",
            "192.0.2.0/33",
            "192.0.2.0/",
            "192.0.2.0/24x",
            "192.0.2.0/-1",
            "192.0.2.256",
            "192.0.2",
            "192.0.2.1,",
            "192.0.2.9-192.0.2.5",
            "192.0.2.9-2001:db8::",
            "192.0.2.0-",
            "192.0.2.0 - 192.0.2.255 , x , Some Company",
            "label:192.0.2.9-192.0.2.5",
            "label:2001:db8::9-2001:db8::",
            "label:192.0.2.256-192.0.2.300",
            "a b 2001:db8::-2001:db8::ff",
            // Either the label or the address may have the first group.
            "a:2001:db8::-2001:db8::ff",
            "bad:2001:db8::-2001:db8::ff",
            "Evil: 7:2001:db8::-2001:db8::ff",
            "Evil:2a00:5::-2001:db8::",
            "2001:db8::/129",
            "0192.0.2.1",
        ] {
            let list = format!("# a list\n192.0.2.1\n{fault}\n192.0.2.2\n{fault}\n");
            let (networks, faults) = read(list.as_bytes());
            let lines: Vec<_> = faults.named.iter().map(|fault| fault.line).collect();
            assert_eq!((&lines[..], faults.faulty, faults.lines), (&[3, 5][..], 2, 4), "{fault}");
            assert_eq!(networks, [network("192.0.2.1", 32), network("192.0.2.2", 32)], "{fault}");
        }
        let long = [b"192.0.2.1 ".as_slice(), &[b'x'; LINE_BYTES_MAX]].concat();
        assert_eq!(read(&long).1.to_string(), "line 1: the line is too long");
        assert_eq!(
            read(b"1.1.1.1\n2.2.2.2-1.1.1.1").1.to_string(),
            "line 2: the range ends before it begins"
        );
    }

    #[test]
    fn a_list_that_does_not_fit_is_refused_with_the_memory_that_it_needs() {
        let budget = Budget::new(1 << 20);
        let list: String =
            (0..100_000_u32).map(|number| format!("{}\n", Ipv4Addr::from(number * 2))).collect();
        let (mut networks, mut body) = (NetworkList::within(&budget), list.as_bytes());
        let error = read_networks(&mut body, u64::MAX, &mut networks, &mut Faults::default()).unwrap_err();
        let needed = 100_000 * super::super::V4_NETWORK_BYTES;
        assert!(error.to_string().contains(&format!("need {} MiB", (needed >> 20) + 1)), "{error}");
        assert_eq!((budget.taken(), networks.len()), (0, 0));
    }
}
