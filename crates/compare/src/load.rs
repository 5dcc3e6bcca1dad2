//! The load of a comparison. `preset` has the named ones.

pub mod preset;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use shoal_load::{Mix, Pace, Plan, PlanError, Popularity, Population, Preset as LoadPreset, Sources, Stop};
use shoal_net::Backend;

use self::preset::ComparisonPreset;
use crate::cpu_assignment::CpuAssignment;
use crate::description::Protocol;
use crate::network::NetworkKind;

/// The load of a comparison, the same for every tracker.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    pub transport: Transport,
    pub measure: Measure,
    pub population: Population,
    pub mix: Mix,
    pub numwant: i32,
    pub scrape_hashes_max: usize,
    /// Requests in flight in the closed loop, for each processor of the tracker.
    pub window: usize,
    /// Threads that spin on each processor of the tracker during the closed loop, and take a share of it.
    pub spinners: usize,
    pub duration: Duration,
    /// Requests a second in the open loop, and how long it lasts, if there is one.
    pub latency: Option<(f64, Duration)>,
    pub seed: u64,
    pub io: Backend,
    pub timeout: Duration,
    pub network: NetworkKind,
    /// Whether the closed loop over UDP runs at the driver hook of the generator's interface, instead of behind sockets.
    pub at_driver: bool,
    /// Over UDP: sockets of each worker, each with its own address and its own port. Over HTTP and
    /// WebSockets: addresses from which the connections of each worker come in turn.
    pub sockets_per_worker: NonZeroUsize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transport {
    /// Datagrams (BEP 15).
    Udp,
    /// HTTP connections (BEP 3).
    Http(HttpTransport),
    /// WebSockets, on which offers and answers are relayed (WebTorrent).
    Ws(WsTransport),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTransport {
    /// Whether they use TLS 1.3.
    pub tls: bool,
    /// Whether they stay open for further requests. Otherwise each carries one request.
    pub keep_alive: bool,
    /// Whether TLS sessions are resumed. Otherwise every handshake is a full one.
    pub resumption: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WsTransport {
    /// Whether they use TLS 1.3.
    pub tls: bool,
    /// The number of connections on which peers announce repeatedly, of all workers together.
    pub connections: NonZeroUsize,
    pub offers: usize,
    pub sdp_bytes: usize,
    /// Share of the relayed offers that are answered, 0 to 1.
    pub answer_share: f64,
    /// The average number of announces on a connection, after which it is closed and opened again. 0: never.
    pub announces_per_connection: u32,
    /// Connections that announce once and never read again. If there are any, all is measured a second time with them.
    pub slow_readers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Load,
    Idle { connections: usize },
}

impl Transport {
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Udp => Protocol::Udp,
            Self::Http(HttpTransport { tls: false, .. }) => Protocol::Http,
            Self::Http(HttpTransport { tls: true, .. }) => Protocol::Https,
            Self::Ws(WsTransport { tls: false, .. }) => Protocol::Ws,
            Self::Ws(WsTransport { tls: true, .. }) => Protocol::Wss,
        }
    }

    /// Returns the number of connections that stay open during the load, if they are part of the comparison.
    pub fn open_connections(self) -> usize {
        match self {
            Self::Udp | Self::Http(_) => 0,
            Self::Ws(ws) => ws.connections.get().saturating_add(ws.slow_readers),
        }
    }

    fn description(self, network: NetworkKind) -> &'static str {
        match self {
            Self::Udp if network == NetworkKind::Veth => {
                "UDP over IPv4, a pair of virtual Ethernet interfaces between two network namespaces; the receive work of each \
                 side is done on its own processor"
            }
            Self::Udp => "UDP over IPv4, loopback",
            Self::Http(HttpTransport { tls: false, keep_alive: true, .. }) => {
                "HTTP/1.1 over IPv4, loopback, on persistent connections"
            }
            Self::Http(HttpTransport { tls: false, keep_alive: false, .. }) => {
                "HTTP/1.1 over IPv4, loopback, a connection for each request"
            }
            Self::Http(HttpTransport { tls: true, keep_alive: true, .. }) => {
                "HTTP/1.1 over TLS 1.3, IPv4, loopback, on persistent connections"
            }
            Self::Http(HttpTransport { tls: true, keep_alive: false, resumption: false }) => {
                "HTTP/1.1 over TLS 1.3, IPv4, loopback, a connection with a full handshake for each request"
            }
            Self::Http(HttpTransport { tls: true, keep_alive: false, resumption: true }) => {
                "HTTP/1.1 over TLS 1.3, IPv4, loopback, a connection with a resumed session for each request"
            }
            Self::Ws(WsTransport { tls: false, .. }) => "WebTorrent over WebSockets, IPv4, loopback",
            Self::Ws(WsTransport { tls: true, .. }) => "WebTorrent over WebSockets, TLS 1.3, IPv4, loopback",
        }
    }
}

impl LoadSpec {
    /// Creates the load of `preset`, with the default settings for the rest.
    pub fn of(preset: &ComparisonPreset) -> Self {
        let LoadPreset { population, mix, numwant, scrape_hashes_max, .. } = preset.shape;
        Self {
            transport: preset.transport,
            measure: preset.measure,
            population,
            mix,
            numwant,
            scrape_hashes_max,
            window: preset.window,
            spinners: preset.spinners,
            duration: Duration::from_secs(10),
            latency: Some((preset.latency_rate, Duration::from_secs(5))),
            seed: 1,
            io: Backend::Mmsg,
            timeout: preset.timeout,
            network: NetworkKind::Loopback,
            at_driver: false,
            sockets_per_worker: preset.sockets,
        }
    }

