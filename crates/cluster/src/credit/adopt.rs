//! Adoption: takes over the segments of ended runs, and mends them.
//!
//! An unlocked segment belongs to an ended run. A run is adopted as a whole, so that its batches are sent in order: if
//! one of its segments is locked or cannot be read at present, all of them stay for the next attempt.
//!
//! The bytes after the last whole entry are cut off, since new entries will follow there. A damaged segment is copied
//! to [`DAMAGED`], and replaced by one with its readable batches.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::protocol::{
    NodeId, SegmentContents, decode_segment, decode_segment_entry, encode_segment_entry, encode_segment_head,
};
use rustix::fs::{FlockOperation, OFlags, flock};
use tokio::time::Instant;

use super::journal::{MODE, NEW_PREFIX, PREFIX, READ_BYTES_MAX, create_locked};
use shoal_runtime::repeated::Repeated;
use shoal_runtime::replace_file;

/// The name of a copy of the last segment that was damaged.
pub(super) const DAMAGED: &str = "credit.damaged";

#[derive(Debug)]
pub(super) struct Adopter {
    directory: PathBuf,
    /// The run of this process.
    run: NodeId,
    faults: Repeated,
}

/// A segment of an ended run, with batches that the stream does not have.
#[derive(Debug)]
pub(super) struct AdoptedSegment {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) contents: SegmentContents,
}

#[derive(Debug, Default)]
pub(super) struct Adopted {
    /// The segments, in the order in which their batches must be sent.
    pub(super) segments: Vec<AdoptedSegment>,
    /// The approximate number of records that were lost in damaged files.
    pub(super) lost_records: u64,
}

/// The files of each run by the number in their names. A file with another name counts as a separate run.
type Runs = BTreeMap<String, BTreeMap<u64, PathBuf>>;

impl Adopter {
    pub(super) fn new(directory: PathBuf, run: NodeId) -> Self {
        Self { directory, run, faults: Repeated::default() }
    }

    /// Takes over the segments of ended runs, until `is_leaving`: then the rest stays for the next run.
    pub(super) fn adopt(&mut self, is_leaving: impl Fn() -> bool) -> Adopted {
        let mut adopted = Adopted::default();
        let runs = match self.runs() {
            Ok(runs) => runs,
            Err(error) => {
                note(&mut self.faults, &self.directory, &error);
                return adopted;
            }
        };
        let mut ended = Vec::new();
        for files in runs.into_values() {
            let mut segments = Vec::new();
            for (file, path) in self.lock(files) {
                if is_leaving() {
                    return adopted;
                }
                match self.read(file, &path, &mut adopted.lost_records) {
                    Ok(segment) => segments.extend(segment),
                    Err(error) => {
                        note(&mut self.faults, &path, &error);
                        segments.clear();
                        break;
                    }
                }
            }
            ended.push(segments);
        }
        ended.sort_by_key(|run| run.iter().map(|segment| segment.contents.created_unix_ms).min());
        adopted.segments = ended.into_iter().flatten().collect();
        for AdoptedSegment { path, contents, .. } in &adopted.segments {
            let (file, batches) = (path.display(), contents.batches.len());
            tracing::info!(%file, batches, "credit of an earlier run will be sent");
        }
        adopted
    }

    /// Finds the segments of other runs, and removes the unfinished files of ended ones.
    fn runs(&self) -> io::Result<Runs> {
        let mut runs = Runs::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let own = self.run.to_string();
            if let Some(name) = name.strip_prefix(PREFIX) {
                let numbered =
                    name.split_once('-').and_then(|(run, number)| Some((run, number.parse().ok()?)));
                let (run, number) = numbered.unwrap_or((name, 0));
                if run != own {
                    runs.entry(run.to_owned()).or_default().insert(number, entry.path());
                }
            } else if name.strip_prefix(NEW_PREFIX).is_some_and(|name| !name.starts_with(&own))
                && open(&entry.path()).is_ok_and(|file| is_unlocked(&file))
            {
                // A later attempt follows if the file cannot be removed.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(runs)
    }

    /// Opens and locks all files of a run. Returns none of them if the run is still going on.
    fn lock(&mut self, files: BTreeMap<u64, PathBuf>) -> Vec<(File, PathBuf)> {
        let mut locked = Vec::with_capacity(files.len());
        for path in files.into_values() {
            match open(&path) {
                Ok(file) if is_unlocked(&file) => locked.push((file, path)),
                Ok(_) => return Vec::new(),
                // The file's own run has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    note(&mut self.faults, &path, &error);
                    return Vec::new();
                }
            }
        }
        locked
    }

