//! Maps values to coordinates, and chooses the labelled values of an axis.

/// An axis: its range of values, and the coordinates of that range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl Scale {
    /// Creates a linear scale.
    pub(super) fn linear((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        Self { low, high, from, to, is_logarithmic: false }
    }

    /// Creates a logarithmic scale. The range has to be positive.
    pub(super) fn logarithmic((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        Self { low, high, from, to, is_logarithmic: true }
    }

    /// Returns the coordinates of the lowest and the highest value.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Returns the coordinate of a value. Values outside of the range are clamped to it.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = if self.is_logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        (self.to - self.from).mul_add(share, self.from)
    }
}

/// Returns about five round values from 0 to at least `most`.
pub(super) fn ticks(most: f64) -> Vec<f64> {
    if most <= 0.0 {
        return vec![0.0, 1.0];
    }
    // The step is 1, 2, 2.5, 5 or 10 times a power of ten.
    let power = 10f64.powf((most / 5.0).log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * power >= most / 5.0).unwrap_or(10.0);
    let step = factor * power;
    let mut ticks = vec![0.0];
    while ticks.last().is_some_and(|last| *last < most) && ticks.len() < 12 {
        let next = u32::try_from(ticks.len()).map_or(0.0, f64::from) * step;
        ticks.push(next);
    }
    ticks
}

/// Returns the powers of ten around a range, and twice and five times these if the range is narrow.
pub(super) fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let factors: &[f64] = if last - first > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let mut ticks = Vec::new();
    let mut exponent = first;
    while exponent < last {
        ticks.extend(factors.iter().map(|factor| factor * 10f64.powf(exponent)));
        exponent += 1.0;
    }
    ticks.push(10f64.powf(last));
    // At most one tick below the range and one above it.
    let start = ticks.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let end = ticks.iter().position(|tick| *tick >= high).unwrap_or(ticks.len() - 1);
    ticks[start..=end.max(start + 1).min(ticks.len() - 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_over_the_data() {
        assert_eq!(ticks(231_000.0), [0.0, 50_000.0, 100_000.0, 150_000.0, 200_000.0, 250_000.0]);
        assert_eq!(ticks(0.0), [0.0, 1.0]);
        assert_eq!(decades(100.0, 100.0), [100.0, 200.0]);
        assert_eq!(ticks(4.0), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(decades(30.0, 150.0), [20.0, 50.0, 100.0, 200.0]);
        assert_eq!(decades(30.0, 2_500_000.0), [10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7]);
    }

    #[test]
    fn values_map_to_coordinates() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 200.0));
        assert!((linear.at(5.0) - 150.0).abs() < 1e-9);
        let logarithmic = Scale::logarithmic((1.0, 100.0), (200.0, 0.0));
        assert!((logarithmic.at(10.0) - 100.0).abs() < 1e-9);
        assert!((logarithmic.at(1e9) - 0.0).abs() < 1e-9);
    }
}
