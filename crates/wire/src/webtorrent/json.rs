//! A JSON reader (RFC 8259) that scans a text once and builds no values.
//!
//! The reader checks everything on the way: grammar, nesting, escapes, and that strings are UTF-8 without control
//! characters. So its input may be any bytes. Escapes of lone surrogates are accepted: they are valid JSON, and offers
//! are passed on unchanged. Nested values are scanned in a loop, so no input can exhaust the stack.

use core::ops::Range;

use super::text::Text;

/// The maximum nesting of arrays and objects within one value of a message. Real offers have one level.
pub const DEPTH_MAX: usize = 64;

/// The number of bytes of a string that are checked together.
const BLOCK_BYTES: usize = 32;

/// The reason why bytes are not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The bytes end within a value.
    #[error("the message ends early")]
    Truncated,
    /// An unexpected byte.
    #[error("the message is not JSON at byte {at}")]
    Malformed {
        /// The offset of the byte.
        at: usize,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("the message is nested deeper than {DEPTH_MAX}")]
    TooDeep,
}

/// A position in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'j> {
    bytes: &'j [u8],
    at: usize,
}

/// The arrays and objects around a position, one bit for each. The innermost is the lowest bit. A set bit is an object.
#[derive(Default)]
struct Nest {
    objects: u64,
    depth: usize,
}

const _: () = assert!(DEPTH_MAX <= 64, "a nest has a bit for each level");

impl<'j> Reader<'j> {
    pub(super) const fn new(bytes: &'j [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the first byte of the next value, which determines its kind. An invalid value is detected only when it
    /// is read.
    pub(super) fn kind(&mut self) -> Result<u8, JsonError> {
        self.skip_space();
        self.peek()
    }

    /// Checks that only white space follows.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        self.skip_space();
        if self.at == self.bytes.len() { Ok(()) } else { self.malformed() }
    }

    /// Skips one value of any kind and returns its bytes.
    pub(super) fn value(&mut self) -> Result<&'j [u8], JsonError> {
        self.skip_space();
        let start = self.at;
        let mut nest = Nest::default();
        loop {
            let first = self.peek()?;
            match first {
                b'"' => _ = self.string()?,
                b'{' | b'[' => {
                    self.at += 1;
                    nest.enter(first == b'{')?;
                    self.skip_space();
                    if self.peek()? != closing(first) {
                        self.key_within(&nest)?;
                        continue;
                    }
                    self.at += 1;
                    nest.leave();
                }
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => self.number()?,
            }
            if self.leave(&mut nest)? {
                return Ok(&self.bytes[start..self.at]);
            }
        }
    }

    /// Reads one object. `member` reads each value, and must read exactly one.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Text<'j>) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.items(b'{', |reader| {
            let key = reader.key()?;
            member(reader, key)
        })
    }

    /// Reads one array. `item` reads each value, and must read exactly one.
    pub(super) fn array(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.items(b'[', item)
    }

    fn string(&mut self) -> Result<Text<'j>, JsonError> {
        self.skip_space();
        let start = self.at;
        self.expect(b'"')?;
        // After a block with other bytes, the reader proceeds byte by byte before it tries the next block.
        let mut blocks_from = self.at;
        loop {
            if self.at >= blocks_from {
                self.skip_blocks();
                blocks_from = self.at + BLOCK_BYTES;
            }
            self.at += plain_bytes(&self.bytes[self.at..]);
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(Text::new(&self.bytes[start..self.at]));
                }
                b'\\' => self.escape()?,
                first @ 0x80.. => self.character(first)?,
                _ => return self.malformed(),
            }
        }
    }

    /// Skips whole blocks of the SDP lines that form most of an offer. The string has begun before.
    fn skip_blocks(&mut self) {
        while let Some(block) = self.bytes[self.at - 1..].first_chunk()
            && is_lines(block)
        {
            // The second half of an escape belongs to the first.
            self.at += BLOCK_BYTES - usize::from(block[BLOCK_BYTES] == b'\\');
        }
    }

    /// Reads one value and returns it if it is a string.
    pub(super) fn text(&mut self) -> Result<Option<Text<'j>>, JsonError> {
        if self.kind()? == b'"' { self.string().map(Some) } else { self.value().map(|_| None) }
    }

    /// Returns the next member of a checked object. The reader must not have read anything else.
    pub(super) fn next_member(&mut self) -> Option<(Text<'j>, &'j [u8])> {
        self.skip_space();
        // Skip the bracket before the first member, or the comma before another one. After the last member there is no
        // key.
        self.at += 1;
        Some((self.key().ok()?, self.value().ok()?))
    }

    /// Returns the position of `value`, which must have just been read.
    pub(super) const fn position_of(&self, value: &[u8]) -> Range<usize> {
        self.at - value.len()..self.at
    }

    fn items(
        &mut self,
        opening: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.skip_space();
        self.expect(opening)?;
        self.skip_space();
        let mut next = self.peek()?;
        while next != closing(opening) {
            item(self)?;
            self.skip_space();
            next = self.peek()?;
            if next == b',' {
                self.at += 1;
            } else if next != closing(opening) {
                return self.malformed();
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Proceeds from the end of a value to the start of the next one. Returns true if the outermost value has ended.
    fn leave(&mut self, nest: &mut Nest) -> Result<bool, JsonError> {
        while nest.depth > 0 {
            self.skip_space();
            let next = self.peek()?;
            if next == b',' {
                self.at += 1;
                self.key_within(nest)?;
                return Ok(false);
            }
            if next != nest.closing() {
                return self.malformed();
            }
            self.at += 1;
            nest.leave();
        }
        Ok(true)
    }

    /// Skips the key before a value if the value is in an object.
    fn key_within(&mut self, nest: &Nest) -> Result<(), JsonError> {
        if nest.is_in_object() {
            self.key()?;
        }
        self.skip_space();
        Ok(())
    }

    /// Reads a key and the colon after it.
    fn key(&mut self) -> Result<Text<'j>, JsonError> {
        let key = self.string()?;
        self.skip_space();
        self.expect(b':')?;
        Ok(key)
    }

    /// Skips an escape (RFC 8259, 7: "escape"). It does not check that surrogates form pairs.
    fn escape(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        match self.peek()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek()?.is_ascii_hexdigit() {
                        return self.malformed();
                    }
                    self.at += 1;
                }
            }
            _ => return self.malformed(),
        }
        Ok(())
    }

    /// Skips a character of several bytes. Binary strings contain many of two bytes; longer ones are rare.
    fn character(&mut self, first: u8) -> Result<(), JsonError> {
        let bytes = match first {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return self.malformed(),
        };
        let character = self.bytes.get(self.at..self.at + bytes).ok_or(JsonError::Truncated)?;
        let is_whole = match character {
            [_, second] => second & 0xc0 == 0x80,
            longer => core::str::from_utf8(longer).is_ok(),
        };
        if !is_whole {
            return self.malformed();
        }
        self.at += bytes;
        Ok(())
    }

    /// Skips a number (RFC 8259, 6). A zero before other digits is an error, and a point needs a digit on both sides.
    fn number(&mut self) -> Result<(), JsonError> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    /// Skips digits, at least one.
    fn digits(&mut self) -> Result<(), JsonError> {
        if !self.peek()?.is_ascii_digit() {
            return self.malformed();
        }
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, literal: &'static [u8]) -> Result<(), JsonError> {
        literal.iter().try_for_each(|&byte| self.expect(byte))
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.peek()? != byte {
            return self.malformed();
        }
        self.at += 1;
        Ok(())
    }

    /// Skips the next byte if it is `byte`. Returns whether it did.
    fn take(&mut self, byte: u8) -> bool {
        let is_taken = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(is_taken);
        is_taken
    }

    /// Skips white space (RFC 8259, 2: "ws").
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, JsonError> {
        self.bytes.get(self.at).copied().ok_or(JsonError::Truncated)
    }

    const fn malformed<T>(&self) -> Result<T, JsonError> {
        Err(JsonError::Malformed { at: self.at })
    }
}

