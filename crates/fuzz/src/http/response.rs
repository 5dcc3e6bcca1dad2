//! The heads of HTTP responses, and chunked bodies.

use shoal_wire::http::head::HEAD_BYTES_MAX;
use shoal_wire::http::response::{Chunk, END_OF_CHUNKS, Framing, ReceivedHead, ResponseError, decode_chunks};

const DATA_BYTES_MAX: usize = 64;

/// Decodes the input as the head of a response, and the rest (or all of it, if there is no head) as chunks.
pub fn http_response(bytes: &[u8]) {
    let mut body = bytes;
    match ReceivedHead::decode(bytes) {
        Ok(Some(head)) => {
            assert!(head.bytes <= bytes.len().min(HEAD_BYTES_MAX));
            assert!(head.status < 1000);
            assert!(!head.keep_alive || head.framing != Framing::Close, "the end of the body is marked");
            assert_eq!(ReceivedHead::decode(&bytes[..head.bytes]), Ok(Some(head)));
            assert_eq!(ReceivedHead::decode(&bytes[..head.bytes - 1]), Ok(None));
            body = &bytes[head.bytes..];
        }
        Ok(None) => assert!(bytes.len() < HEAD_BYTES_MAX),
        Err(ResponseError::TooLarge) => assert!(bytes.len() > 100),
        Err(ResponseError::Malformed(_)) => {}
    }
    let mut data = b"kept".to_vec();
    let decoded = decode_chunks(body, DATA_BYTES_MAX, &mut data);
    let Ok(Some(bytes)) = decoded else { return assert_eq!(data, b"kept") };
    let data = data.strip_prefix(b"kept").expect("earlier data stays");
    assert!(bytes <= body.len() && data.len() <= DATA_BYTES_MAX);
    assert_eq!(decode_chunks(&body[..bytes - 1], DATA_BYTES_MAX, &mut Vec::new()), Ok(None));

    let mut again = Vec::new();
    let chunk = Chunk::begin(&mut again);
    again.extend_from_slice(data);
    chunk.end(&mut again);
    again.extend_from_slice(END_OF_CHUNKS);
    let mut out = Vec::new();
    assert_eq!(decode_chunks(&again, DATA_BYTES_MAX, &mut out), Ok(Some(again.len())));
    assert_eq!(out, data);
}
