//! The swarms of connected WebTorrent peers, and the messages between their connections.
//!
//! This crate owns the swarms ([`Swarms`]), which all workers share: their peers, the offers that wait for an answer,
//! the number of peers of each source, and the bytes of offers that each sender may have relayed ([`TokenBucket`]). It
//! also owns the outbound queues of the connections of a worker ([`Dispatcher`]), and the [`Mailboxes`] that carry
//! messages from one worker to another. It must not touch sockets, threads or clocks: time and randomness are
//! arguments. Messages are bytes to it.
//!
//! These swarms are separate from those of `shoal-store`. Its peers are dialled by address and port; a browser is
//! reachable only through its connection to the tracker.
#![forbid(unsafe_code)]

mod api;
mod dispatcher;
mod expiry;
mod index;
mod key;
mod mailbox;
mod message;
mod namesake;
mod pending_offer;
mod pressure;
mod queue;
mod rate_limit;
mod shard;
mod swarm;
mod swarms;

pub use api::{
    Address, Announce, Announced, AnswerMatch, ConnectedPeer, Left, Membership, OfferTarget, PEER_BYTES,
    PEER_BYTES_MAX, PendingOfferState, REMOTE_WORKER, ReceivedOffer, Rejection, RemoteAnnounce, Settings,
};
pub use dispatcher::{Dispatcher, Losses, WriteError};
pub use key::{OfferKey, SwarmKey};
pub use mailbox::{MAILBOX_BYTES_MAX, Mailboxes};
pub use message::MessageKind;
pub use pending_offer::PENDING_OFFER_S;
pub use queue::QueueLimits;
pub use rate_limit::{MESSAGE_BYTES_MIN, TokenBucket};
pub use shoal_base::source::Source;
pub use swarms::Swarms;
