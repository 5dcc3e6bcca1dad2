//! A zero-copy reader of bencoded values (BEP 3, "bencoding").
//!
//! The reader checks a whole value before it returns any part of it: lengths, digits, nesting, and that keys are
//! strings. It accepts keys in any order; callers can check the order separately.

/// The maximum nesting of lists and dictionaries. A scrape reply needs three levels.
pub const DEPTH_MAX: usize = 16;

/// A checked value, which borrows from the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'b> {
    /// A number.
    Integer(i64),
    /// A byte string.
    Bytes(&'b [u8]),
    /// A sequence of values.
    List(List<'b>),
    /// Values by key.
    Dictionary(Dictionary<'b>),
}

/// The values of a list, in encoded and checked form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'b>(&'b [u8]);

/// The entries of a dictionary, in encoded and checked form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dictionary<'b>(&'b [u8]);

/// The reason why bytes are not a bencoded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BencodeError {
    /// The bytes end within a value.
    #[error("bencoded value ends early")]
    Truncated,
    /// An unexpected byte.
    #[error("bencoded value is malformed at byte {at}")]
    Malformed {
        /// The offset of the byte.
        at: usize,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("bencoded value is nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// More bytes follow the value.
    #[error("{bytes} bytes follow the bencoded value")]
    Trailing {
        /// The number of these bytes.
        bytes: usize,
    },
}

/// Decodes one value that takes all of `bytes`. Fails if the bytes are not a bencoded value.
pub fn decode(bytes: &[u8]) -> Result<Value<'_>, BencodeError> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader.value(DEPTH_MAX)?;
    match bytes.len() - reader.at {
        0 => Ok(value),
        bytes => Err(BencodeError::Trailing { bytes }),
    }
}

impl<'b> Value<'b> {
    /// Returns the value as a number, if it is one.
    pub const fn integer(self) -> Option<i64> {
        if let Self::Integer(integer) = self { Some(integer) } else { None }
    }

    /// Returns the value as a string, if it is one.
    pub const fn bytes(self) -> Option<&'b [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// Returns the value as a list, if it is one.
    pub const fn list(self) -> Option<List<'b>> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// Returns the value as a dictionary, if it is one.
    pub const fn dictionary(self) -> Option<Dictionary<'b>> {
        if let Self::Dictionary(dictionary) = self { Some(dictionary) } else { None }
    }
}

impl<'b> List<'b> {
    /// Returns the values in order.
    pub fn iter(self) -> impl Iterator<Item = Value<'b>> {
        let mut reader = Reader { bytes: self.0, at: 0 };
        core::iter::from_fn(move || reader.value(DEPTH_MAX).ok())
    }
}

impl<'b> Dictionary<'b> {
    /// Returns the entries in order.
    pub fn iter(self) -> impl Iterator<Item = (&'b [u8], Value<'b>)> {
        let mut reader = Reader { bytes: self.0, at: 0 };
        core::iter::from_fn(move || Some((reader.string().ok()?, reader.value(DEPTH_MAX).ok()?)))
    }

    /// Returns the value of a key, or its first value if the key occurs several times.
    pub fn get(self, key: &[u8]) -> Option<Value<'b>> {
        self.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    /// Returns whether the keys are unique and in ascending order, as BEP 3 requires.
    pub fn is_sorted(self) -> bool {
        self.iter().map(|(key, _)| key).is_sorted_by(|key, next| key < next)
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn peek(&self) -> Result<u8, BencodeError> {
        self.bytes.get(self.at).copied().ok_or(BencodeError::Truncated)
    }

    const fn malformed<T>(&self) -> Result<T, BencodeError> {
        Err(BencodeError::Malformed { at: self.at })
    }

    fn value(&mut self, depth: usize) -> Result<Value<'b>, BencodeError> {
        match self.peek()? {
            b'i' => self.integer().map(Value::Integer),
            b'l' => {
                self.inside(depth, |reader, depth| reader.value(depth).map(drop)).map(List).map(Value::List)
            }
            b'd' => self
                .inside(depth, |reader, depth| {
                    reader.string()?;
                    reader.value(depth).map(drop)
                })
                .map(Dictionary)
                .map(Value::Dictionary),
            b'0'..=b'9' => self.string().map(Value::Bytes),
            _ => self.malformed(),
        }
    }

    /// Returns the bytes between the first byte and the closing `e`, after `item` has checked each item.
    fn inside(
        &mut self,
        depth: usize,
        item: impl Fn(&mut Self, usize) -> Result<(), BencodeError>,
    ) -> Result<&'b [u8], BencodeError> {
        let depth = depth.checked_sub(1).ok_or(BencodeError::TooDeep)?;
        self.at += 1;
        let start = self.at;
        while self.peek()? != b'e' {
            item(self, depth)?;
        }
        self.at += 1;
        Ok(&self.bytes[start..self.at - 1])
    }

    fn integer(&mut self) -> Result<i64, BencodeError> {
        self.at += 1;
        let negative = self.peek()? == b'-';
        self.at += usize::from(negative);
        let start = self.at;
        let magnitude = self.digits()?;
        let signed =
            if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
        // BEP 3: "i-0e is invalid."
        let Some(integer) = signed.filter(|_| !(negative && magnitude == 0)) else {
            return Err(BencodeError::Malformed { at: start });
        };
        if self.peek()? != b'e' {
            return self.malformed();
        }
        self.at += 1;
        Ok(integer)
    }

    fn string(&mut self) -> Result<&'b [u8], BencodeError> {
        let length = self.digits()?;
        if self.peek()? != b':' {
            return self.malformed();
        }
        let start = self.at + 1;
        let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
        let string = end.and_then(|end| self.bytes.get(start..end)).ok_or(BencodeError::Truncated)?;
        self.at = start + string.len();
        Ok(string)
    }

    /// Reads at least one digit. A zero before other digits is an error (BEP 3: "All encodings with a leading zero […]
    /// are invalid").
    fn digits(&mut self) -> Result<u64, BencodeError> {
        let start = self.at;
        let mut number: u64 = 0;
        while let digit @ b'0'..=b'9' = self.peek()? {
            let longer = number.checked_mul(10).and_then(|number| number.checked_add((digit - b'0').into()));
            let leads_with_zero = self.at > start && number == 0;
            let Some(longer) = longer.filter(|_| !leads_with_zero) else { return self.malformed() };
            number = longer;
            self.at += 1;
        }
        if self.at == start { self.malformed() } else { Ok(number) }
    }
}
