//! The public numbers of the tracker at one moment: a part of its statistics.

use shoal_base::{Counts, InfoHash};
use shoal_engine::counter::Drop;

use crate::Sources;
use crate::insight::{TOP_MAX, Torrent};
use crate::stats::{self, Stats, SwarmTotals, Traffic};

#[derive(Debug, Default)]
pub(super) struct Figures {
    /// When they were collected, in seconds since 1970.
    pub(super) now_unix_s: u64,
    /// When the tracker started, in seconds since 1970.
    pub(super) started_unix_s: u64,
    /// The swarms of IPv4, IPv6 and WebTorrent.
    pub(super) swarms: Vec<SwarmTotals>,
    /// The requests and replies of each protocol and family.
    pub(super) traffic: Vec<Traffic>,
    /// Accepted connections.
    pub(super) connections_accepted: u64,
    /// Datagrams with wrong connection ids that got no reply.
    pub(super) wrong_connection_ids: u64,
    /// The largest torrents, the largest first.
    pub(super) top: Vec<TopTorrent>,
}

/// One of the largest torrents.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopTorrent {
    pub(super) info_hash: InfoHash,
    pub(super) peers: u64,
    pub(super) seeders: u64,
}

/// Collects the numbers. Only the look-ups of the largest torrents lock the store, each for a moment (see `insight`).
pub(crate) fn collect(sources: &Sources) -> Figures {
    let top = sources.insight.top(TOP_MAX);
    Figures { top: top.iter().map(of_torrent).collect(), ..stats::collect(sources).into() }
}

impl From<Stats> for Figures {
    /// Takes all numbers but the largest torrents, of which the statistics have fewer.
    fn from(stats: Stats) -> Self {
        let wrong = |drops: &stats::CountMap| drops.get(Drop::WrongConnectionId.name()).copied();
        Self {
            now_unix_s: stats.now_unix_s,
            started_unix_s: stats.started_unix_s,
            connections_accepted: stats.connections.accepted,
            wrong_connection_ids: stats.datagrams.iter().filter_map(|family| wrong(&family.drops)).sum(),
            swarms: stats.swarms,
            traffic: stats.traffic,
            top: Vec::new(),
        }
    }
}

fn of_torrent(torrent: &Torrent) -> TopTorrent {
    let counts = [torrent.v4, torrent.v6, torrent.webtorrent];
    let sum = |count: fn(&Counts) -> u32| counts.iter().map(|counts| u64::from(count(counts))).sum();
    let seeders = sum(|counts| counts.seeders);
    TopTorrent { info_hash: torrent.info_hash, peers: seeders + sum(|counts| counts.leechers), seeders }
}
