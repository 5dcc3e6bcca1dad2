//! Honest clients of every protocol, which go on beside an attack and check each answer.
//!
//! Each client is a thread with addresses of its own that asks at a steady pace. A request that takes long counts once
//! for each turn that it missed, so that a client that waits for a timeout does not hide how little was answered.

mod http;
mod udp;
mod ws;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::source::{honest_v4, honest_v6};
use crate::tls::TlsClient;
use crate::tracker::Tracker;
use crate::{clock, number};

/// Longest wait of an honest client for one answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pause from one request of a client to its next.
const PACE: Duration = Duration::from_millis(40);

/// Most latencies that are kept of a client.
const LATENCIES_MAX: usize = 1 << 16;

/// Longest wait for the first answers, and for those after an attack.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(15);

/// A protocol as honest clients use it.
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

/// A client that asks once in each turn.
trait Client: Send {
    /// Asks once and checks the answer.
    fn ask(&mut self, turn: u64) -> Result<()>;

    /// Returns how many connections that should stand were lost since the last call.
    fn take_lost(&mut self) -> u64 {
        0
    }
}

/// The outcome of the requests of some clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// Turns in the time of the attack.
    pub(crate) turns: u64,
    /// Those that were answered rightly.
    pub(crate) answered: u64,
    /// Standing connections that were lost in the time of the attack.
    pub(crate) lost: u64,
    /// How long answers took.
    pub(crate) latencies_us: Vec<u32>,
    /// The first failure in the time of the attack.
    pub(crate) failure: Option<String>,
    /// The latest failure before or after.
    failure_outside: Option<String>,
    /// When the last request began that was answered.
    last_good: Option<Instant>,
}

