//! Bytes that wait for more of what they belong to.

use std::fmt;
use std::mem;

/// Most buffers that are kept for later.
const SPARES_MAX: usize = 16;

/// Longest buffer that is kept for later.
const SPARE_BYTES_MAX: usize = 128 * 1024;

/// Up to so many bytes, memory is taken for twice of what has come, so that most messages are put together at once;
/// beyond, for a quarter more than has come.
const DOUBLED_BYTES_MAX: usize = 64 * 1024;

/// What has come of a request, a frame or a header that is not whole. As wide as a pointer, because nearly all
/// connections keep nothing nearly all the time.
#[derive(Default)]
pub(crate) struct Kept(Option<Box<Buffer>>);

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
}

/// Buffers of those who keep nothing any more, for those who will. Longer messages than an input are kept in part as a
/// rule, and memory is not to be asked for with each of them.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "it is the boxes that are used again")]
pub(crate) struct Spares(Vec<Box<Buffer>>);

impl Spares {
    /// Gives back all buffers. Those that are needed are made anew.
    pub(crate) fn trim(&mut self) {
        self.0 = Vec::new();
    }
}

impl Kept {
    /// Keeps nothing.
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// How much memory it holds.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |buffer| buffer.bytes.capacity())
    }

    /// The same with the box in which the buffer is.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |buffer| size_of::<Buffer>() + buffer.bytes.capacity())
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |buffer| buffer.bytes.len())
    }

    /// Hands out what was kept, so that nothing is.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.0.take().map_or_else(Vec::new, |buffer| buffer.bytes)
    }

    /// Keeps these instead of what was kept.
    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        self.0 = if bytes.is_empty() { None } else { Some(Box::new(Buffer { bytes })) };
    }

    /// Keeps `input` too. In all there will be `whole_bytes`, as far as that is known: memory is taken for as much at
    /// most, and in proportion to what has come.
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

    /// What is kept, to be read where it lies.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], |buffer| &mut buffer.bytes)
    }

    /// The first bytes are done with. When none is left, the buffer goes to the spares.
    pub(crate) fn consume(&mut self, used: usize, spares: &mut Spares) {
        let Some(buffer) = &mut self.0 else { return };
        buffer.bytes.drain(..used);
        if buffer.bytes.is_empty() {
            self.spare(spares);
        }
    }

    /// Keeps nothing any more; the buffer goes to the spares.
    pub(crate) fn spare(&mut self, spares: &mut Spares) {
        let Some(mut buffer) = mem::take(&mut self.0) else { return };
        if spares.0.len() < SPARES_MAX && buffer.bytes.capacity() <= SPARE_BYTES_MAX {
            buffer.bytes.clear();
            spares.0.push(buffer);
        }
    }
}

impl fmt::Debug for Kept {
    /// Without the bytes, which are nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

const _: () = assert!(size_of::<Kept>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_what_comes_up_to_what_will_have_come() {
        let (mut kept, mut spares) = (Kept::nothing(), Spares::default());
        let mut reallocations = 0;
        for come in 1..=1000 {
            let before = kept.capacity_bytes();
            kept.append(&[7], 1000, &mut spares);
            let after = kept.capacity_bytes();
            assert!((come..=1000.min(2 * come)).contains(&after), "{come}: {after}");
            reallocations += usize::from(after != before);
        }
        assert!(reallocations <= 11, "{reallocations}");
        assert_eq!(kept.bytes_mut(), [7; 1000]);
        kept.append(&[8; 24], 1000, &mut spares);
        assert_eq!(kept.capacity_bytes(), 1024);
    }

    #[test]
    fn a_long_message_takes_little_more_than_has_come() {
        let (mut kept, mut spares) = (Kept::nothing(), Spares::default());
        for piece in 1..=64 {
            kept.append(&[7; 4096], 1 << 20, &mut spares);
            let come = piece * 4096;
            assert!(kept.capacity_bytes() <= (come + come / 4).max(DOUBLED_BYTES_MAX), "{come}");
        }
    }

    #[test]
    fn a_buffer_is_used_again() {
        let (mut kept, mut spares) = (Kept::nothing(), Spares::default());
        kept.append(&[1, 2, 3], 100, &mut spares);
        kept.consume(2, &mut spares);
        assert_eq!((kept.bytes_mut(), spares.0.len()), (&mut [3][..], 0));
        kept.consume(1, &mut spares);
        assert!(kept.is_empty() && spares.0.len() == 1);
        kept.append(&[4], 100, &mut spares);
        assert_eq!((kept.bytes_mut(), spares.0.len()), (&mut [4][..], 0));
    }

    #[test]
    fn few_buffers_are_spared_and_no_long_ones() {
        let mut spares = Spares::default();
        for _ in 0..2 * SPARES_MAX {
            let mut kept = Kept::nothing();
            kept.put(vec![0; 10]);
            kept.spare(&mut spares);
        }
        assert_eq!(spares.0.len(), SPARES_MAX);
        let mut spares = Spares::default();
        let mut kept = Kept::nothing();
        kept.put(vec![0; SPARE_BYTES_MAX + 1]);
        kept.spare(&mut spares);
        assert!(spares.0.is_empty() && kept.is_empty());
    }
}
