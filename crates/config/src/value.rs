//! What a type must be able to do to be the value of a key.

use core::ops::RangeInclusive;

use crate::raw::Raw;

/// A type that a key can have.
pub(crate) trait Value: Sized {
    /// What the range of a key limits: the value itself, the length of a list, or
    /// [`Infallible`](core::convert::Infallible) where a range makes no sense.
    type Bound;

    /// Whether the written value must never be repeated in a message or a log.
    const SECRET: bool = false;

    /// What would be accepted, to complete the sentence "accepts …".
    fn accepts(range: Option<&RangeInclusive<Self::Bound>>) -> String;

    /// Reads a written value. `None` means that it is not one of this type.
    fn parse(raw: &Raw) -> Option<Self>;

    /// Whether the value is within the range of its key.
    fn within(&self, range: &RangeInclusive<Self::Bound>) -> bool;

    /// The value in TOML, such that [`Value::parse`] reads it back.
    fn show(&self) -> String;
}

/// The field of a [`Config`](crate::Config) that belongs to a key, whatever its type.
pub(crate) trait Slot {
    /// What the key accepts, range included.
    fn accepts(&self) -> String;

    /// Sets the field, or changes nothing and returns false where the value is not accepted.
    fn assign(&mut self, raw: &Raw) -> bool;

    /// The present value in TOML.
    fn show(&self) -> String;

    /// Whether the written value must never be repeated.
    fn secret(&self) -> bool;
}

/// A field and the range of its key.
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
