//! Where a list comes from.

use core::convert::Infallible;
use core::fmt;
use core::ops::RangeInclusive;
use std::path::PathBuf;

use http::Uri;

use super::quote;
use crate::raw::Raw;
use crate::value::Value;

/// A source of a list. Its displayed text hides the secrets of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListSource {
    /// A file, or a directory where the key accepts one.
    Path(PathBuf),
    /// The content of a URL.
    Url(SourceUrl),
}

/// A URL of http or https. It may contain secrets: a user with a password, and a query. Neither its displayed text nor
/// the output of `Debug` shows these.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceUrl(Uri);

impl ListSource {
    /// Parses a source. Refuses a URL with another scheme: as the name of a file, which may not exist, it would hide a
    /// mistake.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.starts_with("http://") || text.starts_with("https://") {
            return SourceUrl::parse(text).map(Self::Url);
        }
        (!text.is_empty() && !text.contains("://")).then(|| Self::Path(PathBuf::from(text)))
    }

    /// Returns the source as written in a configuration, with its secrets.
    pub(super) fn written(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Url(url) => url.0.to_string(),
        }
    }
}

impl fmt::Display for ListSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Url(url) => url.fmt(f),
        }
    }
}

impl SourceUrl {
    /// Creates a URL from the program's text.
    pub(crate) fn from_static(text: &'static str) -> Self {
        Self(Uri::from_static(text))
    }

    fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        let has_valid_port =
            uri.authority()?.port().is_none_or(|_| uri.port_u16().is_some_and(|port| port != 0));
        (has_host && has_valid_port).then_some(Self(uri))
    }

    /// Returns the URL with its secrets.
    pub const fn uri(&self) -> &Uri {
        &self.0
    }
}

/// A URL of a service that has to show who it is.
impl Value for SourceUrl {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        "a URL that begins with \"https://\"".to_owned()
    }

    fn parse(raw: &Raw) -> Option<Self> {
        let text = raw.text()?;
        if text.starts_with("https://") { Self::parse(text) } else { None }
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(&self.0.to_string())
    }
}

impl fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) = (self.0.scheme_str().unwrap_or_default(), self.0.host().unwrap_or_default());
        write!(f, "{scheme}://{host}")?;
        if let Some(port) = self.0.port_u16() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.0.path())?;
        if self.0.query().is_some() { f.write_str("?…") } else { Ok(()) }
    }
}

impl fmt::Debug for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_back_as_they_are_written() {
        for text in ["/etc/shoal/deny", "deny.txt", "a b", "https://user:secret@[::1]:8443/deny?key=1"] {
            assert_eq!(ListSource::parse(text).unwrap().written(), text);
        }
        for text in [
            "",
            "http://",
            "http:///deny",
            "https://lists.example:0/",
            "https://a b/",
            "ftp://lists.example/deny",
        ] {
            assert_eq!(ListSource::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_text_of_a_url_has_no_secrets() {
        let source = ListSource::parse("https://user:secret@lists.example:8443/deny?key=secret").unwrap();
        assert_eq!(source.to_string(), "https://lists.example:8443/deny?…");
        assert!(!format!("{source:?}").contains("secret"));
    }
}
