//! The public interface of the store.

use core::fmt;
use std::sync::Arc;

use shoal_base::source::{Excess, Holdings};
use shoal_base::{Action, Counts, InfoHash, PeerChange, PeerV4, PeerV6};

use crate::arena::Arena;
use crate::hash::HashKey;
use crate::memory_file::MemoryFile;
use crate::pressure::Pressure;
use crate::private::{self, PrivateSwarms};
use crate::shard::Rules;
use crate::source_limit::SourceLimit;
use crate::swarm_id::{Fingerprint, FingerprintKey, SwarmId};
use crate::swarms::{SHARDS_MAX, Swarms};
use crate::walk::Walk;

/// Number of shards of a family, unless the owner of the store chooses it.
const SHARDS_DEFAULT: usize = 32;

/// Settings of the store.
#[derive(Clone)]
pub struct Settings {
    /// Maximum memory for swarms and peers in bytes, both families together. Lists of pages and of large swarms are on
    /// the heap in addition to that; they add about one per cent, and up to ten where most swarms have some 150 peers.
    pub memory_bytes_max: u64,
    /// Time after its last announce at which a peer is forgotten, in seconds. This usually happens within a seventh of
    /// the timeout more, at the latest within three tenths.
    pub peer_timeout_s: u32,
    /// Secret of the keyed hashing, so that an attacker cannot aim at one bucket.
    pub hash_key: [u64; 4],
    /// Approximate maximum number of peers of one IPv4 address or one IPv6 /48 in a swarm; 0 means no limit. A large
    /// swarm may accept half as many again, or twice as many where the limit is above 128.
    pub peers_per_source_max: u32,
    /// Maximum share of the peers of a swarm, in per cent, that are of one such source; 0 means no limit. Some
    /// peers of a source are admitted in any case, see [`swarm_share`](shoal_base::source::swarm_share). Has no effect without
    /// `peers_per_source_max`.
    pub swarm_share_max: u32,
    /// The peers and torrents of each source in all swarms, and their limits, if there are any. In a large swarm, a source
    /// has as many torrents as slots in which it has peers: at most 16 unless `peers_per_source_max` is above 64.
    pub holdings: Option<Arc<Holdings>>,
}

impl Settings {
    /// Returns settings without limits of sources.
    #[must_use]
    pub const fn new(memory_bytes_max: u64, peer_timeout_s: u32, hash_key: [u64; 4]) -> Self {
        Self {
            memory_bytes_max,
            peer_timeout_s,
            hash_key,
            peers_per_source_max: 0,
            swarm_share_max: 0,
            holdings: None,
        }
    }
}

impl fmt::Debug for Settings {
    /// Shows all fields but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("peer_timeout_s", &self.peer_timeout_s)
            .field("peers_per_source_max", &self.peers_per_source_max)
            .field("swarm_share_max", &self.swarm_share_max)
            .field("holdings", &self.holdings)
            .finish_non_exhaustive()
    }
}

/// All swarms, separated by address family, under one memory ceiling. They are identified by their info hashes, or by
/// [`Fingerprint`]s of these.
#[derive(Debug)]
pub struct Store<I: SwarmId = InfoHash> {
    /// Swarms of IPv4 peers.
    pub v4: Swarms<PeerV4, I>,
    /// Swarms of IPv6 peers.
    pub v6: Swarms<PeerV6, I>,
    /// The swarms of private networks that are kept apart.
    pub private: PrivateSwarms<I>,
    pressure: Arc<Pressure>,
    arena: Arc<Arena>,
}

/// An announce, as the store sees it.
#[derive(Clone, Copy, Debug)]
pub struct Announce<P> {
    /// The announcing peer.
    pub peer: P,
    /// The change of its state.
    pub action: Action,
    /// Maximum number of other peers that it wants. The space in the reply limits this further.
    pub peers_wanted: usize,
}

/// The result of an announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The counts of the swarm after the announce, including the announcer.
    pub counts: Counts,
    /// Number of peers that were written to the beginning of the buffer.
    pub peers: usize,
    /// The change of the announcer in the swarm.
    pub change: PeerChange,
}

/// One torrent in the list of all torrents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The info hash of the torrent.
    pub info_hash: InfoHash,
    /// The sums over its swarms of both families.
    pub counts: Counts,
}

