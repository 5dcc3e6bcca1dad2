//! The info hashes of a .torrent file (BEP 3, BEP 52).
//!
//! The hash of a torrent covers the bytes of its info dictionary as they stand in the file, so this module finds where
//! they begin and end. It checks the nesting of everything, but knows only the keys that it needs. It ignores bytes
//! after the dictionary, as clients do. The file is read in pieces and takes no memory.

use std::io::{self, BufRead};

use arrayvec::ArrayVec;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use shoal_base::InfoHash;

/// Maximum nesting of values. The directories of a v2 torrent are nested.
const DEPTH_MAX: usize = 256;

/// Maximum length of a relevant key.
const KEY_BYTES_MAX: usize = 12;

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
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    /// No info dictionary has the pieces of a torrent.
    #[error("the file has no info dictionary of a torrent")]
    NoInfo,
}

/// Returns the info hashes of a .torrent file: the hash of version 1, the hash of version 2 truncated as on the wire,
/// or both for a hybrid torrent. The error says why the file is not a torrent.
pub fn info_hashes(file: impl BufRead) -> Result<ArrayVec<InfoHash, 2>, MetainfoError> {
    let mut scanner = Scanner { file, at: 0, hashes: None };
    let mut info = None;
    scanner.for_each_entry(|scanner, key| {
        if key != b"info" || info.is_some() {
            return scanner.skip();
        }
        if scanner.peek()? != b'd' {
            return scanner.skip().and(Err(MetainfoError::NoInfo));
        }
        info = Some(scanner.info()?);
        Ok(())
    })?;
    info.filter(|hashes: &ArrayVec<InfoHash, 2>| !hashes.is_empty()).ok_or(MetainfoError::NoInfo)
}

/// Reads values, one byte after the other.
struct Scanner<R> {
    file: R,
    /// The offset of the next byte.
    at: usize,
    /// The hashes of the info dictionary, while it is read.
    hashes: Option<(Sha1, Sha256)>,
}

impl<R: BufRead> Scanner<R> {
    fn info(&mut self) -> Result<ArrayVec<InfoHash, 2>, MetainfoError> {
        let (mut has_pieces, mut is_v2) = (false, false);
        self.hashes = Some(Default::default());
        self.for_each_entry(|scanner, key| match key {
            b"meta version" => {
                let mut version = [0; 3];
                is_v2 = scanner.peek()? == b'i' && scanner.integer(&mut version)? == b"2";
                if version == [0; 3] { scanner.skip() } else { Ok(()) }
            }
            _ => {
                has_pieces |= key == b"pieces";
                scanner.skip()
            }
        })?;
        let (sha1, sha256) = self.hashes.take().unwrap_or_default();
        let mut hashes = ArrayVec::new();
        if has_pieces {
            hashes.push(InfoHash(sha1.finalize().into()));
        }
        if is_v2 {
            let mut hash = InfoHash([0; 20]);
            hash.0.copy_from_slice(&sha256.finalize()[..20]);
            hashes.push(hash);
        }
        Ok(hashes)
    }

    /// Reads a dictionary. Calls `each` with the relevant beginning of every key, to read the value.
    fn for_each_entry(
        &mut self,
        mut each: impl FnMut(&mut Self, &[u8]) -> Result<(), MetainfoError>,
    ) -> Result<(), MetainfoError> {
        if self.peek()? != b'd' {
            return Err(self.malformed());
        }
        self.take()?;
        while self.peek()? != b'e' {
            let mut key = [0; KEY_BYTES_MAX + 1];
            let length = self.string(&mut key)?;
            each(self, &key[..length.min(key.len())])?;
        }
        self.take().map(|_| ())
    }

