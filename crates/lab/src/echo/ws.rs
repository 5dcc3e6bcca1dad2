//! The echo over WebSockets: each message is returned unchanged.

use std::mem;

use shoal_base::transport::stream::Next;
use shoal_wire::http::Version;
use shoal_wire::http::date::Date;
use shoal_wire::http::head::{HeaderStorage, RequestHead};
use shoal_wire::http::response::{Framing, PLAIN_TEXT, ResponseHead, Status};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::handshake::{self, Asked, UPGRADE_REQUIRED_FIELDS};
use shoal_wire::websocket::{Event, Reader, Role};

use super::stream::EchoProtocol;

/// Most bytes of a message, and so the most that a connection keeps of an incomplete one.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Accepts every WebSocket, on any path.
#[derive(Clone)]
pub(super) struct WsEcho;

#[derive(Default)]
pub(super) struct State {
    is_open: bool,
    /// The received part of an incomplete head or frame.
    partial: Vec<u8>,
    reader: Reader,
    /// The opcode of a fragmented message.
    kind: Option<Opcode>,
}

enum Step {
    /// This number of bytes was consumed.
    Used(usize),
    Partial,
    /// No more input is read.
    End(Next),
}

impl EchoProtocol for WsEcho {
    type State = State;

    fn on_data(&self, state: &mut State, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        let ended = if state.partial.is_empty() {
            let read = state.read(input, output);
            read.map(|used| state.partial.extend_from_slice(&input[used..]))
        } else {
            let mut partial = mem::take(&mut state.partial);
            partial.extend_from_slice(input);
            state.read(&mut partial, output).map(|used| {
                // The incomplete rest stays in place, because a long message is large and arrives in many pieces.
                if used < partial.len() {
                    partial.drain(..used);
                    state.partial = partial;
                }
            })
        };
        match ended {
            Err(next) => next,
            Ok(()) if !state.partial.is_empty() || state.reader.is_within_message() => Next::BusyNew,
            Ok(()) if state.is_open => Next::Upgraded,
            Ok(()) => Next::Idle,
        }
    }
}

impl State {
    /// Answers all complete frames in `input` and returns their length, or the end of the connection.
    fn read(&mut self, input: &mut [u8], output: &mut Vec<u8>) -> Result<usize, Next> {
        let mut at = 0;
        loop {
            let rest = &mut input[at..];
            let step = match self.is_open {
                true => self.read_frame(rest, output),
                false => self.read_head(rest, output),
            };
            match step {
                Step::Used(bytes) => at += bytes,
                Step::Partial => return Ok(at),
                Step::End(next) => return Err(next),
            }
        }
    }

    fn read_head(&mut self, input: &[u8], output: &mut Vec<u8>) -> Step {
        let mut storage = HeaderStorage::new();
        let head = match RequestHead::decode(input, &mut storage) {
            Ok(Some(head)) => head,
            Ok(None) => return Step::Partial,
            Err(error) => return refuse(error.status(), output),
        };
        match handshake::request(&head) {
            Asked::No | Asked::Version => refuse(Status::UpgradeRequired, output),
            Asked::Malformed(_) => refuse(Status::BadRequest, output),
            Asked::WebSocket(accept) => {
                handshake::respond(&accept, output);
                self.is_open = true;
                Step::Used(head.bytes)
            }
        }
    }

    fn read_frame(&mut self, input: &mut [u8], output: &mut Vec<u8>) -> Step {
        // Only the first fragment has the opcode of the message, so it is remembered.
        if let Ok(Some(head)) = frame::decode(input, Role::Server)
            && matches!(head.opcode, Opcode::Text | Opcode::Binary)
        {
            self.kind = Some(head.opcode);
        }
        let read = match self.reader.read(input, Role::Server, MESSAGE_BYTES_MAX) {
            Ok(read) => read,
            Err(violation) => {
                frame::close(violation.close_code(), violation.reason(), None, output);
                return Step::End(Next::Linger);
            }
        };
        match read.event {
            None if read.used == 0 => return Step::Partial,
            None | Some(Event::Pong(_)) => {}
            Some(Event::Message(message)) => {
                frame::encode(self.kind.unwrap_or(Opcode::Binary), message, None, output);
            }
            Some(Event::Ping(payload)) => frame::encode(Opcode::Pong, payload, None, output),
            Some(Event::Close(code)) => {
                frame::answer_close(code, None, output);
                return Step::End(Next::Close);
            }
        }
        Step::Used(read.used)
    }
}

