//! Insight for the operator: changed torrents, largest swarms, software of clients, look-ups of torrents.
//!
//! This module owns the thread that collects the traces of workers (`shoal_engine::insight`), and answers the questions
//! of the control listener. It locks the store for one look-up at a time, and never while it waits for anything else. In an
//! upgrade a look-up waits until that has failed, or forever. So the thread looks up what the statistics show.
//!
//! - `Insight::torrent` and `Insight::torrents`: current counts of named torrents.
//! - `Insight::peers`: the peers of a torrent.
//! - `Insight::top`: the largest swarms.
//! - `Insight::clients`: the software of clients.
//! - `Insight::changes` and `Insight::wait_for_changes`: the feed of changes. A reader without a cursor is told to
//!   start over, with a new cursor. It takes that cursor, then reads the counts of all torrents that it knows, and then
//!   follows from the cursor. The watch of changes begins with the first reader, and ends after five minutes without
//!   one.
//!
//! The thread collects twenty times a second. It exchanges the list of a shard for an empty one: it tries the lock and
//! holds it for tens of nanoseconds.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use parking_lot::Mutex;
use serde::Serialize;
use shoal_base::{Counts, InfoHash};
use shoal_engine::insight::{Candidates, ChangeLog, Changes, ClientShare, Clients, Cursor, SampleRing};
use shoal_relay::{ConnectedPeer, Swarms};
use shoal_store::{Store, StoredPeer};
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::problem::Problem;
use shoal_runtime::clock;
use shoal_runtime::periodic::PeriodicThread;

/// Maximum number of listed peers of a torrent, for each family and for WebTorrent.
pub(crate) const PEERS_MAX: usize = 1000;

/// Maximum number of swarms among the largest.
pub(crate) const TOP_MAX: usize = 100;

/// Maximum number of torrents that one call looks up.
pub(crate) const TORRENTS_MAX: usize = 10_000;

/// Number of torrents whose cache misses overlap.
const PREFETCHED: usize = 32;

/// The pause of the thread between two rounds. The buffers have room for all traces of a pause.
const PERIOD: Duration = Duration::from_millis(50);

/// How often the distance between samples is adapted.
const ADAPT_MS: u64 = 1000;

/// How often the counts of all candidates for the largest swarms are looked up.
const TOP_MS: u64 = 1000;

/// The feed ends after this time without a reader.
const READERS_GONE_MS: u64 = 300_000;

/// The current counts of a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Torrent {
    pub(crate) info_hash: InfoHash,
    /// Peers over UDP and HTTP with IPv4 addresses.
    pub(crate) v4: Counts,
    /// Peers over UDP and HTTP with IPv6 addresses.
    pub(crate) v6: Counts,
    /// Peers of WebTorrent.
    pub(crate) webtorrent: Counts,
}

/// The ages of the swarms of a torrent in seconds. Null if there is no such swarm.
///
/// A swarm begins with its first peer and ends with its last one. Those of IPv4 and IPv6 are right to within a twelfth, or
/// within a twelfth of announce.peer_timeout_s and at least 150 seconds if that is more; they end at 1,365 days or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TorrentAge {
    pub(crate) v4: Option<u32>,
    pub(crate) v6: Option<u32>,
    /// Exact.
    pub(crate) webtorrent: Option<u32>,
}

/// Peers of a torrent. No list is longer than [`PEERS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TorrentPeers {
    /// Peers over UDP and HTTP.
    pub(crate) stored: Vec<StoredPeer>,
    /// Peers of WebTorrent. Their addresses are not known here.
    pub(crate) connected: Vec<ConnectedPeer>,
}

/// The answer to a reader of the feed.
#[derive(Clone, Debug)]
pub(crate) struct ChangedTorrents {
    pub(crate) cursor: Cursor,
    /// Whether the reader has missed changes, or has just begun: see the top of this module.
    pub(crate) start_over: bool,
    /// Whether there are more torrents behind this cursor.
    pub(crate) has_more: bool,
    /// The torrents that have changed. Their counts are current, not those at the change.
    pub(crate) torrents: Vec<Torrent>,
}

