//! The reading half: values are found in place, as slices of the text that holds them.

/// The value of `key` in a dictionary, still encoded.
#[must_use]
pub fn entry<'a>(dictionary: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut rest = dictionary.strip_prefix(b"d")?;
    while !rest.starts_with(b"e") {
        let (found, behind) = split(rest)?;
        let (value, next) = split(behind)?;
        if bytes(found)? == key {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// The content of a byte string.
#[must_use]
pub fn bytes(value: &[u8]) -> Option<&[u8]> {
    let colon = value.iter().position(|&byte| byte == b':')?;
    let length: usize = std::str::from_utf8(&value[..colon]).ok()?.parse().ok()?;
    value[colon + 1..].get(..length)
}

/// The number that an integer stands for.
#[must_use]
pub fn integer(value: &[u8]) -> Option<i64> {
    let digits = value.strip_prefix(b"i")?.strip_suffix(b"e")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The first value, and what follows it.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    text.split_at_checked(length(text)?)
}

/// The encoded length of the first value.
fn length(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'i' => Some(text.iter().position(|&byte| byte == b'e')? + 1),
        b'l' | b'd' => {
            let mut length_so_far = 1;
            while *text.get(length_so_far)? != b'e' {
                length_so_far += length(&text[length_so_far..])?;
            }
            Some(length_so_far + 1)
        }
        _ => Some(text.iter().position(|&byte| byte == b':')? + 1 + bytes(text)?.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, entry, integer};

    #[test]
    fn entries_are_found_and_others_passed_over() {
        let text = b"d1:ad1:bi1ee1:cli1e2:zze1:di-7ee";
        assert_eq!(entry(text, b"d").and_then(integer), Some(-7));
        assert_eq!(entry(text, b"c"), Some(&b"li1e2:zze"[..]));
        assert_eq!(entry(text, b"a").and_then(|a| entry(a, b"b")).and_then(integer), Some(1));
        assert_eq!(entry(text, b"b"), None);
    }

    #[test]
    fn what_is_cut_off_is_no_value() {
        assert_eq!(entry(b"d1:a3:xy", b"a"), None);
        assert_eq!(entry(b"d1:a", b"a"), None);
        assert_eq!(bytes(b"3:xyz"), Some(&b"xyz"[..]));
        assert_eq!(bytes(b"4:xyz"), None);
        assert_eq!(integer(b"i12"), None);
    }
}
