//! The networks of one family in the program: a trie in the kernel, and a copy of its contents.

use std::io::ErrorKind;

use aya::maps::lpm_trie::Key;
use aya::maps::{LpmTrie, MapData, MapError};

/// A network with addresses of `N` bytes: first address, length of the prefix, flags.
pub(super) type Entry<const N: usize> = ([u8; N], u8, u32);

pub(super) struct Networks<const N: usize> {
    trie: LpmTrie<MapData, [u8; N], u32>,
    /// The contents of the trie, sorted, each network once. After a failed removal, this list may contain more than the
    /// trie.
    present: Vec<Entry<N>>,
}

impl<const N: usize> Networks<N> {
    pub(super) fn new(trie: LpmTrie<MapData, [u8; N], u32>) -> Self {
        Self { trie, present: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Inserts all wanted networks, which are sorted. Others stay as long as there is room for both.
    pub(super) fn insert(&mut self, wanted: &[Entry<N>]) -> Result<(), MapError> {
        match self.insert_missing(wanted) {
            // An earlier list that did not fit may have filled the trie.
            Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::StorageFull => {
                self.remove_others(wanted)?;
                self.insert_missing(wanted)
            }
            outcome => outcome,
        }
    }

    fn insert_missing(&mut self, wanted: &[Entry<N>]) -> Result<(), MapError> {
        let missing = difference(wanted, &self.present, |entry| *entry);
        let mut inserted = 0;
        let outcome = missing.iter().try_for_each(|(octets, bits, flags)| {
            self.trie.insert(&Key::new((*bits).into(), *octets), *flags, 0)?;
            inserted += 1;
            Ok(())
        });
        self.present.extend_from_slice(&missing[..inserted]);
        put_in_order(&mut self.present);
        outcome
    }

    /// Removes the networks that are not wanted any more.
    pub(super) fn remove_others(&mut self, wanted: &[Entry<N>]) -> Result<(), MapError> {
        let gone = difference(&self.present, wanted, network);
        for (octets, bits, _) in &gone {
            match self.trie.remove(&Key::new((*bits).into(), *octets)) {
                // An earlier attempt, which failed later, has removed it.
                Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::NotFound => {}
                outcome => outcome?,
            }
        }
        self.present = difference(&self.present, &gone, network);
        Ok(())
    }
}

fn network<const N: usize>((octets, bits, _): &Entry<N>) -> ([u8; N], u8) {
    (*octets, *bits)
}

/// Sorts networks. If several entries are for the same network, the last one counts.
pub(super) fn put_in_order<const N: usize>(entries: &mut Vec<Entry<N>>) {
    // New entries after sorted ones form two runs, which the sort only merges.
    entries.sort_by_key(network);
    entries.dedup_by(|later, former| {
        let is_same = network(later) == network(former);
        if is_same {
            former.2 = later.2;
        }
        is_same
    });
}

/// Returns the entries whose keys are not among the others' keys. Both lists are sorted.
fn difference<T: Copy, K: Ord>(entries: &[T], others: &[T], key: impl Fn(&T) -> K) -> Vec<T> {
    let mut others = others.iter().map(&key).peekable();
    let is_missing = |entry: &&T| {
        let entry = key(entry);
        while others.next_if(|other| *other < entry).is_some() {}
        others.peek().is_none_or(|other| *other != entry)
    };
    entries.iter().filter(is_missing).copied().collect()
}

/// Returns an address with the bits after its prefix cleared.
pub(super) fn masked<const N: usize>(mut octets: [u8; N], bits: u8) -> [u8; N] {
    for (octet, start) in octets.iter_mut().zip((0_u16..).step_by(8)) {
        let prefix = u16::from(bits).saturating_sub(start).min(8);
        *octet &= !(0xff_u16 >> prefix).to_le_bytes()[0];
    }
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let octets = [0xff, 0xff, 0xff, 0xff];
        for (bits, expected) in [(0, 0_u32), (1, 1 << 31), (8, 0xff << 24), (31, !1), (32, !0)] {
            assert_eq!(masked(octets, bits), expected.to_be_bytes(), "{bits}");
        }
    }

    #[test]
    fn the_last_entry_of_a_network_counts() {
        let mut entries = vec![([2], 8, 1), ([3], 8, 1), ([1], 8, 1), ([3], 8, 0), ([3], 7, 5)];
        put_in_order(&mut entries);
        assert_eq!(entries, [([1], 8, 1), ([2], 8, 1), ([3], 7, 5), ([3], 8, 0)]);
    }

    #[test]
    fn differences_are_those_of_sets() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let [mut left, mut right] =
                [0; 2].map(|_| (0..rng.usize(..9)).map(|_| rng.u8(..9)).collect::<Vec<_>>());
            [&mut left, &mut right].into_iter().for_each(|entries| {
                entries.sort_unstable();
                entries.dedup();
            });
            let expected: Vec<u8> = left.iter().copied().filter(|entry| !right.contains(entry)).collect();
            assert_eq!(difference(&left, &right, |entry| *entry), expected, "{left:?} {right:?}");
        }
    }
}
