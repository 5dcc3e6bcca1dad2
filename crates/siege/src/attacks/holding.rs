//! Connections that an attacker holds: opened with some bytes, kept with further ones, replaced when they are closed.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::clock;
use crate::context::Context;
use crate::number::count;
use crate::socket;

/// The pause between two looks at all connections.
const ROUND: Duration = Duration::from_millis(100);

/// Longest wait for one connection to be accepted. What takes longer is tried again in the next round.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(300);

/// Most that is read of one connection in a round.
const READ_BYTES_MAX: usize = 64 << 10;

/// How connections are held.
pub(super) struct Holding<'h> {
    /// Where they go.
    pub(super) target: SocketAddr,
    /// Where they come from, by turns.
    pub(super) sources: Vec<IpAddr>,
    /// How many there are to be.
    pub(super) connections: u32,
    /// The bytes that each sends first.
    pub(super) opening: &'h [u8],
    /// The bytes that each sends from then on, one in every round and over again.
    pub(super) dribble: &'h [u8],
    /// Whether it takes what it is sent.
    pub(super) reads: bool,
}

impl Holding<'_> {
    /// Holds connections until the window is over, and no less than three rounds.
    pub(super) fn run(&self, context: &Context<'_>) {
        let mut streams: Vec<Option<TcpStream>> = (0..self.connections).map(|_| None).collect();
        let mut round = 0;
        while round < 3 || !context.is_window_over() {
            let next = clock::now() + ROUND;
            for (index, place) in streams.iter_mut().enumerate() {
                if context.is_over() {
                    break;
                }
                if place.is_none() {
                    *place = self.connect(context, index);
                } else if !self.keep(context, place.as_mut(), round) {
                    *place = None;
                }
            }
            round += 1;
            clock::sleep_until(next);
        }
    }

    fn connect(&self, context: &Context<'_>, index: usize) -> Option<TcpStream> {
        let source = self.sources[index % self.sources.len()];
        let stream = match self.reads {
            true => socket::tcp(source, self.target, CONNECT_TIME_MAX),
            false => socket::tcp_with_small_window(source, self.target, CONNECT_TIME_MAX),
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

    /// Sends the next byte and reads what came; `false` once the connection has ended.
    fn keep(&self, context: &Context<'_>, stream: Option<&mut TcpStream>, round: usize) -> bool {
        let Some(stream) = stream else { return false };
        if !self.dribble.is_empty() {
            let byte = self.dribble[round % self.dribble.len()];
            match stream.write(&[byte]) {
                Ok(_) => context.spend(0, 1),
                Err(error) if crate::udp::is_timeout(&error) => {}
                Err(_) => return false,
            }
        }
        if !self.reads {
            return matches!(stream.take_error(), Ok(None));
        }
        let mut buffer = [0; READ_BYTES_MAX];
        match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => crate::udp::is_timeout(&error),
        }
    }
}
