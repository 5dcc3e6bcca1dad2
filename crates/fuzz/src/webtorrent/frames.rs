//! Messages assembled from WebSocket frames.

use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::{Event, Reader, Role, Violation};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Decoded {
    Message(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    Invalid(Violation),
}

#[derive(Clone, Copy, Debug)]
struct ReadSettings {
    role: Role,
    message_bytes_max: usize,
}

/// Reads frames. The first byte selects the role, the most bytes of a message, and the size of the pieces that arrive.
/// The pieces do not change the result, which is the same after it was encoded and read again.
pub fn websocket_messages(bytes: &[u8]) {
    let [choices, frames @ ..] = bytes else { return };
    let role = if choices & 1 == 0 { Role::Server } else { Role::Client };
    let settings = ReadSettings { role, message_bytes_max: usize::from(choices >> 5) * 60 };
    let decoded = read_all(frames, usize::MAX, settings);
    let piece_bytes = usize::from(choices >> 1 & 15) + 1;
    assert_eq!(read_all(frames, piece_bytes, settings), decoded, "in pieces of {piece_bytes}");
    // Encoded again, the events decode to the same events.
    let mask = (role == Role::Server).then_some([0x5a, 0xff, 0x00, 0x01]);
    let (mut frames, mut expected) = (Vec::new(), Vec::new());
    for event in &decoded {
        match event {
            Decoded::Message(message) => frame::encode(Opcode::Binary, message, mask, &mut frames),
            Decoded::Ping(payload) => frame::encode(Opcode::Ping, payload, mask, &mut frames),
            Decoded::Pong(payload) => frame::encode(Opcode::Pong, payload, mask, &mut frames),
            Decoded::Close(code) => frame::answer_close(*code, mask, &mut frames),
            Decoded::Invalid(violation) => {
                let code = violation.close_code();
                frame::close(code, violation.reason(), mask, &mut frames);
                expected.push(Decoded::Close(Some(code.code())));
                continue;
            }
        }
        expected.push(event.clone());
    }
    assert_eq!(read_all(&frames, usize::MAX, settings), expected);
}

/// Reads pieces as a connection reads what arrives.
fn read_all(frames: &[u8], piece_bytes: usize, settings: ReadSettings) -> Vec<Decoded> {
    let ReadSettings { role, message_bytes_max } = settings;
    let (mut reader, mut input, mut decoded) = (Reader::new(), Vec::new(), Vec::new());
    for piece in frames.chunks(piece_bytes) {
        input.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let rest_bytes = input.len() - at;
            let read = match reader.read(&mut input[at..], role, message_bytes_max) {
                Ok(read) => read,
                Err(violation) => {
                    assert!(violation.reason().len() <= 123, "the reason fits a close frame");
                    decoded.push(Decoded::Invalid(violation));
                    return decoded;
                }
            };
            assert!(read.used <= rest_bytes);
            assert!(read.event.is_none() || read.used >= 2, "no event without a frame");
            decoded.extend(read.event.map(|event| match event {
                Event::Message(message) => {
                    assert!(message.len() <= message_bytes_max);
                    Decoded::Message(message.to_vec())
                }
                Event::Ping(payload) => Decoded::Ping(payload.to_vec()),
                Event::Pong(payload) => Decoded::Pong(payload.to_vec()),
                Event::Close(code) => Decoded::Close(code),
            }));
            if read.used == 0 {
                break;
            }
            at += read.used;
        }
        input.drain(..at);
        assert!(reader.buffered_bytes() <= message_bytes_max);
        assert!(reader.is_within_message() || reader.buffered_bytes() == 0, "memory only within a message");
    }
    decoded
}
