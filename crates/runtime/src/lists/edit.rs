//! Changes files of lists, while other commands may change them too and the tracker reads them.
//!
//! An addition is one write to the end of the file. A removal writes a new file and renames it over the old one. So a
//! reader sees the list before or after a change, never between. Commands wait for each other by a lock on the file.
//! Other programs know no such lock: a removal begins again if one of them has changed the file meanwhile. It cannot
//! see a program that keeps the old file open and writes to it later.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use shoal_access::text::{UTF8_MARK, decode, without_end};
use shoal_access::torrents::{Entry, LINE_BYTES_MAX};
use shoal_base::InfoHash;

/// The mode of a file with records: they name cases, which not every user of the machine may read.
const RECORDS_MODE: u32 = 0o640;

/// The mode of a list, which the umask of the user restricts.
const LIST_MODE: u32 = 0o666;

/// How often a lock is tried, and the pause between: half a minute in all.
const LOCK_TRIES: u32 = 1500;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Appends lines to a file of records, and creates it if it does not exist. `lines` ends with the end of a line, or is
/// empty.
pub(super) fn append(path: &Path, lines: &str) -> io::Result<()> {
    write_end(&open_locked(path, || open_records(path))?, lines)
}

/// Opens a file of records, and creates it if it does not exist. A new file goes to the owner of its directory, if this
/// process may give it away: a command of root creates it, and the tracker, which owns the directory, appends to it as
/// well.
///
/// That owner may change the directory at any moment, while root acts in it. So the directory is looked up once, and a
/// link in it is an error.
fn open_records(path: &Path) -> io::Result<File> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = File::open(parent)?;
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open =
        |more| openat(&directory, name, flags | more, Mode::from_raw_mode(RECORDS_MODE)).map(File::from);
    let file = match open(OFlags::CREATE | OFlags::EXCL) {
        Ok(created) => {
            let (owner, own) = (directory.metadata()?, created.metadata()?);
            if (owner.uid(), owner.gid()) != (own.uid(), own.gid()) {
                // Another user keeps its file.
                let _ = fchown(&created, Some(owner.uid()), Some(owner.gid()));
            }
            created
        }
        Err(Errno::EXIST) => open(OFlags::empty())?,
        Err(error) => return Err(error.into()),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(shoal_base::file::Fault::NotRegular.into()) }
}

/// Maximum size of a file in which an addition first looks for the torrents. A search of a larger file would take
/// longer than the addition may, and a repeated torrent is harmless.
const SEARCHED_BYTES_MAX: u64 = 16 << 20;

/// Adds torrents with their lines to a file, and creates it if it does not exist. Returns the torrents that the
/// searched part did not have.
pub(super) fn add(path: &Path, lines: &BTreeMap<InfoHash, String>) -> io::Result<Vec<InfoHash>> {
    let file = open_locked(path, || open_list(path, true))?;
    let mut present = BTreeSet::new();
    if file.metadata()?.len() <= SEARCHED_BYTES_MAX {
        for_each_line(&file, |line| {
            if let Some(Ok(Some(entry))) = line.text().as_deref().map(Entry::parse) {
                let listed = entry.info_hashes.into_iter();
                present.extend(listed.filter(|info_hash| lines.contains_key(info_hash)));
            }
            Ok(())
        })?;
    }
    let new = || lines.iter().filter(|(info_hash, _)| !present.contains(*info_hash));
    write_end(&file, &new().map(|(_, line)| line.as_str()).collect::<String>())?;
    Ok(new().map(|(info_hash, _)| *info_hash).collect())
}

fn write_end(mut file: &File, lines: &str) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let bytes = file.metadata()?.len();
    let mut last = [b'\n'];
    if bytes > 0 {
        file.read_exact_at(&mut last, bytes - 1)?;
    }
    // Otherwise the first line would continue the last one.
    let separator = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{separator}{lines}").as_bytes())?;
    file.sync_all()
}

/// How often a removal begins again because another program has changed the file.
const ATTEMPTS_MAX: usize = 10;

/// Removes torrents from a file. Returns those that were in it. All other lines stay unchanged.
pub(super) fn remove(path: &Path, info_hashes: &[InfoHash]) -> io::Result<Vec<InfoHash>> {
    for _ in 0..ATTEMPTS_MAX {
        if let Some(removed) = try_remove(path, info_hashes)? {
            return Ok(removed);
        }
    }
    Err(io::Error::other("another program keeps changing it; try again when it has finished"))
}

/// Returns `None` if another program has changed the file meanwhile.
fn try_remove(path: &Path, info_hashes: &[InfoHash]) -> io::Result<Option<Vec<InfoHash>>> {
    let file = open_locked(path, || open_list(path, false))?;
    let seen = state(&file)?;
    let mut removed = Vec::new();
    without(&file, info_hashes, &mut removed, &mut io::sink())?;
    let write = |new: &mut dyn Write| without(&file, info_hashes, &mut Vec::new(), new);
    let is_done = removed.is_empty() || replace(path, (&file, seen), write)?;
    Ok(is_done.then_some(removed))
}