    fn skip(&mut self) -> Result<(), MetainfoError> {
        let mut depth = 0;
        loop {
            match self.peek()? {
                b'd' | b'l' if depth == DEPTH_MAX => return Err(MetainfoError::TooDeep),
                b'd' | b'l' => {
                    self.take()?;
                    depth += 1;
                }
                b'e' if depth > 0 => {
                    self.take()?;
                    depth -= 1;
                }
                b'i' => {
                    self.integer(&mut [])?;
                }
                _ => {
                    self.string(&mut [])?;
                }
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads an integer, and returns its first digits, as many as fit.
    fn integer<'d>(&mut self, digits: &'d mut [u8]) -> Result<&'d [u8], MetainfoError> {
        self.take()?;
        let (mut length, mut is_negative) = (0, false);
        if self.peek()? == b'-' {
            self.take()?;
            is_negative = true;
        }
        while self.peek()?.is_ascii_digit() {
            let digit = self.take()?;
            if let Some(place) = digits.get_mut(length) {
                *place = digit;
            }
            length += 1;
        }
        if length == 0 || self.peek()? != b'e' {
            return Err(self.malformed());
        }
        self.take()?;
        let fits = length.min(digits.len());
        Ok(if is_negative { &[] } else { &digits[..fits] })
    }

    /// Reads a string, and returns its length. Copies its beginning to `begin`.
    fn string(&mut self, begin: &mut [u8]) -> Result<usize, MetainfoError> {
        if !self.peek()?.is_ascii_digit() {
            return Err(self.malformed());
        }
        let mut length = 0_usize;
        while self.peek()?.is_ascii_digit() {
            let digit = usize::from(self.take()? - b'0');
            let longer = length.checked_mul(10).and_then(|length| length.checked_add(digit));
            length = longer.ok_or(MetainfoError::Truncated)?;
        }
        if self.peek()? != b':' {
            return Err(self.malformed());
        }
        self.take()?;
        let (mut begin, mut rest) = (begin, length);
        while rest > 0 {
            let bytes = self.fill()?.len().min(rest);
            let copied = bytes.min(begin.len());
            begin[..copied].copy_from_slice(&self.fill()?[..copied]);
            begin = &mut begin[copied..];
            self.consume(bytes)?;
            rest -= bytes;
        }
        Ok(length)
    }

    fn fill(&mut self) -> Result<&[u8], MetainfoError> {
        match self.file.fill_buf() {
            Ok([]) => Err(MetainfoError::Truncated),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(MetainfoError::Unreadable(error.kind())),
        }
    }

    /// Skips bytes that are loaded.
    fn consume(&mut self, bytes: usize) -> Result<(), MetainfoError> {
        if let Some((sha1, sha256)) = &mut self.hashes {
            let read = self.file.fill_buf().map_err(|error| MetainfoError::Unreadable(error.kind()))?;
            sha1.update(&read[..bytes]);
            sha256.update(&read[..bytes]);
        }
        self.file.consume(bytes);
        self.at += bytes;
        Ok(())
    }

    fn peek(&mut self) -> Result<u8, MetainfoError> {
        self.fill().map(|bytes| bytes[0])
    }

    fn take(&mut self) -> Result<u8, MetainfoError> {
        let byte = self.peek()?;
        self.consume(1)?;
        Ok(byte)
    }

    const fn malformed(&self) -> MetainfoError {
        MetainfoError::Malformed { at: self.at }
    }
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
            assert_eq!(&*info_hashes(&*file(info)).unwrap(), expected, "{info}");
        }
    }

    /// SHA-1 of a dictionary that was computed by another program.
    #[test]
    fn a_hash_that_is_known() {
        let known = [
            0xe2, 0x55, 0x94, 0xcb, 0x55, 0x4c, 0x1c, 0x81, 0x1c, 0xaa, 0x08, 0x36, 0xc1, 0x0a, 0xc8, 0xda,
            0x4a, 0xe6, 0x44, 0x66,
        ];
        assert_eq!(info_hashes(&*file(V1)).unwrap()[0], InfoHash(known));
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
            (b"d4:infod6:pieces9:ee", MetainfoError::Truncated),
            (b"d4:info99999999999999999999:", MetainfoError::Truncated),
            (b"d4:infoiee", MetainfoError::Malformed { at: 8 }),
            (b"di1e4:infodee", MetainfoError::Malformed { at: 1 }),
            (deep.as_bytes(), MetainfoError::TooDeep),
        ] {
            assert_eq!(info_hashes(file), Err(error), "{}", file.escape_ascii());
        }
        let whole = file(V1);
        for more in [&b"\n"[..], b"\r\n\0\0", b" trailing text", b"e", b"d4:infod6:pieces0:ee"] {
            assert_eq!(
                *info_hashes(&*[&whole, more].concat()).unwrap(),
                [sha1(V1)],
                "{}",
                more.escape_ascii()
            );
        }
        for end in 0..whole.len() {
            assert!(info_hashes(&whole[..end]).is_err(), "half-written files are refused");
        }
    }
}
