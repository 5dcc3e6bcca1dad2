//! Where the lines of the access log go: a file that can be rotated, the journal of systemd, or standard error.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shoal_config::AccessLogTarget;
use tokio::time::Instant;

/// How often the tracker checks whether the path of the file still names the open one.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// The journal may take this long to accept a line. While it is slower, lines are lost.
const JOURNAL_TIME_MAX: Duration = Duration::from_secs(1);

/// Size up to which the kernel never mixes two writers' writes to a pipe (`PIPE_BUF`, linux/limits.h).
const ATOMIC_WRITE_BYTES: usize = 4096;

/// The mode of a new file. Addresses of clients are not for all users.
const FILE_MODE: u32 = 0o640;

#[derive(Debug)]
pub(super) enum Target {
    Stderr,
    Journal(Journal),
    File(LogFile),
}

/// The journal of systemd, reached by its native protocol: a datagram of `FIELD=value` lines for each entry. The crates
/// for it do not let the operator choose the socket, which is how a journal namespace is addressed.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    entry: Vec<u8>,
}

/// A file to which lines are appended.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// `None` while no file can be written.
    file: Option<File>,
    followed: Instant,
    /// Whether the last write ended within a line.
    is_torn: bool,
}

impl Target {
    pub(super) fn open(target: &AccessLogTarget) -> io::Result<Option<Self>> {
        Ok(match target {
            AccessLogTarget::Off => None,
            AccessLogTarget::Stderr => Some(Self::Stderr),
            AccessLogTarget::Journald(path) => Some(Self::Journal(Journal::open(path)?)),
            AccessLogTarget::File(path) => Some(Self::File(LogFile::open(path)?)),
        })
    }

    /// Writes whole lines. Returns the number of written lines, and the error that prevented the others.
    pub(super) fn write(&mut self, lines: &[u8]) -> (usize, Option<io::Error>) {
        match self {
            Self::Stderr => write_stderr(lines),
            Self::Journal(journal) => journal.write(lines),
            Self::File(file) => file.write(lines),
        }
    }

    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::Stderr | Self::Journal(_) => Ok(()),
            Self::File(file) => file.reopen(),
        }
    }
}

/// Writes lines in pieces that the kernel does not mix with lines of the program's log.
fn write_stderr(lines: &[u8]) -> (usize, Option<io::Error>) {
    let mut stderr = io::stderr().lock();
    let (mut rest, mut written) = (lines, 0);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(piece_bytes(rest));
        if let Err(error) = stderr.write_all(piece) {
            return (written, Some(error));
        }
        written += count_lines(piece);
        rest = after;
    }
    (written, None)
}

/// Returns the length of as many whole lines as fit an unmixed write, or the length of the first line.
fn piece_bytes(lines: &[u8]) -> usize {
    let limit = lines.len().min(ATOMIC_WRITE_BYTES);
    let end = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte == b'\n').map(|index| index + 1);
    let first = || lines.iter().position(|&byte| byte == b'\n').map(|index| index + 1);
    end(&lines[..limit]).or_else(first).unwrap_or(lines.len())
}

