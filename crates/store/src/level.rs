//! The number of lines of a table, and the mapping of positions to home lines.
//!
//! A table grows by a fixed share at a time, and within that, one line at a time. In the middle of such a growth, the
//! positions whose line was below `split` keep the old division into `lower` lines, and the others already have the new
//! division into `upper` lines. Both divisions preserve the order of positions, so growth proceeds from the top line
//! down and shrinking from the bottom up. Between the two zones there is a gap of lines that are home to no position.

/// Number of sizes of a ladder.
const RUNGS: usize = 160;

/// The sizes that a table goes through. Each is larger than the previous one by the same share.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ladder([u32; RUNGS]);

/// Steps of an eighth: the least memory, the most moves.
pub(crate) static EIGHTHS: Ladder = Ladder::with_steps_of(8);

/// Steps of a sixth: a quarter fewer moves for about three per cent more memory.
pub(crate) static SIXTHS: Ladder = Ladder::with_steps_of(6);

/// Steps of a fifth: fewer again.
pub(crate) static FIFTHS: Ladder = Ladder::with_steps_of(5);

impl Ladder {
    const fn with_steps_of(share: u32) -> Self {
        let mut sizes = [1_u32; RUNGS];
        let mut index = 1;
        while index < RUNGS {
            let step = sizes[index - 1] / share;
            sizes[index] = sizes[index - 1].saturating_add(if step == 0 { 1 } else { step });
            index += 1;
        }
        assert!(sizes[RUNGS - 1] > 1 << 26, "2^26 lines of nine hold 600 million peers");
        Self(sizes)
    }
}

/// The current division of a table's positions into lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    lower: u32,
    upper: u32,
    split: u32,
}

impl Level {
    /// Returns the smallest division with at least `lines` lines.
    pub(crate) fn holding(ladder: &Ladder, lines: u32) -> Self {
        let rung = ladder.0.iter().position(|&size| size >= lines).unwrap_or(RUNGS - 2).min(RUNGS - 2);
        Self::through(ladder, rung)
    }

    /// Returns a division that is not split.
    fn through(ladder: &Ladder, rung: usize) -> Self {
        let (lower, upper) = (ladder.0[rung], ladder.0[rung + 1]);
        Self { lower, upper, split: lower }
    }

    /// Returns the home line of a position.
    #[inline]
    pub(crate) fn home(&self, position: u32) -> u32 {
        let line = divide(position, self.lower);
        if line < self.split { line } else { divide(position, self.upper) }
    }

    /// Returns the number of lines that are home to some position, which excludes those of the gap.
    pub(crate) fn lines(&self) -> u32 {
        self.split + (self.upper - self.gap_end())
    }

    /// Returns the first line of the gap.
    #[inline]
    pub(crate) fn gap_start(&self) -> u32 {
        self.split
    }

    /// Returns the first line behind the gap: the upper division's home of the lowest position at or above `split`.
    #[inline]
    pub(crate) fn gap_end(&self) -> u32 {
        if self.split == self.lower { self.upper } else { divide(lowest(self.split, self.lower), self.upper) }
    }

    /// Returns the lowest position whose home is the top line of the lower zone or that is behind the border.
    #[inline]
    pub(crate) fn top_position(&self) -> u32 {
        lowest(self.split - 1, self.lower)
    }

    /// Returns the home line of a position behind the border.
    #[inline]
    pub(crate) fn upper_home(&self, position: u32) -> u32 {
        divide(position, self.upper)
    }

    fn with_split(self, split: u32) -> Self {
        Self { split, ..self }
    }

    /// Returns the index of the division on its ladder. It is computed, because otherwise every table would have to
    /// store it.
    fn rung(&self, ladder: &Ladder) -> usize {
        ladder.0.partition_point(|&size| size < self.lower)
    }

    /// Prepares a split of the top line: moves on to the next larger division if the current one is complete. Returns
    /// `None` if there is no larger one.
    pub(crate) fn before_growth(self, ladder: &Ladder) -> Option<Self> {
        if self.split > 0 {
            return Some(self);
        }
        let rung = self.rung(ladder) + 1;
        (rung + 1 < RUNGS).then(|| Self::through(ladder, rung))
    }

    /// Returns the division after the top line of the lower zone is split.
    pub(crate) fn grown(self) -> Self {
        self.with_split(self.split - 1)
    }

    /// Prepares a merge of the lowest lines of the upper zone. Returns `None` if this is already the smallest division.
    pub(crate) fn before_shrinking(self, ladder: &Ladder) -> Option<Self> {
        if self.split < self.lower {
            return Some(self);
        }
        let rung = self.rung(ladder).checked_sub(1)?;
        Some(Self::through(ladder, rung).with_split(0))
    }

    /// Returns the division after the lowest lines of the upper zone are merged into one line of the lower zone.
    pub(crate) fn shrunk(self) -> Self {
        self.with_split(self.split + 1)
    }

    /// Returns the first and last line of the upper division that hold positions of the lower division's line `split`.
    pub(crate) fn merging(&self) -> (u32, u32) {
        let first = self.gap_end();
        let last = if self.split + 1 == self.lower {
            self.upper - 1
        } else {
            divide(lowest(self.split + 1, self.lower) - 1, self.upper)
        };
        (first, last)
    }
}

/// Returns the line of a position when all positions are divided evenly into `lines`.
#[inline]
fn divide(position: u32, lines: u32) -> u32 {
    ((u64::from(position) * u64::from(lines)) >> 32) as u32
}

/// Returns the lowest position whose line is `line`, which must be below `lines`.
#[inline]
fn lowest(line: u32, lines: u32) -> u32 {
    let position = ((u64::from(line)) << 32).div_ceil(u64::from(lines));
    u32::try_from(position).expect("a line below the number of lines has positions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_and_shrinking_are_inverse() {
        const LADDER: &Ladder = &EIGHTHS;
        let mut level = Level::holding(LADDER, 1);
        let mut seen = vec![level];
        for _ in 0..5000 {
            level = level.before_growth(LADDER).unwrap().grown();
            seen.push(level);
        }
        for expected in seen.iter().rev().skip(1) {
            level = level.before_shrinking(LADDER).unwrap().shrunk();
            // A complete division is the same as the next one before its first step.
            assert_eq!(level.lines(), expected.lines());
            for position in (0..=u32::MAX).step_by(1 << 22) {
                assert_eq!(level.home(position), expected.home(position));
            }
        }
    }

    #[test]
    fn only_the_split_line_moves_and_only_up() {
        const LADDER: &Ladder = &SIXTHS;
        let mut level = Level::holding(LADDER, 100);
        for _ in 0..400 {
            let before = level.before_growth(LADDER).unwrap();
            let after = before.grown();
            for position in (0..=u32::MAX).step_by(1 << 18) {
                let (old, new) = (before.home(position), after.home(position));
                assert!(
                    new == old || (old == before.gap_start() - 1 && new >= old && new >= after.gap_end())
                );
            }
            let (first, last) = after.merging();
            assert_eq!(first, after.gap_end());
            assert!(last >= first);
            level = after;
        }
    }

    #[test]
    fn homes_stay_in_the_two_zones() {
        const LADDER: &Ladder = &EIGHTHS;
        let mut level = Level::holding(LADDER, 64);
        for _ in 0..200 {
            for position in (0..=u32::MAX).step_by(1 << 20) {
                let home = level.home(position);
                assert!(
                    home < level.gap_start() || (home >= level.gap_end() && home < level.upper),
                    "{level:?}"
                );
            }
            level = level.before_growth(LADDER).unwrap().grown();
        }
    }
}
