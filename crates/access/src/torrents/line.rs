//! One line of a list of torrents.
//!
//! A line names a torrent: by 40 hexadecimal digits, by 32 characters of base32 (RFC 4648), by the 64 hexadecimal
//! digits of a v2 torrent (BEP 52), the first 20 bytes of which count as on the wire, or by a magnet link (BEP 9, BEP
//! 53), which may name both hashes of a hybrid torrent. Further names, separated by space, are further torrents, up to
//! eight. A date, a reference in square brackets, and a reason may follow in this order, for all of them:
//!
//! ```text
//! # a comment
//! 0123456789abcdef0123456789abcdef01234567
//! 0123456789abcdef0123456789abcdef01234567 2026-01-31 [case 4711] removed after a notice # another comment
//! ```
//!
//! A comment begins with a `#` at the beginning of a line, after a hash, or after space.

use core::fmt;

use arrayvec::ArrayVec;
use shoal_base::InfoHash;

use super::details::Details;

/// Maximum length of a line in bytes. Magnet links that name many trackers are long.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// Maximum length of a reason in bytes. It fits every reply.
pub const REASON_BYTES_MAX: usize = 250;

/// Maximum length of a reference in bytes.
pub const REFERENCE_BYTES_MAX: usize = 250;

/// Maximum number of hashes that a line may name.
pub const HASHES_MAX: usize = 8;

/// The beginning of a magnet link, in any case.
const MAGNET: &[u8] = b"magnet:?";

/// A line that names a torrent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'l> {
    /// The hashes: one, or more if the line or a magnet link names several.
    pub info_hashes: ArrayVec<InfoHash, HASHES_MAX>,
    /// The date, as `YYYY-MM-DD`.
    pub date: Option<&'l str>,
    /// The reference, such as the number of a case.
    pub reference: Option<&'l str>,
    /// The reason, for clients to show.
    pub reason: Option<&'l str>,
}

/// Why a line cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line does not begin with an info hash.
    #[error(
        "it does not begin with an info hash (40 or 64 hexadecimal digits, or 32 characters of base32) or a magnet link"
    )]
    NoInfoHash,
    /// The line is a magnet link without a hash.
    #[error("the magnet link has no parameter xt=urn:btih:HASH or xt=urn:btmh:1220HASH")]
    MagnetWithoutHash,
    /// The line names too many torrents.
    #[error("it names more than {HASHES_MAX} torrents")]
    ManyHashes,
    /// A text has a control character.
    #[error("the text after the info hash has a control character")]
    ControlCharacter,
    /// The reference has no end.
    #[error("the reference begins with [ but does not end with ]")]
    OpenReference,
    /// The reference is too long.
    #[error("the reference has more than {REFERENCE_BYTES_MAX} bytes")]
    LongReference,
    /// The reason is too long.
    #[error("the reason has more than {REASON_BYTES_MAX} bytes")]
    LongReason,
    /// The line is too long.
    #[error("it has more than {LINE_BYTES_MAX} bytes")]
    LongLine,
}

impl<'l> Entry<'l> {
    /// Parses a line, without its end. Returns `None` for an empty line or a comment.
    ///
    /// # Errors
    /// Returns what is wrong with the line.
    pub fn parse(line: &'l str) -> Result<Option<Self>, LineError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(LineError::LongLine);
        }
        let line = without_comment(line).trim();
        if line.is_empty() {
            return Ok(None);
        }
        let mut info_hashes = ArrayVec::new();
        let mut rest = line;
        while !rest.is_empty() {
            let (name, behind) = split_word(rest);
            match parse_name(name.as_bytes(), &mut info_hashes) {
                Ok(()) => rest = behind,
                // Any other word begins the details.
                Err(LineError::NoInfoHash) if !info_hashes.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        if rest.chars().any(|c| c.is_control() && c != '\t') {
            return Err(LineError::ControlCharacter);
        }
        let (date, rest) = split_date(rest);
        let (reference, reason) = split_reference(rest)?;
        let reason = if reason.starts_with('#') { "" } else { reason };
        Ok(Some(Self { info_hashes, date, reference, reason: check_reason(reason)? }))
    }

    /// Returns the date, the reference and the reason.
    pub const fn details(&self) -> Details<'l> {
        Details { date: self.date, reference: self.reference, reason: self.reason }
    }
}

