//! The front of all readers of lists: compression, marks, encodings, and the ends of lines.
//!
//! | Found | Taken as |
//! |---|---|
//! | gzip, by its first bytes | the decompressed text, up to the maximum size of its source |
//! | a mark of UTF-8 at the beginning | nothing |
//! | a mark of UTF-16 at the beginning | UTF-16 of that order |
//! | LF, CR LF, or CR alone | the end of a line |
//! | a line that is not UTF-8 | Windows-1252 |
//! | NULs and Ctrl-Z at the end of a line | nothing |
//!
//! The text is read in pieces. Only a line, or the piece that a reader asks for, is in memory at a time.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// Size of the pieces in which a text is read.
const PIECE_BYTES: usize = 64 << 10;

/// Size of the beginning by which formats are recognised.
const BEGIN_BYTES: usize = 512;

/// The first bytes of a file that gzip has compressed (RFC 1952, 2.3.1).
pub const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The first bytes of compressed files that are not read.
const OTHER_MAGICS: [(&[u8], &str); 5] = [
    (b"PK\x03\x04", "ZIP"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
];

/// The mark at the beginning of a text in UTF-8.
pub const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns the beginning of a text without its mark, unless the text is compressed or in UTF-16.
pub fn plain_begin(begin: &[u8]) -> Option<&[u8]> {
    let is_other = begin.starts_with(&GZIP_MAGIC) || matches!(begin, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
    (!is_other).then(|| begin.strip_prefix(UTF8_MARK).unwrap_or(begin))
}

/// Reads a source, and fails beyond its maximum size.
#[derive(Debug)]
pub struct Capped<R> {
    source: R,
    rest: u64,
    bytes_max: u64,
}

impl<R> Capped<R> {
    /// Limits a source to this number of bytes.
    pub const fn new(source: R, bytes_max: u64) -> Self {
        Self { source, rest: bytes_max, bytes_max }
    }

    /// Returns the number of bytes that were read.
    pub const fn bytes(&self) -> u64 {
        self.bytes_max - self.rest
    }
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.source.read(buffer)?;
        let too_large = || io::Error::other(format!("it has more than {} bytes", self.bytes_max));
        self.rest = self.rest.checked_sub(bytes as u64).ok_or_else(too_large)?;
        Ok(bytes)
    }
}

/// A decompressed text without its mark, in UTF-8 if the source has declared its encoding.
pub struct Text<'b> {
    /// The beginning of the text, part of which may have been read.
    begin: Cursor<Vec<u8>>,
    rest: BufReader<Box<dyn Read + 'b>>,
    is_plain: bool,
}

impl<'b> Text<'b> {
    /// Examines the first bytes. Compressed text must not have more than `bytes_max` bytes. Fails if the source cannot
    /// be read, or if its compression is unknown.
    pub fn new(body: &'b mut dyn BufRead, bytes_max: u64) -> io::Result<Self> {
        let is_gzip = body.fill_buf()?.starts_with(&GZIP_MAGIC);
        let mut source: Box<dyn Read + 'b> = if is_gzip {
            Box::new(Capped::new(Gzip(MultiGzDecoder::new(body)), bytes_max))
        } else {
            Box::new(body)
        };
        let mut begin = begin_of(&mut source)?;
        if let Some((_, name)) = OTHER_MAGICS.iter().find(|(magic, _)| begin.starts_with(magic)) {
            return Err(io::Error::other(format!("it is compressed by {name}, and only gzip is read")));
        }
        let unit = match &begin[..] {
            [0xff, 0xfe, ..] => Some(u16::from_le_bytes as fn([u8; 2]) -> u16),
            [0xfe, 0xff, ..] => Some(u16::from_be_bytes as fn([u8; 2]) -> u16),
            _ => None,
        };
        if let Some(unit) = unit {
            let bytes = Cursor::new(begin.split_off(2)).chain(source);
            source = Box::new(Utf16 {
                bytes: BufReader::with_capacity(PIECE_BYTES, bytes),
                unit,
                decoded: Vec::new(),
                at: 0,
            });
            begin = begin_of(&mut source)?;
        } else if begin.starts_with(UTF8_MARK) {
            begin.drain(..UTF8_MARK.len());
        }
        let is_plain = !is_gzip && unit.is_none();
        Ok(Self { begin: Cursor::new(begin), rest: BufReader::with_capacity(PIECE_BYTES, source), is_plain })
    }

    /// Returns the beginning of the text, by which its format is recognised.
    pub fn begin(&self) -> &[u8] {
        self.begin.get_ref()
    }

    /// Returns whether the text has the same bytes as the source.
    pub const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Calls `each` with all pieces of the text, until it returns false. Fails if the source cannot be read.
    pub fn for_each_piece(&mut self, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        loop {
            let piece = self.fill_buf()?;
            let bytes = piece.len();
            if bytes == 0 || !each(piece) {
                return Ok(());
            }
            self.consume(bytes);
        }
    }
}