    /// Reads a segment and mends it. If it has nothing to send, returns `None`, and removes the file or moves it aside.
    fn read(&self, file: File, path: &Path, lost_records: &mut u64) -> io::Result<Option<AdoptedSegment>> {
        let bytes = file.metadata()?.len();
        let mut content =
            vec![0; usize::try_from(bytes).map_or(READ_BYTES_MAX, |bytes| bytes.min(READ_BYTES_MAX))];
        file.read_exact_at(&mut content, 0)?;
        let Some(mut contents) = decode_segment(&content) else {
            *lost_records += self.discard(path, &content)?;
            return Ok(None);
        };
        let mut mended = file;
        if contents.is_damaged || bytes > READ_BYTES_MAX as u64 {
            let lost = contents.lost_records;
            (mended, contents) = self.replace(path, &content, contents)?;
            *lost_records += lost;
        } else if contents.end < content.len() {
            mended.set_len(contents.end as u64)?;
        }
        if contents.batches.is_empty() {
            fs::remove_file(path)?;
            return Ok(None);
        }
        let bytes = contents.end as u64;
        Ok(Some(AdoptedSegment { file: mended, path: path.to_owned(), bytes, contents }))
    }

    /// Moves a file without a head aside. Returns the approximate number of its lost records.
    fn discard(&self, path: &Path, content: &[u8]) -> io::Result<u64> {
        // The host has failed before anything reached the disk.
        if content.iter().all(|&byte| byte == 0) {
            fs::remove_file(path)?;
            return Ok(0);
        }
        fs::rename(path, self.directory.join(DAMAGED))?;
        let file = path.display();
        tracing::error!(%file, moved_to = DAMAGED, "a file of credit has no head: its batches are lost");
        Ok(1)
    }

