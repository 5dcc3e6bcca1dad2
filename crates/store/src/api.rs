//! The public shape of the store.

use core::fmt;
use core::sync::atomic::AtomicU32;
use std::sync::Arc;

use shoal_types::{InfoHash, PeerV4, PeerV6};

use crate::arena::Arena;
use crate::hash::HashKey;
use crate::pressure::Pressure;
use crate::shard::Rules;
use crate::source_limit::SourceLimit;
use crate::swarms::Swarms;
use crate::walk::Walk;

/// What the operator decides about the store.
#[derive(Clone)]
pub struct Settings {
    /// Most bytes of memory that swarms and peers may take, both families together. Lists of pages and of large swarms
    /// lie beside that on the heap; they add about one per cent, and up to ten where most swarms have some 150 peers.
    pub memory_bytes_max: u64,
    /// Seconds after its last announce at which a peer is forgotten (usually within a seventh of that more, at the
    /// latest within three tenths).
    pub peer_timeout_s: u32,
    /// Secret of the keyed hashing, so that nobody can aim at one bucket.
    pub hash_key: [u64; 4],
    /// About how many peers of one IPv4 address or one IPv6 /48 a swarm takes in; 0 is no limit. A large swarm may
    /// take in half as many again, or twice as many where the limit is above 128.
    pub peers_per_source_max: u32,
}

impl fmt::Debug for Settings {
    /// All but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("peer_timeout_s", &self.peer_timeout_s)
            .field("peers_per_source_max", &self.peers_per_source_max)
            .finish_non_exhaustive()
    }
}

/// Every swarm, the two address families apart, under one memory ceiling.
#[derive(Debug)]
pub struct Store {
    /// Swarms of IPv4 peers.
    pub v4: Swarms<PeerV4>,
    /// Swarms of IPv6 peers.
    pub v6: Swarms<PeerV6>,
    arena: Arc<Arena>,
}

/// One announce, as the store sees it.
#[derive(Clone, Copy, Debug)]
pub struct Announce<P> {
    /// Who announces.
    pub peer: P,
    /// What happens to it.
    pub action: Action,
    /// How many other peers it would like, at most. Room in the reply limits it further.
    pub peers_wanted: usize,
}

/// What an announce does to the announcing peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is here and still downloading (a seeder becomes a leecher again).
    Leech,
    /// It is here and has everything.
    Seed,
    /// It has everything since just now: as `Seed`, and one download is counted, once per peer.
    Complete,
    /// It leaves. Creates no swarm and is handed no peers.
    Stop,
}

/// Counts of one swarm. All zero for a torrent that nobody announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers that have everything.
    pub seeders: u32,
    /// Peers that do not.
    pub leechers: u32,
    /// Downloads completed since the swarm was created.
    pub completed: u32,
}

impl Counts {
    /// The sums of two swarms of one torrent, one of each family.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            seeders: self.seeders.saturating_add(other.seeders),
            leechers: self.leechers.saturating_add(other.leechers),
            completed: self.completed.saturating_add(other.completed),
        }
    }
}

/// The answer to an announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The swarm after the announce, the announcer included.
    pub counts: Counts,
    /// How many peers were written to the front of the buffer.
    pub peers: usize,
}

/// One torrent on the list of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which torrent.
    pub info_hash: InfoHash,
    /// The sums over its swarms of both families.
    pub counts: Counts,
}

/// Why a peer was not stored. Everything else is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The memory ceiling is reached.
    Full,
    /// The memory ceiling comes near, and the source of the peer holds as much as it may then.
    OverShare,
}

/// What one step of expiry did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Peers forgotten.
    pub peers: u64,
    /// Whether more work is due already, so that the caller should come back soon.
    pub behind: bool,
}

/// Sums over one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Swarms with at least one peer.
    pub swarms: u64,
    /// Seeders of all swarms.
    pub seeders: u64,
    /// Leechers of all swarms.
    pub leechers: u64,
    /// Bytes of the pages that are taken, by the same account as the ceiling.
    pub bytes: u64,
    /// Peers forgotten by expiry since the start.
    pub expired: u64,
    /// Peers forgotten early since the start, because memory was short and their source held more than its share.
    pub evicted: u64,
    /// Announces since the start that were answered without the peer being stored, because the swarm had as many peers
    /// of its source as it may.
    pub unregistered: u64,
}

impl Store {
    /// An empty store. Reserves address space for the memory ceiling, but takes no memory yet.
    ///
    /// # Errors
    /// Where the kernel refuses the reservation.
    pub fn new(settings: &Settings) -> std::io::Result<Self> {
        let arena = Arc::new(Arena::new(settings.memory_bytes_max)?);
        let key = HashKey::new(settings.hash_key);
        let rules = Rules {
            key,
            timeout_s: settings.peer_timeout_s,
            source_limit: SourceLimit::new(settings.peers_per_source_max),
            pressure: Arc::new(Pressure::new(&arena, &key)),
        };
        let generations = core::array::from_fn(|_| Arc::new(AtomicU32::new(0)));
        Ok(Self {
            v4: Swarms::new(&arena, &rules, &generations),
            v6: Swarms::new(&arena, &rules, &generations),
            arena,
        })
    }

    /// Lists the next few torrents of a walk over all of them, in place of what is in `listed`: some dozens, at times
    /// none, seldom more than two hundred. Returns whether more may follow.
    ///
    /// Between two calls the store may change in any way. A torrent with a swarm that is there during the whole walk is
    /// listed exactly once, others at most once.
    pub fn list(&self, walk: &mut Walk, listed: &mut Vec<Listed>) -> bool {
        walk.list_next(self, listed)
    }

    /// Has the kernel back the memory that will be needed next, and put pages together that are all in use. To be
    /// called some fifty times a second by a thread that answers nobody, as the kernel may take some milliseconds;
    /// without it, requests pay for that.
    pub fn make_ready(&self) {
        self.arena.make_ready();
    }
}
