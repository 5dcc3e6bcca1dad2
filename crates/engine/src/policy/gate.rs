//! Which requests count towards limits, and which announces are looked at for bans.
//!
//! Counting a request takes several cache misses. A tracker therefore counts one request of [`Gate::WEIGHT`], drawn at
//! random, and takes it for that many. No client can tell which of its requests counts, so none can hold back those. A
//! source near a limit is counted exactly, see `Limits::weight`.

/// Draws the requests of a responder that count.
#[derive(Debug)]
pub struct Gate {
    /// The number of requests up to the next one that counts.
    left: u32,
    rng: fastrand::Rng,
}

impl Gate {
    /// The number of requests for which one counts.
    pub const WEIGHT: u32 = 32;

    /// Creates a gate. Nothing else may draw from `rng`, since clients may see other draws.
    pub fn new(rng: fastrand::Rng) -> Self {
        let mut gate = Self { left: 0, rng };
        gate.left = gate.distance();
        gate
    }

    /// Returns the number of requests for which the next one counts: mostly zero.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 { self.open() } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn open(&mut self) -> u32 {
        self.left = self.distance();
        Self::WEIGHT
    }

    /// Draws the distance to the next request that counts: at least 1, and the weight on average.
    fn distance(&mut self) -> u32 {
        self.rng.u32(1..2 * Self::WEIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_as_many_as_they_are() {
        let mut gate = Gate::new(fastrand::Rng::with_seed(1));
        let counted: u32 = (0..1_000_000).map(|_| gate.draw()).sum();
        assert!((990_000..1_010_000).contains(&counted), "{counted}");
    }

    #[test]
    fn no_pattern_of_requests_escapes() {
        // A source that sends its requests at fixed places among those of others is counted like any other.
        for period in [2, 32, 63, 64, 200] {
            let mut gate = Gate::new(fastrand::Rng::with_seed(period));
            let draws: Vec<u32> = (0..3_200_000).map(|_| gate.draw()).collect();
            let one: Vec<u32> = draws.iter().copied().step_by(usize::try_from(period).unwrap()).collect();
            let (counted, sent) = (one.iter().sum::<u32>(), u32::try_from(one.len()).unwrap());
            assert!(counted.abs_diff(sent) < sent / 10, "period {period}: {counted} of {sent}");
        }
    }
}
