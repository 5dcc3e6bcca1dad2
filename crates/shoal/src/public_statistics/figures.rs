//! The numbers of the tracker at one moment, as far as they are public.

use std::collections::BTreeMap;

use shoal_engine::counter::{Drop, Family, Kind, Outcome};
use shoal_engine::policy::Protocol;
use shoal_types::{Counts, InfoHash, Totals};

use crate::clock;
use crate::control::Sources;
use crate::insight::{TOP_MAX, Torrent};

/// The numbers of the tracker at one moment.
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

/// The swarms of a family, or of WebTorrent.
#[derive(Debug)]
pub(super) struct SwarmTotals {
    /// `v4`, `v6` or `webtorrent`.
    pub(super) family: &'static str,
    pub(super) swarms: u64,
    pub(super) seeders: u64,
    pub(super) leechers: u64,
}

/// The requests and replies of one protocol and family.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) protocol: &'static str,
    pub(super) family: &'static str,
    /// Requests by kind, without those that did not occur.
    pub(super) requests: BTreeMap<&'static str, u64>,
    pub(super) ok: u64,
    pub(super) refused: u64,
}

/// Collects the numbers. Takes no lock that a worker waits for.
pub(super) fn collect(sources: &Sources) -> Figures {
    let [v4, v6] = sources.store.totals();
    let webtorrent = sources.swarms.as_ref().map(|swarms| ("webtorrent", swarms.totals()));
    let totals = [("v4", v4), ("v6", v6)].into_iter().chain(webtorrent);
    let flows = Protocol::ALL.into_iter().flat_map(|protocol| Family::ALL.map(|family| (protocol, family)));
    let wrong = |family| sources.sum(Protocol::Udp, |udp| udp.drops(family, Drop::WrongConnectionId));
    Figures {
        now_unix_s: clock::unix_s(),
        started_unix_s: sources.started_unix_s,
        swarms: totals.map(|(family, totals)| of_swarms(family, totals)).collect(),
        traffic: flows.map(|(protocol, family)| of_flow(sources, protocol, family)).collect(),
        connections_accepted: sources.workers.iter().map(|worker| worker.streams.accepted.read()).sum(),
        wrong_connection_ids: Family::ALL.map(wrong).iter().sum(),
        top: sources.insight.top(TOP_MAX).unwrap_or_default().iter().map(of_torrent).collect(),
    }
}

fn of_torrent(torrent: &Torrent) -> TopTorrent {
    let counts = [torrent.v4, torrent.v6, torrent.webtorrent];
    let sum = |count: fn(&Counts) -> u32| counts.iter().map(|counts| u64::from(count(counts))).sum();
    let seeders = sum(|counts| counts.seeders);
    TopTorrent { info_hash: torrent.info_hash, peers: seeders + sum(|counts| counts.leechers), seeders }
}

fn of_swarms(family: &'static str, totals: Totals) -> SwarmTotals {
    let Totals { swarms, seeders, leechers, .. } = totals;
    SwarmTotals { family, swarms, seeders, leechers }
}

fn of_flow(sources: &Sources, protocol: Protocol, family: Family) -> Traffic {
    let requests = Kind::ALL
        .map(|kind| (kind.name(), sources.sum(protocol, |counters| counters.requests(family, kind))));
    let replies = |is_counted: fn(Outcome) -> bool| {
        let outcomes = || Outcome::all().filter(|outcome| is_counted(*outcome));
        let of_kind = |kind| {
            outcomes()
                .map(|outcome| sources.sum(protocol, |counters| counters.replies(family, kind, outcome)))
                .sum::<u64>()
        };
        Kind::ALL.map(of_kind).iter().sum()
    };
    Traffic {
        protocol: protocol.name(),
        family: family.name(),
        requests: requests.into_iter().filter(|(_, count)| *count > 0).collect(),
        ok: replies(|outcome| outcome == Outcome::Ok),
        refused: replies(|outcome| outcome != Outcome::Ok),
    }
}
