//! Room for connections: a place that stays the same for the life of each, and is taken again afterwards.
//!
//! Places are in chunks, of which the lowest with a free place is used next: so after a peak the chunks behind become
//! empty, and [`Slab::trim`] gives their memory back.

use core::mem;

pub(super) use shoal_transport::stream::Handle as Key;

/// Places are made so many at a time, so that growth never moves those that are in use.
const CHUNK: usize = 256;

/// Bits of a word of the map of chunks.
const WORD: usize = u64::BITS as usize;

/// Things at places. A key of a thing that has gone is known to be stale.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// A bit for each chunk that has free places.
    vacant: Vec<u64>,
    len: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    /// All places, or none while no memory is taken.
    places: Box<[Place<T>]>,
    /// The first free place, each of which tells the next. Places are counted within the chunk.
    free: Option<u32>,
    taken: usize,
    /// The generation of its places when memory is taken for them.
    generation: u32,
}

#[derive(Debug)]
struct Place<T> {
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
    /// Bytes of a place.
    pub(super) const PLACE_BYTES: usize = size_of::<Place<T>>();

    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), vacant: Vec::new(), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many places there are; all things are at lower ones.
    pub(super) fn places(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// The key that the next thing to be inserted will have.
    pub(super) fn next_key(&mut self) -> Key {
        let number = self.vacant_chunk();
        let chunk = &mut self.chunks[number];
        if chunk.places.is_empty() {
            chunk.fill();
        }
        let place = chunk.free.expect("the map names chunks with free places");
        let generation = chunk.places[as_usize(place)].generation;
        Key { index: first_of(number) + place, generation }
    }

    pub(super) fn insert(&mut self, thing: T) -> Key {
        let key = self.next_key();
        let (number, place) = split(key.index);
        let chunk = &mut self.chunks[number];
        let content = mem::replace(&mut chunk.places[place].content, Content::Taken(thing));
        let Content::Free { next } = content else {
            unreachable!("the list of free places names free places")
        };
        chunk.free = next;
        chunk.taken += 1;
        if next.is_none() {
            self.vacant[number / WORD] &= !(1 << (number % WORD));
        }
        self.len += 1;
        key
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        let (number, index) = split(key.index);
        let chunk = &mut self.chunks[number];
        let place = &mut chunk.places[index];
        place.generation = place.generation.wrapping_add(1) & Key::GENERATION_MAX;
        let content = mem::replace(&mut place.content, Content::Free { next: chunk.free });
        chunk.free = Some(key.index - first_of(number));
        chunk.taken -= 1;
        self.vacant[number / WORD] |= 1 << (number % WORD);
        self.len -= 1;
        match content {
            Content::Taken(thing) => Some(thing),
            Content::Free { .. } => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (number, place) = split(key.index);
        let place = self.chunks.get_mut(number)?.places.get_mut(place)?;
        match &mut place.content {
            Content::Taken(thing) if place.generation == key.generation => Some(thing),
            _ => None,
        }
    }

    /// The thing that is at `index` now, which somebody is known to be at.
    pub(super) fn at(&mut self, index: u32) -> (Key, &mut T) {
        let (number, place) = split(index);
        let place = &mut self.chunks[number].places[place];
        let generation = place.generation;
        match &mut place.content {
            Content::Taken(thing) => (Key { index, generation }, thing),
            Content::Free { .. } => unreachable!("lists name taken places"),
        }
    }

    /// Gives back the memory of chunks without a thing. Their places keep counting generations, so that keys of things
    /// that were there stay stale.
    pub(super) fn trim(&mut self) {
        for chunk in &mut self.chunks {
            if chunk.taken == 0 && !chunk.places.is_empty() {
                let last = chunk.places.iter().map(|place| place.generation).max().unwrap_or(0);
                *chunk = Chunk::without_memory(last.wrapping_add(1) & Key::GENERATION_MAX);
            }
        }
    }

    /// The lowest chunk with a free place.
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
        Self { places: Box::default(), free: None, taken: 0, generation }
    }

    /// Takes memory for all places, which are free.
    fn fill(&mut self) {
        let count = u32::try_from(CHUNK).expect("a chunk is small");
        let place = |place| Place {
            generation: self.generation,
            content: Content::Free { next: (place + 1 < count).then_some(place + 1) },
        };
        self.places = (0..count).map(place).collect();
        self.free = Some(0);
    }
}

/// The chunk of a place, and the place in it.
fn split(index: u32) -> (usize, usize) {
    (as_usize(index) / CHUNK, as_usize(index) % CHUNK)
}

/// The first place of a chunk.
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
        let keys: Vec<_> = (0..1000).map(|thing| slab.insert(thing)).collect();
        assert_eq!(slab.len(), 1000);
        for (thing, key) in (0..).zip(&keys) {
            assert_eq!(slab.get_mut(*key), Some(&mut { thing }));
        }
        let stale = keys[500];
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
        let keys: Vec<_> = (0..3 * CHUNK).map(|thing| slab.insert(thing)).collect();
        for key in &keys[1..] {
            slab.remove(*key);
        }
        slab.trim();
        let with_memory =
            |slab: &Slab<usize>| slab.chunks.iter().filter(|chunk| !chunk.places.is_empty()).count();
        assert_eq!(with_memory(&slab), 1);
        assert_eq!(slab.get_mut(keys[0]), Some(&mut 0));
        let fresh: Vec<_> = (1..3 * CHUNK).map(|thing| slab.insert(thing)).collect();
        assert!(keys[1..].iter().all(|key| slab.get_mut(*key).is_none()));
        assert!((1..).zip(&fresh).all(|(thing, key)| slab.get_mut(*key) == Some(&mut { thing })));
        assert_eq!(slab.places(), 3 * CHUNK);
    }

    #[test]
    fn the_lowest_chunk_is_used_first() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..5 * CHUNK).map(|thing| slab.insert(thing)).collect();
        for key in [keys[4 * CHUNK], keys[2 * CHUNK], keys[3 * CHUNK]] {
            slab.remove(key);
        }
        let indices: Vec<_> = (0..3).map(|thing| slab.insert(thing).index).collect();
        assert_eq!(indices, [2, 3, 4].map(first_of));
    }
}
