//! The fields of an announce that all protocols have: info hash, peer id and event.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The event of an announce (BEP 3, "event"; BEP 15, "announce").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// A regular update. Unknown events such as `paused` (BEP 21) count as one.
    #[default]
    Update,
    /// The peer has just downloaded everything it wants.
    Completed,
    /// The first announce of a session.
    Started,
    /// The peer leaves the swarm.
    Stopped,
}

/// The SHA-1 hash of a torrent's info dictionary (BEP 3), or the truncated SHA-256 hash of a v2 torrent (BEP 52).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct InfoHash(pub [u8; 20]);

/// The 20 bytes with which a client identifies itself (BEP 3, BEP 20).
///
/// The client chooses them, so they prove nothing.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct PeerId(pub [u8; 20]);

impl fmt::Debug for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}
