//! Comparisons with a name: a load, what carries it, and what is measured.

use std::num::NonZeroUsize;
use std::time::Duration;

use shoal_load::{Mix, PRESETS as UDP, Popularity, Population, Preset as Shape};

use crate::load::{Http, Measure, Transport, Ws};

/// A comparison with a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Its name, and who asks for what.
    pub shape: Shape,
    /// What carries the requests.
    pub transport: Transport,
    /// What is measured.
    pub measure: Measure,
    /// Requests in flight in the closed loop, for each processor of the tracker; over HTTP each has a connection, and
    /// over WebSockets there is no more than one on a connection.
    pub window: usize,
    /// Sockets of each worker of the load; over HTTP and WebSockets, addresses that its connections come from.
    pub sockets: NonZeroUsize,
    /// After so long without a reply a request counts as lost.
    pub timeout: Duration,
    /// Requests a second of the open loop: so few that every tracker keeps up.
    pub latency_rate: f64,
}

/// Connections that do nothing, unless somebody wants another number of them.
const IDLE_CONNECTIONS: usize = 10_000;

const PLAIN: Http = Http { tls: false, keep_alive: true, resumption: false };
const TLS: Http = Http { tls: true, ..PLAIN };
const TLS_EACH: Http = Http { keep_alive: false, ..TLS };

/// The swarms of the published comparison of HTTP trackers: ten thousand torrents, a few of which have nearly all peers,
/// of whom a quarter are seeders. There every announce came from another peer; here there are so many that the swarms
/// hold more than a reply has room for, and so few that a tracker with handshakes is filled within a minute.
const PUBLISHED_POPULATION: Population = Population {
    torrents: 10_000,
    peers: 20_000,
    popularity: Popularity::Gamma { shape: 0.2, scale: 1.0 },
    seeder_share: 0.25,
    announces_per_life: 0,
};

const ANNOUNCES: Shape = Shape {
    name: "https-published",
    summary: "announces, TLS 1.3 with a handshake for each, 10 k torrents, a quarter of the peers seeders",
    population: PUBLISHED_POPULATION,
    mix: Mix { connect: 0, announce: 1, scrape: 0 },
    numwant: 50,
    scrape_hashes_max: 10,
};

/// A popularity without a head, and peers enough for fifty in most swarms: what a reply costs does not go by what a
/// processor's caches hold.
const EVEN_POPULATION: Population =
    Population { torrents: 2000, peers: 100_000, popularity: Popularity::Uniform, ..PUBLISHED_POPULATION };

const KEEP_ALIVE: Preset = Preset {
    shape: Shape {
        name: "http-keep-alive",
        summary: "announces over plain HTTP on connections that stay, 2 k torrents, 100 k peers",
        population: EVEN_POPULATION,
        ..ANNOUNCES
    },
    transport: Transport::Http(PLAIN),
    measure: Measure::Load,
    window: 128,
    // So that the ports of no address are used up, and a tracker's limit for one address is not met.
    sockets: NonZeroUsize::new(32).expect("not zero"),
    // TCP itself says again what was lost, and a handshake may have to wait for those before it.
    timeout: Duration::from_secs(5),
    latency_rate: 5000.0,
};

const HANDSHAKES: Preset = Preset {
    shape: Shape {
        name: "https-handshakes",
        summary: "announces, TLS 1.3 with a full handshake for each, 2 k torrents, 20 k peers",
        population: Population { peers: 20_000, ..EVEN_POPULATION },
        ..ANNOUNCES
    },
    transport: Transport::Http(TLS_EACH),
    latency_rate: 500.0,
    ..KEEP_ALIVE
};

