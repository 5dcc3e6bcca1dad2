//! WebTorrent swarms: who is connected, whose offers go to whom, and who is owed an answer.
//!
//! Owns the swarms of connected peers ([`Swarms`]), which all workers share, how much of them each source may have, how
//! much each sender may have relayed ([`Bucket`]), and the post between connections
//! ([`Postroom`]): what waits for each, and the [`Mailboxes`] by which it crosses from worker to worker. Must not touch
//! sockets, threads or clocks, nor read or write any message but as bytes: time and randomness are arguments.
//!
//! The swarms are apart from those of `shoal-store`, whose peers are dialled by address and port: a browser can be
//! reached over its connection only.
#![forbid(unsafe_code)]

mod address;
mod allowance;
mod api;
mod debt;
mod expiry;
mod key;
mod mailbox;
mod post;
mod postroom;
mod pressure;
mod shard;
mod swarm;
mod swarms;

pub use address::Address;
pub use allowance::Bucket;
pub use api::{
    Announce, Announced, Counts, Expired, Left, PEER_BYTES, PEER_BYTES_MAX, Rejection, Settings, Settlement,
    Stance, Target, Totals,
};
pub use key::{OfferKey, Place, Source};
pub use mailbox::{MAILBOX_BYTES_MAX, Mailboxes};
pub use post::Class;
pub use postroom::{CHALLENGE_BYTES, Losses, Postroom, QueueLimits, Unwritten};
pub use shard::CHALLENGE_S;
pub use swarms::Swarms;
