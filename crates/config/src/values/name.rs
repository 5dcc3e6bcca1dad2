//! Names that other programs have chosen, such as the name of an issuer of tokens.

use core::convert::Infallible;
use core::fmt;
use core::ops::RangeInclusive;
use std::borrow::Cow;

use super::{ListSource, quote};
use crate::raw::Raw;
use crate::value::Value;

const NAME_BYTES_MAX: usize = 255;

/// A name of printable ASCII characters, without spaces, quotes and backslashes. It may be a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Cow<'static, str>);

impl Name {
    /// Creates a name from the program's text.
    pub(crate) const fn from_static(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Creates a name, if the text is valid.
    pub fn parse(text: &str) -> Option<Self> {
        let is_valid = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        ((1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_valid))
            .then(|| Self(Cow::Owned(text.to_owned())))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value for Name {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        format!("1 to {NAME_BYTES_MAX} printable ASCII characters without spaces, quotes and backslashes")
    }

    fn parse(raw: &Raw) -> Option<Self> {
        raw.text().and_then(Self::parse)
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(&self.0)
    }
}

/// A name, or `""` for none.
impl Value for Option<Name> {
    type Bound = Infallible;

    fn accepts(range: Option<&RangeInclusive<Infallible>>) -> String {
        format!("{}, or \"\" for none", Name::accepts(range))
    }

    fn parse(raw: &Raw) -> Option<Self> {
        if raw.text()?.is_empty() { Some(None) } else { <Name as Value>::parse(raw).map(Some) }
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(self.as_ref().map_or("", Name::as_str))
    }
}

/// A source, or `""` for none.
impl Value for Option<ListSource> {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        "a file such as \"/etc/shoal/jwks.json\", a URL, or \"\" for none".to_owned()
    }

    fn parse(raw: &Raw) -> Option<Self> {
        let text = raw.text()?;
        if text.is_empty() { Some(None) } else { ListSource::parse(text).map(Some) }
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(&self.as_ref().map_or_else(String::new, ListSource::written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_they_are_written() {
        for text in ["jwt", "https://site.example/", "a@b"] {
            assert_eq!(Name::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "a b", "a\"b", "a\\b", "n\u{e4}me", &"x".repeat(256)] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }
}
