//! Which torrents are chosen, and how often.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp1, Gamma, Pareto, Zipf};

use crate::{Popularity, Population};

/// Draws torrents by their popularity.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    torrents: u32,
    by: By,
}

#[derive(Clone, Debug)]
enum By {
    Uniform,
    Zipf(Zipf<f64>),
    Pareto(Pareto<f64>),
    /// Draws places, that is, shares of the way times the number of torrents.
    Gamma(Gamma<f64>),
    Exponential {
        head_share: f64,
        head_torrents: f64,
    },
}

impl Chooser {
    /// `population` has passed [`crate::Plan::check`].
    pub(crate) fn new(population: &Population) -> Self {
        let torrents = population.torrents;
        let by = match population.popularity {
            Popularity::Uniform => By::Uniform,
            Popularity::Zipf { exponent } => {
                By::Zipf(Zipf::new(f64::from(torrents), exponent).expect("the plan was checked"))
            }
            Popularity::Pareto { shape } => {
                By::Pareto(Pareto::new(1.0, shape).expect("the plan was checked"))
            }
            Popularity::Gamma { shape, scale } => {
                let scale = scale * f64::from(torrents);
                By::Gamma(Gamma::new(shape, scale).expect("the plan was checked"))
            }
            Popularity::Exponential { head_share, head_width } => {
                By::Exponential { head_share, head_torrents: head_width * f64::from(torrents) }
            }
        };
        Self { torrents, by }
    }

    pub(crate) fn choose(&self, random: &mut SmallRng) -> u32 {
        match &self.by {
            By::Uniform => self.uniform(random),
            By::Zipf(zipf) => self.fold(zipf.sample(random) - 1.0),
            By::Pareto(pareto) => self.fold(pareto.sample(random) - 1.0),
            By::Gamma(gamma) => self.fold(gamma.sample(random)),
            By::Exponential { head_share, head_torrents } => {
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

    /// The torrent at this place, counted around and around.
    fn fold(&self, place: f64) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "places are not negative, and beyond 2^64 any torrent will do"
        )]
        let torrent = place as u64 % u64::from(self.torrents);
        u32::try_from(torrent).expect("it is below a u32")
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// How many of 100,000 draws from 1,000 torrents fall on the first one and on the first ten.
    fn head(popularity: Popularity) -> (u32, u32) {
        let population =
            Population { torrents: 1000, peers: 1, popularity, seeder_share: 0.5, announces_per_life: 0 };
        let (chooser, mut random) = (Chooser::new(&population), SmallRng::seed_from_u64(1));
        let drawn: Vec<u32> = (0..100_000).map(|_| chooser.choose(&mut random)).collect();
        assert!(drawn.iter().all(|torrent| *torrent < 1000));
        let below = |end| u32::try_from(drawn.iter().filter(|torrent| **torrent < end).count()).unwrap();
        (below(1), below(10))
    }

    #[track_caller]
    fn assert_near(found: u32, expected: f64) {
        // Five deviations of a count that large.
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

        // P(X < 2) = 1 - 1/2, P(X < 11) = 1 - 1/11, and a little that was folded back.
        let (first, ten) = head(Popularity::Pareto { shape: 1.0 });
        assert_near(first, 100_000.0 * 0.5);
        assert_near(ten, 100_000.0 * 10.0 / 11.0);

        // Shape 1 is an exponential distribution: 1 - e^-(1/50) and 1 - e^-(10/50), and next to nothing folded back.
        let (first, ten) = head(Popularity::Gamma { shape: 1.0, scale: 0.05 });
        assert_near(first, 100_000.0 * 0.019_801);
        assert_near(ten, 100_000.0 * 0.181_27);

        // A head of 10 torrents' width that takes half: 1 - e^-0.1 and 1 - e^-1 of it, and a uniform rest.
        let (first, ten) = head(Popularity::Exponential { head_share: 0.5, head_width: 0.01 });
        assert_near(first, 50_000.0 * 0.095_163 + 50.0);
        assert_near(ten, 50_000.0 * 0.632_12 + 500.0);
    }
}