/// The observations of a tracker, shared by the thread that collects them and the control listener.
#[derive(Debug)]
pub struct Insight {
    store: Arc<Store>,
    swarms: Option<Arc<Swarms>>,
    changes_max: usize,
    rings: Vec<Arc<SampleRing>>,
    sampled: Mutex<Sampled>,
    /// The largest swarms, the largest first.
    top: Mutex<Vec<Torrent>>,
    feed: Mutex<Option<ChangeLog>>,
    feed_state: FeedState,
}

#[derive(Debug, Default)]
struct Sampled {
    clients: Clients,
    candidates: Candidates,
}

#[derive(Debug)]
struct FeedState {
    /// When the last reader came.
    read_ms: AtomicU64,
    /// The number of readers that wait for changes.
    waiting: AtomicUsize,
    /// Wakes the readers.
    news: watch::Sender<()>,
}

/// A reader that waits.
struct Waiting<'i>(&'i FeedState);

impl ChangedTorrents {
    /// Returns whether there is nothing to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.torrents.is_empty() && !self.start_over
    }
}

impl Torrent {
    pub(crate) const fn total(&self) -> Counts {
        self.v4.plus(self.v6).plus(self.webtorrent)
    }

    /// Returns the number of peers.
    pub(crate) fn peers(&self) -> u32 {
        let Counts { seeders, leechers, .. } = self.total();
        seeders.saturating_add(leechers)
    }
}

impl Insight {
    /// Prepares the observation of `workers` workers, with a feed that remembers `changes_max` changes.
    pub fn new(changes_max: usize, workers: usize, store: Arc<Store>, swarms: Option<Arc<Swarms>>) -> Self {
        Self {
            store,
            swarms,
            changes_max,
            rings: (0..workers).map(|_| Arc::default()).collect(),
            sampled: Mutex::default(),
            top: Mutex::default(),
            feed: Mutex::default(),
            feed_state: FeedState {
                read_ms: AtomicU64::new(0),
                waiting: AtomicUsize::new(0),
                news: watch::Sender::new(()),
            },
        }
    }

    /// Returns the ring for the samples of a worker, if it exists.
    pub fn ring(&self, worker: usize) -> Option<&Arc<SampleRing>> {
        self.rings.get(worker)
    }

    pub(crate) fn torrent(&self, info_hash: &InfoHash) -> Torrent {
        let [v4, v6] = self.store.counts(info_hash);
        let webtorrent = self.swarms.as_ref().map(|swarms| swarms.scrape(&swarms.swarm_key(info_hash)));
        Torrent { info_hash: *info_hash, v4, v6, webtorrent: webtorrent.unwrap_or_default() }
    }

    /// Returns the ages of the swarms of a torrent.
    pub(crate) fn ages(&self, info_hash: &InfoHash) -> TorrentAge {
        let now_s = clock::whole_seconds(clock::monotonic_ms());
        let [v4, v6] = self.store.ages_s(info_hash, now_s);
        let webtorrent =
            self.swarms.as_ref().and_then(|swarms| swarms.age_s(&swarms.swarm_key(info_hash), now_s));
        TorrentAge { v4, v6, webtorrent }
    }

    /// Returns the current counts of the first [`TORRENTS_MAX`] of these torrents, in the same order.
    pub(crate) fn torrents(&self, info_hashes: &[InfoHash]) -> Vec<Torrent> {
        let info_hashes = &info_hashes[..info_hashes.len().min(TORRENTS_MAX)];
        let mut torrents = Vec::with_capacity(info_hashes.len());
        for some in info_hashes.chunks(PREFETCHED) {
            some.iter().for_each(|info_hash| self.store.prefetch_counts(info_hash));
            torrents.extend(some.iter().map(|info_hash| self.torrent(info_hash)));
        }
        torrents
    }

    /// Returns up to `max` peers of a torrent for each family, and for WebTorrent.
    pub(crate) fn peers(&self, info_hash: &InfoHash, max: usize) -> TorrentPeers {
        let (max, now_s) = (max.min(PEERS_MAX), clock::whole_seconds(clock::monotonic_ms()));
        let connected =
            self.swarms.as_ref().map(|swarms| swarms.peers(&swarms.swarm_key(info_hash), max, now_s));
        TorrentPeers {
            stored: self.store.peers(info_hash, max, now_s),
            connected: connected.unwrap_or_default(),
        }
    }

