//! A stream back end allocates nothing for a request in the settled state.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::stream::{LIMITS, addrs, listen};
use shoal_counting::{Counting, allocations};
use shoal_net::stream::{AnyStreamIo, StreamBackend, StreamIo, StreamService};
use shoal_wire::stream::{Handle, Next, Origin};

over_every_stream_back_end! {
    requests_allocate_nothing,
    connections_allocate_nothing,
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const REQUEST: [u8; 300] = [7; 300];
const ANSWER: [u8; 400] = [8; 400];

/// Answers whatever comes.
struct Responder(Next);

impl StreamService for Responder {
    type Session = ();

    fn open(&mut self, _: &Origin, _: Handle) {}

    fn receive(&mut self, (): &mut (), _: &mut [u8], output: &mut Vec<u8>) -> Next {
        output.extend_from_slice(&ANSWER);
        self.0
    }

    fn expire(&mut self, (): &mut (), _: &mut Vec<u8>) {}

    fn refuse(&mut self, _: &Origin, _: &mut Vec<u8>) {}

    fn close(&mut self, (): ()) {}

    fn is_limited(&self, _: &Origin) -> bool {
        true
    }
}

fn exchange(io: &mut AnyStreamIo<Responder>, service: &mut Responder, clients: &mut [TcpStream]) {
    for client in &mut *clients {
        client.write_all(&REQUEST).unwrap();
    }
    for client in clients {
        let (mut answer, mut heard) = ([0; ANSWER.len()], 0);
        while heard < answer.len() {
            io.turn(0, service).unwrap();
            heard += client.read(&mut answer[heard..]).unwrap_or(0);
        }
    }
}

fn requests_allocate_nothing(backend: StreamBackend) {
    let (listeners, mut service) = (listen(&["127.0.0.1:0"]), Responder(Next::Idle));
    let addr = addrs(&listeners)[0];
    let mut io = backend.open(listeners, LIMITS).unwrap();
    let mut clients: Vec<_> = (0..200).map(|_| TcpStream::connect(addr).unwrap()).collect();
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
    let mut exchange = |io: &mut _| exchange(io, &mut service, &mut clients);
    exchange(&mut io);
    exchange(&mut io);
    let before = allocations();
    (0..20).for_each(|_| exchange(&mut io));
    assert_eq!(allocations() - before, 0);
}

fn connections_allocate_nothing(backend: StreamBackend) {
    let (listeners, mut service) = (listen(&["127.0.0.1:0"]), Responder(Next::Close));
    let addr = addrs(&listeners)[0];
    let mut io = backend.open(listeners, LIMITS).unwrap();
    let mut round = |io: &mut _| {
        for _ in 0..50 {
            let client = TcpStream::connect(addr).unwrap();
            client.set_nonblocking(true).unwrap();
            exchange(io, &mut service, &mut [client]);
        }
    };
    round(&mut io);
    let before = allocations();
    (0..10).for_each(|_| round(&mut io));
    assert_eq!(allocations() - before, 0);
}
