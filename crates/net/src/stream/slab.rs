//! Slots for connections. A connection keeps its slot until it closes; then the slot is reused.
//!
//! Slots are allocated in chunks. The next connection takes a slot of the lowest chunk that has a free one. So the
//! higher chunks become empty after a peak, and [`Slab::trim`] frees their memory.

use core::mem;

use shoal_base::transport::stream::Handle;

/// Number of slots that are allocated together. Growth never moves used slots.
const CHUNK: usize = 256;

const WORD: usize = u64::BITS as usize;

/// Values in slots. The handle of a removed value is recognised as stale.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// A bit for each chunk that has free slots.
    vacant: Vec<u64>,
    len: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    /// All slots, or none while the chunk has no memory.
    slots: Box<[SlabSlot<T>]>,
    /// The first free slot; each free slot names the next. Slots are numbered within the chunk.
    free: Option<u32>,
    taken: usize,
    /// The generation of its slots when they are allocated.
    generation: u32,
}

#[derive(Debug)]
struct SlabSlot<T> {
    generation: u32,
    content: Content<T>,
}

#[derive(Debug)]
enum Content<T> {
    Taken(T),
    Free { next: Option<u32> },
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    pub(super) const SLOT_BYTES: usize = size_of::<SlabSlot<T>>();

    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), vacant: Vec::new(), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of slots; all values are in lower ones.
    pub(super) fn slots(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Returns the handle that the next inserted value will have.
    pub(super) fn next_handle(&mut self) -> Handle {
        let number = self.vacant_chunk();
        let chunk = &mut self.chunks[number];
        if chunk.slots.is_empty() {
            chunk.fill();
        }
        let slot = chunk.free.expect("the map names chunks with free slots");
        let generation = chunk.slots[as_usize(slot)].generation;
        Handle { index: first_of(number) + slot, generation }
    }

    pub(super) fn insert(&mut self, value: T) -> Handle {
        let handle = self.next_handle();
        let (number, slot) = split(handle.index);
        let chunk = &mut self.chunks[number];
        let content = mem::replace(&mut chunk.slots[slot].content, Content::Taken(value));
        let Content::Free { next } = content else { unreachable!("the list of free slots names free slots") };
        chunk.free = next;
        chunk.taken += 1;
        if next.is_none() {
            self.vacant[number / WORD] &= !(1 << (number % WORD));
        }
        self.len += 1;
        handle
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<T> {
        self.get_mut(handle)?;
        let (number, index) = split(handle.index);
        let chunk = &mut self.chunks[number];
        let slot = &mut chunk.slots[index];
        slot.generation = slot.generation.wrapping_add(1) & Handle::GENERATION_MAX;
        let content = mem::replace(&mut slot.content, Content::Free { next: chunk.free });
        chunk.free = Some(handle.index - first_of(number));
        chunk.taken -= 1;
        self.vacant[number / WORD] |= 1 << (number % WORD);
        self.len -= 1;
        match content {
            Content::Taken(value) => Some(value),
            Content::Free { .. } => None,
        }
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let (number, slot) = split(handle.index);
        let slot = self.chunks.get_mut(number)?.slots.get_mut(slot)?;
        match &mut slot.content {
            Content::Taken(value) if slot.generation == handle.generation => Some(value),
            _ => None,
        }
    }

    /// Returns the value that is now in slot `index`, which must be in use.
    pub(super) fn at(&mut self, index: u32) -> (Handle, &mut T) {
        let (number, slot) = split(index);
        let slot = &mut self.chunks[number].slots[slot];
        let generation = slot.generation;
        match &mut slot.content {
            Content::Taken(value) => (Handle { index, generation }, value),
            Content::Free { .. } => unreachable!("lists name taken slots"),
        }
    }

    /// Frees the memory of chunks without values. Their slots continue to count generations, so that old handles stay
    /// stale.
    pub(super) fn trim(&mut self) {
        for chunk in &mut self.chunks {
            if chunk.taken == 0 && !chunk.slots.is_empty() {
                let last = chunk.slots.iter().map(|slot| slot.generation).max().unwrap_or(0);
                *chunk = Chunk::without_memory(last.wrapping_add(1) & Handle::GENERATION_MAX);
            }
        }
    }

    /// Returns the lowest chunk with a free slot.
    fn vacant_chunk(&mut self) -> usize {
        let word = self.vacant.iter().position(|word| *word != 0);
        if let Some(word) = word {
            return word * WORD + as_usize(self.vacant[word].trailing_zeros());
        }
        let number = self.chunks.len();
        assert!(number < as_usize(u32::MAX) / CHUNK, "descriptors run out long before");
        self.chunks.push(Chunk::without_memory(0));
        self.vacant.resize(self.chunks.len().div_ceil(WORD), 0);
        self.vacant[number / WORD] |= 1 << (number % WORD);
        number
    }
}

impl<T> Chunk<T> {
    fn without_memory(generation: u32) -> Self {
        Self { slots: Box::default(), free: None, taken: 0, generation }
    }

    fn fill(&mut self) {
        let count = u32::try_from(CHUNK).expect("a chunk is small");
        let slot = |slot| SlabSlot {
            generation: self.generation,
            content: Content::Free { next: (slot + 1 < count).then_some(slot + 1) },
        };
        self.slots = (0..count).map(slot).collect();
        self.free = Some(0);
    }
}

/// Returns the chunk of a slot, and the slot's number in it.
fn split(index: u32) -> (usize, usize) {
    (as_usize(index) / CHUNK, as_usize(index) % CHUNK)
}

/// Returns the first slot of a chunk.
fn first_of(number: usize) -> u32 {
    u32::try_from(number * CHUNK).expect("chunks are counted so that this fits")
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).expect("an address has 32 bits or more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leads_to_its_thing_and_to_no_other() {
        let mut slab = Slab::new();
        let handles: Vec<_> = (0..1000).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.len(), 1000);
        for (value, handle) in (0..).zip(&handles) {
            assert_eq!(slab.get_mut(*handle), Some(&mut { value }));
        }
        let stale = handles[500];
        assert_eq!(slab.remove(stale), Some(500));
        assert_eq!(slab.remove(stale), None);
        let fresh = slab.insert(-1);
        assert_eq!(fresh.index, stale.index);
        assert_eq!(slab.get_mut(stale), None);
        assert_eq!(slab.get_mut(fresh), Some(&mut -1));
        assert_eq!(slab.len(), 1000);
    }

    #[test]
    fn memory_goes_back_and_stale_keys_stay_stale() {
        let mut slab = Slab::new();
        let handles: Vec<_> = (0..3 * CHUNK).map(|value| slab.insert(value)).collect();
        for handle in &handles[1..] {
            slab.remove(*handle);
        }
        slab.trim();
        let with_memory =
            |slab: &Slab<usize>| slab.chunks.iter().filter(|chunk| !chunk.slots.is_empty()).count();
        assert_eq!(with_memory(&slab), 1);
        assert_eq!(slab.get_mut(handles[0]), Some(&mut 0));
        let fresh: Vec<_> = (1..3 * CHUNK).map(|value| slab.insert(value)).collect();
        assert!(handles[1..].iter().all(|handle| slab.get_mut(*handle).is_none()));
        assert!((1..).zip(&fresh).all(|(value, handle)| slab.get_mut(*handle) == Some(&mut { value })));
        assert_eq!(slab.slots(), 3 * CHUNK);
    }

    #[test]
    fn the_lowest_chunk_is_used_first() {
        let mut slab = Slab::new();
        let handles: Vec<_> = (0..5 * CHUNK).map(|value| slab.insert(value)).collect();
        for handle in [handles[4 * CHUNK], handles[2 * CHUNK], handles[3 * CHUNK]] {
            slab.remove(handle);
        }
        let indices: Vec<_> = (0..3).map(|value| slab.insert(value).index).collect();
        assert_eq!(indices, [2, 3, 4].map(first_of));
    }
}
