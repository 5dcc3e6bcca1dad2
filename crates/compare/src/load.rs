//! The generator, as a comparison uses it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use shoal_load::{Mix, Pace, Plan, PlanError, Popularity, Population, Preset as Shape, Sources, Stop};
use shoal_net::Backend;

use crate::description::Protocol;
use crate::division::Division;
use crate::preset::Preset;

/// The load of a comparison: the same on every tracker.
#[derive(Clone, Debug)]
pub struct Load {
    /// What carries the requests.
    pub transport: Transport,
    /// What is measured.
    pub measure: Measure,
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
    /// Over UDP, sockets of each worker, each with an address of 127.0.0.0/8 and a port of its own. Over HTTP and
    /// WebSockets, addresses that the connections of each worker come from in turn.
    pub sockets_per_worker: NonZeroUsize,
}

/// What carries the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transport {
    /// Datagrams (BEP 15).
    Udp,
    /// Connections (BEP 3).
    Http(Http),
    /// WebSockets, on which offers and answers are relayed (WebTorrent).
    Ws(Ws),
}

/// How a load over HTTP connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http {
    /// Whether over TLS 1.3.
    pub tls: bool,
    /// Whether connections stay for further requests; otherwise each carries one.
    pub keep_alive: bool,
    /// Whether TLS sessions are resumed; otherwise every handshake is a full one.
    pub resumption: bool,
}

/// A load of WebTorrent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ws {
    /// Whether over TLS 1.3.
    pub tls: bool,
    /// Connections on which peers announce themselves again and again, of all workers of the load together.
    pub connections: NonZeroUsize,
    /// Offers of each announce.
    pub offers: usize,
    /// Bytes of the session description of an offer or answer.
    pub sdp_bytes: usize,
    /// Share of the relayed offers that are answered, 0 to 1.
    pub answer_share: f64,
    /// Connections that announce once and never read again. Where there are some, everything is measured a second time
    /// beside them.
    pub deaf: usize,
}

/// What is measured of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// What requests cost, and how fast they are answered.
    Load,
    /// What connections cost that do nothing.
    Idle {
        /// How many.
        connections: usize,
    },
}

impl Transport {
    /// The protocol that a tracker must have for it.
    #[must_use]
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Udp => Protocol::Udp,
            Self::Http(Http { tls: false, .. }) => Protocol::Http,
            Self::Http(Http { tls: true, .. }) => Protocol::Https,
            Self::Ws(Ws { tls: false, .. }) => Protocol::Ws,
            Self::Ws(Ws { tls: true, .. }) => Protocol::Wss,
        }
    }

    /// Connections that stand while a load goes on, of whatever use, where they are a part of what is compared.
    #[must_use]
    pub fn standing(self) -> usize {
        match self {
            Self::Udp | Self::Http(_) => 0,
            Self::Ws(ws) => ws.connections.get().saturating_add(ws.deaf),
        }
    }

    /// For people.
    fn in_words(self) -> &'static str {
        match self {
            Self::Udp => "UDP over IPv4, loopback",
            Self::Http(Http { tls: false, keep_alive: true, .. }) => {
                "HTTP/1.1 over IPv4, loopback, on connections that stay"
            }
            Self::Http(Http { tls: false, keep_alive: false, .. }) => {
                "HTTP/1.1 over IPv4, loopback, a connection for each request"
            }
            Self::Http(Http { tls: true, keep_alive: true, .. }) => {
                "HTTP/1.1 over TLS 1.3, IPv4, loopback, on connections that stay"
            }
            Self::Http(Http { tls: true, keep_alive: false, resumption: false }) => {
                "HTTP/1.1 over TLS 1.3, IPv4, loopback, a connection with a full handshake for each request"
            }
            Self::Http(Http { tls: true, keep_alive: false, resumption: true }) => {
                "HTTP/1.1 over TLS 1.3, IPv4, loopback, a connection with a resumed session for each request"
            }
            Self::Ws(Ws { tls: false, .. }) => "WebTorrent over WebSockets, IPv4, loopback",
            Self::Ws(Ws { tls: true, .. }) => "WebTorrent over WebSockets, TLS 1.3, IPv4, loopback",
        }
    }
}

