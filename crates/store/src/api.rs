//! The public shape of the store.

use core::marker::PhantomData;

use shoal_protocol::{InfoHash, PeerV4, PeerV6};

/// What the operator decides about the store.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most bytes of memory that swarms and peers may take, both families together.
    pub memory_bytes_max: u64,
    /// Seconds after its last announce at which a peer is forgotten (at the latest about a fifth later).
    pub peer_timeout_s: u32,
    /// Secret of the keyed hashing, so that nobody can aim at one bucket.
    pub hash_key: [u64; 4],
}

/// Every swarm, the two address families apart.
#[derive(Debug)]
pub struct Store {
    /// Swarms of IPv4 peers.
    pub v4: Swarms<PeerV4>,
    /// Swarms of IPv6 peers.
    pub v6: Swarms<PeerV6>,
}

/// The swarms of one address family. Shared between threads: all methods take `&self`.
#[derive(Debug)]
pub struct Swarms<P> {
    peer: PhantomData<P>,
}

/// Where the store looks for an info hash: computed once a request by [`Swarms::locate`], passed to all that follows.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The info hash itself.
    pub info_hash: InfoHash,
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

/// The answer to an announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The swarm after the announce, the announcer included.
    pub counts: Counts,
    /// How many peers were written to the front of the buffer.
    pub peers: usize,
}

/// The memory ceiling is reached: the peer was not stored, everything else is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

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
    /// Bytes of memory taken, tables and bookkeeping included.
    pub bytes: u64,
    /// Peers forgotten by expiry since the start.
    pub expired: u64,
}

impl Store {
    /// An empty store. Reserves address space for the memory ceiling, but takes no memory yet.
    ///
    /// # Errors
    /// Where the kernel refuses the reservation.
    pub fn new(_settings: &Settings) -> std::io::Result<Self> {
        Ok(Self { v4: Swarms { peer: PhantomData }, v6: Swarms { peer: PhantomData } })
    }
}

impl<P: Copy> Swarms<P> {
    /// Hashes the info hash, once for all steps of a request.
    #[must_use]
    pub fn locate(&self, info_hash: &InfoHash) -> Place {
        Place { info_hash: *info_hash }
    }

    /// First step of a batch: starts loading the swarm's place in the table. Changes nothing.
    pub fn prefetch_swarm(&self, _place: &Place) {}

    /// Second step of a batch: starts loading where `peer` is or would be. Changes nothing.
    pub fn prefetch_peer(&self, _place: &Place, _peer: &P) {}

    /// Last step: applies the announce at `now_s` (seconds of any clock that never goes back) and writes up to
    /// `peers_wanted` other peers to `peers_out`, back to back in compact form, as many as fit.
    /// A seeder is given leechers only, a leecher a mix in which every peer is equally likely.
    ///
    /// # Errors
    /// [`Full`] where the peer is new and the memory ceiling leaves no room for it.
    pub fn announce(
        &self,
        _place: &Place,
        _announce: &Announce<P>,
        _now_s: u32,
        _rng: &mut fastrand::Rng,
        _peers_out: &mut [u8],
    ) -> Result<Announced, Full> {
        Ok(Announced::default())
    }

    /// The counts of one swarm.
    #[must_use]
    pub fn scrape(&self, _place: &Place) -> Counts {
        Counts::default()
    }

    /// Carries expiry on to where it should be at `now_s`, in at most about `budget` cache lines of work.
    /// To be called many times a second beside the traffic, by any number of threads.
    pub fn expire(&self, _now_s: u32, _budget: usize) -> Expired {
        Expired::default()
    }

    /// Sums over all swarms, without disturbing the traffic.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals::default()
    }
}
