//! The requests of a batch to the swarms of one family, grouped by shard: requests of datagrams, or changes from
//! other nodes.
//!
//! The requests of a group share one lock in each pass. Changes from other nodes are so numerous that all passes over
//! a part of a group share one lock. A group keeps the order of arrival, and all requests to a swarm are in one
//! group, so they apply in that order. The order of the groups does not matter: if another worker holds the lock, a
//! group of datagrams comes last.
//!
//! A dependent cache miss costs a few hundred nanoseconds, and 64 of them together little more than one. So the
//! passes prefetch the lines of all swarms, then their entries, then the peers of small swarms and the heads of large
//! ones, then the peers of large swarms, and only then apply everything. A sample can be prefetched because its
//! random numbers are known in advance: the seed of each announce is drawn early and used twice. `cargo xtask bench
//! store --filter batch` prints the gain.
//!
//! A shard with a taken lock comes last in a pass, so a worker waits only if no other work is left. A worker never
//! holds two locks. Each torrent of a scrape is a separate request in its group.
//!
//! The first pass notes the lines of each swarm (`Place`). The pass that loads the entries compares only tags in them, and
//! notes the probable position of the swarm. The passes that load peers use it without a comparison: at worst, they load
//! the wrong lines. Only the announce compares the identity, since an earlier request may have moved the swarm. The last
//! of these passes looks for the announcer in its role, and in both roles only if the client says that it is new, has
//! completed, or leaves.

use arrayvec::ArrayVec;
use shoal_base::transport::datagram::BATCH_MAX;
use shoal_base::{PeerV4, PeerV6};
use shoal_store::{Announce, LockedShard, Place, SHARDS_MAX, Store, Swarms};

use crate::udp::SCRAPE_HASHES_MAX;

/// Maximum number of waiting requests from datagrams: one for each datagram of a batch, and one scrape of maximum
/// length. Each torrent of a scrape counts as a request. A scrape waits only if there is room for it and for all
/// datagrams after it, so announces need no check.
pub(crate) const ITEMS_MAX: usize = BATCH_MAX + SCRAPE_HASHES_MAX;

/// Maximum number of deltas that are prefetched and applied under one lock, for some ten microseconds.
const RUN_MAX: usize = 64;

/// An index that no item has.
const NONE: u16 = u16::MAX;

/// Up to `ITEMS` waiting requests. Each carries a tag that its owner recognises.
#[derive(Debug)]
pub(crate) struct Batch<P, T, const ITEMS: usize> {
    items: ArrayVec<Item<P, T>, ITEMS>,
    groups: ArrayVec<Group, ITEMS>,
    /// The index of the group of each shard.
    group_of_shard: [u16; SHARDS_MAX],
}

/// An admitted request to one swarm.
#[derive(Debug)]
pub(crate) struct Item<P, T> {
    pub(crate) place: Place,
    /// The index of the datagram in the batch.
    index: u16,
    /// The next item of the group.
    next: u16,
    pub(crate) tag: T,
    pub(crate) work: Work<P>,
}

/// The effect of the request on its swarm.
#[derive(Debug)]
pub(crate) enum Work<P> {
    /// A peer that does not register only reads the swarm.
    Announce {
        announce: Announce<P>,
        registers: bool,
        /// Whether the peer says that it is new.
        joins: bool,
        /// Whether the announce is answered at once: it registers, no rule has an interval for it, the gate has not drawn it, and
        /// the policy has nothing to look at again.
        is_plain: bool,
        /// Whether a rule has an interval of its own for the peer, which is looked up again for the reply.
        is_ruled: bool,
        /// The number of requests for which the gate has drawn the announce, mostly zero.
        drawn: u32,
        /// The seed of the sample, drawn early so that the sample's peers can be prefetched.
        sample_seed: u64,
    },
    /// The counts go to this entry of the reply.
    Scrape { entry: u8 },
}

