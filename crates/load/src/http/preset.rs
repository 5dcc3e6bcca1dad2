//! Named loads over HTTP.

use super::Reuse;
use crate::preset::Preset as Shape;
use crate::{Mix, Popularity, Population};

/// A named load over HTTP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// The name, the population, and the requests.
    pub shape: Shape,
    /// Whether it uses TLS 1.3.
    pub tls: bool,
    /// How many requests a connection carries.
    pub reuse: Reuse,
}

/// The swarms of the published comparison: ten thousand torrents, a few of which have nearly all peers. A quarter of
/// the peers are seeders. In the published comparison, every announce came from another peer. Here there are enough
/// peers for most replies to be full.
const PUBLISHED: Shape = Shape {
    name: "https-published",
    summary: "announces, a connection and handshake for each, 10 k torrents, 20 k peers, 50 peers wanted",
    population: Population {
        torrents: 10_000,
        peers: 20_000,
        popularity: Popularity::Gamma { shape: 0.2, scale: 1.0 },
        seeder_share: 0.25,
        announces_per_life: 0,
        vanish_share: 0.0,
    },
    mix: Mix { connect: 0, announce: 1, scrape: 0 },
    numwant: 50,
    scrape_hashes_max: 10,
};

/// Every preset; the first is the default.
pub const PRESETS: [Preset; 2] = [
    Preset {
        shape: Shape {
            name: "http",
            summary: "announces on connections that stay, 10 k torrents, 20 k peers, 50 peers wanted",
            ..PUBLISHED
        },
        tls: false,
        reuse: Reuse::KeepAlive,
    },
    Preset { shape: PUBLISHED, tls: true, reuse: Reuse::PerRequest },
];

impl Preset {
    /// Returns the preset of this name.
    pub fn find(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|preset| preset.shape.name == name)
    }
}
