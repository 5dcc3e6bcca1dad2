//! The presets: named loads, with their transport and the quantity to measure.

use std::num::NonZeroUsize;
use std::time::Duration;

use shoal_load::{Mix, PRESETS as UDP, Popularity, Population, Preset as LoadPreset};

use crate::load::{HttpTransport, Measure, Transport, WsTransport};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonPreset {
    pub shape: LoadPreset,
    pub transport: Transport,
    pub measure: Measure,
    /// Requests in flight in the closed loop, for each processor of the tracker. Over HTTP, each has a connection. Over
    /// WebSockets, each connection has at most one.
    pub window: usize,
    /// Threads that spin on each processor of the tracker in the closed loop. Over connections, the load needs about as
    /// much time as Shoal, and twice as much if each request has its own.
    pub spinners: usize,
    /// Sockets of each worker of the load. Over HTTP and WebSockets: addresses of its connections.
    pub sockets: NonZeroUsize,
    pub timeout: Duration,
    /// Requests a second in the open loop, few enough for every tracker.
    pub latency_rate: f64,
}

const IDLE_CONNECTIONS: usize = 10_000;

const PLAIN: HttpTransport = HttpTransport { tls: false, keep_alive: true, resumption: false };
const TLS: HttpTransport = HttpTransport { tls: true, ..PLAIN };
const TLS_EACH: HttpTransport = HttpTransport { keep_alive: false, ..TLS };

/// The swarms of the published comparison of HTTP trackers: ten thousand torrents, a few of which have nearly all
/// peers, and a quarter of the peers are seeders. There, every announce came from another peer. Here, there are
/// enough peers that a swarm does not fit a reply, and few enough that a tracker with TLS handshakes is filled within
/// a minute.
const PUBLISHED_POPULATION: Population = Population {
    torrents: 10_000,
    peers: 20_000,
    popularity: Popularity::Gamma { shape: 0.2, scale: 1.0 },
    seeder_share: 0.25,
    announces_per_life: 0,
    vanish_share: 0.0,
};

const ANNOUNCES: LoadPreset = LoadPreset {
    name: "https-published",
    summary: "announces, TLS 1.3 with a handshake for each, 10 k torrents, a quarter of the peers seeders",
    population: PUBLISHED_POPULATION,
    mix: Mix { connect: 0, announce: 1, scrape: 0 },
    numwant: 50,
    scrape_hashes_max: 10,
};

/// Swarms of equal popularity, mostly of fifty peers or more: the processor's caches do not change a reply's cost.
const EVEN_POPULATION: Population =
    Population { torrents: 2000, peers: 100_000, popularity: Popularity::Uniform, ..PUBLISHED_POPULATION };

const KEEP_ALIVE: ComparisonPreset = ComparisonPreset {
    shape: LoadPreset {
        name: "http-keep-alive",
        summary: "announces over plain HTTP on persistent connections, 2 k torrents, 100 k peers",
        population: EVEN_POPULATION,
        ..ANNOUNCES
    },
    transport: Transport::Http(PLAIN),
    measure: Measure::Load,
    window: 128,
    spinners: 1,
    // So that no address runs out of ports, and no tracker's limit per address is reached.
    sockets: NonZeroUsize::new(32).expect("not zero"),
    // TCP itself retransmits lost segments, and a handshake may have to wait for earlier ones.
    timeout: Duration::from_secs(5),
    latency_rate: 5000.0,
};

const HANDSHAKES: ComparisonPreset = ComparisonPreset {
    shape: LoadPreset {
        name: "https-handshakes",
        summary: "announces, TLS 1.3 with a full handshake for each, 2 k torrents, 20 k peers",
        population: Population { peers: 20_000, ..EVEN_POPULATION },
        ..ANNOUNCES
    },
    transport: Transport::Http(TLS_EACH),
    latency_rate: 500.0,
    ..KEEP_ALIVE
};

