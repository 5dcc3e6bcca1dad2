//! A strict decoder of bencoding (BEP 3, "bencoding") that preserves the order of keys on the wire.

/// The maximum nesting of dictionaries and lists; a reply has three levels.
const DEPTH_MAX: u32 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Integer(i64),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Dictionary(Dictionary),
}

/// Keys and values in their order on the wire, which the BEP requires to be sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dictionary(pub(crate) Vec<(Vec<u8>, Value)>);

impl Dictionary {
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(found, _)| found == key.as_bytes()).map(|(_, value)| value)
    }

    pub(crate) fn integer(&self, key: &str) -> Option<i64> {
        match self.value(key)? {
            Value::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, key: &str) -> Option<&[u8]> {
        match self.value(key)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the first key that is not greater than its predecessor, here or in a nested dictionary.
    pub(crate) fn misplaced_key(&self) -> Option<&[u8]> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let misplaced = pairs.filter(|((key, _), (next, _))| key >= next).map(|(_, (next, _))| &next[..]);
        misplaced.chain(self.0.iter().filter_map(|(_, value)| value.misplaced_key())).next()
    }
}

impl Value {
    pub(crate) const fn dictionary(&self) -> Option<&Dictionary> {
        match self {
            Self::Dictionary(dictionary) => Some(dictionary),
            _ => None,
        }
    }

    fn misplaced_key(&self) -> Option<&[u8]> {
        match self {
            Self::Integer(_) | Self::Bytes(_) => None,
            Self::List(values) => values.iter().find_map(Self::misplaced_key),
            Self::Dictionary(dictionary) => dictionary.misplaced_key(),
        }
    }
}

/// Decodes a dictionary. Returns it with the number of bytes after it, or a description of the first violation.
pub(crate) fn read(bytes: &[u8]) -> Result<(Dictionary, usize), String> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.value(0)? {
        Value::Dictionary(dictionary) => Ok((dictionary, bytes.len() - reader.at)),
        _ => Err("a value that is not a dictionary".to_owned()),
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: u32) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err("too many nested values".to_owned());
        }
        match self.peek()? {
            b'i' => {
                self.at += 1;
                Ok(Value::Integer(self.number(b'e')?))
            }
            b'0'..=b'9' => Ok(Value::Bytes(self.string()?)),
            b'l' => {
                self.at += 1;
                let mut values = Vec::new();
                while !self.is_end()? {
                    values.push(self.value(depth + 1)?);
                }
                Ok(Value::List(values))
            }
            b'd' => {
                self.at += 1;
                let mut pairs = Vec::new();
                while !self.is_end()? {
                    pairs.push((self.string()?, self.value(depth + 1)?));
                }
                Ok(Value::Dictionary(Dictionary(pairs)))
            }
            other => Err(format!("the byte {other:#04x} where a value should begin, at {}", self.at)),
        }
    }

    fn peek(&self) -> Result<u8, String> {
        self.bytes
            .get(self.at)
            .copied()
            .ok_or_else(|| "the end of the input in the middle of a value".to_owned())
    }

    fn is_end(&mut self) -> Result<bool, String> {
        let is_end = self.peek()? == b'e';
        self.at += usize::from(is_end);
        Ok(is_end)
    }

    /// Reads a number up to `end`, without leading zeros and without -0 (BEP 3, "bencoding").
    fn number(&mut self, end: u8) -> Result<i64, String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == end).ok_or("a number without an end")?;
        let text = String::from_utf8_lossy(&rest[..length]);
        let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
        self.at += length + 1;
        number.ok_or_else(|| format!("the number {text:?}"))
    }

    fn string(&mut self) -> Result<Vec<u8>, String> {
        let length = self.number(b':')?;
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| format!("a string of {length} bytes that is cut off"))?;
        self.at += bytes.len();
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::{Dictionary, Value, read};

    #[test]
    fn values_are_read() {
        let (read, rest) = read(b"d1:ai-5e1:bl0:3:\x00e:e1:cd1:xi0eee\r\n").unwrap();
        assert_eq!(rest, 2);
        let inner = Dictionary(vec![(b"x".to_vec(), Value::Integer(0))]);
        assert_eq!(read.integer("a"), Some(-5));
        let list = Value::List(vec![Value::Bytes(vec![]), Value::Bytes(b"\x00e:".to_vec())]);
        assert_eq!(read.value("b"), Some(&list));
        assert_eq!(read.value("c"), Some(&Value::Dictionary(inner)));
        assert_eq!(read.misplaced_key(), None);
    }

    #[test]
    fn invalid_bencoding_is_rejected() {
        for wrong in [
            "",
            "d",
            "i5e",
            "d1:a",
            "d1:ae",
            "di5e1:ae",
            "d1:ai05ee",
            "d1:ai-0ee",
            "d1:aiee",
            "d1:a5:xe",
            "d1:a-1:e",
            "d1:a99999999999999999999:e",
            "d1:aze",
            "d01:ai5ee",
        ] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(read(&b"d1:a".repeat(100_000)).is_err());
        assert!(read(&[&b"d1:a"[..], &b"l".repeat(100_000)].concat()).is_err());
    }

    #[test]
    fn keys_out_of_order_are_found() {
        for (wrong, key) in [("d1:bi1e1:ai1ee", "a"), ("d1:ai1e1:ai1ee", "a"), ("d1:ald1:di1e1:ci1eeee", "c")]
        {
            assert_eq!(read(wrong.as_bytes()).unwrap().0.misplaced_key(), Some(key.as_bytes()), "{wrong}");
        }
    }
}
