//! The operator's settings of connections.

use ipnet::IpNet;
use shoal_config::{ClientHeader, Config, Listen, Origin, Trusted};

pub use crate::origin::Origins;

/// The operator's settings, as plain values.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// The listeners, in the order of their numbers in [`shoal_base::transport::stream::Remote::listener`].
    pub listeners: Vec<ListenerProtocols>,
    /// Whether the tracker serves announces and scrapes that browsers send on behalf of pages of other sites.
    pub cross_site: bool,
    /// The trusted proxies, and how they name their clients.
    pub proxy: TrustedProxies,
    /// The settings of WebSockets.
    pub websocket: WebSocketSettings,
}

/// Default maximum size of a message. An announce contains all offers of a client, of 0.5 to 4 KiB each.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// The settings of WebSockets.
#[derive(Clone, Debug)]
pub struct WebSocketSettings {
    /// The sites whose pages may connect.
    pub origins: Origins,
    /// Maximum size of a message. A larger one closes the WebSocket as soon as its size is known.
    pub message_bytes_max: usize,
}

/// The protocols on the connections of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerProtocols {
    /// Whether the listener serves HTTPS rather than HTTP.
    pub tls: bool,
    /// Whether every connection begins with a header of the PROXY protocol. Connections that do not come from a trusted
    /// proxy are then closed without reading any input.
    pub proxy_protocol: bool,
}

/// Which proxies are trusted to name their clients.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    /// The networks of trusted proxies.
    pub networks: Vec<IpNet>,
    /// Whether every client of a Unix socket is a trusted proxy.
    pub unix: bool,
    /// The header with which trusted proxies name their client. Unless it is `None`, they must send it.
    pub header: ClientHeader,
}

impl SessionSettings {
    /// Returns the settings of a configuration.
    pub fn of(config: &Config) -> Self {
        let Config { http, proxy, webtorrent, .. } = config;
        let listener =
            |(listen, tls): (&Listen, bool)| ListenerProtocols { tls, proxy_protocol: listen.proxy_protocol };
        let network = |trusted: &Trusted| match trusted {
            Trusted::Network(network) => Some(*network),
            Trusted::Unix => None,
        };
        let spelled = |origins: &[Origin]| origins.iter().map(Origin::to_string).collect();
        let origins = Origins {
            allow: spelled(&webtorrent.origins_allow),
            deny: spelled(&webtorrent.origins_deny),
            missing: webtorrent.origin_missing,
        };
        Self {
            listeners: listeners(config).map(listener).collect(),
            cross_site: http.cross_site,
            proxy: TrustedProxies {
                networks: proxy.trusted.iter().filter_map(network).collect(),
                unix: proxy.trusted.contains(&Trusted::Unix),
                header: proxy.header,
            },
            websocket: WebSocketSettings { origins, ..WebSocketSettings::default() },
        }
    }
}

/// Returns every listener, and whether it has TLS, in the order of their numbers: plain ones first.
pub fn listeners(config: &Config) -> impl Iterator<Item = (&Listen, bool)> {
    let plain = config.http.listen.iter().map(|listen| (listen, false));
    plain.chain(config.tls.listen.iter().map(|listen| (listen, true)))
}

impl Default for SessionSettings {
    /// Returns settings without listeners and trusted proxies. They refuse HTTP requests on behalf of pages of other
    /// sites, and serve WebSockets for the pages of all sites.
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            cross_site: false,
            proxy: TrustedProxies::default(),
            websocket: WebSocketSettings::default(),
        }
    }
}

impl Default for TrustedProxies {
    /// Trusts no proxy.
    fn default() -> Self {
        Self { networks: Vec::new(), unix: false, header: ClientHeader::None }
    }
}

impl Default for WebSocketSettings {
    /// Serves pages of all sites, and messages large enough for the offers of any real client.
    fn default() -> Self {
        Self { origins: Origins::default(), message_bytes_max: MESSAGE_BYTES_MAX }
    }
}