    pub fn plan(&self, target: SocketAddr, assignment: &CpuAssignment, own_address_is_wrong: bool) -> Plan {
        // The generator at the driver hook has one worker, on the processor that does the receive work of its interface.
        let workers_max = if self.at_driver { 1 } else { usize::MAX };
        let workers: Vec<_> =
            assignment.load.iter().take(workers_max).map(|processor| Some(*processor)).collect();
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
                first: self.network.first_source(),
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

    /// Returns the load for an echo. Its messages are as long as relayed ones: an announce with one offer, which the
    /// echo returns. There is no open loop, because nothing is relayed.
    pub fn for_echo(&self) -> Self {
        match self.transport {
            Transport::Udp | Transport::Http(_) => self.clone(),
            Transport::Ws(ws) => Self {
                transport: Transport::Ws(WsTransport {
                    offers: ws.offers.min(1),
                    answer_share: 0.0,
                    slow_readers: 0,
                    ..ws
                }),
                latency: None,
                ..self.clone()
            },
        }
    }

    pub fn with_slow_readers(&self, slow_readers: usize) -> Self {
        match self.transport {
            Transport::Udp | Transport::Http(_) => self.clone(),
            Transport::Ws(ws) => {
                Self { transport: Transport::Ws(WsTransport { slow_readers, ..ws }), ..self.clone() }
            }
        }
    }

    /// Checks whether the load is possible against a tracker at `target`.
    pub fn check(&self, target: SocketAddr, assignment: &CpuAssignment) -> Result<(), PlanError> {
        match self.measure {
            Measure::Load => self.plan(target, assignment, true).check(),
            Measure::Idle { .. } => Ok(()),
        }
    }

    /// Returns the closed loop. The workers share the requests in flight, which wait in the sockets of the tracker.
    pub fn closed(&self, assignment: &CpuAssignment) -> (Pace, Stop) {
        let stop = Stop { after: Some(self.duration), requests: None };
        (Pace::Closed { window: self.window_of_worker(assignment).get() }, stop)
    }

    /// Returns the requests in flight in the closed loop of each worker. Over HTTP, each has a connection.
    pub fn window_of_worker(&self, assignment: &CpuAssignment) -> NonZeroUsize {
        let in_flight = self.window * assignment.tracker.len();
        NonZeroUsize::new(in_flight.div_ceil(assignment.load.len().max(1))).unwrap_or(NonZeroUsize::MIN)
    }

    pub fn open(&self) -> Option<(Pace, Stop)> {
        let (rate, duration) = self.latency?;
        Some((Pace::Open { rate }, Stop { after: Some(duration), requests: None }))
    }

    pub fn settings(&self) -> Vec<(String, String)> {
        let Mix { connect, announce, scrape } = self.mix;
        let Population { torrents, peers, popularity, seeder_share, announces_per_life, vanish_share } =
            self.population;
        let latency = self.latency.map_or("none".to_owned(), |(rate, duration)| {
            format!("{rate} requests a second for {} s", duration.as_secs_f64())
        });
        let spinners = match self.spinners {
            0 => "none".to_owned(),
            spinners => format!("{spinners} on each processor of the tracker"),
        };
        let transport = row("protocol", self.transport.description(self.network).to_owned());
        if let Measure::Idle { connections } = self.measure {
            let announced = match self.transport {
                Transport::Ws(_) => {
                    "each has carried one announce of its own peer, with 50 peers to a torrent"
                }
                _ => "each has carried one announce, all of the same peer, and is idle",
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
            row("popularity", popularity_description(popularity)),
            row("seeder share", seeder_share.to_string()),
            row("lives of peers", lives_description(announces_per_life, vanish_share)),
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
            row("spinning threads in the closed loop", spinners),
            row("open loop", latency),
            row("lost after", format!("{} ms", self.timeout.as_millis())),
        ];
        rows.extend(self.settings_of_clients());
        rows.push(row("seed", self.seed.to_string()));
        rows
    }

    fn settings_of_clients(&self) -> Vec<(String, String)> {
        let each = format!("{} for each processor of the load", self.sockets_per_worker);
        match self.transport {
            Transport::Udp => vec![
                row("client addresses and ports", each),
                row("generator's back end", self.io.to_string()),
                row(
                    "closed loop of the generator",
                    if self.at_driver { "at the driver hook (XDP)" } else { "behind sockets" }.to_owned(),
                ),
            ],
            Transport::Http(_) => vec![row("client addresses", each)],
            Transport::Ws(ws) => {
                let mut rows = vec![
                    row("client addresses", each),
                    row("connections", ws.connections.to_string()),
                    row("offers of an announce", ws.offers.to_string()),
                    row("session description", format!("{} bytes", ws.sdp_bytes)),
                    row("share of offers answered", ws.answer_share.to_string()),
                ];
                if ws.announces_per_connection > 0 {
                    rows.push(row("announces of a connection", ws.announces_per_connection.to_string()));
                }
                if ws.slow_readers > 0 {
                    let count = ws.slow_readers;
                    let text =
                        format!("{count} announce once and never read; measured with and without them");
                    rows.push(row("slow readers", text));
                }
                rows
            }
        }
    }
}

fn row(name: &str, value: String) -> (String, String) {
    (name.to_owned(), value)
}

fn lives_description(announces_per_life: u32, vanish_share: f64) -> String {
    if announces_per_life == 0 {
        return "peers never leave".to_owned();
    }
    let vanish = format!("{} % leave without an announce that stops", vanish_share * 100.0);
    format!("{announces_per_life} announces on average, then another peer replaces it; {vanish}")
}

fn popularity_description(popularity: Popularity) -> String {
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
