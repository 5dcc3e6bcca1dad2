//! Counts the entries of each network around their sources, and finds those that hold more than their share.

use crate::source::sketch::Sketch;
use crate::source::width::Width;

/// Number of counters of a row for wide networks, as a power of two. A wide network may have at least 64 times as much
/// as a source. That exceeds what others add to these counters, although they are few.
const WIDE_COUNTERS_BITS: u32 = 12;

/// The entries of networks, which are given by their hashes. Shared between threads: all methods take `&self`.
///
/// Wide networks have separate counters. If all networks of an entry used the same counters, they would add so much to
/// each source's counters that a source with few entries would seem to hold many.
#[derive(Debug)]
pub struct NetworkCounts {
    of_customers: Sketch,
    wide: Sketch,
}

impl NetworkCounts {
    /// Creates counts of zero, for up to about `entries_max` entries of all sources together.
    pub fn new(entries_max: u64) -> Self {
        Self { of_customers: Sketch::new(entries_max), wide: Sketch::with_counters(WIDE_COUNTERS_BITS) }
    }

    /// Returns all counters, for [`set_words`](Self::set_words) in another process.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        self.of_customers.words().chain(self.wide.words())
    }

    /// Replaces all counts by those of another process, whose networks have the same hashes. Takes only its own part of
    /// the words.
    pub fn set_words(&self, words: &mut impl Iterator<Item = u32>) {
        self.of_customers.set_words(&mut *words);
        self.wide.set_words(words);
    }

    /// Counts an entry of a source, given by its networks.
    #[inline]
    pub fn add(&self, networks: impl IntoIterator<Item = (u64, Width)>) {
        networks.into_iter().for_each(|(hash, width)| self.sketch(width).add(hash));
    }

    /// Subtracts an entry, which must have been added.
    #[inline]
    pub fn remove(&self, networks: impl IntoIterator<Item = (u64, Width)>) {
        networks.into_iter().for_each(|(hash, width)| self.sketch(width).remove(hash));
    }

    /// Returns whether one of these networks has reached its maximum number of entries, if a single source may have
    /// `allowance`.
    pub fn holds(&self, networks: impl IntoIterator<Item = (u64, Width)>, allowance: u64) -> bool {
        networks.into_iter().any(|(hash, width)| {
            u64::from(self.sketch(width).count(hash)) >= allowance.saturating_mul(width.shares().into())
        })
    }

    #[inline]
    fn sketch(&self, width: Width) -> &Sketch {
        if width.is_of_customer() { &self.of_customers } else { &self.wide }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::networks::SourceHasher;

    #[test]
    fn a_full_ceiling_of_modest_sources_makes_none_seem_greedy() {
        const ENTRIES: u32 = 1 << 20;
        let (counts, hasher) = (NetworkCounts::new(ENTRIES.into()), SourceHasher::new([1, 2]));
        let allowance = crate::source::allowance(ENTRIES.into(), ENTRIES.into(), ENTRIES.into()).unwrap();
        // Half in /24 networks of which all addresses take part, half in sites of two /32 each.
        let source = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            if number < ENTRIES / 2 {
                hasher.source_v4(number.into())
            } else {
                hasher.source_v6([0x2a, a, b, c, d & 1, d, 0, 0])
            }
        };
        (0..ENTRIES).for_each(|number| counts.add(source(number).networks()));
        let greedy =
            (0..ENTRIES).step_by(7).filter(|number| counts.holds(source(*number).networks(), allowance));
        assert_eq!(greedy.count(), 0);
        let words: Vec<u32> = counts.words().collect();
        let other = NetworkCounts::new(ENTRIES.into());
        other.set_words(&mut words.iter().copied());
        assert!(other.words().eq(words));
        (0..ENTRIES).for_each(|number| other.remove(source(number).networks()));
        assert!(other.words().all(|word| word == 0));
    }

    #[test]
    fn each_width_has_its_multiple_of_the_allowance() {
        let hasher = SourceHasher::new([1, 2]);
        // Returns how many entries these addresses get, if a single source may have ten.
        let admitted = |ip: &dyn Fn(u32) -> String| {
            let counts = NetworkCounts::new(1 << 20);
            let networks = |number| hasher.source(ip(number).parse().unwrap()).networks();
            (0..5000)
                .take_while(|number| !counts.holds(networks(*number), 10))
                .map(|number| counts.add(networks(number)))
                .count()
        };
        assert_eq!(admitted(&|_| "192.0.2.1".to_owned()), 10);
        assert_eq!(admitted(&|number| format!("192.0.2.{}", number % 256)), 640);
        assert_eq!(admitted(&|number| format!("198.{}.{}.1", number >> 8, number & 255)), 5000);
        assert_eq!(admitted(&|_| "2001:db8::1".to_owned()), 10);
        assert_eq!(admitted(&|number| format!("2001:db8:0:{number:x}::1")), 80);
        assert_eq!(admitted(&|number| format!("2001:db8:{:x}::1", number % 256)), 640);
        assert_eq!(admitted(&|number| format!("2001:db8:{number:x}::1")), 1280);
    }
}
