//! Room for connections: a place that stays the same for the life of each, and is taken again afterwards.

use core::mem;

pub(super) use shoal_wire::stream::Handle as Key;

/// Places are made so many at a time, so that growth never moves those that are in use.
const CHUNK: usize = 256;

/// Things at places. A key of a thing that has gone is known to be stale.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Box<[Place<T>]>>,
    /// The first free place, each of which tells the next.
    free: Option<u32>,
    len: usize,
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
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), free: None, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The key that the next thing to be inserted will have.
    pub(super) fn next_key(&mut self) -> Key {
        if self.free.is_none() {
            self.grow();
        }
        let index = self.free.expect("places have just been made");
        Key { index, generation: self.place(index).generation }
    }

    pub(super) fn insert(&mut self, thing: T) -> Key {
        let Key { index, .. } = self.next_key();
        let place = self.place(index);
        let Content::Free { next } = mem::replace(&mut place.content, Content::Taken(thing)) else {
            unreachable!("the list of free places names free places")
        };
        let generation = place.generation;
        self.free = next;
        self.len += 1;
        Key { index, generation }
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        let next = self.free;
        let place = self.place(key.index);
        place.generation = place.generation.wrapping_add(1) & Key::GENERATION_MAX;
        let content = mem::replace(&mut place.content, Content::Free { next });
        self.free = Some(key.index);
        self.len -= 1;
        match content {
            Content::Taken(thing) => Some(thing),
            Content::Free { .. } => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let index = key.index as usize;
        let place = self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)?;
        match &mut place.content {
            Content::Taken(thing) if place.generation == key.generation => Some(thing),
            _ => None,
        }
    }

    /// The thing that is at `index` now, which somebody is known to be at.
    pub(super) fn at(&mut self, index: u32) -> (Key, &mut T) {
        let place = self.place(index);
        let generation = place.generation;
        match &mut place.content {
            Content::Taken(thing) => (Key { index, generation }, thing),
            Content::Free { .. } => unreachable!("lists name taken places"),
        }
    }

    fn place(&mut self, index: u32) -> &mut Place<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn grow(&mut self) {
        let first = u32::try_from(self.chunks.len() * CHUNK).expect("descriptors run out long before");
        let last = first + u32::try_from(CHUNK - 1).expect("a chunk is small");
        let place = |index| Place {
            generation: 0,
            content: Content::Free { next: (index < last).then_some(index + 1) },
        };
        self.chunks.push((first..=last).map(place).collect());
        self.free = Some(first);
    }
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
}
