//! The spool: batches of credit that the stream does not have yet, in files of the directory of the state.
//!
//! Each run of the tracker writes segments of its own, `credit-RUN-NUMBER`, and locks them. A segment that it finds unlocked is of an
//! earlier run, and is sent first. A segment begins with a head; entries follow, each with its checksum. An entry is a batch, or
//! if it is empty, a note that the stream has the batches up to its number. So the file is only appended to, until all of its
//! batches are in the stream: then it is emptied, or removed if another segment follows.
//!
//! A process that is killed loses nothing that was appended. If the host fails, what was appended within the last second before
//! may be lost, see [`Spool::sync`].

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use shoal_cluster::{CREDIT_BATCH_BYTES_MAX, NodeId};

/// Maximum size of a segment in bytes.
const SEGMENT_BYTES_MAX: u64 = 8 << 20;

/// Maximum size of all segments together.
pub(super) const SPOOL_BYTES_MAX: u64 = 256 << 20;

/// The mode of the files, which name users.
const MODE: u32 = 0o600;

/// The beginning of a segment: with its version, the run, its number, and the time of its creation.
const MAGIC: [u8; 8] = *b"shoalcr1";
const HEAD_BYTES: usize = MAGIC.len() + 8 + 8 + 4;

/// The beginning of an entry: its length, the checksum of the rest, the number of the batch, and that of its records.
const ENTRY_HEAD_BYTES: usize = 4 + 4 + 8 + 4;

/// The names of segments, and the one of the last segment that was damaged.
const PREFIX: &str = "credit-";
const DAMAGED: &str = "credit.damaged";

/// The name of a segment that is being created.
const NEW_PREFIX: &str = "new-credit-";

/// The files of this run and of earlier ones.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    run: NodeId,
    segments: BTreeMap<u64, Segment>,
    /// The segment of this run that is appended to, and the numbers of the next key and the next file.
    open: Option<u64>,
    next_key: u64,
    next_number: u64,
}

/// A file.
#[derive(Debug)]
struct Segment {
    file: File,
    /// None if it stays when its batches are in the stream, because it is damaged.
    path: Option<PathBuf>,
    bytes: u64,
    /// Batches that the stream does not have.
    waiting: usize,
    is_synced: bool,
}

/// A batch in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpooledBatch {
    pub(super) run: NodeId,
    pub(super) sequence: u64,
    pub(super) records: u32,
    pub(super) length: usize,
    key: u64,
    offset: u64,
}

/// The content of a segment.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    run: NodeId,
    created_unix_ms: u64,
    batches: Vec<Entry>,
    is_damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    sequence: u64,
    records: u32,
    offset: u64,
    length: usize,
}

impl Spool {
    pub(super) const fn new(directory: PathBuf, run: NodeId) -> Self {
        Self { directory, run, segments: BTreeMap::new(), open: None, next_key: 0, next_number: 0 }
    }

