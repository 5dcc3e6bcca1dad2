//! The large swarms of a shard, which lie outside its table.

use serde::{Deserialize, Serialize};

use crate::family::Family;
use crate::hash::{HashKey, Seed};
use crate::swarm::large::Large;

#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Larges<P: Family> {
    list: Vec<Option<Box<Large<P>>>>,
    vacant: Vec<u32>,
    /// Inputs of the seeds of their tables: a number that no other shard has, and the number of seeds made so far.
    origin: u64,
    made: u64,
}

impl<P: Family> Larges<P> {
    pub(super) fn new(shard: u64) -> Self {
        // There are few shards, and a peer has less than 256 bytes, so no two shards of a store share an origin.
        let origin = u64::MAX - (shard << 8 | size_of::<P>() as u64);
        Self { list: Vec::new(), vacant: Vec::new(), origin, made: 0 }
    }

    /// Returns the seeds of the two tables of the next large swarm.
    pub(crate) fn next_table_seeds(&mut self, key: &HashKey) -> [Seed; 2] {
        self.made += 2;
        [key.seed(self.origin, self.made), key.seed(self.origin, self.made + 1)]
    }

    pub(crate) fn add(&mut self, large: Large<P>) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.list.push(None);
            u32::try_from(self.list.len() - 1).expect("a large swarm takes far more than 64 bytes")
        });
        self.list[index as usize] = Some(Box::new(large));
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Box<Large<P>> {
        self.vacant.push(index);
        self.list[index as usize].take().expect("a swarm keeps its tables")
    }

    /// Returns the large swarm with an index, which may be out of date.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Large<P>> {
        self.list.get(index as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn large(&self, index: u32) -> &Large<P> {
        self.list[index as usize].as_deref().expect("a swarm keeps its tables")
    }

    #[inline]
    pub(crate) fn large_mut(&mut self, index: u32) -> &mut Large<P> {
        self.list[index as usize].as_deref_mut().expect("a swarm keeps its tables")
    }
}
