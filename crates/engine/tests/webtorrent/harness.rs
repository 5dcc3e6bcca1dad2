//! A tracker without sockets or clocks, and clients that exchange JSON messages with it.

#[path = "../support/config.rs"]
mod config;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use shoal_access::rules::HeaderMatch;
use shoal_base::transport::stream::Handle;
use shoal_base::{Counts, InfoHash, Presence};
use shoal_config::Config;
use shoal_engine::Now;
use shoal_engine::context::Context;
use shoal_engine::counter::{Counters, Tally};
use shoal_engine::policy::Protocol;
use shoal_engine::replication::{RecordedDeltas, presence_ring};
use shoal_engine::tokens::SocketToken;
use shoal_engine::webtorrent::{Member, Responder};
use shoal_relay::{Dispatcher, Mailboxes, Swarms};

pub(crate) use config::{configured, policy};

/// A torrent, as it is written in messages.
pub(crate) const HASH: &str = "aaaaaaaaaaaaaaaaaaaa";
pub(crate) const OTHER_HASH: &str = "bbbbbbbbbbbbbbbbbbbb";

/// An offer of a real browser, except for its length.
pub(crate) const SDP: &str = r#"{"type":"offer","sdp":"v=0\r\no=- 46117317 2 IN IP4 127.0.0.1\r\ns=-\r\n"}"#;

pub(crate) struct Tracker {
    workers: Vec<Worker>,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) now: Now,
    connections: u32,
}

struct Worker {
    /// The changes of its peers for other nodes.
    recorded: Option<RecordedDeltas<Presence>>,
    responder: Responder,
    counters: Arc<Counters>,
    /// Messages that its connections have received and their tests have not read.
    received: BTreeMap<u32, Vec<String>>,
    /// Its connections that were to be pinged.
    pinged: BTreeSet<u32>,
}

/// A client on its connection.
pub(crate) struct Client {
    worker: u16,
    handle: Handle,
    ip: IpAddr,
    member: Member,
}

pub(crate) fn relay_settings() -> shoal_relay::Settings {
    shoal_relay::Settings::new(100_000, 400, [11, 22])
}

/// Returns the `n`th of many IPv4 addresses.
pub(crate) fn v4(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    IpAddr::from([77, 1, high, low])
}

/// Returns the `n`th of many IPv6 addresses.
pub(crate) fn v6(n: u16) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n])
}

/// Returns a peer id, as it is written in messages.
pub(crate) fn peer_id(n: u32) -> String {
    format!("-WW0103-{n:012}")
}

pub(crate) fn hash(text: &str) -> InfoHash {
    InfoHash(text.as_bytes().try_into().unwrap())
}

