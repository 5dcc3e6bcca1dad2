//! Honest clients of every protocol, which run during an attack and check each reply.
//!
//! Each client is a thread with its own addresses that sends requests at a steady rate. A request that fails late counts
//! once for each request that was due meanwhile, so that a client that waits for a timeout does not hide lost service.

mod http;
mod udp;
mod ws;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use shoal_testkit::client::tls::Tls;

use crate::measure;
use crate::siege::address::{honest_v4, honest_v6, public_honest_v4};
use crate::siege::tracker::Tracker;
use crate::siege::wire::{self, Wire};

/// The time that an honest client waits for a reply.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The interval between the requests of a client.
const REQUEST_INTERVAL: Duration = Duration::from_millis(40);

/// The maximum number of latencies that are kept of a client.
const LATENCIES_MAX: usize = 1 << 16;

/// The number of sources that the clients of a tracker may have.
const SOURCES_EACH: usize = 10;

/// The maximum wait for the first replies, and for those after an attack.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(15);

/// A protocol, as honest clients use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// HTTP with a connection for each request.
    Http,
    /// HTTP with one connection for all requests.
    HttpKeepAlive,
    /// HTTP over TLS with a connection and a handshake for each request.
    Https,
    /// WebTorrent over WebSockets.
    Ws,
    /// WebTorrent over WebSockets over TLS.
    Wss,
}

/// A client that sends one request in each round.
trait Client: Send {
    /// Sends a request and checks the reply.
    fn request(&mut self, round: u64) -> Result<()>;

    /// Returns the interval between two requests.
    fn interval(&self) -> Duration {
        REQUEST_INTERVAL
    }

    /// Returns the number of persistent connections that were lost since the last call.
    fn take_lost(&mut self) -> u64 {
        0
    }
}

/// The state of the tracker while a request is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing that counts.
    #[default]
    Other,
    /// Nothing. Latencies count as those without an attack.
    Calm,
    /// The attack. Requests count.
    Attack,
}

/// The results of the requests of some clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Requests that were due during the attack.
    pub(crate) due: u64,
    /// Requests that were answered correctly.
    pub(crate) answered: u64,
    /// Persistent connections that were lost during the attack.
    pub(crate) lost: u64,
    /// Latencies of the replies.
    pub(crate) latencies_us: Vec<u32>,
    /// Latencies of the replies in the calm before the attack.
    pub(crate) calm_latencies_us: Vec<u32>,
    /// The first failure during the attack.
    pub(crate) failure: Option<String>,
    /// The last failure before or after the attack.
    failure_outside: Option<String>,
    /// The start of the last request that was answered.
    last_answered: Option<Instant>,
}