/// Returns a reason without surrounding space, or `None` if it is empty.
pub(super) fn check_reason(reason: &str) -> Result<Option<&str>, LineError> {
    let reason = reason.trim();
    if reason.chars().any(|c| c.is_control() && c != '\t') {
        return Err(LineError::ControlCharacter);
    }
    if reason.len() > REASON_BYTES_MAX {
        return Err(LineError::LongReason);
    }
    Ok((!reason.is_empty()).then_some(reason))
}

impl fmt::Display for Entry<'_> {
    /// Writes a line for each hash, in the form that [`parse`](Entry::parse) reads. The last line has no end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, info_hash) in self.info_hashes.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "\n" })?;
            write!(f, "{info_hash:?}{}", self.details())?;
        }
        Ok(())
    }
}

impl fmt::Display for Details<'_> {
    /// Writes the rest of a line after the info hash, in the form that [`Entry::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(date) = self.date {
            write!(f, " {date}")?;
        }
        // An empty reference separates a reason that would be taken for something else.
        let is_ambiguous = |reason: &str| {
            let is_name = parse_name(split_word(reason).0.as_bytes(), &mut ArrayVec::new())
                != Err(LineError::NoInfoHash);
            is_name || reason.starts_with('[') || split_date(reason).0.is_some()
        };
        match self.reference {
            Some(reference) => write!(f, " [{reference}]")?,
            None if self.reason.is_some_and(is_ambiguous) => f.write_str(" []")?,
            None => {}
        }
        self.reason.map_or(Ok(()), |reason| write!(f, " {reason}"))
    }
}

/// Returns the comment after an entry, if the line has one.
pub fn comment(line: &str) -> Option<&str> {
    line[without_comment(line).len()..].strip_prefix('#').map(str::trim)
}

/// Removes a comment. A magnet link may contain a `#`, and so may a word of a reason.
fn without_comment(line: &str) -> &str {
    let (first, _) = split_word(line.trim_start());
    let name_begin = line.len() - line.trim_start().len();
    let name_end = if is_magnet(first.as_bytes()) { name_begin } else { name_begin + first.len() };
    let bytes = line.as_bytes();
    let begins = |&(index, byte): &(usize, &u8)| {
        *byte == b'#' && (index < name_end || index == 0 || bytes[index - 1].is_ascii_whitespace())
    };
    let begin = bytes.iter().enumerate().find(begins).map_or(line.len(), |(index, _)| index);
    &line[..begin]
}

fn split_word(text: &str) -> (&str, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start())
}

fn is_magnet(name: &[u8]) -> bool {
    name.get(..MAGNET.len()).is_some_and(|start| start.eq_ignore_ascii_case(MAGNET))
}

/// Appends the hashes in a word, each once.
fn parse_name(name: &[u8], info_hashes: &mut ArrayVec<InfoHash, HASHES_MAX>) -> Result<(), LineError> {
    let mut add = |info_hash| {
        if info_hashes.contains(&info_hash) {
            return Ok(());
        }
        info_hashes.try_push(info_hash).map_err(|_| LineError::ManyHashes)
    };
    if let Some(info_hash) = parse_hash(name) {
        return add(info_hash);
    }
    if !is_magnet(name) {
        return Err(LineError::NoInfoHash);
    }
    let mut named = name[MAGNET.len()..].split(|byte| *byte == b'&').filter_map(magnet_hash).peekable();
    if named.peek().is_none() { Err(LineError::MagnetWithoutHash) } else { named.try_for_each(add) }
}

