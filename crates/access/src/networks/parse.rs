//! The formats of lists of networks.
//!
//! | Line | Meaning |
//! |---|---|
//! | `192.0.2.0/24`, `2001:db8::/32` | a network; bits behind the prefix are ignored |
//! | `192.0.2.1` | a single address |
//! | `192.0.2.5-192.0.2.9` | a range, both ends included |
//! | `Some Company:192.0.2.0-192.0.2.255` | a range of PeerGuardian, IPv4 only |
//! | `192.000.002.000 - 192.000.002.255 , 100 , Company` | a range of eMule; those above level 127 are not blocked |
//!
//! Whatever follows an address after a space, `;` or `#` is a remark. Empty lines and those that begin with `#`, `;` or
//! `//` are skipped. Lists compressed by gzip are recognised by their first bytes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use std::borrow::Cow;
use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::Network;

/// Maximum length of a line. The labels of the common lists are much shorter.
pub const LINE_BYTES_MAX: usize = 4096;

/// Maximum number of networks of a list. The largest lists in use have some hundred thousand ranges.
pub const NETWORKS_MAX: usize = 4 << 20;

/// Maximum size of a list after decompression, whatever the caller admits.
pub const LIST_BYTES_MAX: u64 = 512 << 20;

/// Ranges of eMule above this level are not blocked.
const EMULE_LEVEL_MAX: u32 = 127;

/// The first bytes of a file that gzip has compressed (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Why a list cannot be read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFault {
    /// The number of the first faulty line, from 1; 0 if the fault is not one of a line.
    pub line: usize,
    /// Its fault, in words for the operator.
    pub fault: &'static str,
    /// The number of faulty lines.
    pub faulty_lines: usize,
}

impl fmt::Display for ListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(self.fault)?,
            line => write!(f, "line {line}: {}", self.fault)?,
        }
        match self.faulty_lines {
            0 | 1 => Ok(()),
            lines => write!(f, " (and {} more lines)", lines - 1),
        }
    }
}

impl core::error::Error for ListFault {}

/// Appends the networks of a list to `out`. A faulty line is left out. A compressed list may have `bytes_max` bytes
/// after decompression, and [`LIST_BYTES_MAX`] at most.
///
/// # Errors
/// Returns the first faulty line.
pub fn parse(list: &[u8], bytes_max: u64, out: &mut Vec<Network>) -> Result<(), ListFault> {
    let whole = |fault| ListFault { line: 0, fault, faulty_lines: 0 };
    let list = decompress(list, bytes_max.min(LIST_BYTES_MAX)).map_err(whole)?;
    let mut first = None;
    for (line, text) in (1..).zip(list.split(|&byte| byte == b'\n')) {
        if let Err(fault) = parse_line(text, out) {
            first.get_or_insert(ListFault { line, fault, faulty_lines: 0 }).faulty_lines += 1;
        }
        if out.len() > NETWORKS_MAX {
            return Err(whole("there are too many networks"));
        }
    }
    first.map_or(Ok(()), Err)
}

fn decompress(list: &[u8], bytes_max: u64) -> Result<Cow<'_, [u8]>, &'static str> {
    if !list.starts_with(&GZIP_MAGIC) {
        return Ok(Cow::Borrowed(list));
    }
    let mut text = Vec::new();
    MultiGzDecoder::new(list)
        .take(bytes_max + 1)
        .read_to_end(&mut text)
        .map_err(|_| "the gzip data is damaged or ends early")?;
    if text.len() as u64 > bytes_max { Err("the list is too large") } else { Ok(Cow::Owned(text)) }
}

fn parse_line(line: &[u8], out: &mut Vec<Network>) -> Result<(), &'static str> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") || line.starts_with(b";") || line.starts_with(b"//") {
        return Ok(());
    }
    if line.len() > LINE_BYTES_MAX {
        return Err("the line is too long");
    }
    // Labels are in any encoding; addresses are ASCII.
    let text = String::from_utf8_lossy(line);
    plain(&text, out)
        .or_else(|| peer_guardian(&text, out))
        .ok_or("expected a network such as 192.0.2.0/24, an address or a range of addresses")
}

/// Reads a line that begins with an address.
fn plain(text: &str, out: &mut Vec<Network>) -> Option<()> {
    let end = text.find([' ', '\t', '-', '/', ',', ';', '#']).unwrap_or(text.len());
    let (first, rest) = text.split_at(end);
    let first = address(first)?;
    let rest = rest.trim_start();
    if let Some(length) = rest.strip_prefix('/') {
        let end = length.find(|c: char| !c.is_ascii_digit()).unwrap_or(length.len());
        let (length, rest) = length.split_at(end);
        is_remark(rest).then_some(())?;
        out.push(Network::new(first, length.parse().ok()?)?);
    } else if let Some(last) = rest.strip_prefix('-') {
        let last = last.trim_start();
        let end = last.find([' ', '\t', ',', ';', '#']).unwrap_or(last.len());
        let (last, rest) = last.split_at(end);
        let networks = Network::range(first, address(last)?)?;
        if is_blocked(rest)? {
            out.extend(networks);
        }
    } else if is_remark(rest) || text.len() > end && !rest.starts_with(',') {
        out.push(Network::single(first));
    } else {
        return None;
    }
    Some(())
}

