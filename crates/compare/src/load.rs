//! The generator, as a comparison uses it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use shoal_load::{Mix, Pace, Plan, Popularity, Population, Preset, Sources, Stop};
use shoal_net::Backend;

use crate::division::Division;

/// The load of a comparison: the same on every tracker.
#[derive(Clone, Debug)]
pub struct Load {
    /// Torrents and peers.
    pub population: Population,
    /// How often each kind of request is made.
    pub mix: Mix,
    /// Peers that an announce asks for.
    pub numwant: i32,
    /// Most info hashes of a scrape.
    pub scrape_hashes_max: usize,
    /// Requests in flight in the closed loop, for each processor of the tracker.
    pub window: usize,
    /// How long the closed loop lasts.
    pub duration: Duration,
    /// Requests a second of the open loop, and how long it lasts, if there is one.
    pub latency: Option<(f64, Duration)>,
    /// The same seed makes the same load.
    pub seed: u64,
    /// What moves the generator's datagrams.
    pub io: Backend,
    /// After so long without a reply a request counts as lost.
    pub timeout: Duration,
    /// Sockets of each worker, each with an address of 127.0.0.0/8 and a port of its own.
    pub sockets_per_worker: NonZeroUsize,
}

impl Load {
    /// What `preset` says, with the usual settings for the rest.
    #[must_use]
    pub fn of(preset: &Preset) -> Self {
        Self {
            population: preset.population,
            mix: preset.mix,
            numwant: preset.numwant,
            scrape_hashes_max: preset.scrape_hashes_max,
            window: 256,
            duration: Duration::from_secs(10),
            latency: Some((50_000.0, Duration::from_secs(5))),
            seed: 1,
            io: Backend::Mmsg,
            timeout: Duration::from_secs(1),
            sockets_per_worker: NonZeroUsize::new(8).expect("not zero"),
        }
    }

    /// The plan for one tracker.
    #[must_use]
    pub fn plan(&self, target: SocketAddr, division: &Division, own_address_is_wrong: bool) -> Plan {
        let workers: Vec<_> = division.load.iter().map(|processor| Some(*processor)).collect();
        let sockets = self
            .sockets_per_worker
            .saturating_mul(NonZeroUsize::new(workers.len()).unwrap_or(NonZeroUsize::MIN));
        Plan {
            target,
            population: self.population,
            mix: self.mix,
            numwant: self.numwant,
            scrape_hashes_max: self.scrape_hashes_max,
            sources: Sources {
                // Not the address of the tracker, which is the first of the loopback network.
                first: IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1)),
                addresses: sockets,
                sockets_per_worker: self.sockets_per_worker,
            },
            workers,
            seed: self.seed,
            io: self.io,
            timeout: self.timeout,
            own_address_is_wrong,
        }
    }

    /// The closed loop. What is in flight goes by the tracker, whose sockets it waits in, so the workers share it.
    #[must_use]
    pub fn closed(&self, division: &Division) -> (Pace, Stop) {
        let in_flight = self.window * division.tracker.len();
        let stop = Stop { after: Some(self.duration), requests: None };
        (Pace::Closed { window: in_flight.div_ceil(division.load.len().max(1)) }, stop)
    }

    /// The open loop, if there is one.
    #[must_use]
    pub fn open(&self) -> Option<(Pace, Stop)> {
        let (rate, duration) = self.latency?;
        Some((Pace::Open { rate }, Stop { after: Some(duration), requests: None }))
    }

    /// All of it for people: names and values.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let Mix { connect, announce, scrape } = self.mix;
        let Population { torrents, peers, popularity, seeder_share, announces_per_life } = self.population;
        let lives = if announces_per_life == 0 {
            "peers never leave".to_owned()
        } else {
            format!("{announces_per_life} announces on average, then another peer takes its place")
        };
        let latency = self.latency.map_or("none".to_owned(), |(rate, duration)| {
            format!("{rate} requests a second for {} s", duration.as_secs_f64())
        });
        let row = |name: &str, value: String| (name.to_owned(), value);
        vec![
            row("protocol", "UDP over IPv4, loopback".into()),
            row("connects : announces : scrapes", format!("{connect} : {announce} : {scrape}")),
            row("torrents", torrents.to_string()),
            row("peers", peers.to_string()),
            row("popularity", in_words(popularity)),
            row("seeder share", seeder_share.to_string()),
            row("lives of peers", lives),
            row("peers wanted", self.numwant.to_string()),
            row("hashes in a scrape", format!("1 to {}", self.scrape_hashes_max)),
            row(
                "closed loop",
                format!(
                    "{} in flight for each processor of the tracker, {} s",
                    self.window,
                    self.duration.as_secs_f64()
                ),
            ),
            row("open loop", latency),
            row("lost after", format!("{} ms", self.timeout.as_millis())),
            row(
                "client addresses and ports",
                format!("{} for each processor of the load", self.sockets_per_worker),
            ),
            row("generator's back end", self.io.to_string()),
            row("seed", self.seed.to_string()),
        ]
    }
}

fn in_words(popularity: Popularity) -> String {
    match popularity {
        Popularity::Uniform => "uniform".to_owned(),
        Popularity::Zipf { exponent } => format!("Zipf, exponent {exponent}"),
        Popularity::Pareto { shape } => format!("Pareto, shape {shape}"),
        Popularity::Exponential { head_share, head_width } => format!(
            "{head_share} of the peers in a head that falls to 1/e within {head_width} of the torrents, the others \
             anywhere"
        ),
    }
}
