//! Strings of JSON, and the binary ones among them.

use std::borrow::Cow;

/// Most bytes of an offer id. The usual ones have 20, but some clients use UUIDs and the like.
pub const OFFER_ID_BYTES_MAX: usize = 64;

/// Most bytes that one byte of a binary string takes in a message.
const ESCAPE_BYTES_MAX: usize = 6;

/// Room for the longest name that means something, as a key or as a value.
pub(super) type NameRoom = [u8; 16];

/// A string of a message, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<'j> {
    /// With its quotes.
    raw: &'j [u8],
}

/// What the maker of an offer calls it: a string of at most [`OFFER_ID_BYTES_MAX`] characters up to U+00FF.
///
/// It is passed on as it came, so two that are the same can look different; [`bytes`](Self::bytes) are to be compared.
#[derive(Clone, Copy, Debug)]
pub struct OfferId<'m>(Text<'m>);

impl<'j> Text<'j> {
    /// The string that stands as `raw`, quotes included.
    pub(super) const fn new(raw: &'j [u8]) -> Self {
        Self { raw }
    }

    /// As it stands, with its quotes.
    pub(super) const fn raw(self) -> &'j [u8] {
        self.raw
    }

    /// What stands between the quotes.
    fn inner(self) -> &'j [u8] {
        &self.raw[1..self.raw.len() - 1]
    }

    /// For a comparison with names, all of which are ASCII and fit the room. What does not fit is none of them.
    pub(super) fn name<'r>(self, room: &'r mut NameRoom) -> &'r [u8]
    where
        'j: 'r,
    {
        if self.is_escaped() {
            let length = self.binary(room).unwrap_or(0);
            &room[..length]
        } else {
            self.inner()
        }
    }

    /// Whether this is `name`.
    pub(super) fn is(self, name: &str) -> bool {
        self.name(&mut NameRoom::default()) == name.as_bytes()
    }

    /// The bytes of a binary string, at the front of `room`. Nothing where it is longer than that or no binary string.
    ///
    /// Half of the bytes of a hash are written as two, in no order that a processor could foresee, so the length of a
    /// character is arithmetic and no branch.
    pub(super) fn binary(self, room: &mut [u8]) -> Option<usize> {
        let end = self.raw.len() - 1;
        let (mut at, mut length, mut largest) = (1, 0, 0);
        while at < end {
            let (first, second) = (self.raw[at], self.raw[at + 1]);
            let byte = room.get_mut(length)?;
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

    /// The 20 bytes of an info hash or a peer id.
    pub(super) fn twenty(self) -> Option<[u8; 20]> {
        let mut bytes = [0; 20];
        self.binary(&mut bytes).filter(|&length| length == 20).map(|_| bytes)
    }

    /// For people to read. A surrogate without the other becomes U+FFFD.
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

    /// One that has been made before from the same bytes.
    pub(super) const fn of_checked(raw: &'m [u8]) -> Self {
        Self(Text::new(raw))
    }

    /// As it came: a string of JSON, with its quotes.
    #[must_use]
    pub const fn raw(&self) -> &'m [u8] {
        self.0.raw()
    }

    /// The bytes that are meant, the same however they were written.
    #[must_use]
    pub fn bytes<'r>(&self, room: &'r mut [u8; OFFER_ID_BYTES_MAX]) -> &'r [u8] {
        let length = self.0.binary(room).expect("checked when it was made");
        &room[..length]
    }
}

impl PartialEq for OfferId<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (mut own, mut others) = ([0; OFFER_ID_BYTES_MAX], [0; OFFER_ID_BYTES_MAX]);
        self.bytes(&mut own) == other.bytes(&mut others)
    }
}

impl Eq for OfferId<'_> {}

/// What `\` and the front of `bytes` mean together, and how many of these bytes that is.
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

/// Walks over the UTF-16 that is meant by what stands between quotes: that is what escapes are made of (RFC 8259, 7).
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

/// How one byte of a binary string is written.
#[derive(Clone, Copy)]
struct Written {
    bytes: [u8; ESCAPE_BYTES_MAX],
    length: u8,
}

/// How every byte is written as `JSON.stringify` does it, but for the short escapes.
static WRITTEN: [Written; 256] = {
    let mut table = [Written { bytes: [0; ESCAPE_BYTES_MAX], length: 0 }; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = written(byte);
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

const fn written(byte: u8) -> Written {
    match byte {
        0..0x20 => escaped(byte),
        b'"' | b'\\' => Written { bytes: [b'\\', byte, 0, 0, 0, 0], length: 2 },
        0x20..0x80 => Written { bytes: [byte, 0, 0, 0, 0, 0], length: 1 },
        0x80.. => Written { bytes: [0xc0 | byte >> 6, 0x80 | byte & 0x3f, 0, 0, 0, 0], length: 2 },
    }
}

const fn escaped(byte: u8) -> Written {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (high, low) = (DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]);
    Written { bytes: [b'\\', b'u', b'0', b'0', high, low], length: 6 }
}

/// Appends 20 bytes as a binary string. There is no branch on any of them, because nobody could foresee it.
pub(super) fn push_twenty(twenty: &[u8; 20], out: &mut Vec<u8>) {
    let mut room = [0; 2 + 20 * ESCAPE_BYTES_MAX];
    room[0] = b'"';
    let mut end = 1;
    for &byte in twenty {
        let written = &WRITTEN[usize::from(byte)];
        room[end..end + ESCAPE_BYTES_MAX].copy_from_slice(&written.bytes);
        end += usize::from(written.length);
    }
    room[end] = b'"';
    out.extend_from_slice(&room[..=end]);
}

/// Appends `bytes` as a binary string of any length.
pub(super) fn push_binary(bytes: &[u8], out: &mut Vec<u8>) {
    push_each(bytes, |byte| WRITTEN[usize::from(byte)], out);
}

/// Appends `bytes` as a binary string in which everything but the plain characters of ASCII is escaped.
pub(super) fn push_escaped_binary(bytes: &[u8], out: &mut Vec<u8>) {
    push_each(bytes, |byte| if byte < 0x7f { WRITTEN[usize::from(byte)] } else { escaped(byte) }, out);
}

/// Appends a text for people.
pub(super) fn push_text(text: &str, out: &mut Vec<u8>) {
    // What is not ASCII stands as it is, and its bytes are no characters of their own.
    let verbatim = |byte| Written { bytes: [byte, 0, 0, 0, 0, 0], length: 1 };
    push_each(
        text.as_bytes(),
        |byte| if byte < 0x80 { WRITTEN[usize::from(byte)] } else { verbatim(byte) },
        out,
    );
}

fn push_each(bytes: &[u8], write: impl Fn(u8) -> Written, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in bytes {
        let Written { bytes, length } = write(byte);
        out.extend_from_slice(&bytes[..usize::from(length)]);
    }
    out.push(b'"');
}
