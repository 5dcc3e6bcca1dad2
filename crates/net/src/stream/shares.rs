//! Fair shares: which source has the most connections of a worker, and which of them is evicted first.
//!
//! The connections of a source, and of the wider networks around it, form a *group*. A group has a queue of its
//! connections for each phase. Groups are ranked by their *greed*: the number of their connections divided by their
//! shares ([`Width::share`]). Every step takes constant time, however many connections and groups there are. This holds
//! because a group changes by one connection at a time, and its greed by at most one. When the highest rank becomes
//! empty, the next one below is therefore the highest.
//!
//! Groups with a greed below two are not ranked. If no group is greedier, all sources are equal, and the caller chooses
//! among all connections.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;

use super::queue::{Chain, Links, NodeId, Queue};
use super::slab::Slab;
use super::sources::{Network, Width};
use super::table::Phase;

/// Minimum greed of a group that is ranked.
const RANKED_GREED_MIN: usize = 2;

/// Maximum memory of a connection that is the only one of its source: a group of each width, its entry in the index,
/// and one in [`super::Sources`], in tables that are half full.
pub(super) const SOURCE_BYTES: usize =
    Width::COUNT * (Slab::<Group>::SLOT_BYTES + 4 * size_of::<(Network, NodeId)>());

/// The groups of a worker's connections.
#[derive(Debug, Default)]
pub(super) struct Shares {
    groups: Slab<Group>,
    /// The node of each group. Keyed at random, so that an attacker cannot choose addresses that collide.
    index: HashMap<Network, NodeId, RandomState>,
    /// Groups by greed, then by the phase of the connection that they lose first. As long as the highest greed so far,
    /// which takes less memory than that group's connections.
    ranks: Vec<[Queue; Phase::COUNT]>,
    /// The greed of the greediest group, if one is ranked.
    greed_max: usize,
}

/// The groups of a connection, the narrowest first.
pub(super) type Membership = [Member; Width::COUNT];

/// The membership of a connection in one group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Member {
    group: Option<NodeId>,
    /// The links in the group's queue of its phase.
    links: Links,
}

/// Gives access to the memberships of connections.
pub(super) trait Members {
    fn membership(&mut self, node: NodeId) -> &mut Membership;
}

/// The connections of a network.
#[derive(Debug)]
struct Group {
    network: Network,
    count: u32,
    /// Its connections by phase, in order of entry.
    queues: [Queue; Phase::COUNT],
    /// The links in the queue of its rank.
    links: Links,
    ranked: Option<Rank>,
}

/// The rank of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rank {
    greed: usize,
    /// The phase of the connection that the group loses first.
    phase: Phase,
}

/// The connections in the groups of one width.
struct OfWidth<'m, M> {
    members: &'m mut M,
    level: usize,
}

impl<M: Members> Chain for OfWidth<'_, M> {
    fn links(&mut self, node: NodeId) -> &mut Links {
        &mut self.members.membership(node)[self.level].links
    }
}

impl Chain for Slab<Group> {
    fn links(&mut self, node: NodeId) -> &mut Links {
        &mut self.at(node.index()).1.links
    }
}

impl Group {
    const fn greed(&self) -> usize {
        greed(self.count, self.network.width())
    }

    fn rank(&self) -> Option<Rank> {
        let greed = self.greed();
        let phase = Phase::ALL.into_iter().find(|phase| !self.queues[*phase as usize].is_empty())?;
        (greed >= RANKED_GREED_MIN).then_some(Rank { greed, phase })
    }
}

const fn greed(count: u32, width: Width) -> usize {
    count as usize / width.share()
}

impl Shares {
    /// Adds a connection in a phase to the groups of `networks`. It must be in none before.
    pub(super) fn join(
        &mut self,
        members: &mut impl Members,
        node: NodeId,
        networks: impl Iterator<Item = Network>,
        phase: Phase,
    ) {
        for (level, network) in networks.enumerate().take(Width::COUNT) {
            let group_place = *self.index.entry(network).or_insert_with(|| {
                let queues = [Queue::default(); Phase::COUNT];
                let group = Group { network, count: 0, queues, links: Links::default(), ranked: None };
                NodeId::new(self.groups.insert(group).index)
            });
            members.membership(node)[level].group = Some(group_place);
            let (_, group) = self.groups.at(group_place.index());
            group.count += 1;
            group.queues[phase as usize].push(node, &mut OfWidth { members, level });
            self.rank(group_place);
        }
    }

