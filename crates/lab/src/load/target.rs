//! The address of a tracker on the command line.

use anyhow::{Result, bail};

use super::address::Addresses;

/// The address of a tracker that uses connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadTarget {
    protocol: StreamProtocol,
    /// Whether the scheme asks for TLS, if there is a scheme.
    pub(super) scheme_tls: Option<bool>,
    pub(super) addresses: Addresses,
    pub(super) host: String,
    /// The name or IP address alone.
    pub(super) name: String,
    /// Path and query, if they are more than a slash.
    pub(super) path: Option<String>,
}

/// The default port of an address without a scheme.
const PORT: u16 = 6969;

/// The protocol of a connection to a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamProtocol {
    Http,
    WebSocket,
}

impl StreamProtocol {
    const fn scheme(self, is_tls: bool) -> &'static str {
        match (self, is_tls) {
            (Self::Http, false) => "http",
            (Self::Http, true) => "https",
            (Self::WebSocket, false) => "ws",
            (Self::WebSocket, true) => "wss",
        }
    }
}

impl LoadTarget {
    pub(super) fn http(text: &str) -> Result<Self> {
        Self::parse(text, StreamProtocol::Http)
    }

    pub(super) fn web_socket(text: &str) -> Result<Self> {
        Self::parse(text, StreamProtocol::WebSocket)
    }

    fn parse(text: &str, protocol: StreamProtocol) -> Result<Self> {
        let (plain, secure) = (protocol.scheme(false), protocol.scheme(true));
        let accepted = format!(
            "give a URL such as {plain}://127.0.0.1:6969/announce, or HOST:PORT such as [::1]:6969 or \
             tracker.example.org:6969"
        );
        let (scheme_tls, usual_port, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme == plain => (Some(false), 80, rest),
            Some((scheme, rest)) if scheme == secure => (Some(true), 443, rest),
            Some((scheme, _)) => bail!("{scheme}:// is not supported; {accepted}"),
            None => (None, PORT, text),
        };
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        if authority.contains('@') {
            bail!("trackers do not get the user name of a URL; {accepted}");
        }
        let (name, port) = split_port(authority);
        if name.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
            bail!("{authority:?} is not a host with a port; {accepted}");
        }
        let addresses = match port {
            Some(_) => Addresses::resolve(authority, &accepted)?,
            None => Addresses::resolve(&format!("{authority}:{usual_port}"), &accepted)?,
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
        Ok(Self {
            protocol,
            scheme_tls,
            addresses,
            host,
            name: name.trim_matches(['[', ']']).to_owned(),
            path,
        })
    }

    /// Returns the scheme with or without TLS.
    pub(super) const fn scheme(&self, is_tls: bool) -> &'static str {
        self.protocol.scheme(is_tls)
    }

    pub(super) fn url(&self, is_tls: bool, path: &str) -> String {
        format!("{}://{}{path}", self.protocol.scheme(is_tls), self.host)
    }
}

/// Splits an authority into host and port. An IPv6 address is in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let behind = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match authority[behind..].rfind(':') {
        Some(colon) => (&authority[..behind + colon], Some(&authority[behind + colon + 1..])),
        None => (authority, None),
    }
}

/// Returns the path of scrapes. BEP 48: "if the string following that slash is not announce, that will be taken as a
/// sign that the tracker does not support the scrape convention". In practice, a string that begins with it is
/// accepted, too.
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
    fn addresses_are_parsed_in_every_form() {
        let read = |text: &str| {
            let target = LoadTarget::http(text).unwrap();
            (
                target.scheme_tls,
                target.addresses.choose_tcp(None).unwrap().to_string(),
                target.host,
                target.name,
                target.path,
            )
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
    fn invalid_addresses_are_refused_with_an_example() {
        for refused in
            ["", "http://", "udp://127.0.0.1:80", "127.0.0.1:0", "127.0.0.1:x", "http://a@127.0.0.1", ":80"]
        {
            let error = LoadTarget::http(refused).unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:6969/announce"), "{refused}: {error}");
        }
    }

    #[test]
    fn addresses_of_web_sockets_have_schemes_of_their_own() {
        let read = |text: &str| {
            let target = LoadTarget::web_socket(text).unwrap();
            (target.scheme_tls, target.url(true, "/"), target.addresses.choose_tcp(None).unwrap().port())
        };
        assert_eq!(read("ws://127.0.0.1/x"), (Some(false), "wss://127.0.0.1/".to_owned(), 80));
        assert_eq!(read("wss://127.0.0.1"), (Some(true), "wss://127.0.0.1/".to_owned(), 443));
        assert_eq!(read("127.0.0.1"), (None, "wss://127.0.0.1:6969/".to_owned(), 6969));
        let refused = LoadTarget::web_socket("http://127.0.0.1").unwrap_err().to_string();
        assert!(refused.contains("ws://127.0.0.1:6969/announce"), "{refused}");
        assert!(LoadTarget::http("ws://127.0.0.1").is_err());
    }

    #[test]
    fn scrape_paths_follow_the_convention() {
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
