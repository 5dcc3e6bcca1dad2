//! The end of the stream I/O: what is still done before a worker stops.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Read;
use std::net::TcpStream;

use common::stream::{BYE, Client, LIMITS, Script, StreamServer, addrs, listen, until};
use shoal_net::stream::{StreamIo, TURN_EVENTS_MAX};

const LOOPBACK: &[&str] = &["127.0.0.1:0"];

#[test]
fn retiring_finishes_what_is_under_way() {
    let server = StreamServer::start(LOOPBACK, LIMITS);
    let (mut idle, mut asking, mut slow) = (server.connect(), server.connect(), server.connect());
    idle.ask("echo\n", "");
    asking.say("echo some");
    slow.say("big 16000000\n");
    server.await_connections(3);
    until(|| server.counters.received_bytes.read() == 27);
    server.retire();
    idle.hear_last(BYE);
    assert!(TcpStream::connect(server.addrs[0]).is_err());
    asking.say("thing\n");
    asking.hear("something\n");
    asking.hear_last(BYE);
    slow.hear(vec![b'b'; 16_000_000]);
    // Its socket may have been full to the last byte of the answer, and then there was no room for last words.
    let mut last_words = Vec::new();
    slow.0.read_to_end(&mut last_words).unwrap();
    assert!(last_words == BYE || last_words.is_empty(), "{last_words:?}");
    server.await_connections(0);
}

/// A worker that stops has little time, and more to do than to close tens of thousands of connections.
#[test]
fn idlers_are_closed_a_few_at_a_time() {
    const COUNT: usize = 2 * TURN_EVENTS_MAX + 10;
    let listeners = listen(LOOPBACK);
    let addr = addrs(&listeners)[0];
    let (mut io, mut service) = (StreamIo::open(listeners, LIMITS).unwrap(), Script::default());
    let mut clients: Vec<_> = (0..COUNT).map(|_| Client::connect(addr)).collect();
    clients.iter_mut().for_each(|client| client.say("echo hello\n"));
    while io.connections() < COUNT || io.turn(0, &mut service).unwrap() > 0 {
        io.turn(0, &mut service).unwrap();
    }
    clients.iter_mut().for_each(|client| client.hear("hello\n"));
    io.turn(0, &mut service).unwrap();
    io.retire(0, &mut service).unwrap();
    assert_eq!(io.connections(), COUNT);
    let mut turns = 0;
    while io.connections() > 0 {
        assert!(io.turn(0, &mut service).unwrap() > 0, "the worker would wait");
        turns += 1;
    }
    assert_eq!(turns, 3);
    clients.iter_mut().for_each(|client| client.hear_last(BYE));
}

#[test]
fn in_the_end_the_rest_is_closed_with_last_words() {
    let listeners = listen(LOOPBACK);
    let (addr, counters) = (addrs(&listeners)[0], listeners.counters());
    let (mut io, mut service) = (StreamIo::open(listeners, LIMITS).unwrap(), Script::default());
    let [mut idle, mut asking, mut deaf, mut lingering] = [(); 4].map(|()| Client::connect(addr));
    idle.say("echo\n");
    asking.say("ech");
    deaf.say("big 16000000\n");
    lingering.say("linger\n");
    while counters.received_bytes.read() < 28 {
        io.turn(0, &mut service).unwrap();
    }
    io.turn(0, &mut service).unwrap();
    io.retire(0, &mut service).unwrap();
    while io.finish(&mut service) > 0 {}
    assert_eq!(io.connections(), 0);
    assert_eq!(counters.closed.read(), 4);
    drop(io);
    idle.hear_last(BYE);
    asking.hear_last(BYE);
    lingering.hear_last("");
    // What is cut off does not look whole.
    assert!(deaf.0.read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn who_waits_is_accepted_before_the_end() {
    const COUNT: usize = 300;
    let listeners = listen(LOOPBACK);
    let addr = addrs(&listeners)[0];
    let mut io = StreamIo::open(listeners, LIMITS).unwrap();
    let mut clients: Vec<_> = (0..COUNT).map(|_| Client::connect(addr)).collect();
    clients.iter_mut().for_each(|client| client.say("close at last\n"));
    let mut service = Script::default();
    io.retire(0, &mut service).unwrap();
    assert!(TcpStream::connect(addr).is_err());
    while io.connections() > 0 {
        io.turn(0, &mut service).unwrap();
    }
    clients.iter_mut().for_each(|client| client.hear_last("at last\n"));
}
