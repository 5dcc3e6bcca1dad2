//! The options of a load: a preset, and the options that override it.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use shoal_load::{Mix, Popularity, Preset};

/// The options of a load. Options that are not given are those of the preset.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The load")]
pub(crate) struct ShapeArgs {
    /// A named load: published, published-churn and announces (1,000,000 torrents, 2,000,000 peers), ten-million
    #[arg(long, value_name = "NAME", default_value = "published", value_parser = preset)]
    pub(crate) preset: Preset,

    /// The number of torrents [default: that of the preset]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    torrents: Option<u32>,

    /// The number of peers, over all torrents, which fill the tracker first [default: that of the preset]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) peers: Option<u32>,

    /// The distribution of peers over torrents: uniform, zipf:EXPONENT, pareto:SHAPE, gamma:SHAPE:SCALE or
    /// exponential:HEAD-SHARE:HEAD-WIDTH
    #[arg(long, value_name = "KIND", value_parser = popularity)]
    popularity: Option<Popularity>,

    /// Share of the peers that have all data from the start, 0 to 1
    #[arg(long, value_name = "SHARE")]
    seeders: Option<f64>,

    /// Average number of announces of a peer, from the one that starts to the one that stops. Then another peer replaces
    /// it; 0: peers never leave
    #[arg(long, value_name = "N")]
    announces_per_life: Option<u32>,

    /// Share of the peers that leave without an announce that stops, 0 to 1
    #[arg(long, value_name = "SHARE")]
    vanish: Option<f64>,

    /// Weights of connects, announces and scrapes, such as 50:50:1
    #[arg(long, value_name = "C:A:S", value_parser = mix)]
    mix: Option<Mix>,

    /// The number of peers that an announce asks for; negative: as many as the tracker chooses
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    numwant: Option<i32>,

    /// Most torrents of a scrape; each asks for one to this number
    #[arg(long, value_name = "N")]
    scrape_hashes: Option<usize>,

    /// The seed. The same seed gives the same torrents and peers and the same random choices; the order of peers also
    /// depends on the times of replies
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

impl ShapeArgs {
    /// Returns the preset with all options applied.
    pub(crate) fn load(&self) -> Preset {
        let mut load = self.preset;
        let population = &mut load.population;
        set(&mut population.torrents, self.torrents);
        set(&mut population.peers, self.peers);
        set(&mut population.popularity, self.popularity);
        set(&mut population.seeder_share, self.seeders);
        set(&mut population.announces_per_life, self.announces_per_life);
        set(&mut population.vanish_share, self.vanish);
        set(&mut load.mix, self.mix);
        set(&mut load.numwant, self.numwant);
        set(&mut load.scrape_hashes_max, self.scrape_hashes);
        load
    }
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

fn preset(name: &str) -> Result<Preset> {
    Ok(Preset::find(name)?)
}

fn mix(text: &str) -> Result<Mix> {
    let accepted = "give three whole numbers such as 50:50:1, for connects, announces and scrapes";
    let weights: Vec<u32> = numbers(text, accepted)?;
    let [connect, announce, scrape] = weights[..] else { bail!("{accepted}") };
    Ok(Mix { connect, announce, scrape })
}

pub(crate) fn popularity(text: &str) -> Result<Popularity> {
    let accepted =
        "give uniform, zipf:EXPONENT, pareto:SHAPE, gamma:SHAPE:SCALE or exponential:HEAD-SHARE:HEAD-WIDTH";
    let (kind, parameters) = text.split_once(':').unwrap_or((text, ""));
    let parameters = if parameters.is_empty() { Vec::new() } else { numbers(parameters, accepted)? };
    match (kind, &parameters[..]) {
        ("uniform", []) => Ok(Popularity::Uniform),
        ("zipf", [exponent]) => Ok(Popularity::Zipf { exponent: *exponent }),
        ("pareto", [shape]) => Ok(Popularity::Pareto { shape: *shape }),
        ("gamma", [shape, scale]) => Ok(Popularity::Gamma { shape: *shape, scale: *scale }),
        ("exponential", [head_share, head_width]) => {
            Ok(Popularity::Exponential { head_share: *head_share, head_width: *head_width })
        }
        _ => Err(anyhow!("{accepted}")),
    }
}

fn numbers<N: FromStr>(text: &str, accepted: &'static str) -> Result<Vec<N>> {
    let number = |number: &str| number.parse().ok().context(accepted);
    text.split(':').map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_is_parsed_or_refused() {
        assert_eq!(popularity("uniform").unwrap(), Popularity::Uniform);
        assert_eq!(popularity("zipf:1.1").unwrap(), Popularity::Zipf { exponent: 1.1 });
        assert_eq!(
            popularity("exponential:0.7:0.002").unwrap(),
            Popularity::Exponential { head_share: 0.7, head_width: 0.002 }
        );
        assert_eq!(popularity("gamma:0.2:1").unwrap(), Popularity::Gamma { shape: 0.2, scale: 1.0 });
        for refused in ["", "zipf", "gamma:1", "zipf:", "zipf:x", "pareto:1:2", "normal:1"] {
            assert!(popularity(refused).unwrap_err().to_string().contains("pareto:SHAPE"), "{refused}");
        }
    }

    #[test]
    fn a_mix_is_parsed_or_refused() {
        assert_eq!(mix("1:2:3").unwrap(), Mix { connect: 1, announce: 2, scrape: 3 });
        assert!(mix("1:2").is_err() && mix("1:2:-3").is_err() && mix("1:2:3:4").is_err());
    }
}
