//! Bencoding (BEP 3): an encoder for torrent files, and a decoder that finds values in place, as slices of the input.

use std::collections::BTreeMap;

/// A bencoded value. The map keeps its keys sorted as raw bytes, as BEP 3 requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `i…e`
    Integer(u64),
    /// `length:bytes`
    Bytes(Vec<u8>),
    /// `l…e`
    List(Vec<Value>),
    /// `d…e`
    Dictionary(BTreeMap<&'static str, Value>),
}

impl Value {
    /// Creates a byte string from text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }

    /// Creates a dictionary from entries in any order.
    #[must_use]
    pub fn dictionary(entries: impl IntoIterator<Item = (&'static str, Self)>) -> Self {
        Self::Dictionary(entries.into_iter().collect())
    }

    /// Encodes the value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Integer(number) => out.extend_from_slice(format!("i{number}e").as_bytes()),
            Self::Bytes(bytes) => append_bytes(bytes, out),
            Self::List(items) => {
                out.push(b'l');
                items.iter().for_each(|item| item.append_to(out));
                out.push(b'e');
            }
            Self::Dictionary(entries) => {
                out.push(b'd');
                for (key, value) in entries {
                    append_bytes(key.as_bytes(), out);
                    value.append_to(out);
                }
                out.push(b'e');
            }
        }
    }
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{}:", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
}

/// Returns the value of `key` in a dictionary, still encoded.
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

/// Returns the content of a byte string.
#[must_use]
pub fn bytes(value: &[u8]) -> Option<&[u8]> {
    let colon = value.iter().position(|&byte| byte == b':')?;
    let length: usize = std::str::from_utf8(&value[..colon]).ok()?.parse().ok()?;
    value[colon + 1..].get(..length)
}

/// Returns the number that an integer encodes.
#[must_use]
pub fn integer(value: &[u8]) -> Option<i64> {
    let digits = value.strip_prefix(b"i")?.strip_suffix(b"e")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Splits the first value off.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    text.split_at_checked(length(text)?)
}

/// Returns the encoded length of the first value.
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
    use super::{Value, bytes, entry, integer};

    #[test]
    fn keys_are_sorted_and_lengths_count_bytes() {
        let value = Value::dictionary([
            ("spam", Value::List(vec![Value::text("é"), Value::Integer(0)])),
            ("cow", Value::text("")),
        ]);
        assert_eq!(value.encode(), "d3:cow0:4:spaml2:éi0eee".as_bytes());
    }

    #[test]
    fn entries_are_found_and_others_skipped() {
        let text = b"d1:ad1:bi1ee1:cli1e2:zze1:di-7ee";
        assert_eq!(entry(text, b"d").and_then(integer), Some(-7));
        assert_eq!(entry(text, b"c"), Some(&b"li1e2:zze"[..]));
        assert_eq!(entry(text, b"a").and_then(|a| entry(a, b"b")).and_then(integer), Some(1));
        assert_eq!(entry(text, b"b"), None);
    }

    #[test]
    fn truncated_values_are_refused() {
        assert_eq!(entry(b"d1:a3:xy", b"a"), None);
        assert_eq!(entry(b"d1:a", b"a"), None);
        assert_eq!(bytes(b"3:xyz"), Some(&b"xyz"[..]));
        assert_eq!(bytes(b"4:xyz"), None);
        assert_eq!(integer(b"i12"), None);
    }
}
