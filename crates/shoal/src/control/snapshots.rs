//! The statistics of each second, collected once for all readers, and their history.
//!
//! A task collects them while something watches, and otherwise only when a sample of the history is due. Every watcher
//! reads the latest one when its connection takes more bytes: one that reads slowly misses some of them, and holds no
//! more memory than the others.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::Sources;
use crate::clock;
use crate::history::{History, Sample};
use crate::stats::{self, Stats};

/// How often the statistics are collected while something watches.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

/// The latest statistics and the history.
#[derive(Debug)]
pub(crate) struct Snapshots {
    sources: Arc<Sources>,
    /// The latest event.
    latest: watch::Sender<Bytes>,
    history: Mutex<History>,
}

/// The content of an event.
#[derive(Serialize)]
struct Event<'s> {
    stats: &'s Stats,
    /// The last samples of the hour and of the day.
    samples: [Option<Sample>; 2],
}

/// The events of one watcher, as the body of a response.
pub(super) struct Watcher {
    next: Next,
}

type Next = Pin<Box<dyn Future<Output = Option<(watch::Receiver<Bytes>, Bytes)>> + Send>>;

impl Snapshots {
    /// Creates snapshots of these counters. [`Self::collect`] has to run.
    pub(super) fn new(sources: Arc<Sources>) -> Self {
        Self { sources, latest: watch::Sender::new(Bytes::new()), history: Mutex::default() }
    }

    /// Collects statistics until it is dropped.
    pub(super) async fn collect(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(COLLECT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let is_watched = self.latest.receiver_count() > 0;
            let mut history = self.lock();
            if !is_watched && !history.is_due(clock::monotonic_ms()) {
                continue;
            }
            let stats = stats::collect(&self.sources);
            history.add(&stats);
            if is_watched
                && let Ok(text) = serde_json::to_string(&Event { stats: &stats, samples: history.last() })
            {
                self.latest.send_replace(format!("data: {text}\n\n").into());
            }
        }
    }

    /// Returns the statistics of this moment as JSON.
    pub(super) fn stats(&self) -> serde_json::Result<String> {
        serde_json::to_string(&stats::collect(&self.sources))
    }

    /// Returns the history as JSON.
    pub(super) fn history(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.lock().shown())
    }

    /// Returns a new watcher.
    pub(super) fn watch(&self) -> Watcher {
        Watcher { next: Box::pin(next(self.latest.subscribe())) }
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the next event.
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