const HTTP: [Preset; 7] = [
    KEEP_ALIVE,
    Preset {
        shape: Shape {
            name: "http-connections",
            summary: "announces over plain HTTP, a connection for each, 2 k torrents, 100 k peers",
            ..KEEP_ALIVE.shape
        },
        transport: Transport::Http(Http { keep_alive: false, ..PLAIN }),
        latency_rate: 3000.0,
        ..KEEP_ALIVE
    },
    HANDSHAKES,
    Preset {
        shape: Shape {
            name: "https-resumption",
            summary: "announces, TLS 1.3 with a resumed session for each, 2 k torrents, 20 k peers",
            ..HANDSHAKES.shape
        },
        transport: Transport::Http(Http { resumption: true, ..TLS_EACH }),
        ..HANDSHAKES
    },
    Preset { shape: ANNOUNCES, ..HANDSHAKES },
    Preset {
        shape: Shape {
            name: "http-idle",
            summary: "memory of connections that stay and do nothing, plain",
            ..KEEP_ALIVE.shape
        },
        measure: Measure::Idle { connections: IDLE_CONNECTIONS },
        ..KEEP_ALIVE
    },
    Preset {
        shape: Shape {
            name: "https-idle",
            summary: "memory of connections that stay and do nothing, over TLS",
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

/// What a browser says: offers of the size that they have there, of which half are answered.
const TRADE: Ws =
    Ws { tls: false, connections: count(1000), offers: 10, sdp_bytes: 2048, answer_share: 0.5, deaf: 0 };

/// Swarms of fifty, so that each of ten offers finds somebody, of whom a quarter are seeders.
const WEBTORRENT: Preset = Preset {
    shape: Shape {
        name: "webtorrent",
        summary: "WebTorrent over plain WebSockets: 1,000 connections, 10 offers of 2 KB an announce, half of them \
                  answered",
        population: Population { torrents: 20, peers: 1000, ..EVEN_POPULATION },
        numwant: 10,
        ..ANNOUNCES
    },
    transport: Transport::Ws(TRADE),
    // One announce on each connection, whose reply calls for the next.
    window: 1000,
    // Of a slow tracker the last of them has to wait for all others.
    timeout: Duration::from_secs(15),
    latency_rate: 200.0,
    ..KEEP_ALIVE
};

/// Connections that do nothing, where there may be as many as a tracker of browsers holds.
const IDLE_WEB_SOCKETS: usize = 100_000;

const WS: [Preset; 8] = [
    Preset {
        shape: Shape {
            name: "webtorrent-tls",
            summary: "WebTorrent by TLS 1.3: 1,000 connections, 10 offers of 2 KB an announce, half of them answered",
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(Ws { tls: true, ..TRADE }),
        ..WEBTORRENT
    },
    WEBTORRENT,
    Preset {
        shape: Shape {
            name: "webtorrent-small",
            summary: "the same with offers of 256 B, as mere data channels make them",
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(Ws { sdp_bytes: 256, ..TRADE }),
        ..WEBTORRENT
    },
    Preset {
        shape: Shape {
            name: "webtorrent-published",
            summary: "WebTorrent by TLS 1.3 as published: 1,020 connections, 200 torrents by a gamma distribution, 10 \
                      offers an announce",
            population: Population { torrents: 200, peers: 1020, ..PUBLISHED_POPULATION },
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(Ws { tls: true, connections: count(1020), ..TRADE }),
        window: 1020,
        ..WEBTORRENT
    },
    Preset {
        shape: Shape {
            name: "webtorrent-published-large",
            summary: "the same with 49,152 connections in 10 k torrents; takes a limit on open files above 100,000 (ulimit -n)",
            population: Population { peers: 49_152, ..PUBLISHED_POPULATION },
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(Ws { tls: true, connections: count(49_152), ..TRADE }),
        window: 49_152,
        timeout: Duration::from_secs(30),
        ..WEBTORRENT
    },
    Preset {
        shape: Shape {
            name: "ws-idle",
            summary: "memory of WebSockets that announced once and do nothing, plain",
            ..WEBTORRENT.shape
        },
        measure: Measure::Idle { connections: IDLE_WEB_SOCKETS },
        ..WEBTORRENT
    },
    Preset {
        shape: Shape {
            name: "wss-idle",
            summary: "memory of WebSockets that announced once and do nothing, over TLS",
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(Ws { tls: true, ..TRADE }),
        measure: Measure::Idle { connections: IDLE_WEB_SOCKETS },
        ..WEBTORRENT
    },
    Preset {
        shape: Shape {
            name: "ws-deaf",
            summary: "WebTorrent over plain WebSockets, without and with 1,000 connections more that are never read",
            ..WEBTORRENT.shape
        },
        transport: Transport::Ws(Ws { deaf: 1000, ..TRADE }),
        ..WEBTORRENT
    },
];

/// Every preset; the first is the default.
pub fn presets() -> impl Iterator<Item = Preset> {
    UDP.into_iter().map(over_udp).chain(HTTP).chain(WS)
}

/// A load over UDP, as it is usually measured.
fn over_udp(shape: Shape) -> Preset {
    Preset {
        shape,
        transport: Transport::Udp,
        measure: Measure::Load,
        window: 256,
        sockets: NonZeroUsize::new(8).expect("not zero"),
        timeout: Duration::from_secs(1),
        latency_rate: 50_000.0,
    }
}

/// No preset has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset {name:?}: use {names}", names = presets().map(|preset| preset.shape.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownPreset {
    /// What was asked for.
    pub name: String,
}

impl Preset {
    /// The preset of this name.
    ///
    /// # Errors
    /// Where there is none, with the names that there are.
    pub fn find(name: &str) -> Result<Self, UnknownPreset> {
        let found = presets().find(|preset| preset.shape.name == name);
        found.ok_or_else(|| UnknownPreset { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_one_preset_and_tell_the_protocol() {
        for preset in presets() {
            let name = preset.shape.name;
            assert_eq!(Preset::find(name), Ok(preset), "{name}");
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
        let refused = Preset::find("http").unwrap_err().to_string();
        assert!(refused.contains("http-keep-alive") && refused.contains("ten-million"), "{refused}");
    }
}