/// Reads a range behind a label, which may contain colons itself.
fn peer_guardian(text: &str, out: &mut Vec<Network>) -> Option<()> {
    let (_label, range) = text.rsplit_once(':')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (v4(first.trim())?, v4(last.trim())?);
    out.extend(Network::range(first.into(), last.into())?);
    Some(())
}

/// Returns whether the rest of a line is a remark.
fn is_remark(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([' ', '\t', ';', '#'])
}

/// Returns whether a range is to be blocked, by the level of eMule behind it, if there is one.
fn is_blocked(rest: &str) -> Option<bool> {
    match rest.trim_start().strip_prefix(',') {
        Some(fields) => {
            let level = fields.split(',').next()?.trim();
            Some(level.parse::<u32>().ok()? <= EMULE_LEVEL_MAX)
        }
        None => is_remark(rest).then_some(true),
    }
}

fn address(text: &str) -> Option<IpAddr> {
    v4(text).map(IpAddr::V4).or_else(|| text.parse().ok())
}

/// Parses an IPv4 address whose numbers may have leading zeros, as eMule writes them. They are decimal.
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
    use std::io::Write;

    use super::*;

    fn parsed(list: &[u8]) -> Result<Vec<Network>, ListFault> {
        let mut networks = Vec::new();
        parse(list, LIST_BYTES_MAX, &mut networks).map(|()| networks)
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
            assert_eq!(parsed(line.as_bytes()), Ok(vec![network("192.0.2.0", 24)]), "{line}");
        }
        assert_eq!(parsed(b"192.0.2.1"), Ok(vec![network("192.0.2.1", 32)]));
        assert_eq!(parsed(b"192.0.2.1 a reason"), Ok(vec![network("192.0.2.1", 32)]));
        assert_eq!(parsed(b"2001:db8::/32"), Ok(vec![network("2001:db8::", 32)]));
        assert_eq!(parsed(b"2001:db8::1"), Ok(vec![network("2001:db8::1", 128)]));
        assert_eq!(parsed(b"2001:db8:: - 2001:db8::ffff"), Ok(vec![network("2001:db8::", 112)]));
        assert_eq!(parsed(b"Caf\xe9:192.0.2.0-192.0.2.255"), Ok(vec![network("192.0.2.0", 24)]));
    }

    #[test]
    fn what_emule_does_not_block_is_skipped() {
        assert_eq!(parsed(b"192.0.2.0 - 192.0.2.255 , 128 , Some Company"), Ok(vec![]));
        assert_eq!(parsed(b"192.0.2.0 - 192.0.2.255 , 200 , Some Company"), Ok(vec![]));
    }

    #[test]
    fn comments_are_skipped() {
        assert_eq!(parsed(b"\n# one\n; two\n// three\n\r\n  \n"), Ok(vec![]));
        assert_eq!(parsed(b""), Ok(vec![]));
    }

    #[test]
    fn the_first_fault_is_named_by_its_line() {
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
            "2001:db8::/129",
            "0192.0.2.1",
        ] {
            let list = format!("# a list\n192.0.2.1\n{fault}\n192.0.2.2\n{fault}\n");
            let mut networks = Vec::new();
            let found = parse(list.as_bytes(), LIST_BYTES_MAX, &mut networks).unwrap_err();
            assert_eq!((found.line, found.faulty_lines), (3, 2), "{fault}");
            assert_eq!(networks, [network("192.0.2.1", 32), network("192.0.2.2", 32)]);
        }
        let long = [b"192.0.2.1 ".as_slice(), &[b'x'; LINE_BYTES_MAX]].concat();
        assert_eq!(parsed(&long).unwrap_err().to_string(), "line 1: the line is too long");
        assert_eq!(
            parsed(b"x\ny").unwrap_err().to_string(),
            "line 1: expected a network such as 192.0.2.0/24, an address or a range of addresses (and 1 more lines)"
        );
    }

    #[test]
    fn lists_can_be_compressed() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"192.0.2.0/24\n").unwrap();
        let member = gzip.finish().unwrap();
        assert_eq!(parsed(&member), Ok(vec![network("192.0.2.0", 24)]));
        assert_eq!(parsed(&[&member[..], &member].concat()).unwrap().len(), 2);
        assert_eq!(parse(&member, 13, &mut Vec::new()), Ok(()));
        assert_eq!(parse(&member, 12, &mut Vec::new()).unwrap_err().fault, "the list is too large");
        assert_eq!(parsed(&member[..member.len() - 5]).unwrap_err().line, 0);
        assert_eq!(parsed(b"\x1f\x8bgarbage").unwrap_err().line, 0);
    }
}
