//! Loads over WebSockets with a name.

use crate::preset::Preset as Shape;
use crate::{Mix, Popularity, Population};

/// A load over WebSockets with a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Its name, and who asks for what. Where connections are not said otherwise, there is one for each peer.
    pub shape: Shape,
    /// Whether it is by TLS 1.3.
    pub tls: bool,
    /// Offers of each announce.
    pub offers: usize,
    /// Bytes of the session description of an offer or answer.
    pub sdp_bytes: usize,
    /// Share of the offers that are answered.
    pub answer_share: f64,
}

/// The swarms of the published comparison: torrents by a gamma distribution, a quarter of the peers are seeders, and
/// every announce makes ten offers. There are few peers in a torrent, because there are few connections.
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
        },
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        numwant: 10,
        scrape_hashes_max: 10,
    },
    tls: true,
    offers: 10,
    sdp_bytes: 2048,
    answer_share: 0.5,
};

/// Every preset; the first is the default.
pub const PRESETS: [Preset; 4] = [
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
];

impl Preset {
    /// The preset of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|preset| preset.shape.name == name)
    }
}
