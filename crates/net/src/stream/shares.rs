//! Fair shares: which source has the most connections of a worker, and which of them is evicted first.
//!
//! The connections of a source, and of the wider networks around it, form a *group*. A group has a queue of its
//! connections for each [`Class`]. Groups are ranked by their *usage*: the number of their connections divided by their
//! shares ([`Width::shares`](shoal_base::source::Width::shares)). Every step takes constant time with any number of
//! connections and groups: a group changes by one connection at a time, and its usage by at most one, so when the
//! highest rank becomes empty, the next one below is the highest.
//!
//! Groups with a usage below two are not ranked. Without a ranked group, all sources are equal, and the first of all
//! connections is chosen, by class.
//!
//! Two rules protect WebSockets that have announced ([`Class::Announced`]) from a flood of cheaper connections. They
//! are chosen only if no earlier class has more than a small part of all connections ([`SPARED_PART`]), even if they
//! belong to the source with the highest usage. The choice among them is random, since the oldest would belong to
//! honest clients. Each busy class retains that part, so new clients can always come, whatever connections an attacker
//! holds.
//!
//! A connection is in a group for each of its networks: two for IPv4, five for IPv6. A wide network is several
//! customers or one attacker, and the tracker cannot tell which, so the network gets the benefit of the doubt for a few
//! connections. A newcomer whose networks rank as high as the victim's is refused instead, or replaces a connection
//! that its own network can spare. Shares apply within one worker, since each worker has its own part of the
//! connections.
//!
//! A half request costs an attacker one packet, and an honest WebSocket is worth an hour of waiting for offers. So a
//! WebSocket with a peer in a swarm goes last. A class of busy connections is spared while it has no more than an
//! eighth of all: otherwise a flood of one class would evict the few honest connections of every earlier class, and if
//! WebSockets took all slots, newcomers would evict each other. Within a class, the order is the order of entry. Being
//! busy does not change it, or an attacker would outlast honest clients by sending more. The random choice rotates the
//! queue by up to 15 elements, so that no array of members is needed. An element is passed over some seven times before
//! it is chosen.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use shoal_base::source::{Network, Width};

use super::queue::{Chain, Links, NodeId, Queue};
use super::slab::Slab;

const RANKED_USAGE_MIN: usize = 2;

/// A class of busy connections is spared while it has no more than this part of them: some other class has more.
const SPARED_PART: u32 = 8;

const _: () = assert!(Class::COUNT < SPARED_PART as usize, "one class has more than the part");

/// Maximum number of elements of a queue that a random choice skips, plus one.
const DRAWN: u64 = 16;

/// Maximum memory of a connection that is the only one of its source: a group of each width and its entry in the index,
/// and entries in [`super::Sources`], in tables that are half full.
pub(super) const SOURCE_BYTES: usize = Width::COUNT * Slab::<Group>::SLOT_BYTES
    + 2 * (Width::COUNT + Width::OF_CUSTOMER) * size_of::<(Network, NodeId)>();

/// The place of a connection in the order of eviction. Within a group, connections of earlier classes go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// The connection waits for a request, so its client loses nothing. The longest waiting ones go first.
    Idle,
    /// The connection has sent its last reply. From here on, the first to enter the class goes first.
    Linger,
    /// A request or handshake is incomplete.
    Request,
    /// A WebSocket that has not announced.
    Unannounced,
    /// The peer reads a reply.
    Send,
    /// A WebSocket that has announced, in any state. Their order is random.
    Announced,
}

impl Class {
    pub(super) const COUNT: usize = 6;

    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::Idle, Self::Linger, Self::Request, Self::Unannounced, Self::Send, Self::Announced];
}

/// The number of connections of each class.
#[derive(Clone, Copy, Debug, Default)]
struct Counts([u32; Class::COUNT]);

