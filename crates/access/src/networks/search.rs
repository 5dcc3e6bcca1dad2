//! Counts of sorted numbers, by a static search tree.
//!
//! Each level of the tree is a list of cache lines. The lowest one holds all numbers, and each further one the first
//! number of every line below. A search reads one line of each level. The upper levels of 100,000 numbers take a few
//! tens of KiB and stay in the caches of a processor, so a search waits for one or two lines of memory.

/// A cache line of numbers.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line<T, const N: usize>([T; N]);

/// A number that a line can hold.
pub(super) trait Number: Copy + Ord {
    /// The number that fills up the last line.
    const MAX: Self;
}

impl Number for u32 {
    const MAX: Self = Self::MAX;
}

impl Number for u64 {
    const MAX: Self = Self::MAX;
}

impl Number for u128 {
    const MAX: Self = Self::MAX;
}

/// Sorted numbers, `N` in each line.
#[derive(Debug)]
pub(super) struct Sorted<T, const N: usize> {
    /// The levels from the root to the numbers. There are none without numbers.
    levels: Vec<Vec<Line<T, N>>>,
    len: usize,
}

impl<T, const N: usize> Default for Sorted<T, N> {
    fn default() -> Self {
        Self { levels: Vec::new(), len: 0 }
    }
}

impl<T: Number, const N: usize> Sorted<T, N> {
    /// Creates the tree of numbers in ascending order, each once.
    pub(super) fn new(numbers: Vec<T>) -> Self {
        const { assert!(size_of::<Line<T, N>>() == 64, "a node is a cache line") };
        let len = numbers.len();
        let mut levels = Vec::new();
        let mut level = numbers;
        while !level.is_empty() {
            let lines: Vec<Line<T, N>> = level
                .chunks(N)
                .map(|chunk| Line(core::array::from_fn(|index| chunk.get(index).copied().unwrap_or(T::MAX))))
                .collect();
            level = if lines.len() > 1 { lines.iter().map(|line| line.0[0]).collect() } else { Vec::new() };
            levels.push(lines);
        }
        levels.reverse();
        Self { levels, len }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many numbers are at most `number`.
    #[inline]
    pub(super) fn count_to(&self, number: T) -> usize {
        let mut count = 0;
        for level in &self.levels {
            // The number lies in or behind the last line of the next level whose first number it reaches.
            // The largest number of its type reaches the filling of a line as well.
            let line = usize::saturating_sub(count, 1).min(level.len() - 1);
            let Line(numbers) = &level[line];
            count = line * N + numbers.iter().filter(|other| **other <= number).count();
        }
        count.min(self.len)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.levels.iter().map(|level| level.len() * size_of::<Line<T, N>>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_search_in_a_list() {
        for len in (0..70).chain([255, 256, 257, 4095, 4096, 4097, 5000]) {
            let numbers: Vec<u32> = (0..len).map(|number| number * 3 + 1).collect();
            let tree: Sorted<u32, 16> = Sorted::new(numbers.clone());
            for number in (0..3 * len + 4).chain([u32::MAX]) {
                assert_eq!(tree.count_to(number), numbers.partition_point(|other| *other <= number));
            }
        }
    }

    #[test]
    fn the_largest_number_is_a_number_like_others() {
        let tree: Sorted<u64, 8> = Sorted::new(vec![0, u64::MAX]);
        assert_eq!([0, 1, u64::MAX].map(|number| tree.count_to(number)), [1, 1, 2]);
    }
}