    /// Returns the size of all segments in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// Takes the segments of other runs over that have ended. Returns their batches, from the oldest on.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub(super) fn adopt(&mut self) -> io::Result<Vec<SpooledBatch>> {
        let own = format!("{PREFIX}{}-", self.run);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_other =
                name.to_str().is_some_and(|name| name.starts_with(PREFIX) && !name.starts_with(&own));
            let is_known = self.segments.values().any(|segment| segment.path.as_ref() == Some(&entry.path()));
            if is_other
                && !is_known
                && let Some((segment, contents)) = self.open_other(&entry.path())
            {
                found.push((contents.created_unix_ms, name, segment, contents));
            }
        }
        found.sort_by(|(time, name, ..), (other_time, other_name, ..)| {
            (time, name).cmp(&(other_time, other_name))
        });
        let mut batches = Vec::new();
        for (_, name, segment, contents) in found {
            let Contents { run, batches: entries, .. } = contents;
            tracing::info!(file = ?name, batches = entries.len(), "credit of an earlier run will be sent");
            let key = self.insert(segment);
            let spooled = |Entry { sequence, records, offset, length }| SpooledBatch {
                run,
                sequence,
                records,
                length,
                key,
                offset,
            };
            batches.extend(entries.into_iter().map(spooled));
        }
        Ok(batches)
    }

    /// Opens a segment of another run. Returns `None` if that run has not ended, or the segment has nothing to send.
    fn open_other(&self, path: &Path) -> Option<(Segment, Contents)> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let opened = opened.and_then(|file| {
            let metadata = file.metadata()?;
            if metadata.is_file() {
                Ok((file, metadata.len()))
            } else {
                Err(io::Error::other("it is no file"))
            }
        });
        let (file, bytes) = match opened {
            Ok(opened) => opened,
            // The run that it belongs to has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "a file of credit cannot be opened");
                return None;
            }
        };
        // The run that has the lock goes on, or another thread has removed the file meanwhile.
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let contents = read_segment(&file, bytes);
        let is_damaged = contents.as_ref().is_none_or(|contents| contents.is_damaged);
        if is_damaged {
            let moved = fs::rename(path, self.directory.join(DAMAGED));
            let readable = contents.as_ref().map_or(0, |contents| contents.batches.len());
            tracing::error!(
                file = %path.display(), moved_to = DAMAGED, was_moved = moved.is_ok(), batches = readable,
                "a file of credit is damaged: the batches before the damage will be sent, the others are lost"
            );
        }
        let contents = contents?;
        let waiting = contents.batches.len();
        if waiting == 0 {
            if !is_damaged {
                remove(path);
            }
            return None;
        }
        let path = (!is_damaged).then(|| path.to_owned());
        Some((Segment { file, path, bytes, waiting, is_synced: true }, contents))
    }

    /// Appends a batch of this run.
    ///
    /// # Errors
    /// Returns the error of the file system, or that there is no room.
    pub(super) fn append(&mut self, sequence: u64, records: u32, batch: &[u8]) -> io::Result<SpooledBatch> {
        let entry_bytes = (ENTRY_HEAD_BYTES + batch.len()) as u64;
        if self.bytes() + entry_bytes > SPOOL_BYTES_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let key = self.open_for(entry_bytes)?;
        let segment = self.segments.get_mut(&key).ok_or(io::ErrorKind::NotFound)?;
        let offset = segment.bytes + ENTRY_HEAD_BYTES as u64;
        segment.append(sequence, records, batch)?;
        segment.waiting += 1;
        Ok(SpooledBatch { run: self.run, sequence, records, length: batch.len(), key, offset })
    }

    /// Returns the key of a segment of this run with room for so many bytes.
    fn open_for(&mut self, entry_bytes: u64) -> io::Result<u64> {
        let has_room = |segment: &Segment| segment.bytes + entry_bytes <= SEGMENT_BYTES_MAX;
        if let Some(key) = self.open.filter(|key| self.segments.get(key).is_some_and(has_room)) {
            return Ok(key);
        }
        let path = self.directory.join(format!("{PREFIX}{}-{:08}", self.run, self.next_number));
        // Another run must not find the file before it is locked and has its head.
        let new = self.directory.join(format!("{NEW_PREFIX}{}", self.run));
        let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options.mode(MODE).custom_flags(no_follow).open(&new)?;
        self.next_number += 1;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let head = encode_head(self.run, crate::clock::unix_ms());
        file.write_all_at(&head, 0)?;
        fs::rename(&new, &path)?;
        let bytes = HEAD_BYTES as u64;
        let key = self.insert(Segment { file, path: Some(path), bytes, waiting: 0, is_synced: false });
        if let Some(before) = self.open.replace(key)
            && self.segments.get(&before).is_some_and(|segment| segment.waiting == 0)
        {
            self.remove(before);
        }
        Ok(key)
    }

    /// Reads a batch.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub(super) fn read(&self, batch: &SpooledBatch) -> io::Result<Vec<u8>> {
        let segment = self.segments.get(&batch.key).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; batch.length];
        segment.file.read_exact_at(&mut bytes, batch.offset)?;
        Ok(bytes)
    }

    /// Notes that the stream has a batch, the first of those that wait.
    pub(super) fn settle(&mut self, batch: &SpooledBatch) {
        let is_open = self.open == Some(batch.key);
        let Some(segment) = self.segments.get_mut(&batch.key) else { return };
        segment.waiting = segment.waiting.saturating_sub(1);
        let settled = match (segment.waiting, is_open) {
            (0, true) => segment.file.set_len(HEAD_BYTES as u64).map(|()| segment.bytes = HEAD_BYTES as u64),
            (0, false) => return self.remove(batch.key),
            _ => segment.append(batch.sequence, 0, &[]),
        };
        if let Err(error) = settled {
            // The batch is sent again after a restart, with the same message id.
            tracing::debug!(%error, "a file of credit cannot be written");
        }
    }

    /// Lets the disk have what waits. To be called once a second.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        for segment in self.segments.values_mut().filter(|segment| segment.waiting > 0 && !segment.is_synced)
        {
            segment.file.sync_data()?;
            segment.is_synced = true;
        }
        Ok(())
    }

    /// Removes the segment of this run if nothing waits in it, at the end.
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
        self.segments.insert(key, segment);
        key
    }

    fn remove(&mut self, key: u64) {
        if let Some(Segment { path: Some(path), .. }) = self.segments.remove(&key) {
            remove(&path);
        }
    }
}

