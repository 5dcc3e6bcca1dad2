//! A NATS server that fails, or is none.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::siege::attack::{Attack, Layer};
use crate::siege::context::Context;

/// The part that the attacks of false servers have in common.
const FALSE_SERVER: Attack = Attack {
    settings: &[("cluster.servers", "nats://127.0.0.1:9222"), ("memory.max", "384MiB")],
    promise: "the tracker serves alone, its memory stays within its bound, and its log stays short",
    ..Layer::Cluster.attack("", "", "", |_| Ok(()))
};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "nats-restarts",
        tries: "the NATS server is killed and started again without a pause",
        promise: "each node serves alone meanwhile, and they find each other afterwards",
        run: restarts,
        ..super::cluster::ATTACK
    },
    Attack {
        name: "nats-mute",
        tries: "a server that accepts connections and never sends a byte",
        run: |context| pretend(context, hold),
        ..FALSE_SERVER
    },
    Attack {
        name: "nats-closes",
        tries: "a server that greets each client and hangs up",
        run: |context| pretend(context, |stream, _| Ok(greet(stream)?)),
        ..FALSE_SERVER
    },
    Attack {
        name: "nats-garbage",
        tries: "a server that sends random bytes, before and after a greeting",
        run: |context| pretend(context, send_garbage),
        ..FALSE_SERVER
    },
    Attack {
        name: "nats-endless",
        tries: "a server that sends lines without an end, and messages of gigabytes",
        run: |context| pretend(context, send_without_end),
        ..FALSE_SERVER
    },
];

/// The port of the false server, which is free in the namespace of the siege.
const PORT: u16 = 9_222;

/// The log may have this many bytes a second, beside those of the start.
const LOG_BYTES_PER_S: u64 = 8 << 10;
const LOG_BYTES: u64 = 32 << 10;

/// How long a false server waits for its client.
const PATIENCE: Duration = Duration::from_millis(200);

const GREETING: &str = "INFO {\"server_id\":\"x\",\"server_name\":\"x\",\"version\":\"2.10.0\",\"proto\":1,\"max_payload\":1048576,\"headers\":true}\r\n";

fn restarts(context: &Context<'_>) -> Result<()> {
    let cluster = context.cluster()?;
    for round in context.rounds() {
        cluster.nats().kill();
        context.spend(1, 0);
        context.sleep_ms(u64::from(round % 4) * 50);
        cluster.nats().restart()?;
        context.sleep_ms(u64::from(round % 5) * 100);
    }
    Ok(())
}

/// Accepts connections until the window is over, and handles each on a thread of its own. `number` is that of the connection.
fn pretend(context: &Context<'_>, handle: fn(&mut TcpStream, &Accepted<'_>) -> Result<()>) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let listener = TcpListener::bind(address).context("cannot listen as a NATS server")?;
    listener.set_nonblocking(true)?;
    let (log_before, is_over) = (context.tracker.log_bytes(), AtomicBool::new(false));
    let (sent_bytes, mut connections) = (AtomicU64::new(0), 0);
    let began = crate::measure::now();
    // The client has a pause of up to four seconds.
    while !context.is_window_over() || connections == 0 && !context.is_over() {
        thread::scope(|scope| {
            while let Ok((mut stream, _)) = listener.accept() {
                connections += 1;
                context.spend(1, 0);
                let accepted =
                    Accepted { number: connections, is_over: &is_over, sent_bytes: &sent_bytes, context };
                scope.spawn(move || {
                    let _its_client_has_left = stream.set_nonblocking(false);
                    let _its_client_has_left = stream.set_read_timeout(Some(PATIENCE));
                    let _its_client_has_left = stream.set_write_timeout(Some(PATIENCE));
                    let _its_client_has_left = handle(&mut stream, &accepted);
                    accepted.wait();
                });
            }
        });
        context.sleep_ms(5);
    }
    is_over.store(true, Ordering::Relaxed);
    context.spend(0, sent_bytes.load(Ordering::Relaxed));
    context.check("the tracker connects", connections > 0, format!("{connections} times"));
    let written = context.tracker.log_bytes() - log_before;
    let seconds = (crate::measure::now() - began).as_secs() + 1;
    let found = format!("{written} bytes in {seconds} s");
    context.check("the log", written <= LOG_BYTES + LOG_BYTES_PER_S * seconds, found);
    Ok(())
}

/// A connection to a false server.
struct Accepted<'c> {
    number: u64,
    is_over: &'c AtomicBool,
    sent_bytes: &'c AtomicU64,
    context: &'c Context<'c>,
}

impl Accepted<'_> {
    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
        stream.write_all(bytes)?;
        self.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.context.is_window_over()
    }

    /// Holds the connection for a while.
    fn wait(&self) {
        if !self.is_over() {
            thread::sleep(PATIENCE);
        }
    }
}

/// Says nothing for as long as the client waits.
fn hold(_: &mut TcpStream, accepted: &Accepted<'_>) -> Result<()> {
    while !accepted.is_over() {
        accepted.wait();
    }
    Ok(())
}

/// Greets a client as a NATS server does, and answers its first ping.
fn greet(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(GREETING.as_bytes())?;
    let mut read = [0; 4096];
    // The client says that it connects, and pings.
    let _length = stream.read(&mut read)?;
    stream.write_all(b"PONG\r\n")
}

fn send_garbage(stream: &mut TcpStream, accepted: &Accepted<'_>) -> Result<()> {
    if !accepted.number.is_multiple_of(3) {
        greet(stream)?;
    }
    let mut garbage = vec![0; 64 << 10];
    fastrand::fill(&mut garbage);
    if accepted.number.is_multiple_of(2) {
        // Lines that look like those of the protocol.
        for line in garbage.chunks_mut(64) {
            let words: [&[u8]; 4] = [b"MSG a 1 ", b"HMSG a 1 9 8", b"INFO {", b"-ERR '"];
            let word = words[usize::from(line[0]) % words.len()];
            line[..word.len()].copy_from_slice(word);
            line[62..].copy_from_slice(b"\r\n");
        }
    }
    accepted.send(stream, &garbage)
}

fn send_without_end(stream: &mut TcpStream, accepted: &Accepted<'_>) -> Result<()> {
    match accepted.number % 3 {
        0 => accepted.send(stream, b"INFO {\"server_id\":\"")?,
        1 => {
            greet(stream)?;
            accepted.send(stream, b"MSG shoal.shoal.hello 1 4000000000\r\n")?;
        }
        _ => {
            greet(stream)?;
            accepted.send(stream, b"-ERR '")?;
        }
    }
    let endless = vec![b'a'; 256 << 10];
    while !accepted.is_over() {
        accepted.send(stream, &endless)?;
    }
    Ok(())
}