impl Counts {
    fn add(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    fn remove(&mut self, class: Class) {
        self.0[class as usize] -= 1;
    }

    fn sum(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Returns the class that loses a connection first. `None` if there are no connections.
    fn first(&self) -> Option<Class> {
        let spared = self.sum() / SPARED_PART;
        Class::ALL.into_iter().find(|class| {
            let count = self.0[*class as usize];
            count > if *class <= Class::Linger { 0 } else { spared }
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Shares {
    groups: Slab<Group>,
    /// The node of each group. Keyed at random, so that an attacker cannot choose addresses that collide.
    index: HashMap<Network, NodeId, RandomState>,
    /// Groups by usage, then by the class of the connection that they lose first. Its length is the highest usage so
    /// far, which takes less memory than that group's connections.
    ranks: Vec<[Queue; Class::COUNT]>,
    /// The highest usage of a ranked group.
    usage_max: usize,
    /// All connections by class, also those without a source.
    all: [Queue; Class::COUNT],
    counts: Counts,
    /// The number of random choices, which the keyed hash of the index makes unpredictable.
    draws: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Membership {
    /// The membership in the groups of its networks, the narrowest first.
    groups: [Member; Width::COUNT],
    /// The links in the queue of all connections of its class.
    all: Links,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    group: Option<NodeId>,
    /// The links in the group's queue of its class.
    links: Links,
}

/// Gives access to the memberships of connections.
pub(super) trait Members {
    fn membership(&mut self, node: NodeId) -> &mut Membership;
}

#[derive(Debug)]
struct Group {
    network: Network,
    counts: Counts,
    /// Its connections by class.
    queues: [Queue; Class::COUNT],
    /// The links in the queue of its rank.
    links: Links,
    ranked: Option<Rank>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rank {
    usage: usize,
    /// The class of the connection that the group loses first.
    class: Class,
}

/// The connections in the groups of one width.
struct OfWidth<'m, M> {
    members: &'m mut M,
    level: usize,
}

struct OfAll<'m, M>(&'m mut M);

impl<M: Members> Chain for OfAll<'_, M> {
    fn links(&mut self, node: NodeId) -> &mut Links {
        &mut self.0.membership(node).all
    }
}

impl<M: Members> Chain for OfWidth<'_, M> {
    fn links(&mut self, node: NodeId) -> &mut Links {
        &mut self.members.membership(node).groups[self.level].links
    }
}

impl Chain for Slab<Group> {
    fn links(&mut self, node: NodeId) -> &mut Links {
        &mut self.at(node.index()).1.links
    }
}

impl Group {
    fn usage(&self) -> usize {
        usage(self.counts.sum(), self.network.width())
    }

    fn rank(&self) -> Option<Rank> {
        let usage = self.usage();
        let class = self.counts.first()?;
        (usage >= RANKED_USAGE_MIN).then_some(Rank { usage, class })
    }
}

const fn usage(count: u32, width: Width) -> usize {
    (count / width.shares()) as usize
}

impl Shares {
    /// Adds a connection of a class to the groups of `networks`. It must be in none before.
    pub(super) fn join(
        &mut self,
        members: &mut impl Members,
        node: NodeId,
        networks: impl Iterator<Item = Network>,
        class: Class,
    ) {
        self.counts.add(class);
        self.all[class as usize].push(node, &mut OfAll(members));
        for (level, network) in networks.enumerate().take(Width::COUNT) {
            let group_place = *self.index.entry(network).or_insert_with(|| {
                let queues = [Queue::default(); Class::COUNT];
                let group = Group {
                    network,
                    counts: Counts::default(),
                    queues,
                    links: Links::default(),
                    ranked: None,
                };
                NodeId::new(self.groups.insert(group).index)
            });
            members.membership(node).groups[level].group = Some(group_place);
            let (_, group) = self.groups.at(group_place.index());
            group.counts.add(class);
            group.queues[class as usize].push(node, &mut OfWidth { members, level });
            self.rank(group_place);
        }
    }

    /// Removes a connection of a class from its groups, and passes their networks to `note`.
    pub(super) fn leave(
        &mut self,
        members: &mut impl Members,
        node: NodeId,
        class: Class,
        mut note: impl FnMut(Network),
    ) {
        self.counts.remove(class);
        self.all[class as usize].remove(node, &mut OfAll(members));
        for level in 0..Width::COUNT {
            let Some(group_place) = members.membership(node).groups[level].group.take() else { return };
            let (handle, group) = self.groups.at(group_place.index());
            group.counts.remove(class);
            group.queues[class as usize].remove(node, &mut OfWidth { members, level });
            let (network, is_empty) = (group.network, group.counts.sum() == 0);
            if is_empty {
                // Its usage is zero, so it is not ranked.
                self.groups.remove(handle);
                self.index.remove(&network);
            } else {
                self.rank(group_place);
            }
            note(network);
        }
    }

    /// Moves a connection to the end of the queue of class `to`. A connection that is already in that class keeps its
    /// place, or it could defend it by being busy. An idle one moves: it has become idle again.
    pub(super) fn shift(&mut self, members: &mut impl Members, node: NodeId, from: Class, to: Class) {
        if from == to && to != Class::Idle {
            return;
        }
        self.counts.remove(from);
        self.counts.add(to);
        self.all[from as usize].remove(node, &mut OfAll(members));
        self.all[to as usize].push(node, &mut OfAll(members));
        for level in 0..Width::COUNT {
            let Member { group: Some(group_place), links } = members.membership(node).groups[level] else {
                return;
            };
            // A connection that is alone in the queue is already at the end.
            if from == to && links.is_alone() {
                continue;
            }
            let (_, group) = self.groups.at(group_place.index());
            let mut chain = OfWidth { members, level };
            group.queues[from as usize].remove(node, &mut chain);
            group.queues[to as usize].push(node, &mut chain);
            if from != to {
                group.counts.remove(from);
                group.counts.add(to);
                self.rank(group_place);
            }
        }
    }

    /// Returns the network with the highest usage, and the usage. Given the narrowest first, it prefers the narrowest
    /// of equal ones. The usage of a source without connections is zero.
    pub(super) fn highest_usage_of(
        &mut self,
        networks: impl Iterator<Item = Network>,
    ) -> (Option<Network>, usize) {
        let mut highest = (None, 0);
        for network in networks {
            if let Some(node) = self.index.get(&network) {
                let usage = self.groups.at(node.index()).1.usage();
                if highest.0.is_none() || usage > highest.1 {
                    highest = (Some(network), usage);
                }
            }
        }
        highest
    }

    /// Returns the connection that makes room for another one, the highest usage, or one if no group is ranked, and
    /// whether the connection is in that group. It is in that group, unless the choice there would be a WebSocket that
    /// has announced, while there are enough other connections.
    pub(super) fn victim(&mut self, members: &mut impl Members) -> Option<(NodeId, usize, bool)> {
        let class = self.counts.first()?;
        if let Some(rank) = self.highest_rank()
            && (rank.class < Class::Announced || class == Class::Announced)
        {
            let (node, usage) = self.victim_of_highest(members)?;
            return Some((node, usage, true));
        }
        let usage = self.highest_rank().map_or(1, |rank| rank.usage);
        let skipped = self.skipped(class);
        let queue = &mut self.all[class as usize];
        (0..skipped).for_each(|_| queue.rotate(&mut OfAll(members)));
        Some((queue.first()?, usage, false))
    }

    /// Returns the connection that the group with the highest usage loses first, and that usage. Returns `None` if no
    /// group is ranked.
    pub(super) fn victim_of_highest(&mut self, members: &mut impl Members) -> Option<(NodeId, usize)> {
        let Rank { usage, class } = self.highest_rank()?;
        let (skipped_groups, skipped) = (self.skipped(class), self.skipped(class));
        let groups = &mut self.ranks[usage][class as usize];
        (0..skipped_groups).for_each(|_| groups.rotate(&mut self.groups));
        let group_place = groups.first()?;
        let (_, group) = self.groups.at(group_place.index());
        let queue = &mut group.queues[class as usize];
        let node = queue.first()?;
        let level = level_of(members, node, group_place)?;
        (0..skipped).for_each(|_| queue.rotate(&mut OfWidth { members, level }));
        Some((queue.first()?, usage))
    }

    /// Returns the first connection of a network in a class.
    pub(super) fn first_of(&mut self, network: Network, class: Class) -> Option<NodeId> {
        let node = self.index.get(&network)?;
        self.groups.at(node.index()).1.queues[class as usize].first()
    }

    fn highest_rank(&self) -> Option<Rank> {
        let usage = self.usage_max;
        let ranks = self.ranks.get(usage).filter(|_| usage >= RANKED_USAGE_MIN)?;
        let class = Class::ALL.into_iter().find(|class| !ranks[*class as usize].is_empty())?;
        Some(Rank { usage, class })
    }

    /// Returns how many elements at the head of a class's queue a choice skips: none, if the first one is chosen. A
    /// random choice continues after the last one, so each element is passed over several times before it is chosen,
    /// and an old one is in no more danger than a new one.
    fn skipped(&mut self, class: Class) -> u64 {
        if class < Class::Announced {
            return 0;
        }
        self.draws = self.draws.wrapping_add(1);
        self.index.hasher().hash_one(self.draws) % DRAWN
    }

    /// Frees surplus memory of groups.
    pub(super) fn trim(&mut self) {
        self.groups.trim();
        self.index.shrink_to(2 * self.index.len());
        self.ranks.truncate(self.usage_max + 1);
        self.ranks.shrink_to(2 * self.ranks.len());
    }

    /// Moves a changed group to its rank.
    fn rank(&mut self, node: NodeId) {
        let (_, group) = self.groups.at(node.index());
        let (before, after) = (group.ranked, group.rank());
        if before == after {
            return;
        }
        group.ranked = after;
        if let Some(Rank { usage, class }) = before {
            self.ranks[usage][class as usize].remove(node, &mut self.groups);
        }
        if let Some(Rank { usage, class }) = after {
            if self.ranks.len() <= usage {
                self.ranks.resize(usage + 1, Default::default());
            }
            self.ranks[usage][class as usize].push(node, &mut self.groups);
            self.usage_max = self.usage_max.max(usage);
        }
        while self.usage_max >= RANKED_USAGE_MIN && self.ranks[self.usage_max].iter().all(Queue::is_empty) {
            self.usage_max -= 1;
        }
    }
}

/// Returns the number of a group among a connection's groups.
fn level_of(members: &mut impl Members, node: NodeId, group: NodeId) -> Option<usize> {
    members.membership(node).groups.iter().position(|member| member.group == Some(group))
}

// Each connection has a membership, and in most cases its source is a group of one.
const _: () = assert!(size_of::<Membership>() == 68 && size_of::<Group>() <= 136);

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    /// A connection as the naive model sees it.
    #[derive(Clone, Copy, Debug)]
    struct Model {
        ip: IpAddr,
        class: Class,
        since: u32,
    }

    #[derive(Default)]
    struct Connections {
        memberships: Vec<Membership>,
        model: Vec<Option<Model>>,
    }

    impl Members for Vec<Membership> {
        fn membership(&mut self, node: NodeId) -> &mut Membership {
            &mut self[node.index() as usize]
        }
    }

    impl Model {
        fn is_in(&self, network: Network) -> bool {
            Network::all(self.ip).any(|other| other == network)
        }

        /// Returns its place in its class. WebSockets that have announced are in no order.
        fn place(&self) -> u32 {
            if self.class == Class::Announced { 0 } else { self.since }
        }
    }

    impl Connections {
        fn new(count: usize) -> Self {
            Self { memberships: vec![Membership::default(); count], model: vec![None; count] }
        }

        fn of(&self, network: Network) -> impl Iterator<Item = &Model> {
            self.model.iter().flatten().filter(move |model| model.is_in(network))
        }

        fn usage_of(&self, network: Network) -> usize {
            self.of(network).count() / network.width().shares() as usize
        }

        /// Checks the choice of the shares against the model.
        fn check(&mut self, shares: &mut Shares) {
            let Some((node, usage, is_over_share)) = shares.victim(&mut self.memberships) else {
                assert!(self.model.iter().flatten().next().is_none());
                return;
            };
            let all = || self.model.iter().flatten();
            let networks: Vec<Network> = all().flat_map(|model| Network::all(model.ip)).collect();
            let usage_max = networks.iter().map(|network| self.usage_of(*network)).max().unwrap_or(0).max(1);
            assert_eq!(usage, usage_max);
            let victim = self.model[node.index() as usize].expect("the victim is connected");
            let first = first_class(all()).unwrap();
            let highest = || networks.iter().filter(|network| self.usage_of(**network) == usage_max);
            let class = highest().filter_map(|network| first_class(self.of(*network))).min().unwrap();
            if usage_max >= RANKED_USAGE_MIN && (class < Class::Announced || first == Class::Announced) {
                assert!(is_over_share);
                assert_eq!(victim.class, class, "the first that any of the highest groups can spare");
                let is_first = |network: &&Network| {
                    let mut others = self.of(**network).filter(|other| other.class == class);
                    victim.is_in(**network) && others.all(|other| victim.place() <= other.place())
                };
                assert!(highest().any(|network| is_first(&network)), "{victim:?}");
            } else {
                assert!(!is_over_share);
                assert_eq!(victim.class, first);
                let mut others = all().filter(|other| other.class == first);
                assert!(others.all(|other| victim.place() <= other.place()), "{victim:?}");
            }
        }
    }

    /// Returns the class of these connections that loses one first: the first that nothing is lost with, otherwise the
    /// first that has more than an eighth.
    fn first_class<'m>(connections: impl Iterator<Item = &'m Model>) -> Option<Class> {
        let classes: Vec<Class> = connections.map(|model| model.class).collect();
        let count = |class: Class| classes.iter().filter(|other| **other == class).count();
        let is_first = |class: &Class| match class {
            Class::Idle | Class::Linger => count(*class) > 0,
            _ => count(*class) > classes.len() / 8,
        };
        Class::ALL.into_iter().find(is_first)
    }

    fn random_ip(rng: &mut fastrand::Rng) -> IpAddr {
        let small = |rng: &mut fastrand::Rng| rng.u8(..8) & rng.u8(..8);
        if rng.bool() {
            [192, 0, small(rng), small(rng)].into()
        } else {
            let mut octets = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            (octets[5], octets[6], octets[7], octets[15]) = (small(rng), small(rng), small(rng), rng.u8(..));
            octets.into()
        }
    }

    #[test]
    fn the_victim_is_the_one_that_the_rules_name() {
        const COUNT: usize = 80;
        for seed in 0..30 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut connections = Connections::new(COUNT);
            let mut shares = Shares::default();
            for now in 0..2000 {
                let index = rng.usize(..COUNT);
                let node = NodeId::new(u32::try_from(index).unwrap());
                // In some runs, nearly all have announced.
                let is_announced = rng.u64(..8) < seed % 9;
                let class =
                    if is_announced { Class::Announced } else { Class::ALL[rng.usize(..Class::COUNT)] };
                let Connections { memberships, model } = &mut connections;
                match &mut model[index] {
                    slot @ None => {
                        let ip = random_ip(&mut rng);
                        shares.join(memberships, node, Network::all(ip), class);
                        *slot = Some(Model { ip, class, since: now });
                    }
                    Some(connected) if rng.bool() => {
                        shares.shift(memberships, node, connected.class, class);
                        if connected.class != class || class == Class::Idle {
                            (connected.class, connected.since) = (class, now);
                        }
                    }
                    slot @ Some(_) => {
                        let Model { ip, class, .. } = slot.take().unwrap();
                        let mut left = Vec::new();
                        shares.leave(memberships, node, class, |network| left.push(network));
                        assert!(left.into_iter().eq(Network::all(ip)));
                    }
                }
                connections.check(&mut shares);
            }
            for index in 0..COUNT {
                if let Some(Model { class, .. }) = connections.model[index].take() {
                    let node = NodeId::new(u32::try_from(index).unwrap());
                    shares.leave(&mut connections.memberships, node, class, drop);
                    connections.check(&mut shares);
                }
            }
            assert!(
                shares.index.is_empty() && shares.groups.len() == 0 && shares.usage_max < RANKED_USAGE_MIN
            );
            assert_eq!(shares.counts.sum(), 0);
        }
    }

    #[test]
    fn a_wide_network_is_greedy_only_beyond_its_shares() {
        let usage = |width: Width, ip: &dyn Fn(u32) -> String| {
            let mut shares = Shares::default();
            let mut memberships = vec![Membership::default(); 400];
            for number in 0..3 * width.shares() {
                let ip = ip(number).parse().unwrap();
                shares.join(&mut memberships, NodeId::new(number), Network::all(ip), Class::Idle);
                let usage = shares.victim(&mut memberships).map(|(_, usage, _)| usage);
                let expected = (number as usize + 1) / width.shares() as usize;
                assert_eq!(usage, Some(expected.max(1)), "{width:?} {number}");
            }
        };
        usage(Width::Site, &|number| format!("2001:db8:0:{number:02x}00::1"));
        usage(Width::Block, &|number| format!("2001:db8:{number:x}::1"));
        usage(Width::Block, &|number| format!("192.0.2.{number}"));
        usage(Width::Allocation, &|number| format!("2001:db8:{:x}::1", number << 7));
    }

    /// Returns the shares of connections of these addresses in these classes.
    fn shares_of(all: &[(Ipv4Addr, Class)]) -> (Shares, Vec<Membership>) {
        let (mut shares, mut memberships) = (Shares::default(), vec![Membership::default(); all.len()]);
        for (number, (ip, class)) in (0..).zip(all) {
            shares.join(&mut memberships, NodeId::new(number), Network::all((*ip).into()), *class);
        }
        (shares, memberships)
    }

    #[test]
    fn half_requests_do_not_evict_the_websockets_of_one_address() {
        let office = (0..50).map(|_| (Ipv4Addr::new(192, 0, 2, 1), Class::Announced));
        let half = |count| (0..count).map(|number| (Ipv4Addr::new(10, number, 0, 1), Class::Request));
        for (halves, is_office) in [(8, false), (7, true)] {
            let all: Vec<_> = office.clone().chain(half(halves)).collect();
            let (mut shares, mut memberships) = shares_of(&all);
            let (node, usage, is_over_share) = shares.victim(&mut memberships).unwrap();
            assert_eq!((usage, is_over_share), (50, is_office), "{halves} of {}", all.len());
            assert_eq!(node.index() < 50, is_office);
            assert!(is_office || node.index() == 50, "the oldest half request");
        }
    }

    #[test]
    fn each_class_that_is_busy_retains_a_part() {
        let all: Vec<_> =
            [(Class::Request, 12), (Class::Unannounced, 70), (Class::Send, 3), (Class::Announced, 15)]
                .into_iter()
                .flat_map(|(class, count)| (0..count).map(move |number| (class, number)))
                .map(|(class, number)| (Ipv4Addr::new(10, class as u8, number, 1), class))
                .collect();
        let (mut shares, mut memberships) = shares_of(&all);
        let (node, ..) = shares.victim(&mut memberships).unwrap();
        assert_eq!(
            node.index(),
            12,
            "the oldest WebSocket without an announce, although others are in a request"
        );
        let more = NodeId::new(12);
        shares.shift(&mut memberships, more, Class::Unannounced, Class::Request);
        assert_eq!(shares.victim(&mut memberships).map(|(node, ..)| node.index()), Some(0));
        shares.shift(&mut memberships, more, Class::Request, Class::Idle);
        assert_eq!(shares.victim(&mut memberships).map(|(node, ..)| node), Some(more), "it loses nothing");
    }

    #[test]
    fn among_websockets_the_choice_is_random() {
        let all: Vec<_> = (0..100_u8)
            .flat_map(|a| (0..4).map(move |b| (Ipv4Addr::new(10, a, b, 1), Class::Announced)))
            .collect();
        let (mut shares, mut memberships) = shares_of(&all);
        let mut is_old = vec![true; all.len()];
        for number in 0..400_u32 {
            let (node, _, _) = shares.victim(&mut memberships).unwrap();
            shares.leave(&mut memberships, node, Class::Announced, drop);
            let new = Ipv4Addr::from(0x0b00_0000 | number << 8);
            shares.join(&mut memberships, node, Network::all(new.into()), Class::Announced);
            is_old[node.index() as usize] = false;
        }
        let old = is_old.into_iter().filter(|is_old| *is_old).count();
        // The oldest first would leave none, and the newest first all; at random, one in e remains.
        assert!((80..220).contains(&old), "{old} of 400 old ones are left");
    }
}
