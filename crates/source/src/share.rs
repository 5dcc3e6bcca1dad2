//! The share of a ceiling that one source may hold, by how much of the ceiling is in use.

/// Below this part of the ceiling, in halves, nothing is limited.
const FREE_HALVES: u64 = 1;

/// The allowance is at least this part of what the ceiling holds, so that a source that holds little is served up to the
/// ceiling, and more than what other sources add to its counters in a [`Sketch`](crate::Sketch).
const FLOOR_SHARE: u64 = 8192;

/// The allowance is at least this, however low the ceiling is.
const FLOOR_ENTRIES: u64 = 32;

/// How many entries one source may hold, where `used` of `max` (in any unit) are in use and `entries_max` entries would
/// fit; nothing while half is free, as there is no limit then.
///
/// With `g` the part that is still free, the allowance is `entries_max × g² / 4`: a sixteenth of all at one half, a 64th
/// at three quarters, a 256th at seven eighths. The square makes it fall faster than the free part: what a source may
/// add is at any fill at most a quarter of the free part, and it takes as many sources to fill the rest again as it took
/// to come there. One source alone stops at one half; 256 of them stop at 88 %, and only some 4,000 reach 31/32.
#[must_use]
pub fn allowance(used: u64, max: u64, entries_max: u64) -> Option<u64> {
    if used.saturating_mul(2) < max.saturating_mul(FREE_HALVES) {
        return None;
    }
    let (free, max) = (u128::from(max.saturating_sub(used)), u128::from(max.max(1)));
    let share = u128::from(entries_max) * free / max * free / (4 * max);
    let floor = (entries_max / FLOOR_SHARE).max(FLOOR_ENTRIES);
    Some(u64::try_from(share).unwrap_or(u64::MAX).max(floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: u64 = 1 << 20;

    #[test]
    fn half_is_free_and_the_rest_falls_with_the_square() {
        assert_eq!(allowance(0, 1024, ENTRIES), None);
        assert_eq!(allowance(511, 1024, ENTRIES), None);
        assert_eq!(allowance(512, 1024, ENTRIES), Some(ENTRIES / 16));
        assert_eq!(allowance(768, 1024, ENTRIES), Some(ENTRIES / 64));
        assert_eq!(allowance(896, 1024, ENTRIES), Some(ENTRIES / 256));
        assert_eq!(allowance(1024, 1024, ENTRIES), Some(ENTRIES / FLOOR_SHARE));
        assert_eq!(allowance(2000, 1024, ENTRIES), Some(ENTRIES / FLOOR_SHARE));
    }

    #[test]
    fn extreme_ceilings() {
        assert_eq!(allowance(0, 0, 0), Some(FLOOR_ENTRIES));
        assert_eq!(allowance(10, 10, 100), Some(FLOOR_ENTRIES));
        assert!(allowance(u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX).is_some());
    }

    /// Lets `sources` fill a ceiling, each as far as it may, and returns the part in use at the end, in per cent.
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
        assert!(filled_by(16) < 75);
        assert!(filled_by(256) < 90);
    }
}