/// All honest clients.
pub(crate) struct HonestClients {
    shared: Arc<Shared>,
    clients: Vec<(Protocol, Arc<Mutex<Tally>>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Shared {
    /// A [`Phase`].
    phase: AtomicU8,
    is_over: AtomicBool,
}

impl HonestClients {
    /// Starts clients of every protocol at each tracker, and over UDP on a wire if there is one. Waits until each has been answered once.
    /// Those over IPv4 have public addresses if `is_public`.
    pub(crate) fn start(
        trackers: &[&Tracker],
        tls: &Tls,
        wire: Option<&Wire<'_>>,
        is_public: bool,
    ) -> Result<Self> {
        let v4 = if is_public { public_honest_v4 } else { honest_v4 };
        let mut clients = Self { shared: Arc::default(), clients: Vec::new() };
        for (first, tracker) in (0..).step_by(SOURCES_EACH).zip(trackers) {
            clients.add_all(|number| [v4(first + number), honest_v6(first + number)], tracker, tls)?;
        }
        for (wire, tracker) in wire.into_iter().zip(trackers) {
            wire.on_client_side(|| clients.add_on_wire(tracker))?;
        }
        clients
            .wait_for_replies(measure::now())
            .context("honest clients are not served even without an attack")?;
        Ok(clients)
    }

    /// Starts clients of every protocol at a tracker. `sources` returns an address of each family by its number.
    fn add_all(&mut self, sources: impl Fn(u32) -> [IpAddr; 2], tracker: &Tracker, tls: &Tls) -> Result<()> {
        for source in sources(1) {
            self.add(Protocol::Udp, udp::UdpPair::new(source, tracker.udp(source)))?;
        }
        for source in sources(2) {
            self.add(Protocol::Http, http::HttpPair::new(source, tracker.http(source), None, false))?;
        }
        for source in sources(3) {
            self.add(Protocol::HttpKeepAlive, http::HttpPair::new(source, tracker.http(source), None, true))?;
        }
        for source in sources(4) {
            let pair = http::HttpPair::new(source, tracker.tls(source), Some(tls.clone()), false);
            self.add(Protocol::Https, pair)?;
        }
        let [[v4_offerer, v6_offerer], [v4_answerer, v6_answerer]] = [sources(5), sources(6)];
        let (v4, v6) = ([v4_offerer, v4_answerer], [v6_offerer, v6_answerer]);
        self.add(Protocol::Ws, ws::SocketPair::new(v4, tracker.http(v4[0]), None))?;
        self.add(Protocol::Wss, ws::SocketPair::new(v6, tracker.tls(v6[0]), Some(tls.clone())))?;
        Ok(())
    }

    /// Starts clients whose requests come over the wire. This thread is on their side of it.
    fn add_on_wire(&mut self, tracker: &Tracker) -> Result<()> {
        for (source, ip) in wire::HONEST.into_iter().zip([wire::TRACKER_V4.into(), wire::TRACKER_V6.into()]) {
            let target = SocketAddr::new(ip, tracker.udp(source).port());
            self.add(Protocol::Udp, udp::UdpPair::new(source, target))?;
        }
        Ok(())
    }

    fn add(&mut self, protocol: Protocol, mut client: impl Client + 'static) -> Result<()> {
        let tally = Arc::<Mutex<Tally>>::default();
        let (copy, shared) = (Arc::clone(&tally), Arc::clone(&self.shared));
        let run = move || {
            for round in 0.. {
                if shared.is_over.load(Ordering::Relaxed) {
                    break;
                }
                let phase = shared.phase();
                let began = measure::now();
                let result = client.request(round);
                let (took, interval) = (measure::now() - began, client.interval());
                let missed = took.as_millis() / interval.as_millis();
                lock(&copy).record(phase, began, (took, missed), result, client.take_lost());
                measure::sleep_until(began + interval);
            }
        };
        let thread =
            thread::Builder::new().name("honest".into()).spawn(run).context("cannot start a thread")?;
        self.clients.push((protocol, tally, thread));
        Ok(())
    }

    /// Begins a phase.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.shared.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Waits until each client has a reply to a request that it sent after `since`, and returns how long that took.
    pub(crate) fn wait_for_replies(&self, since: Instant) -> Result<Duration> {
        let deadline = since + RECOVERY_TIME_MAX;
        loop {
            let late = self
                .clients
                .iter()
                .find(|(_, tally, _)| lock(tally).last_answered.is_none_or(|began| began < since));
            let Some((protocol, tally, _)) = late else { return Ok(measure::now() - since) };
            if measure::now() > deadline {
                let failure =
                    lock(tally).failure_outside.clone().unwrap_or_else(|| "no reply yet".to_owned());
                bail!("{protocol:?} is not served: {failure}");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops all clients and returns the tallies by protocol.
    pub(crate) fn stop(self) -> Vec<(Protocol, Tally)> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let mut tallies: Vec<(Protocol, Tally)> = Vec::new();
        for (protocol, tally, thread) in self.clients {
            // A client that has panicked counts with its requests so far.
            let _ = thread.join();
            let tally = lock(&tally).clone();
            match tallies.iter_mut().find(|(found, _)| *found == protocol) {
                Some((_, sum)) => sum.add(tally),
                None => tallies.push((protocol, tally)),
            }
        }
        tallies
    }
}

impl Shared {
    fn phase(&self) -> Phase {
        let number = self.phase.load(Ordering::Relaxed);
        [Phase::Calm, Phase::Attack].into_iter().find(|phase| *phase as u8 == number).unwrap_or_default()
    }
}

impl Tally {
    /// Records a request, which took this time, and the number of others that were due meanwhile.
    fn record(
        &mut self,
        phase: Phase,
        began: Instant,
        (took, missed): (Duration, u128),
        result: Result<()>,
        lost: u64,
    ) {
        let is_counted = phase == Phase::Attack;
        let missed = u64::try_from(missed).unwrap_or(0);
        if is_counted {
            self.due += 1;
            self.lost += lost;
        }
        match result {
            Ok(()) => {
                self.last_answered = Some(began);
                self.answered += u64::from(is_counted);
                let latencies = match phase {
                    Phase::Other => return,
                    Phase::Calm => &mut self.calm_latencies_us,
                    Phase::Attack => &mut self.latencies_us,
                };
                if latencies.len() < LATENCIES_MAX {
                    latencies.push(measure::micros(took));
                }
            }
            Err(error) => {
                if is_counted {
                    self.due += missed;
                    self.failure.get_or_insert_with(|| format!("{error:#}"));
                } else {
                    self.failure_outside = Some(format!("{error:#}"));
                }
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.due += other.due;
        self.answered += other.answered;
        self.lost += other.lost;
        self.latencies_us.extend(other.latencies_us);
        self.calm_latencies_us.extend(other.calm_latencies_us);
        self.failure = self.failure.take().or(other.failure);
    }
}

impl Protocol {
    /// Returns the name of the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Http => "HTTP",
            Self::HttpKeepAlive => "HTTP keep-alive",
            Self::Https => "HTTPS",
            Self::Ws => "WS",
            Self::Wss => "WSS",
        }
    }
}

/// Returns the two ports of a pair of peers at one address, swapped in every other round.
fn ports(round: u64) -> [u16; 2] {
    if round.is_multiple_of(2) { [4001, 4002] } else { [4002, 4001] }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_failure_counts_for_each_request_that_was_due() {
        let (mut tally, now) = (Tally::default(), measure::now());
        for _ in 0..10 {
            tally.record(Phase::Attack, now, (Duration::from_millis(1), 0), Ok(()), 0);
        }
        tally.record(Phase::Attack, now, (REQUEST_INTERVAL * 25, 25), Err(anyhow::anyhow!("timeout")), 1);
        assert_eq!((tally.due, tally.answered, tally.lost), (36, 10, 1));
        assert_eq!(tally.failure.as_deref(), Some("timeout"));
        tally.record(Phase::Other, now, (REQUEST_INTERVAL * 25, 25), Err(anyhow::anyhow!("later")), 1);
        assert_eq!((tally.due, tally.lost), (36, 1));
    }
}
