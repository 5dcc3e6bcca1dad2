//! The effect of an announce on a swarm, and the counts of swarms.

/// The effect of an announce on the announcing peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is present and still downloading (a seeder becomes a leecher again).
    Leech,
    /// It is present and has the complete torrent.
    Seed,
    /// It has just completed its download: as `Seed`, and one download is counted, once per peer. A peer that joined as
    /// a seeder has downloaded nothing: some clients announce `completed` at each start.
    Complete,
    /// It leaves. Creates no swarm and receives no peers.
    Stop,
}

/// Counts of one swarm. All zero for a torrent without announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers that have the complete torrent.
    pub seeders: u32,
    /// Peers that do not.
    pub leechers: u32,
    /// Downloads completed since the swarm was created.
    pub completed: u32,
}

impl Counts {
    /// Returns the sums of the two swarms of one torrent, one of each family.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            seeders: self.seeders.saturating_add(other.seeders),
            leechers: self.leechers.saturating_add(other.leechers),
            completed: self.completed.saturating_add(other.completed),
        }
    }
}

/// Totals of many swarms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Swarms with at least one peer.
    pub swarms: u64,
    /// Seeders of all swarms.
    pub seeders: u64,
    /// Leechers of all swarms.
    pub leechers: u64,
    /// Downloads counted as completed since the start, including those of removed swarms.
    pub completed: u64,
    /// Memory of swarms and peers in bytes, measured like its ceiling.
    pub bytes: u64,
    /// Peers forgotten by expiry since the start, because they stopped announcing.
    pub expired: u64,
    /// Peers forgotten early since the start, because room was short and their source held more than its share.
    pub evicted: u64,
}

impl Totals {
    /// Returns the sums of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            swarms: self.swarms + other.swarms,
            seeders: self.seeders + other.seeders,
            leechers: self.leechers + other.leechers,
            completed: self.completed + other.completed,
            bytes: self.bytes + other.bytes,
            expired: self.expired + other.expired,
            evicted: self.evicted + other.evicted,
        }
    }
}

/// The result of one step of expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Number of peers that were forgotten, for any reason.
    pub peers: u64,
    /// Whether more work is already due. The caller should then call again soon.
    pub behind: bool,
}

impl Expired {
    /// Returns the result of both steps.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { peers: self.peers + other.peers, behind: self.behind || other.behind }
    }
}
