//! Reads replies: where one ends, and its body.

use shoal_wire::http::response::{Framing, ReceivedHead, ResponseError, decode_chunks};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply<'i> {
    pub(super) status: u16,
    pub(super) body: &'i [u8],
    /// The length of the reply in the input.
    pub(super) bytes: usize,
    pub(super) keep_alive: bool,
}

/// The longest body that is accepted. A scrape of the most torrents is far shorter.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Reads a reply from the front of `input`. Returns `None` if the reply is not complete yet. After the end of the
/// stream (`is_all`), nothing will be added to the input. Chunks are joined in `scratch`.
pub(super) fn read<'i>(
    input: &'i [u8],
    is_all: bool,
    scratch: &'i mut Vec<u8>,
) -> Result<Option<Reply<'i>>, ResponseError> {
    let Some(head) = ReceivedHead::decode(input)? else { return Ok(None) };
    let ReceivedHead { bytes, status, framing, keep_alive } = head;
    let rest = &input[bytes..];
    let (body, body_bytes) = match framing {
        Framing::Length(length) => {
            let length = usize::try_from(length).ok().filter(|length| *length <= BODY_BYTES_MAX);
            let Some(body) = rest.get(..length.ok_or(ResponseError::TooLarge)?) else { return Ok(None) };
            (body, body.len())
        }
        Framing::Chunked => {
            scratch.clear();
            let Some(body_bytes) = decode_chunks(rest, BODY_BYTES_MAX, scratch)? else { return Ok(None) };
            (&scratch[..], body_bytes)
        }
        Framing::Close if rest.len() > BODY_BYTES_MAX => return Err(ResponseError::TooLarge),
        Framing::Close if is_all => (rest, rest.len()),
        Framing::Close => return Ok(None),
    };
    Ok(Some(Reply { status, body, bytes: bytes + body_bytes, keep_alive }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(input: &[u8], is_all: bool) -> Option<(Vec<u8>, usize)> {
        let mut scratch = Vec::new();
        read(input, is_all, &mut scratch).unwrap().map(|reply| (reply.body.to_vec(), reply.bytes))
    }

    #[test]
    fn a_body_ends_by_length_by_chunks_or_with_the_connection() {
        let counted = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\ndeHTTP";
        assert_eq!(body(counted, false), Some((b"de".to_vec(), counted.len() - 4)));
        assert_eq!(body(&counted[..counted.len() - 5], false), None);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nd\r\n1\r\ne\r\n0\r\n\r\nHT";
        assert_eq!(body(chunked, false), Some((b"de".to_vec(), chunked.len() - 2)));
        assert_eq!(body(&chunked[..chunked.len() - 4], false), None);
        let open = b"HTTP/1.0 200 OK\r\n\r\nde";
        assert_eq!(body(open, false), None);
        assert_eq!(body(open, true), Some((b"de".to_vec(), open.len())));
    }

    #[test]
    fn an_invalid_or_too_long_reply_is_refused_at_once() {
        let mut scratch = Vec::new();
        assert!(read(b"\x16\x03\x01\x02\x00", false, &mut scratch).is_err());
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BODY_BYTES_MAX + 1);
        assert_eq!(read(long.as_bytes(), false, &mut scratch), Err(ResponseError::TooLarge));
    }
}
