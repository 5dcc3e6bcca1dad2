//! Intrusive queues: doubly linked lists whose links are in the elements, so that an operation takes constant time and
//! no memory.
//!
//! A queue knows only its ends. The caller provides the links of an element ([`Chain`]), so an element can be in
//! several queues at the same time.

use std::num::NonZeroU32;

/// The number of an element in its slab. `Option<NodeId>` takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(NonZeroU32);

/// The neighbours of an element in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    before: Option<NodeId>,
    after: Option<NodeId>,
}

/// Gives access to the links of a queue's elements.
pub(super) trait Chain {
    fn links(&mut self, node: NodeId) -> &mut Links;
}

/// A queue of elements, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    first: Option<NodeId>,
    last: Option<NodeId>,
}

impl NodeId {
    /// Creates the id of the element with this index in a slab. Indices are below `u32::MAX`.
    pub(super) const fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    pub(super) const fn index(self) -> u32 {
        self.0.get() - 1
    }
}

impl Links {
    /// Returns whether the element is alone in its queue, if it is in one.
    pub(super) fn is_alone(&self) -> bool {
        *self == Self::default()
    }
}

impl Queue {
    pub(super) const fn first(&self) -> Option<NodeId> {
        self.first
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Appends an element that is in no queue of this chain.
    pub(super) fn push(&mut self, node: NodeId, chain: &mut impl Chain) {
        let last = self.last.replace(node);
        match last {
            Some(last) => chain.links(last).after = Some(node),
            None => self.first = Some(node),
        }
        *chain.links(node) = Links { before: last, after: None };
    }

    /// Returns the element after another one.
    pub(super) fn after(node: NodeId, chain: &mut impl Chain) -> Option<NodeId> {
        chain.links(node).after
    }

    /// Prepends an element that is in no queue of this chain.
    pub(super) fn push_first(&mut self, node: NodeId, chain: &mut impl Chain) {
        let first = self.first.replace(node);
        match first {
            Some(first) => chain.links(first).before = Some(node),
            None => self.last = Some(node),
        }
        *chain.links(node) = Links { before: None, after: first };
    }

    /// Moves the first element to the end.
    pub(super) fn rotate(&mut self, chain: &mut impl Chain) {
        if let Some(first) = self.first {
            self.remove(first, chain);
            self.push(first, chain);
        }
    }

    /// Removes an element from this queue, which must contain it.
    pub(super) fn remove(&mut self, node: NodeId, chain: &mut impl Chain) {
        let Links { before, after } = std::mem::take(chain.links(node));
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
        fn links(&mut self, node: NodeId) -> &mut Links {
            &mut self.0[node.index() as usize]
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
                queue.remove(NodeId::new(index), &mut numbers);
            } else if rng.u8(..4) == 0 {
                model.push_front(index);
                queue.push_first(NodeId::new(index), &mut numbers);
            } else {
                model.push_back(index);
                queue.push(NodeId::new(index), &mut numbers);
            }
            if rng.bool() && !model.is_empty() {
                model.rotate_left(1);
                queue.rotate(&mut numbers);
            }
            assert_eq!(queue.first().map(NodeId::index), model.front().copied());
            assert_eq!(queue.is_empty(), model.is_empty());
        }
        for index in model {
            assert_eq!(queue.first().map(NodeId::index), Some(index));
            queue.remove(NodeId::new(index), &mut numbers);
        }
        assert_eq!(queue, Queue::default());
    }
}