/// Returns offers with ids that begin with `name`, as the value of `offers`.
pub(crate) fn offers(name: &str, count: usize) -> String {
    let offers: Vec<String> =
        (0..count).map(|n| format!(r#"{{"offer":{SDP},"offer_id":"{name}-{n}"}}"#)).collect();
    format!("[{}]", offers.join(","))
}

/// Returns an announce of a leecher to the usual torrent, with further members.
pub(crate) fn leecher(n: u32, more: &str) -> String {
    announce(HASH, n, &format!(r#""left":1{more}"#))
}

/// Returns an announce of a seeder to the usual torrent, with further members.
pub(crate) fn seeder(n: u32, more: &str) -> String {
    announce(HASH, n, &format!(r#""left":0{more}"#))
}

pub(crate) fn announce(info_hash: &str, n: u32, more: &str) -> String {
    let comma = if more.is_empty() { "" } else { "," };
    let peer_id = peer_id(n);
    format!(r#"{{"action":"announce","info_hash":"{info_hash}","peer_id":"{peer_id}"{comma}{more}}}"#)
}

/// Returns the answer of peer `n` to an offer of peer `to`.
pub(crate) fn answer(n: u32, to: u32, offer_id: &str) -> String {
    let (peer_id, to_peer_id) = (peer_id(n), peer_id(to));
    format!(
        r#"{{"action":"announce","info_hash":"{HASH}","peer_id":"{peer_id}","to_peer_id":"{to_peer_id}","answer":{{"type":"answer"}},"offer_id":"{offer_id}"}}"#
    )
}

/// Returns the offer of peer `n`, as its receiver gets it.
pub(crate) fn offer_heard(n: u32, offer_id: &str) -> String {
    let peer_id = peer_id(n);
    format!(
        r#"{{"action":"announce","info_hash":"{HASH}","peer_id":"{peer_id}","offer_id":"{offer_id}","offer":{SDP}}}"#
    )
}

/// Returns the answer of peer `n`, as the offerer gets it.
pub(crate) fn answer_heard(n: u32, offer_id: &str) -> String {
    let peer_id = peer_id(n);
    format!(
        r#"{{"action":"announce","info_hash":"{HASH}","peer_id":"{peer_id}","offer_id":"{offer_id}","answer":{{"type":"answer"}}}}"#
    )
}

/// Returns the reply to an announce to the usual torrent.
pub(crate) fn reply(complete: u32, incomplete: u32) -> String {
    format!(
        r#"{{"action":"announce","info_hash":"{HASH}","interval":120,"complete":{complete},"incomplete":{incomplete}}}"#
    )
}

/// Returns a refusal. An empty `action` is left out.
pub(crate) fn failure(action: &str, info_hash: Option<&str>, reason: &str) -> String {
    let member = |name, value: &str| format!(r#""{name}":"{value}","#);
    let action = if action.is_empty() { String::new() } else { member("action", action) };
    let info_hash = info_hash.map(|hash| member("info_hash", hash)).unwrap_or_default();
    format!(r#"{{{action}{info_hash}"failure reason":"{reason}"}}"#)
}

impl Tracker {
    /// Creates a tracker with one worker and without jitter.
    pub(crate) fn new(config: &Config) -> Self {
        Self::of(1, config, &relay_settings())
    }

    pub(crate) fn of(workers: u16, config: &Config, relay: &shoal_relay::Settings) -> Self {
        let (swarms, mailboxes) = (Arc::new(Swarms::new(relay)), Mailboxes::new(workers));
        let mut config = config.clone();
        config.announce.interval_jitter_s = 0;
        Self::with(workers, &config, swarms, &mailboxes)
    }

    pub(crate) fn with(
        workers: u16,
        config: &Config,
        swarms: Arc<Swarms>,
        mailboxes: &Arc<Mailboxes>,
    ) -> Self {
        let policy = Arc::new(policy(config));
        let worker = |number: u16| {
            let tally = Tally::default();
            let counters = tally.counters();
            let dispatcher = Dispatcher::new(number, Arc::clone(mailboxes));
            let rng = fastrand::Rng::with_seed(u64::from(number));
            let mut context = Context::new(Protocol::WebTorrent, Arc::clone(&policy), tally, rng);
            let (recorder, recorded) = presence_ring();
            context.recorder = Some(recorder);
            let responder = Responder::new(context, Arc::clone(&swarms), dispatcher);
            let recorded = Some(recorded);
            Worker { responder, counters, recorded, received: BTreeMap::new(), pinged: BTreeSet::new() }
        };
        let workers = (0..workers).map(worker).collect();
        Self {
            workers,
            swarms,
            now: Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 },
            connections: 0,
        }
    }

    /// Takes the ends of the rings for other nodes, one for each worker.
    pub(crate) fn take_recorded(&mut self) -> Vec<RecordedDeltas<Presence>> {
        self.workers.iter_mut().filter_map(|worker| worker.recorded.take()).collect()
    }

    pub(crate) fn connect(&mut self, ip: IpAddr) -> Client {
        self.connect_to(0, ip)
    }

    pub(crate) fn connect_to(&mut self, worker: u16, ip: IpAddr) -> Client {
        let handle = Handle { index: self.connections, generation: 3 };
        self.connections += 1;
        let member = self.workers[usize::from(worker)].responder.enter(
            handle,
            ip,
            SocketToken::default(),
            HeaderMatch::default(),
        );
        Client { worker, handle, ip, member }
    }

    /// Creates a client with an address of its own.
    pub(crate) fn newcomer(&mut self) -> Client {
        let n = u16::try_from(self.connections).unwrap();
        self.connect(v4(n))
    }

    /// Returns whether the client may stay.
    pub(crate) fn say(&mut self, client: &mut Client, message: &str) -> bool {
        self.say_bytes(client, message.as_bytes())
    }

    pub(crate) fn say_bytes(&mut self, client: &mut Client, message: &[u8]) -> bool {
        let worker = &mut self.workers[usize::from(client.worker)];
        worker.responder.receive(&mut client.member, client.ip, message, self.now).is_ok()
    }

    pub(crate) fn leave(&mut self, client: Client) {
        let worker = &mut self.workers[usize::from(client.worker)];
        worker.received.remove(&client.handle.index);
        worker.responder.leave(client.member);
    }

    /// Runs a poll round of a worker, and returns the workers that it would wake.
    pub(crate) fn turn(&mut self, worker: u16) -> Vec<u16> {
        let Worker { responder, received, pinged, .. } = &mut self.workers[usize::from(worker)];
        responder.collect(self.now);
        while let Some(handle) = responder.next_to_flush() {
            let mut out = Vec::new();
            if responder.is_ping_requested(handle) {
                pinged.insert(handle.index);
            }
            responder.drain(handle, |bytes| out.extend_from_slice(bytes));
            received.entry(handle.index).or_default().extend(texts(&out));
        }
        responder.dispatch().collect()
    }

    /// Returns the messages that the client has received since the last call.
    pub(crate) fn received(&mut self, client: &Client) -> Vec<String> {
        // The first round dispatches, the second delivers.
        let workers = u16::try_from(self.workers.len()).unwrap();
        for worker in (0..workers).chain(0..workers) {
            self.turn(worker);
        }
        self.workers[usize::from(client.worker)].received.remove(&client.handle.index).unwrap_or_default()
    }

    /// Returns whether the client was to be pinged with what it has received since the last call.
    pub(crate) fn is_pinged(&mut self, client: &Client) -> bool {
        self.workers[usize::from(client.worker)].pinged.remove(&client.handle.index)
    }

    /// Records that the socket of the client has not accepted this many bytes.
    pub(crate) fn set_unsent(&mut self, client: &Client, unsent_bytes: usize) {
        self.workers[usize::from(client.worker)].responder.set_unsent(client.handle, unsent_bytes);
    }

    /// Sends a message and returns the messages that the client then receives.
    pub(crate) fn ask(&mut self, client: &mut Client, message: &str) -> Vec<String> {
        self.say(client, message);
        self.received(client)
    }

    pub(crate) fn counts(&self, info_hash: &str) -> [u32; 3] {
        let Counts { seeders, leechers, completed } =
            self.swarms.scrape(&self.swarms.swarm_key(&hash(info_hash)));
        [seeders, leechers, completed]
    }

    /// Lets this much time pass, with expiry.
    pub(crate) fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now.monotonic_s += 1;
            while self.swarms.expire(self.now.monotonic_s, 1000).behind {}
        }
    }

    /// Returns a sum over the workers.
    pub(crate) fn count(&self, read: impl Fn(&Counters) -> u64) -> u64 {
        self.workers.iter().map(|worker| read(&worker.counters)).sum()
    }
}

/// Returns the messages in whole, unmasked text frames (RFC 6455, section 5.2).
fn texts(mut bytes: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while let [0x81, length, rest @ ..] = bytes {
        let (length, rest) = match length {
            ..126 => (usize::from(*length), rest),
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => (u64::from_be_bytes(rest[..8].try_into().unwrap()).try_into().unwrap(), &rest[8..]),
            128.. => panic!("masked"),
        };
        texts.push(String::from_utf8(rest[..length].to_vec()).unwrap());
        bytes = &rest[length..];
    }
    assert_eq!(bytes, b"", "nothing but such frames");
    texts
}