const HTTP: [ComparisonPreset; 7] = [
    KEEP_ALIVE,
    ComparisonPreset {
        shape: LoadPreset {
            name: "http-connections",
            summary: "announces over plain HTTP, a connection for each, 2 k torrents, 100 k peers",
            ..KEEP_ALIVE.shape
        },
        transport: Transport::Http(HttpTransport { keep_alive: false, ..PLAIN }),
        spinners: 2,
        latency_rate: 3000.0,
        ..KEEP_ALIVE
    },
    HANDSHAKES,
    ComparisonPreset {
        shape: LoadPreset {
            name: "https-resumption",
            summary: "announces, TLS 1.3 with a resumed session for each, 2 k torrents, 20 k peers",
            ..HANDSHAKES.shape
        },
        transport: Transport::Http(HttpTransport { resumption: true, ..TLS_EACH }),
        ..HANDSHAKES
    },
    ComparisonPreset { shape: ANNOUNCES, ..HANDSHAKES },
    ComparisonPreset {
        shape: LoadPreset {
            name: "http-idle",
            summary: "memory of idle connections, plain",
            ..KEEP_ALIVE.shape
        },
        measure: Measure::Idle { connections: IDLE_CONNECTIONS },
        ..KEEP_ALIVE
    },
    ComparisonPreset {
        shape: LoadPreset {
            name: "https-idle",
            summary: "memory of idle connections, over TLS",
            ..KEEP_ALIVE.shape
        },
        transport: Transport::Http(TLS),
        measure: Measure::Idle { connections: IDLE_CONNECTIONS },
        ..KEEP_ALIVE
    },
];

const fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).expect("no number here is zero")
}

/// The announces of a browser: offers of realistic size, half of which are answered.
const BROWSER: WsTransport = WsTransport {
    tls: false,
    connections: count(1000),
    offers: 10,
    sdp_bytes: 2048,
    answer_share: 0.5,
    announces_per_connection: 0,
    slow_readers: 0,
};

/// The announces of a client on a desktop, as the preset `desktop` of the load has them.
const DESKTOP: WsTransport = WsTransport {
    connections: count(18_000),
    sdp_bytes: 584,
    answer_share: 1.0,
    announces_per_connection: 200,
    ..BROWSER
};

/// Swarms of fifty peers, a quarter of them seeders, so that each of ten offers finds a peer.
const WEBTORRENT: ComparisonPreset = ComparisonPreset {
    shape: LoadPreset {
        name: "webtorrent",
        summary: "WebTorrent over plain WebSockets: 1,000 connections, 10 offers of 2 KB an announce, half of them \
                  answered",
        population: Population { torrents: 20, peers: 1000, ..EVEN_POPULATION },
        numwant: 10,
        ..ANNOUNCES
    },
    transport: Transport::Ws(BROWSER),
    // One announce on each connection, whose reply triggers the next.
    window: 1000,
    // With a slow tracker, the last announce waits for all others.
    timeout: Duration::from_secs(15),
    latency_rate: 200.0,
    ..KEEP_ALIVE
};

/// As many sockets as a limit of 20,000 open files permits, with a hundred torrents each: a tracker with three quarters of 24 GB has
/// half of its default maximum of peers then, and does not ration them yet.
const WEBTORRENT_DESKTOP: ComparisonPreset = ComparisonPreset {
    shape: LoadPreset {
        name: "webtorrent-desktop",
        summary: "WebTorrent over plain WebSockets: 18,000 connections with 100 torrents each, 10 offers of 0.6 KB an announce, all \
                  answered",
        population: Population {
            torrents: 360_000,
            peers: 1_800_000,
            seeder_share: 0.8,
            ..WEBTORRENT.shape.population
        },
        ..WEBTORRENT.shape
    },
    transport: Transport::Ws(DESKTOP),
    ..WEBTORRENT
};

const IDLE_WEB_SOCKETS: usize = 100_000;

