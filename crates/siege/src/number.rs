//! Conversions between numbers that no cast may hide.

/// Returns a count as a float; counts of a siege stay far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of a siege stay far below 2^53")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Returns `part / whole`, and 0 where there is no whole.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { as_f64(part) / as_f64(whole) }
}

/// Returns a length as a count.
pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Returns the lower 16 bits.
pub(crate) fn low16(number: u32) -> u16 {
    (number & 0xffff) as u16
}

/// Returns the lower 8 bits.
pub(crate) fn low8(number: u32) -> u8 {
    (number & 0xff) as u8
}
