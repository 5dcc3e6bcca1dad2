//! In the steady state a worker allocates nothing for a request on a connection, nor for output that no input has
//! caused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::stream::{LIMITS, addrs, listen};
use shoal_base::transport::stream::{Handle, Next, Remote, StreamService};
use shoal_net::stream::StreamIo;
use shoal_testkit::allocator::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const REQUEST: [u8; 300] = [7; 300];
const ANSWER: [u8; 400] = [8; 400];

/// As long as ten offers.
static OUTPUT: [u8; 20_000] = [9; 20_000];

/// Answers every input, and writes on all connections when commands to.
struct Responder {
    next: Next,
    handles: Vec<Handle>,
    /// The number of connections that are still to be written on.
    silent: usize,
}

impl Responder {
    fn new(next: Next) -> Self {
        Self { next, handles: Vec::with_capacity(1000), silent: 0 }
    }
}

impl StreamService for Responder {
    type Session = ();

    fn open(&mut self, _: &Remote, handle: Handle) {
        self.handles.push(handle);
    }

    fn receive(&mut self, (): &mut (), _: &mut [u8], output: &mut Vec<u8>) -> Next {
        output.extend_from_slice(&ANSWER);
        self.next
    }

    fn next_to_write(&mut self) -> Option<Handle> {
        self.silent = self.silent.checked_sub(1)?;
        self.handles.get(self.silent).copied()
    }

    fn write(&mut self, (): &mut (), output: &mut Vec<u8>) -> Next {
        output.extend_from_slice(&OUTPUT);
        self.next
    }

    fn expire(&mut self, (): &mut (), _: &mut Vec<u8>) {}

    fn refuse(&mut self, _: &Remote, _: &mut Vec<u8>) {}

    fn close(&mut self, (): ()) {}

    fn is_limited(&self, _: &Remote) -> bool {
        true
    }
}

fn exchange(io: &mut StreamIo<Responder>, service: &mut Responder, clients: &mut [TcpStream]) {
    for client in &mut *clients {
        client.write_all(&REQUEST).unwrap();
    }
    clients.iter_mut().for_each(|client| receive(io, service, client, ANSWER.len()));
}

fn receive(io: &mut StreamIo<Responder>, service: &mut Responder, client: &mut TcpStream, bytes: usize) {
    let (mut buffer, mut received) = ([0; OUTPUT.len()], 0);
    while received < bytes {
        io.poll(0, service).unwrap();
        received += client.read(&mut buffer[..bytes - received]).unwrap_or(0);
    }
}

#[test]
fn requests_allocate_nothing() {
    let (listeners, mut service) = (listen(&["127.0.0.1:0"]), Responder::new(Next::Idle));
    let addr = addrs(&listeners)[0];
    let mut io = StreamIo::open(listeners, LIMITS).unwrap();
    let mut clients: Vec<_> = (0..200).map(|_| TcpStream::connect(addr).unwrap()).collect();
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
    let mut exchange = |io: &mut _| exchange(io, &mut service, &mut clients);
    exchange(&mut io);
    exchange(&mut io);
    let before = allocations();
    (0..20).for_each(|_| exchange(&mut io));
    assert_eq!(allocations() - before, 0);
}

#[test]
fn connections_allocate_nothing() {
    let (listeners, mut service) = (listen(&["127.0.0.1:0"]), Responder::new(Next::Close));
    let addr = addrs(&listeners)[0];
    let mut io = StreamIo::open(listeners, LIMITS).unwrap();
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

#[test]
fn queued_output_allocates_nothing() {
    let (listeners, mut service) = (listen(&["127.0.0.1:0"]), Responder::new(Next::Upgraded));
    let addr = addrs(&listeners)[0];
    let mut io = StreamIo::open(listeners, LIMITS).unwrap();
    let mut clients: Vec<_> = (0..200).map(|_| TcpStream::connect(addr).unwrap()).collect();
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
    exchange(&mut io, &mut service, &mut clients);
    let mut round = || {
        service.silent = service.handles.len();
        clients.iter_mut().for_each(|client| receive(&mut io, &mut service, client, OUTPUT.len()));
    };
    (0..3).for_each(|_| round());
    let before = allocations();
    (0..20).for_each(|_| round());
    assert_eq!(allocations() - before, 0);
}
