//! The options after an announce request (BEP 41).
//!
//! BEP 41, "option types": 0 ends the options and 1 does nothing, each a single byte. After every other type come a
//! length byte and that number of data bytes, so that unknown types can be skipped.

use super::{NoRoom, write};

const END_OF_OPTIONS: u8 = 0;
const NOP: u8 = 1;
const URL_DATA: u8 = 2;

/// The maximum data length of one option, which its length byte limits.
const DATA_BYTES_MAX: usize = u8::MAX as usize;

/// All bytes after the 98 bytes of an announce request, parsed only on demand.
///
/// Options cannot make an announce invalid: unknown options are skipped, and everything from the first malformed one on
/// is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'b>(&'b [u8]);

impl<'b> Options<'b> {
    /// Returns the options in the bytes after an announce request.
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the raw bytes.
    pub const fn as_bytes(self) -> &'b [u8] {
        self.0
    }

    /// Returns the pieces of the path and query of the client's tracker URL. Joined together, they are the whole. The
    /// result is empty both without any option and for an empty one.
    pub const fn url_data(self) -> UrlData<'b> {
        UrlData { rest: self.0 }
    }
}

/// An iterator over the pieces of URL data.
#[derive(Clone, Debug)]
pub struct UrlData<'b> {
    rest: &'b [u8],
}

impl<'b> Iterator for UrlData<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        loop {
            // Taking the rest makes an early return by `?` end the iteration.
            let (&kind, rest) = core::mem::take(&mut self.rest).split_first()?;
            match kind {
                END_OF_OPTIONS => return None,
                NOP => self.rest = rest,
                _ => {
                    let (&data_bytes, rest) = rest.split_first()?;
                    let (data, rest) = rest.split_at_checked(data_bytes.into())?;
                    self.rest = rest;
                    if kind == URL_DATA {
                        return Some(data);
                    }
                }
            }
        }
    }
}

/// Writes the path and query of a tracker URL to the front of `out` as options, and returns the number of bytes. An
/// empty URL becomes an empty option, by which a client announces that it supports this extension. Fails if `out` is
/// too short; its content is then unspecified.
pub fn encode_url_data(url: &[u8], out: &mut [u8]) -> Result<usize, NoRoom> {
    let mut written_bytes = 0;
    let mut rest = url;
    loop {
        let (data, later) = rest.split_at(rest.len().min(DATA_BYTES_MAX));
        let data_bytes = u8::try_from(data.len()).unwrap_or(u8::MAX);
        written_bytes += write(&[&[URL_DATA, data_bytes], data], &mut out[written_bytes..])?;
        rest = later;
        if rest.is_empty() {
            return Ok(written_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of BEP 41, "examples".
    const EXAMPLE_URL: &[u8] = b"/dir?a=b&c=d";
    const EXAMPLE: &[u8] = b"\x02\x0c/dir?a=b&c=d";
    const EXAMPLE_PADDED: &[u8] = b"\x02\x0c/dir?a=b&c=d\x01\x01\x00";
    const EXAMPLE_EMPTY: &[u8] = b"\x02\x00";

    fn url(options: &[u8]) -> Vec<u8> {
        Options::new(options).url_data().flatten().copied().collect()
    }

    #[test]
    fn examples_of_the_bep() {
        assert_eq!(url(EXAMPLE), EXAMPLE_URL);
        assert_eq!(url(EXAMPLE_PADDED), EXAMPLE_URL);
        assert_eq!(url(EXAMPLE_EMPTY), b"");
        assert_eq!(url(b""), b"");
    }

    #[test]
    fn pieces_are_concatenated_across_other_options() {
        assert_eq!(url(b"\x02\x02/a\x01\xee\x03xyz\x02\x00\x02\x01b"), b"/ab");
    }

    #[test]
    fn nothing_is_read_after_the_end() {
        assert_eq!(url(b"\x02\x02/a\x00\x02\x01b"), b"/a");
        // If 0 were an option with a length byte, this would be an empty one followed by URL data.
        assert_eq!(url(b"\x02\x02/a\x00\x00\x02\x01b"), b"/a");
    }

    #[test]
    fn a_broken_option_ends_the_options_but_not_what_came_before() {
        for broken in [&b"\x02"[..], b"\x02\x05abcd", b"\xff", b"\xff\x01", b"\x03\xff\x02\x01x"] {
            let mut options = EXAMPLE.to_vec();
            options.extend(broken);
            assert_eq!(url(&options), EXAMPLE_URL, "{broken:x?}");
        }
    }

    #[test]
    fn the_iterator_stays_at_its_end() {
        let mut pieces = Options::new(b"\x02\x05ab").url_data();
        assert_eq!((pieces.next(), pieces.next()), (None, None));
        let mut pieces = Options::new(b"\x00\x02\x01a").url_data();
        assert_eq!((pieces.next(), pieces.next()), (None, None));
    }

    #[test]
    fn encoding_is_that_of_the_bep() {
        let mut out = [0xaa; 32];
        assert_eq!(encode_url_data(EXAMPLE_URL, &mut out), Ok(EXAMPLE.len()));
        assert_eq!(&out[..EXAMPLE.len()], EXAMPLE);
        assert_eq!(encode_url_data(b"", &mut out), Ok(2));
        assert_eq!(&out[..2], EXAMPLE_EMPTY);
    }

    #[test]
    fn a_long_url_is_cut_into_options() {
        for url_bytes in [254, 255, 256, 510, 511, 1000] {
            let long: Vec<u8> = (0..=255).cycle().take(url_bytes).collect();
            let mut out = [0; 1100];
            let options_bytes = encode_url_data(&long, &mut out).unwrap();
            assert_eq!(options_bytes, url_bytes + 2 * url_bytes.div_ceil(DATA_BYTES_MAX));
            assert_eq!(url(&out[..options_bytes]), long);
            assert!(encode_url_data(&long, &mut out[..options_bytes - 1]).is_err());
        }
    }
}
