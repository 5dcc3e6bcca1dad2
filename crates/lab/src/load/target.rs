//! Where a tracker is, as the command line spells it.

use std::net::SocketAddr;

use anyhow::{Result, bail};

use crate::load::spelling::resolve;

/// The tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// What is spoken there.
    protocol: Protocol,
    /// Whether TLS is spoken there, as far as the scheme says it.
    pub(super) scheme_tls: Option<bool>,
    pub(super) address: SocketAddr,
    /// What `Host` says.
    pub(super) host: String,
    /// The name or address alone.
    pub(super) name: String,
    /// Path and query, if there is more than a slash.
    pub(super) path: Option<String>,
}

/// The port of an address without scheme.
const PORT: u16 = 6969;

/// What is spoken on connections to a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    WebSocket,
}

impl Protocol {
    const fn scheme(self, is_tls: bool) -> &'static str {
        match (self, is_tls) {
            (Self::Http, false) => "http",
            (Self::Http, true) => "https",
            (Self::WebSocket, false) => "ws",
            (Self::WebSocket, true) => "wss",
        }
    }
}

impl Target {
    /// Reads where a tracker is that speaks HTTP.
    pub(super) fn http(text: &str) -> Result<Self> {
        Self::parse(text, Protocol::Http)
    }

    /// Reads where a tracker is that speaks over WebSockets.
    pub(super) fn web_socket(text: &str) -> Result<Self> {
        Self::parse(text, Protocol::WebSocket)
    }

    fn parse(text: &str, protocol: Protocol) -> Result<Self> {
        let (plain, secure) = (protocol.scheme(false), protocol.scheme(true));
        let accepted = format!(
            "give a URL such as {plain}://127.0.0.1:6969/announce, or HOST:PORT such as [::1]:6969 or \
             tracker.example.org:6969"
        );
        let (scheme_tls, usual_port, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme == plain => (Some(false), 80, rest),
            Some((scheme, rest)) if scheme == secure => (Some(true), 443, rest),
            Some((scheme, _)) => bail!("{scheme}:// is not spoken here; {accepted}"),
            None => (None, PORT, text),
        };
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        if authority.contains('@') {
            bail!("a user in an address is not sent to trackers; {accepted}");
        }
        let (name, port) = split_port(authority);
        if name.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
            bail!("{authority:?} is no host with a port; {accepted}");
        }
        let address = match port {
            Some(_) => resolve(authority, &accepted)?,
            None => resolve(&format!("{authority}:{usual_port}"), &accepted)?,
        };
        let host = match port {
            None if scheme_tls.is_none() => format!("{authority}:{PORT}"),
            _ => authority.to_owned(),
        };
        let path = path.split('#').next().unwrap_or(path);
        let path = match path {
            "" | "/" => None,
            query if query.starts_with('?') => Some(format!("/{query}")),
            path => Some(path.to_owned()),
        };
        Ok(Self { protocol, scheme_tls, address, host, name: name.trim_matches(['[', ']']).to_owned(), path })
    }

    /// The scheme of addresses with TLS, or without.
    pub(super) const fn scheme(&self, is_tls: bool) -> &'static str {
        self.protocol.scheme(is_tls)
    }

    /// The address in full.
    pub(super) fn url(&self, is_tls: bool, path: &str) -> String {
        format!("{}://{}{path}", self.protocol.scheme(is_tls), self.host)
    }
}

/// Host and port, where there is one. An IPv6 address is in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let behind = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match authority[behind..].rfind(':') {
        Some(colon) => (&authority[..behind + colon], Some(&authority[behind + colon + 1..])),
        None => (authority, None),
    }
}

/// Where scrapes go: BEP 48, "if the string following that slash is not announce, that will be taken as a sign that the
/// tracker does not support the scrape convention"; in practice what begins with it does.
pub(super) fn scrape_path(announce_path: &str) -> Option<String> {
    let query = announce_path.find('?').unwrap_or(announce_path.len());
    let (path, query) = announce_path.split_at(query);
    let (folder, last) = path.rsplit_once('/')?;
    let suffix = last.strip_prefix("announce")?;
    Some(format!("{folder}/scrape{suffix}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_form() {
        let read = |text: &str| {
            let target = Target::http(text).unwrap();
            (target.scheme_tls, target.address.to_string(), target.host, target.name, target.path)
        };
        let expect = |tls, address: &str, host: &str, name: &str, path: Option<&str>| {
            (tls, address.to_owned(), host.to_owned(), name.to_owned(), path.map(str::to_owned))
        };
        assert_eq!(read("127.0.0.1"), expect(None, "127.0.0.1:6969", "127.0.0.1:6969", "127.0.0.1", None));
        assert_eq!(read("[::1]:80"), expect(None, "[::1]:80", "[::1]:80", "::1", None));
        assert_eq!(
            read("http://127.0.0.1/"),
            expect(Some(false), "127.0.0.1:80", "127.0.0.1", "127.0.0.1", None)
        );
        assert_eq!(
            read("https://[::1]/k/announce?a=1#x"),
            expect(Some(true), "[::1]:443", "[::1]", "::1", Some("/k/announce?a=1"))
        );
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_is() {
        for refused in
            ["", "http://", "udp://127.0.0.1:80", "127.0.0.1:0", "127.0.0.1:x", "http://a@127.0.0.1", ":80"]
        {
            let error = Target::http(refused).unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:6969/announce"), "{refused}: {error}");
        }
    }

    #[test]
    fn addresses_of_web_sockets_have_schemes_of_their_own() {
        let read = |text: &str| {
            let target = Target::web_socket(text).unwrap();
            (target.scheme_tls, target.url(true, "/"), target.address.port())
        };
        assert_eq!(read("ws://127.0.0.1/x"), (Some(false), "wss://127.0.0.1/".to_owned(), 80));
        assert_eq!(read("wss://127.0.0.1"), (Some(true), "wss://127.0.0.1/".to_owned(), 443));
        assert_eq!(read("127.0.0.1"), (None, "wss://127.0.0.1:6969/".to_owned(), 6969));
        let refused = Target::web_socket("http://127.0.0.1").unwrap_err().to_string();
        assert!(refused.contains("ws://127.0.0.1:6969/announce"), "{refused}");
        assert!(Target::http("ws://127.0.0.1").is_err());
    }

    #[test]
    fn scrapes_go_where_the_convention_says() {
        for (announce, scrape) in [
            ("/announce", Some("/scrape")),
            ("/x/announce.php?key=announce", Some("/x/scrape.php?key=announce")),
            ("/a", None),
            ("/announce/x", None),
        ] {
            assert_eq!(scrape_path(announce).as_deref(), scrape, "{announce}");
        }
    }
}
