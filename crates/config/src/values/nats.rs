//! The servers of NATS, and the name of a cluster.

use core::convert::Infallible;
use core::fmt;
use core::net::IpAddr;
use core::ops::RangeInclusive;
use std::borrow::Cow;

use super::{HostName, quote};
use crate::raw::Raw;
use crate::value::Value;

/// The port that NATS servers use by convention.
const PORT: u16 = 4222;

/// The URL of a NATS server. It has no user and no password, so it may appear in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsServer {
    /// Whether the connection must be encrypted. Otherwise, the server decides.
    pub tls: bool,
    /// A host name, or an address without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// The name of a cluster: 1 to 64 letters, digits, hyphens and underscores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterName(Cow<'static, str>);

impl NatsServer {
    /// Returns the address of the host, unless it is a name.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("nats", text));
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return None,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split_port(authority)?;
        let port = port.map_or(Some(PORT), |port| port.parse().ok().filter(|&port| port != 0))?;
        Some(Self { tls, host, port })
    }
}

/// Splits an authority into the host and the port, if any.
fn split_port(authority: &str) -> Option<(String, Option<&str>)> {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let address: IpAddr = host.parse().ok().filter(IpAddr::is_ipv6)?;
        let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
        return Some((address.to_string(), port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let host = HostName::parse(host)?.to_string();
    (host != "*").then_some((host, port))
}

impl fmt::Display for NatsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "tls" } else { "nats" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

impl ClusterName {
    /// Creates a name from the program's text.
    pub(crate) const fn from_static(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for ClusterName {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        "1 to 64 letters, digits, hyphens and underscores".to_owned()
    }

    fn parse(raw: &Raw) -> Option<Self> {
        raw.text().filter(|text| is_name(text)).map(|text| Self(Cow::Owned(text.to_owned())))
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(&self.0)
    }
}

/// Maximum length of the name of a cluster in bytes.
pub const CLUSTER_NAME_BYTES_MAX: usize = 64;

/// Returns whether a text can be the name of a cluster: 1 to 64 letters, digits, hyphens and underscores.
fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=CLUSTER_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// The name of a stream of JetStream: 1 to 64 letters, digits, hyphens and underscores, like the name of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamName(String);

impl StreamName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A stream, or `""` for none.
impl Value for Option<StreamName> {
    type Bound = Infallible;

    fn accepts(_: Option<&RangeInclusive<Infallible>>) -> String {
        format!("{}, or \"\" for none", ClusterName::accepts(None))
    }

    fn parse(raw: &Raw) -> Option<Self> {
        let text = raw.text().filter(|text| text.is_empty() || is_name(text))?;
        Some((!text.is_empty()).then(|| StreamName(text.to_owned())))
    }

    fn within(&self, _: &RangeInclusive<Infallible>) -> bool {
        true
    }

    fn show(&self) -> String {
        quote(self.as_ref().map_or("", StreamName::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_servers_are_read_with_their_defaults() {
        for (text, shown) in [
            ("nats.example", "nats://nats.example:4222"),
            ("nats.example:4223", "nats://nats.example:4223"),
            ("nats://10.0.0.1", "nats://10.0.0.1:4222"),
            ("tls://NATS.example:443/", "tls://nats.example:443"),
            ("nats://[2001:db8::1]:4222", "nats://[2001:db8::1]:4222"),
            ("[::1]", "nats://[::1]:4222"),
        ] {
            let server = NatsServer::parse(text).unwrap();
            assert_eq!(server.to_string(), shown);
            assert_eq!(NatsServer::parse(shown), Some(server));
        }
        assert_eq!(NatsServer::parse("[::1]").unwrap().address(), Some("::1".parse().unwrap()));
        assert_eq!(NatsServer::parse("a").unwrap().address(), None);
    }

    #[test]
    fn other_urls_are_refused() {
        for text in [
            "",
            "nats://",
            "http://nats.example",
            "wss://nats.example",
            "nats://user:secret@nats.example",
            "nats.example:0",
            "nats.example:70000",
            "nats.example:",
            "nats://nats.example/path",
            "::1",
            "[::1",
            "[10.0.0.1]",
            "*",
            "a b",
        ] {
            assert_eq!(NatsServer::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_tokens() {
        for (name, holds) in
            [("shoal", true), ("a_b-C9", true), ("", false), ("a.b", false), ("a*", false), ("ä", false)]
        {
            assert_eq!(is_name(name), holds, "{name}");
        }
        assert!(!is_name(&"a".repeat(65)));
    }
}