/// All honest clients.
pub(crate) struct Crowd {
    shared: Arc<Shared>,
    clients: Vec<(Protocol, Arc<Mutex<Account>>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Shared {
    is_under_attack: AtomicU8,
    is_over: AtomicBool,
}

impl Crowd {
    /// Starts clients of every protocol, and waits until each was answered once.
    pub(crate) fn start(tracker: &Tracker, tls: &TlsClient) -> Result<Self> {
        let mut crowd = Self { shared: Arc::default(), clients: Vec::new() };
        let sources = |number| [honest_v4(number), honest_v6(number)];
        for source in sources(1) {
            crowd.add(Protocol::Udp, udp::UdpPair::new(source, tracker.udp(source)))?;
        }
        for source in sources(2) {
            crowd.add(Protocol::Http, http::HttpPair::new(source, tracker.http(source), None, false))?;
        }
        for source in sources(3) {
            crowd.add(
                Protocol::HttpKeepAlive,
                http::HttpPair::new(source, tracker.http(source), None, true),
            )?;
        }
        for source in sources(4) {
            let pair = http::HttpPair::new(source, tracker.tls(source), Some(tls.clone()), false);
            crowd.add(Protocol::Https, pair)?;
        }
        let [v4, v6] = [[honest_v4(5), honest_v4(6)], [honest_v6(5), honest_v6(6)]];
        crowd.add(Protocol::Ws, ws::SocketPair::new(v4, tracker.http(v4[0]), None))?;
        crowd.add(Protocol::Wss, ws::SocketPair::new(v6, tracker.tls(v6[0]), Some(tls.clone())))?;
        crowd
            .wait_for_answers(clock::now())
            .context("honest clients are not served even without an attack")?;
        Ok(crowd)
    }

    fn add(&mut self, protocol: Protocol, mut client: impl Client + 'static) -> Result<()> {
        let account = Arc::<Mutex<Account>>::default();
        let (copy, shared) = (Arc::clone(&account), Arc::clone(&self.shared));
        let run = move || {
            for turn in 0.. {
                if shared.is_over.load(Ordering::Relaxed) {
                    break;
                }
                shared.turn(&mut client, turn, &copy);
            }
        };
        let thread =
            thread::Builder::new().name("honest".into()).spawn(run).context("cannot start a thread")?;
        self.clients.push((protocol, account, thread));
        Ok(())
    }

    /// Begins or ends the time for which accounts are kept.
    pub(crate) fn set_under_attack(&self, is_under_attack: bool) {
        self.shared.is_under_attack.store(u8::from(is_under_attack), Ordering::Relaxed);
    }

    /// Waits until every client had an answer to a request that it made after `since`, and returns how long that took
    /// the last of them.
    pub(crate) fn wait_for_answers(&self, since: Instant) -> Result<Duration> {
        let deadline = since + SETTLE_TIME_MAX;
        loop {
            let late = self
                .clients
                .iter()
                .find(|(_, account, _)| lock(account).last_good.is_none_or(|began| began < since));
            let Some((protocol, account, _)) = late else { return Ok(clock::now() - since) };
            if clock::now() > deadline {
                let failure =
                    lock(account).failure_outside.clone().unwrap_or_else(|| "no answer yet".to_owned());
                bail!("{protocol:?} is not served: {failure}");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends all clients and returns the accounts by protocol.
    pub(crate) fn stop(self) -> Vec<(Protocol, Account)> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let mut accounts: Vec<(Protocol, Account)> = Vec::new();
        for (protocol, account, thread) in self.clients {
            // A client that has panicked counts by what it wrote down, and its turns stop.
            let _ = thread.join();
            let account = lock(&account).clone();
            match accounts.iter_mut().find(|(found, _)| *found == protocol) {
                Some((_, sum)) => sum.add(account),
                None => accounts.push((protocol, account)),
            }
        }
        accounts
    }
}

impl Shared {
    fn turn(&self, client: &mut impl Client, turn: u64, account: &Mutex<Account>) {
        let is_counted = self.is_under_attack.load(Ordering::Relaxed) != 0;
        let began = clock::now();
        let result = client.ask(turn);
        let took = clock::now() - began;
        lock(account).note(is_counted, began, took, result, client.take_lost());
        clock::sleep_until(began + PACE);
    }
}

impl Account {
    fn note(&mut self, is_counted: bool, began: Instant, took: Duration, result: Result<()>, lost: u64) {
        let missed = number::count(usize::try_from(took.as_millis() / PACE.as_millis()).unwrap_or(0));
        if is_counted {
            self.turns += 1;
            self.lost += lost;
        }
        match result {
            Ok(()) => {
                self.last_good = Some(began);
                if is_counted {
                    self.answered += 1;
                    if self.latencies_us.len() < LATENCIES_MAX {
                        self.latencies_us.push(clock::micros(took));
                    }
                }
            }
            Err(error) => {
                if is_counted {
                    self.turns += missed;
                    self.failure.get_or_insert_with(|| format!("{error:#}"));
                } else {
                    self.failure_outside = Some(format!("{error:#}"));
                }
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.turns += other.turns;
        self.answered += other.answered;
        self.lost += other.lost;
        self.latencies_us.extend(other.latencies_us);
        self.failure = self.failure.take().or(other.failure);
    }
}

impl Protocol {
    /// Returns its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
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

/// Returns a random info hash.
fn torrent() -> [u8; 20] {
    let mut hash = [0; 20];
    fastrand::fill(&mut hash);
    hash
}

/// The two ports that the pair of peers of one address announces, by turns.
fn ports(turn: u64) -> [u16; 2] {
    if turn.is_multiple_of(2) { [4001, 4002] } else { [4002, 4001] }
}

/// Returns how long a compact peer of this family is.
fn peer_bytes(source: IpAddr) -> usize {
    if source.is_ipv4() { 6 } else { 18 }
}

fn lock(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_takes_long_counts_for_each_turn_that_it_missed() {
        let (mut account, now) = (Account::default(), clock::now());
        for _ in 0..10 {
            account.note(true, now, Duration::from_millis(1), Ok(()), 0);
        }
        account.note(true, now, PACE * 25, Err(anyhow::anyhow!("timeout")), 1);
        assert_eq!((account.turns, account.answered, account.lost), (36, 10, 1));
        assert_eq!(account.failure.as_deref(), Some("timeout"));
        account.note(false, now, PACE * 25, Err(anyhow::anyhow!("later")), 1);
        assert_eq!((account.turns, account.lost), (36, 1));
    }
}
