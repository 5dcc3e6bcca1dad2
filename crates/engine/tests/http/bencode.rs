//! A strict bencoding reader, independent of the tracker's own codec.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Integer(i64),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Dictionary(BTreeMap<Vec<u8>, Value>),
}

impl Value {
    /// Reads one value that spans all of `bytes`.
    #[track_caller]
    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self::read_any_order(bytes, true)
    }

    /// Reads a value like `read`. Keys may be unsorted unless `sorted` is set, but must be unique.
    #[track_caller]
    pub(crate) fn read_any_order(bytes: &[u8], sorted: bool) -> Self {
        let mut reader = Reader { rest: bytes, sorted };
        let value = reader.value();
        assert_eq!(reader.rest, b"", "nothing behind the value");
        value
    }

    #[track_caller]
    pub(crate) fn dictionary(&self) -> &BTreeMap<Vec<u8>, Value> {
        let Self::Dictionary(entries) = self else { panic!("{self:?} is no dictionary") };
        entries
    }

    pub(crate) fn find(&self, key: &str) -> Option<&Value> {
        self.dictionary().get(key.as_bytes())
    }

    #[track_caller]
    pub(crate) fn integer(&self, key: &str) -> i64 {
        let Some(Self::Integer(number)) = self.find(key) else { panic!("no number {key} in {self:?}") };
        *number
    }

    #[track_caller]
    pub(crate) fn bytes(&self, key: &str) -> &[u8] {
        let Some(Self::Bytes(bytes)) = self.find(key) else { panic!("no string {key} in {self:?}") };
        bytes
    }

    #[track_caller]
    pub(crate) fn text(&self, key: &str) -> &str {
        std::str::from_utf8(self.bytes(key)).unwrap()
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    sorted: bool,
}

impl Reader<'_> {
    fn value(&mut self) -> Value {
        match self.rest[0] {
            b'i' => {
                let digits = self.until(b'e');
                let number: i64 = digits[1..].parse().unwrap();
                assert_eq!(number.to_string(), digits[1..], "the shortest form");
                Value::Integer(number)
            }
            b'l' => {
                self.rest = &self.rest[1..];
                let mut values = Vec::new();
                while !self.ends() {
                    values.push(self.value());
                }
                Value::List(values)
            }
            b'd' => {
                self.rest = &self.rest[1..];
                let mut entries = BTreeMap::new();
                while !self.ends() {
                    let key = self.string();
                    let is_last = entries.keys().next_back().is_none_or(|last| *last < key);
                    assert!(is_last || !self.sorted, "keys are sorted");
                    let value = self.value();
                    assert_eq!(entries.insert(key, value), None, "no key twice");
                }
                Value::Dictionary(entries)
            }
            _ => Value::Bytes(self.string()),
        }
    }

    fn ends(&mut self) -> bool {
        let ends = self.rest[0] == b'e';
        self.rest = &self.rest[usize::from(ends)..];
        ends
    }

    fn string(&mut self) -> Vec<u8> {
        let length: usize = self.until(b':').parse().unwrap();
        let (string, rest) = self.rest.split_at(length);
        self.rest = rest;
        string.to_vec()
    }

    /// Returns the bytes before `end`, and skips `end`.
    fn until(&mut self, end: u8) -> String {
        let length = self.rest.iter().position(|&byte| byte == end).unwrap();
        let text = String::from_utf8(self.rest[..length].to_vec()).unwrap();
        self.rest = &self.rest[length + 1..];
        text
    }
}
