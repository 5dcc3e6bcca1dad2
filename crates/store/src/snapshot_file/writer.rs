//! Writes a snapshot.

use std::io::{self, Write};

use crate::{SwarmPart, SwarmSet};

use crate::snapshot_file::block::{self, BlockHeader, LAST};
use crate::snapshot_file::{BLOCK_BYTES, Header, Summary};

/// A snapshot that is being written. It has one block in memory.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    content: Vec<u8>,
    /// The set of the swarms in `content`.
    set: SwarmSet,
    summary: Summary,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a snapshot. The error is the error of `out`, like all functions here.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        let header_bytes = header.encode();
        out.write_all(&header_bytes)?;
        Ok(Self {
            out,
            content: Vec::new(),
            set: SwarmSet::V4,
            summary: Summary::default(),
            bytes: header_bytes.len() as u64,
        })
    }

    /// Adds a part to the current block. Writes nothing, so it may be called under a lock. All parts of a block must
    /// belong to one set: call [`end_block`](Self::end_block) before a part of another set.
    pub fn push(&mut self, set: SwarmSet, part: &SwarmPart<'_>) {
        debug_assert!(self.content.is_empty() || set == self.set, "a block has one set");
        self.set = set;
        self.summary.parts += 1;
        self.summary.peers += part.ages.len() as u64;
        block::encode_part(part, &mut self.content);
    }

    /// Returns whether the current block has its intended size.
    pub fn is_block_full(&self) -> bool {
        self.content.len() >= BLOCK_BYTES
    }

    /// Writes the current block, unless it is empty. Its ages were true at `at_unix_s`, in seconds since 1970.
    pub fn end_block(&mut self, at_unix_s: u64) -> io::Result<()> {
        if !self.content.is_empty() {
            self.write(u8::try_from(self.set.index()).unwrap_or(LAST), at_unix_s)?;
            self.summary.blocks += 1;
        }
        Ok(())
    }

    /// Writes the remaining parts and the last block. Returns the output, and the number of its contents and of its
    /// bytes.
    pub fn finish(mut self, at_unix_s: u64) -> io::Result<(W, Summary, u64)> {
        self.end_block(at_unix_s)?;
        let Summary { blocks, parts, peers } = self.summary;
        self.content.extend_from_slice(&blocks.to_le_bytes());
        self.content.extend_from_slice(&parts.to_le_bytes());
        self.content.extend_from_slice(&peers.to_le_bytes());
        self.write(LAST, at_unix_s)?;
        self.out.flush()?;
        Ok((self.out, self.summary, self.bytes))
    }

    /// Returns the output.
    pub const fn output(&self) -> &W {
        &self.out
    }

    /// Returns the number of bytes that were written.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&mut self, kind: u8, at_unix_s: u64) -> io::Result<()> {
        let length = u32::try_from(self.content.len()).map_err(io::Error::other)?;
        let crc = crc32fast::hash(&self.content);
        let header = BlockHeader { kind, number: self.summary.blocks, length, at_unix_s, crc }.encode();
        self.out.write_all(&header)?;
        self.out.write_all(&self.content)?;
        self.bytes += (header.len() + self.content.len()) as u64;
        self.content.clear();
        Ok(())
    }
}
