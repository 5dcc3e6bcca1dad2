//! The share of a ceiling that one source may hold, depending on how much of it is in use.

/// Below this part of the ceiling, in halves, nothing is limited.
const FREE_HALVES: u64 = 1;

/// The allowance is the square of the free part of the ceiling, divided by this.
const SLOPE: u128 = 16;

/// The allowance is at least this fraction of the ceiling. So a source that holds little is served up to the ceiling,
/// and the minimum exceeds what other sources add to its counters in a [`Sketch`](crate::source::Sketch).
const FLOOR_SHARE: u64 = 8192;

/// The allowance is at least this, even under a low ceiling.
const FLOOR_ENTRIES: u64 = 32;

/// Returns the number of entries that one source may hold, if `used` of `max` (in any unit) are in use and
/// `entries_max` entries would fit. Returns `None` while half is free: there is no limit then.
///
/// If `g` is the free part, the allowance is `entries_max × g² / 16`: a 64th of all at one half, a 256th at three
/// quarters, a 1024th at seven eighths, and never less than a minimum. It falls faster than the free part, so each
/// doubling of the number of sources gains less. One source stops at one half. 256 sources that keep to their falling
/// allowance stop at 78 %, and only some 8,000 fill everything.
pub fn allowance(used: u64, max: u64, entries_max: u64) -> Option<u64> {
    if used.saturating_mul(2) < max.saturating_mul(FREE_HALVES) {
        return None;
    }
    let (free, max) = (u128::from(max.saturating_sub(used)), u128::from(max.max(1)));
    let share = u128::from(entries_max) * free / max * free / (SLOPE * max);
    let floor = (entries_max / FLOOR_SHARE).max(FLOOR_ENTRIES);
    Some(u64::try_from(share).unwrap_or(u64::MAX).max(floor))
}

/// Number of peers of one source that a swarm admits, whatever their share.
pub const SWARM_SHARE_PEERS_MIN: usize = 4;

/// Returns how many peers one source may have in a swarm of `len` peers, if its share is limited to `per_cent`. A share
/// of zero, or of a hundred or more, means no limit.
pub fn swarm_share(len: usize, per_cent: u32) -> usize {
    match per_cent {
        0 | 100.. => usize::MAX,
        _ => (len.saturating_add(1).saturating_mul(per_cent as usize) / 100).max(SWARM_SHARE_PEERS_MIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: u64 = 1 << 20;

    #[test]
    fn half_is_free_and_the_rest_falls_with_the_square() {
        assert_eq!(allowance(0, 1024, ENTRIES), None);
        assert_eq!(allowance(511, 1024, ENTRIES), None);
        assert_eq!(allowance(512, 1024, ENTRIES), Some(ENTRIES / 64));
        assert_eq!(allowance(768, 1024, ENTRIES), Some(ENTRIES / 256));
        assert_eq!(allowance(896, 1024, ENTRIES), Some(ENTRIES / 1024));
        assert_eq!(allowance(1024, 1024, ENTRIES), Some(ENTRIES / FLOOR_SHARE));
        assert_eq!(allowance(2000, 1024, ENTRIES), Some(ENTRIES / FLOOR_SHARE));
    }

    #[test]
    fn extreme_ceilings() {
        assert_eq!(allowance(0, 0, 0), Some(FLOOR_ENTRIES));
        assert_eq!(allowance(10, 10, 100), Some(FLOOR_ENTRIES));
        assert!(allowance(u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX).is_some());
    }

    #[test]
    fn a_share_of_a_swarm_is_at_least_a_few_peers() {
        assert_eq!([0, 39, 49, 99].map(|len| swarm_share(len, 10)), [4, 4, 5, 10]);
        assert_eq!([0, 100, 1000].map(|per_cent| swarm_share(99, per_cent)), [usize::MAX; 3]);
        assert_eq!(swarm_share(usize::MAX, 99), usize::MAX / 100);
    }

    /// Fills a ceiling from `sources`, each as far as it may, and returns the part in use at the end, in per cent.
    fn filled_by(sources: u64) -> u64 {
        let mut used = 0;
        while allowance(used, ENTRIES, ENTRIES).is_none_or(|allowance| used < allowance * sources) {
            used += 1;
        }
        used * 100 / ENTRIES
    }

    #[test]
    fn a_few_sources_cannot_take_the_rest() {
        assert_eq!(filled_by(1), 50);
        assert!(filled_by(16) < 60);
        assert!(filled_by(256) < 80);
        assert!(filled_by(4096) < 96);
    }
}
