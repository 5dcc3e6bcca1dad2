//! Partial input: bytes of an incomplete request, frame or header.

use std::fmt;
use std::mem;

/// Maximum number of buffers that are retained for reuse.
const SPARES_MAX: usize = 16;

/// Maximum capacity of a buffer that is retained for reuse.
const SPARE_BYTES_MAX: usize = 128 * 1024;

/// Up to this size, a buffer is allocated for twice the arrived bytes, so that most messages take few copies. Beyond
/// it, a buffer is allocated for a quarter more than has arrived.
const DOUBLED_BYTES_MAX: usize = 64 * 1024;

/// The received part of a request, a frame or a header. It is as wide as a pointer, because most connections seldom
/// hold partial input.
#[derive(Default)]
pub(crate) struct PartialInput(Option<Box<Buffer>>);

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
}

/// Unused buffers for reuse. Messages that are longer than one input are usually buffered in part, and should not each
/// need an allocation.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "the boxes themselves are reused")]
pub(crate) struct Spares(Vec<Box<Buffer>>);

impl Spares {
    /// Frees all buffers. New ones are allocated as needed.
    pub(crate) fn trim(&mut self) {
        self.0 = Vec::new();
    }
}

impl PartialInput {
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |buffer| buffer.bytes.capacity())
    }

    /// Returns the held memory, including the box of the buffer.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |buffer| size_of::<Buffer>() + buffer.bytes.capacity())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |buffer| buffer.bytes.len())
    }

    /// Takes all bytes out.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.0.take().map_or_else(Vec::new, |buffer| buffer.bytes)
    }

    /// Replaces the contents by `bytes`.
    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        self.0 = if bytes.is_empty() { None } else { Some(Box::new(Buffer { bytes })) };
    }

    /// Appends `input`. The whole will have `whole_bytes`, if known. The buffer is allocated for at most as much, and
    /// in proportion to the arrived bytes.
    pub(crate) fn append(&mut self, input: &[u8], whole_bytes: usize, spares: &mut Spares) {
        if input.is_empty() {
            return;
        }
        let bytes = &mut self.0.get_or_insert_with(|| spares.0.pop().unwrap_or_default()).bytes;
        let needed = bytes.len() + input.len();
        if needed > bytes.capacity() {
            let ahead = (2 * needed).min(DOUBLED_BYTES_MAX).max(needed + needed / 4);
            let wanted = needed.max(ahead.min(whole_bytes));
            bytes.reserve_exact(wanted - bytes.len());
        }
        bytes.extend_from_slice(input);
    }

    /// Returns the bytes, to be read in place.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], |buffer| &mut buffer.bytes)
    }

    /// Removes the first `used` bytes. An emptied buffer goes to the spares.
    pub(crate) fn consume(&mut self, used: usize, spares: &mut Spares) {
        let Some(buffer) = &mut self.0 else { return };
        buffer.bytes.drain(..used);
        if buffer.bytes.is_empty() {
            self.spare(spares);
        }
    }

    /// Discards all bytes. The buffer goes to the spares.
    pub(crate) fn spare(&mut self, spares: &mut Spares) {
        let Some(mut buffer) = mem::take(&mut self.0) else { return };
        if spares.0.len() < SPARES_MAX && buffer.bytes.capacity() <= SPARE_BYTES_MAX {
            buffer.bytes.clear();
            spares.0.push(buffer);
        }
    }
}

impl fmt::Debug for PartialInput {
    /// Omits the bytes, which are private to the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

const _: () = assert!(size_of::<PartialInput>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_the_input_up_to_the_whole() {
        let (mut partial, mut spares) = (PartialInput::nothing(), Spares::default());
        let mut reallocations = 0;
        for come in 1..=1000 {
            let before = partial.capacity_bytes();
            partial.append(&[7], 1000, &mut spares);
            let after = partial.capacity_bytes();
            assert!((come..=1000.min(2 * come)).contains(&after), "{come}: {after}");
            reallocations += usize::from(after != before);
        }
        assert!(reallocations <= 11, "{reallocations}");
        assert_eq!(partial.bytes_mut(), [7; 1000]);
        partial.append(&[8; 24], 1000, &mut spares);
        assert_eq!(partial.capacity_bytes(), 1024);
    }

    #[test]
    fn a_long_message_takes_little_more_than_its_received_part() {
        let (mut partial, mut spares) = (PartialInput::nothing(), Spares::default());
        for piece in 1..=64 {
            partial.append(&[7; 4096], 1 << 20, &mut spares);
            let come = piece * 4096;
            assert!(partial.capacity_bytes() <= (come + come / 4).max(DOUBLED_BYTES_MAX), "{come}");
        }
    }

    #[test]
    fn a_buffer_is_used_again() {
        let (mut partial, mut spares) = (PartialInput::nothing(), Spares::default());
        partial.append(&[1, 2, 3], 100, &mut spares);
        partial.consume(2, &mut spares);
        assert_eq!((partial.bytes_mut(), spares.0.len()), (&mut [3][..], 0));
        partial.consume(1, &mut spares);
        assert!(partial.is_empty() && spares.0.len() == 1);
        partial.append(&[4], 100, &mut spares);
        assert_eq!((partial.bytes_mut(), spares.0.len()), (&mut [4][..], 0));
    }

    #[test]
    fn few_buffers_are_spared_and_no_long_ones() {
        let mut spares = Spares::default();
        for _ in 0..2 * SPARES_MAX {
            let mut partial = PartialInput::nothing();
            partial.put(vec![0; 10]);
            partial.spare(&mut spares);
        }
        assert_eq!(spares.0.len(), SPARES_MAX);
        let mut spares = Spares::default();
        let mut partial = PartialInput::nothing();
        partial.put(vec![0; SPARE_BYTES_MAX + 1]);
        partial.spare(&mut spares);
        assert!(spares.0.is_empty() && partial.is_empty());
    }
}
