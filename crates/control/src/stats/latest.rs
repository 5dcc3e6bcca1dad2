//! The statistics of each second, collected once for all readers, and their history.
//!
//! A task collects them while there are watchers, and otherwise only when a sample of the history is due. Every watcher
//! reads the latest statistics when its connection takes more bytes: a slow one misses some, and holds no more memory
//! than the others. A reader that asks gets the statistics of the last second, or has them collected for all others.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use crate::Sources;
use crate::stats::history::{History, Sample};
use crate::stats::{self, Stats};
use shoal_runtime::clock;

/// How often the statistics are collected while there are watchers.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

/// How long readers get the same statistics: a little less than a second, for readers that ask each second.
const STATS_MS: u64 = 900;

/// The latest statistics and the history.
#[derive(Debug)]
pub struct LatestStats {
    sources: Arc<Sources>,
    latest: Mutex<Collected>,
    /// The latest event.
    events: watch::Sender<Bytes>,
    history: Mutex<History>,
}

/// The latest statistics as JSON, with the time of their collection.
#[derive(Debug, Default)]
struct Collected {
    collected_ms: u64,
    text: Bytes,
}

/// An event of the status page.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatusEvent<'s> {
    stats: &'s Stats,
    /// The newest samples of the hour and of the day. They may have been told before.
    #[schema(value_type = Vec<Option<(u64, Vec<Option<f32>>)>>)]
    samples: [Option<Sample>; 2],
}

impl LatestStats {
    /// Creates statistics of these counters. [`Self::collect`] has to run.
    pub(crate) fn new(sources: Arc<Sources>) -> Self {
        let events = watch::Sender::new(Bytes::new());
        Self { sources, latest: Mutex::default(), events, history: Mutex::default() }
    }

    /// Collects statistics until it is dropped.
    pub async fn collect(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(COLLECT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let is_watched = self.events.receiver_count() > 0;
            let mut history = self.history.lock();
            if !is_watched && !history.is_due(clock::monotonic_ms()) {
                continue;
            }
            let stats = stats::collect(&self.sources);
            history.add(&stats);
            let event = StatusEvent { stats: &stats, samples: history.last() };
            if is_watched
                && let (Ok(latest), Ok(text)) = (Collected::new(&stats), serde_json::to_string(&event))
            {
                *self.latest.lock() = latest;
                self.events.send_replace(format!("data: {text}\n\n").into());
            }
        }
    }

    /// Returns the statistics of the last second as JSON. Only the first reader in a second has them collected.
    pub(crate) fn stats(&self) -> serde_json::Result<Bytes> {
        let mut latest = self.latest.lock();
        let now_ms = clock::monotonic_ms();
        if latest.text.is_empty() || now_ms >= latest.collected_ms + STATS_MS {
            *latest = Collected::new(&stats::collect(&self.sources))?;
        }
        Ok(latest.text.clone())
    }

    /// Returns the history as JSON.
    pub(crate) fn history(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.history.lock().shown()).map(|text| text + "\n")
    }

    /// Returns the events of a new watcher, as the body of a response.
    pub(crate) fn watch(&self) -> Body {
        let events = stream::unfold(self.events.subscribe(), |mut latest| async move {
            latest.changed().await.ok()?;
            let event = latest.borrow_and_update().clone();
            Some((Ok::<_, Infallible>(event), latest))
        });
        Body::from_stream(events)
    }
}

impl Collected {
    fn new(stats: &Stats) -> serde_json::Result<Self> {
        let text = serde_json::to_string(stats)? + "\n";
        Ok(Self { collected_ms: stats.monotonic_ms, text: text.into() })
    }
}
