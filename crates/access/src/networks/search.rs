//! Counts of sorted numbers.
//!
//! IPv4 addresses are indexed by their upper halves ([`Indexed`]): a search reads an entry of the index and then the
//! few numbers with the same upper half. IPv6 numbers, most of which begin alike, have a static search tree
//! ([`Sorted`]). Each level of it is a list of cache lines. The lowest one holds all numbers, and each further one the
//! first number of every line below. A search reads one line of each level. The upper levels of 100,000 numbers take a
//! few tens of KiB and stay in the caches of a processor, so a search waits for one or two lines of memory.
//!
//! The index of IPv4 takes 256 KiB, and a search costs at most two cache misses. IPv6 addresses are searched by their
//! upper halves first, since networks narrower than a /64 are rare. The construction of the table resolves nested
//! prefixes, at any depth.

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line<T, const N: usize>([T; N]);

pub(super) trait Number: Copy + Ord {
    /// The number that fills up the last line.
    const MAX: Self;
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
    /// The levels from the root to the numbers. Empty without numbers.
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
            // The number lies in or after the last line of the next level whose first number it reaches. The largest
            // number of its type also reaches the filling of a line.
            let line = usize::saturating_sub(count, 1).min(level.len() - 1);
            let Line(numbers) = &level[line];
            count = line * N + numbers.iter().filter(|other| **other <= number).count();
        }
        count.min(self.len)
    }

    /// Returns the numbers in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        let lines = self.levels.last().into_iter().flatten();
        lines.flat_map(|Line(numbers)| *numbers).take(self.len)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.levels.iter().map(|level| level.len() * size_of::<Line<T, N>>()).sum()
    }
}

const UPPER_HALVES: usize = 1 << 16;

/// Sorted numbers of 32 bits with an index, which takes 256 KiB unless it is empty.
#[derive(Debug, Default)]
pub(super) struct Indexed {
    /// How many numbers are below each upper half, and below the end.
    starts: Box<[u32]>,
    numbers: Box<[u32]>,
}

impl Indexed {
    /// Creates the index of numbers in ascending order, each once.
    pub(super) fn new(numbers: Vec<u32>) -> Self {
        if numbers.is_empty() {
            return Self::default();
        }
        let mut starts = vec![0_u32; UPPER_HALVES + 1];
        for number in &numbers {
            starts[upper_half(*number) + 1] += 1;
        }
        let mut below = 0;
        // Zeroes that are not written take no memory: half of the index for loopback alone.
        for start in starts.iter_mut().skip_while(|start| **start == 0) {
            below += *start;
            *start = below;
        }
        Self { starts: starts.into(), numbers: numbers.into() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns how many numbers are at most `number`.
    #[inline]
    pub(super) fn count_to(&self, number: u32) -> usize {
        let upper = upper_half(number);
        let Some(&[start, end]) = self.starts.get(upper..upper + 2) else { return 0 };
        let (start, end) = (start as usize, end as usize);
        start + self.numbers[start..end].partition_point(|other| *other <= number)
    }

    /// Returns the numbers in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.numbers.iter().copied()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.numbers)
    }
}

#[inline]
const fn upper_half(number: u32) -> usize {
    (number >> 16) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_search_in_a_list() {
        for len in (0..70).chain([255, 256, 257, 4095, 4096, 4097, 5000]) {
            let numbers: Vec<u64> = (0..len).map(|number| number * 3 + 1).collect();
            let tree: Sorted<u64, 8> = Sorted::new(numbers.clone());
            for number in (0..3 * len + 4).chain([u64::MAX]) {
                assert_eq!(tree.count_to(number), numbers.partition_point(|other| *other <= number));
            }
        }
    }

    #[test]
    fn the_largest_number_is_a_number_like_others() {
        let tree: Sorted<u64, 8> = Sorted::new(vec![0, u64::MAX]);
        assert_eq!([0, 1, u64::MAX].map(|number| tree.count_to(number)), [1, 1, 2]);
    }

    #[test]
    fn counts_by_index_are_those_of_a_search_in_a_list() {
        let mut rng = fastrand::Rng::with_seed(4);
        for len in [0, 1, 2, 300, 5000] {
            let mut numbers: Vec<u32> = (0..len).map(|_| rng.u32(..) & 0x8003_ffff).collect();
            numbers.extend([0, u32::MAX].into_iter().take(len));
            numbers.sort_unstable();
            numbers.dedup();
            let index = Indexed::new(numbers.clone());
            let near =
                numbers.iter().flat_map(|number| [number.wrapping_sub(1), *number, number.wrapping_add(1)]);
            for number in near.chain([0, 0xffff, 0x1_0000, u32::MAX]) {
                assert_eq!(index.count_to(number), numbers.partition_point(|other| *other <= number));
            }
        }
    }
}
