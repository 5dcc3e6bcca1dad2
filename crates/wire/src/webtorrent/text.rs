//! JSON strings, and the binary ones among them.

use std::borrow::Cow;

/// The maximum length of an offer id in bytes. Most have 20, but some clients use UUIDs and the like.
pub const OFFER_ID_BYTES_MAX: usize = 64;

/// The maximum length of one byte of a binary string in a message.
const ESCAPE_BYTES_MAX: usize = 6;

/// A buffer for the longest known name, as a key or as a value.
pub(super) type NameBuffer = [u8; 16];

/// A checked string of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<'j> {
    /// The string with its quotes.
    raw: &'j [u8],
}

/// The id of an offer, which the offerer chooses: a string of at most [`OFFER_ID_BYTES_MAX`] characters up to U+00FF.
///
/// It is passed on as received, so equal ids can have different encodings. Compare their [`bytes`](Self::bytes).
#[derive(Clone, Copy, Debug)]
pub struct OfferId<'m>(Text<'m>);

impl<'j> Text<'j> {
    /// Returns the string with these bytes, quotes included.
    pub(super) const fn new(raw: &'j [u8]) -> Self {
        Self { raw }
    }

    /// Returns the encoded string with its quotes.
    pub(super) const fn raw(self) -> &'j [u8] {
        self.raw
    }

    /// Returns the bytes between the quotes.
    fn inner(self) -> &'j [u8] {
        &self.raw[1..self.raw.len() - 1]
    }

    /// Returns the string for a comparison with names, which are all ASCII and fit the buffer. A string that does not
    /// fit equals no name.
    pub(super) fn name<'r>(self, buffer: &'r mut NameBuffer) -> &'r [u8]
    where
        'j: 'r,
    {
        if self.is_escaped() {
            let length = self.binary(buffer).unwrap_or(0);
            &buffer[..length]
        } else {
            self.inner()
        }
    }

    pub(super) fn is(self, name: &str) -> bool {
        self.name(&mut NameBuffer::default()) == name.as_bytes()
    }

    /// Writes the bytes of a binary string to the front of `buffer` and returns their number. Returns `None` if the
    /// string is longer than the buffer or not binary.
    ///
    /// Half of the bytes of a hash are encoded as two, in an order that the branch predictor cannot foresee. So the
    /// length of a character is computed without a branch.
    pub(super) fn binary(self, buffer: &mut [u8]) -> Option<usize> {
        let end = self.raw.len() - 1;
        let (mut at, mut length, mut largest) = (1, 0, 0);
        while at < end {
            let (first, second) = (self.raw[at], self.raw[at + 1]);
            let byte = buffer.get_mut(length)?;
            if first == b'\\' {
                let (unit, bytes) = unescape(&self.raw[at + 1..])?;
                *byte = u8::try_from(unit).ok()?;
                at += 1 + bytes;
            } else {
                let is_wide = first >= 0x80;
                *byte = if is_wide { first << 6 | second & 0x3f } else { first };
                largest = first.max(largest);
                at += 1 + usize::from(is_wide);
            }
            length += 1;
        }
        // U+00FF is C3 BF.
        (largest <= 0xc3).then_some(length)
    }

    /// Returns the 20 bytes of an info hash or a peer id.
    pub(super) fn twenty(self) -> Option<[u8; 20]> {
        let mut bytes = [0; 20];
        self.binary(&mut bytes).filter(|&length| length == 20).map(|_| bytes)
    }

    /// Returns the string for display. A lone surrogate becomes U+FFFD.
    pub(super) fn for_display(self) -> Cow<'j, str> {
        if !self.is_escaped() {
            return String::from_utf8_lossy(self.inner());
        }
        let units = CodeUnits { rest: self.inner(), low_surrogate: None };
        let characters = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
        characters.collect::<String>().into()
    }

    fn is_escaped(self) -> bool {
        self.inner().contains(&b'\\')
    }
}

impl<'m> OfferId<'m> {
    pub(super) fn new(text: Text<'m>) -> Option<Self> {
        text.binary(&mut [0; OFFER_ID_BYTES_MAX]).map(|_| Self(text))
    }

    /// Returns an offer id from bytes that were checked before.
    pub(super) const fn of_checked(raw: &'m [u8]) -> Self {
        Self(Text::new(raw))
    }

    /// Returns the JSON string as received, with its quotes.
    pub const fn raw(&self) -> &'m [u8] {
        self.0.raw()
    }

    /// Returns the decoded bytes, which do not depend on the encoding.
    pub fn bytes<'r>(&self, buffer: &'r mut [u8; OFFER_ID_BYTES_MAX]) -> &'r [u8] {
        let length = self.0.binary(buffer).expect("checked by the constructor");
        &buffer[..length]
    }
}

impl PartialEq for OfferId<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (mut own, mut others) = ([0; OFFER_ID_BYTES_MAX], [0; OFFER_ID_BYTES_MAX]);
        self.bytes(&mut own) == other.bytes(&mut others)
    }
}

