//! Decimal numbers, written without the formatting machinery because each reply holds half a dozen.

/// The number of digits of the largest number.
const DIGITS_MAX: usize = 20;

/// Appends the decimal digits of `number`.
pub(crate) fn push(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        digits[start] = digit(number);
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&digits[start..]);
        }
    }
}

pub(super) fn digit(number: u64) -> u8 {
    b'0' + u8::try_from(number % 10).expect("a remainder below 10")
}

/// Parses digits. Returns `None` for an empty value or any other byte. A number that is too large becomes the largest
/// one.
pub(super) fn parse(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, &byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number.saturating_mul(10).saturating_add(digit.into()))
    })
}

/// Parses digits with an optional minus sign. A number out of range becomes the nearest bound.
pub(super) fn parse_signed(value: &[u8]) -> Option<i64> {
    let (negative, digits) = match value {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let magnitude = i64::try_from(parse(digits)?).unwrap_or(i64::MAX);
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_formatter_writes_them() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = b"x".to_vec();
            push(number, &mut out);
            assert_eq!(out, format!("x{number}").as_bytes());
            assert_eq!(parse(&out[1..]), Some(number));
        }
    }

    #[test]
    fn only_digits_are_a_number() {
        for junk in ["", " 1", "1 ", "+1", "-1", "0x1", "1.0", "1e3", "\u{661}", "/", ":"] {
            assert_eq!(parse(junk.as_bytes()), None, "{junk}");
        }
        for junk in ["", "-", "--1", "+1", "- 1", "1-"] {
            assert_eq!(parse_signed(junk.as_bytes()), None, "{junk}");
        }
    }

    #[test]
    fn what_is_out_of_range_becomes_the_end_of_the_range() {
        assert_eq!(parse(b"18446744073709551616"), Some(u64::MAX));
        assert_eq!(parse(b"0000000000000000000000000000042"), Some(42));
        assert_eq!(parse_signed(b"-7"), Some(-7));
        assert_eq!(parse_signed(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_signed(b"9223372036854775808"), Some(i64::MAX));
        assert_eq!(parse_signed(b"-99999999999999999999999"), Some(-i64::MAX));
    }
}
