//! What the operator decides about connections.

use ipnet::IpNet;

pub use crate::origin::Origins;

/// The operator's decisions, as plain values.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The listeners, in the order by which [`shoal_wire::stream::Origin::listener`] names them.
    pub listeners: Vec<Listener>,
    /// Whether a connection is kept for further requests when the client does not mind.
    pub keep_alive: bool,
    /// Whether announces and scrapes are served that browsers make for pages of other sites.
    pub cross_site: bool,
    /// Which proxies are believed, and what.
    pub proxy: Proxy,
    /// Most full scrapes of a worker at a time, each of which holds about half a mebibyte while it is compressed.
    pub full_scrapes_max: usize,
    /// What holds for WebSockets.
    pub websocket: WebSocket,
}

/// What holds for WebSockets.
#[derive(Clone, Debug)]
pub struct WebSocket {
    /// Pages of which sites may connect.
    pub origins: Origins,
    /// Longest message that is taken. What is longer closes the WebSocket as soon as it is known.
    pub message_bytes_max: usize,
}

/// What is spoken on the connections of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// Whether it is HTTPS rather than HTTP.
    pub tls: bool,
    /// Whether every connection begins with a header of the PROXY protocol. Connections from elsewhere than the
    /// trusted proxies are then closed unheard.
    pub proxy_protocol: bool,
}

/// Which proxies are believed when they say who their client is.
#[derive(Clone, Debug, Default)]
pub struct Proxy {
    /// Where trusted proxies are.
    pub networks: Vec<IpNet>,
    /// Whether whoever connects over a Unix socket is a trusted proxy.
    pub unix: bool,
    /// The header by which trusted proxies name their client. They then have to.
    pub header: Option<ClientHeader>,
}

/// A header by which a proxy names its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientHeader {
    /// A list of all hops, to which each proxy appends the one it was asked by.
    XForwardedFor,
    /// One address.
    XRealIp,
    /// A list as of `X-Forwarded-For`, in the syntax of RFC 7239.
    Forwarded,
    /// One address.
    CfConnectingIp,
}

impl Default for Settings {
    /// No listeners, nobody trusted, nothing for pages of other sites over plain HTTP, one full scrape at a time, WebSockets for the pages of all sites.
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            keep_alive: true,
            cross_site: false,
            proxy: Proxy::default(),
            full_scrapes_max: 1,
            websocket: WebSocket::default(),
        }
    }
}

impl Default for WebSocket {
    /// Pages of all sites, and messages with room for as many offers as anybody makes.
    fn default() -> Self {
        Self { origins: Origins::default(), message_bytes_max: 256 * 1024 }
    }
}

impl ClientHeader {
    /// The name of the header, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::XRealIp => "x-real-ip",
            Self::Forwarded => "forwarded",
            Self::CfConnectingIp => "cf-connecting-ip",
        }
    }
}
