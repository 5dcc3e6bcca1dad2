//! The journal: batches of credit that the stream does not have yet, in files of the state's directory.
//!
//! Each run of the tracker writes its own segments, `credit-RUN-NUMBER`, and locks them. Segments of ended runs are
//! adopted ([`super::adopt`]). A segment grows until the stream has all of its batches. Then it is emptied, or removed
//! if another segment follows. [`crate::protocol::decode_segment`] has its format.
//!
//! A killed process loses nothing that was appended. A failing host may lose what was appended within its last second.
//! The caller lets another thread wait for the disk, see [`Journal::take_unsynced`].
//!
//! Batches of an earlier run keep their run, so the number of the last batch need not survive a crash. Files are never
//! overwritten. Locks let the next run take the files of ended runs, and during an upgrade each process has its own.
//! After a damaged entry, the next batch is found by its length, or by the run in its head, which no client knows.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::{
    NodeId, SEGMENT_ENTRY_HEAD_BYTES, SEGMENT_HEAD_BYTES, SegmentBatch, SegmentEntry, decode_segment_entry,
    encode_segment_entry, encode_segment_head,
};
use rustix::fs::{FlockOperation, OFlags, flock};
use tokio::time::Instant;

use super::adopt::AdoptedSegment;
use shoal_runtime::repeated::Repeated;

const SEGMENT_BYTES_MAX: usize = 8 << 20;

/// Maximum size of a segment in bytes when it is read: notes may follow its last batch.
pub(super) const READ_BYTES_MAX: usize = SEGMENT_BYTES_MAX + SEGMENT_BYTES_MAX / 4;

/// Maximum size of all segments together.
pub(super) const JOURNAL_BYTES_MAX: u64 = 256 << 20;

/// The mode of the files. They name users.
pub(super) const MODE: u32 = 0o600;

/// The names of segments, and of segments in creation.
pub(super) const PREFIX: &str = "credit-";
pub(super) const NEW_PREFIX: &str = "new-credit-";

/// The files of this run and those that it has adopted.
#[derive(Debug)]
pub(super) struct Journal {
    directory: PathBuf,
    run: NodeId,
    segments: BTreeMap<u64, Segment>,
    bytes: u64,
    /// The segment to which this run appends, and the numbers of the next key and the next file.
    open: Option<u64>,
    next_key: u64,
    next_number: u64,
    /// Whether the disk may lack the name of a segment.
    has_unsynced_name: bool,
    removal_faults: Repeated,
}

#[derive(Debug)]
struct Segment {
    file: Arc<File>,
    path: PathBuf,
    bytes: u64,
    /// Batches that the stream does not have.
    waiting: usize,
    is_synced: bool,
}

/// A batch in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournaledBatch {
    pub(super) run: NodeId,
    pub(super) sequence: u64,
    pub(super) records: u32,
    length: usize,
    key: u64,
    /// The offset of the batch's entry.
    offset: u64,
}

/// The files that may need a sync.
#[derive(Debug)]
pub(super) struct Unsynced {
    segments: Vec<(u64, Arc<File>)>,
    /// The directory, if it has a new name.
    directory: Option<PathBuf>,
}

/// The outcome of [`Unsynced::sync`].
#[derive(Debug, Default)]
pub(super) struct Synced {
    /// The segments and the directory that still need a sync.
    failed: Vec<u64>,
    has_unsynced_name: bool,
    /// The last error.
    pub(super) error: Option<io::Error>,
}