impl Segment {
    /// Appends an entry, or nothing.
    fn append(&mut self, sequence: u64, records: u32, batch: &[u8]) -> io::Result<()> {
        let mut entry = Vec::with_capacity(ENTRY_HEAD_BYTES + batch.len());
        encode_entry(sequence, records, batch, &mut entry);
        if let Err(error) = self.file.write_all_at(&entry, self.bytes) {
            // The part of it that was written ends the file, and the next entry replaces it.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += entry.len() as u64;
        self.is_synced = false;
        Ok(())
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(file = %path.display(), %error, "a file of credit cannot be removed");
    }
}

fn encode_head(run: NodeId, created_unix_ms: u64) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&run.0.to_le_bytes());
    head.extend_from_slice(&created_unix_ms.to_le_bytes());
    let checksum = crc32fast::hash(&head);
    head.extend_from_slice(&checksum.to_le_bytes());
    head
}

fn encode_entry(sequence: u64, records: u32, batch: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(batch.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let content = out.len();
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&records.to_le_bytes());
    out.extend_from_slice(batch);
    let checksum = checksum(length, &out[content..]);
    out[content - 4..content].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the checksum of an entry.
fn checksum(length: u32, content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

/// Reads a segment, or returns `None` if it has no head.
fn read_segment(file: &File, bytes: u64) -> Option<Contents> {
    // A note of the last batch may exceed the size.
    let bytes_max = SEGMENT_BYTES_MAX + SEGMENT_BYTES_MAX / 4;
    let mut content = vec![0; usize::try_from(bytes.min(bytes_max)).ok()?];
    file.read_exact_at(&mut content, 0).ok()?;
    let mut contents = parse(&content)?;
    contents.is_damaged |= bytes > bytes_max;
    Some(contents)
}

/// Reads the content of a segment. An entry that ends early was being written when the process or the host ended, and so were
/// zeros in its place.
fn parse(bytes: &[u8]) -> Option<Contents> {
    let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let word = |at: usize| head.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    let (run, created_unix_ms) = (NodeId(word(8)?), word(16)?);
    if head != encode_head(run, created_unix_ms) {
        return None;
    }
    let mut contents = Contents { run, created_unix_ms, batches: Vec::new(), is_damaged: false };
    let mut settled = 0;
    while let Some((entry_head, content)) = rest.split_at_checked(ENTRY_HEAD_BYTES) {
        let number = |at: usize| {
            entry_head.get(at..at + 4).and_then(|number| number.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let (length, sum, records) = (number(0), number(4), number(16));
        let sequence = u64::from(number(8)) | u64::from(number(12)) << u32::BITS;
        let is_too_long = length as usize > CREDIT_BATCH_BYTES_MAX;
        let Some((batch, after)) = content.split_at_checked(length as usize).filter(|_| !is_too_long) else {
            contents.is_damaged = is_too_long;
            break;
        };
        if checksum(length, &rest[8..ENTRY_HEAD_BYTES + batch.len()]) != sum {
            contents.is_damaged = rest.iter().any(|&byte| byte != 0);
            break;
        }
        if batch.is_empty() {
            settled = settled.max(sequence);
        } else {
            let offset = (bytes.len() - content.len()) as u64;
            contents.batches.push(Entry { sequence, records, offset, length: batch.len() });
        }
        rest = after;
    }
    contents.batches.retain(|entry| entry.sequence > settled);
    Some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> usize {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with(PREFIX)).count()
    }

    /// Reads all batches of runs that have ended.
    fn adopt(directory: &Path, run: u64) -> (Spool, Vec<(u64, u64, Vec<u8>)>) {
        let mut spool = Spool::new(directory.to_owned(), NodeId(run));
        let batches = spool.adopt().unwrap();
        let read = |batch: &SpooledBatch| (batch.run.0, batch.sequence, spool.read(batch).unwrap());
        let read = batches.iter().map(read).collect();
        (spool, read)
    }

    #[test]
    fn batches_that_wait_are_there_in_the_next_run_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(directory.path().to_owned(), NodeId(1));
        let batches: Vec<_> = (1..=5).map(|sequence| spool.append(sequence, 1, &[7; 9]).unwrap()).collect();
        spool.sync().unwrap();
        batches[..2].iter().for_each(|batch| spool.settle(batch));
        let (_, of_running) = adopt(directory.path(), 2);
        assert_eq!(of_running, [], "the run goes on");
        drop(spool);
        let (mut spool, found) = adopt(directory.path(), 2);
        assert_eq!(found, [3, 4, 5].map(|sequence| (1, sequence, vec![7; 9])));
        assert_eq!(spool.adopt().unwrap().len(), 0, "each segment is adopted once");
        drop(spool);
        let (mut spool, _) = adopt(directory.path(), 3);
        let again = spool.segments.keys().copied().collect::<Vec<_>>();
        assert_eq!(again.len(), 1);
        drop(spool);
        spool = Spool::new(directory.path().to_owned(), NodeId(4));
        let batches = spool.adopt().unwrap();
        batches.iter().for_each(|batch| spool.settle(batch));
        assert_eq!((files(directory.path()), spool.bytes()), (0, 0));
    }

    #[test]
    fn a_segment_is_emptied_when_nothing_waits() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(directory.path().to_owned(), NodeId(1));
        for sequence in 0..1000 {
            let batch = spool.append(sequence, 1, &[1; 50_000]).unwrap();
            assert_eq!(spool.read(&batch).unwrap(), [1; 50_000]);
            spool.settle(&batch);
            assert_eq!(spool.bytes(), HEAD_BYTES as u64);
        }
        assert_eq!(files(directory.path()), 1);
        spool.close();
        assert_eq!(files(directory.path()), 0);
    }

    #[test]
    fn segments_are_bounded_and_so_is_the_spool() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(directory.path().to_owned(), NodeId(1));
        let batch = vec![1; CREDIT_BATCH_BYTES_MAX];
        let mut batches = Vec::new();
        let full = loop {
            match spool.append(batches.len() as u64 + 1, 1, &batch) {
                Ok(appended) => batches.push(appended),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(spool.bytes() <= SPOOL_BYTES_MAX && spool.bytes() > SPOOL_BYTES_MAX / 10 * 9);
        assert!(files(directory.path()) > 30);
        batches.iter().for_each(|batch| spool.settle(batch));
        assert_eq!(files(directory.path()), 1);
        assert!(spool.append(9999, 1, &batch).is_ok());
    }

    #[test]
    fn damage_is_moved_aside_and_what_is_before_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(directory.path().to_owned(), NodeId(1));
        for sequence in 1..=3 {
            spool.append(sequence, 1, &[7; 9]).unwrap();
        }
        drop(spool);
        let path = directory.path().join("credit-0000000000000001-00000000");
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        fs::write(directory.path().join("credit-zz"), "garbage").unwrap();
        let (mut spool, found) = adopt(directory.path(), 2);
        assert_eq!(found, [1, 2].map(|sequence| (1, sequence, vec![7; 9])));
        assert!(directory.path().join(DAMAGED).exists());
        assert_eq!(files(directory.path()), 0);
        assert_eq!(spool.adopt().unwrap().len(), 0);
    }

    #[test]
    fn a_segment_that_ends_early_has_the_batches_before() {
        let mut bytes = encode_head(NodeId(3), 4);
        let mut ends = vec![bytes.len()];
        for sequence in 1..=4 {
            encode_entry(sequence, 1, &[5; 11], &mut bytes);
            ends.push(bytes.len());
        }
        for length in HEAD_BYTES..=bytes.len() {
            let contents = parse(&bytes[..length]).unwrap();
            let whole = ends.iter().filter(|&&end| end <= length).count() - 1;
            assert_eq!((contents.batches.len(), contents.is_damaged), (whole, false), "{length} bytes");
        }
        for zeros in 1..100 {
            let with_zeros = [&*bytes, &vec![0; zeros]].concat();
            let contents = parse(&with_zeros).unwrap();
            assert_eq!((contents.batches.len(), contents.is_damaged), (4, false), "{zeros} zeros");
        }
    }

    #[test]
    fn garbage_never_panics() {
        let mut rng = fastrand::Rng::with_seed(17);
        for round in 0..20_000 {
            let mut bytes = if rng.bool() { encode_head(NodeId(1), 2) } else { Vec::new() };
            if rng.bool() {
                encode_entry(1, 1, &[3; 30], &mut bytes);
            }
            bytes.extend(std::iter::repeat_with(|| rng.u8(..)).take(round % 60));
            if !bytes.is_empty() && rng.bool() {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u8(..8);
            }
            if let Some(contents) = parse(&bytes) {
                let end = |entry: &Entry| usize::try_from(entry.offset).unwrap() + entry.length;
                assert!(contents.batches.iter().all(|entry| end(entry) <= bytes.len()));
            }
        }
    }
}