/// Writes a list without these torrents, and appends those that it has to `removed`.
fn without(
    file: &File,
    info_hashes: &[InfoHash],
    removed: &mut Vec<InfoHash>,
    new: &mut dyn Write,
) -> io::Result<()> {
    for_each_line(file, |line| {
        let text = line.text();
        let Some(Ok(Some(mut entry))) = text.as_deref().map(Entry::parse) else {
            return new.write_all(line.bytes);
        };
        let before = entry.info_hashes.len();
        entry.info_hashes.retain(|info_hash| {
            let is_removed = info_hashes.contains(info_hash);
            if is_removed && !removed.contains(info_hash) {
                removed.push(*info_hash);
            }
            !is_removed
        });
        if entry.info_hashes.len() == before {
            new.write_all(line.bytes)
        } else if entry.info_hashes.is_empty() {
            Ok(())
        } else {
            // The line named several hashes, some of which stay.
            writeln!(new, "{entry}")
        }
    })
}

/// A line of a file, with its raw bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawLine<'l> {
    /// Its number, from 1.
    pub number: u64,
    /// Its bytes with its end.
    bytes: &'l [u8],
    /// Whether these are all of its bytes. A line that is too long for an entry comes in several parts.
    is_whole: bool,
}

impl<'l> RawLine<'l> {
    /// Returns its text without its end, and without the mark with which some editors begin a file, unless it is too
    /// long.
    pub fn text(&self) -> Option<Cow<'l, str>> {
        let mark = if self.number == 1 { UTF8_MARK } else { b"" };
        self.is_whole.then(|| decode(without_end(self.bytes.strip_prefix(mark).unwrap_or(self.bytes))))
    }
}

