//! The comparison of several numbers by one instruction of the processor.
#![allow(
    unsafe_code,
    reason = "the compiler does not derive from the target that the processor has the instruction"
)]

use zerocopy::native_endian::U16;

/// Number of numbers that are compared at once.
pub(crate) const GROUP: usize = 8;

/// Returns a bit for each number that equals `wanted`. A loop takes three times as many instructions.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn equal_bits(numbers: &[U16; GROUP], wanted: U16) -> u32 {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { equal_bits_by_sse2(numbers, wanted) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn equal_bits_by_sse2(numbers: &[U16; GROUP], wanted: U16) -> u32 {
    use core::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi64x, _mm_set1_epi16,
        _mm_setzero_si128,
    };
    let [low, high]: [i64; 2] = zerocopy::transmute!(*numbers);
    let equal = _mm_cmpeq_epi16(_mm_set_epi64x(high, low), _mm_set1_epi16(wanted.get().cast_signed()));
    // Each number becomes one byte, of which the mask has the highest bit.
    _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn equal_bits(numbers: &[U16; GROUP], wanted: U16) -> u32 {
    numbers.iter().enumerate().fold(0, |bits, (place, number)| bits | u32::from(*number == wanted) << place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_equal_number_has_its_bit() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let numbers = [(); GROUP].map(|()| [0, 1, 0x7fff, 0x8000, 0xff00, 0xffff][rng.usize(..6)]);
            let wanted = numbers[rng.usize(..GROUP)];
            let expected = (0..GROUP).filter(|place| numbers[*place] == wanted).map(|place| 1 << place).sum();
            assert_eq!(
                equal_bits(&numbers.map(U16::new), U16::new(wanted)),
                expected,
                "{wanted} in {numbers:?}"
            );
        }
    }
}