impl Read for Text<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl BufRead for Text<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.begin.fill_buf()?.is_empty() { self.rest.fill_buf() } else { self.begin.fill_buf() }
    }

    fn consume(&mut self, bytes: usize) {
        match self.begin.fill_buf() {
            Ok([]) | Err(_) => self.rest.consume(bytes),
            Ok(_) => self.begin.consume(bytes),
        }
    }
}

fn begin_of(source: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::with_capacity(BEGIN_BYTES);
    source.take(BEGIN_BYTES as u64).read_to_end(&mut begin)?;
    Ok(begin)
}

/// The text of a gzip file.
struct Gzip<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Other => error,
            _ => io::Error::other("the gzip data is damaged or ends early"),
        })
    }
}

/// Decodes UTF-16. Invalid parts become U+FFFD.
struct Utf16<R> {
    bytes: R,
    unit: fn([u8; 2]) -> u16,
    decoded: Vec<u8>,
    /// The part of `decoded` that was read.
    at: usize,
}

impl<R: BufRead> Utf16<R> {
    /// Decodes the next units. A pair of surrogates is decoded as a whole.
    fn decode(&mut self) -> io::Result<()> {
        let mut units = Vec::new();
        let mut pair = [0; 2];
        while units.len() < PIECE_BYTES / 8 || units.last().is_some_and(|unit| matches!(unit, 0xd800..0xdc00))
        {
            match self.bytes.read_exact(&mut pair) {
                Ok(()) => units.push((self.unit)(pair)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            if units.len() > PIECE_BYTES {
                break;
            }
        }
        self.decoded.clear();
        self.at = 0;
        for decoded in char::decode_utf16(units) {
            let c = decoded.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.decoded.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.decoded.len() {
            self.decode()?;
        }
        let bytes = (&self.decoded[self.at..]).read(buffer)?;
        self.at += bytes;
        Ok(bytes)
    }
}

/// Splits a text, which may arrive in pieces of any size, into lines.
#[derive(Debug)]
pub struct Lines {
    /// The number of lines that have ended.
    ended: u64,
    /// The beginning of a line whose end has not arrived yet.
    line: Vec<u8>,
    /// Whether the last byte was a CR, which ended a line: a following LF belongs to it.
    is_after_cr: bool,
    bytes_max: usize,
}

impl Lines {
    /// Creates a splitter for text that follows this number of lines. Of a line longer than `bytes_max`, it reports
    /// only one byte more.
    pub const fn after(ended: u64, bytes_max: usize) -> Self {
        Self { ended, line: Vec::new(), is_after_cr: false, bytes_max }
    }

    /// Returns the number of lines that have ended, including those before the text.
    pub const fn ended(&self) -> u64 {
        self.ended
    }

    /// Takes the next piece, and calls `each` with the number of each line that ends in it, from 1, and the line.
    pub fn push(&mut self, piece: &[u8], mut each: impl FnMut(u64, &[u8])) {
        let mut rest = piece;
        if self.is_after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.is_after_cr = false;
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.ended += 1;
            if self.line.is_empty() {
                each(self.ended, without_end(&rest[..end]));
            } else {
                self.keep(&rest[..end]);
                each(self.ended, without_end(&self.line));
                self.line.clear();
            }
            let is_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_cr {
                self.is_after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.keep(rest);
    }

    /// Ends the text, and calls `each` with its last line if it has no end.
    pub fn finish(mut self, mut each: impl FnMut(u64, &[u8])) {
        let line = core::mem::take(&mut self.line);
        if !line.is_empty() {
            each(self.ended + 1, without_end(&line));
        }
    }

    /// Keeps the beginning of a line. A line that is too long stays too long without the rest.
    fn keep(&mut self, part: &[u8]) {
        let room = (self.bytes_max + 1).saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }
}

/// Removes what programs put after the last line: NULs, and the Ctrl-Z of DOS texts.
pub fn without_end(line: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, 0 | 0x1a | b'\n' | b'\r');
    &line[..line.iter().rposition(is_text).map_or(0, |last| last + 1)]
}

/// Decodes a line as UTF-8, or else as Windows-1252.
pub fn decode(line: &[u8]) -> Cow<'_, str> {
    core::str::from_utf8(line)
        .map_or_else(|_| Cow::Owned(line.iter().map(|byte| windows_1252(*byte)).collect()), Cow::Borrowed)
}

/// Decodes a byte of Windows-1252 that differs from Latin-1. Undefined bytes become U+FFFD.
const fn windows_1252(byte: u8) -> char {
    const DIFFERENT: [char; 32] = [
        '€', '\u{fffd}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{fffd}', 'Ž', '\u{fffd}',
        '\u{fffd}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{fffd}', 'ž', 'Ÿ',
    ];
    match byte {
        0x80..0xa0 => DIFFERENT[(byte - 0x80) as usize],
        _ => byte as char,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    }

    fn read(source: &[u8], bytes_max: u64) -> Result<String, String> {
        let (mut source, mut text) = (source, String::new());
        let mut front = Text::new(&mut source, bytes_max).map_err(|error| error.to_string())?;
        front.read_to_string(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    fn lines(text: &[u8], piece_bytes: usize) -> Vec<(u64, Vec<u8>)> {
        let (mut lines, mut found) = (Lines::after(0, 10), Vec::new());
        for piece in text.chunks(piece_bytes) {
            lines.push(piece, |number, line| found.push((number, line.to_vec())));
        }
        lines.finish(|number, line| found.push((number, line.to_vec())));
        found
    }

    #[test]
    fn marks_and_compression_are_no_part_of_the_text() {
        let long = "größer 𝄞\n".repeat(10_000);
        let utf16 = |order: fn(u16) -> [u8; 2], mark: &[u8]| {
            let units: Vec<u8> = long.encode_utf16().flat_map(order).collect();
            [mark, &units].concat()
        };
        for text in [
            long.clone().into_bytes(),
            [UTF8_MARK, long.as_bytes()].concat(),
            utf16(u16::to_le_bytes, b"\xff\xfe"),
            utf16(u16::to_be_bytes, b"\xfe\xff"),
        ] {
            assert_eq!(read(&text, u64::MAX).as_deref(), Ok(&*long));
            assert_eq!(read(&gzip(&text), u64::MAX).as_deref(), Ok(&*long));
        }
        assert_eq!(read(b"", 0), Ok(String::new()));
        assert_eq!(read(&[gzip(b"a"), gzip(b"b")].concat(), 2).as_deref(), Ok("ab"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let whole = gzip(b"some text");
        let damaged = Err("the gzip data is damaged or ends early".to_owned());
        assert_eq!(read(&whole[..whole.len() - 5], u64::MAX), damaged);
        assert_eq!(read(b"\x1f\x8bgarbage", u64::MAX), damaged);
        assert_eq!(read(&whole, 8), Err("it has more than 8 bytes".to_owned()));
        assert_eq!(read(&whole, 9).as_deref(), Ok("some text"));
        assert!(read(b"PK\x03\x04", 9).unwrap_err().contains("compressed by ZIP"));
    }

    #[test]
    fn each_end_of_a_line_counts_once() {
        for piece_bytes in 1..9 {
            let found = lines(b"a\r\nb\rc\n\r\r\nd\0\0\x1a\ne\n\x1a", piece_bytes);
            let expected: [(u64, &[u8]); 8] =
                [(1, b"a"), (2, b"b"), (3, b"c"), (4, b""), (5, b""), (6, b"d"), (7, b"e"), (8, b"")];
            let expected: Vec<_> = expected.map(|(number, line)| (number, line.to_vec())).into();
            assert_eq!(found, expected, "{piece_bytes}");
        }
        assert_eq!(lines(&[b'x'; 100], 3), [(1, vec![b'x'; 11])], "a line that is too long is cut");
    }

    #[test]
    fn other_bytes_are_windows_1252() {
        assert_eq!(decode(b"Caf\xe9 \x80 \x93x\x94 \x9f\xff"), "Café € “x” Ÿÿ");
        assert_eq!(decode("größer".as_bytes()), "größer");
        assert_eq!(decode(b"\x81\x8d\x8f\x90\x9d"), "\u{fffd}".repeat(5));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_have_the_same_lines(text in "[ab\r\n]{0,30}", piece_bytes in 1_usize..9) {
            prop_assert_eq!(lines(text.as_bytes(), piece_bytes), lines(text.as_bytes(), 1000));
        }
    }
}