/// Calls `each` with every line of a file. Lines end as in `shoal_access::text`.
pub fn for_each_line(mut file: &File, mut each: impl FnMut(RawLine<'_>) -> io::Result<()>) -> io::Result<()> {
    file.rewind()?;
    let mut reader = BufReader::with_capacity(4 * LINE_BYTES_MAX, file);
    let (mut number, mut is_whole, mut line) = (1, true, Vec::new());
    loop {
        let piece = reader.fill_buf()?;
        let is_after_cr = line.last() == Some(&b'\r');
        let bytes = match piece {
            [] => 0,
            [b'\n', ..] if is_after_cr => 1,
            _ if is_after_cr => 0,
            _ => {
                piece.iter().position(|byte| matches!(byte, b'\n' | b'\r')).map_or(piece.len(), |end| end + 1)
            }
        };
        let is_last = piece.is_empty();
        line.extend_from_slice(&piece[..bytes]);
        reader.consume(bytes);
        // A LF may follow a CR.
        let is_ended = is_last || line.last() == Some(&b'\n') || is_after_cr;
        let is_long = line.len() > 2 * LINE_BYTES_MAX;
        if (is_ended || is_long) && !line.is_empty() {
            is_whole &= !is_long || is_ended;
            each(RawLine { number, bytes: &line, is_whole })?;
            line.clear();
        }
        if is_ended {
            (number, is_whole) = (number + 1, true);
        }
        if is_last {
            return Ok(());
        }
    }
}

/// The length of a file and the time of its last change, in seconds and nanoseconds.
type State = (u64, i64, i64);

fn state(file: &File) -> io::Result<State> {
    let metadata = file.metadata()?;
    Ok((metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
}

/// Replaces a file that was read in this state by the output of `write`, with the same owner and permissions. Returns
/// false, without a change, if the file is in another state or another file has its name.
fn replace(
    path: &Path,
    (old, seen): (&File, State),
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<bool> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    // A killed command has left one with the same process number: the lock is held.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let replace = || {
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        let (owner, own) = (old.metadata()?, file.metadata()?);
        // Otherwise the tracker might not be able to read the file any more.
        if (owner.uid(), owner.gid()) != (own.uid(), own.gid()) {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.set_permissions(owner.permissions())?;
        let mut content = BufWriter::new(&file);
        write(&mut content)?;
        content.flush()?;
        drop(content);
        file.sync_all()?;
        // As late as possible: what another program writes to the old file from here on is lost.
        let is_same = state(old)? == seen && is_named(old, path)?;
        if is_same {
            fs::rename(&temporary, path)?;
        }
        Ok(is_same)
    };
    let replaced = replace();
    if !matches!(replaced, Ok(true)) {
        let _ = fs::remove_file(&temporary);
    }
    replaced
}

/// Returns whether the file at a path is still this one. Another program may have removed it.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    let named = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named?,
    };
    Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
}

fn open_list(path: &Path, create: bool) -> io::Result<File> {
    shoal_base::file::open_with(
        path,
        OpenOptions::new().read(true).append(true).create(create).mode(LIST_MODE),
    )
}

/// Opens a file and waits for its lock. Another command may replace the file meanwhile.
fn open_locked(path: &Path, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    loop {
        let file = open()?;
        lock(&file)?;
        if is_named(&file, path)? {
            return Ok(file);
        }
    }
}

/// Waits for the lock of a file. Any user who can read the file can hold its lock, so the time has a limit.
fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "another program has held its lock for half a minute (`lslocks` names it)",
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn hash(byte: u8) -> InfoHash {
        InfoHash([byte; 20])
    }

    #[test]
    fn lines_are_appended_behind_an_unfinished_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        append(&path, "a\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777 & !RECORDS_MODE, 0);
        append(&path, "b\n").unwrap();
        fs::write(&path, "unfinished").unwrap();
        append(&path, "c\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "unfinished\nc\n");
    }

    #[test]
    fn records_are_not_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let [path, other] = ["audit", "other"].map(|name| directory.path().join(name));
        std::os::unix::fs::symlink(&other, &path).unwrap();
        append(&path, "a\n").unwrap_err();
        assert!(!other.exists(), "nothing is created behind a link");
        fs::write(&other, "").unwrap();
        append(&path, "a\n").unwrap_err();
        assert_eq!(fs::read_to_string(&other).unwrap(), "");
    }

    #[test]
    fn a_torrent_is_added_once_however_many_commands_add_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        fs::write(&path, format!("\u{feff}{:?} first\r\n{:?}", hash(1), hash(2))).unwrap();
        let lines = |bytes: &[u8]| {
            let line = |byte: &u8| (hash(*byte), format!("{:?} new\n", hash(*byte)));
            bytes.iter().map(line).collect::<BTreeMap<_, _>>()
        };
        let added = thread::scope(|scope| {
            let add = || add(&path, &lines(&[1, 2, 3])).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(add)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(added, [hash(3)]);
        let expected = format!("\u{feff}{:?} first\r\n{:?}\n{:?} new\n", hash(1), hash(2), hash(3));
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(remove(&path, &[hash(1)]).unwrap(), [hash(1)]);
    }

    #[test]
    fn commands_that_append_at_the_same_time_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        append(&path, &format!("{:?}\n", hash(255))).unwrap();
        thread::scope(|scope| {
            for thread in 0..4_u8 {
                let path = &path;
                scope.spawn(move || {
                    for number in 0..20 {
                        append(path, &format!("{:?}\n", hash(thread * 20 + number))).unwrap();
                    }
                });
            }
            scope.spawn(|| remove(&path, &[hash(255)]).unwrap());
        });
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, (0..80).map(|number| format!("{:?}", hash(number))).collect::<Vec<_>>());
    }

    #[test]
    fn a_removal_replaces_no_file_that_another_program_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        fs::write(&path, "one\n").unwrap();
        let file = open_locked(&path, || open_list(&path, false)).unwrap();
        let seen = state(&file).unwrap();
        // This one asks for no lock.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"two\n").unwrap();
        assert!(!replace(&path, (&file, seen), |new| new.write_all(b"nothing")).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let seen = state(&file).unwrap();
        let other = directory.path().join("other");
        fs::write(&other, "three\n").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(
            !replace(&path, (&file, seen), |new| new.write_all(b"nothing")).unwrap(),
            "it has another file's name"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
        let file = open_locked(&path, || open_list(&path, false)).unwrap();
        // A command that was killed had the same process number.
        fs::write(directory.path().join(format!("list.{}.new", std::process::id())), "left").unwrap();
        assert!(replace(&path, (&file, state(&file).unwrap()), |new| new.write_all(b"four\n")).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "four\n");
        let file = open_locked(&path, || open_list(&path, false)).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(
            !replace(&path, (&file, state(&file).unwrap()), |new| new.write_all(b"five\n")).unwrap(),
            "it is gone"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn lines_end_as_readers_of_lists_see_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let [one, two, three] = [1, 2, 3].map(|byte| format!("{:?}", hash(byte)));
        let long = "x".repeat(10 * LINE_BYTES_MAX) + " " + &one;
        let text = format!("\u{feff}{one}\r{two} {three}\r\n{long}\n{one}#x\r\n# caf\n\x1a");
        fs::write(&path, &text).unwrap();
        let (mut numbers, mut bytes) = (Vec::new(), Vec::new());
        let each = |line: RawLine<'_>| {
            if line.is_whole || numbers.last() != Some(&line.number) {
                numbers.push(line.number);
            }
            bytes.extend_from_slice(line.bytes);
            Ok(())
        };
        for_each_line(&File::open(&path).unwrap(), each).unwrap();
        assert_eq!((numbers, bytes), ((1..=6).collect(), text.into_bytes()));
        assert_eq!(remove(&path, &[hash(1), hash(3)]).unwrap(), [hash(1), hash(3)]);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{two}\n{long}\n# caf\n\x1a"));
    }

    #[test]
    fn a_removal_leaves_everything_else_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let [one, two, three] = [1, 2, 3].map(|byte| format!("{:?}", hash(byte)));
        let text = format!(
            "# head\n\n{one} first\ngarbage\n{one}\r\nmagnet:?xt=urn:btih:{one}&xt=urn:btih:{two} both\n{three}"
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(remove(&path, &[hash(1), hash(9)]).unwrap(), [hash(1)]);
        let expected = format!("# head\n\ngarbage\n{two} both\n{three}");
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(remove(&path, &[hash(9)]).unwrap(), []);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
        assert!(remove(&directory.path().join("none"), &[hash(1)]).is_err());
    }
}
