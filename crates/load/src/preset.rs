//! Named loads, so that results can be compared.

use crate::plan::{Mix, Popularity, Population};

/// A named load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// The name, in lower case with hyphens.
    pub name: &'static str,
    /// The load in one line.
    pub summary: &'static str,
    /// See [`Plan::population`](crate::Plan::population).
    pub population: Population,
    /// See [`Plan::mix`](crate::Plan::mix).
    pub mix: Mix,
    /// See [`Plan::numwant`](crate::Plan::numwant).
    pub numwant: i32,
    /// See [`Plan::scrape_hashes_max`](crate::Plan::scrape_hashes_max).
    pub scrape_hashes_max: usize,
}

/// The swarms of the published comparisons: some torrents are much more popular than most, three quarters of the
/// peers are seeders, and no peer leaves.
const PUBLISHED_POPULATION: Population = Population {
    torrents: 1_000_000,
    peers: 2_000_000,
    popularity: Popularity::Exponential { head_share: 0.727, head_width: 0.002 },
    seeder_share: 0.75,
    announces_per_life: 0,
    vanish_share: 0.0,
};

const PUBLISHED: Preset = Preset {
    name: "published",
    summary: "50 connects : 50 announces : 1 scrape, 1 M torrents, 2 M peers, 30 peers wanted",
    population: PUBLISHED_POPULATION,
    mix: Mix { connect: 50, announce: 50, scrape: 1 },
    numwant: 30,
    scrape_hashes_max: 10,
};

/// Every preset; the first is the default.
pub const PRESETS: [Preset; 4] = [
    PUBLISHED,
    Preset {
        name: "published-churn",
        summary: "the same with churn: a peer announces 8 times on average, then another replaces it; a quarter vanish",
        population: Population { announces_per_life: 8, vanish_share: 0.25, ..PUBLISHED_POPULATION },
        ..PUBLISHED
    },
    Preset {
        name: "announces",
        summary: "announces only, 1 M torrents, 2 M peers, 30 peers wanted",
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        ..PUBLISHED
    },
    Preset {
        name: "ten-million",
        summary: "50 connects : 50 announces : 1 scrape, 10 M torrents, 20 M peers, 30 peers wanted",
        population: Population { torrents: 10_000_000, peers: 20_000_000, ..PUBLISHED_POPULATION },
        ..PUBLISHED
    },
];

/// There is no preset of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset {0:?}: use {names}", names = PRESETS.map(|preset| preset.name).join(", "))]
pub struct UnknownPreset(pub String);

impl Preset {
    /// Returns the preset of this name.
    pub fn find(name: &str) -> Result<Self, UnknownPreset> {
        let found = PRESETS.into_iter().find(|preset| preset.name == name);
        found.ok_or_else(|| UnknownPreset(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_name() {
        for preset in PRESETS {
            assert_eq!(Preset::find(preset.name), Ok(preset));
        }
        let refused = Preset::find("publishd").unwrap_err().to_string();
        assert!(refused.contains("ten-million"), "{refused}");
    }
}
