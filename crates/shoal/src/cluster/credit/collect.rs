//! The thread that takes records from the rings, puts them into batches, and keeps these until the stream has them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use shoal_cluster::{
    CREDIT_BATCH_BYTES_MAX, CREDIT_BYTES_MAX, CreditHead, CreditRecord, NodeId, encode_credit,
    encode_credit_head,
};
use shoal_engine::credit::{CREDITS_MAX, RecordedCredit, RecordedCredits};
use tokio::time::Instant;

use super::spool::{Spool, SpooledBatch};
use super::{Batch, Credit};
use crate::repeated::Repeated;

/// Maximum size of the batches that are held in memory.
pub(super) const HELD_BYTES_MAX: usize = 8 << 20;

/// Maximum number of batches that wait. While NATS is away there is at most one a second.
pub(super) const BATCHES_MAX: usize = 1 << 16;

/// Age at which a batch ends: while no other waits, and at the latest. A crash loses the batch that has not ended.
const AGE_MS: u64 = 50;
const AGE_MS_MAX: u64 = 1000;

/// How often the disk gets what waits.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// How often the files of runs that have ended are looked for. At an upgrade, the run before ends while this one goes on.
const ADOPT_EVERY: Duration = Duration::from_secs(2);

/// The state of the thread.
pub(super) struct Collector {
    credit: Arc<Credit>,
    run: NodeId,
    node: String,
    rings: Vec<RecordedCredits>,
    /// The records that were taken from the rings in this turn.
    taken: Vec<RecordedCredit>,
    spool: Option<Spool>,
    /// The batches that the stream does not have, the oldest first.
    waiting: VecDeque<Waiting>,
    held_bytes: usize,
    filling: Filling,
    last_sequence: u64,
    synced: Option<Instant>,
    adopted: Option<Instant>,
    faults: Faults,
}

/// A batch that the stream does not have.
#[derive(Debug)]
pub(super) enum Waiting {
    Held { sequence: u64, records: u32, payload: Bytes },
    Spooled(SpooledBatch),
}

/// The batch that is being filled.
#[derive(Debug, Default)]
struct Filling {
    bytes: Vec<u8>,
    records: u32,
    since_ms: u64,
}

#[derive(Default)]
struct Faults {
    full: Repeated,
    files: Repeated,
}

impl Waiting {
    const fn records(&self) -> u32 {
        match self {
            Self::Held { records, .. } => *records,
            Self::Spooled(batch) => batch.records,
        }
    }
}

impl Collector {
    pub(super) fn new(
        credit: Arc<Credit>,
        (run, node): (NodeId, String),
        rings: Vec<RecordedCredits>,
        directory: Option<PathBuf>,
    ) -> Self {
        Self {
            credit,
            run,
            node,
            rings,
            taken: Vec::new(),
            spool: directory.map(|directory| Spool::new(directory, run)),
            waiting: VecDeque::new(),
            held_bytes: 0,
            filling: Filling::default(),
            last_sequence: 0,
            synced: None,
            adopted: None,
            faults: Faults::default(),
        }
    }

    /// Does what there is to do.
    pub(super) fn turn(&mut self, monotonic_ms: u64, unix_ms: u64) {
        self.adopt();
        while self.settle() {
            self.offer();
        }
        self.take_records(monotonic_ms, unix_ms);
        let age_ms = monotonic_ms.saturating_sub(self.filling.since_ms);
        let is_due = age_ms >= AGE_MS && self.waiting.is_empty() || age_ms >= AGE_MS_MAX;
        if self.filling.records > 0 && (is_due || self.credit.is_leaving()) {
            self.end_batch();
        }
        self.offer();
        self.sync();
        self.publish_counts();
    }

    /// Takes over the batches of runs that have ended, from time to time.
    fn adopt(&mut self) {
        let Some(spool) = self.spool.as_mut().filter(|_| is_due(&mut self.adopted, ADOPT_EVERY)) else {
            return;
        };
        match spool.adopt() {
            Ok(batches) => self.waiting.extend(batches.into_iter().map(Waiting::Spooled)),
            Err(error) => note(&mut self.faults.files, &error),
        }
    }

    /// Forgets the first batch if the stream has it. Returns whether it has.
    fn settle(&mut self) -> bool {
        if !self.credit.take_stored() {
            return false;
        }
        let Some(stored) = self.waiting.pop_front() else { return false };
        self.credit.counts.stored.fetch_add(stored.records().into(), Ordering::Relaxed);
        match (stored, &mut self.spool) {
            (Waiting::Held { payload, .. }, _) => self.held_bytes -= payload.len(),
            (Waiting::Spooled(batch), Some(spool)) => spool.settle(&batch),
            (Waiting::Spooled(_), None) => {}
        }
        true
    }

    /// Takes what is in the rings, in the order of time, and ends batches that are full. Clients may announce to several
    /// workers one after the other.
    fn take_records(&mut self, monotonic_ms: u64, unix_ms: u64) {
        let mut taken = std::mem::take(&mut self.taken);
        for ring in &mut self.rings {
            ring.drain(CREDITS_MAX, |recorded| taken.push(recorded));
        }
        taken.sort_by_key(|recorded| recorded.monotonic_ms);
        for recorded in taken.drain(..) {
            let age_ms = monotonic_ms.saturating_sub(recorded.monotonic_ms);
            let unix_ms = unix_ms.saturating_sub(age_ms);
            self.add(&CreditRecord { unix_ms, credit: recorded.credit }, monotonic_ms);
        }
        self.taken = taken;
    }

