//! `shoal-lab echo --ws` from outside: a client sends every kind of message and gets it back.

use std::io;
use std::time::Duration;

use shoal_testkit::client::tcp;
use shoal_testkit::client::websocket::{Frame, WebSocket, fragment};
use shoal_wire::websocket::frame::Opcode;

use crate::Echo;

fn connect(addr: &str) -> WebSocket {
    let stream = tcp(None, addr.parse().unwrap(), Duration::from_secs(10)).unwrap();
    WebSocket::over_with(stream, "/any/path", "Origin: https://page.example\r\n").unwrap()
}

/// Whether the connection ends without an error.
fn has_ended(client: &mut WebSocket) -> bool {
    let error = client.read().unwrap_err();
    error.downcast_ref().is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof)
}

fn start() -> Echo {
    Echo::start(&["--ws", "--listen", "127.0.0.1:0"])
}

#[test]
fn messages_of_every_size_are_returned_unchanged() {
    let echo = start();
    let mut client = connect(&echo.addr);
    for (opcode, frame) in [(Opcode::Text, Frame::Text as fn(_) -> _), (Opcode::Binary, Frame::Binary)] {
        for bytes in [0, 1, 125, 126, 65_535, 65_536, 1 << 20] {
            let message: Vec<u8> = (b' '..=b'~').cycle().take(bytes).collect();
            client.send_raw(&fragment(opcode, true, &message)).unwrap();
            assert!(client.read().unwrap() == frame(message), "{opcode:?} of {bytes} bytes");
        }
    }
}

#[test]
fn fragments_are_reassembled_and_pings_between_them_answered() {
    let echo = start();
    let mut client = connect(&echo.addr);
    let frames = [
        fragment(Opcode::Text, false, b"\xc2"),
        fragment(Opcode::Ping, true, b"between"),
        fragment(Opcode::Continuation, true, b"\xb5"),
    ];
    for byte in frames.concat() {
        client.send_raw(&[byte]).unwrap();
    }
    assert_eq!(client.read().unwrap(), Frame::Pong(b"between".to_vec()));
    assert_eq!(client.read().unwrap(), Frame::Text(b"\xc2\xb5".to_vec()));
}

#[test]
fn a_close_frame_precedes_the_end() {
    let echo = start();
    let mut client = connect(&echo.addr);
    client.send_raw(&fragment(Opcode::Close, true, b"\x03\xe9bye")).unwrap();
    assert!(matches!(client.read().unwrap(), Frame::Close(Some(1001), _)));
    assert!(has_ended(&mut client), "the server closes first");

    let mut client = connect(&echo.addr);
    let too_large = [&[0x82, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4], &[0; 5000]].concat();
    client.send_raw(&too_large).unwrap();
    assert!(matches!(client.read().unwrap(), Frame::Close(Some(1009), _)));
    assert!(has_ended(&mut client), "no reset overtakes the reason");
}
