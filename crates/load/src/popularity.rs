//! Draws torrents by their popularity.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp1, Gamma, Pareto, Zipf};

use crate::{Popularity, Population};

#[derive(Clone, Debug)]
pub(crate) struct TorrentDistribution {
    torrents: u32,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    Zipf(Zipf<f64>),
    Pareto(Pareto<f64>),
    /// Draws numbers of torrents.
    Gamma(Gamma<f64>),
    Exponential {
        head_share: f64,
        head_torrents: f64,
    },
}

impl TorrentDistribution {
    /// Returns the distribution of a population that has passed [`crate::Plan::check`].
    pub(crate) fn new(population: &Population) -> Self {
        let torrents = population.torrents;
        let shape = match population.popularity {
            Popularity::Uniform => Shape::Uniform,
            Popularity::Zipf { exponent } => {
                Shape::Zipf(Zipf::new(f64::from(torrents), exponent).expect("the plan was checked"))
            }
            Popularity::Pareto { shape } => {
                Shape::Pareto(Pareto::new(1.0, shape).expect("the plan was checked"))
            }
            Popularity::Gamma { shape, scale } => {
                let scale = scale * f64::from(torrents);
                Shape::Gamma(Gamma::new(shape, scale).expect("the plan was checked"))
            }
            Popularity::Exponential { head_share, head_width } => {
                Shape::Exponential { head_share, head_torrents: head_width * f64::from(torrents) }
            }
        };
        Self { torrents, shape }
    }

    pub(crate) fn draw(&self, random: &mut SmallRng) -> u32 {
        match &self.shape {
            Shape::Uniform => self.uniform(random),
            Shape::Zipf(zipf) => self.fold(zipf.sample(random) - 1.0),
            Shape::Pareto(pareto) => self.fold(pareto.sample(random) - 1.0),
            Shape::Gamma(gamma) => self.fold(gamma.sample(random)),
            Shape::Exponential { head_share, head_torrents } => {
                if random.random::<f64>() < *head_share {
                    let distance: f64 = Exp1.sample(random);
                    self.fold(distance * head_torrents)
                } else {
                    self.uniform(random)
                }
            }
        }
    }

    fn uniform(&self, random: &mut impl Rng) -> u32 {
        random.random_range(0..self.torrents)
    }

    /// Returns the torrent with this number, modulo the number of torrents.
    fn fold(&self, number: f64) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "numbers are not negative, and beyond 2^64 any torrent will do"
        )]
        let torrent = number as u64 % u64::from(self.torrents);
        u32::try_from(torrent).expect("it is below a u32")
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// Returns how many of 100,000 draws from 1,000 torrents fall on the first one and on the first ten.
    fn head(popularity: Popularity) -> (u32, u32) {
        let population = Population {
            torrents: 1000,
            peers: 1,
            popularity,
            seeder_share: 0.5,
            announces_per_life: 0,
            vanish_share: 0.0,
        };
        let (distribution, mut random) = (TorrentDistribution::new(&population), SmallRng::seed_from_u64(1));
        let drawn: Vec<u32> = (0..100_000).map(|_| distribution.draw(&mut random)).collect();
        assert!(drawn.iter().all(|torrent| *torrent < 1000));
        let below = |end| u32::try_from(drawn.iter().filter(|torrent| **torrent < end).count()).unwrap();
        (below(1), below(10))
    }

    #[track_caller]
    fn assert_near(found: u32, expected: f64) {
        // Five standard deviations.
        assert!((f64::from(found) - expected).abs() < 5.0 * expected.sqrt(), "{found} for {expected}");
    }

    #[test]
    fn each_kind_has_its_share_at_the_head() {
        let (first, ten) = head(Popularity::Uniform);
        assert_near(first, 100.0);
        assert_near(ten, 1000.0);

        // The 1000th harmonic number is 7.4855, the 10th 2.9290.
        let (first, ten) = head(Popularity::Zipf { exponent: 1.0 });
        assert_near(first, 100_000.0 / 7.4855);
        assert_near(ten, 100_000.0 * 2.929 / 7.4855);

        // P(X < 2) = 1 - 1/2, P(X < 11) = 1 - 1/11, and a little that is folded.
        let (first, ten) = head(Popularity::Pareto { shape: 1.0 });
        assert_near(first, 100_000.0 * 0.5);
        assert_near(ten, 100_000.0 * 10.0 / 11.0);

        // Shape 1 is an exponential distribution: 1 - e^-(1/50) and 1 - e^-(10/50), and next to nothing is folded.
        let (first, ten) = head(Popularity::Gamma { shape: 1.0, scale: 0.05 });
        assert_near(first, 100_000.0 * 0.019_801);
        assert_near(ten, 100_000.0 * 0.181_27);

        // A head of width 10 that takes half: 1 - e^-0.1 and 1 - e^-1 of it, and a uniform rest.
        let (first, ten) = head(Popularity::Exponential { head_share: 0.5, head_width: 0.01 });
        assert_near(first, 50_000.0 * 0.095_163 + 50.0);
        assert_near(ten, 50_000.0 * 0.632_12 + 500.0);
    }
}
