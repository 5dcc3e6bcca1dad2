//! Percent-encoding (RFC 3986, 2.1) of binary values.
//!
//! A `+` is a space. In RFC 3986 it has no special meaning: libtorrent, Transmission, aria2, rTorrent, WebTorrent and
//! Azureus, which follow it, escape the space and the plus sign and never send a `+`. Libraries that write queries in
//! the format of HTML forms (Go's `url.Values`, Python's `urlencode`, Java's `URLEncoder`) turn a space into `+` and
//! escape the plus sign. Clients with such libraries do send a `+`: anacrolix/torrent did until 2021, MonoTorrent until
//! 2024, and simple clients still do. Early versions of WebTorrent did not escape a plus sign. That was fixed in 2014,
//! because trackers read it as a space.

/// The entry of [`DIGITS`] for a byte that is not a hexadecimal digit.
const NO_DIGIT: u8 = 0xff;
const HEX: &[u8; 16] = b"0123456789abcdef";
const DIGITS: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value: u8 = 0;
    while value < 16 {
        let digit = HEX[value as usize];
        table[digit as usize] = value;
        table[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    table
};

/// The maximum length of a name or value that [`unescape`] decodes: longer than any known name or number.
pub(super) const SHORT_BYTES_MAX: usize = 24;

/// The length of an escaped byte.
pub(super) const ESCAPE_BYTES: usize = 3;

/// The reason why a value is not 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Length,
    Escape,
}

/// Decodes a value of exactly 20 bytes, such as an info hash or a peer id. `+` means a space.
pub(super) fn decode_20(value: &[u8]) -> Result<[u8; 20], Fault> {
    let mut bytes = [0; 20];
    let mut rest = value;
    for byte in &mut bytes {
        let (&first, after) = rest.split_first().ok_or(Fault::Length)?;
        (*byte, rest) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (unescape_byte(*high, *low).ok_or(Fault::Escape)?, after),
            (b'%', _) => return Err(Fault::Escape),
            (b'+', _) => (b' ', after),
            (plain, _) => (plain, after),
        };
    }
    if rest.is_empty() { Ok(bytes) } else { Err(Fault::Length) }
}

/// Decodes the escapes of a name or of a short value, such as a number, into `room`. Returns the bytes unchanged if
/// they have no escapes, broken ones, or a result that is too long: such a name or value is unknown anyway.
pub(super) fn unescape<'b>(bytes: &'b [u8], room: &'b mut [u8; SHORT_BYTES_MAX]) -> &'b [u8] {
    if bytes.contains(&b'%') { unescape_into(bytes, room).unwrap_or(bytes) } else { bytes }
}

#[cold]
fn unescape_into<'r>(bytes: &[u8], room: &'r mut [u8; SHORT_BYTES_MAX]) -> Option<&'r [u8]> {
    let (mut rest, mut length) = (bytes, 0);
    while let Some((&first, after)) = rest.split_first() {
        let byte = room.get_mut(length)?;
        (*byte, rest) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (unescape_byte(*high, *low)?, after),
            (b'%', _) => return None,
            (plain, _) => (plain, after),
        };
        length += 1;
    }
    room.get(..length)
}

fn unescape_byte(high: u8, low: u8) -> Option<u8> {
    let (high, low) = (DIGITS[usize::from(high)], DIGITS[usize::from(low)]);
    (high | low <= 15).then_some(high << 4 | low)
}

/// Returns the escape of a byte.
pub(super) fn escape(byte: u8) -> [u8; ESCAPE_BYTES] {
    [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_from_its_escape_in_either_case() {
        for byte in 0..=u8::MAX {
            let lower: Vec<u8> = [byte; 20].into_iter().flat_map(escape).collect();
            assert_eq!(decode_20(&lower), Ok([byte; 20]));
            assert_eq!(decode_20(&lower.to_ascii_uppercase()), Ok([byte; 20]));
        }
    }

    #[test]
    fn a_plus_is_a_space_and_an_escaped_plus_is_itself() {
        assert_eq!(decode_20(b"++++++++++++++++++%20%20"), Ok([b' '; 20]));
        assert_eq!(decode_20(&b"%2B%2b".repeat(10)), Ok([b'+'; 20]));
    }

    #[test]
    fn anything_but_20_bytes_is_refused() {
        for value in ["", "1234567890123456789", "123456789012345678901", "1234567890123456789%"] {
            assert!(decode_20(value.as_bytes()).is_err(), "{value}");
        }
        assert_eq!(decode_20(b"12345678901234567890%"), Err(Fault::Length));
    }

    #[test]
    fn short_values_are_unescaped() {
        for (bytes, expected) in [
            ("", ""),
            ("left", "left"),
            ("%30", "0"),
            ("%31%30", "10"),
            ("info%5fhash", "info_hash"),
            ("a%4", "a%4"),
            ("%zz1", "%zz1"),
            ("%2B1", "+1"),
            ("123456789012345678901234%30", "123456789012345678901234%30"),
            ("12345678901234567890123%30", "123456789012345678901230"),
        ] {
            let mut room = [0; SHORT_BYTES_MAX];
            assert_eq!(unescape(bytes.as_bytes(), &mut room), expected.as_bytes(), "{bytes}");
        }
    }

    #[test]
    fn a_broken_escape_is_not_taken_for_plain_bytes() {
        for value in ["%", "%4", "%4g", "%g4", "% 1", "%+1", "%%41"] {
            let long = format!("{value}34567890123456789012345");
            assert_eq!(
                decode_20(long.as_bytes()).is_err_and(|fault| fault == Fault::Escape),
                value.len() > 2
            );
        }
        assert_eq!(decode_20(b"%zz34567890123456789"), Err(Fault::Escape));
        assert_eq!(decode_20(b"1234567890123456789%1"), Err(Fault::Escape));
    }
}
