//! Frames as a client writes and reads them, without the codecs of the tracker.

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// A frame of the tracker, none of which is a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn text(&self) -> &str {
        assert_eq!(self.opcode, TEXT);
        std::str::from_utf8(&self.payload).unwrap()
    }

    /// The code of a close frame.
    pub(crate) fn code(&self) -> u16 {
        assert_eq!(self.opcode, CLOSE);
        u16::from_be_bytes(self.payload[..2].try_into().unwrap())
    }
}

/// Returns a whole frame of a client.
pub(crate) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    fragment(opcode, true, payload)
}

pub(crate) fn text(message: &str) -> Vec<u8> {
    frame(TEXT, message.as_bytes())
}

/// Returns a frame of a client, which may not be the last of its message.
pub(crate) fn fragment(opcode: u8, is_last: bool, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut bytes = vec![opcode | if is_last { 0x80 } else { 0 }];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..0x1_0000 => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&u64::try_from(length).unwrap().to_be_bytes());
        }
    }
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Returns all frames in `bytes`, which must end with the last of them.
pub(crate) fn parse_all(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        assert_eq!(first & 0x70, 0, "no reserved bits");
        assert_eq!(first & 0x80, 0x80, "no fragments");
        assert_eq!(second & 0x80, 0, "no masks");
        let (length, rest) = match second {
            126 => (usize::from(u16::from_be_bytes(rest[..2].try_into().unwrap())), &rest[2..]),
            127 => (usize::try_from(u64::from_be_bytes(rest[..8].try_into().unwrap())).unwrap(), &rest[8..]),
            length => (usize::from(*length), rest),
        };
        let (payload, rest) = rest.split_at(length);
        frames.push(Frame { opcode: first & 15, payload: payload.to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty(), "the last frame is whole");
    frames
}
