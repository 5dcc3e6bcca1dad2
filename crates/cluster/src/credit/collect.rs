//! The thread that takes records from the rings, puts them into batches, and keeps the batches until the stream has
//! them. It never waits for the disk: another thread does ([`disk`](mod@super::disk)).
//!
//! Batches grow with the queue, from a second to two minutes. So the list of batches takes bounded memory, and the
//! files are full before the list. A lost batch leaves a gap in the numbers, which shows consumers the loss. Only
//! refusals lead to a stream with one copy, since nothing else shows whether the servers could have three.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{
    CREDIT_BATCH_BYTES_MAX, CREDIT_BYTES_MAX, CreditHead, CreditRecord, NodeId, encode_credit,
    encode_credit_head,
};
use bytes::Bytes;
use shoal_engine::credit::{CREDITS_MAX, RecordedCredit, RecordedCredits};
use tokio::time::Instant;

use super::disk::{DiskLink, Report};
use super::journal::{Journal, JournaledBatch};
use super::{Batch, CreditLink};
use shoal_runtime::repeated::Repeated;

/// Maximum size of the batches in memory.
pub(super) const HELD_BYTES_MAX: usize = 8 << 20;

/// Maximum number of waiting batches of this run.
pub(super) const BATCHES_MAX: usize = 1 << 16;

/// Age at which a batch ends: while no other batch waits, and while others do. A crash loses the batch that has not
/// ended.
const AGE_MS: u64 = 50;
const AGE_MS_IF_OTHERS_WAIT: u64 = 1000;

/// The second age doubles with every 8,192 waiting batches, up to seven times. So the files are full before the list of
/// batches, unless NATS is away for more than three weeks.
const BATCHES_PER_DOUBLING: usize = BATCHES_MAX / 8;
const DOUBLINGS_MAX: usize = 7;

/// How often waiting batches are synced to the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Collector {
    credit: Arc<CreditLink>,
    run: NodeId,
    node: String,
    rings: Vec<RecordedCredits>,
    /// The records from the rings in this turn.
    taken: Vec<RecordedCredit>,
    journal: Option<Journal>,
    disk: Option<DiskLink>,
    waiting: Queue,
    held_bytes: usize,
    filling: Filling,
    last_sequence: u64,
    synced: Option<Instant>,
    faults: Faults,
}

#[derive(Debug)]
pub(super) enum Waiting {
    Held { sequence: u64, records: u32, payload: Bytes },
    Journaled(JournaledBatch),
}

/// The batches that the stream does not have, oldest first.
#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Waiting>,
    /// The number of their records.
    records: u64,
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
            Self::Journaled(batch) => batch.records,
        }
    }
}

impl Queue {
    fn push(&mut self, batch: Waiting) {
        self.records += u64::from(batch.records());
        self.batches.push_back(batch);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let batch = self.batches.pop_front()?;
        self.records -= u64::from(batch.records());
        Some(batch)
    }
}

impl Collector {
    /// Creates the state, with files and the thread that syncs them, or without.
    pub(super) fn new(
        credit: Arc<CreditLink>,
        (run, node): (NodeId, String),
        rings: Vec<RecordedCredits>,
        files: Option<(Journal, DiskLink)>,
    ) -> Self {
        let (journal, disk) = files.unzip();
        Self {
            credit,
            run,
            node,
            rings,
            taken: Vec::new(),
            journal,
            disk,
            waiting: Queue::default(),
            held_bytes: 0,
            filling: Filling::default(),
            last_sequence: 0,
            synced: None,
            faults: Faults::default(),
        }
    }

    /// Does one round of work.
    pub(super) fn turn(&mut self, monotonic_ms: u64, unix_ms: u64) {
        self.read_reports();
        while self.settle() {
            self.offer();
        }
        self.take_records(monotonic_ms, unix_ms);
        let age_ms = monotonic_ms.saturating_sub(self.filling.since_ms);
        if self.filling.records > 0
            && (age_ms >= age_ms_max(self.waiting.batches.len()) || self.credit.is_leaving())
        {
            self.end_batch();
        }
        self.offer();
        self.sync();
        self.publish_counts();
    }