const WS: [ComparisonPreset; 10] = [
    ComparisonPreset {
        shape: LoadPreset {
            name: "webtorrent-tls",
            summary: "WebTorrent over TLS 1.3: 1,000 connections, 10 offers of 2 KB an announce, half of them answered",
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(WsTransport { tls: true, ..BROWSER }),
        ..WEBTORRENT
    },
    WEBTORRENT,
    ComparisonPreset {
        shape: LoadPreset {
            name: "webtorrent-small",
            summary: "the same with offers of 256 B, as plain data channels have them",
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(WsTransport { sdp_bytes: 256, ..BROWSER }),
        ..WEBTORRENT
    },
    ComparisonPreset {
        shape: LoadPreset {
            name: "webtorrent-published",
            summary: "WebTorrent over TLS 1.3 as published: 1,020 connections, 200 torrents by a gamma distribution, 10 \
                      offers an announce",
            population: Population { torrents: 200, peers: 1020, ..PUBLISHED_POPULATION },
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(WsTransport { tls: true, connections: count(1020), ..BROWSER }),
        window: 1020,
        ..WEBTORRENT
    },
    ComparisonPreset {
        shape: LoadPreset {
            name: "webtorrent-published-large",
            summary: "the same with 49,152 connections in 10 k torrents; needs a limit on open files above 100,000 (ulimit -n)",
            population: Population { peers: 49_152, ..PUBLISHED_POPULATION },
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(WsTransport { tls: true, connections: count(49_152), ..BROWSER }),
        window: 49_152,
        timeout: Duration::from_secs(30),
        ..WEBTORRENT
    },
    WEBTORRENT_DESKTOP,
    ComparisonPreset {
        shape: LoadPreset {
            name: "webtorrent-desktop-tls",
            summary: "the same over TLS 1.3",
            ..WEBTORRENT_DESKTOP.shape
        },
        transport: Transport::Ws(WsTransport { tls: true, ..DESKTOP }),
        ..WEBTORRENT_DESKTOP
    },
    ComparisonPreset {
        shape: LoadPreset {
            name: "ws-idle",
            summary: "memory of idle WebSockets that announced once, plain",
            ..WEBTORRENT.shape
        },
        measure: Measure::Idle { connections: IDLE_WEB_SOCKETS },
        ..WEBTORRENT
    },
    ComparisonPreset {
        shape: LoadPreset {
            name: "wss-idle",
            summary: "memory of idle WebSockets that announced once, over TLS",
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(WsTransport { tls: true, ..BROWSER }),
        measure: Measure::Idle { connections: IDLE_WEB_SOCKETS },
        ..WEBTORRENT
    },
    ComparisonPreset {
        shape: LoadPreset {
            name: "ws-slow-readers",
            summary: "WebTorrent over plain WebSockets, without and with 1,000 additional connections that never read",
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(WsTransport { slow_readers: 1000, ..BROWSER }),
        ..WEBTORRENT
    },
];

/// Returns every preset. The first one is the default.
pub fn presets() -> impl Iterator<Item = ComparisonPreset> {
    let over_udp = |shape| ComparisonPreset {
        shape,
        transport: Transport::Udp,
        measure: Measure::Load,
        window: 256,
        spinners: 0,
        sockets: NonZeroUsize::new(8).expect("not zero"),
        timeout: Duration::from_secs(1),
        latency_rate: 50_000.0,
    };
    UDP.into_iter().map(over_udp).chain(HTTP).chain(WS)
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset {name:?}: use {names}", names = presets().map(|preset| preset.shape.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownPreset {
    pub name: String,
}

impl ComparisonPreset {
    pub fn find(name: &str) -> Result<Self, UnknownPreset> {
        let found = presets().find(|preset| preset.shape.name == name);
        found.ok_or_else(|| UnknownPreset { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_show_the_protocol() {
        for preset in presets() {
            let name = preset.shape.name;
            assert_eq!(ComparisonPreset::find(name), Ok(preset), "{name}");
            match preset.transport {
                Transport::Udp => assert!(!name.starts_with("http") && !name.starts_with('w'), "{name}"),
                Transport::Http(http) => {
                    assert_eq!(name.starts_with("https-"), http.tls, "{name}");
                    assert!(name.starts_with("http"), "{name}");
                }
                Transport::Ws(ws) => {
                    assert!(name.starts_with("webtorrent") || name.starts_with("ws"), "{name}");
                    let is_secure =
                        ["-tls", "-published", "wss-"].into_iter().any(|part| name.contains(part));
                    assert_eq!(is_secure, ws.tls, "{name}");
                    let peers = usize::try_from(preset.shape.population.peers).unwrap();
                    assert!(peers >= ws.connections.get(), "{name}: each connection has a peer");
                }
            }
        }
        let refused = ComparisonPreset::find("http").unwrap_err().to_string();
        assert!(refused.contains("http-keep-alive") && refused.contains("ten-million"), "{refused}");
    }
}
