//! Reads a fuzz input as a play: clients at several addresses who send datagrams, in batches, as time goes by.
//!
//! An input is one byte of settings and then any number of scenes:
//!
//! | Bytes | Meaning |
//! |---|---|
//! | 1 | low 4 bits: the client; next 2: its connection id; next: seconds pass; highest: the batch ends here |
//! | 2 | length of the datagram, big-endian, cut to what is left |
//! | n | the datagram, of which the connection id may be replaced |
//!
//! A fuzzer cannot guess a keyed hash, so a scene can ask for the right one, or for that of the next client.

use core::net::SocketAddr;

/// How the first 8 bytes of a datagram come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// As they are.
    Raw,
    /// The id that the client was handed.
    Own,
    /// The id that the next client was handed.
    OfNext,
    /// The id that the client was handed long ago.
    Stale,
}

/// One datagram of the play.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'i> {
    pub(crate) client: usize,
    pub(crate) connection: Connection,
    pub(crate) time_passes: bool,
    pub(crate) batch_ends: bool,
    pub(crate) datagram: &'i [u8],
}

/// Where clients are: two of each family, then neighbours in port, mapped, private, and such as cannot be answered.
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

/// The address of a client.
pub(crate) fn address(client: usize) -> SocketAddr {
    CLIENTS[client % CLIENTS.len()].parse().expect("a constant address")
}

/// The scenes of an input, without its first byte.
pub(crate) fn scenes(mut rest: &[u8]) -> impl Iterator<Item = Scene<'_>> {
    core::iter::from_fn(move || {
        let (&[stage, high, low], after) = rest.split_first_chunk()?;
        let bytes = usize::from(u16::from_be_bytes([high, low])).min(after.len());
        let (datagram, after) = after.split_at(bytes);
        rest = after;
        Some(Scene {
            client: usize::from(stage & 0x0f),
            connection: match stage >> 4 & 3 {
                0 => Connection::Raw,
                1 => Connection::Own,
                2 => Connection::OfNext,
                _ => Connection::Stale,
            },
            time_passes: stage & 0x40 != 0,
            batch_ends: stage & 0x80 != 0,
            datagram,
        })
    })
}