/// Parses a hash in any written form: 40 hexadecimal digits, 32 characters of base32, or the 64 digits of a v2 hash, of
/// which it returns the first 20 bytes.
pub fn parse_hash(text: &[u8]) -> Option<InfoHash> {
    match text.len() {
        40 | 64 => hex(text),
        32 => base32(text),
        _ => None,
    }
}

/// Returns the hash in a parameter of a magnet link, if it has one: `xt=urn:btih:` with a v1 hash, or
/// `xt=urn:btmh:1220` with a v2 hash (1220 announces a SHA-256 of 32 bytes). With several hashes, a number may follow
/// `xt` (BEP 9).
fn magnet_hash(parameter: &[u8]) -> Option<InfoHash> {
    let equals = parameter.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&parameter[..equals], &parameter[equals + 1..]);
    let number = name.strip_prefix(b"xt")?;
    if !(number.is_empty()
        || number.strip_prefix(b".").is_some_and(|digits| digits.iter().all(u8::is_ascii_digit)))
    {
        return None;
    }
    let value = strip_part(strip_part(value, b"urn")?, b"btih").map(|hash| (hash, [40, 32])).or_else(|| {
        let hash = strip_part(strip_part(value, b"urn")?, b"btmh")?;
        Some((hash.strip_prefix(b"1220")?, [64, 64]))
    });
    let (hash, lengths) = value?;
    if lengths.contains(&hash.len()) { parse_hash(hash) } else { None }
}

/// Removes a part of a URN, in any case, and its colon, which may be percent-encoded.
fn strip_part<'v>(value: &'v [u8], part: &[u8]) -> Option<&'v [u8]> {
    let rest = value.get(part.len()..)?;
    if !value[..part.len()].eq_ignore_ascii_case(part) {
        return None;
    }
    rest.strip_prefix(b":").or_else(|| rest.strip_prefix(b"%3A")).or_else(|| rest.strip_prefix(b"%3a"))
}

/// Parses at least 40 hexadecimal digits, and returns the first 20 bytes.
fn hex(digits: &[u8]) -> Option<InfoHash> {
    let mut bytes = [0; 20];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    digits[40..].iter().all(u8::is_ascii_hexdigit).then_some(InfoHash(bytes))
}