    fn add(&mut self, record: &CreditRecord, monotonic_ms: u64) {
        if self.filling.records == 0 {
            let head = CreditHead { run: self.run, sequence: self.last_sequence + 1, node: &self.node };
            self.filling.bytes.clear();
            encode_credit_head(&head, &mut self.filling.bytes);
            self.filling.since_ms = monotonic_ms;
        }
        encode_credit(record, &mut self.filling.bytes);
        self.filling.records += 1;
        if self.filling.bytes.len() + CREDIT_BYTES_MAX > CREDIT_BATCH_BYTES_MAX {
            self.end_batch();
        }
    }

    /// Lets the batch wait for the stream. One for which there is no room is lost.
    fn end_batch(&mut self) {
        let records = std::mem::take(&mut self.filling.records);
        // A batch that is lost leaves a gap, which tells consumers of it.
        self.last_sequence += 1;
        let waiting = if self.waiting.len() < BATCHES_MAX { self.keep(records) } else { None };
        match waiting {
            Some(waiting) => self.waiting.push_back(waiting),
            None => {
                self.credit.counts.lost_full.fetch_add(records.into(), Ordering::Relaxed);
                if let Some(unlogged) = self.faults.full.note(Instant::now()) {
                    tracing::error!(
                        records,
                        unlogged,
                        "credit was lost, because too much of it waits for its stream"
                    );
                }
            }
        }
    }

    /// Keeps the content of the batch in a file, or if that is impossible in memory.
    fn keep(&mut self, records: u32) -> Option<Waiting> {
        let (sequence, bytes) = (self.last_sequence, &self.filling.bytes);
        if let Some(spool) = &mut self.spool {
            match spool.append(sequence, records, bytes) {
                Ok(batch) => return Some(Waiting::Spooled(batch)),
                Err(error) => note(&mut self.faults.files, &error),
            }
        }
        if self.held_bytes + bytes.len() > HELD_BYTES_MAX {
            return None;
        }
        self.held_bytes += bytes.len();
        Some(Waiting::Held { sequence, records, payload: Bytes::copy_from_slice(bytes) })
    }

    /// Offers the first batch to be published. Batches that cannot be read again are lost.
    fn offer(&mut self) {
        let Self { credit, waiting, spool, run, faults, .. } = self;
        credit.offer(|| {
            loop {
                let batch = match waiting.front()? {
                    Waiting::Held { sequence, payload, .. } => {
                        return Some(Batch { run: *run, sequence: *sequence, payload: payload.clone() });
                    }
                    Waiting::Spooled(batch) => *batch,
                };
                let spool = spool.as_mut()?;
                match spool.read(&batch) {
                    Ok(payload) => {
                        let SpooledBatch { run, sequence, .. } = batch;
                        return Some(Batch { run, sequence, payload: payload.into() });
                    }
                    Err(error) => {
                        note(&mut faults.files, &error);
                        credit.counts.lost_unreadable.fetch_add(batch.records.into(), Ordering::Relaxed);
                        spool.settle(&batch);
                        waiting.pop_front();
                    }
                }
            }
        });
    }

    fn sync(&mut self) {
        let Some(spool) = self.spool.as_mut().filter(|_| is_due(&mut self.synced, SYNC_EVERY)) else {
            return;
        };
        if let Err(error) = spool.sync() {
            note(&mut self.faults.files, &error);
        }
    }

    fn publish_counts(&self) {
        let counts = &self.credit.counts;
        let waiting = self.waiting.iter().map(|batch| u64::from(batch.records())).sum::<u64>();
        counts.waiting.store(waiting + u64::from(self.filling.records), Ordering::Relaxed);
        counts.waiting_batches.store(self.waiting.len() as u64, Ordering::Relaxed);
        counts.spool_bytes.store(self.spool.as_ref().map_or(0, Spool::bytes), Ordering::Relaxed);
    }
}

impl Drop for Collector {
    /// Keeps what was recorded last, as far as there are files.
    fn drop(&mut self) {
        self.take_records(crate::clock::monotonic_ms(), crate::clock::unix_ms());
        while self.settle() {}
        if self.filling.records > 0 {
            self.end_batch();
        }
        self.synced = None;
        self.sync();
        if let Some(spool) = &mut self.spool {
            spool.close();
        }
        self.publish_counts();
    }
}

/// Returns whether something is due that was done at this time, and sets the time then.
fn is_due(last: &mut Option<Instant>, every: Duration) -> bool {
    let now = Instant::now();
    let is_due = last.is_none_or(|last| now >= last + every);
    if is_due {
        *last = Some(now);
    }
    is_due
}

fn note(faults: &mut Repeated, error: &std::io::Error) {
    if let Some(unlogged) = faults.note(Instant::now()) {
        tracing::error!(%error, unlogged, "the files of credit in state.path cannot be used");
    }
}
