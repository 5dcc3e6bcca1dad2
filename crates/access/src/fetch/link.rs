//! Links in a content, which may be relative to its URL (RFC 3986, 5.2).

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

/// Returns the target of a link, if it is an http or https URL that content from `base` may link to.
pub(crate) fn resolve(base: &Uri, link: &str) -> Option<Uri> {
    let link = link.trim().split('#').next()?;
    let (scheme, authority) = (base.scheme()?, base.authority()?);
    let uri: Uri = if has_scheme(link) {
        link.parse().ok()?
    } else if link.starts_with("//") {
        format!("{scheme}:{link}").parse().ok()?
    } else {
        let path = if link.starts_with('/') {
            link.to_owned()
        } else if link.is_empty() || link.starts_with('?') {
            format!("{}{link}", base.path())
        } else {
            let (folder, _) = base.path().rsplit_once('/')?;
            format!("{folder}/{link}")
        };
        let path: PathAndQuery = without_dots(&path).parse().ok()?;
        Uri::builder()
            .scheme(scheme.clone())
            .authority(authority.clone())
            .path_and_query(path)
            .build()
            .ok()?
    };
    let is_allowed = match uri.scheme()? {
        to if *to == Scheme::HTTPS => true,
        to => *to == Scheme::HTTP && *scheme == Scheme::HTTP,
    };
    (is_allowed && uri.host().is_some_and(|host| !host.is_empty())).then_some(uri)
}

/// Returns whether a reference begins with a scheme (RFC 3986, 3.1).
fn has_scheme(link: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    link.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_part)
    })
}

/// Removes the segments `.` and `..` of a path, and leaves its query unchanged.
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(segment) = parts.next() {
        let is_last = parts.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    segments.pop();
                }
                if is_last {
                    segments.push("");
                }
            }
            other => segments.push(other),
        }
    }
    format!("/{}{query}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_as_browsers_do() {
        let base = "http://user:secret@lists.example:8080/a/b/feed.xml?key=1".parse().unwrap();
        for (link, expected) in [
            ("c.torrent", "http://user:secret@lists.example:8080/a/b/c.torrent"),
            ("c.torrent?x=../y#part", "http://user:secret@lists.example:8080/a/b/c.torrent?x=../y"),
            (" ../c/./d ", "http://user:secret@lists.example:8080/a/c/d"),
            ("../../../..", "http://user:secret@lists.example:8080/"),
            ("./", "http://user:secret@lists.example:8080/a/b/"),
            ("?page=2", "http://user:secret@lists.example:8080/a/b/feed.xml?page=2"),
            ("/c", "http://user:secret@lists.example:8080/c"),
            ("//other.example/c", "http://other.example/c"),
            ("https://other.example/c", "https://other.example/c"),
        ] {
            assert_eq!(resolve(&base, link).unwrap().to_string(), expected, "{link}");
        }
        for link in
            ["magnet:?xt=urn:btih:x", "file:///etc/passwd", "ftp://other.example/", "http://", "//", "a b"]
        {
            assert_eq!(resolve(&base, link), None, "{link}");
        }
        let base = "https://lists.example/feed".parse().unwrap();
        assert_eq!(resolve(&base, "http://lists.example/c"), None, "not from https to http");
    }
}
