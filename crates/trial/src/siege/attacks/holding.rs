//! Connections that an attacker holds: opened with some bytes, kept open with further bytes, replaced when closed.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use shoal_testkit::client::{is_timeout, tcp, tcp_with_small_window};

use crate::measure;
use crate::measure::count;
use crate::siege::context::Context;

/// The interval at which all connections are served.
const ROUND: Duration = Duration::from_millis(100);

/// The maximum time to connect. Slower attempts are repeated in the next round.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(300);

/// The number of bytes that are read from a connection in each round, and those that a slow reader reads.
const READ_BYTES_MAX: usize = 64 << 10;
const SLOW_READ_BYTES: usize = 16;

/// The connections to hold.
pub(super) struct Holding<'h> {
    /// The target address.
    pub(super) target: SocketAddr,
    /// The source addresses, used in round.
    pub(super) sources: Vec<IpAddr>,
    /// The number of connections.
    pub(super) connections: u32,
    /// The bytes that each connection sends first.
    pub(super) opening: &'h [u8],
    /// The bytes that each connection sends afterwards, one in each round, repeatedly.
    pub(super) trickle: &'h [u8],
    /// How much each connection reads.
    pub(super) reading: Reading,
}

/// How much a connection reads of the output of the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing, with a small receive buffer.
    Nothing,
    /// A few bytes in each round, with a small receive buffer.
    Slowly,
    /// Everything.
    Everything,
}

impl Holding<'_> {
    /// Holds the connections until the end of the window, for at least three rounds.
    pub(super) fn run(&self, context: &Context<'_>) {
        let mut streams: Vec<Option<TcpStream>> = (0..self.connections).map(|_| None).collect();
        let mut round = 0;
        while round < 3 || !context.is_window_over() {
            let next = measure::now() + ROUND;
            for (index, slot) in streams.iter_mut().enumerate() {
                if context.is_over() {
                    break;
                }
                match slot {
                    None => *slot = self.connect(context, index),
                    Some(stream) => {
                        if !self.keep_open(context, stream, round) {
                            *slot = None;
                        }
                    }
                }
            }
            round += 1;
            measure::sleep_until(next);
        }
    }

    /// Opens a connection and sends its first bytes.
    fn connect(&self, context: &Context<'_>, index: usize) -> Option<TcpStream> {
        let source = self.sources[index % self.sources.len()];
        let stream = match self.reading {
            Reading::Everything => tcp(source, self.target, CONNECT_TIME_MAX),
            Reading::Nothing | Reading::Slowly => {
                tcp_with_small_window(source, self.target, CONNECT_TIME_MAX)
            }
        };
        let mut stream = stream.ok()?;
        stream.set_nonblocking(true).ok()?;
        context.spend(1, 0);
        if !self.opening.is_empty() {
            let sent = stream.write(self.opening).ok()?;
            context.spend(0, count(sent));
        }
        Some(stream)
    }

    /// Sends the next byte and reads input. Returns `false` once the connection has ended.
    fn keep_open(&self, context: &Context<'_>, stream: &mut TcpStream, round: usize) -> bool {
        if !self.trickle.is_empty() {
            let byte = self.trickle[round % self.trickle.len()];
            match stream.write(&[byte]) {
                Ok(_) => context.spend(0, 1),
                Err(error) if is_timeout(&error) => {}
                Err(_) => return false,
            }
        }
        let mut buffer = [0; READ_BYTES_MAX];
        let buffer = match self.reading {
            Reading::Nothing => return matches!(stream.take_error(), Ok(None)),
            Reading::Slowly => &mut buffer[..SLOW_READ_BYTES],
            Reading::Everything => &mut buffer[..],
        };
        match stream.read(buffer) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => is_timeout(&error),
        }
    }
}
