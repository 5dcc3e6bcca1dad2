//! Intrusive queues: doubly linked lists whose links stand in the elements, so that queueing takes constant time and no
//! memory of its own.
//!
//! A queue knows only its ends. The caller says where the links of an element are ([`Chain`]), which lets one element
//! stand in several queues at a time.

use std::num::NonZeroU32;

/// The place of an element in its slab. `Option<Place>` takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(NonZeroU32);

/// The neighbours of an element in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    before: Option<Place>,
    after: Option<Place>,
}

/// Where the elements of a queue keep their links.
pub(super) trait Chain {
    fn links(&mut self, place: Place) -> &mut Links;
}

/// A queue of elements, the one that has been in it longest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    first: Option<Place>,
    last: Option<Place>,
}

impl Place {
    /// The place of this index of a slab, whose indices stay below `u32::MAX`.
    pub(super) const fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    pub(super) const fn index(self) -> u32 {
        self.0.get() - 1
    }
}

impl Links {
    /// Whether the element is alone in its queue, if it is in one.
    pub(super) fn is_alone(&self) -> bool {
        *self == Self::default()
    }
}

impl Queue {
    pub(super) const fn first(&self) -> Option<Place> {
        self.first
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Appends an element that is in no queue of this chain.
    pub(super) fn push(&mut self, place: Place, chain: &mut impl Chain) {
        let last = self.last.replace(place);
        match last {
            Some(last) => chain.links(last).after = Some(place),
            None => self.first = Some(place),
        }
        *chain.links(place) = Links { before: last, after: None };
    }

    /// Puts an element that is in no queue of this chain before all others.
    pub(super) fn push_first(&mut self, place: Place, chain: &mut impl Chain) {
        let first = self.first.replace(place);
        match first {
            Some(first) => chain.links(first).before = Some(place),
            None => self.last = Some(place),
        }
        *chain.links(place) = Links { before: None, after: first };
    }

    /// Takes an element out of this queue, in which it must be.
    pub(super) fn remove(&mut self, place: Place, chain: &mut impl Chain) {
        let Links { before, after } = std::mem::take(chain.links(place));
        match before {
            Some(before) => chain.links(before).after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => chain.links(after).before = before,
            None => self.last = before,
        }
    }
}

const _: () = assert!(size_of::<Links>() == 8 && size_of::<Queue>() == 8);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Numbers(Vec<Links>);

    impl Chain for Numbers {
        fn links(&mut self, place: Place) -> &mut Links {
            &mut self.0[place.index() as usize]
        }
    }

    #[test]
    fn a_queue_keeps_the_order_of_a_deque() {
        const COUNT: u32 = 20;
        let mut rng = fastrand::Rng::with_seed(7);
        let mut numbers = Numbers(vec![Links::default(); COUNT as usize]);
        let (mut queue, mut model) = (Queue::default(), VecDeque::new());
        for _ in 0..10_000 {
            let index = rng.u32(..COUNT);
            if model.contains(&index) {
                model.retain(|other| *other != index);
                queue.remove(Place::new(index), &mut numbers);
            } else if rng.u8(..4) == 0 {
                model.push_front(index);
                queue.push_first(Place::new(index), &mut numbers);
            } else {
                model.push_back(index);
                queue.push(Place::new(index), &mut numbers);
            }
            assert_eq!(queue.first().map(Place::index), model.front().copied());
            assert_eq!(queue.is_empty(), model.is_empty());
        }
        for index in model {
            assert_eq!(queue.first().map(Place::index), Some(index));
            queue.remove(Place::new(index), &mut numbers);
        }
        assert_eq!(queue, Queue::default());
    }
}
