//! The traits that the type of a key implements.

use core::ops::RangeInclusive;

use crate::raw::Raw;

/// A type that a key can have.
pub(crate) trait Value: Sized {
    /// The type of the bounds of a key's range: the value itself, the length of a list, or
    /// [`Infallible`](core::convert::Infallible) if a range makes no sense.
    type Bound;

    /// Whether the written value must never appear in a message or a log.
    const SECRET: bool = false;

    /// Describes the accepted values, to complete the sentence "accepts …".
    fn accepts(range: Option<&RangeInclusive<Self::Bound>>) -> String;

    /// Parses a written value. Returns `None` if it is not a value of this type.
    fn parse(raw: &Raw) -> Option<Self>;

    fn within(&self, range: &RangeInclusive<Self::Bound>) -> bool;

    /// Returns the value in TOML, in a form that [`Value::parse`] accepts.
    fn show(&self) -> String;
}

/// The field of a [`Config`](crate::Config) for a key, independent of the type of the field.
pub(crate) trait Slot {
    /// Describes the values that the key accepts, including the range.
    fn accepts(&self) -> String;

    /// Sets the field and returns true. Returns false and changes nothing if the value is not accepted.
    fn assign(&mut self, raw: &Raw) -> bool;

    /// Returns the current value in TOML.
    fn show(&self) -> String;

    /// Returns whether the written value must never appear in a message or a log.
    fn secret(&self) -> bool;
}

/// A field with the range of its key.
pub(crate) struct Ranged<'c, T: Value> {
    pub(crate) field: &'c mut T,
    pub(crate) range: Option<RangeInclusive<T::Bound>>,
}

impl<T: Value> Slot for Ranged<'_, T> {
    fn accepts(&self) -> String {
        T::accepts(self.range.as_ref())
    }

    fn assign(&mut self, raw: &Raw) -> bool {
        let accepted =
            T::parse(raw).filter(|value| self.range.as_ref().is_none_or(|range| value.within(range)));
        accepted.map(|value| *self.field = value).is_some()
    }

    fn show(&self) -> String {
        self.field.show()
    }

    fn secret(&self) -> bool {
        T::SECRET
    }
}