    /// Takes over the batches of ended runs, and the list of files that still need a sync.
    fn read_reports(&mut self) {
        let (Some(journal), Some(disk)) = (&mut self.journal, &mut self.disk) else { return };
        while let Some(report) = disk.report() {
            match report {
                Report::Adopted(segments) => {
                    let batches = journal.insert_adopted(segments);
                    batches.into_iter().for_each(|batch| self.waiting.push(Waiting::Journaled(batch)));
                }
                Report::Synced(synced) => {
                    journal.note_synced(&synced);
                    synced.error.iter().for_each(|error| note(&mut self.faults.files, error));
                }
            }
        }
    }

    /// Forgets the first batch if the stream has it. Returns whether it does.
    fn settle(&mut self) -> bool {
        if !self.credit.take_stored() {
            return false;
        }
        let Some(stored) = self.waiting.pop() else { return false };
        self.credit.counts.stored.add(stored.records().into());
        match (stored, &mut self.journal) {
            (Waiting::Held { payload, .. }, _) => self.held_bytes -= payload.len(),
            (Waiting::Journaled(batch), Some(journal)) => journal.settle(&batch),
            (Waiting::Journaled(_), None) => {}
        }
        true
    }

    /// Takes the records from the rings in the order of time, since clients may announce to several workers one after
    /// the other. Ends full batches.
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

