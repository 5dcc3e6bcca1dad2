//! Letters, one behind the other in one piece of memory.

use shoal_wire::stream::Handle;

/// Room that is kept while nothing is written, so that a moment of much to say does not take memory for good.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// What stands before each letter: index and generation of the handle, and the length.
const HEAD_BYTES: usize = 12;

/// Letters to connections of one worker. Never leaves the process.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    bytes: Vec<u8>,
}

impl Letters {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds a letter, unless there is no room for it. Returns whether there was.
    pub(crate) fn write(&mut self, to: Handle, bytes_max: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let start = self.bytes.len();
        if start >= bytes_max {
            return false;
        }
        for number in [to.index, to.generation, 0] {
            self.bytes.extend_from_slice(&number.to_ne_bytes());
        }
        let body = self.bytes.len();
        write(&mut self.bytes);
        let length = u32::try_from(self.bytes.len() - body).ok().filter(|_| self.bytes.len() <= bytes_max);
        match length {
            Some(length) => self.bytes[body - 4..body].copy_from_slice(&length.to_ne_bytes()),
            None => self.bytes.truncate(start),
        }
        length.is_some()
    }

    /// Adds the letters of another batch, save those for which there is no room. Returns how many those are.
    pub(crate) fn append(&mut self, other: &Self, bytes_max: usize) -> u64 {
        if self.bytes.len() + other.bytes.len() <= bytes_max {
            self.bytes.extend_from_slice(&other.bytes);
            return 0;
        }
        let mut lost = 0;
        for (to, letter) in other.iter() {
            let fits = self.bytes.len() + HEAD_BYTES + letter.len() <= bytes_max;
            if !(fits && self.write(to, bytes_max, |out| out.extend_from_slice(letter))) {
                lost += 1;
            }
        }
        lost
    }

    /// The letters, in the order in which they were written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &[u8])> {
        let mut rest = &self.bytes[..];
        core::iter::from_fn(move || {
            let (index, generation, length) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
            let (letter, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = behind;
            Some((Handle { index, generation }, letter))
        })
    }

    /// Gives back memory that is kept for later.
    pub(crate) fn trim(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Throws all letters away.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

/// Takes a number from the front.
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_ne_bytes(*number))
}
