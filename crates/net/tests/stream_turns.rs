//! Whom a poll round serves first, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::stream::{Client, LIMITS, Script, addrs, listen, until};
use rustix::io::ioctl_fionread;
use shoal_net::stream::StreamIo;

/// The bytes of a busy client's request, and nearly those of its reply: as many as a short turn receives.
const LINE_BYTES: usize = 4096;

/// The turns of busy clients in a round, which moves 64 KiB for them.
const TURNS_OF_A_ROUND: usize = 9;

/// A worker without a thread, and clients that always have a request for it.
struct Crowd {
    io: StreamIo<Script>,
    service: Script,
    addr: SocketAddr,
    now_ms: u64,
    busy: Vec<Client>,
    line: String,
}

/// Returns whether a reply has arrived.
fn has_reply(client: &Client) -> bool {
    ioctl_fionread(&client.0).unwrap() > 0
}

impl Crowd {
    /// Connects busy clients, and then a quiet one. The busy ones have sent their next request.
    fn new(count: usize) -> (Self, Client) {
        let listeners = listen(&["127.0.0.1:0"]);
        let addr = addrs(&listeners)[0];
        let io = StreamIo::open(listeners, LIMITS).unwrap();
        let line = format!("echo {}\n", "x".repeat(LINE_BYTES - "echo \n".len()));
        let mut crowd = Self { io, service: Script::default(), addr, now_ms: 0, busy: Vec::new(), line };
        for _ in 0..count {
            // Others can send messages to it.
            let first = format!("upgrade\n{}", crowd.line.repeat(3));
            let mut client = crowd.connect(&first);
            client.0.read_exact(&mut vec![0; 3 * (LINE_BYTES - "echo ".len())]).unwrap();
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
        while !has_reply(&client) {
            self.poll();
        }
        client
    }

    fn poll(&mut self) -> usize {
        self.io.poll(self.now_ms, &mut self.service).unwrap()
    }

    /// Runs a poll round. Returns the busy clients that had a turn. Each has sent its next request.
    fn turns(&mut self) -> Vec<usize> {
        let handled = self.poll();
        let served: Vec<usize> =
            (0..self.busy.len()).filter(|number| has_reply(&self.busy[*number])).collect();
        assert!(handled > 0 || !served.is_empty(), "the worker does not wait while there is work");
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
    let (mut crowd, mut quiet) = Crowd::new(100);
    for round in 0..10 {
        quiet.send_text("echo hello\n");
        // A new client does not wait either.
        let mut new = Client::connect(crowd.addr);
        new.send_text("close hello\n");
        let mut turns = 0;
        while !has_reply(&quiet) || !has_reply(&new) {
            turns += crowd.turns().len();
        }
        // One round is enough, if the kernel delivers at once.
        assert!(turns <= 2 * TURNS_OF_A_ROUND, "{turns} turns before a quiet client in round {round}");
        quiet.expect("hello\n");
        new.expect_end("hello\n");
    }
}

#[test]
fn busy_clients_take_turns() {
    const COUNT: usize = 100;
    const TURNS: usize = 20;
    let (mut crowd, _quiet) = Crowd::new(COUNT);
    let mut turns = [0; COUNT];
    while turns.iter().sum::<usize>() < TURNS * COUNT {
        crowd.turns().into_iter().for_each(|number| turns[number] += 1);
    }
    let (min, max) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(*min >= TURNS / 2 && *max <= TURNS * 3 / 2, "{turns:?}");
}

#[test]
fn a_busy_client_has_its_turn_among_quiet_ones_without_end() {
    let (mut crowd, first) = Crowd::new(1);
    let mut quiet = vec![first];
    let line = format!("echo {}\n", "y".repeat(1000));
    quiet.extend((0..300).map(|_| {
        let mut client = crowd.connect("echo first\n");
        client.expect("first\n");
        client
    }));
    crowd.turns();
    for _ in 0..10 {
        // Half a mebibyte, after a time in which the quiet ones stay quiet.
        quiet.iter_mut().for_each(|client| client.send_text(&line));
        crowd.now_ms += 1000;
        let mut rounds = 0;
        while crowd.turns().is_empty() {
            rounds += 1;
            assert!(rounds < 3, "the busy client waits");
        }
        while !quiet.iter().all(has_reply) {
            crowd.turns();
        }
        quiet.iter_mut().for_each(|client| client.expect(&line["echo ".len()..]));
    }
}

#[test]
fn a_quiet_client_goes_before_the_first_requests_of_new_ones() {
    let (mut crowd, mut quiet) = Crowd::new(0);
    let line = format!("echo {}\n", "z".repeat(20_000));
    let mut new: Vec<Client> = (0..60).map(|_| Client::connect(crowd.addr)).collect();
    new.iter_mut().for_each(|client| client.send_text(&line));
    quiet.send_text("echo hello\n");
    crowd.poll();
    let early = new.iter().filter(|client| has_reply(client)).count();
    assert!((1..20).contains(&early), "{early} of the new clients have a reply after a round");
    quiet.expect("hello\n");
    while !new.iter().all(has_reply) {
        crowd.poll();
    }
}

#[test]
fn messages_for_a_client_that_waits_arrive_after_its_turn_in_one_write() {
    const COUNT: usize = 60;
    const MESSAGES: usize = 20;
    let (mut crowd, _quiet) = Crowd::new(COUNT);
    let account = Arc::clone(&crowd.service.account);
    for message in 0..MESSAGES {
        for (number, client) in crowd.busy.iter_mut().enumerate() {
            client.send_text(&crowd.line);
            account.queue(number, &format!("{message} "));
        }
        crowd.poll();
    }
    let expected: String = (0..MESSAGES).map(|message| format!("{message} ")).collect();
    let mut received = vec![String::new(); COUNT];
    until(|| {
        crowd.poll();
        for (client, received) in crowd.busy.iter_mut().zip(&mut received) {
            let mut bytes = vec![0; usize::try_from(ioctl_fionread(&client.0).unwrap()).unwrap()];
            client.0.read_exact(&mut bytes).unwrap();
            // The rest are replies.
            received.extend(bytes.into_iter().map(char::from).filter(|byte| !"x\n".contains(*byte)));
        }
        received.iter().all(|received| received.len() == expected.len())
    });
    assert!(received.iter().all(|received| *received == expected), "{received:?}");
    let writes = account.writes.load(Ordering::Relaxed);
    assert!((COUNT..COUNT * MESSAGES / 2).contains(&writes), "{writes} writes");
}

#[test]
fn clients_that_vanish_while_they_wait_leave_with_their_turns_and_take_no_others() {
    let (mut crowd, _quiet) = Crowd::new(200);
    crowd.turns();
    crowd.busy.drain(100..).for_each(Client::reset);
    assert!(crowd.turns().len() <= TURNS_OF_A_ROUND);
    // Others come meanwhile.
    let mut quiet: Vec<Client> = (0..50).map(|_| crowd.connect("echo new\n")).collect();
    quiet.iter_mut().for_each(|client| client.expect("new\n"));
    let mut turns = [0; 100];
    while turns.contains(&0) {
        crowd.turns().into_iter().for_each(|number| turns[number] += 1);
    }
    assert!(*turns.iter().max().unwrap() <= 3, "{turns:?}");
    until(|| {
        crowd.turns();
        crowd.io.connections() == 151
    });
}

#[test]
fn messages_of_others_do_not_make_a_slow_reader_busy() {
    const COUNT: usize = 100;
    const MESSAGE_BYTES: usize = 8_000_000;
    let (mut crowd, _quiet) = Crowd::new(COUNT);
    let mut slow = crowd.connect("upgrade\necho first\n");
    slow.expect("first\n");
    crowd.service.account.queue(COUNT + 1, &"m".repeat(MESSAGE_BYTES));
    let mut received = 0;
    while received < MESSAGE_BYTES {
        crowd.turns();
        let present = usize::try_from(ioctl_fionread(&slow.0).unwrap()).unwrap();
        slow.0.read_exact(&mut vec![0; present]).unwrap();
        received += present;
    }
    assert!(crowd.service.account.backlog_bytes_max.load(Ordering::Relaxed) > 0);
    slow.send_text("echo hello\n");
    let mut turns = 0;
    while !has_reply(&slow) {
        turns += crowd.turns().len();
    }
    assert!(turns <= 2 * TURNS_OF_A_ROUND, "{turns} turns before it");
    slow.expect("hello\n");
}
