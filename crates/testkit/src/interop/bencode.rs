//! Bencoding (BEP 3) of torrent files.

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

#[cfg(test)]
mod tests {
    use super::Value;

    #[test]
    fn keys_are_sorted_and_lengths_count_bytes() {
        let value = Value::dictionary([
            ("spam", Value::List(vec![Value::text("é"), Value::Integer(0)])),
            ("cow", Value::text("")),
        ]);
        assert_eq!(value.encode(), "d3:cow0:4:spaml2:éi0eee".as_bytes());
    }
}
