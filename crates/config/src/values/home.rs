//! The texts of the home page.

use core::convert::Infallible;
use core::fmt;
use core::ops::RangeInclusive;

use http::Uri;

use super::{Name, quote};
use crate::raw::Raw;
use crate::value::Value;

const TEXT_BYTES_MAX: usize = 2000;

/// A text of the operator for the readers of a page, possibly an empty one: one line, without quotes and backslashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageText(String);

/// A URL at which clients announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceUrl(Name);

impl PageText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let is_valid = |c: char| !c.is_control() && !matches!(c, '"' | '\\');
        (text.len() <= TEXT_BYTES_MAX && text.chars().all(is_valid)).then(|| Self(text.to_owned()))
    }
}

impl AnnounceUrl {
    /// Returns the URL.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_known = matches!(uri.scheme_str()?, "udp" | "http" | "https" | "ws" | "wss");
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        if is_known && has_host { Name::parse(text).map(Self) } else { None }
    }
}

impl fmt::Display for AnnounceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Value for PageText {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        format!("a text of up to {TEXT_BYTES_MAX} bytes in one line, without double quotes and backslashes")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_every_protocol_are_accepted_and_others_are_not() {
        for text in [
            "udp://tracker.example:6969/announce",
            "https://tracker.example/announce",
            "http://[2001:db8::1]:6969/announce",
            "wss://tracker.example",
        ] {
            assert_eq!(AnnounceUrl::parse(text).unwrap().as_str(), text);
        }
        let long = format!("udp://{}:1/", "a".repeat(300));
        for text in ["", "tracker.example", "/announce", "ftp://a/", "udp:///announce", "javascript:1", &long]
        {
            assert_eq!(AnnounceUrl::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_text_is_one_line_that_toml_can_hold() {
        for text in ["", "Ask abuse@tracker.example; no <scripts>, é"] {
            assert_eq!(PageText::parse(text).unwrap().as_str(), text);
        }
        for text in ["a\nb", "a\"b", "a\\b", &"x".repeat(2001)] {
            assert_eq!(PageText::parse(text), None, "{text}");
        }
    }
}