#[inline]
const fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Parses 32 characters of base32 (RFC 4648, section 6): eight characters are five bytes.
fn base32(characters: &[u8]) -> Option<InfoHash> {
    let mut bytes = [0; 20];
    for (five, eight) in bytes.chunks_exact_mut(5).zip(characters.chunks_exact(8)) {
        let mut bits = 0_u64;
        for character in eight {
            let value = match character.to_ascii_uppercase() {
                upper @ b'A'..=b'Z' => upper - b'A',
                digit @ b'2'..=b'7' => digit - b'2' + 26,
                _ => return None,
            };
            bits = bits << 5 | u64::from(value);
        }
        five.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    Some(InfoHash(bytes))
}

/// Splits off a date, if the text begins with one.
fn split_date(text: &str) -> (Option<&str>, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (date, rest) = text.split_at(end);
    if is_date(date) { (Some(date), rest.trim_start()) } else { (None, text) }
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let number = |digits: &[u8]| {
        digits
            .iter()
            .all(u8::is_ascii_digit)
            .then(|| digits.iter().fold(0_u32, |n, d| n * 10 + u32::from(d - b'0')))
    };
    bytes.len() == 10
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && number(&bytes[..4]).is_some()
        && number(&bytes[5..7]).is_some_and(|month| (1..=12).contains(&month))
        && number(&bytes[8..]).is_some_and(|day| (1..=31).contains(&day))
}

/// Splits off a reference, if the text begins with one.
fn split_reference(text: &str) -> Result<(Option<&str>, &str), LineError> {
    let Some(inner) = text.strip_prefix('[') else { return Ok((None, text)) };
    let (reference, rest) = inner.split_once(']').ok_or(LineError::OpenReference)?;
    let reference = reference.trim();
    if reference.len() > REFERENCE_BYTES_MAX {
        return Err(LineError::LongReference);
    }
    Ok(((!reference.is_empty()).then_some(reference), rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEX: &str = "0123456789abcdef0123456789ABCDEF01234567";
    const BASE32: &str = "AERUKZ4JVPG66AJDIVTYTK6N54ASGRLH";
    const V2: &str = "0123456789abcdef0123456789abcdef01234567fedcba9876543210fedcba98";
    const HASH: InfoHash = InfoHash([
        0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01,
        0x23, 0x45, 0x67,
    ]);

    fn parse(line: &str) -> Result<Option<Entry<'_>>, LineError> {
        Entry::parse(line)
    }

    #[test]
    fn every_form_of_a_hash_is_read() {
        for name in [
            HEX.to_owned(),
            BASE32.to_owned(),
            BASE32.to_lowercase(),
            V2.to_owned(),
            format!("magnet:?xt=urn:btih:{HEX}&dn=a+name&tr=udp%3A%2F%2Ftracker.example%3A6969"),
            format!("MAGNET:?dn=x&xt=urn:btih:{BASE32}#fragment"),
            format!("magnet:?xt=urn%3Abtih%3A{HEX}"),
            format!("magnet:?xt.1=urn:btmh:1220{V2}"),
        ] {
            // A fragment is part of the last parameter.
            let name = name.trim_end_matches("#fragment");
            for line in [name.to_owned(), format!("  {name}\t"), format!("{name}\r"), format!("{name} # why")]
            {
                let entry = parse(&line).unwrap().unwrap();
                assert_eq!((&*entry.info_hashes, entry.reason), (&[HASH][..], None), "{line}");
            }
        }
    }

    #[test]
    fn a_hybrid_magnet_link_names_both_hashes() {
        let other = V2.replace('0', "1");
        let line = format!("magnet:?xt=urn:btih:{HEX}&xt=urn:btmh:1220{other}&xt=urn:sha1:x both");
        let entry = parse(&line).unwrap().unwrap();
        assert_eq!(*entry.info_hashes, [HASH, parse_hash(other.as_bytes()).unwrap()]);
        assert_eq!(entry.reason, Some("both"));
    }

    #[test]
    fn a_date_a_reference_and_a_reason_follow_in_this_order() {
        for (rest, date, reference, reason) in [
            ("", None, None, None),
            ("a reason", None, None, Some("a reason")),
            ("\ta\treason  ", None, None, Some("a\treason")),
            ("2026-01-31", Some("2026-01-31"), None, None),
            ("2026-01-31 [case 4711] a notice", Some("2026-01-31"), Some("case 4711"), Some("a notice")),
            ("[case 4711] 2026-01-31", None, Some("case 4711"), Some("2026-01-31")),
            ("[]x", None, None, Some("x")),
            ("[] [open 2026-01-31", None, None, Some("[open 2026-01-31")),
            ("[] 2026-01-31 x", None, None, Some("2026-01-31 x")),
            ("[x]# a comment", None, Some("x"), None),
            ("2026-13-31 x", None, None, Some("2026-13-31 x")),
            ("c# is no comment # this is", None, None, Some("c# is no comment")),
            ("größer", None, None, Some("größer")),
        ] {
            let line = format!("{HEX} {rest}");
            let entry = parse(&line).unwrap().unwrap();
            assert_eq!((entry.date, entry.reference, entry.reason), (date, reference, reason), "{line}");
            assert_eq!(Entry::parse(&entry.to_string()).unwrap().unwrap(), entry);
        }
    }

    #[test]
    fn empty_lines_and_comments_name_nothing() {
        for line in ["", "   ", "\r", "# a comment", "  # another", "#"] {
            assert_eq!(parse(line), Ok(None));
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        for (line, error) in [
            ("garbage".to_owned(), LineError::NoInfoHash),
            (HEX[1..].to_owned(), LineError::NoInfoHash),
            (HEX.replace('0', "g"), LineError::NoInfoHash),
            (V2.replace("98", "9x"), LineError::NoInfoHash),
            (BASE32.replace('A', "1"), LineError::NoInfoHash),
            ("magnet:?dn=x".to_owned(), LineError::MagnetWithoutHash),
            (format!("magnet:?xt=urn:btih:{V2}"), LineError::MagnetWithoutHash),
            (format!("magnet:?xt=urn:btmh:{V2}"), LineError::MagnetWithoutHash),
            (format!("{HEX} a\u{7}bell"), LineError::ControlCharacter),
            (format!("{HEX} [open"), LineError::OpenReference),
            (format!("{HEX} [{long}]"), LineError::LongReference),
            (format!("{HEX} {long}"), LineError::LongReason),
            (format!("{HEX} {}", " ".repeat(LINE_BYTES_MAX)), LineError::LongLine),
        ] {
            assert_eq!(parse(&line), Err(error), "{line}");
        }
    }

    #[test]
    fn a_comment_follows_an_entry() {
        assert_eq!(comment(&format!("{HEX} c# # by us\r\n")), Some("by us"));
        assert_eq!(comment(&format!("{HEX}#by us")), Some("by us"));
        assert_eq!(comment(HEX), None);
    }

    #[test]
    fn a_comment_may_follow_a_hash_at_once() {
        for line in [format!("{HEX}#note"), format!("{HEX}# note"), format!("  {V2}#note # more")] {
            let entry = parse(&line).unwrap().unwrap();
            assert_eq!((&*entry.info_hashes, entry.details()), (&[HASH][..], Details::NONE), "{line}");
        }
        let magnet = format!("magnet:?dn=a#b&xt=urn:btih:{HEX}");
        assert_eq!(*parse(&magnet).unwrap().unwrap().info_hashes, [HASH], "a # of a link is part of it");
    }

    #[test]
    fn a_line_may_name_several_torrents() {
        let other = "ab".repeat(20);
        let both = [HASH, InfoHash([0xab; 20])];
        for names in [
            format!("{HEX} {other}"),
            format!("{BASE32}\t{other} {HEX}"),
            format!("{V2} magnet:?xt=urn:btih:{other}"),
        ] {
            let line = format!("{names} 2026-01-31 [x] why # not");
            let entry = parse(&line).unwrap().unwrap();
            assert_eq!(
                (&*entry.info_hashes, entry.date, entry.reason),
                (&both[..], Some("2026-01-31"), Some("why"))
            );
            assert_eq!(parse(&names).unwrap().unwrap().reason, None, "{names}");
        }
        let line = format!("{HEX} [] {other} why");
        let entry = parse(&line).unwrap().unwrap();
        let reason = format!("{other} why");
        assert_eq!((&*entry.info_hashes, entry.reason), (&[HASH][..], Some(&*reason)));
        let written = entry.to_string();
        assert_eq!(parse(&written).unwrap().unwrap(), entry, "a reason that begins with a hash is no name");
        let many: String = (0..=HASHES_MAX).map(|number| format!("{number:040x} ")).collect();
        assert_eq!(parse(&many), Err(LineError::ManyHashes));
    }

    proptest! {
        #[test]
        fn an_entry_is_read_back_as_it_is_written(line in "[0-9a-f]{40}[ -~]{0,60}") {
            if let Ok(Some(entry)) = parse(&line) {
                let written = entry.to_string();
                let again = Entry::parse(&written).unwrap().unwrap();
                prop_assert_eq!(&again.info_hashes, &entry.info_hashes);
            }
        }
    }
}
