//! WebSocket frames (RFC 6455, 5.2), encoded and decoded as by a client. They are encoded by hand, so that a case can
//! send invalid frames.

/// Opcodes (RFC 6455, 11.8).
pub(super) const CONTINUATION: u8 = 0x0;
pub(super) const TEXT: u8 = 0x1;
pub(super) const BINARY: u8 = 0x2;
pub(super) const CLOSE: u8 = 0x8;
pub(super) const PING: u8 = 0x9;
pub(super) const PONG: u8 = 0xa;

pub(super) const FIN: u8 = 0x80;

const MASKED: u8 = 0x80;

/// The maximum payload; no message to the suite is longer.
const PAYLOAD_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) is_last: bool,
    pub(super) opcode: u8,
    pub(super) payload: Vec<u8>,
    pub(super) bytes: usize,
}

/// Encodes a masked frame whose first byte, flags and opcode, is `first`.
pub(super) fn masked(mask: [u8; 4], first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(first, MASKED, payload.len() as u64);
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Encodes a frame without a mask, which no client may send.
pub(super) fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    [head(first, 0, payload.len() as u64), payload.to_vec()].concat()
}

/// Encodes the header of a masked frame with this payload length and a mask of zero.
pub(super) fn masked_head(first: u8, payload_bytes: u64) -> Vec<u8> {
    [head(first, MASKED, payload_bytes), vec![0; 4]].concat()
}

fn head(first: u8, mask: u8, payload_bytes: u64) -> Vec<u8> {
    match (u8::try_from(payload_bytes), u16::try_from(payload_bytes)) {
        (Ok(bytes @ 0..=125), _) => vec![first, mask | bytes],
        (_, Ok(bytes)) => [&[first, mask | 126][..], &bytes.to_be_bytes()].concat(),
        _ => [&[first, mask | 127][..], &payload_bytes.to_be_bytes()].concat(),
    }
}

/// Decodes the first frame. Returns `None` if it is incomplete, or a description of what a server must not send.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Frame>, String> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(format!("a frame with reserved bits ({first:#04x})"));
    }
    if second & MASKED != 0 {
        return Err("a masked frame from a server".to_owned());
    }
    let (is_last, opcode) = (first & FIN != 0, first & 0x0f);
    let (payload_bytes, head_bytes) = match second & 0x7f {
        126 => match rest.first_chunk() {
            Some(bytes) => (u16::from_be_bytes(*bytes).into(), 4),
            None => return Ok(None),
        },
        127 => match rest.first_chunk() {
            Some(bytes) => (u64::from_be_bytes(*bytes), 10),
            None => return Ok(None),
        },
        bytes => (bytes.into(), 2),
    };
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(format!("a frame of {payload_bytes} bytes"));
    }
    match opcode {
        CONTINUATION | TEXT | BINARY => {}
        CLOSE | PING | PONG if is_last && payload_bytes <= 125 => {}
        CLOSE | PING | PONG => return Err(format!("a control frame of {payload_bytes} bytes, or in pieces")),
        _ => return Err(format!("a frame of the reserved opcode {opcode}")),
    }
    let end = usize::try_from(payload_bytes).ok().map(|payload| head_bytes + payload);
    let frame = |end: usize| {
        let payload = bytes.get(head_bytes..end)?.to_vec();
        Some(Frame { is_last, opcode, payload, bytes: end })
    };
    Ok(end.and_then(frame))
}

#[cfg(test)]
mod tests {
    use super::{FIN, PING, TEXT, masked, masked_head, read, unmasked};

    #[test]
    fn frames_of_all_lengths_are_decoded_once_complete() {
        for payload in [0, 1, 125, 126, 65_535, 65_536, 100_000].map(|bytes| vec![b'x'; bytes]) {
            let bytes = unmasked(FIN | TEXT, &payload);
            let frame = read(&[&bytes[..], b"more"].concat()).unwrap().unwrap();
            assert_eq!((frame.is_last, frame.opcode, frame.bytes), (true, TEXT, bytes.len()));
            assert_eq!(frame.payload, payload);
            for cut in (0..bytes.len()).step_by(1 + bytes.len() / 10) {
                assert_eq!(read(&bytes[..cut]), Ok(None));
            }
        }
    }

    #[test]
    fn the_payload_is_masked() {
        assert_eq!(masked([1, 2, 3, 4], FIN | TEXT, b"\0\0\0\0\0"), [0x81, 0x85, 1, 2, 3, 4, 1, 2, 3, 4, 1]);
        assert_eq!(masked_head(FIN | TEXT, 126), [0x81, 0xfe, 0, 126, 0, 0, 0, 0]);
    }

    #[test]
    fn invalid_frames_are_rejected() {
        for (bytes, word) in [
            (masked([0; 4], FIN | TEXT, b"x"), "masked"),
            (unmasked(FIN | TEXT | 0x40, b"x"), "reserved bits"),
            (unmasked(FIN | 0x3, b"x"), "reserved opcode"),
            (unmasked(PING, b"x"), "control"),
            (unmasked(FIN | PING, &[0; 126]), "control"),
        ] {
            assert!(read(&bytes).unwrap_err().contains(word), "{word}");
        }
    }
}
