//! The routes by which announces reach the tracker, and the URLs of each.

use crate::interop::network::{NODE_NAME, PROXY_NAME, TRACKER_NAME};

/// How the announces of a client reach the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// UDP.
    Udp,
    /// HTTP.
    Http,
    /// HTTPS, with the tracker's own TLS.
    Https,
    /// HTTP to nginx, which names the client in a header and uses TCP.
    NginxHttp,
    /// HTTPS to nginx, which terminates TLS, names the client in a header and uses a Unix socket.
    NginxHttps,
    /// HTTPS with the tracker's own TLS; nginx forwards the bytes behind a PROXY header (version 1).
    NginxStream,
    /// HTTPS to hitch, which terminates TLS and forwards the bytes behind a PROXY header of version 1.
    HitchV1,
    /// The same with a header of version 2.
    HitchV2,
    /// A WebSocket, on the port of HTTP.
    Ws,
    /// A WebSocket over the tracker's own TLS.
    Wss,
    /// A WebSocket to nginx, which names the client in a header and uses TCP.
    NginxWs,
    /// A WebSocket over TLS to nginx, which terminates TLS, names the client in a header and uses a Unix socket.
    NginxWss,
    /// A WebSocket over TLS to hitch, which terminates TLS and forwards the bytes behind a PROXY header (version 2).
    HitchWss,
    /// UDP to the second node of a cluster.
    NodeUdp,
    /// A WebSocket to the second node of a cluster.
    NodeWs,
}

/// A tracker protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// BEP 3, plain or over TLS.
    Http,
    /// JSON over WebSockets, plain or over TLS.
    WebTorrent,
}

/// The kinds of peers. Peers of one kind can reach each other, but none of the other kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swarm {
    /// Peers with an address and a port to which others connect.
    Dialable,
    /// Peers that exchange offers and answers through the tracker and then connect by WebRTC.
    WebRtc,
}

/// The port on which `shoal` serves UDP and HTTP by default.
pub const TRACKER_PORT: u16 = 6969;
/// The port on which the tests make it expect PROXY headers before HTTP.
pub const PROXY_HEADER_PORT: u16 = 7000;
/// The port on which the tests make it expect PROXY headers before TLS.
pub const PROXY_HEADER_TLS_PORT: u16 = 7001;
/// The default port of HTTPS, which URLs omit.
pub const HTTPS_PORT: u16 = 443;
/// The default port of HTTP.
pub const HTTP_PORT: u16 = 80;
/// The port on which nginx forwards bytes.
pub const NGINX_STREAM_PORT: u16 = 8443;
/// The port of the hitch that writes headers of version 1.
pub const HITCH_V1_PORT: u16 = 8441;
/// The port of the hitch that writes headers of version 2.
pub const HITCH_V2_PORT: u16 = 8442;

impl Route {
    /// Returns the announce URL.
    #[must_use]
    pub fn url(self) -> String {
        let start = match self {
            Self::Udp => format!("udp://{TRACKER_NAME}:{TRACKER_PORT}"),
            Self::Http => format!("http://{TRACKER_NAME}:{TRACKER_PORT}"),
            Self::Https => format!("https://{TRACKER_NAME}"),
            Self::NginxHttp => format!("http://{PROXY_NAME}"),
            Self::NginxHttps => format!("https://{PROXY_NAME}"),
            Self::NginxStream => format!("https://{PROXY_NAME}:{NGINX_STREAM_PORT}"),
            Self::HitchV1 => format!("https://{PROXY_NAME}:{HITCH_V1_PORT}"),
            Self::HitchV2 => format!("https://{PROXY_NAME}:{HITCH_V2_PORT}"),
            Self::Ws => format!("ws://{TRACKER_NAME}:{TRACKER_PORT}"),
            Self::Wss => format!("wss://{TRACKER_NAME}"),
            Self::NginxWs => format!("ws://{PROXY_NAME}"),
            Self::NginxWss => format!("wss://{PROXY_NAME}"),
            Self::HitchWss => format!("wss://{PROXY_NAME}:{HITCH_V2_PORT}"),
            Self::NodeUdp => format!("udp://{NODE_NAME}:{TRACKER_PORT}"),
            Self::NodeWs => format!("ws://{NODE_NAME}:{TRACKER_PORT}"),
        };
        format!("{start}/announce")
    }

    /// Returns the protocol in which the tracker receives the announces.
    #[must_use]
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Udp | Self::NodeUdp => Protocol::Udp,
            Self::Ws | Self::Wss | Self::NginxWs | Self::NginxWss | Self::HitchWss | Self::NodeWs => {
                Protocol::WebTorrent
            }
            _ => Protocol::Http,
        }
    }

    /// Returns whether the tracker serves this route without any configuration.
    #[must_use]
    pub fn is_default(self) -> bool {
        matches!(self, Self::Udp | Self::Http | Self::Ws | Self::NodeUdp | Self::NodeWs)
    }

    /// Returns whether it leads to the second node of a cluster.
    #[must_use]
    pub fn needs_second_node(self) -> bool {
        matches!(self, Self::NodeUdp | Self::NodeWs)
    }

    /// Returns whether it leads through nginx.
    #[must_use]
    pub fn needs_nginx(self) -> bool {
        matches!(
            self,
            Self::NginxHttp | Self::NginxHttps | Self::NginxStream | Self::NginxWs | Self::NginxWss
        )
    }

    /// Returns whether it leads through the hitch that writes headers of version 2.
    #[must_use]
    pub fn needs_hitch_v2(self) -> bool {
        matches!(self, Self::HitchV2 | Self::HitchWss)
    }
}

impl Swarm {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Dialable, Self::WebRtc];

    /// Returns the other kind.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Dialable => Self::WebRtc,
            Self::WebRtc => Self::Dialable,
        }
    }

    /// Returns the protocols by which its peers announce.
    pub fn protocols(self) -> impl Iterator<Item = Protocol> {
        Protocol::ALL.into_iter().filter(move |protocol| protocol.swarm() == self)
    }

    /// Returns the metrics that count its swarms and the peers in them.
    #[must_use]
    pub fn metrics(self) -> [&'static str; 2] {
        match self {
            Self::Dialable => ["shoal_swarms", "shoal_peers"],
            Self::WebRtc => ["shoal_webtorrent_swarms", "shoal_webtorrent_peers"],
        }
    }

    /// Returns the protocol for repeated scrapes: one without connections, if possible.
    #[must_use]
    pub fn scraped_over(self) -> Protocol {
        match self {
            Self::Dialable => Protocol::Udp,
            Self::WebRtc => Protocol::WebTorrent,
        }
    }
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 3] = [Self::Udp, Self::Http, Self::WebTorrent];

    /// Returns its name in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::WebTorrent => "webtorrent",
        }
    }

    /// Returns the scheme of its URLs.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::WebTorrent => "ws",
        }
    }

    /// Returns the kind of peers that announce by it.
    #[must_use]
    pub fn swarm(self) -> Swarm {
        match self {
            Self::Udp | Self::Http => Swarm::Dialable,
            Self::WebTorrent => Swarm::WebRtc,
        }
    }
}
