//! Types of the keys about connections: listeners, files and networks.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use std::path::PathBuf;

use ipnet::IpNet;
use shoal_access::clients::ClientRule;
use shoal_access::ports::Ports;
use shoal_access::rules::Rule;
use shoal_base::transport::stream::ListenAddress;

use super::{
    AnnounceUrl, BlocklistField, HostName, InterfaceName, ListSource, NatsServer, OpentrackerMode, Origin,
    parse_address, quote,
};
use crate::raw::Raw;
use crate::value::Value;

/// A listener for connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address or path.
    pub address: ListenAddress,
    /// Whether each connection begins with a PROXY header. Only trusted proxies may connect then.
    pub proxy_protocol: bool,
}

/// A network or kind of socket whose connections come from trusted proxies only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// All connections from this network.
    Network(IpNet),
    /// All connections to Unix sockets.
    Unix,
}

/// The suffix of a listener whose connections begin with a PROXY header.
const PROXY_SUFFIX: &str = " proxy-protocol";

/// The name for Unix sockets in a list of networks.
const UNIX: &str = "unix";

impl Listen {
    /// Returns a TCP listener without PROXY headers.
    pub const fn tcp(address: SocketAddr) -> Self {
        Self { address: ListenAddress::Tcp(address), proxy_protocol: false }
    }

    fn parse(text: &str) -> Option<Self> {
        let (text, proxy_protocol) = match text.strip_suffix(PROXY_SUFFIX) {
            Some(text) => (text.trim_end(), true),
            None => (text, false),
        };
        let address = match text.strip_prefix(ListenAddress::UNIX_PREFIX) {
            Some("") => return None,
            Some(path) => ListenAddress::Unix(PathBuf::from(path)),
            None => ListenAddress::Tcp(parse_address(text)?),
        };
        Some(Self { address, proxy_protocol })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        f.write_str(if self.proxy_protocol { PROXY_SUFFIX } else { "" })
    }
}

impl fmt::Display for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Unix => f.write_str(UNIX),
        }
    }
}

impl Trusted {
    fn parse(text: &str) -> Option<Self> {
        if text == UNIX {
            return Some(Self::Unix);
        }
        parse_network(text).map(Self::Network)
    }
}

/// Parses a network or a single address.
fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()
}

/// Implements `Value` for lists of a type. The range limits their length.
macro_rules! list {
    ($Item:ty, $accepts:expr, $parse:expr, $show:expr) => {
        impl Value for Vec<$Item> {
            type Bound = usize;

            fn accepts(range: Option<&RangeInclusive<usize>>) -> String {
                let kind = $accepts;
                range.map_or(kind.to_owned(), |range| {
                    format!("{kind}, {} to {} of them", range.start(), range.end())
                })
            }

            fn parse(raw: &Raw) -> Option<Self> {
                raw.list()?.iter().map(|item| $parse(item.text()?)).collect()
            }

            fn within(&self, range: &RangeInclusive<usize>) -> bool {
                range.contains(&self.len())
            }

            fn show(&self) -> String {
                let items: Vec<String> = self.iter().map(|item| quote(&$show(item))).collect();
                format!("[{}]", items.join(", "))
            }
        }
    };
}

list!(
    Listen,
    "a list such as \"0.0.0.0:6969\", \"[::]:6969\" or \"unix:/run/shoal/http.sock\"",
    Listen::parse,
    Listen::to_string
);

list!(Trusted, "a list such as \"10.0.0.0/8\", \"::1\" or \"unix\"", Trusted::parse, Trusted::to_string);

list!(
    IpNet,
    "a list of networks and addresses such as \"10.0.0.0/8\" or \"2001:db8::1\"",
    parse_network,
    IpNet::to_string
);

list!(
    Origin,
    "a list such as \"https://example.org\" or \"null\", without a slash at the end or wildcards",
    Origin::parse,
    Origin::to_string
);

list!(
    InterfaceName,
    "a list of network interfaces such as \"eth0\"",
    InterfaceName::parse,
    InterfaceName::to_string
);

list!(
    AnnounceUrl,
    "a list such as \"udp://tracker.example:6969/announce\" or \"https://tracker.example/announce\"",
    AnnounceUrl::parse,
    AnnounceUrl::to_string
);

list!(
    HostName,
    "a list such as \"tracker.example\", \"[2001:db8::1]\" or \"*\"",
    HostName::parse,
    HostName::to_string
);

list!(
    ClientRule,
    "a list such as \"-XL\", \"qB<4.6 please update\" or \"UT>=3.0&<3.5\"",
    |text: &str| text.parse().ok(),
    ClientRule::to_string
);

list!(
    Rule,
    "a list such as \"user-agent MonitorBot/* drop\" or \"as 64512 interval 7200\" (docs/rules.md)",
    |text: &str| text.parse().ok(),
    Rule::to_string
);

list!(Ports, "a list of ports and ranges such as \"25\" or \"1-1023\"", Ports::parse, Ports::to_string);

list!(
    ListSource,
    "a list of files and URLs such as \"/etc/shoal/denied\" or \"https://lists.example/denied\"",
    ListSource::parse,
    ListSource::written
);

list!(
    NatsServer,
    "a list of NATS servers such as \"nats://10.0.0.1:4222\" or \"tls://nats.example\"",
    NatsServer::parse,
    NatsServer::to_string
);

list!(
    BlocklistField,
    "a list of \"date\", \"reference\" and \"reason\"",
    BlocklistField::parse,
    BlocklistField::to_string
);

list!(
    OpentrackerMode,
    "a list of \"everything\", \"peer\", \"torr\", \"conn\", \"scrp\", \"udp4\", \"tcp4\", \"top10\", \"top100\" and \"tpbs\"",
    OpentrackerMode::parse,
    OpentrackerMode::to_string
);

list!(
    PathBuf,
    "a list of files",
    |text: &str| (!text.is_empty()).then(|| PathBuf::from(text)),
    |path: &PathBuf| path.display().to_string()
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_back_as_they_are_written() {
        for text in [
            "0.0.0.0:6969",
            "[::]:6969",
            "unix:/run/shoal/http.sock",
            "127.0.0.1:7000 proxy-protocol",
            "unix:/run/a b.sock proxy-protocol",
        ] {
            let listen = Listen::parse(text).unwrap();
            assert_eq!(listen.to_string(), text);
            assert_eq!(listen.proxy_protocol, text.ends_with("proxy-protocol"));
        }
        for text in
            ["", "6969", "unix:", "0.0.0.0", "0.0.0.0:6969 proxy", "[::ffff:1.2.3.4]:1", "localhost:1"]
        {
            assert_eq!(Listen::parse(text), None, "{text}");
        }
    }

    #[test]
    fn all_modes_of_opentracker_are_named_as_accepted() {
        let accepted = <Vec<OpentrackerMode> as Value>::accepts(None);
        for mode in OpentrackerMode::ALL {
            assert!(accepted.contains(&format!("\"{mode}\"")), "{accepted}");
        }
    }

    #[test]
    fn trusted_networks_are_read_back_as_they_are_written() {
        for text in ["10.0.0.0/8", "2001:db8::/32", "127.0.0.1/32", "unix"] {
            assert_eq!(Trusted::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Trusted::parse("::1"), Trusted::parse("::1/128"));
        for text in ["", "10.0.0.0/33", "proxy.example", "10.0.0"] {
            assert_eq!(Trusted::parse(text), None, "{text}");
        }
    }
}
