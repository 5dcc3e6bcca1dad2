//! The shutdown of the stream I/O: the work that is still done before a worker stops.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Read;
use std::net::TcpStream;

use common::stream::{BYE, Client, LIMITS, Script, StreamServer, addrs, listen, until};
use shoal_net::stream::{CLOSES_MAX, Direction, StreamIo};

const LOOPBACK: &[&str] = &["127.0.0.1:0"];

#[test]
fn a_shutdown_finishes_requests_in_progress() {
    let server = StreamServer::start(LOOPBACK, LIMITS);
    let (mut idle, mut asking, mut slow) = (server.connect(), server.connect(), server.connect());
    idle.ask("echo\n", "");
    asking.send_text("echo some");
    slow.send_text("big 16000000\n");
    server.await_connections(3);
    until(|| server.counters.bytes.of(Direction::In).read() == 27);
    server.begin_shutdown();
    idle.expect_end(BYE);
    assert!(TcpStream::connect(server.addrs[0]).is_err());
    asking.send_text("thing\n");
    asking.expect("something\n");
    asking.expect_end(BYE);
    slow.expect(vec![b'b'; 16_000_000]);
    // Its socket may have been full to the last byte of the reply, without room for a last message.
    let mut last_message = Vec::new();
    slow.0.read_to_end(&mut last_message).unwrap();
    assert!(last_message == BYE || last_message.is_empty(), "{last_message:?}");
    server.await_connections(0);
}

/// A worker that stops has little time, and more to do than to close tens of thousands of connections.
#[test]
fn idle_connections_are_closed_a_few_at_a_time() {
    const COUNT: usize = 2 * CLOSES_MAX + 10;
    let listeners = listen(LOOPBACK);
    let addr = addrs(&listeners)[0];
    let (mut io, mut service) = (StreamIo::open(listeners, LIMITS).unwrap(), Script::default());
    let mut clients: Vec<_> = (0..COUNT).map(|_| Client::connect(addr)).collect();
    clients.iter_mut().for_each(|client| client.send_text("echo hello\n"));
    while io.connections() < COUNT || io.poll(0, &mut service).unwrap() > 0 {
        io.poll(0, &mut service).unwrap();
    }
    clients.iter_mut().for_each(|client| client.expect("hello\n"));
    io.poll(0, &mut service).unwrap();
    io.begin_shutdown(0, &mut service).unwrap();
    assert_eq!(io.connections(), COUNT);
    let mut polls = 0;
    while io.connections() > 0 {
        assert!(io.poll(0, &mut service).unwrap() > 0, "the worker would wait");
        polls += 1;
    }
    assert_eq!(polls, 3);
    clients.iter_mut().for_each(|client| client.expect_end(BYE));
}

#[test]
fn in_the_end_the_rest_is_closed_with_a_last_message() {
    let listeners = listen(LOOPBACK);
    let (addr, counters) = (addrs(&listeners)[0], listeners.counters());
    let (mut io, mut service) = (StreamIo::open(listeners, LIMITS).unwrap(), Script::default());
    let [mut idle, mut asking, mut slow, mut lingering] = [(); 4].map(|()| Client::connect(addr));
    idle.send_text("echo\n");
    asking.send_text("ech");
    slow.send_text("big 16000000\n");
    lingering.send_text("linger\n");
    while counters.bytes.of(Direction::In).read() < 28 {
        io.poll(0, &mut service).unwrap();
    }
    io.poll(0, &mut service).unwrap();
    io.begin_shutdown(0, &mut service).unwrap();
    while io.close_remaining(&mut service) > 0 {}
    assert_eq!(io.connections(), 0);
    assert_eq!(counters.closed.read(), 4);
    drop(io);
    idle.expect_end(BYE);
    asking.expect_end(BYE);
    lingering.expect_end("");
    // A truncated reply does not look complete.
    assert!(slow.0.read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn waiting_connections_are_accepted_before_the_end() {
    const COUNT: usize = 300;
    let listeners = listen(LOOPBACK);
    let addr = addrs(&listeners)[0];
    let mut io = StreamIo::open(listeners, LIMITS).unwrap();
    let mut clients: Vec<_> = (0..COUNT).map(|_| Client::connect(addr)).collect();
    clients.iter_mut().for_each(|client| client.send_text("close at last\n"));
    let mut service = Script::default();
    io.begin_shutdown(0, &mut service).unwrap();
    assert!(TcpStream::connect(addr).is_err());
    while io.connections() > 0 {
        io.poll(0, &mut service).unwrap();
    }
    clients.iter_mut().for_each(|client| client.expect_end("at last\n"));
}