fn refuse(status: Status, output: &mut Vec<u8>) -> Step {
    let body = status.reason().as_bytes();
    let head = ResponseHead {
        status,
        version: Version::Http11,
        keep_alive: false,
        content_type: PLAIN_TEXT,
        framing: Framing::Length(body.len() as u64),
        date: &Date::EPOCH,
        fields: if status == Status::UpgradeRequired { &UPGRADE_REQUIRED_FIELDS } else { &[] },
    };
    head.encode(output);
    output.extend_from_slice(body);
    Step::End(Next::Linger)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const MASK: Option<[u8; 4]> = Some([1, 2, 3, 4]);

    fn handshake() -> (Vec<u8>, Vec<u8>) {
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        handshake::ask("/", "localhost", KEY, None, &mut asked);
        handshake::respond(&handshake::accept(KEY.as_bytes()).unwrap(), &mut answered);
        (asked, answered)
    }

    #[test]
    fn messages_are_returned_unchanged_however_they_are_split() {
        let (mut sent, mut expected) = handshake();
        frame::encode(Opcode::Text, b"one", MASK, &mut sent);
        frame::encode_fragment(Opcode::Binary, false, b"\xfft", MASK, &mut sent);
        frame::encode(Opcode::Ping, b"between", MASK, &mut sent);
        frame::encode_fragment(Opcode::Continuation, true, b"wo", MASK, &mut sent);
        frame::encode(Opcode::Pong, b"", MASK, &mut sent);
        frame::encode(Opcode::Text, "drei \u{b5}".as_bytes(), MASK, &mut sent);
        frame::encode(Opcode::Text, b"one", None, &mut expected);
        frame::encode(Opcode::Pong, b"between", None, &mut expected);
        frame::encode(Opcode::Binary, b"\xfftwo", None, &mut expected);
        frame::encode(Opcode::Text, "drei \u{b5}".as_bytes(), None, &mut expected);
        for cut in 0..sent.len() {
            let (mut state, mut output) = (State::default(), Vec::new());
            let (first, second) = sent.split_at(cut);
            WsEcho.on_data(&mut state, &mut first.to_vec(), &mut output);
            let next = WsEcho.on_data(&mut state, &mut second.to_vec(), &mut output);
            assert_eq!((next, &output), (Next::Upgraded, &expected), "{cut}");
            assert!(state.partial.is_empty());
        }
    }

    #[test]
    fn incomplete_input_keeps_the_connection_busy() {
        let (sent, _) = handshake();
        let (mut state, mut output) = (State::default(), Vec::new());
        assert_eq!(WsEcho.on_data(&mut state, &mut [], &mut output), Next::Idle);
        assert_eq!(WsEcho.on_data(&mut state, &mut sent[..9].to_vec(), &mut output), Next::BusyNew);
        assert_eq!(WsEcho.on_data(&mut state, &mut sent[9..].to_vec(), &mut output), Next::Upgraded);
        let mut fragment = Vec::new();
        frame::encode_fragment(Opcode::Text, false, b"one", MASK, &mut fragment);
        assert_eq!(WsEcho.on_data(&mut state, &mut fragment, &mut output), Next::BusyNew);
    }

    #[test]
    fn a_close_is_answered_and_a_violation_reported() {
        let (sent, before) = handshake();
        let mut close = sent.clone();
        frame::close(shoal_wire::websocket::CloseCode::GoingAway, "bye", MASK, &mut close);
        let (mut state, mut output) = (State::default(), Vec::new());
        assert_eq!(WsEcho.on_data(&mut state, &mut close, &mut output), Next::Close);
        assert_eq!(output[before.len()..], [0x88, 2, 0x03, 0xe9]);

        let mut unmasked = sent;
        frame::encode(Opcode::Text, b"one", None, &mut unmasked);
        let (mut state, mut output) = (State::default(), Vec::new());
        assert_eq!(WsEcho.on_data(&mut state, &mut unmasked, &mut output), Next::Linger);
        assert_eq!(output[before.len()..][..4], [0x88, 2 + 30, 0x03, 0xea]);
    }

    #[test]
    fn anything_but_a_websocket_is_refused() {
        for (request, status) in [("GET / HTTP/1.1\r\n\r\n", "426"), ("SSH-2.0\r\n\r\n", "400")] {
            let (mut state, mut output) = (State::default(), Vec::new());
            let next = WsEcho.on_data(&mut state, &mut request.as_bytes().to_vec(), &mut output);
            assert_eq!(next, Next::Linger);
            assert!(output.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{request}");
        }
    }
}