impl Journal {
    pub(super) fn new(directory: PathBuf, run: NodeId) -> Self {
        Self {
            directory,
            run,
            segments: BTreeMap::new(),
            bytes: 0,
            open: None,
            next_key: 0,
            next_number: 0,
            has_unsynced_name: false,
            removal_faults: Repeated::default(),
        }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes segments of ended runs. Returns their batches in the same order.
    pub(super) fn insert_adopted(&mut self, adopted: Vec<AdoptedSegment>) -> Vec<JournaledBatch> {
        let mut batches = Vec::new();
        for AdoptedSegment { file, path, bytes, contents } in adopted {
            let waiting = contents.batches.len();
            let key = self.insert(Segment { file: Arc::new(file), path, bytes, waiting, is_synced: true });
            let journaled = |SegmentBatch { sequence, records, offset, length }| JournaledBatch {
                run: contents.run,
                sequence,
                records,
                length,
                key,
                offset: offset as u64,
            };
            batches.extend(contents.batches.into_iter().map(journaled));
        }
        batches
    }

    /// Appends a batch of this run, unless the journal is full.
    pub(super) fn append(
        &mut self,
        sequence: u64,
        records: u32,
        batch: &[u8],
    ) -> io::Result<Option<JournaledBatch>> {
        let entry_bytes = (SEGMENT_ENTRY_HEAD_BYTES + batch.len()) as u64;
        if self.bytes + entry_bytes > JOURNAL_BYTES_MAX {
            return Ok(None);
        }
        let key = self.open_for(entry_bytes)?;
        let offset = self.change(key, |segment| {
            let offset = segment.bytes;
            segment.append(&SegmentEntry { sequence, records, batch })?;
            segment.waiting += 1;
            Ok(offset)
        })?;
        let run = self.run;
        Ok(Some(JournaledBatch { run, sequence, records, length: batch.len(), key, offset }))
    }

    /// Returns the key of this run's segment with room for an entry.
    fn open_for(&mut self, entry_bytes: u64) -> io::Result<u64> {
        let has_room = |segment: &Segment| segment.bytes + entry_bytes <= SEGMENT_BYTES_MAX as u64;
        if let Some(key) = self.open.filter(|key| self.segments.get(key).is_some_and(has_room)) {
            return Ok(key);
        }
        let path = self.directory.join(format!("{PREFIX}{}-{:08}", self.run, self.next_number));
        let new = self.directory.join(format!("{NEW_PREFIX}{}", self.run));
        let file = create_locked(&new, &encode_segment_head(self.run, shoal_runtime::clock::unix_ms()))?;
        self.next_number += 1;
        fs::rename(&new, &path)?;
        self.has_unsynced_name = true;
        let bytes = SEGMENT_HEAD_BYTES as u64;
        let key = self.insert(Segment { file: Arc::new(file), path, bytes, waiting: 0, is_synced: false });
        if let Some(before) = self.open.replace(key)
            && self.segments.get(&before).is_some_and(|segment| segment.waiting == 0)
        {
            self.remove(before);
        }
        Ok(key)
    }

    /// Reads a batch. The error is the error of the file system, or that the file has another content.
    pub(super) fn read(&self, batch: &JournaledBatch) -> io::Result<Vec<u8>> {
        let segment = self.segments.get(&batch.key).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; SEGMENT_ENTRY_HEAD_BYTES + batch.length];
        segment.file.read_exact_at(&mut bytes, batch.offset)?;
        match decode_segment_entry(&bytes) {
            Some(entry) if (entry.sequence, entry.batch.len()) == (batch.sequence, batch.length) => {
                Ok(bytes.split_off(SEGMENT_ENTRY_HEAD_BYTES))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Notes that the stream has this batch, the first of the waiting ones.
    pub(super) fn settle(&mut self, batch: &JournaledBatch) {
        let JournaledBatch { key, sequence, .. } = *batch;
        let Some(segment) = self.segments.get_mut(&key) else { return };
        segment.waiting = segment.waiting.saturating_sub(1);
        let is_done = segment.waiting == 0;
        if is_done && self.open != Some(key) {
            return self.remove(key);
        }
        let settled = self.change(key, |segment| {
            if is_done {
                segment.clear()
            } else {
                segment.append(&SegmentEntry { sequence, records: 0, batch: &[] })
            }
        });
        if let Err(error) = settled {
            // After a restart, the batch is sent again with the same message id.
            tracing::debug!(%error, "a file of credit cannot be written");
        }
    }

    /// Returns the files with waiting batches that need a sync, for a thread that may wait for the disk. To be called
    /// once a second.
    pub(super) fn take_unsynced(&mut self) -> Option<Unsynced> {
        let unsynced =
            self.segments.iter_mut().filter(|(_, segment)| segment.waiting > 0 && !segment.is_synced);
        let take = |(key, segment): (&u64, &mut Segment)| {
            segment.is_synced = true;
            (*key, Arc::clone(&segment.file))
        };
        let segments: Vec<_> = unsynced.map(take).collect();
        let directory = core::mem::take(&mut self.has_unsynced_name).then(|| self.directory.clone());
        (!segments.is_empty() || directory.is_some()).then_some(Unsynced { segments, directory })
    }

    /// Notes the files that still need a sync.
    pub(super) fn note_synced(&mut self, synced: &Synced) {
        self.has_unsynced_name |= synced.has_unsynced_name;
        for key in &synced.failed {
            if let Some(segment) = self.segments.get_mut(key) {
                segment.is_synced = false;
            }
        }
    }

    /// Removes the segment of this run at the end, if no batch waits in it.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.open.take()
            && self.segments.get(&open).is_some_and(|segment| segment.waiting == 0)
        {
            self.remove(open);
        }
    }

    fn insert(&mut self, segment: Segment) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.bytes += segment.bytes;
        self.segments.insert(key, segment);
        key
    }

    /// Changes a segment, and updates the total size.
    fn change<R>(&mut self, key: u64, change: impl FnOnce(&mut Segment) -> io::Result<R>) -> io::Result<R> {
        let segment = self.segments.get_mut(&key).ok_or(io::ErrorKind::NotFound)?;
        let before = segment.bytes;
        let changed = change(segment);
        self.bytes = self.bytes - before + segment.bytes;
        changed
    }

    fn remove(&mut self, key: u64) {
        let Some(mut segment) = self.segments.remove(&key) else { return };
        self.bytes -= segment.bytes;
        // A run that still finds the file has nothing to send.
        let emptied = segment.clear();
        if let Err(error) = fs::remove_file(&segment.path).and(emptied)
            && let Some(unlogged) = self.removal_faults.note(Instant::now())
        {
            let file = segment.path.display();
            tracing::warn!(%file, %error, unlogged, "a file of credit cannot be removed");
        }
    }
}

impl Segment {
    /// Appends an entry, or nothing.
    fn append(&mut self, entry: &SegmentEntry<'_>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(SEGMENT_ENTRY_HEAD_BYTES + entry.batch.len());
        encode_segment_entry(entry, &mut bytes);
        if let Err(error) = self.file.write_all_at(&bytes, self.bytes) {
            // The partial entry ends the file, and the next entry replaces it.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        self.is_synced = false;
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.bytes = SEGMENT_HEAD_BYTES as u64;
        self.file.set_len(self.bytes)
    }
}

impl Unsynced {
    /// Syncs the files as far as possible.
    pub(super) fn sync(self) -> Synced {
        let mut synced = Synced::default();
        for (key, file) in self.segments {
            if let Err(error) = file.sync_data() {
                synced.failed.push(key);
                synced.error = Some(error);
            }
        }
        let directory = self.directory.map(|directory| File::open(directory)?.sync_all());
        if let Some(Err(error)) = directory {
            synced.has_unsynced_name = true;
            synced.error = Some(error);
        }
        synced
    }
}

/// Creates a file with this content. The caller renames it afterwards: another run must not find a segment before it is
/// locked and has its head.
pub(super) fn create_locked(path: &Path, content: &[u8]) -> io::Result<File> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true);
    let file = options.mode(MODE).custom_flags(no_follow).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all_at(content, 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use crate::protocol::CREDIT_BATCH_BYTES_MAX;

    use super::*;

    fn append(journal: &mut Journal, sequence: u64, batch: &[u8]) -> JournaledBatch {
        journal.append(sequence, 1, batch).unwrap().expect("there is room")
    }

    fn files(directory: &Path) -> usize {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with(PREFIX)).count()
    }