    /// Queues the batch for the stream. A batch without room is lost.
    fn end_batch(&mut self) {
        let records = std::mem::take(&mut self.filling.records);
        // A lost batch leaves a gap, which shows consumers the loss.
        self.last_sequence += 1;
        let waiting = if self.waiting.batches.len() < BATCHES_MAX { self.keep(records) } else { None };
        match waiting {
            Some(waiting) => self.waiting.push(waiting),
            None => {
                self.credit.counts.lost_full.add(records.into());
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

    /// Stores the batch in a file, or in memory if that is impossible.
    fn keep(&mut self, records: u32) -> Option<Waiting> {
        let (sequence, bytes) = (self.last_sequence, &self.filling.bytes);
        if let Some(journal) = &mut self.journal {
            match journal.append(sequence, records, bytes) {
                Ok(Some(batch)) => return Some(Waiting::Journaled(batch)),
                // Memory takes batches for which the files have no room.
                Ok(None) => {}
                Err(error) => note(&mut self.faults.files, &error),
            }
        }
        if self.held_bytes + bytes.len() > HELD_BYTES_MAX {
            return None;
        }
        self.held_bytes += bytes.len();
        Some(Waiting::Held { sequence, records, payload: Bytes::copy_from_slice(bytes) })
    }

    /// Offers the first batch. Batches that cannot be read again are lost.
    fn offer(&mut self) {
        let Self { credit, waiting, journal, run, faults, .. } = self;
        credit.offer(|| {
            loop {
                let batch = match waiting.batches.front()? {
                    Waiting::Held { sequence, payload, .. } => {
                        return Some(Batch { run: *run, sequence: *sequence, payload: payload.clone() });
                    }
                    Waiting::Journaled(batch) => *batch,
                };
                let journal = journal.as_mut()?;
                match journal.read(&batch) {
                    Ok(payload) => {
                        let JournaledBatch { run, sequence, .. } = batch;
                        return Some(Batch { run, sequence, payload: payload.into() });
                    }
                    Err(error) => {
                        note(&mut faults.files, &error);
                        credit.counts.lost_unreadable.add(batch.records.into());
                        journal.settle(&batch);
                        waiting.pop();
                    }
                }
            }
        });
    }

    /// Syncs waiting batches to the disk, once a second.
    fn sync(&mut self) {
        let (Some(journal), Some(disk)) = (&mut self.journal, &mut self.disk) else { return };
        if disk.is_idle()
            && is_due(&mut self.synced, SYNC_EVERY)
            && let Some(unsynced) = journal.take_unsynced()
        {
            disk.sync(unsynced);
        }
    }

    fn publish_counts(&self) {
        let counts = &self.credit.counts;
        let waiting = self.waiting.records + u64::from(self.filling.records);
        counts.waiting.set(waiting);
        counts.spool_bytes.set(self.journal.as_ref().map_or(0, Journal::bytes));
    }
}

impl Drop for Collector {
    /// Stores the last records, if there are files.
    fn drop(&mut self) {
        self.take_records(shoal_runtime::clock::monotonic_ms(), shoal_runtime::clock::unix_ms());
        while self.settle() {}
        if self.filling.records > 0 {
            self.end_batch();
        }
        if let Some(journal) = &mut self.journal {
            // The other thread may be ending as well.
            if let Some(error) = journal.take_unsynced().and_then(|unsynced| unsynced.sync().error) {
                note(&mut self.faults.files, &error);
            }
            journal.close();
        }
        self.publish_counts();
    }
}

/// Returns the age at which a batch ends while `waiting` others wait.
fn age_ms_max(waiting: usize) -> u64 {
    let doublings = (waiting / BATCHES_PER_DOUBLING).min(DOUBLINGS_MAX);
    if waiting == 0 { AGE_MS } else { AGE_MS_IF_OTHERS_WAIT << doublings }
}

/// Returns whether `every` has passed since `last`, and restarts the time then.
pub(super) fn is_due(last: &mut Option<Instant>, every: Duration) -> bool {
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

#[cfg(test)]
mod tests {
    use shoal_base::{Credit, CreditProtocol, Event, InfoHash, PeerId, Subject, Transfer};

    use super::super::disk::disk;
    use super::*;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    fn credit() -> Credit {
        Credit {
            subject: Subject::new("user-1234567").unwrap(),
            info_hash: InfoHash([1; 20]),
            peer_id: Some(PeerId([2; 20])),
            event: Event::Update,
            protocol: CreditProtocol::Udp,
            transfer: Transfer { uploaded: Some(3 << 30), downloaded: Some(5 << 30), left: Some(0) },
        }
    }

    #[test]
    fn days_of_a_few_announces_find_room_while_the_stream_is_away() {
        let directory = tempfile::tempdir().unwrap();
        let state = CreditLink::away();
        let journal = Journal::new(directory.path().to_owned(), NodeId(1));
        let (_disk, link) = disk(Arc::clone(&state), directory.path().to_owned(), NodeId(1));
        let node = (NodeId(1), "a".to_owned());
        let mut collector = Collector::new(Arc::clone(&state), node, Vec::new(), Some((journal, link)));
        let record = |unix_ms| CreditRecord { unix_ms, credit: credit() };
        // Three days of two announces a second.
        let end_ms = 3 * DAY_MS;
        let mut ended = 0;
        for ms in (0..end_ms).step_by(500) {
            collector.add(&record(ms), ms);
            collector.turn(ms, ms);
            ended = ended.max(ms - collector.filling.since_ms);
        }
        let stats = state.stats();
        assert_eq!((stats.waiting, stats.lost.values().sum::<u64>()), (end_ms / 500, 0));
        assert!(collector.waiting.batches.len() < BATCHES_MAX / 4 * 3);
        assert!(ended <= 33_000, "a crash would lose {ended} ms");
    }

    #[test]
    fn batches_end_sooner_while_few_wait() {
        let ages = [0, 1, BATCHES_PER_DOUBLING, BATCHES_MAX - 1, 2 * BATCHES_MAX].map(age_ms_max);
        assert_eq!(ages, [AGE_MS, 1000, 2000, 128_000, 128_000]);
    }

    #[test]
    fn the_records_that_wait_are_counted_as_batches_come_and_go() {
        let mut queue = Queue::default();
        for records in 1..=3 {
            queue.push(Waiting::Held { sequence: records.into(), records, payload: Bytes::new() });
        }
        assert_eq!(queue.records, 6);
        queue.pop();
        assert_eq!(queue.records, 5);
        while queue.pop().is_some() {}
        assert_eq!(queue.records, 0);
    }
}