impl Eq for OfferId<'_> {}

/// Returns the code unit of the escape that consists of `\` and the front of `bytes`, and the number of these bytes.
fn unescape(bytes: &[u8]) -> Option<(u16, usize)> {
    let (&kind, rest) = bytes.split_first()?;
    let unit = match kind {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => 0x0a,
        b'r' => 0x0d,
        b't' => 0x09,
        b'u' => {
            let digits = rest.first_chunk::<4>()?;
            let digits = digits.iter().map(|&digit| char::from(digit).to_digit(16));
            let unit = digits.reduce(|unit, digit| Some(unit? << 4 | digit?))??;
            return Some((u16::try_from(unit).ok()?, 5));
        }
        other => other.into(),
    };
    Some((unit, 1))
}

/// Iterates over the UTF-16 code units of a string, because escapes consist of them (RFC 8259, 7).
struct CodeUnits<'j> {
    rest: &'j [u8],
    low_surrogate: Option<u16>,
}

impl CodeUnits<'_> {
    fn character(&mut self, first: u8) -> Option<u16> {
        let bytes = match first {
            ..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0.. => 4,
        };
        let (character, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        let character = core::str::from_utf8(character).ok()?.chars().next()?;
        let mut units = [0; 2];
        let units = character.encode_utf16(&mut units);
        self.low_surrogate = units.get(1).copied();
        units.first().copied()
    }
}

impl Iterator for CodeUnits<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        if let Some(low) = self.low_surrogate.take() {
            return Some(low);
        }
        let (&first, rest) = self.rest.split_first()?;
        if first != b'\\' {
            return self.character(first);
        }
        let (unit, bytes) = unescape(rest)?;
        self.rest = rest.get(bytes..)?;
        Some(unit)
    }
}

/// The encoding of one byte of a binary string.
#[derive(Clone, Copy)]
struct Encoded {
    bytes: [u8; ESCAPE_BYTES_MAX],
    length: u8,
}

/// The encoding of every byte as `JSON.stringify` writes it, without the short escapes.
static ENCODED: [Encoded; 256] = {
    let mut table = [Encoded { bytes: [0; ESCAPE_BYTES_MAX], length: 0 }; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = encoded(byte);
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

const fn encoded(byte: u8) -> Encoded {
    match byte {
        0..0x20 => escaped(byte),
        b'"' | b'\\' => Encoded { bytes: [b'\\', byte, 0, 0, 0, 0], length: 2 },
        0x20..0x80 => Encoded { bytes: [byte, 0, 0, 0, 0, 0], length: 1 },
        0x80.. => Encoded { bytes: [0xc0 | byte >> 6, 0x80 | byte & 0x3f, 0, 0, 0, 0], length: 2 },
    }
}

const fn escaped(byte: u8) -> Encoded {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (high, low) = (DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]);
    Encoded { bytes: [b'\\', b'u', b'0', b'0', high, low], length: 6 }
}

/// Appends 20 bytes as a binary string. It has no branch on them, because the branch could not be predicted.
pub(super) fn push_twenty(twenty: &[u8; 20], out: &mut Vec<u8>) {
    let mut buffer = [0; 2 + 20 * ESCAPE_BYTES_MAX];
    buffer[0] = b'"';
    let mut end = 1;
    for &byte in twenty {
        let encoded = &ENCODED[usize::from(byte)];
        buffer[end..end + ESCAPE_BYTES_MAX].copy_from_slice(&encoded.bytes);
        end += usize::from(encoded.length);
    }
    buffer[end] = b'"';
    out.extend_from_slice(&buffer[..=end]);
}

/// Appends `bytes` as a binary string of any length.
pub(super) fn push_binary(bytes: &[u8], out: &mut Vec<u8>) {
    push_each(bytes, |byte| ENCODED[usize::from(byte)], out);
}

/// Appends `bytes` as a binary string in which everything except plain ASCII is escaped.
pub(super) fn push_escaped_binary(bytes: &[u8], out: &mut Vec<u8>) {
    push_each(bytes, |byte| if byte < 0x7f { ENCODED[usize::from(byte)] } else { escaped(byte) }, out);
}

/// Appends a text for display.
pub(super) fn push_text(text: &str, out: &mut Vec<u8>) {
    // Bytes outside ASCII are copied, because they are parts of characters.
    let verbatim = |byte| Encoded { bytes: [byte, 0, 0, 0, 0, 0], length: 1 };
    push_each(
        text.as_bytes(),
        |byte| if byte < 0x80 { ENCODED[usize::from(byte)] } else { verbatim(byte) },
        out,
    );
}

fn push_each(bytes: &[u8], write: impl Fn(u8) -> Encoded, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in bytes {
        let Encoded { bytes, length } = write(byte);
        out.extend_from_slice(&bytes[..usize::from(length)]);
    }
    out.push(b'"');
}
