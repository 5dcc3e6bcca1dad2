//! `shoal-lab echo --ws` from outside: a client sends every kind of message and gets it back.

use std::io::{Read, Write};
use std::net::TcpStream;

use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::websocket::handshake::{ask, confirm, key};
use shoal_wire::websocket::{CloseCode, Event, Reader, Role};

use crate::Echo;

const MASK: Option<[u8; 4]> = Some([0x0f, 0xf0, 0x33, 0x01]);
/// The limit of the echo.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A client with an open WebSocket.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect(addr: &str) -> Self {
        let mut client = Self { stream: TcpStream::connect(addr).unwrap(), received: Vec::new() };
        let key = key(*b"bytes of a nonce");
        let mut request = Vec::new();
        ask("/any/path", addr, &key, Some("https://page.example"), &mut request);
        client.stream.write_all(&request).unwrap();
        let head_bytes = loop {
            match confirm(&client.received, &key).unwrap() {
                Some(head_bytes) => break head_bytes,
                None => assert!(client.receive(), "the echo accepts"),
            }
        };
        client.received.drain(..head_bytes);
        client
    }

    /// Receives bytes. Returns false at the end of the connection.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 1 << 16];
        let count = self.stream.read(&mut bytes).unwrap();
        self.received.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// Returns the name of the next event, the opcode if it is a message, and the payload.
    fn next_event(&mut self) -> (&'static str, Option<Opcode>, Vec<u8>) {
        let mut reader = Reader::new();
        loop {
            let head = frame::decode(&self.received, Role::Client).unwrap();
            let read = reader.read(&mut self.received, Role::Client, MESSAGE_BYTES_MAX).unwrap();
            let (opcode, used) = (head.map(|head| head.opcode), read.used);
            let next = match read.event {
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
            return next;
        }
    }
}

fn start() -> Echo {
    Echo::start(&["--ws", "--listen", "127.0.0.1:0"])
}

#[test]
fn messages_of_every_size_are_returned_unchanged() {
    let echo = start();
    let mut client = Client::connect(&echo.addr);
    for opcode in [Opcode::Text, Opcode::Binary] {
        for bytes in [0, 1, 125, 126, 65_535, 65_536, 1 << 20] {
            let message: Vec<u8> = (b' '..=b'~').cycle().take(bytes).collect();
            let mut sent = Vec::new();
            frame::encode(opcode, &message, MASK, &mut sent);
            client.stream.write_all(&sent).unwrap();
            assert!(client.next_event() == ("message", Some(opcode), message), "{opcode:?} of {bytes} bytes");
        }
    }
}

#[test]
fn fragments_are_reassembled_and_pings_between_them_answered() {
    let echo = start();
    let mut client = Client::connect(&echo.addr);
    let mut sent = Vec::new();
    frame::encode_fragment(Opcode::Text, false, b"\xc2", MASK, &mut sent);
    frame::encode(Opcode::Ping, b"between", MASK, &mut sent);
    frame::encode_fragment(Opcode::Continuation, true, b"\xb5", MASK, &mut sent);
    for byte in &sent {
        client.stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(client.next_event(), ("pong", None, b"between".to_vec()));
    assert_eq!(client.next_event(), ("message", Some(Opcode::Text), b"\xc2\xb5".to_vec()));
}

#[test]
fn a_close_frame_precedes_the_end() {
    let echo = start();
    let mut client = Client::connect(&echo.addr);
    let mut sent = Vec::new();
    frame::close(CloseCode::GoingAway, "bye", MASK, &mut sent);
    client.stream.write_all(&sent).unwrap();
    assert_eq!(client.next_event(), ("close", None, CloseCode::GoingAway.code().to_be_bytes().to_vec()));
    assert!(!client.receive(), "the server closes first");

    let mut client = Client::connect(&echo.addr);
    let too_large = [&[0x82, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4], &[0; 5000]].concat();
    client.stream.write_all(&too_large).unwrap();
    assert_eq!(client.next_event(), ("close", None, CloseCode::TooBig.code().to_be_bytes().to_vec()));
    assert!(!client.receive(), "no reset overtakes the reason");
}