impl Journal {
    fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(JOURNAL_TIME_MAX))?;
        // This connection is only a check: it would not survive a restart of the journal.
        UnixDatagram::unbound()?.connect(path)?;
        Ok(Self { socket, path: path.to_owned(), entry: Vec::new() })
    }

    fn write(&mut self, lines: &[u8]) -> (usize, Option<io::Error>) {
        for (index, line) in lines.split_inclusive(|&byte| byte == b'\n').enumerate() {
            self.entry.clear();
            // JSON has no line breaks, so the value needs no length. 6 is the level "info".
            self.entry.extend_from_slice(b"PRIORITY=6\nSYSLOG_IDENTIFIER=shoal-access\nMESSAGE=");
            self.entry.extend_from_slice(line);
            if let Err(error) = self.socket.send_to(&self.entry, &self.path) {
                return (index, Some(error));
            }
        }
        (count_lines(lines), None)
    }
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = Some(open_file(path)?);
        Ok(Self { path: path.to_owned(), file, followed: Instant::now(), is_torn: false })
    }

    /// Reopens the file. If that fails, the old file stays in use as long as it has a name.
    fn reopen(&mut self) -> io::Result<()> {
        self.followed = Instant::now();
        match open_file(&self.path) {
            Ok(file) => {
                self.file = Some(file);
                self.is_torn = false;
                Ok(())
            }
            Err(error) => {
                self.file =
                    self.file.take().filter(|file| file.metadata().is_ok_and(|file| file.nlink() > 0));
                Err(error)
            }
        }
    }

    /// Reopens the file if its path no longer names it.
    fn follow(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if now < self.followed + FOLLOW_EVERY {
            return Ok(());
        }
        self.followed = now;
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let open = self.file.as_ref().and_then(|file| file.metadata().ok()).map(identity);
        let named = self.path.metadata().ok().map(identity);
        if open.is_some() && open == named { Ok(()) } else { self.reopen() }
    }

    fn write(&mut self, lines: &[u8]) -> (usize, Option<io::Error>) {
        let followed = self.follow();
        let Some(file) = &mut self.file else {
            let missing = || io::Error::new(ErrorKind::NotFound, "the file is gone");
            return (0, Some(followed.err().unwrap_or_else(missing)));
        };
        if self.is_torn {
            // The rest of the torn line is lost. The next one must not continue it.
            match file.write_all(b"\n") {
                Ok(()) => self.is_torn = false,
                Err(error) => return (0, Some(error)),
            }
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => return self.stop_within(lines, rest, ErrorKind::WriteZero.into()),
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.stop_within(lines, rest, error),
            }
        }
        (count_lines(lines), followed.err())
    }

    /// Returns the outcome of a write that failed before `rest`.
    fn stop_within(&mut self, lines: &[u8], rest: &[u8], error: io::Error) -> (usize, Option<io::Error>) {
        let written = &lines[..lines.len() - rest.len()];
        self.is_torn = written.last().is_some_and(|&byte| byte != b'\n');
        (count_lines(written), Some(error))
    }
}

/// Opens a file for appending, and creates it if it does not exist. A pipe without a reader fails at once, and does
/// not hold up the start.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(FILE_MODE).custom_flags(libc::O_NONBLOCK).open(path)
}

fn count_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pieces_are_whole_lines() {
        assert_eq!(piece_bytes(b"a\nbc\n"), 5);
        let long = [vec![b'a'; 3000], vec![b'\n'], vec![b'b'; 3000], vec![b'\n']].concat();
        assert_eq!(piece_bytes(&long), 3001);
        let longer = [vec![b'a'; 5000], b"\nb\n".to_vec()].concat();
        assert_eq!(piece_bytes(&longer), 5001);
    }

    #[test]
    fn a_file_is_reopened_where_its_path_leads() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
        let mut file = LogFile::open(&path).unwrap();
        assert_eq!(file.write(b"one\n").0, 1);
        fs::rename(&path, &moved).unwrap();
        assert_eq!(file.write(b"two\n").0, 1);
        file.reopen().unwrap();
        assert_eq!(file.write(b"three\n").0, 1);
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn a_file_without_a_name_loses_lines_until_it_can_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("logs");
        fs::create_dir(&directory).unwrap();
        let path = directory.join("log");
        let mut file = LogFile::open(&path).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(file.reopen().is_err());
        let (written, error) = file.write(b"lost\n");
        assert_eq!((written, error.unwrap().kind()), (0, ErrorKind::NotFound));
        fs::create_dir(&directory).unwrap();
        file.reopen().unwrap();
        assert_eq!(file.write(b"kept\n").0, 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept\n");
    }

    #[test]
    fn a_full_device_loses_lines() {
        let mut file = LogFile::open(Path::new("/dev/full")).unwrap();
        let (written, error) = file.write(b"one\ntwo\n");
        assert_eq!((written, error.unwrap().kind()), (0, ErrorKind::StorageFull));
    }

    #[test]
    fn a_line_after_a_torn_one_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = LogFile::open(&path).unwrap();
        file.file.as_mut().unwrap().write_all(b"to").unwrap();
        let torn = file.stop_within(b"torn\n", b"rn\n", ErrorKind::StorageFull.into());
        assert_eq!(torn.0, 0);
        assert_eq!(file.write(b"whole\n").0, 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "to\nwhole\n");
    }
}
