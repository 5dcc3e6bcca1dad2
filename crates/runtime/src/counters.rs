//! Counters of the threads of the control plane. Unlike the counters of a worker, several threads may add to them.

use serde::{Deserialize, Serialize};
use shoal_base::metrics::{Gauge, labels};

/// The number of reloads by outcome.
#[derive(Debug, Default)]
pub struct ReloadCounters {
    /// Reloads that were applied.
    pub applied: Gauge,
    /// Reloads that were refused.
    pub failed: Gauge,
}

labels! {
    /// The outcome of a record.
    pub enum RecordOutcome {
        /// The target has the record.
        Written = "written",
        /// The record was lost because the ring of its worker was full.
        QueueFull = "queue_full",
        /// The record was lost because the target failed.
        WriteFailed = "write_failed",
    }
}

/// The numbers of records by outcome.
#[derive(Debug, Default)]
pub struct RecordCounters([Gauge; RecordOutcome::ALL.len()]);

impl RecordCounters {
    /// Returns the number of records with this outcome.
    pub fn read(&self, outcome: RecordOutcome) -> u64 {
        self.0[outcome as usize].read()
    }

    /// Adds records with this outcome.
    pub fn add(&self, outcome: RecordOutcome, count: u64) {
        self.0[outcome as usize].add(count);
    }
}

/// A snapshot that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Saved {
    /// When it was begun, in seconds since 1970.
    pub begun_unix_s: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Swarms. A large one counts several times.
    pub swarms: u64,
    /// Peers.
    pub peers: u64,
}

/// The number of snapshots by outcome, and the last one.
#[derive(Debug, Default)]
pub struct SnapshotCounters {
    /// Snapshots that were written.
    pub written: Gauge,
    /// Snapshots that could not be written.
    pub failed: Gauge,
    /// When the last one was begun, in seconds since 1970; 0 if none was.
    pub last_unix_s: Gauge,
    /// Size of the last one in bytes.
    pub last_bytes: Gauge,
}