    /// Removes a connection in a phase from its groups, and passes their networks to `note`.
    pub(super) fn leave(
        &mut self,
        members: &mut impl Members,
        node: NodeId,
        phase: Phase,
        mut note: impl FnMut(Network),
    ) {
        for level in 0..Width::COUNT {
            let Some(group_place) = members.membership(node)[level].group.take() else { return };
            let (handle, group) = self.groups.at(group_place.index());
            group.count -= 1;
            group.queues[phase as usize].remove(node, &mut OfWidth { members, level });
            let (network, is_empty) = (group.network, group.count == 0);
            if is_empty {
                // Its greed is zero, so it is not ranked.
                self.groups.remove(handle);
                self.index.remove(&network);
            } else {
                self.rank(group_place);
            }
            note(network);
        }
    }

    /// Moves a connection to the end of the queue of phase `to`, which may be the one that it is in.
    pub(super) fn shift(&mut self, members: &mut impl Members, node: NodeId, from: Phase, to: Phase) {
        for level in 0..Width::COUNT {
            let Member { group: Some(group_place), links } = members.membership(node)[level] else { return };
            // A connection that is alone in the queue, as most upgraded ones are, is already at the end.
            if from == to && links.is_alone() {
                continue;
            }
            let (_, group) = self.groups.at(group_place.index());
            let mut chain = OfWidth { members, level };
            group.queues[from as usize].remove(node, &mut chain);
            group.queues[to as usize].push(node, &mut chain);
            if from != to {
                self.rank(group_place);
            }
        }
    }

    /// Returns the greed of a source: the highest greed of its networks.
    pub(super) fn greed(&mut self, networks: impl Iterator<Item = Network>) -> usize {
        let greed = |network: Network| {
            let node = self.index.get(&network)?;
            Some(self.groups.at(node.index()).1.greed())
        };
        networks.filter_map(greed).max().unwrap_or(0)
    }

    /// Returns the connection that the greediest group loses first, and the greed of that group. Returns `None` if no
    /// group is ranked.
    pub(super) fn victim(&mut self) -> Option<(NodeId, usize)> {
        if self.greed_max < RANKED_GREED_MIN {
            return None;
        }
        let ranks = &self.ranks[self.greed_max];
        let (phase, group) =
            Phase::ALL.into_iter().find_map(|phase| Some((phase, ranks[phase as usize].first()?)))?;
        let (_, group) = self.groups.at(group.index());
        Some((group.queues[phase as usize].first()?, self.greed_max))
    }

    /// Returns the connection of a network that has been in `phase` longest.
    pub(super) fn first_of(&mut self, network: Network, phase: Phase) -> Option<NodeId> {
        let node = self.index.get(&network)?;
        self.groups.at(node.index()).1.queues[phase as usize].first()
    }

    /// Frees memory that was needed for more groups than there are now.
    pub(super) fn trim(&mut self) {
        self.groups.trim();
        self.index.shrink_to(2 * self.index.len());
        self.ranks.truncate(self.greed_max + 1);
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
        if let Some(Rank { greed, phase }) = before {
            self.ranks[greed][phase as usize].remove(node, &mut self.groups);
        }
        if let Some(Rank { greed, phase }) = after {
            if self.ranks.len() <= greed {
                self.ranks.resize(greed + 1, Default::default());
            }
            self.ranks[greed][phase as usize].push(node, &mut self.groups);
            self.greed_max = self.greed_max.max(greed);
        }
        while self.greed_max >= RANKED_GREED_MIN && self.ranks[self.greed_max].iter().all(Queue::is_empty) {
            self.greed_max -= 1;
        }
    }
}

