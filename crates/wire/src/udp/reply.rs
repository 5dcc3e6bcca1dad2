//! Replies of a tracker.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ConnectionId, NoRoom, ReplyError, TransactionId, Truncated, action, write};

/// A tracker's reply, which borrows from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'b> {
    /// Assigns a connection id (BEP 15, "connect").
    Connect {
        /// The transaction id of the request.
        transaction_id: TransactionId,
        /// The connection id for all further requests.
        connection_id: ConnectionId,
    },
    /// Describes a swarm (BEP 15, "announce").
    Announce {
        /// The transaction id of the request.
        transaction_id: TransactionId,
        /// Seconds until the next regular announce.
        interval_s: u32,
        /// The number of leechers.
        leechers: u32,
        /// The number of seeders.
        seeders: u32,
        /// Some of the peers.
        peers: Peers<'b>,
    },
    /// Contains the counts of torrents (BEP 15, "scrape").
    Scrape {
        /// The transaction id of the request.
        transaction_id: TransactionId,
        /// One entry for each info hash of the request, in the same order.
        entries: &'b [ScrapeEntry],
    },
    /// Refuses the request (BEP 15, "errors").
    Error {
        /// The transaction id of the request.
        transaction_id: TransactionId,
        /// The reason for the user; BEP 15 specifies no encoding.
        message: &'b [u8],
    },
}

/// Peers in compact form. The packet does not contain their family: it is the family of the datagram (BEP 15, "IPv6").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peers<'b>(&'b [u8]);

/// The head of an announce reply, for a tracker that writes the peers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AnnounceHead {
    head: Head,
    interval_s: U32,
    leechers: U32,
    seeders: U32,
}

/// The head of a scrape reply, for a tracker that writes the entries itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct ScrapeHead(Head);

/// The counts of one torrent (BEP 15, "scrape response").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ScrapeEntry {
    /// The number of seeders.
    pub seeders: U32,
    /// The number of completed downloads.
    pub completed: U32,
    /// The number of leechers.
    pub leechers: U32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    action: U32,
    transaction_id: U32,
}

/// A whole connect reply, for a tracker that writes it in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConnectReply {
    head: Head,
    connection_id: U64,
}

impl<'b> Peers<'b> {
    /// Returns the peers in `bytes`.
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the raw bytes.
    pub const fn as_bytes(self) -> &'b [u8] {
        self.0
    }

    /// Returns the peers as peers of one family, `PeerV4` or `PeerV6`. Returns `None` if the length does not fit.
    pub fn of_family<P: FromBytes + Immutable + KnownLayout + Unaligned>(self) -> Option<&'b [P]> {
        <[P]>::ref_from_bytes(self.0).ok()
    }
}

impl ConnectReply {
    /// Returns the reply to `transaction_id`.
    pub fn new(transaction_id: TransactionId, connection_id: ConnectionId) -> Self {
        Self { head: Head::new(action::CONNECT, transaction_id), connection_id: connection_id.0.into() }
    }

    /// Splits a packet buffer into the reply and the rest.
    pub fn split(packet: &mut [u8]) -> Option<(&mut Self, &mut [u8])> {
        Self::mut_from_prefix(packet).ok()
    }
}

impl AnnounceHead {
    /// Returns the head of a reply to `transaction_id`.
    pub fn new(transaction_id: TransactionId, interval_s: u32, leechers: u32, seeders: u32) -> Self {
        Self {
            head: Head::new(action::ANNOUNCE, transaction_id),
            interval_s: interval_s.into(),
            leechers: leechers.into(),
            seeders: seeders.into(),
        }
    }

    /// Splits a packet buffer into its head and the space for peers.
    pub fn split(packet: &mut [u8]) -> Option<(&mut Self, &mut [u8])> {
        Self::mut_from_prefix(packet).ok()
    }
}

impl ScrapeHead {
    /// Returns the head of a reply to `transaction_id`.
    pub fn new(transaction_id: TransactionId) -> Self {
        Self(Head::new(action::SCRAPE, transaction_id))
    }

    /// Splits a packet buffer into its head and the space for entries.
    pub fn split(packet: &mut [u8]) -> Option<(&mut Self, &mut [ScrapeEntry])> {
        let (head, rest) = Self::mut_from_prefix(packet).ok()?;
        let (entries, _rest) = <[ScrapeEntry]>::mut_from_prefix(rest).ok()?;
        Some((head, entries))
    }
}

impl<'b> Reply<'b> {
    /// Decodes a reply. Fails if the packet is not a reply of BEP 15.
    pub fn decode(packet: &'b [u8]) -> Result<Self, ReplyError> {
        let truncated =
            |part, bytes_min| ReplyError::Truncated(Truncated { part, bytes: packet.len(), bytes_min });
        let (head, body) =
            Head::ref_from_prefix(packet).map_err(|_| truncated("reply", size_of::<Head>()))?;
        let transaction_id = TransactionId(head.transaction_id.get());
        match head.action.get() {
            action::CONNECT => {
                let (reply, _rest) = ConnectReply::ref_from_prefix(packet)
                    .map_err(|_| truncated("connect reply", size_of::<ConnectReply>()))?;
                let connection_id = ConnectionId(reply.connection_id.get());
                Ok(Self::Connect { transaction_id, connection_id })
            }
            action::ANNOUNCE => {
                let (head, peers) = AnnounceHead::ref_from_prefix(packet)
                    .map_err(|_| truncated("announce reply", size_of::<AnnounceHead>()))?;
                Ok(Self::Announce {
                    transaction_id,
                    interval_s: head.interval_s.get(),
                    leechers: head.leechers.get(),
                    seeders: head.seeders.get(),
                    peers: Peers::new(peers),
                })
            }
            action::SCRAPE => match <[ScrapeEntry]>::ref_from_bytes(body) {
                Ok(entries) => Ok(Self::Scrape { transaction_id, entries }),
                Err(_) => Err(ReplyError::PartialEntry { bytes: body.len() % size_of::<ScrapeEntry>() }),
            },
            action::ERROR => Ok(Self::Error { transaction_id, message: body }),
            action => Err(ReplyError::UnknownAction { action }),
        }
    }

    /// Writes the reply to the front of `out` and returns the number of bytes. Fails if `out` is too short.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        match *self {
            Self::Connect { transaction_id, connection_id } => {
                let reply = ConnectReply::new(transaction_id, connection_id);
                write(&[reply.as_bytes()], out)
            }
            Self::Announce { transaction_id, interval_s, leechers, seeders, peers } => {
                let head = AnnounceHead::new(transaction_id, interval_s, leechers, seeders);
                write(&[head.as_bytes(), peers.as_bytes()], out)
            }
            Self::Scrape { transaction_id, entries } => {
                write(&[ScrapeHead::new(transaction_id).as_bytes(), entries.as_bytes()], out)
            }
            Self::Error { transaction_id, message } => {
                write(&[Head::new(action::ERROR, transaction_id).as_bytes(), message], out)
            }
        }
    }
}

impl Head {
    fn new(action: u32, transaction_id: TransactionId) -> Self {
        Self { action: action.into(), transaction_id: transaction_id.0.into() }
    }
}
