//! Whom a poll round serves first, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Read;
use std::net::SocketAddr;

use common::stream::{Client, LIMITS, Script, addrs, listen};
use rustix::io::ioctl_fionread;
use shoal_net::stream::{POLL_EVENTS_MAX, StreamIo};

/// The bytes of a busy client's request, and of its reply. Both together are an eighth of what a round moves.
const LINE_BYTES: usize = 16 * 1024;
const TURNS_OF_A_ROUND: usize = 8;

/// A worker without a thread, and clients that always have a request for it.
struct Crowd {
    io: StreamIo<Script>,
    service: Script,
    addr: SocketAddr,
    busy: Vec<Client>,
    line: String,
}

impl Crowd {
    /// Connects the clients and a quiet one. The busy ones have had a turn, and have sent their next request.
    fn new(count: usize) -> (Self, Client) {
        let listeners = listen(&["127.0.0.1:0"]);
        let addr = addrs(&listeners)[0];
        let io = StreamIo::open(listeners, LIMITS).unwrap();
        let line = format!("echo {}\n", "x".repeat(LINE_BYTES - "echo \n".len()));
        let mut crowd = Self { io, service: Script::default(), addr, busy: Vec::new(), line };
        for _ in 0..count {
            let mut client = crowd.connect(&crowd.line.clone());
            client.expect(&crowd.line["echo ".len()..]);
            crowd.busy.push(client);
        }
        let mut quiet = crowd.connect("echo first\n");
        quiet.expect("first\n");
        crowd.busy.iter_mut().for_each(|client| client.send_text(&crowd.line));
        (crowd, quiet)
    }

    /// Connects a client with a first request, and serves it.
    fn connect(&mut self, line: &str) -> Client {
        let mut client = Client::connect(self.addr);
        client.send_text(line);
        while ioctl_fionread(&client.0).unwrap() == 0 {
            self.poll();
        }
        client
    }

    fn poll(&mut self) -> usize {
        self.io.poll(0, &mut self.service).unwrap()
    }

    /// Runs a poll round. Returns the busy clients that had a turn. Each has sent its next request.
    fn turns(&mut self) -> Vec<usize> {
        assert!(self.poll() >= POLL_EVENTS_MAX, "some are left for the next round");
        let has_reply = |number: &usize| ioctl_fionread(&self.busy[*number].0).unwrap() > 0;
        let served: Vec<usize> = (0..self.busy.len()).filter(has_reply).collect();
        for number in &served {
            let client = &mut self.busy[*number];
            client.0.read_exact(&mut vec![0; LINE_BYTES - "echo ".len()]).unwrap();
            client.send_text(&self.line);
        }
        served
    }
}

#[test]
fn a_quiet_client_goes_before_busy_ones() {
    let (mut crowd, mut quiet) = Crowd::new(40);
    for _ in 0..10 {
        quiet.send_text("echo hello\n");
        assert!((1..=TURNS_OF_A_ROUND + 1).contains(&crowd.turns().len()));
        assert_eq!(ioctl_fionread(&quiet.0).unwrap(), "hello\n".len() as u64);
        quiet.expect("hello\n");
    }
    // A new one does not wait either.
    let mut new = Client::connect(crowd.addr);
    new.send_text("close hello\n");
    crowd.turns();
    new.expect_end("hello\n");
}

#[test]
fn busy_clients_take_turns() {
    const COUNT: usize = 40;
    let (mut crowd, _quiet) = Crowd::new(COUNT);
    let mut turns = [0; COUNT];
    for _ in 0..COUNT {
        crowd.turns().into_iter().for_each(|number| turns[number] += 1);
    }
    let (min, max) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(*min >= TURNS_OF_A_ROUND - 2 && *max <= TURNS_OF_A_ROUND + 3, "{turns:?}");
}
