//! The URL of a tracker, and its addresses.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use shoal_conform::Scheme;

/// `udp://HOST:PORT`, `http://HOST/announce` or `ws://HOST/`, or `https` or `wss`. UDP needs no path, but users copy it
/// from their clients. The others default to the ports of the web, and HTTP to the usual path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrackerUrl {
    /// As the user wrote it.
    pub(super) text: String,
    pub(super) scheme: Scheme,
    /// Host and port, as in the URL.
    pub(super) authority: String,
    /// Path and query of HTTP and of the upgrade to a WebSocket.
    pub(super) path: String,
    host: String,
    port: u16,
}

impl FromStr for TrackerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let accepted =
            "accepts udp://HOST:PORT, http://HOST:PORT/announce and ws://HOST:PORT/, and https and wss";
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("it has no protocol; {accepted}"));
        };
        let (scheme, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "udp" => (Scheme::Udp, None),
            "http" => (Scheme::Http, Some("80")),
            "https" => (Scheme::Https, Some("443")),
            "ws" => (Scheme::Ws, Some("80")),
            "wss" => (Scheme::Wss, Some("443")),
            _ => return Err(format!("there is no suite for {scheme}://; {accepted}")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let split =
            if has_port { authority.rsplit_once(':') } else { default_port.map(|port| (authority, port)) };
        let Some((host, port)) = split else {
            return Err(format!("it has no port; {accepted}"));
        };
        let port = port.parse().ok().filter(|&port| port != 0);
        let Some(port) = port else {
            return Err(format!("the port is not a number from 1 to 65535; {accepted}"));
        };
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || (host.contains(':') && !is_bracketed) {
            return Err(format!("the host is invalid (IPv6 addresses go in brackets); {accepted}"));
        }
        let host = if is_bracketed { &host[1..host.len() - 1] } else { host };
        let usual = if matches!(scheme, Scheme::Ws | Scheme::Wss) { "/" } else { "/announce" };
        let path = match path {
            "" | "/" => usual.to_owned(),
            path if path.starts_with('?') => format!("{usual}{path}"),
            path => path.to_owned(),
        };
        let authority = authority.to_owned();
        Ok(Self { text: text.to_owned(), scheme, authority, path, host: host.to_owned(), port })
    }
}

impl TrackerUrl {
    /// Returns the first address of each family, IPv4 first.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let resolved = (self.host.as_str(), self.port).to_socket_addrs();
        let resolved: Vec<SocketAddr> = match resolved {
            Ok(resolved) => resolved.collect(),
            Err(error) => return Err(format!("cannot resolve {}: {error}", self.host)),
        };
        let first = |is_v4: bool| resolved.iter().copied().find(|address| address.is_ipv4() == is_v4);
        let addresses: Vec<SocketAddr> = [first(true), first(false)].into_iter().flatten().collect();
        if addresses.is_empty() { Err(format!("{} has no address", self.host)) } else { Ok(addresses) }
    }
}

#[cfg(test)]
mod tests {
    use super::TrackerUrl;

    #[test]
    fn urls_are_read() {
        for (text, host, port) in [
            ("udp://tracker.example:6969/announce", "tracker.example", 6969),
            ("UDP://127.0.0.1:80", "127.0.0.1", 80),
            ("udp://[::1]:6969/", "::1", 6969),
            ("udp://a:1?x=y", "a", 1),
            ("http://a/announce", "a", 80),
            ("HTTPS://a", "a", 443),
            ("https://[::1]/", "::1", 443),
            ("http://[::1]:81", "::1", 81),
            ("ws://a", "a", 80),
            ("wss://a/announce", "a", 443),
        ] {
            let url: TrackerUrl = text.parse().unwrap();
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
        }
    }

    #[test]
    fn invalid_urls_are_refused_with_what_is_accepted() {
        for (text, word) in [
            ("127.0.0.1:6969", "protocol"),
            ("ftp://a:80/announce", "ftp://"),
            ("udp://a", "port"),
            ("udp://a:0", "port"),
            ("udp://a:65536", "port"),
            ("udp://:80", "host"),
            ("udp://::1:80", "brackets"),
        ] {
            let error = text.parse::<TrackerUrl>().unwrap_err();
            assert!(error.contains(word) && error.contains("udp://HOST:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn the_default_path_is_used_without_one() {
        for (text, authority, path) in [
            ("http://a:80/key/announce?x=y#z", "a:80", "/key/announce?x=y"),
            ("http://a", "a", "/announce"),
            ("http://a/", "a", "/announce"),
            ("http://a?x=y", "a", "/announce?x=y"),
            ("ws://a", "a", "/"),
            ("wss://a/tracker/socket?x", "a", "/tracker/socket?x"),
        ] {
            let url: TrackerUrl = text.parse().unwrap();
            assert_eq!((url.authority.as_str(), url.path.as_str()), (authority, path), "{text}");
        }
    }

    #[test]
    fn an_address_resolves_to_itself() {
        let url: TrackerUrl = "udp://[::1]:6969".parse().unwrap();
        assert_eq!(url.addresses(), Ok(vec!["[::1]:6969".parse().unwrap()]));
    }
}