    /// Returns up to `max` of the largest swarms, at most [`TOP_MAX`], the largest first. Their counts are about a second
    /// old at most.
    pub(crate) fn top(&self, max: usize) -> Vec<Torrent> {
        self.top.lock().iter().take(max).copied().collect()
    }

    /// Returns the `max` most frequent kinds of software, and `other` as the last.
    pub(crate) fn clients(&self, max: usize) -> Vec<ClientShare> {
        let now_s = clock::whole_seconds(clock::monotonic_ms());
        self.sampled.lock().clients.shares(max, now_s)
    }

    /// Returns up to `max` torrents, at most [`TORRENTS_MAX`], that have changed since `cursor`.
    ///
    /// # Errors
    /// Returns why there is no feed.
    pub(crate) fn changes(&self, cursor: Option<Cursor>, max: usize) -> Result<ChangedTorrents, Problem> {
        self.feed_state.read_ms.store(clock::monotonic_ms(), Ordering::Relaxed);
        let changes = {
            let mut feed = self.feed.lock();
            let log = match &mut *feed {
                Some(log) => log,
                none => none.insert(self.begin_feed()?),
            };
            log.read(cursor, max.min(TORRENTS_MAX))
        };
        let (cursor, start_over, has_more, info_hashes) = match changes {
            Changes::StartOver { cursor } => (cursor, true, false, Vec::new()),
            Changes::Changed { info_hashes, cursor, has_more } => (cursor, false, has_more, info_hashes),
        };
        Ok(ChangedTorrents { cursor, start_over, has_more, torrents: self.torrents(&info_hashes) })
    }