#[derive(Clone, Copy, Debug)]
struct Group {
    shard: usize,
    first: u16,
    last: u16,
    /// Whether the group has announces.
    has_announces: bool,
    /// Whether some items concern large swarms.
    has_large: bool,
}

/// Returns an index as two bytes.
#[inline]
fn short(index: usize) -> u16 {
    (index as u64 & 0xffff) as u16
}

impl<P, T> Item<P, T> {
    pub(crate) fn index(&self) -> usize {
        self.index.into()
    }
}

impl<P: shoal_store::Family, T, const ITEMS: usize> Batch<P, T, ITEMS> {
    pub(crate) fn new() -> Self {
        const { assert!(ITEMS <= NONE as usize, "an index of an item takes two bytes") };
        Self { items: ArrayVec::new(), groups: ArrayVec::new(), group_of_shard: [NONE; SHARDS_MAX] }
    }

    pub(crate) fn room(&self) -> usize {
        self.items.remaining_capacity()
    }

    /// Appends an item. The batch must have room.
    #[inline(always)]
    pub(crate) fn push(&mut self, place: Place, index_in_batch: usize, tag: T, work: Work<P>) {
        let shard = place.shard();
        let has_announces = matches!(work, Work::Announce { .. });
        let index = short(self.items.len());
        self.items.push(Item { place, index: short(index_in_batch), next: NONE, tag, work });
        let group = &mut self.group_of_shard[shard];
        if let Some(group) = self.groups.get_mut(usize::from(*group)) {
            self.items[usize::from(group.last)].next = index;
            group.last = index;
            group.has_announces |= has_announces;
        } else {
            *group = short(self.groups.len());
            self.groups.push(Group { shard, first: index, last: index, has_announces, has_large: false });
        }
    }

    /// Starts to load the swarms.
    fn prefetch_swarms(&mut self, swarms: &Swarms<P>) {
        self.visit_groups(
            swarms,
            |_| true,
            |shard, item| {
                shard.prefetch_swarm(&mut item.place);
                false
            },
        );
    }

    /// Starts to load the entries of the swarms. The beginnings of their lines are loaded by now.
    fn prefetch_entries(&mut self, swarms: &Swarms<P>) {
        self.visit_groups(
            swarms,
            |_| true,
            |shard, item| {
                shard.prefetch_entry(&mut item.place);
                false
            },
        );
    }

    /// Starts to load the peers of small swarms and the heads of large ones. Their entries are loaded by now.
    fn prefetch_found(&mut self, swarms: &Swarms<P>) {
        self.visit_groups(
            swarms,
            |group| group.has_announces,
            |shard, item| {
                let is_announce = matches!(item.work, Work::Announce { .. });
                is_announce && shard.prefetch_found(&mut item.place)
            },
        );
    }

    /// Starts to load the announcing peers in large swarms, and the peers of the replies: sampling will draw the same
    /// peers again.
    fn prefetch_peers(&mut self, swarms: &Swarms<P>) {
        self.visit_groups(
            swarms,
            |group| group.has_large,
            |shard, item| {
                if let Work::Announce { announce, registers: true, joins, sample_seed, .. } = &item.work {
                    let rng = fastrand::Rng::with_seed(*sample_seed);
                    shard.prefetch_peers(&item.place, announce, *joins, rng);
                }
                true
            },
        );
    }

