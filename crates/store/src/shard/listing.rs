//! Lists of the peers of one swarm, for operators.

use crate::Place;
use crate::family::{Family, PeerRow};
use crate::stamp::{Stamp, Tick};
use crate::swarm::large::Peers;
use crate::swarm::line::{Form, SwarmRow};
use crate::swarm::small::Small;
use crate::swarms::StoredPeer;

use super::Shard;

impl<P: Family> Shard<P> {
    /// Appends up to `max` peers of a swarm: up to half as many seeders, then leechers. Reads at most `max` lines of
    /// each table of a large swarm.
    pub(crate) fn peers(&self, place: &Place, max: usize, now_s: u32, peers: &mut Vec<StoredPeer>) {
        let Some((at, line)) = self.search(place) else { return };
        let (now, first) = (self.ticks.at(now_s), peers.len());
        let left = |peers: &Vec<StoredPeer>| max.saturating_sub(peers.len() - first);
        match line.form(at.slot()) {
            Form::Single { entry, seeds } => {
                let entries = [(entry.peer, entry.stamp)];
                peers.extend(entries.into_iter().take(max).map(|entry| self.listed(entry, seeds, now)));
            }
            Form::Small { block, class, .. } => {
                let small = Small::<P>::read(self.memory.block(block, class));
                let entries = small.peers.iter().zip(small.stamps).enumerate();
                let leechers = small.peers.len() - small.seeders;
                let seeders = small.seeders.min(max.div_ceil(2).max(max.saturating_sub(leechers)));
                let listed = entries.filter(|(index, _)| *index < seeders || *index >= small.seeders);
                peers.extend(listed.take(max).map(|(index, (peer, stamp))| {
                    self.listed((*peer, Stamp(*stamp)), index < small.seeders, now)
                }));
            }
            Form::Large { index } => {
                let large = self.larges.large(index);
                let leechers = usize::try_from(large.leechers.len()).unwrap_or(usize::MAX);
                let seeders = max.div_ceil(2).max(max.saturating_sub(leechers));
                self.list_table(&large.seeders, true, seeders, now, peers);
                self.list_table(&large.leechers, false, left(peers), now, peers);
            }
        }
    }

    fn list_table(&self, table: &Peers<P>, seeds: bool, max: usize, now: Tick, peers: &mut Vec<StoredPeer>) {
        let numbers = core::iter::successors(Some(0), |number| Some(table.number_after(*number)));
        let lines = numbers.take_while(|number| *number < table.end()).take(max);
        let lines = lines.filter_map(|number| table.line(&self.memory, number));
        let entries = lines.flat_map(|line| line.peers().iter().zip(line.stamps()));
        let entries = entries.map(|(peer, stamp)| (*peer, Stamp(*stamp)));
        peers.extend(entries.take(max).map(|entry| self.listed(entry, seeds, now)));
    }

    fn listed(&self, (peer, stamp): (P, Stamp), seeds: bool, now: Tick) -> StoredPeer {
        StoredPeer { address: peer.address(), seeds, age_s: self.ticks.age_s(stamp, now) }
    }
}