    /// Waits until there is something to read after `cursor`. The caller limits the time.
    pub(crate) async fn wait_for_changes(&self, cursor: Cursor) {
        let _waiting = Waiting::new(&self.feed_state);
        let mut news = self.feed_state.news.subscribe();
        // A reader whose feed has ended has to start over.
        while self.feed.lock().as_ref().is_some_and(|log| !log.is_behind(cursor)) {
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Begins to watch changes.
    fn begin_feed(&self) -> Result<ChangeLog, Problem> {
        let none = |_| {
            let error = "the kernel provides no random numbers; try again later";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, error)
        };
        let [epoch, first, second, _] = shoal_runtime::random::words().map_err(none)?;
        self.store.watch_changes();
        if let Some(swarms) = &self.swarms {
            swarms.watch_changes();
        }
        tracing::info!(changes_max = self.changes_max, "the feed of changes begins");
        Ok(ChangeLog::new(self.changes_max, [epoch, first, second]))
    }

    /// Looks up all candidates for the largest swarms, and remembers the largest.
    fn look_up_candidates(&self) {
        let info_hashes: Vec<_> = self.sampled.lock().candidates.info_hashes().copied().collect();
        let mut torrents = self.torrents(&info_hashes);
        let mut sampled = self.sampled.lock();
        for torrent in &torrents {
            sampled.candidates.update(&torrent.info_hash, torrent.peers());
        }
        drop(sampled);
        torrents.retain(|torrent| torrent.peers() > 0);
        torrents.sort_by_key(|torrent| core::cmp::Reverse(torrent.peers()));
        torrents.truncate(TOP_MAX);
        *self.top.lock() = torrents;
    }
}

impl<'i> Waiting<'i> {
    fn new(state: &'i FeedState) -> Self {
        state.waiting.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.read_ms.store(clock::monotonic_ms(), Ordering::Relaxed);
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Collects the traces of the workers. Its thread owns it.
#[derive(Debug)]
pub struct Collector {
    insight: Arc<Insight>,
    /// The lists that are exchanged for those of shards, whose capacities differ.
    store_spare: Vec<InfoHash>,
    swarms_spare: Vec<InfoHash>,
    adapted_ms: u64,
    looked_up_ms: u64,
    /// The number of announces that each worker's samples represent, since the distance was adapted.
    announces: BTreeMap<usize, u64>,
}

impl Collector {
    /// Starts the thread. Fails if the kernel provides no more threads.
    pub fn start(insight: &Arc<Insight>) -> io::Result<PeriodicThread> {
        let mut collector = Self::new(Arc::clone(insight));
        PeriodicThread::start("insight", PERIOD, move || collector.collect())
    }

    const fn new(insight: Arc<Insight>) -> Self {
        Self {
            insight,
            store_spare: Vec::new(),
            swarms_spare: Vec::new(),
            adapted_ms: 0,
            looked_up_ms: 0,
            announces: BTreeMap::new(),
        }
    }

    /// Collects everything so far.
    fn collect(&mut self) {
        let now_ms = clock::monotonic_ms();
        self.collect_samples(now_ms);
        self.collect_changes(now_ms);
        if now_ms >= self.looked_up_ms + TOP_MS {
            self.insight.look_up_candidates();
            self.looked_up_ms = now_ms;
        }
    }

    fn collect_samples(&mut self, now_ms: u64) {
        let (insight, now_s) = (&*self.insight, clock::whole_seconds(now_ms));
        let mut sampled = insight.sampled.lock();
        for (worker, ring) in insight.rings.iter().enumerate() {
            let announces = self.announces.entry(worker).or_default();
            ring.drain(|sample| {
                *announces += u64::from(sample.weight);
                sampled.clients.add(&sample, now_s);
                sampled.candidates.add(&sample);
            });
        }
        drop(sampled);
        let elapsed_ms = now_ms.saturating_sub(self.adapted_ms);
        if elapsed_ms >= ADAPT_MS {
            for (worker, announces) in &mut self.announces {
                insight.rings[*worker].adapt(std::mem::take(announces).saturating_mul(1000) / elapsed_ms);
            }
            self.adapted_ms = now_ms;
        }
    }

    fn collect_changes(&mut self, now_ms: u64) {
        let insight = &*self.insight;
        let state = &insight.feed_state;
        let mut feed = insight.feed.lock();
        let Some(log) = &mut *feed else { return };
        let is_read = state.waiting.load(Ordering::Relaxed) > 0
            || now_ms < state.read_ms.load(Ordering::Relaxed) + READERS_GONE_MS;
        if !is_read {
            insight.store.ignore_changes();
            if let Some(swarms) = &insight.swarms {
                swarms.ignore_changes();
            }
            *feed = None;
            drop(feed);
            tracing::info!("the feed of changes ends: it has no readers");
            state.news.send_replace(());
            return;
        }
        let before = log.end();
        let mut append = |info_hashes: &[InfoHash]| info_hashes.iter().for_each(|hash| log.append(hash));
        let mut has_lost = insight.store.take_changes(&mut self.store_spare, &mut append);
        if let Some(swarms) = &insight.swarms {
            has_lost |= swarms.take_changes(&mut self.swarms_spare, &mut append);
        }
        if has_lost {
            log.lose();
        }
        let is_news = log.is_behind(before);
        drop(feed);
        if is_news {
            state.news.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::{Action, PeerV4};
    use shoal_store::{Announce, Settings, Store};

    use super::*;

    struct Tracker {
        store: Arc<Store>,
        insight: Arc<Insight>,
        collector: Collector,
    }

    fn tracker(changes_max: usize) -> Tracker {
        let settings = Settings {
            memory_bytes_max: 1 << 26,
            peer_timeout_s: 1000,
            peers_per_source_max: 0,
            swarm_share_max: 0,
            holdings: None,
            hash_key: [1, 2, 3, 4],
        };
        let store = Arc::new(Store::new(&settings).unwrap());
        let insight = Arc::new(Insight::new(changes_max, 1, Arc::clone(&store), None));
        let collector = Collector::new(Arc::clone(&insight));
        Tracker { store, insight, collector }
    }

    fn info_hash(number: u32) -> InfoHash {
        let mut bytes = [0x5a; 20];
        bytes[8..12].copy_from_slice(&number.to_be_bytes());
        InfoHash(bytes)
    }

    impl Tracker {
        fn announce(&self, torrent: u32, peer: u8, action: Action) {
            let place = self.store.v4.locate(&info_hash(torrent));
            let announce = Announce { peer: PeerV4([peer; 6]), action, peers_wanted: 0 };
            let rng = &mut fastrand::Rng::with_seed(1);
            self.store.v4.announce(&place, &announce, 1000, rng, &mut []).unwrap();
        }

        fn read(&mut self, cursor: Cursor, max: usize) -> (Vec<Torrent>, Cursor) {
            self.collector.collect();
            let changes = self.insight.changes(Some(cursor), max).unwrap();
            assert!(!changes.start_over, "the cursor is known");
            (changes.torrents, changes.cursor)
        }
    }

    fn start(insight: &Insight) -> Cursor {
        let changes = insight.changes(None, 1).unwrap();
        assert!(changes.start_over, "there is no cursor");
        changes.cursor
    }

    #[test]
    fn changed_torrents_have_their_current_counts() {
        let mut tracker = tracker(1000);
        tracker.announce(1, 1, Action::Leech);
        let cursor = start(&tracker.insight);
        tracker.announce(1, 2, Action::Leech);
        tracker.announce(2, 1, Action::Seed);
        tracker.announce(1, 3, Action::Leech);
        let (mut torrents, next) = tracker.read(cursor, 10);
        torrents.sort_by_key(|torrent| torrent.info_hash);
        let seen: Vec<_> =
            torrents.iter().map(|torrent| (torrent.v4.seeders, torrent.total().leechers)).collect();
        assert_eq!(seen, [(0, 3), (1, 0)]);
        assert_eq!(tracker.read(next, 10), (Vec::new(), next));
        tracker.announce(2, 1, Action::Stop);
        let (torrents, _) = tracker.read(next, 10);
        assert_eq!((torrents.len(), torrents[0].total()), (1, Counts::default()));
    }

    #[test]
    fn a_stalled_reader_starts_over() {
        let mut tracker = tracker(100);
        let cursor = start(&tracker.insight);
        (0..1000).for_each(|torrent| tracker.announce(torrent, 1, Action::Leech));
        tracker.collector.collect();
        let changes = tracker.insight.changes(Some(cursor), 10).unwrap();
        assert!(changes.start_over, "it has missed changes");
        tracker.announce(7, 2, Action::Leech);
        assert_eq!(tracker.read(changes.cursor, 10).0.len(), 1);
    }

    #[test]
    fn a_waiting_reader_is_woken() {
        let mut tracker = tracker(100);
        let cursor = start(&tracker.insight);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let insight = Arc::clone(&tracker.insight);
            let reader = tokio::spawn(async move { insight.wait_for_changes(cursor).await });
            tokio::task::yield_now().await;
            assert!(!reader.is_finished());
            tracker.announce(1, 1, Action::Leech);
            tracker.collector.collect();
            reader.await.unwrap();
        });
        // A reader that is behind need not wait.
        runtime.block_on(tracker.insight.wait_for_changes(cursor));
    }

    #[test]
    fn a_feed_without_readers_ends() {
        let mut tracker = tracker(100);
        let cursor = start(&tracker.insight);
        let now_ms = clock::monotonic_ms();
        {
            let _waiting = Waiting::new(&tracker.insight.feed_state);
            tracker.collector.collect_changes(now_ms + 2 * READERS_GONE_MS);
            assert!(tracker.insight.feed.lock().is_some(), "a reader waits");
        }
        tracker.collector.collect_changes(now_ms + 2 * READERS_GONE_MS);
        assert!(tracker.insight.feed.lock().is_none());
        let changes = tracker.insight.changes(Some(cursor), 10).unwrap();
        assert!(changes.start_over, "the cursor is that of another feed");
    }

    #[test]
    fn the_largest_swarms_have_their_current_counts() {
        let mut tracker = tracker(0);
        let mut sampler = shoal_engine::insight::Sampler::new(
            Arc::clone(tracker.insight.ring(0).unwrap()),
            fastrand::Rng::with_seed(1),
        );
        for torrent in 1..=20 {
            (0..torrent)
                .for_each(|peer| tracker.announce(torrent, u8::try_from(peer).unwrap(), Action::Leech));
            assert!(sampler.is_due());
            let counts = Counts { leechers: torrent, ..Counts::default() };
            sampler.take(&info_hash(torrent), None, counts);
        }
        // The samples are of the past.
        (0..20).for_each(|peer| tracker.announce(20, peer, Action::Stop));
        (100..110).for_each(|peer| tracker.announce(3, peer, Action::Seed));
        tracker.collector.collect();
        let top = tracker.insight.top(3);
        let seen: Vec<_> = top.iter().map(|torrent| (torrent.info_hash, torrent.peers())).collect();
        assert_eq!(seen, [(info_hash(19), 19), (info_hash(18), 18), (info_hash(17), 17)]);
    }
}
