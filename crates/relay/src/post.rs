//! Letters, one behind the other in one piece of memory.

use shoal_wire::stream::Handle;

/// Room that is kept while nothing is written, so that a moment of much to say does not take memory for good.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// What stands before each letter: index and generation of the handle, the length, and the class.
const HEAD_BYTES: usize = 13;

/// Groups of sources whose offers are counted apart in the queue of a receiver.
pub(crate) const GROUPS: u8 = 8;

/// How a message ranks in the queue of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A reply to a message of the receiver itself.
    Reply,
    /// The answer of another peer to an offer of the receiver.
    Answer,
    /// The offer of another peer, with the group of its source, see [`Source::group`](crate::Source::group).
    Offer(u8),
    /// No message to the receiver, but the payload of a challenge, which its worker sees to.
    Challenge,
}

impl Class {
    fn encode(self) -> u8 {
        match self {
            Self::Offer(group) => group % GROUPS,
            Self::Reply => GROUPS,
            Self::Answer => GROUPS + 1,
            Self::Challenge => GROUPS + 2,
        }
    }

    fn decode(byte: u8) -> Self {
        match byte {
            GROUPS => Self::Reply,
            0..GROUPS => Self::Offer(byte),
            byte if byte == GROUPS + 1 => Self::Answer,
            _ => Self::Challenge,
        }
    }
}

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
    pub(crate) fn write(
        &mut self,
        to: Handle,
        class: Class,
        bytes_max: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let start = self.bytes.len();
        if start >= bytes_max {
            return false;
        }
        for number in [to.index, to.generation, 0] {
            self.bytes.extend_from_slice(&number.to_ne_bytes());
        }
        self.bytes.push(class.encode());
        let body = self.bytes.len();
        write(&mut self.bytes);
        let length = u32::try_from(self.bytes.len() - body).ok().filter(|_| self.bytes.len() <= bytes_max);
        match length {
            Some(length) => self.bytes[body - 5..body - 1].copy_from_slice(&length.to_ne_bytes()),
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
        for (to, class, letter) in other.iter() {
            let fits = self.bytes.len() + HEAD_BYTES + letter.len() <= bytes_max;
            if !(fits && self.write(to, class, bytes_max, |out| out.extend_from_slice(letter))) {
                lost += 1;
            }
        }
        lost
    }

    /// The letters, in the order in which they were written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, Class, &[u8])> {
        let mut rest = &self.bytes[..];
        core::iter::from_fn(move || {
            let (index, generation, length) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
            let (&class, behind) = rest.split_first()?;
            rest = behind;
            let (letter, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = behind;
            Some((Handle { index, generation }, Class::decode(class), letter))
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