impl Load {
    /// What `preset` says, with the usual settings for the rest.
    #[must_use]
    pub fn of(preset: &Preset) -> Self {
        let Shape { population, mix, numwant, scrape_hashes_max, .. } = preset.shape;
        Self {
            transport: preset.transport,
            measure: preset.measure,
            population,
            mix,
            numwant,
            scrape_hashes_max,
            window: preset.window,
            duration: Duration::from_secs(10),
            latency: Some((preset.latency_rate, Duration::from_secs(5))),
            seed: 1,
            io: Backend::Mmsg,
            timeout: preset.timeout,
            sockets_per_worker: preset.sockets,
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

    /// What an echo is given in its place. It relays nothing but says what it is told; so that each message is as long as
    /// one that a tracker relays, an announce has one offer. How fast that is relayed cannot be asked.
    #[must_use]
    pub fn of_ceiling(&self) -> Self {
        match self.transport {
            Transport::Udp | Transport::Http(_) => self.clone(),
            Transport::Ws(ws) => Self {
                transport: Transport::Ws(Ws { offers: ws.offers.min(1), answer_share: 0.0, deaf: 0, ..ws }),
                latency: None,
                ..self.clone()
            },
        }
    }

    /// The same, with so many connections that are never read.
    #[must_use]
    pub fn beside_deaf(&self, deaf: usize) -> Self {
        match self.transport {
            Transport::Udp | Transport::Http(_) => self.clone(),
            Transport::Ws(ws) => Self { transport: Transport::Ws(Ws { deaf, ..ws }), ..self.clone() },
        }
    }

    /// Whether it is possible on a tracker at `target`.
    ///
    /// # Errors
    /// With the setting, what it is, and what it could be.
    pub fn check(&self, target: SocketAddr, division: &Division) -> Result<(), PlanError> {
        match self.measure {
            Measure::Load => self.plan(target, division, true).check(),
            Measure::Idle { .. } => Ok(()),
        }
    }

    /// The closed loop. What is in flight goes by the tracker, whose sockets it waits in, so the workers share it.
    #[must_use]
    pub fn closed(&self, division: &Division) -> (Pace, Stop) {
        let stop = Stop { after: Some(self.duration), requests: None };
        (Pace::Closed { window: self.window_of_worker(division).get() }, stop)
    }

    /// Requests in flight in the closed loop, of each worker; over HTTP each has a connection.
    #[must_use]
    pub fn window_of_worker(&self, division: &Division) -> NonZeroUsize {
        let in_flight = self.window * division.tracker.len();
        NonZeroUsize::new(in_flight.div_ceil(division.load.len().max(1))).unwrap_or(NonZeroUsize::MIN)
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
        let transport = row("protocol", self.transport.in_words().to_owned());
        if let Measure::Idle { connections } = self.measure {
            let announced = match self.transport {
                Transport::Ws(_) => "each has carried one announce, of a peer of its own, 50 to a torrent",
                _ => "each has carried one announce, of the same peer, and waits for another",
            };
            return vec![transport, row("connections", format!("{connections}: {announced}"))];
        }
        let mix = match self.transport {
            Transport::Udp => {
                ("connects : announces : scrapes", format!("{connect} : {announce} : {scrape}"))
            }
            Transport::Http(_) | Transport::Ws(_) => {
                ("announces : scrapes", format!("{announce} : {scrape}"))
            }
        };
        let mut rows = vec![
            transport,
            row(mix.0, mix.1),
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
        ];
        let sockets = self.sockets_per_worker;
        match self.transport {
            Transport::Udp => {
                let each = format!("{sockets} for each processor of the load");
                rows.push(row("client addresses and ports", each));
                rows.push(row("generator's back end", self.io.to_string()));
            }
            Transport::Http(_) => {
                rows.push(row("client addresses", format!("{sockets} for each processor of the load")));
            }
            Transport::Ws(ws) => {
                rows.push(row("client addresses", format!("{sockets} for each processor of the load")));
                rows.extend(ws.settings());
            }
        }
        rows.push(row("seed", self.seed.to_string()));
        rows
    }
}

impl Ws {
    /// For people: names and values.
    fn settings(self) -> Vec<(String, String)> {
        let row = |name: &str, value: String| (name.to_owned(), value);
        let mut rows = vec![
            row("connections", self.connections.to_string()),
            row("offers of an announce", self.offers.to_string()),
            row("session description", format!("{} bytes", self.sdp_bytes)),
            row("share of offers answered", self.answer_share.to_string()),
        ];
        if self.deaf > 0 {
            let deaf = format!("{} announce once and never read; with and without them", self.deaf);
            rows.push(row("deaf connections", deaf));
        }
        rows
    }
}

fn in_words(popularity: Popularity) -> String {
    match popularity {
        Popularity::Uniform => "uniform".to_owned(),
        Popularity::Zipf { exponent } => format!("Zipf, exponent {exponent}"),
        Popularity::Pareto { shape } => format!("Pareto, shape {shape}"),
        Popularity::Gamma { shape, scale } => format!("gamma, shape {shape}, scale {scale}"),
        Popularity::Exponential { head_share, head_width } => format!(
            "{head_share} of the peers in a head that falls to 1/e within {head_width} of the torrents, the others \
             anywhere"
        ),
    }
}