impl Nest {
    fn enter(&mut self, is_object: bool) -> Result<(), JsonError> {
        if self.depth == DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u64::from(is_object);
        Ok(())
    }

    const fn leave(&mut self) {
        self.depth -= 1;
        self.objects >>= 1;
    }

    const fn is_in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    /// Returns the byte that ends the innermost array or object.
    const fn closing(&self) -> u8 {
        closing(if self.is_in_object() { b'{' } else { b'[' })
    }
}

/// Returns the bracket that matches `opening`. In ASCII it is two characters further on.
const fn closing(opening: u8) -> u8 {
    opening + 2
}

/// Returns whether a block is plain ASCII with line ends, `\r` and `\n`, the only escapes of an SDP. The byte before
/// the block comes first. If that is a backslash that is itself escaped, the check may reject a valid block, but never
/// accepts an invalid one. The block may end within an escape.
///
/// The function has no branch, so a compiler turns it into a few operations on all bytes at once.
fn is_lines(block: &[u8; BLOCK_BYTES + 1]) -> bool {
    let pairs = block.iter().zip(&block[1..]);
    pairs.fold(true, |is_lines, (&before, &byte)| {
        let is_plain = (0x20..0x80).contains(&byte) & (byte != b'"');
        let is_end = (byte == b'r') | (byte == b'n');
        is_lines & is_plain & ((before != b'\\') | is_end)
    })
}

/// Returns the number of ordinary bytes at the front of `bytes`: no quote, backslash, control character or part of a
/// longer character. It checks eight bytes at a time.
fn plain_bytes(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks();
    for (index, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return index * 8 + (special.trailing_zeros() / 8) as usize;
        }
    }
    let is_special = |&byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\' | 0x80..);
    words.len() * 8 + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// Returns a word in which the lowest set bit is the top bit of the lowest special byte. The carry may set higher bits.
const fn special_bytes(word: u64) -> u64 {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    let quote = (word ^ (EACH * 0x22)).wrapping_sub(EACH);
    let backslash = (word ^ (EACH * 0x5c)).wrapping_sub(EACH);
    let control = word.wrapping_sub(EACH * 0x20);
    (quote | backslash | control | word) & (EACH * 0x80)
}
