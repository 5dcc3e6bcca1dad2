//! Fair shares: which source has the most connections of a worker, and which of those can be spared first.
//!
//! Connections of a source, and of the wider networks it lies in, form a *group*. A group queues its connections by
//! phase, and groups are ranked by their *greed*: how many connections they have for each share they are due
//! ([`Width::share`]). Every step takes constant time however many connections and groups there are, which holds because
//! a group changes by one connection at a time: its greed changes by at most one, so when the highest rank empties, the
//! next one below is the highest.
//!
//! Groups of a greed below two are not ranked. Where no group is greedier, all sources are equal, and the caller chooses
//! among all connections.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;

use super::queue::{Chain, Links, Place, Queue};
use super::roster::Phase;
use super::slab::Slab;
use super::sources::{Network, Width};

/// The least greed of a group that is ranked.
const RANKED_GREED_MIN: usize = 2;

/// Most bytes that a connection takes as the only one of its source: a group of each width here, its entry in the index, and
/// one in [`super::Sources`], of tables that are half full.
pub(super) const SOURCE_BYTES: usize =
    Width::COUNT * (Slab::<Group>::PLACE_BYTES + 4 * size_of::<(Network, Place)>());

/// The groups of a worker's connections.
#[derive(Debug, Default)]
pub(super) struct Shares {
    groups: Slab<Group>,
    /// The place of each group. Keyed at random, so that an attacker cannot choose addresses that collide.
    index: HashMap<Network, Place, RandomState>,
    /// Groups by greed, then by the phase of the connection that they can spare first. As long as the greed of the
    /// greediest group has ever been, which takes less than its connections do.
    ranks: Vec<[Queue; Phase::COUNT]>,
    /// The greed of the greediest group, if one is ranked.
    greed_max: usize,
}

/// The groups that a connection is in, the narrowest first.
pub(super) type Membership = [Member; Width::COUNT];

/// The part of a connection in one group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Member {
    group: Option<Place>,
    /// Within the group's queue of its phase.
    links: Links,
}

/// Where the memberships of connections are.
pub(super) trait Members {
    fn membership(&mut self, place: Place) -> &mut Membership;
}

/// The connections of a network.
#[derive(Debug)]
struct Group {
    network: Network,
    count: u32,
    /// Its connections by phase, the one that has been in it longest first.
    queues: [Queue; Phase::COUNT],
    /// Within the queue of its rank.
    links: Links,
    ranked: Option<Rank>,
}

/// Where a group stands among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rank {
    greed: usize,
    /// The phase of the connection that the group can spare first.
    phase: Phase,
}

/// The connections in the groups of one width.
struct OfWidth<'m, M> {
    members: &'m mut M,
    level: usize,
}

impl<M: Members> Chain for OfWidth<'_, M> {
    fn links(&mut self, place: Place) -> &mut Links {
        &mut self.members.membership(place)[self.level].links
    }
}

