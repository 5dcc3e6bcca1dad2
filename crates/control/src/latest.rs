//! The statistics of each second, collected once for all readers, and their history.
//!
//! A task collects them while there are watchers, and otherwise only when a sample of the history is due. Every watcher
//! reads the latest statistics when its connection takes more bytes: a slow one misses some, and holds no more memory
//! than the others. A reader that asks gets the statistics of the last second, or has them collected for all others.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use super::Sources;
use crate::history::{History, Sample};
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

/// The events of one watcher, as the body of a response.
pub(super) struct Watcher {
    next: Next,
}

type Next = Pin<Box<dyn Future<Output = Option<(watch::Receiver<Bytes>, Bytes)>> + Send>>;

impl LatestStats {
    /// Creates statistics of these sources. [`Self::collect`] has to run.
    pub(super) fn new(sources: Arc<Sources>) -> Self {
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
            let mut history = lock(&self.history);
            if !is_watched && !history.is_due(clock::monotonic_ms()) {
                continue;
            }
            let stats = stats::collect(&self.sources);
            history.add(&stats);
            let event = StatusEvent { stats: &stats, samples: history.last() };
            if is_watched
                && let (Ok(latest), Ok(text)) = (Collected::new(&stats), serde_json::to_string(&event))
            {
                *lock(&self.latest) = latest;
                self.events.send_replace(format!("data: {text}\n\n").into());
            }
        }
    }

    /// Returns the statistics of the last second as JSON. Only the first reader in a second has them collected.
    pub(super) fn stats(&self) -> serde_json::Result<Bytes> {
        let mut latest = lock(&self.latest);
        let now_ms = clock::monotonic_ms();
        if latest.text.is_empty() || now_ms >= latest.collected_ms + STATS_MS {
            *latest = Collected::new(&stats::collect(&self.sources))?;
        }
        Ok(latest.text.clone())
    }

    pub(super) fn history(&self) -> serde_json::Result<String> {
        serde_json::to_string(&lock(&self.history).shown()).map(|text| text + "\n")
    }

    pub(super) fn watch(&self) -> Watcher {
        Watcher { next: Box::pin(next(self.events.subscribe())) }
    }
}

impl Collected {
    fn new(stats: &Stats) -> serde_json::Result<Self> {
        let text = serde_json::to_string(stats)? + "\n";
        Ok(Self { collected_ms: stats.monotonic_ms, text: text.into() })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn next(mut latest: watch::Receiver<Bytes>) -> Option<(watch::Receiver<Bytes>, Bytes)> {
    latest.changed().await.ok()?;
    let event = latest.borrow_and_update().clone();
    Some((latest, event))
}

impl hyper::body::Body for Watcher {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.next.as_mut().poll(context).map(|event| {
            let (latest, event) = event?;
            self.next = Box::pin(next(latest));
            Some(Ok(Frame::data(event)))
        })
    }
}
