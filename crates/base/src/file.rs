//! Opens the files of an operator, and reads them up to a limit.
//!
//! All files that the running tracker reads are opened here, because any program may replace a file at any time. A
//! reader of a FIFO would wait for a writer, and a reader of a device might never reach an end. So a file is opened
//! without waiting, and then examined: a file examined before may have been replaced.
//!
//! A file system that does not answer can still block a reader; no flag of the kernel prevents that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Why a file is not read. It is the source of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is a FIFO, a device, a socket or a directory.
    #[error("it is not a regular file")]
    NotRegular,
    /// It has more bytes than it may.
    #[error("it has more than {} KiB", .0 >> 10)]
    TooLarge(u64),
}

impl Fault {
    /// Returns the fault behind an error of this module.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        Self::other(fault)
    }
}

/// Opens a regular file for reading, without waiting. Fails with the error of the system or [`Fault::NotRegular`].
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// Opens a regular file with options for reading or writing, without waiting. The options must not have custom flags.
/// Fails with the error of the system or [`Fault::NotRegular`].
pub fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Most other files are not even opened: opening a device may have side effects, and opening a FIFO wakes a writer.
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return Err(Fault::NotRegular.into());
    }
    // For a regular file these flags make no difference.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    let file = options.custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Fault::NotRegular.into()) }
}

/// Reads a regular file of up to `bytes_max` bytes. Fails with the error of the system or the [`Fault`].
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_to_end(open(path)?, bytes_max)
}

/// Reads the rest of an open file, up to `bytes_max` bytes. Fails with the error of the system or [`Fault::TooLarge`].
pub fn read_to_end(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(Fault::TooLarge(bytes_max).into()) } else { Ok(bytes) }
}

/// Reads a regular text file of up to `bytes_max` bytes. Fails with the error of the system, the [`Fault`], or
/// [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text(read(path, bytes_max)?)
}

/// Converts bytes to text. Fails with [`io::ErrorKind::InvalidData`] if they are not UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }

    fn fault(read: io::Result<Vec<u8>>) -> Option<Fault> {
        Fault::of(&read.unwrap_err())
    }

    #[test]
    fn only_regular_files_within_bounds_are_read() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "four").unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"four");
        assert_eq!(fault(read(&file, 3)), Some(Fault::TooLarge(3)));
        let pipe = place.path().join("fifo");
        fifo(&pipe);
        for path in [&pipe, place.path(), Path::new("/dev/zero")] {
            assert_eq!(fault(read(path, 4)), Some(Fault::NotRegular), "{}", path.display());
        }
        assert_eq!(read(&place.path().join("none"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&file, b"\xff").unwrap();
        assert_eq!(read_text(&file, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(
            Fault::of(&open_with(&pipe, OpenOptions::new().append(true)).unwrap_err()),
            Some(Fault::NotRegular)
        );
    }

    /// Another thread changes the name between a file and a FIFO all the time, so that some of the calls find a file
    /// when they examine the name, and a FIFO when they open it.
    #[test]
    fn a_fifo_that_takes_the_place_of_a_file_holds_up_no_reader() {
        let place = tempfile::tempdir().unwrap();
        let [name, file, pipe] = ["name", "file", "fifo"].map(|name| place.path().join(name));
        fs::write(&file, "four").unwrap();
        fifo(&pipe);
        fs::hard_link(&file, &name).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = 0_u32;
                while !is_over.load(Ordering::Relaxed) {
                    let next = place.path().join("next");
                    fs::hard_link(if turn.is_multiple_of(2) { &pipe } else { &file }, &next).unwrap();
                    fs::rename(&next, &name).unwrap();
                    turn += 1;
                }
            });
            for _ in 0..20_000 {
                match read(&name, 4) {
                    Ok(bytes) => assert_eq!(bytes, b"four"),
                    Err(error) => assert_eq!(Fault::of(&error), Some(Fault::NotRegular)),
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