    /// Copies a damaged segment, and replaces it by one with its readable batches.
    fn replace(
        &self,
        path: &Path,
        content: &[u8],
        contents: SegmentContents,
    ) -> io::Result<(File, SegmentContents)> {
        let mut mended = encode_segment_head(contents.run, contents.created_unix_ms);
        let whole =
            contents.batches.iter().filter_map(|batch| decode_segment_entry(content.get(batch.offset..)?));
        whole.for_each(|entry| encode_segment_entry(&entry, &mut mended));
        replace_file::replace(&self.directory.join(DAMAGED), MODE, |mut copy| {
            copy.write_all(content)?;
            Ok((copy, ()))
        })?;
        // The collector may be creating a segment of this run under the name without the suffix.
        let new = self.directory.join(format!("{NEW_PREFIX}{}-mended", self.run));
        let file = create_locked(&new, &mended)?;
        file.sync_data()?;
        fs::rename(&new, path)?;
        File::open(&self.directory)?.sync_all()?;
        tracing::error!(
            file = %path.display(), copied_to = DAMAGED, batches = contents.batches.len(),
            lost_records = contents.lost_records,
            "a file of credit is damaged: the batches that can be read will be sent, the others are lost"
        );
        let contents = decode_segment(&mended).ok_or(io::ErrorKind::InvalidData)?;
        Ok((file, contents))
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// Locks a file, unless a running process has locked it.
fn is_unlocked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn note(faults: &mut Repeated, file: &Path, error: &io::Error) {
    if let Some(unlogged) = faults.note(Instant::now()) {
        let file = file.display();
        tracing::warn!(%file, %error, unlogged, "credit of an earlier run cannot be taken over at present");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use crate::protocol::{CreditHead, SEGMENT_HEAD_BYTES, encode_credit_head};
    use tempfile::TempDir;

    use super::super::journal::{Journal, JournaledBatch};
    use super::*;

    /// A directory with the files of runs that have ended.
    struct Place(TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn journal(&self, run: u64) -> Journal {
            Journal::new(self.0.path().to_owned(), NodeId(run))
        }

        /// Starts a run that ends with `batches` batches.
        fn leave(&self, run: u64, batches: u64) -> PathBuf {
            let mut journal = self.journal(run);
            for sequence in 1..=batches {
                append(&mut journal, sequence, run);
            }
            self.segment(run, 0)
        }

        fn segment(&self, run: u64, number: u64) -> PathBuf {
            self.0.path().join(format!("credit-{}-{number:08}", NodeId(run)))
        }

        fn look(&self, run: u64) -> Adopted {
            Adopter::new(self.0.path().to_owned(), NodeId(run)).adopt(|| false)
        }

        /// Adopts what there is. Returns the journal, its batches, and the records that were lost.
        fn adopt(&self, run: u64) -> (Journal, Vec<JournaledBatch>, u64) {
            let Adopted { segments, lost_records } = self.look(run);
            let mut journal = self.journal(run);
            let batches = journal.insert_adopted(segments);
            for batch in &batches {
                assert_eq!(journal.read(batch).unwrap(), content(batch.run.0, batch.sequence));
            }
            (journal, batches, lost_records)
        }

        /// The runs and the numbers of the batches that the next run finds.
        fn found(&self, run: u64) -> Vec<(u64, u64)> {
            numbers(&self.adopt(run).1)
        }

        /// The names of all files.
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.0.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    fn content(run: u64, sequence: u64) -> Vec<u8> {
        let mut batch = Vec::new();
        encode_credit_head(&CreditHead { run: NodeId(run), sequence, node: "a" }, &mut batch);
        batch.extend_from_slice(&[7; 90]);
        batch
    }

    fn append(journal: &mut Journal, sequence: u64, run: u64) -> JournaledBatch {
        journal.append(sequence, 3, &content(run, sequence)).unwrap().expect("there is room")
    }

    fn numbers(batches: &[JournaledBatch]) -> Vec<(u64, u64)> {
        batches.iter().map(|batch| (batch.run.0, batch.sequence)).collect()
    }

    /// Changes the content of a file.
    fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn batches_that_wait_are_there_in_the_next_run_and_no_others() {
        let place = Place::new();
        let mut journal = place.journal(1);
        let batches: Vec<_> = (1..=5).map(|sequence| append(&mut journal, sequence, 1)).collect();
        batches[..2].iter().for_each(|batch| journal.settle(batch));
        assert_eq!(place.found(2), [], "the run goes on");
        drop(journal);
        let (journal, batches, lost) = place.adopt(2);
        assert_eq!((numbers(&batches), lost), (vec![(1, 3), (1, 4), (1, 5)], 0));
        assert_eq!(place.found(2), [], "each segment is adopted once");
        drop(journal);
        let (mut journal, batches, _) = place.adopt(3);
        batches.iter().for_each(|batch| journal.settle(batch));
        assert_eq!((place.names().len(), journal.bytes()), (0, 0));
    }

    #[test]
    fn what_a_run_has_adopted_and_not_sent_is_there_in_the_next_one_also_after_damage() {
        let place = Place::new();
        let path = place.leave(1, 5);
        change(&path, |bytes| bytes[SEGMENT_HEAD_BYTES + 300] ^= 1);
        let others = [(1, 1), (1, 2), (1, 4), (1, 5)];
        let (journal, batches, lost) = place.adopt(2);
        assert_eq!((numbers(&batches), lost), (others.to_vec(), 3));
        assert_eq!(journal.bytes(), fs::metadata(&path).unwrap().len());
        assert_eq!(place.names(), ["credit-0000000000000001-00000000", DAMAGED]);
        let mode = fs::metadata(place.0.path().join(DAMAGED)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        drop(journal);
        // The damage is counted once.
        let (mut journal, batches, lost) = place.adopt(3);
        assert_eq!((numbers(&batches), lost), (others.to_vec(), 0));
        batches.iter().for_each(|batch| journal.settle(batch));
        assert_eq!(place.names(), [DAMAGED]);
    }

    #[test]
    fn a_run_that_adopts_a_torn_segment_appends_its_notes_where_the_next_one_reads_them() {
        for zeros in [None, Some(1), Some(19), Some(200)] {
            let place = Place::new();
            let path = place.leave(1, 3);
            change(&path, |bytes| match zeros {
                None => bytes.truncate(bytes.len() - 5),
                Some(zeros) => bytes.resize(bytes.len() + zeros, 0),
            });
            let (mut journal, batches, _) = place.adopt(2);
            journal.settle(&batches[0]);
            assert_eq!(journal.bytes(), fs::metadata(&path).unwrap().len());
            drop(journal);
            let expected = if zeros.is_none() { vec![(1, 2)] } else { vec![(1, 2), (1, 3)] };
            assert_eq!(place.found(3), expected, "{zeros:?}");
            assert!(!place.names().contains(&DAMAGED.to_owned()), "{zeros:?}");
        }
    }

    #[test]
    fn a_run_is_adopted_as_a_whole_and_in_the_order_of_its_numbers() {
        let place = Place::new();
        // A clock that goes back: the second segment seems to be older than the first one, and run 1 between them.
        let segment = |run: u64, sequence: u64, created_unix_ms: u64| {
            let mut bytes = encode_segment_head(NodeId(run), created_unix_ms);
            let batch = content(run, sequence);
            encode_segment_entry(
                &crate::protocol::SegmentEntry { sequence, records: 3, batch: &batch },
                &mut bytes,
            );
            bytes
        };
        fs::write(place.segment(1, 0), segment(1, 1, 50)).unwrap();
        fs::write(place.segment(2, 0), segment(2, 1, 90)).unwrap();
        fs::write(place.segment(2, 1), segment(2, 2, 10)).unwrap();
        assert_eq!(place.found(3), [(2, 1), (2, 2), (1, 1)]);
        for number in [0, 1] {
            let locked = open(&place.segment(2, number)).unwrap();
            assert!(is_unlocked(&locked));
            assert_eq!(place.found(3), [(1, 1)], "segment {number} is locked");
            drop(locked);
            // A directory cannot be opened at present.
            let (path, aside) = (place.segment(2, number), place.0.path().join("aside"));
            fs::rename(&path, &aside).unwrap();
            fs::create_dir(&path).unwrap();
            assert_eq!(place.found(3), [(1, 1)], "segment {number} cannot be opened");
            fs::remove_dir(&path).unwrap();
            fs::rename(&aside, &path).unwrap();
        }
        assert_eq!(place.found(3).len(), 3);
    }

    #[test]
    fn damage_that_cannot_be_copied_is_left_for_the_next_look() {
        let place = Place::new();
        let path = place.leave(1, 3);
        change(&path, |bytes| bytes[SEGMENT_HEAD_BYTES + 60] ^= 1);
        let damaged = fs::read(&path).unwrap();
        let copy = place.0.path().join(DAMAGED);
        fs::create_dir(&copy).unwrap();
        let (_, batches, lost) = place.adopt(2);
        assert_eq!((numbers(&batches), lost), (vec![], 0));
        assert_eq!(fs::read(&path).unwrap(), damaged);
        fs::remove_dir(&copy).unwrap();
        let (_, batches, lost) = place.adopt(2);
        assert_eq!((numbers(&batches), lost), (vec![(1, 2), (1, 3)], 3));
        assert_eq!(fs::read(&copy).unwrap(), damaged);
    }

    #[test]
    fn files_without_a_head_are_moved_aside_and_empty_ones_removed() {
        let place = Place::new();
        let file = |name: &str| place.0.path().join(name);
        fs::write(file("credit-zz"), "garbage").unwrap();
        assert_eq!(place.look(2).lost_records, 1);
        assert_eq!(
            (place.names(), fs::read(file(DAMAGED)).unwrap()),
            (vec![DAMAGED.to_owned()], b"garbage".into())
        );
        fs::write(file("credit-0000000000000001-00000000"), [0; 100]).unwrap();
        fs::write(file("credit-0000000000000001-00000001"), []).unwrap();
        assert_eq!(place.look(2).lost_records, 0);
        assert_eq!(place.names(), [DAMAGED]);
    }

    #[test]
    fn what_a_run_was_creating_when_it_was_killed_is_removed() {
        let place = Place::new();
        let new = |run: u64| place.0.path().join(format!("{NEW_PREFIX}{}", NodeId(run)));
        fs::write(new(1), "half").unwrap();
        let running = create_locked(&new(2), b"half").unwrap();
        fs::write(new(3), "half").unwrap();
        place.look(3);
        assert_eq!(place.names(), [2, 3].map(|run| format!("{NEW_PREFIX}{}", NodeId(run))));
        drop(running);
    }

    #[test]
    fn a_run_that_leaves_adopts_nothing() {
        let place = Place::new();
        place.leave(1, 3);
        let mut adopter = Adopter::new(place.0.path().to_owned(), NodeId(2));
        assert_eq!(adopter.adopt(|| true).segments.len(), 0);
        assert_eq!(place.found(3).len(), 3);
    }
}