impl Chain for Slab<Group> {
    fn links(&mut self, place: Place) -> &mut Links {
        &mut self.at(place.index()).1.links
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
    /// Puts a connection in a phase into the groups of `networks`. It is in none before.
    pub(super) fn join(
        &mut self,
        members: &mut impl Members,
        place: Place,
        networks: impl Iterator<Item = Network>,
        phase: Phase,
    ) {
        for (level, network) in networks.enumerate().take(Width::COUNT) {
            let group_place = self.group_of(network);
            members.membership(place)[level].group = Some(group_place);
            let (_, group) = self.groups.at(group_place.index());
            group.count += 1;
            group.queues[phase as usize].push(place, &mut OfWidth { members, level });
            self.rank(group_place);
        }
    }

    /// Takes a connection in a phase out of its groups, and hands their networks to `note`.
    pub(super) fn leave(
        &mut self,
        members: &mut impl Members,
        place: Place,
        phase: Phase,
        mut note: impl FnMut(Network),
    ) {
        for level in 0..Width::COUNT {
            let Some(group_place) = members.membership(place)[level].group.take() else { return };
            let (key, group) = self.groups.at(group_place.index());
            group.count -= 1;
            group.queues[phase as usize].remove(place, &mut OfWidth { members, level });
            let (network, is_empty) = (group.network, group.count == 0);
            if is_empty {
                // It has no greed, so it is not ranked.
                self.groups.remove(key);
                self.index.remove(&network);
            } else {
                self.rank(group_place);
            }
            note(network);
        }
    }

    /// Moves a connection to the end of the queue of phase `to`, which may be the one that it is in.
    pub(super) fn shift(&mut self, members: &mut impl Members, place: Place, from: Phase, to: Phase) {
        for level in 0..Width::COUNT {
            let Member { group: Some(group_place), links } = members.membership(place)[level] else { return };
            // One that is alone, as most are that stand, is at the end already.
            if from == to && links.is_alone() {
                continue;
            }
            let (_, group) = self.groups.at(group_place.index());
            let mut chain = OfWidth { members, level };
            group.queues[from as usize].remove(place, &mut chain);
            group.queues[to as usize].push(place, &mut chain);
            if from != to {
                self.rank(group_place);
            }
        }
    }

    /// How greedy a source is already: the greed of that of its networks where it is greatest.
    pub(super) fn greed(&mut self, networks: impl Iterator<Item = Network>) -> usize {
        let greed = |network: Network| {
            let place = self.index.get(&network)?;
            Some(self.groups.at(place.index()).1.greed())
        };
        networks.filter_map(greed).max().unwrap_or(0)
    }

    /// Of the greediest group the connection that it can spare first, and that group's greed. None where no group is ranked.
    pub(super) fn first_to_go(&mut self) -> Option<(Place, usize)> {
        if self.greed_max < RANKED_GREED_MIN {
            return None;
        }
        let ranks = &self.ranks[self.greed_max];
        let (phase, group) =
            Phase::ALL.into_iter().find_map(|phase| Some((phase, ranks[phase as usize].first()?)))?;
        let (_, group) = self.groups.at(group.index());
        Some((group.queues[phase as usize].first()?, self.greed_max))
    }

    /// The connection of a network that has been in `phase` longest.
    pub(super) fn first_of(&mut self, network: Network, phase: Phase) -> Option<Place> {
        let place = self.index.get(&network)?;
        self.groups.at(place.index()).1.queues[phase as usize].first()
    }

    /// Gives back memory that was needed for more groups than there are.
    pub(super) fn trim(&mut self) {
        self.groups.trim();
        self.index.shrink_to(2 * self.index.len());
        self.ranks.truncate(self.greed_max + 1);
        self.ranks.shrink_to(2 * self.ranks.len());
    }

    fn group_of(&mut self, network: Network) -> Place {
        *self.index.entry(network).or_insert_with(|| {
            let queues = [Queue::default(); Phase::COUNT];
            let group = Group { network, count: 0, queues, links: Links::default(), ranked: None };
            Place::new(self.groups.insert(group).index)
        })
    }

    /// Puts a group that has changed where it belongs.
    fn rank(&mut self, place: Place) {
        let (_, group) = self.groups.at(place.index());
        let (before, after) = (group.ranked, group.rank());
        if before == after {
            return;
        }
        group.ranked = after;
        if let Some(Rank { greed, phase }) = before {
            self.ranks[greed][phase as usize].remove(place, &mut self.groups);
        }
        if let Some(Rank { greed, phase }) = after {
            if self.ranks.len() <= greed {
                self.ranks.resize(greed + 1, Default::default());
            }
            self.ranks[greed][phase as usize].push(place, &mut self.groups);
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
        fn membership(&mut self, place: Place) -> &mut Membership {
            &mut self[place.index() as usize]
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

        /// Checks the choice of the shares against all that the model knows.
        fn check(&self, shares: &mut Shares) {
            let networks: Vec<_> =
                self.model.iter().flatten().flat_map(|model| Network::all(model.ip)).collect();
            let greed_max = networks.iter().map(|network| self.greed_of(*network)).max().unwrap_or(0);
            let Some((place, greed)) = shares.first_to_go() else {
                assert!(greed_max < RANKED_GREED_MIN, "{greed_max}");
                return;
            };
            assert_eq!(greed, greed_max);
            let victim = self.model[place.index() as usize].expect("the victim is connected");
            // The greediest groups that the victim is in: in one of them, no connection can be spared before it.
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
                let place = Place::new(u32::try_from(index).unwrap());
                let phase = Phase::ALL[rng.usize(..Phase::COUNT)];
                let Connections { memberships, model } = &mut connections;
                match &mut model[index] {
                    slot @ None => {
                        let ip = random_ip(&mut rng);
                        shares.join(memberships, place, Network::all(ip), phase);
                        *slot = Some(Model { ip, phase, since: now });
                    }
                    Some(connected) if rng.bool() => {
                        shares.shift(memberships, place, connected.phase, phase);
                        (connected.phase, connected.since) = (phase, now);
                    }
                    slot @ Some(_) => {
                        let Model { ip, phase, .. } = slot.take().unwrap();
                        let mut left = Vec::new();
                        shares.leave(memberships, place, phase, |network| left.push(network));
                        assert!(left.into_iter().eq(Network::all(ip)));
                    }
                }
                connections.check(&mut shares);
            }
            for index in 0..COUNT {
                if let Some(Model { phase, .. }) = connections.model[index].take() {
                    let place = Place::new(u32::try_from(index).unwrap());
                    shares.leave(&mut connections.memberships, place, phase, drop);
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
            shares.join(&mut memberships, Place::new(number), Network::all(ip), Phase::Idle);
            let greed = shares.first_to_go().map(|(_, greed)| greed);
            let expected = (number as usize + 1) / Width::Site.share();
            assert_eq!(greed, (expected >= 2).then_some(expected), "{number}");
        }
    }
}
