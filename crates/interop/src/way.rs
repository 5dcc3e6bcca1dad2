//! The ways by which a client can reach the tracker, and the addresses where each begins.

use crate::network::{PROXY_NAME, TRACKER_NAME};

/// How a client's announces reach the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By UDP.
    Udp,
    /// By HTTP.
    Http,
    /// By HTTPS, to the tracker's own TLS.
    Https,
    /// By HTTP to nginx, which names the client in a header, over TCP.
    NginxHttp,
    /// By HTTPS to nginx, which takes TLS off and names the client in a header, over a Unix socket.
    NginxHttps,
    /// By HTTPS to the tracker's own TLS; nginx passes the bytes on behind a PROXY header (version 1).
    NginxStream,
    /// By HTTPS to hitch, which takes TLS off and passes the bytes on behind a PROXY header of version 1.
    HitchV1,
    /// The same with a header of version 2.
    HitchV2,
    /// By WebSocket, where HTTP is served as well.
    Ws,
    /// By WebSocket over the tracker's own TLS.
    Wss,
    /// By WebSocket to nginx, which names the client in a header, over TCP.
    NginxWs,
    /// By WebSocket over TLS to nginx, which takes TLS off and names the client in a header, over a Unix socket.
    NginxWss,
    /// By WebSocket over TLS to hitch, which takes TLS off and passes the bytes on behind a PROXY header (version 2).
    HitchWss,
}

/// What the tracker is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// BEP 3, in the open or over TLS.
    Http,
    /// JSON over WebSockets, in the open or over TLS.
    WebTorrent,
}

/// Peers of one kind, who can reach each other. Those of the other kind have nothing to do with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swarm {
    /// Peers with an address and a port that others dial.
    Dialled,
    /// Peers that are introduced to each other by offers and answers, and then speak WebRTC.
    Introduced,
}

/// Where `shoal` serves UDP, and HTTP as well, by default.
pub const TRACKER_PORT: u16 = 6969;
/// Where it is told to take PROXY headers before HTTP.
pub const PROXY_HEADER_PORT: u16 = 7000;
/// Where it is told to take PROXY headers before TLS.
pub const PROXY_HEADER_TLS_PORT: u16 = 7001;
/// Where HTTPS is by custom; URLs leave it out.
pub const HTTPS_PORT: u16 = 443;
/// Where HTTP is by custom.
pub const HTTP_PORT: u16 = 80;
/// Where nginx passes bytes on.
pub const NGINX_STREAM_PORT: u16 = 8443;
/// Where hitch listens that writes headers of version 1.
pub const HITCH_V1_PORT: u16 = 8441;
/// Where hitch listens that writes headers of version 2.
pub const HITCH_V2_PORT: u16 = 8442;

impl Way {
    /// The announce URL.
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
        };
        format!("{start}/announce")
    }

    /// What the tracker is asked by in the end.
    #[must_use]
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Udp => Protocol::Udp,
            Self::Ws | Self::Wss | Self::NginxWs | Self::NginxWss | Self::HitchWss => Protocol::WebTorrent,
            _ => Protocol::Http,
        }
    }

    /// Whether the tracker serves it without a word of configuration.
    #[must_use]
    pub fn is_default(self) -> bool {
        matches!(self, Self::Udp | Self::Http | Self::Ws)
    }

    /// Whether it leads through nginx.
    #[must_use]
    pub fn needs_nginx(self) -> bool {
        matches!(
            self,
            Self::NginxHttp | Self::NginxHttps | Self::NginxStream | Self::NginxWs | Self::NginxWss
        )
    }

    /// Whether it leads through the hitch that writes headers of version 2.
    #[must_use]
    pub fn needs_hitch_v2(self) -> bool {
        matches!(self, Self::HitchV2 | Self::HitchWss)
    }
}

impl Swarm {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Dialled, Self::Introduced];

    /// The other kind.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Dialled => Self::Introduced,
            Self::Introduced => Self::Dialled,
        }
    }

    /// What its peers announce by.
    pub fn protocols(self) -> impl Iterator<Item = Protocol> {
        Protocol::ALL.into_iter().filter(move |protocol| protocol.swarm() == self)
    }

    /// The metrics that count such swarms and the peers in them.
    #[must_use]
    pub fn metrics(self) -> [&'static str; 2] {
        match self {
            Self::Dialled => ["shoal_swarms", "shoal_peers"],
            Self::Introduced => ["shoal_webtorrent_swarms", "shoal_webtorrent_peers"],
        }
    }

    /// The protocol by which an observer asks for it again and again: where possible, one that takes no connection.
    #[must_use]
    pub fn observed_by(self) -> Protocol {
        match self {
            Self::Dialled => Protocol::Udp,
            Self::Introduced => Protocol::WebTorrent,
        }
    }
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Udp, Self::Http, Self::WebTorrent];

    /// Its name in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::WebTorrent => "webtorrent",
        }
    }

    /// What a URL of it begins with.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::WebTorrent => "ws",
        }
    }

    /// Whom those who speak it can find.
    #[must_use]
    pub fn swarm(self) -> Swarm {
        match self {
            Self::Udp | Self::Http => Swarm::Dialled,
            Self::WebTorrent => Swarm::Introduced,
        }
    }
}
