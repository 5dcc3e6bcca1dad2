//! The info hashes of a .torrent file (BEP 3, BEP 52).
//!
//! The hash of a torrent is that of the bytes of its info dictionary as they stand in the file, so this module finds
//! where they begin and end. It checks the nesting of everything, but knows no more keys than it needs.

use arrayvec::ArrayVec;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use shoal_types::InfoHash;

/// Maximum nesting of values. The directories of a v2 torrent are nested.
const DEPTH_MAX: usize = 256;

/// Why a file is not a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetainfoError {
    /// The file ends within a value, or was cut off.
    #[error("the file ends early")]
    Truncated,
    /// There is an unexpected byte.
    #[error("the file is no bencoded dictionary: unexpected byte at offset {at}")]
    Malformed {
        /// The offset of the byte.
        at: usize,
    },
    /// Values are nested too deep.
    #[error("values are nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// There is no info dictionary with the pieces of a torrent.
    #[error("the file has no info dictionary of a torrent")]
    NoInfo,
}

/// Returns the info hashes of a .torrent file: that of version 1, that of version 2 as it is truncated on the wire, or
/// both for a hybrid torrent.
///
/// # Errors
/// Returns why the file is not a torrent.
pub fn info_hashes(file: &[u8]) -> Result<ArrayVec<InfoHash, 2>, MetainfoError> {
    let mut info = None;
    let end = for_each_entry(file, 0, |key, start, end| {
        if key == b"info" {
            info.get_or_insert((start, end));
        }
    })?;
    if end != file.len() {
        return Err(MetainfoError::Malformed { at: end });
    }
    let (start, end) = info.ok_or(MetainfoError::NoInfo)?;
    if file[start] != b'd' {
        return Err(MetainfoError::NoInfo);
    }
    let (mut has_pieces, mut is_v2) = (false, false);
    for_each_entry(file, start, |key, start, end| match key {
        b"pieces" => has_pieces = true,
        b"meta version" => is_v2 = &file[start..end] == b"i2e",
        _ => {}
    })?;
    let info = &file[start..end];
    let mut hashes = ArrayVec::new();
    if has_pieces {
        hashes.push(InfoHash(Sha1::digest(info).into()));
    }
    if is_v2 {
        let mut hash = InfoHash([0; 20]);
        hash.0.copy_from_slice(&Sha256::digest(info)[..20]);
        hashes.push(hash);
    }
    if hashes.is_empty() { Err(MetainfoError::NoInfo) } else { Ok(hashes) }
}

/// Calls `each` with every key of the dictionary at `start`, and where its value begins and ends. Returns the end of the
/// dictionary.
fn for_each_entry<'f>(
    file: &'f [u8],
    start: usize,
    mut each: impl FnMut(&'f [u8], usize, usize),
) -> Result<usize, MetainfoError> {
    if byte(file, start)? != b'd' {
        return Err(MetainfoError::Malformed { at: start });
    }
    let mut at = start + 1;
    while byte(file, at)? != b'e' {
        let (key, value) = string(file, at)?;
        let end = skip(file, value)?;
        each(key, value, end);
        at = end;
    }
    Ok(at + 1)
}

/// Returns the end of the value at `start`.
fn skip(file: &[u8], start: usize) -> Result<usize, MetainfoError> {
    let (mut at, mut depth) = (start, 0);
    loop {
        match byte(file, at)? {
            b'd' | b'l' if depth == DEPTH_MAX => return Err(MetainfoError::TooDeep),
            b'd' | b'l' => (at, depth) = (at + 1, depth + 1),
            b'e' if depth > 0 => (at, depth) = (at + 1, depth - 1),
            b'i' => at = integer(file, at)?,
            _ => at = string(file, at)?.1,
        }
        if depth == 0 {
            return Ok(at);
        }
    }
}

/// Returns the end of the integer at `start`.
fn integer(file: &[u8], start: usize) -> Result<usize, MetainfoError> {
    let digits = start + 1 + usize::from(byte(file, start + 1)? == b'-');
    let mut at = digits;
    while byte(file, at)?.is_ascii_digit() {
        at += 1;
    }
    if at == digits || file[at] != b'e' { Err(MetainfoError::Malformed { at }) } else { Ok(at + 1) }
}

