//! How many lines a table has, and which line a position calls home.
//!
//! A table grows by an eighth at a time, one line at a time: in the middle of it the positions whose line was below
//! `split` keep the old division into `lower` lines, the others already have the new one into `upper` lines. Both
//! divisions keep the order of positions, so growth walks from the top line down, shrinking from the bottom up, and
//! between the two zones there is a gap of lines that nothing calls home.

/// The sizes a table goes through: from 1 line to more than 2^32 / 9, each an eighth larger than the one before.
const SIZES: [u32; 160] = {
    let mut sizes = [1; 160];
    let mut index = 1;
    while index < sizes.len() {
        let step = sizes[index - 1] / 8;
        sizes[index] = sizes[index - 1] + if step == 0 { 1 } else { step };
        index += 1;
    }
    sizes
};

const _: () = assert!(SIZES[SIZES.len() - 1] > 1 << 26, "2^26 lines of nine hold 600 million peers");

/// A table's present division of positions into lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    index: u8,
    lower: u32,
    upper: u32,
    split: u32,
}

impl Level {
    /// The smallest division.
    pub(crate) const SMALLEST: Self = Self { index: 0, lower: SIZES[0], upper: SIZES[1], split: SIZES[0] };

    /// The smallest division with `lines` lines.
    pub(crate) fn holding(lines: u32) -> Self {
        let index =
            SIZES.iter().position(|&size| size >= lines).unwrap_or(SIZES.len() - 2).min(SIZES.len() - 2);
        Self {
            index: u8::try_from(index).expect("there are fewer than 256 sizes"),
            lower: SIZES[index],
            upper: SIZES[index + 1],
            split: SIZES[index],
        }
    }

    /// The line that a position calls home.
    #[inline]
    pub(crate) fn home(&self, position: u32) -> u32 {
        let line = divide(position, self.lower);
        if line < self.split { line } else { divide(position, self.upper) }
    }

    /// Lines that are home to some position, without those of the gap.
    pub(crate) fn lines(&self) -> u32 {
        self.split + (self.upper - self.gap_end())
    }

    /// First line of the gap.
    #[inline]
    pub(crate) fn gap_start(&self) -> u32 {
        self.split
    }

    /// First line behind the gap: the upper division's home of the lowest position at or above `split`.
    #[inline]
    pub(crate) fn gap_end(&self) -> u32 {
        if self.split == self.lower { self.upper } else { divide(lowest(self.split, self.lower), self.upper) }
    }

    /// Ready to split its top line: makes the larger division the next one where the present one is through.
    /// Nothing if there is no larger one.
    pub(crate) fn before_growth(self) -> Option<Self> {
        if self.split > 0 {
            return Some(self);
        }
        let index = usize::from(self.index) + 1;
        let upper = *SIZES.get(index + 1)?;
        Some(Self { index: self.index + 1, lower: SIZES[index], upper, split: SIZES[index] })
    }

    /// After the top line of the lower zone is split.
    pub(crate) fn grown(self) -> Self {
        Self { split: self.split - 1, ..self }
    }

    /// Ready to merge the lowest lines of the upper zone; nothing if it is the smallest division already.
    pub(crate) fn before_shrinking(self) -> Option<Self> {
        if self.split < self.lower {
            return Some(self);
        }
        let index = usize::from(self.index).checked_sub(1)?;
        Some(Self { index: self.index - 1, lower: SIZES[index], upper: self.lower, split: 0 })
    }

    /// After the lowest lines of the upper zone are merged into one of the lower zone.
    pub(crate) fn shrunk(self) -> Self {
        Self { split: self.split + 1, ..self }
    }

    /// First and last line of the upper division that hold positions of the lower division's line `split`.
    pub(crate) fn merging(&self) -> (u32, u32) {
        let first = divide(lowest(self.split, self.lower), self.upper);
        let last = if self.split + 1 == self.lower {
            self.upper - 1
        } else {
            divide(lowest(self.split + 1, self.lower) - 1, self.upper)
        };
        (first, last)
    }
}

/// The line of a position when all positions are divided evenly into `lines`.
#[inline]
fn divide(position: u32, lines: u32) -> u32 {
    ((u64::from(position) * u64::from(lines)) >> 32) as u32
}

/// The lowest position whose line is `line`, which is below `lines`.
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
        let mut level = Level::SMALLEST;
        let mut seen = vec![level];
        for _ in 0..5000 {
            level = level.before_growth().unwrap().grown();
            seen.push(level);
        }
        for expected in seen.iter().rev().skip(1) {
            level = level.before_shrinking().unwrap().shrunk();
            // A division that is through is the same as the next one before it began.
            assert_eq!(level.lines(), expected.lines());
            for position in (0..=u32::MAX).step_by(1 << 22) {
                assert_eq!(level.home(position), expected.home(position));
            }
        }
    }

    #[test]
    fn only_the_split_line_moves_and_only_up() {
        let mut level = Level::holding(100);
        for _ in 0..400 {
            let before = level.before_growth().unwrap();
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
        let mut level = Level::holding(64);
        for _ in 0..200 {
            for position in (0..=u32::MAX).step_by(1 << 20) {
                let home = level.home(position);
                assert!(
                    home < level.gap_start() || (home >= level.gap_end() && home < level.upper),
                    "{level:?}"
                );
            }
            level = level.before_growth().unwrap().grown();
        }
    }
}
