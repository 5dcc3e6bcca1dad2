//! The place of a token in the URL of a tracker.
//!
//! Private trackers put the secret of a user into the announce URL, in a parameter (`/announce?jwt=TOKEN`) or in the
//! path (`/announce/TOKEN`, `/TOKEN/announce`). Clients derive the URL of scrapes by replacing `announce` with
//! `scrape`.

use shoal_wire::http::query::Parameters;

/// The path and the query of the URL that a client was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Url<'u> {
    /// The path, with its first slash.
    pub path: &'u [u8],
    /// The part after the `?`, or nothing.
    pub query: &'u [u8],
}

impl<'u> Url<'u> {
    /// Splits a path and query, as UDP clients send it (BEP 41).
    pub fn split(url: &'u [u8]) -> Self {
        let question = url.iter().position(|&byte| byte == b'?');
        let (path, query) = question.map_or((url, &[][..]), |at| (&url[..at], &url[at + 1..]));
        Self { path, query }
    }

    /// Returns the token: the value of the first parameter with this name, or else the last segment of the path that
    /// has the form of a token.
    pub fn token(&self, parameter: &[u8]) -> Option<&'u [u8]> {
        let mut parameters = Parameters::new(self.query);
        let value =
            parameters.find(|(name, value)| Parameters::is_name(name, parameter) && !value.is_empty());
        let in_path = || self.path.rsplit(|&byte| byte == b'/').find(|segment| is_token(segment));
        value.map(|(_, value)| value).or_else(in_path)
    }
}

/// Returns whether a segment of a path has the form of a token: three parts of base64url with dots between them, the
/// last of which is empty without a signature. The first encodes a JSON object, which begins with `{"` (other paths
/// also have dots, as in host names and versions).
pub fn is_token(segment: &[u8]) -> bool {
    let is_base64url = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut parts = segment.split(|&byte| byte == b'.');
    let has_part = |part: Option<&[u8]>| part.is_some_and(|part| !part.is_empty());
    parts.next().is_some_and(|header| header.starts_with(b"ey"))
        && has_part(parts.next())
        && parts.next().is_some()
        && parts.next().is_none()
        && segment.iter().all(|byte| *byte == b'.' || is_base64url(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(url: &str) -> Option<&str> {
        Url::split(url.as_bytes()).token(b"jwt").map(|token| core::str::from_utf8(token).unwrap())
    }

    #[test]
    fn a_token_is_in_the_query_or_in_the_path() {
        for (url, expected) in [
            ("/announce?jwt=a.b.c", Some("a.b.c")),
            ("/announce?x=1&jwt=a.b.c&info_hash=%00", Some("a.b.c")),
            ("/announce?jwt=&jwt=a.b.c&jwt=d.e.f", Some("a.b.c")),
            ("/announce?jwt=nonsense", Some("nonsense")),
            ("/announce?%6a%77t=a.b.c", Some("a.b.c")),
            ("/announce/ey-_9.b.c", Some("ey-_9.b.c")),
            ("/announce/ey.b.c/", Some("ey.b.c")),
            ("/eyA.b.c/announce", Some("eyA.b.c")),
            ("/x/eyA.b./announce.php?jwt=", Some("eyA.b.")),
            ("/announce/eyA.b.c?jwt=d.e.f", Some("d.e.f")),
            ("/announce/eyA.b.c?x=1", Some("eyA.b.c")),
            ("/eyA.b.c", Some("eyA.b.c")),
            ("eyA.b.c", Some("eyA.b.c")),
            ("/announce?JWT=a.b.c", None),
            ("/announce?jwt", None),
            ("/announce.php", None),
            ("/announce/a.b", None),
            ("/announce/eyA.b.c.d", None),
            ("/announce/.b.c/ey..c/eyA.b+c.d", None),
            ("/tracker.example.org/v1.2.3/announce", None),
            ("", None),
            ("?", None),
        ] {
            assert_eq!(token(url), expected, "{url}");
        }
    }
}
