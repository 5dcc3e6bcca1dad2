//! Reads a snapshot, block by block, past damaged ones.

use std::io::{self, Read};

use crate::SwarmSet;

use crate::snapshot_file::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockHeader, LAST, Parts, word};
use crate::snapshot_file::{BLOCK_BYTES, HEADER_BYTES, Header, Summary};

/// Why a file cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The file begins with something else.
    #[error("it is no snapshot")]
    NotASnapshot,
    /// The header is damaged.
    #[error("its header is damaged")]
    DamagedHeader,
    /// The file has another version.
    #[error("its format has version {0}, and this program reads version {VERSION}", VERSION = crate::snapshot_file::VERSION)]
    Version(u32),
    /// An early version wrote it with the setting store.info_hashes = "fingerprint".
    #[error("it has fingerprints in place of info hashes, which this version no longer reads")]
    Fingerprints,
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A block of swarms. Reuse it: it owns the memory of its content.
#[derive(Clone, Debug, Default)]
pub struct Block {
    set: Option<SwarmSet>,
    /// When its ages were true, in seconds since 1970.
    pub at_unix_s: u64,
    content: Vec<u8>,
}

impl Block {
    /// Creates a block of this content.
    pub fn of(set: SwarmSet, content: &[u8]) -> Self {
        Self { set: Some(set), at_unix_s: 0, content: content.to_vec() }
    }

    /// Returns the set of its swarms, or `None` before the first block was read.
    pub const fn set(&self) -> Option<SwarmSet> {
        self.set
    }

    /// Returns its parts.
    pub fn parts(&self) -> Parts<'_> {
        Parts::new(&self.content, self.set.unwrap_or(SwarmSet::V4))
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block was read.
    Block,
    /// This many bytes were skipped, because they are no whole block.
    Damage(u64),
    /// The file ends here, with the numbers of everything that was written to it.
    End(Summary),
    /// The file ends without its last block.
    Truncated,
}

/// A snapshot that is being read.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    /// Bytes that were read from `input` but not yet passed on.
    buffer: Vec<u8>,
    /// The index in `buffer` of the first byte that was not passed on.
    start: usize,
    is_ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header. The error says why the file cannot be read.
    pub fn new(mut input: R) -> Result<Self, Refused> {
        let mut bytes = Vec::new();
        input.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
        if bytes.len() < HEADER_BYTES {
            let is_begun = bytes.starts_with(&crate::snapshot_file::MAGIC);
            return Err(if is_begun { Refused::DamagedHeader } else { Refused::NotASnapshot });
        }
        let header = Header::decode(&word(&bytes, 0))?;
        Ok(Self { input, header, buffer: Vec::new(), start: 0, is_ended: false })
    }

    /// Returns the header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Reads to the end of the next block or of damage. Returns `None` after the end. At most two blocks are in
    /// memory. The error is the error of the input.
    pub fn next(&mut self, block: &mut Block) -> io::Result<Option<Event>> {
        if self.is_ended {
            return Ok(None);
        }
        let mut damage = 0;
        loop {
            self.fill(BLOCK_HEADER_BYTES)?;
            let available = self.buffer.len() - self.start;
            let is_at_end = available < BLOCK_HEADER_BYTES;
            let header = if is_at_end { None } else { BlockHeader::decode(&word(&self.buffer, self.start)) };
            let header = match header {
                Some(header) if self.is_whole(&header)? => Some(header),
                _ => None,
            };
            if damage > 0 && (is_at_end || header.is_some()) {
                return Ok(Some(Event::Damage(damage)));
            }
            match header {
                Some(header) => return Ok(Some(self.take(&header, block))),
                None if is_at_end && available > 0 => {
                    self.start = self.buffer.len();
                    return Ok(Some(Event::Damage(available as u64)));
                }
                None if is_at_end => {
                    self.is_ended = true;
                    return Ok(Some(Event::Truncated));
                }
                None => damage += self.skip(),
            }
        }
    }

    /// Returns whether the block after a header is intact.
    fn is_whole(&mut self, header: &BlockHeader) -> io::Result<bool> {
        let length = header.length as usize;
        self.fill(BLOCK_HEADER_BYTES + length)?;
        let content = self.buffer[self.start + BLOCK_HEADER_BYTES..].get(..length);
        Ok(content.is_some_and(|content| crc32fast::hash(content) == header.crc))
    }

    /// Takes a whole block out of the buffer.
    fn take(&mut self, header: &BlockHeader, block: &mut Block) -> Event {
        let start = self.start + BLOCK_HEADER_BYTES;
        self.start = start + header.length as usize;
        let content = &self.buffer[start..self.start];
        if header.kind == LAST && content.len() == 20 {
            self.is_ended = true;
            let [blocks] = [u32::from_le_bytes(word(content, 0))];
            let [parts, peers] = [4, 12].map(|start| u64::from_le_bytes(word(content, start)));
            return Event::End(Summary { blocks, parts, peers });
        }
        let Some(&set) = SwarmSet::ALL.get(usize::from(header.kind)) else {
            // A later version wrote it.
            return Event::Damage((BLOCK_HEADER_BYTES + content.len()) as u64);
        };
        block.content.clear();
        block.content.extend_from_slice(content);
        (block.set, block.at_unix_s) = (Some(set), header.at_unix_s);
        Event::Block
    }

    /// Skips at least one byte, up to the next that may begin a block. Returns the number of skipped bytes.
    fn skip(&mut self) -> u64 {
        let rest = &self.buffer[self.start + 1..];
        let found = rest.windows(BLOCK_MAGIC.len()).position(|window| window == BLOCK_MAGIC);
        // The beginning of a block may be at the end of the buffer.
        let skipped = 1 + found.unwrap_or(rest.len().saturating_sub(BLOCK_MAGIC.len() - 1));
        self.start += skipped;
        skipped as u64
    }

    /// Reads until the buffer has this many bytes, or the input ends.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        if self.buffer.len() - self.start >= length {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        while self.buffer.len() < length {
            let wanted = (length - self.buffer.len()).max(BLOCK_BYTES) as u64;
            if self.input.by_ref().take(wanted).read_to_end(&mut self.buffer)? == 0 {
                break;
            }
        }
        Ok(())
    }
}