    /// The size of the journal as the files have it.
    fn size(journal: &Journal) -> u64 {
        journal.segments.values().map(|segment| segment.file.metadata().unwrap().len()).sum()
    }

    #[test]
    fn a_segment_is_emptied_when_nothing_waits() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(directory.path().to_owned(), NodeId(1));
        for sequence in 0..1000 {
            let batch = append(&mut journal, sequence, &[1; 50_000]);
            assert_eq!(journal.read(&batch).unwrap(), [1; 50_000]);
            assert_eq!(journal.bytes(), size(&journal));
            journal.settle(&batch);
            assert_eq!(
                (journal.bytes(), size(&journal)),
                (SEGMENT_HEAD_BYTES as u64, SEGMENT_HEAD_BYTES as u64)
            );
        }
        assert_eq!(files(directory.path()), 1);
        journal.close();
        assert_eq!((files(directory.path()), journal.bytes()), (0, 0));
    }

    #[test]
    fn segments_are_bounded_and_so_is_the_journal() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(directory.path().to_owned(), NodeId(1));
        let batch = vec![1; CREDIT_BATCH_BYTES_MAX];
        let mut batches = Vec::new();
        while let Some(appended) = journal.append(batches.len() as u64 + 1, 1, &batch).unwrap() {
            batches.push(appended);
        }
        assert!(journal.bytes() <= JOURNAL_BYTES_MAX && journal.bytes() > JOURNAL_BYTES_MAX / 10 * 9);
        assert_eq!(journal.bytes(), size(&journal));
        assert!(files(directory.path()) > 30);
        batches.iter().for_each(|batch| journal.settle(batch));
        assert_eq!((files(directory.path()), journal.bytes()), (1, size(&journal)));
        append(&mut journal, 9999, &batch);
    }

    #[test]
    fn a_batch_that_has_changed_in_its_file_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(directory.path().to_owned(), NodeId(1));
        let batches: Vec<_> = (1..=2).map(|sequence| append(&mut journal, sequence, &[7; 99])).collect();
        let path = directory.path().join("credit-0000000000000001-00000000");
        let mut bytes = fs::read(&path).unwrap();
        bytes[SEGMENT_HEAD_BYTES + SEGMENT_ENTRY_HEAD_BYTES + 50] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(journal.read(&batches[0]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(journal.read(&batches[1]).unwrap(), [7; 99]);
    }

    #[test]
    fn a_file_that_cannot_be_removed_has_no_batches_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(directory.path().to_owned(), NodeId(1));
        let batch = append(&mut journal, 1, &[7; 99]);
        let (path, linked) =
            (directory.path().join("credit-0000000000000001-00000000"), directory.path().join("linked"));
        fs::hard_link(&path, &linked).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        // The next segment is open, so this one is to be removed.
        journal.open = None;
        journal.settle(&batch);
        assert_eq!(fs::read(linked).unwrap().len(), SEGMENT_HEAD_BYTES);
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_cannot_be_synced_keeps_no_other_from_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(directory.path().to_owned(), NodeId(1));
        append(&mut journal, 1, &[7; 99]);
        let key = journal.open.take().unwrap();
        append(&mut journal, 2, &[7; 99]);
        // A pipe has no disk.
        let (reader, _writer) = io::pipe().unwrap();
        journal.segments.get_mut(&key).unwrap().file = Arc::new(std::os::fd::OwnedFd::from(reader).into());
        let synced = journal.take_unsynced().unwrap().sync();
        assert_eq!(synced.failed, [key]);
        assert!(synced.error.is_some() && !synced.has_unsynced_name);
        journal.note_synced(&synced);
        let states: Vec<bool> = journal.segments.values().map(|segment| segment.is_synced).collect();
        assert_eq!(states, [false, true]);
        append(&mut journal, 3, &[7; 99]);
        assert_eq!(journal.take_unsynced().unwrap().segments.len(), 2);
    }
}
