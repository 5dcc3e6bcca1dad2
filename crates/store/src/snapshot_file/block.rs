//! The content of a block: parts of swarms.

use crate::{SwarmPart, SwarmSet};
use shoal_base::InfoHash;

pub(crate) const BLOCK_HEADER_BYTES: usize = 32;

pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"SHBK";

/// The kind of the last block.
pub(crate) const LAST: u8 = u8::MAX;

/// Returns the `N` bytes from `start` on, which must exist.
pub(crate) fn word<const N: usize>(bytes: &[u8], start: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[start..start + N]);
    word
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) kind: u8,
    pub(crate) number: u32,
    pub(crate) length: u32,
    pub(crate) at_unix_s: u64,
    pub(crate) crc: u32,
}

impl BlockHeader {
    pub(crate) fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&BLOCK_MAGIC);
        bytes[4] = self.kind;
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.at_unix_s.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns the header, or `None` if the bytes are no header.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let u32_at = |start| u32::from_le_bytes(word(bytes, start));
        let is_whole = bytes[..4] == BLOCK_MAGIC && u32_at(28) == crc32fast::hash(&bytes[..28]);
        let length = u32_at(12);
        (is_whole && length as usize <= crate::snapshot_file::BLOCK_BYTES_MAX).then(|| Self {
            kind: bytes[4],
            number: u32_at(8),
            length,
            at_unix_s: u64::from_le_bytes(word(bytes, 16)),
            crc: u32_at(24),
        })
    }
}

/// Appends a part.
pub fn encode_part(part: &SwarmPart<'_>, to: &mut Vec<u8>) {
    to.extend_from_slice(&part.id.0);
    encode_number(u64::from(part.completed), to);
    encode_number(u64::from(part.age_s), to);
    encode_number(part.seeders as u64, to);
    encode_number((part.ages.len() - part.seeders) as u64, to);
    to.extend_from_slice(part.peers);
    to.extend_from_slice(part.ages);
}

/// Appends a number in LEB128: seven bits a byte, the lowest first, and a flag in all bytes but the last.
fn encode_number(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    to.push((number & 0x7f) as u8);
}

/// The error of a block whose content makes no sense, although its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part is incomplete or impossible")]
pub struct Malformed;

/// The parts of a block.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    rest: &'a [u8],
    peer_bytes: usize,
}

impl<'a> Parts<'a> {
    /// Reads the content of a block of one set.
    pub const fn new(content: &'a [u8], set: SwarmSet) -> Self {
        Self { rest: content, peer_bytes: set.peer_bytes() }
    }

    fn decode(&mut self) -> Option<SwarmPart<'a>> {
        let id = InfoHash(*self.take(size_of::<InfoHash>())?.first_chunk()?);
        let completed = u32::try_from(self.number()?).ok()?;
        let age_s = u32::try_from(self.number()?).ok()?;
        let seeders = usize::try_from(self.number()?).ok()?;
        let count = seeders.checked_add(usize::try_from(self.number()?).ok()?)?;
        let peers = self.take(count.checked_mul(self.peer_bytes)?)?;
        let ages = self.take(count)?;
        Some(SwarmPart { id, completed, age_s, seeders, peers, ages })
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<SwarmPart<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let part = self.decode();
        if part.is_none() {
            // Nothing after it can be trusted.
            self.rest = &[];
        }
        Some(part.ok_or(Malformed))
    }
}
