//! Messages out of WebSocket frames.

use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::{Event, Reader, Role, Violation};

/// What was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Message(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    Broken(Violation),
}

/// Who reads, and how.
#[derive(Clone, Copy, Debug)]
struct Way {
    role: Role,
    message_bytes_max: usize,
}

/// Takes the first byte for the way to read the rest: the role, the most bytes of a message, and how the rest is cut.
/// However it is cut, the same is heard, and what is heard can be said again.
///
/// # Panics
/// Where something does not hold.
pub fn websocket_messages(bytes: &[u8]) {
    let [how, conversation @ ..] = bytes else { return };
    let role = if how & 1 == 0 { Role::Server } else { Role::Client };
    let way = Way { role, message_bytes_max: usize::from(how >> 5) * 60 };
    let heard = hear(conversation, usize::MAX, way);
    let piece_bytes = usize::from(how >> 1 & 15) + 1;
    assert_eq!(hear(conversation, piece_bytes, way), heard, "in pieces of {piece_bytes}");
    check_again(&heard, way);
}

/// Reads pieces as a connection reads what arrives.
fn hear(conversation: &[u8], piece_bytes: usize, way: Way) -> Vec<Heard> {
    let (mut reader, mut input, mut heard) = (Reader::new(), Vec::new(), Vec::new());
    for piece in conversation.chunks(piece_bytes) {
        input.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let rest_bytes = input.len() - at;
            let read = match reader.read(&mut input[at..], way.role, way.message_bytes_max) {
                Ok(read) => read,
                Err(violation) => {
                    assert!(violation.reason().len() <= 123, "it fits a close frame");
                    heard.push(Heard::Broken(violation));
                    return heard;
                }
            };
            assert!(read.used <= rest_bytes);
            assert!(read.event.is_none() || read.used >= 2, "no event without a frame");
            heard.extend(read.event.map(|event| keep(&event, way)));
            if read.used == 0 {
                break;
            }
            at += read.used;
        }
        input.drain(..at);
        assert!(reader.kept_bytes() <= way.message_bytes_max);
        assert!(reader.is_within_message() || reader.kept_bytes() == 0, "memory only within a message");
    }
    heard
}

fn keep(event: &Event<'_>, way: Way) -> Heard {
    match event {
        Event::Message(message) => {
            assert!(message.len() <= way.message_bytes_max);
            Heard::Message(message.to_vec())
        }
        Event::Ping(payload) => Heard::Ping(payload.to_vec()),
        Event::Pong(payload) => Heard::Pong(payload.to_vec()),
        Event::Close(code) => Heard::Close(*code),
    }
}

/// Says again what was heard, and hears it.
fn check_again(heard: &[Heard], way: Way) {
    let mask = (way.role == Role::Server).then_some([0x5a, 0xff, 0x00, 0x01]);
    let (mut conversation, mut expected) = (Vec::new(), Vec::new());
    for heard in heard {
        match heard {
            Heard::Message(message) => frame::encode(Opcode::Binary, message, mask, &mut conversation),
            Heard::Ping(payload) => frame::encode(Opcode::Ping, payload, mask, &mut conversation),
            Heard::Pong(payload) => frame::encode(Opcode::Pong, payload, mask, &mut conversation),
            Heard::Close(code) => frame::answer_close(*code, mask, &mut conversation),
            Heard::Broken(violation) => {
                let code = violation.close_code();
                frame::close(code, violation.reason(), mask, &mut conversation);
                expected.push(Heard::Close(Some(code.code())));
                continue;
            }
        }
        expected.push(heard.clone());
    }
    assert_eq!(hear(&conversation, usize::MAX, way), expected);
}