    /// Applies all items with `apply`, each under the lock of its shard, and removes them.
    pub(crate) fn apply(
        &mut self,
        swarms: &Swarms<P>,
        mut apply: impl FnMut(&mut LockedShard<'_, P>, &Item<P, T>),
    ) {
        self.visit_groups(
            swarms,
            |_| true,
            |shard, item| {
                apply(shard, item);
                false
            },
        );
        for group in self.groups.drain(..) {
            self.group_of_shard[group.shard] = NONE;
        }
        self.items.clear();
    }

    /// Prefetches and applies the items of each group under one lock, up to `RUN_MAX` at a time, and removes all.
    /// Their lines stay in the nearest cache until they are used, and no pass takes a lock of its own.
    pub(crate) fn apply_by_shard(
        &mut self,
        swarms: &Swarms<P>,
        mut apply: impl FnMut(&mut LockedShard<'_, P>, &Item<P, T>),
    ) {
        for group in self.groups.drain(..) {
            let mut run = group.first;
            while run != NONE {
                let mut shard = swarms.lock(group.shard);
                visit_run(&mut self.items, run, |item| shard.prefetch_swarm(&mut item.place));
                visit_run(&mut self.items, run, |item| shard.prefetch_entry(&mut item.place));
                visit_run(&mut self.items, run, |item| _ = shard.prefetch_found(&mut item.place));
                visit_run(&mut self.items, run, |item| {
                    if let Work::Announce { announce, joins, sample_seed, .. } = &item.work {
                        let rng = fastrand::Rng::with_seed(*sample_seed);
                        shard.prefetch_peers(&item.place, announce, *joins, rng);
                    }
                });
                run = visit_run(&mut self.items, run, |item| apply(&mut shard, item));
            }
            self.group_of_shard[group.shard] = NONE;
        }
        self.items.clear();
    }

    /// Visits the items of all wanted groups. `visit` returns whether the item concerns a large swarm.
    #[inline]
    fn visit_groups(
        &mut self,
        swarms: &Swarms<P>,
        is_wanted: impl Fn(&Group) -> bool,
        mut visit: impl FnMut(&mut LockedShard<'_, P>, &mut Item<P, T>) -> bool,
    ) {
        // One place takes the locks of both rounds: first the free ones, then those that another worker held. So the
        // steps of a pass are inlined into this loop. As a separate function, they would cost a tenth more.
        let mut ahead = 0..self.groups.len();
        let (mut busy, mut waited) = (ArrayVec::<u16, ITEMS>::new(), 0);
        loop {
            let (group, mut shard) = if let Some(index) = ahead.next() {
                let group = &mut self.groups[index];
                if !is_wanted(group) {
                    continue;
                }
                let Some(shard) = swarms.try_lock(group.shard) else {
                    busy.push(short(index));
                    continue;
                };
                (group, shard)
            } else if let Some(&index) = busy.get(waited) {
                waited += 1;
                let group = &mut self.groups[usize::from(index)];
                let shard = swarms.lock(group.shard);
                (group, shard)
            } else {
                return;
            };
            let mut next = group.first;
            while let Some(item) = self.items.get_mut(usize::from(next)) {
                group.has_large |= visit(&mut shard, item);
                next = item.next;
            }
        }
    }
}

/// Visits up to `RUN_MAX` items of a group from `first` on. Returns the index of the next one.
#[inline]
fn visit_run<P, T>(items: &mut [Item<P, T>], first: u16, mut visit: impl FnMut(&mut Item<P, T>)) -> u16 {
    let mut next = first;
    for _ in 0..RUN_MAX {
        let Some(item) = items.get_mut(usize::from(next)) else { break };
        visit(item);
        next = item.next;
    }
    next
}

/// Starts to load everything that the requests of two batches will read or change, in four passes over both.
#[inline(always)]
pub(crate) fn prefetch<T, const ITEMS: usize>(
    store: &Store,
    v4: &mut Batch<PeerV4, T, ITEMS>,
    v6: &mut Batch<PeerV6, T, ITEMS>,
) {
    v4.prefetch_swarms(&store.v4);
    v6.prefetch_swarms(&store.v6);
    v4.prefetch_entries(&store.v4);
    v6.prefetch_entries(&store.v6);
    v4.prefetch_found(&store.v4);
    v6.prefetch_found(&store.v6);
    v4.prefetch_peers(&store.v4);
    v6.prefetch_peers(&store.v6);
}
