//! `shoal-lab echo --ws` from outside: a client that sends all that a WebSocket may carry, and gets it back.

use std::io::{Read, Write};
use std::net::TcpStream;

use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::handshake::{ask, confirm, key};
use shoal_wire::websocket::{CloseCode, Event, Reader, Role};

use crate::Echo;

const MASK: Option<[u8; 4]> = Some([0x0f, 0xf0, 0x33, 0x01]);
/// As much as an echo takes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A client whose handshake is done.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect(addr: &str) -> Self {
        let mut client = Self { stream: TcpStream::connect(addr).unwrap(), received: Vec::new() };
        let key = key(*b"bytes of a nonce");
        let mut request = Vec::new();
        ask("/any/path", addr, &key, Some("https://anybody.example"), &mut request);
        client.stream.write_all(&request).unwrap();
        let head_bytes = loop {
            match confirm(&client.received, &key).unwrap() {
                Some(head_bytes) => break head_bytes,
                None => assert!(client.receive(), "the echo agrees"),
            }
        };
        client.received.drain(..head_bytes);
        client
    }

    /// Whether there was more before the end.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 1 << 16];
        let count = self.stream.read(&mut bytes).unwrap();
        self.received.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// The next event in words, of what kind the message is where it is one, and the payload.
    fn hear(&mut self) -> (&'static str, Option<Opcode>, Vec<u8>) {
        let mut reader = Reader::new();
        loop {
            let head = frame::decode(&self.received, Role::Client).unwrap();
            let read = reader.read(&mut self.received, Role::Client, MESSAGE_BYTES_MAX).unwrap();
            let (opcode, used) = (head.map(|head| head.opcode), read.used);
            let heard = match read.event {
                None => {
                    assert!(self.receive(), "the echo goes on");
                    continue;
                }
                Some(Event::Message(message)) => ("message", opcode, message.to_vec()),
                Some(Event::Ping(payload)) => ("ping", None, payload.to_vec()),
                Some(Event::Pong(payload)) => ("pong", None, payload.to_vec()),
                Some(Event::Close(code)) => ("close", None, code.unwrap_or_default().to_be_bytes().to_vec()),
            };
            self.received.drain(..used);
            return heard;
        }
    }
}

fn start() -> Echo {
    Echo::start(&["--ws", "--listen", "127.0.0.1:0"])
}

#[test]
fn messages_of_every_size_go_back_as_they_came() {
    let echo = start();
    let mut client = Client::connect(&echo.addr);
    for opcode in [Opcode::Text, Opcode::Binary] {
        for bytes in [0, 1, 125, 126, 65_535, 65_536, 1 << 20] {
            let message: Vec<u8> = (b' '..=b'~').cycle().take(bytes).collect();
            let mut sent = Vec::new();
            frame::encode(opcode, &message, MASK, &mut sent);
            client.stream.write_all(&sent).unwrap();
            assert!(client.hear() == ("message", Some(opcode), message), "{opcode:?} of {bytes} bytes");
        }
    }
}

#[test]
fn fragments_come_back_whole_and_pings_between_them_are_answered() {
    let echo = start();
    let mut client = Client::connect(&echo.addr);
    let mut sent = Vec::new();
    frame::encode_fragment(Opcode::Text, false, b"\xc2", MASK, &mut sent);
    frame::encode(Opcode::Ping, b"between", MASK, &mut sent);
    frame::encode_fragment(Opcode::Continuation, true, b"\xb5", MASK, &mut sent);
    for byte in &sent {
        client.stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(client.hear(), ("pong", None, b"between".to_vec()));
    assert_eq!(client.hear(), ("message", Some(Opcode::Text), b"\xc2\xb5".to_vec()));
}

#[test]
fn the_end_is_told_and_then_comes() {
    let echo = start();
    let mut client = Client::connect(&echo.addr);
    let mut sent = Vec::new();
    frame::close(CloseCode::GoingAway, "bye", MASK, &mut sent);
    client.stream.write_all(&sent).unwrap();
    assert_eq!(client.hear(), ("close", None, CloseCode::GoingAway.code().to_be_bytes().to_vec()));
    assert!(!client.receive(), "the server closes first");

    let mut client = Client::connect(&echo.addr);
    let too_large = [&[0x82, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4], &[0; 5000]].concat();
    client.stream.write_all(&too_large).unwrap();
    assert_eq!(client.hear(), ("close", None, CloseCode::TooBig.code().to_be_bytes().to_vec()));
    assert!(!client.receive(), "no reset overtakes the reason");
}
