//! Named loads over WebSockets.

use std::num::NonZeroUsize;

use crate::preset::Preset as Shape;
use crate::{Mix, Popularity, Population};

/// A named load over WebSockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// The name, the population, and the requests.
    pub shape: Shape,
    /// The number of peers of a connection, each in a torrent of its own.
    pub peers_per_connection: u32,
    /// Whether it uses TLS 1.3.
    pub tls: bool,
    /// The number of offers in an announce.
    pub offers: usize,
    /// The length of the session description in an offer or answer.
    pub sdp_bytes: usize,
    /// The share of relayed offers that are answered, 0 to 1.
    pub answer_share: f64,
    /// See [`WsSettings::announces_per_connection`](super::WsSettings::announces_per_connection).
    pub announces_per_connection: u32,
}

/// The swarms of the published comparison: torrents follow a gamma distribution, a quarter of the peers are seeders,
/// and every announce makes ten offers. A torrent has few peers, because there are few connections.
const PUBLISHED: Preset = Preset {
    shape: Shape {
        name: "wss-published",
        summary: "announces with 10 offers of 2 KB by TLS, 1,020 connections in 200 torrents, half of the offers answered",
        population: Population {
            torrents: 200,
            peers: 1020,
            popularity: Popularity::Gamma { shape: 0.2, scale: 1.0 },
            seeder_share: 0.25,
            announces_per_life: 0,
            vanish_share: 0.0,
        },
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        numwant: 10,
        scrape_hashes_max: 10,
    },
    peers_per_connection: 1,
    tls: true,
    offers: 10,
    sdp_bytes: 2048,
    answer_share: 0.5,
    announces_per_connection: 0,
};

/// Clients on desktops, as libtorrent 2.1 behaves: one WebSocket for all torrents of a client, ten offers in each announce, and
/// all offers answered. Its offers, with one data channel and the candidate of a host, have 584 bytes. Most torrents are complete. A connection ends after two announces of each torrent, such as an hour.
const DESKTOP: Preset = Preset {
    shape: Shape {
        name: "desktop",
        summary: "100 connections by TLS, each of a client with 200 torrents: announces with 10 offers of 0.6 KB, all answered",
        population: Population {
            torrents: 4000,
            peers: 20_000,
            popularity: Popularity::Uniform,
            seeder_share: 0.8,
            ..PUBLISHED.shape.population
        },
        ..PUBLISHED.shape
    },
    peers_per_connection: 200,
    sdp_bytes: 584,
    answer_share: 1.0,
    announces_per_connection: 400,
    ..PUBLISHED
};

/// Every preset; the first is the default.
pub const PRESETS: [Preset; 5] = [
    Preset {
        shape: Shape {
            name: "ws",
            summary: "announces with 10 offers of 2 KB, 256 connections in 20 torrents, half of the offers answered",
            population: Population { torrents: 20, peers: 256, ..PUBLISHED.shape.population },
            ..PUBLISHED.shape
        },
        tls: false,
        ..PUBLISHED
    },
    Preset {
        shape: Shape {
            name: "ws-published",
            summary: "announces with 10 offers of 2 KB, 1,020 connections in 200 torrents, half of the offers answered",
            ..PUBLISHED.shape
        },
        tls: false,
        ..PUBLISHED
    },
    PUBLISHED,
    Preset {
        shape: Shape {
            name: "wss-published-large",
            summary: "announces with 10 offers of 2 KB by TLS, 49,152 connections in 10 k torrents, half of the offers \
                      answered",
            population: Population { torrents: 10_000, peers: 49_152, ..PUBLISHED.shape.population },
            ..PUBLISHED.shape
        },
        ..PUBLISHED
    },
    DESKTOP,
];

impl Preset {
    /// Returns the preset of this name.
    pub fn find(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|preset| preset.shape.name == name)
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> NonZeroUsize {
        let connections = self.shape.population.peers / self.peers_per_connection.max(1);
        usize::try_from(connections).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
    }
}