// Each connection has a membership, and in most cases its source is a group of one.
const _: () = assert!(size_of::<Membership>() == 36 && size_of::<Group>() <= 104);

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// A connection as the naive model sees it.
    #[derive(Clone, Copy, Debug)]
    struct Model {
        ip: IpAddr,
        phase: Phase,
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

    impl Connections {
        fn new(count: usize) -> Self {
            Self { memberships: vec![Membership::default(); count], model: vec![None; count] }
        }

        fn greed_of(&self, network: Network) -> usize {
            let is_in = |model: &&Model| Network::all(model.ip).any(|other| other == network);
            let count = self.model.iter().flatten().filter(is_in).count();
            count / network.width().share()
        }

        /// Checks the choice of the shares against the model.
        fn check(&self, shares: &mut Shares) {
            let networks: Vec<_> =
                self.model.iter().flatten().flat_map(|model| Network::all(model.ip)).collect();
            let greed_max = networks.iter().map(|network| self.greed_of(*network)).max().unwrap_or(0);
            let Some((node, greed)) = shares.victim() else {
                assert!(greed_max < RANKED_GREED_MIN, "{greed_max}");
                return;
            };
            assert_eq!(greed, greed_max);
            let victim = self.model[node.index() as usize].expect("the victim is connected");
            // The greediest groups of the victim: in one of them, no connection is before it.
            let is_first = |network: &Network| {
                let others = self.model.iter().flatten();
                let mut others = others.filter(|model| Network::all(model.ip).any(|other| other == *network));
                self.greed_of(*network) == greed_max
                    && others.all(|other| (victim.phase, victim.since) <= (other.phase, other.since))
            };
            assert!(Network::all(victim.ip).any(|network| is_first(&network)), "{victim:?}");
        }
    }

    fn random_ip(rng: &mut fastrand::Rng) -> IpAddr {
        let small = |rng: &mut fastrand::Rng| rng.u8(..8) & rng.u8(..8);
        if rng.bool() {
            [192, 0, 2, small(rng)].into()
        } else {
            let mut octets = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            (octets[5], octets[6], octets[7], octets[15]) = (small(rng), small(rng), small(rng), rng.u8(..));
            octets.into()
        }
    }

    #[test]
    fn the_victim_is_of_a_source_with_the_most_connections() {
        const COUNT: usize = 60;
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut connections = Connections::new(COUNT);
            let mut shares = Shares::default();
            for now in 0..2000 {
                let index = rng.usize(..COUNT);
                let node = NodeId::new(u32::try_from(index).unwrap());
                let phase = Phase::ALL[rng.usize(..Phase::COUNT)];
                let Connections { memberships, model } = &mut connections;
                match &mut model[index] {
                    slot @ None => {
                        let ip = random_ip(&mut rng);
                        shares.join(memberships, node, Network::all(ip), phase);
                        *slot = Some(Model { ip, phase, since: now });
                    }
                    Some(connected) if rng.bool() => {
                        shares.shift(memberships, node, connected.phase, phase);
                        (connected.phase, connected.since) = (phase, now);
                    }
                    slot @ Some(_) => {
                        let Model { ip, phase, .. } = slot.take().unwrap();
                        let mut left = Vec::new();
                        shares.leave(memberships, node, phase, |network| left.push(network));
                        assert!(left.into_iter().eq(Network::all(ip)));
                    }
                }
                connections.check(&mut shares);
            }
            for index in 0..COUNT {
                if let Some(Model { phase, .. }) = connections.model[index].take() {
                    let node = NodeId::new(u32::try_from(index).unwrap());
                    shares.leave(&mut connections.memberships, node, phase, drop);
                    connections.check(&mut shares);
                }
            }
            assert!(
                shares.index.is_empty() && shares.groups.len() == 0 && shares.greed_max < RANKED_GREED_MIN
            );
        }
    }

    #[test]
    fn a_wide_network_is_greedy_only_beyond_its_shares() {
        let mut shares = Shares::default();
        let mut memberships = vec![Membership::default(); 32];
        for number in 0..24_u32 {
            let ip = format!("2001:db8:0:{number:02x}00::1").parse().unwrap();
            shares.join(&mut memberships, NodeId::new(number), Network::all(ip), Phase::Idle);
            let greed = shares.victim().map(|(_, greed)| greed);
            let expected = (number as usize + 1) / Width::Site.share();
            assert_eq!(greed, (expected >= 2).then_some(expected), "{number}");
        }
    }
}