/// Returns the string at `start` and its end.
fn string(file: &[u8], start: usize) -> Result<(&[u8], usize), MetainfoError> {
    let (mut at, mut length) = (start, 0_usize);
    while byte(file, at)?.is_ascii_digit() {
        let digit = usize::from(file[at] - b'0');
        length = length
            .checked_mul(10)
            .and_then(|length| length.checked_add(digit))
            .ok_or(MetainfoError::Truncated)?;
        at += 1;
    }
    if at == start || file[at] != b':' {
        return Err(MetainfoError::Malformed { at });
    }
    let end = (at + 1).checked_add(length).ok_or(MetainfoError::Truncated)?;
    let string = file.get(at + 1..end).ok_or(MetainfoError::Truncated)?;
    Ok((string, end))
}

fn byte(file: &[u8], at: usize) -> Result<u8, MetainfoError> {
    file.get(at).copied().ok_or(MetainfoError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "4:name1:a12:piece lengthi16384e6:pieces0:";
    const V2: &str = "9:file treed1:ad0:d6:lengthi1eeee12:meta versioni2e";

    fn file(info: &str) -> Vec<u8> {
        format!("d8:announce3:url4:infod{info}e8:url-listlee").into_bytes()
    }

    fn sha1(info: &str) -> InfoHash {
        InfoHash(Sha1::digest(format!("d{info}e")).into())
    }

    fn sha256(info: &str) -> InfoHash {
        let mut hash = InfoHash([0; 20]);
        hash.0.copy_from_slice(&Sha256::digest(format!("d{info}e"))[..20]);
        hash
    }

    #[test]
    fn each_version_has_its_hash_and_a_hybrid_torrent_both() {
        let hybrid = format!("{V2}{V1}");
        for (info, expected) in
            [(V1, &[sha1(V1)][..]), (V2, &[sha256(V2)]), (&hybrid, &[sha1(&hybrid), sha256(&hybrid)])]
        {
            assert_eq!(&*info_hashes(&file(info)).unwrap(), expected, "{info}");
        }
    }

    /// SHA-1 of a dictionary that was computed by another program.
    #[test]
    fn a_hash_that_is_known() {
        let known = [
            0xe2, 0x55, 0x94, 0xcb, 0x55, 0x4c, 0x1c, 0x81, 0x1c, 0xaa, 0x08, 0x36, 0xc1, 0x0a, 0xc8, 0xda,
            0x4a, 0xe6, 0x44, 0x66,
        ];
        assert_eq!(info_hashes(&file(V1)).unwrap()[0], InfoHash(known));
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let deep = format!("d4:info{}{}e", "l".repeat(300), "e".repeat(300));
        for (file, error) in [
            (&b""[..], MetainfoError::Truncated),
            (b"garbage", MetainfoError::Malformed { at: 0 }),
            (b"de", MetainfoError::NoInfo),
            (b"d4:infoi1ee", MetainfoError::NoInfo),
            (b"d4:infod4:name1:aee", MetainfoError::NoInfo),
            (b"d4:infod12:meta versioni3eee", MetainfoError::NoInfo),
            (b"d4:infod6:pieces0:ee trailing", MetainfoError::Malformed { at: 20 }),
            (b"d4:infod6:pieces9:ee", MetainfoError::Truncated),
            (b"d4:info99999999999999999999:", MetainfoError::Truncated),
            (b"d4:infoiee", MetainfoError::Malformed { at: 8 }),
            (b"di1e4:infodee", MetainfoError::Malformed { at: 1 }),
            (deep.as_bytes(), MetainfoError::TooDeep),
        ] {
            assert_eq!(info_hashes(file), Err(error), "{}", file.escape_ascii());
        }
        let whole = file(V1);
        for end in 0..whole.len() {
            assert!(info_hashes(&whole[..end]).is_err(), "half-written files are refused");
        }
    }
}
