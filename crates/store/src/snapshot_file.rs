//! The file of a snapshot: all swarms of a store, in blocks with checksums.
//!
//! This module owns the format, in both directions. It must not open files, read clocks, start threads, or know the
//! memory of the store: it writes to any [`Write`](std::io::Write), and reads from any [`Read`](std::io::Read).
//!
//! A file is a [`Header`] of 128 bytes, then blocks. A block is a header of 32 bytes, then up to some hundred KiB of
//! parts of swarms of one set. Both have a CRC-32. The last block states the number of blocks. All numbers are
//! little-endian.
//!
//! | Header | |
//! |---|---|
//! | 0..16 | [`MAGIC`] |
//! | 16..20 | [`VERSION`] |
//! | 20..24 | the timeout of peers in seconds, in sixty-fourths of which ages are counted |
//! | 24..32 | when the snapshot began, in seconds since 1970 |
//! | 32..40 | a number that identifies the store's keys, or 0 |
//! | 40..44 | the size of an identity: 20. Files of early versions may have 12, and are refused |
//! | 44..48 | 0 |
//! | 48..80 | the swarms of each set when the snapshot began |
//! | 80..124 | the program that wrote it, filled up with zeroes |
//! | 124..128 | CRC-32 of everything before |
//!
//! | Block | |
//! |---|---|
//! | 0..4 | `SHBK` |
//! | 4 | the set of its swarms, or 255 in the last block |
//! | 5..8 | 0 |
//! | 8..12 | the number of the block, from 0 |
//! | 12..16 | the size of its content |
//! | 16..24 | when its ages were true, in seconds since 1970 |
//! | 24..28 | CRC-32 of its content |
//! | 28..32 | CRC-32 of everything before |
//!
//! A part is an identity; the completed downloads, the age of the swarm in seconds, the seeders and the leechers
//! (LEB128); their addresses in compact form, seeders first; and a byte for each with its age ([`crate::SwarmPart`]). A
//! part without peers is a torrent with retained downloads; its age is the time since its last peer left. The content
//! of the last block is the number of blocks before it (4 bytes), of parts and of peers (8 bytes each).
//!
//! After a damaged block, a reader looks for the next intact one.
//!
//! Each block has the time when its ages were true. The monotonic clock of another boot means nothing.

mod block;
mod reader;
mod writer;

use shoal_base::InfoHash;

use crate::SwarmSet;

pub use block::{Malformed, Parts, encode_part};
pub use reader::{Block, Event, Reader, Refused};
pub use writer::Writer;

/// The first bytes of a file.
pub const MAGIC: [u8; 16] = *b"shoal snapshot\n\0";

/// The version of the format. A reader refuses others.
pub const VERSION: u32 = 1;

/// Size of a header in bytes.
pub const HEADER_BYTES: usize = 128;

/// Intended size of a block in bytes. The parts of one export call may exceed it.
pub const BLOCK_BYTES: usize = 256 << 10;

/// Maximum size of the content of a block in bytes.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Size of the identity of a swarm in bytes: an info hash.
const ID_BYTES: u32 = 20;

const _: () = assert!(ID_BYTES as usize == size_of::<InfoHash>());

/// Size of the identities in those early files that stored fingerprints in place of info hashes.
const FINGERPRINT_BYTES: u32 = 12;

/// Maximum length of the name of the program in a header.
pub const PROGRAM_BYTES_MAX: usize = 44;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The timeout of peers in seconds.
    pub timeout_s: u32,
    /// When the snapshot was begun, in seconds since 1970.
    pub begun_unix_s: u64,
    /// A number that identifies the store's keys. 0 means that the keys are not known to anyone else.
    pub keys: u64,
    /// The swarms of each set, in the order of [`SwarmSet::ALL`], when the snapshot was begun.
    pub swarms: [u64; SwarmSet::ALL.len()],
    /// The program that wrote the file.
    pub program: String,
}

/// The numbers of a file's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Blocks, without the last one.
    pub blocks: u32,
    /// Swarms, or parts of large ones.
    pub parts: u64,
    /// Peers.
    pub peers: u64,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |start: usize, value: &[u8]| bytes[start..start + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(16, &VERSION.to_le_bytes());
        put(20, &self.timeout_s.to_le_bytes());
        put(24, &self.begun_unix_s.to_le_bytes());
        put(32, &self.keys.to_le_bytes());
        put(40, &ID_BYTES.to_le_bytes());
        for (start, swarms) in (48..).step_by(8).zip(self.swarms) {
            put(start, &swarms.to_le_bytes());
        }
        let program = self.program.as_bytes();
        put(80, &program[..program.len().min(PROGRAM_BYTES_MAX)]);
        let crc = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Refused> {
        if bytes[..16] != MAGIC {
            return Err(Refused::NotASnapshot);
        }
        let u32_at = |start| u32::from_le_bytes(block::word(bytes, start));
        let u64_at = |start| u64::from_le_bytes(block::word(bytes, start));
        if u32_at(16) != VERSION {
            return Err(Refused::Version(u32_at(16)));
        }
        let is_whole = u32_at(HEADER_BYTES - 4) == crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        match u32_at(40) {
            ID_BYTES if is_whole && u32_at(20) > 0 => {}
            FINGERPRINT_BYTES if is_whole => return Err(Refused::Fingerprints),
            _ => return Err(Refused::DamagedHeader),
        }
        let program = bytes[80..80 + PROGRAM_BYTES_MAX].split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self {
            timeout_s: u32_at(20),
            begun_unix_s: u64_at(24),
            keys: u64_at(32),
            swarms: core::array::from_fn(|index| u64_at(48 + 8 * index)),
            program: String::from_utf8_lossy(program).into_owned(),
        })
    }
}
