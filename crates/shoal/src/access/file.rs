//! Reads a list from a file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use shoal_access::HashKey;
use shoal_access::torrents::{ListError, ListReader, TorrentTable};

/// Maximum size of a file. A hundred million torrents with short reasons fit.
const FILE_BYTES_MAX: u64 = 16 << 30;

/// Size of the pieces in which a file is read.
const PIECE_BYTES: usize = 256 << 10;

/// The state of a file, by which a change shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It cannot be examined, for example because it does not exist.
    Nothing,
    /// Its device and inode, size, and the times of the last change of its content and of its attributes.
    File([u64; 3], [i64; 4]),
}

impl Seen {
    /// Examines a file.
    pub(crate) fn of(path: &Path) -> Self {
        fs::metadata(path).map_or(Self::Nothing, |metadata| {
            let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
            Self::File([metadata.dev(), metadata.ino(), metadata.size()], times)
        })
    }
}

/// Reads a file. The second value tells which lines could not be read, if any.
pub(super) fn read(path: &Path, key: &HashKey) -> io::Result<(TorrentTable, Option<ListError>)> {
    // Other files are not even opened: a reader of a FIFO would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut file = File::open(path)?.take(FILE_BYTES_MAX + 1);
    let (mut reader, mut piece) = (ListReader::default(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece)? {
            0 if file.limit() == 0 => {
                return Err(io::Error::other(format!("it has more than {} GiB", FILE_BYTES_MAX >> 30)));
            }
            0 => return Ok(reader.finish(key)),
            bytes => reader.read(&piece[..bytes]),
        }
    }
}
