//! Reads files of lists, and notices how they change.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use shoal_access::text::{Capped, GZIP_MAGIC, plain_begin};
use shoal_access::torrents::Format;

/// Size of the pieces in which a file is read.
const PIECE_BYTES: usize = 256 << 10;

/// Size above which a file is large: reading it takes more than some tens of milliseconds.
const LARGE_FILE_BYTES: u64 = 8 << 20;

/// Size of the beginning and of the end of a file by which an addition is recognised.
const SAMPLE_BYTES: usize = 4096;

/// The state of a file, which shows a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The file cannot be examined, for example because it does not exist.
    Nothing,
    /// The device and inode, the size, and the times of the last change of content and of attributes.
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

/// Reads a file piece by piece, and fails if it is larger than `bytes_max`.
pub(super) fn reader(file: &File, bytes_max: u64) -> BufReader<Capped<&File>> {
    BufReader::with_capacity(PIECE_BYTES, Capped::new(file, bytes_max))
}

/// Returns whether reading a file may take long. The size of a compressed file does not show it.
pub(super) fn is_large(file: &File) -> io::Result<bool> {
    let mut begin = [0; GZIP_MAGIC.len()];
    let bytes = file.read_at(&mut begin, 0)?;
    Ok(begin[..bytes] == GZIP_MAGIC || file.metadata()?.len() > LARGE_FILE_BYTES)
}

/// Returns whether a file is a list of lines, to which another line can be added.
pub(super) fn is_lines(file: &File) -> io::Result<bool> {
    let mut begin = [0; 512];
    let bytes = file.read_at(&mut begin, 0)?;
    Ok(plain_begin(&begin[..bytes]).is_some_and(|begin| Format::of(begin, None) == Format::Lines))
}

/// The part of a file that has been read, which identifies the file after an addition to its end.
#[derive(Debug)]
pub(super) struct ReadPart {
    inode: [u64; 2],
    bytes: u64,
    /// The number of lines in it, all of which have ended.
    pub(super) lines: u64,
    begin: Vec<u8>,
    end: Vec<u8>,
}

impl ReadPart {
    /// Remembers the first `bytes` bytes of a file, or nothing if their last line may continue.
    pub(super) fn of(file: &File, bytes: u64, lines: u64) -> io::Result<Option<Self>> {
        let metadata = file.metadata()?;
        let sample = |from: u64| {
            let length = usize::try_from(bytes - from).unwrap_or(SAMPLE_BYTES).min(SAMPLE_BYTES);
            let mut sample = vec![0; length];
            file.read_exact_at(&mut sample, from).map(|()| sample)
        };
        let (begin, end) = (sample(0)?, sample(bytes.saturating_sub(SAMPLE_BYTES as u64))?);
        let inode = [metadata.dev(), metadata.ino()];
        Ok((end.last() == Some(&b'\n')).then_some(Self { inode, bytes, lines, begin, end }))
    }

    /// Returns the size that the file had with this addition.
    pub(super) const fn bytes_with(&self, addition: &[u8]) -> u64 {
        self.bytes + addition.len() as u64
    }

    /// Returns the addition to the end of the file since, if it is still the same file, is larger now, and begins as
    /// before. Only the beginning and the end of the part are compared, so this misses a program that changes the
    /// middle of a file in place and also makes it longer.
    pub(super) fn addition(&self, file: &File, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let metadata = file.metadata()?;
        let bytes = metadata.size().saturating_sub(self.bytes);
        if [metadata.dev(), metadata.ino()] != self.inode || bytes == 0 || bytes > bytes_max {
            return Ok(None);
        }
        let has = |sample: &[u8], at: u64| {
            let mut now = vec![0; sample.len()];
            file.read_exact_at(&mut now, at).map(|()| now == sample)
        };
        if !has(&self.begin, 0)? || !has(&self.end, self.bytes - self.end.len() as u64)? {
            return Ok(None);
        }
        let mut addition = vec![0; usize::try_from(bytes).unwrap_or_default()];
        file.read_exact_at(&mut addition, self.bytes)?;
        Ok(Some(addition))
    }
}
