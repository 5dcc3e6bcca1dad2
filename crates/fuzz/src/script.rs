//! Reads a fuzz input as a script: clients at several addresses send datagrams, in batches, while time passes.
//!
//! An input is one byte of settings, followed by any number of steps:
//!
//! | Bytes | Meaning |
//! |---|---|
//! | 1 | low 4 bits: the client; next 2: its connection id; next: time passes; highest: the batch ends here |
//! | 2 | length of the datagram, big-endian, cut to the length of the rest |
//! | n | the datagram, whose connection id may be replaced |
//!
//! A fuzzer cannot guess a keyed hash, so a step can ask for the valid connection id, or for that of the next client.

use core::net::SocketAddr;

/// Where the first 8 bytes of a datagram come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Raw,
    Own,
    OfNext,
    /// An id that was issued to the client long ago.
    Stale,
}

/// One datagram of the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'i> {
    pub(crate) client: usize,
    pub(crate) connection: Connection,
    pub(crate) time_passes: bool,
    pub(crate) batch_ends: bool,
    pub(crate) datagram: &'i [u8],
}

/// The addresses of the clients: two of each family, then the same with other ports, IPv4-mapped ones, private ones,
/// and some that cannot be answered.
pub(crate) const CLIENTS: [&str; 16] = [
    "192.0.2.1:1001",
    "192.0.2.2:1002",
    "[2001:db8::1]:1003",
    "[2001:db8::2]:1004",
    "192.0.2.1:2001",
    "[2001:db8::1]:2003",
    "[::ffff:192.0.2.1]:1001",
    "[::ffff:192.0.2.3]:1005",
    "127.0.0.1:1006",
    "[::1]:1007",
    "10.1.2.3:1008",
    "[fe80::1]:1009",
    "192.0.2.1:0",
    "224.0.0.1:1010",
    "[ff02::1]:1011",
    "0.0.0.0:1012",
];

pub(crate) fn address(client: usize) -> SocketAddr {
    CLIENTS[client % CLIENTS.len()].parse().expect("a constant address")
}

/// Returns the steps of an input without its first byte.
pub(crate) fn steps(mut rest: &[u8]) -> impl Iterator<Item = Step<'_>> {
    core::iter::from_fn(move || {
        let (&[head, high, low], after) = rest.split_first_chunk()?;
        let bytes = usize::from(u16::from_be_bytes([high, low])).min(after.len());
        let (datagram, after) = after.split_at(bytes);
        rest = after;
        Some(Step {
            client: usize::from(head & 0x0f),
            connection: match head >> 4 & 3 {
                0 => Connection::Raw,
                1 => Connection::Own,
                2 => Connection::OfNext,
                _ => Connection::Stale,
            },
            time_passes: head & 0x40 != 0,
            batch_ends: head & 0x80 != 0,
            datagram,
        })
    })
}
