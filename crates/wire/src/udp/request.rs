//! Requests of a client.

use shoal_base::{Event, InfoHash, PeerId};
use zerocopy::big_endian::{I32, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    ConnectionId, NoRoom, Options, PROTOCOL_ID, RequestError, TransactionId, Truncated, action, write,
};

/// A client's request, which borrows from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'b> {
    /// Requests a connection id (BEP 15, "connect").
    Connect {
        /// The transaction id, which the reply repeats.
        transaction_id: TransactionId,
    },
    /// Joins, refreshes or leaves a swarm (BEP 15, "announce").
    Announce {
        /// The connection id that the tracker assigned on connect.
        connection_id: ConnectionId,
        /// The transaction id, which the reply repeats.
        transaction_id: TransactionId,
        /// The announce itself.
        announce: &'b Announce,
        /// The bytes after it (BEP 41).
        options: Options<'b>,
    },
    /// Requests the counts of torrents (BEP 15, "scrape").
    Scrape {
        /// The connection id that the tracker assigned on connect.
        connection_id: ConnectionId,
        /// The transaction id, which the reply repeats.
        transaction_id: TransactionId,
        /// The torrents, at least one, in the order of the reply.
        info_hashes: &'b [InfoHash],
    },
}

/// An announce request after its head, in the layout of the packet (BEP 15, "IPv4 announce request"; an IPv6 announce
/// is equal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Announce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer id that the client chose.
    pub peer_id: PeerId,
    /// Bytes downloaded in this session, according to the client.
    pub downloaded_bytes: I64,
    /// Bytes that the client still needs; 0 makes it a seeder.
    pub left_bytes: I64,
    /// Bytes uploaded in this session, according to the client.
    pub uploaded_bytes: I64,
    /// The event as a number; [`Announce::event`] decodes it.
    pub event: U32,
    /// The address under which the client asks to be listed. It is not trustworthy.
    pub ip: [u8; 4],
    /// A number that proves the client's identity across a change of address.
    pub key: U32,
    /// The number of peers that the client wants; negative lets the tracker choose.
    pub num_want: I32,
    /// The port on which the client accepts peers.
    pub port: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    connection_id: U64,
    action: U32,
    transaction_id: U32,
}

const HEAD_BYTES: usize = size_of::<Head>();
const HASH_BYTES: usize = size_of::<InfoHash>();

impl Announce {
    /// Returns the event. BEP 15 defines four; any other number counts as a regular update.
    pub fn event(&self) -> Event {
        match self.event.get() {
            1 => Event::Completed,
            2 => Event::Started,
            3 => Event::Stopped,
            _ => Event::Update,
        }
    }

    /// Returns the number of an event, for the field `event`.
    pub fn event_number(event: Event) -> U32 {
        U32::new(match event {
            Event::Update => 0,
            Event::Completed => 1,
            Event::Started => 2,
            Event::Stopped => 3,
        })
    }
}

impl<'b> Request<'b> {
    /// Decodes a request. Fails if the packet is not a request of BEP 15.
    #[inline]
    pub fn decode(packet: &'b [u8]) -> Result<Self, RequestError> {
        let truncated =
            |part, bytes_min| RequestError::Truncated(Truncated { part, bytes: packet.len(), bytes_min });
        let (head, body) = Head::ref_from_prefix(packet).map_err(|_| truncated("request", HEAD_BYTES))?;
        let connection_id = ConnectionId(head.connection_id.get());
        let transaction_id = TransactionId(head.transaction_id.get());
        match head.action.get() {
            action::CONNECT if connection_id.0 == PROTOCOL_ID => Ok(Self::Connect { transaction_id }),
            action::CONNECT => Err(RequestError::WrongProtocolId { found: connection_id.0, transaction_id }),
            action::ANNOUNCE => {
                let (announce, options) = Announce::ref_from_prefix(body)
                    .map_err(|_| truncated("announce", HEAD_BYTES + size_of::<Announce>()))?;
                let options = Options::new(options);
                Ok(Self::Announce { connection_id, transaction_id, announce, options })
            }
            // Up to 19 further bytes are ignored as trailing bytes: entry i of the reply still belongs to hash i.
            action::SCRAPE => match <[InfoHash]>::ref_from_prefix(body) {
                // An empty scrape would request all torrents, which "can't be done with this protocol".
                Err(_) | Ok(([], _)) => Err(truncated("scrape", HEAD_BYTES + HASH_BYTES)),
                Ok((info_hashes, _)) => Ok(Self::Scrape { connection_id, transaction_id, info_hashes }),
            },
            action => Err(RequestError::UnknownAction { action, connection_id, transaction_id }),
        }
    }

    /// Writes the request to the front of `out` and returns the number of bytes. Fails if `out` is too short.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        match *self {
            Self::Connect { transaction_id } => {
                let head = Head::new(ConnectionId(PROTOCOL_ID), action::CONNECT, transaction_id);
                write(&[head.as_bytes()], out)
            }
            Self::Announce { connection_id, transaction_id, announce, options } => {
                let head = Head::new(connection_id, action::ANNOUNCE, transaction_id);
                write(&[head.as_bytes(), announce.as_bytes(), options.as_bytes()], out)
            }
            Self::Scrape { connection_id, transaction_id, info_hashes } => {
                let head = Head::new(connection_id, action::SCRAPE, transaction_id);
                write(&[head.as_bytes(), info_hashes.as_bytes()], out)
            }
        }
    }
}

impl Head {
    fn new(connection_id: ConnectionId, action: u32, transaction_id: TransactionId) -> Self {
        Self {
            connection_id: U64::new(connection_id.0),
            action: U32::new(action),
            transaction_id: U32::new(transaction_id.0),
        }
    }
}