/// The reason why a peer was not stored. The store is unchanged otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The memory ceiling is reached.
    Full,
    /// Memory is short, and the source of the peer holds its full share.
    OverShare,
    /// The source of the peer would exceed a limit.
    Excess(Excess),
}

impl From<Excess> for Rejection {
    fn from(excess: Excess) -> Self {
        Self::Excess(excess)
    }
}

impl Store {
    /// Creates an empty store with a number of shards that suits some eight threads. Reserves address space for the
    /// memory ceiling, but takes no memory yet.
    ///
    /// # Errors
    /// Fails if the kernel refuses the reservation.
    pub fn new(settings: &Settings) -> std::io::Result<Self> {
        Self::with_shards(settings, SHARDS_DEFAULT)
    }

    /// As [`new`](Self::new), with about `shards` shards a family: the next power of two, up to [`SHARDS_MAX`]. Threads
    /// wait for each other the less, the more shards there are for each; but each shard leaves some pages partly
    /// filled.
    ///
    /// # Errors
    /// As there.
    pub fn with_shards(settings: &Settings, shards: usize) -> std::io::Result<Self> {
        Self::build(settings, shards, (), None)
    }

    /// Replaces the content of `listed` with the next torrents of a walk over all of them: some hundreds, occasionally
    /// none, at most [`Walk::LISTED_MAX`]. Returns whether more may follow.
    ///
    /// Between two calls the store may change in any way. A torrent that has a swarm during the whole walk is listed
    /// exactly once, others at most once.
    pub fn list(&self, walk: &mut Walk, listed: &mut Vec<Listed>) -> bool {
        walk.list_next(self, listed)
    }
}

impl Store<Fingerprint> {
    /// As [`Store::with_shards`], with swarms that are identified by fingerprints. Such a store takes eight bytes less
    /// for each torrent, and cannot list its torrents.
    ///
    /// # Errors
    /// As there.
    pub fn of_fingerprints(settings: &Settings, shards: usize, key: FingerprintKey) -> std::io::Result<Self> {
        Self::build(settings, shards, key, None)
    }
}

impl<I: SwarmId> Store<I> {
    /// Creates an empty store in private memory, or in a file.
    pub(crate) fn build(
        settings: &Settings,
        shards: usize,
        secret: I::Secret,
        file: Option<MemoryFile>,
    ) -> std::io::Result<Self> {
        let shards = shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let arena = Arc::new(Arena::new(settings.memory_bytes_max, file)?);
        let key = HashKey::new(settings.hash_key);
        let rules = Rules {
            key,
            timeout_s: settings.peer_timeout_s,
            source_limit: SourceLimit::new(settings.peers_per_source_max, settings.swarm_share_max),
            pressure: Arc::new(Pressure::new(&arena, &key, settings.holdings.clone())),
        };
        let v4 = Swarms::new(&arena, &rules, secret, shards, 0);
        let v6 = Swarms::new(&arena, &rules, secret, shards, 0);
        // The shards of a store are numbered consecutively.
        let private_v4 = Swarms::new(&arena, &rules, secret, private::SHARDS, shards);
        let private_v6 = Swarms::new(&arena, &rules, secret, private::SHARDS, shards);
        let private = PrivateSwarms::new(private_v4, private_v6, &key);
        Ok(Self { v4, v6, private, pressure: rules.pressure, arena })
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(crate) fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Asks the kernel to populate the memory that will be needed next, and to combine pages that are all in use. Call
    /// this some fifty times a second from a thread that serves no requests, since the kernel may take some
    /// milliseconds. Without it, requests bear that delay.
    pub fn make_ready(&self) {
        self.arena.make_ready();
    }

    /// Takes the memory that is needed from now on from all these NUMA nodes in turn (a bit for each of the first 64).
    /// Every thread uses all swarms, so no node suits one of them better.
    ///
    /// # Errors
    /// Returns the error of the kernel, for example if it supports only one node.
    pub fn interleave(&self, nodes: u64) -> std::io::Result<()> {
        self.arena.interleave(nodes)
    }

    /// Returns memory that is free to the kernel, a bounded part of it. Returns whether there is more. Call this from a
    /// thread that serves no requests.
    pub fn trim(&self) -> bool {
        self.arena.trim()
    }
}
