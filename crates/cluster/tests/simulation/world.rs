//! The nodes and the clients of a schedule.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use bytes::Bytes;
use fastrand::Rng;
use shoal_base::{Action, Delta, InfoHash, PeerId, Presence};
use shoal_cluster::protocol::message::{Heads, Hello, Message, StreamHead, encode};
use shoal_cluster::protocol::{Node, NodeId, NodeState, Outgoing, SHARDS, Scope, Settings, Swarms};

use crate::bus::{Bus, Delivery};
use crate::fault::{self, Fault, Scheduled};
use crate::swarms::{INTERVAL_MS, Key, Model, TIMEOUT_MS};

/// The time of faults and churn, and the time after it in which all is to converge.
const FAULTS_MS: u64 = 90_000;
const CALM_MS: u64 = 2 * INTERVAL_MS + SLACK_MS;

/// The time that messages, resends and a snapshot may take.
const SLACK_MS: u64 = 15_000;

/// The time after the faults in which resends and snapshots replace what is missing: less than an interval, in which the
/// announces of all peers would.
const HEALED_MS: u64 = 25_000;

/// The time that a delta may take without faults.
const RECENT_MS: u64 = 100;

/// Maximum size of the batches that wait for earlier ones: far above those of the time after which a gap is given up.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// The least time by which the clock of a node is ahead: more than that for which it is suspended.
const CLOCK_MS_MIN: u64 = 1_000_000;

/// Nodes that do not exist, and the one of another version.
const INVENTED: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const STRANGER: NodeId = NodeId(4);

/// The length of a step of time.
const STEP_MS: u64 = 10;

const TORRENTS: u8 = 5;
const PEERS: usize = 60;
const BROWSERS: u8 = 20;

type Export = <Model as Swarms>::Export;

struct Host {
    /// None while it is down.
    node: Option<Node<Export>>,
    /// Maximum size of the batches that it retains.
    retained_bytes_max: usize,
    swarms: Model,
    /// Its clock is ahead by this. It falls back while the node is suspended.
    clock_ms: u64,
    /// The clock of its swarms is ahead by this. Peers become older while the node is suspended.
    swarms_ms: u64,
    is_suspended: bool,
    runs: u64,
}

impl Host {
    /// Returns whether clients reach it.
    const fn is_up(&self) -> bool {
        self.node.is_some() && !self.is_suspended
    }
}

struct Client {
    torrent: u8,
    port: u16,
    seeds: bool,
    completes: bool,
    /// The node at which it announces, as long as that is up.
    home: usize,
    next_ms: u64,
    /// When it ends, and whether it says so.
    end_ms: Option<(u64, bool)>,
    is_over: bool,
    last_ms: Option<u64>,
    /// The run of the node at which it has announced last.
    last_run: NodeId,
}

/// A browser, which has a connection to a node.
struct Browser {
    torrent: u8,
    number: u8,
    seeds: bool,
    begin_ms: u64,
    end_ms: Option<u64>,
    /// The node and the run of it to which it is connected.
    connected: Option<(usize, NodeId)>,
    next_ms: u64,
}

impl Browser {
    fn key(&self) -> (InfoHash, PeerId) {
        (info_hash(self.torrent), PeerId([self.number; 20]))
    }
}

pub(crate) struct World {
    rng: Rng,
    now_ms: u64,
    hosts: Vec<Host>,
    bus: Bus,
    clients: Vec<Client>,
    browsers: Vec<Browser>,
    faults: Vec<Scheduled>,
    active: Vec<Scheduled>,
    /// When runs of nodes have ended.
    ended_ms: BTreeMap<NodeId, u64>,
    /// Downloads that clients have completed.
    downloads: BTreeMap<InfoHash, u32>,
    /// For how long nodes were suspended in all.
    suspended_ms: u64,
    is_verbose: bool,
}

fn info_hash(torrent: u8) -> InfoHash {
    InfoHash([torrent.wrapping_mul(0x35); 20])
}

impl Client {
    fn key(&self) -> Key {
        (info_hash(self.torrent), Ipv4Addr::new(10, 0, 0, 1).into(), self.port)
    }
}

impl World {
    pub(crate) fn new(seed: u64, is_verbose: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(2..=5);
        let faults = fault::draw(count, FAULTS_MS, &mut rng);
        Self::with(count, faults, rng, is_verbose)
    }

    /// A world without faults.
    pub(crate) fn calm(nodes: usize) -> Self {
        Self::with(nodes, Vec::new(), Rng::with_seed(1), false)
    }

    fn with(count: usize, faults: Vec<Scheduled>, mut rng: Rng, is_verbose: bool) -> Self {
        // Each schedule is as it was before a property of nodes went that was drawn here.
        if rng.u32(..4) == 0 {
            rng.u32(1..8);
        }
        let hosts = (0..count).map(|_| {
            let clock_ms = rng.u64(CLOCK_MS_MIN..7_200_000);
            Host {
                node: None,
                retained_bytes_max: 0,
                swarms: Model::new(NodeId(0), 0),
                clock_ms,
                swarms_ms: clock_ms,
                is_suspended: false,
                runs: 0,
            }
        });
        let hosts: Vec<_> = hosts.collect();
        let clients = (1..).take(PEERS).map(|port| Client {
            torrent: rng.u8(..TORRENTS),
            port,
            seeds: rng.bool(),
            completes: rng.u32(..4) == 0,
            home: rng.usize(..count),
            next_ms: rng.u64(..FAULTS_MS),
            end_ms: rng.bool().then(|| (rng.u64(..FAULTS_MS), rng.bool())),
            is_over: false,
            last_ms: None,
            last_run: NodeId(0),
        });
        let clients = clients.collect();
        let browsers = (0..BROWSERS).map(|number| Browser {
            torrent: rng.u8(..TORRENTS),
            number,
            seeds: rng.bool(),
            begin_ms: rng.u64(..FAULTS_MS),
            end_ms: rng.bool().then(|| rng.u64(..FAULTS_MS)),
            connected: None,
            next_ms: 0,
        });
        let browsers = browsers.collect();
        let (bus, downloads) = (Bus::default(), BTreeMap::new());
        let (active, ended_ms) = (Vec::new(), BTreeMap::new());
        Self {
            rng,
            now_ms: 0,
            hosts,
            bus,
            clients,
            browsers,
            faults,
            active,
            ended_ms,
            downloads,
            suspended_ms: 0,
            is_verbose,
        }
    }

    /// Runs the schedule and checks the end. Returns a summary, the same for the same seed.
    pub(crate) fn run(mut self) -> (u64, Vec<usize>) {
        for host in 0..self.hosts.len() {
            self.start(host);
        }
        while self.now_ms < FAULTS_MS + CALM_MS {
            self.step();
            if self.now_ms.is_multiple_of(5_000) {
                self.check_invented();
                self.check_bounded();
            }
            if self.now_ms == FAULTS_MS + HEALED_MS {
                self.check_present();
            }
        }
        self.check_converged();
        (self.bus.bytes, self.hosts.iter().map(|host| host.swarms.peers.len()).collect())
    }

    /// Starts a node, some seconds later all others at once, and returns how long they then take until all are ready.
    pub(crate) fn ready_ms(mut self) -> u64 {
        self.start(0);
        while self.now_ms < 10_000 {
            self.step();
        }
        (1..self.hosts.len()).for_each(|host| self.start(host));
        let is_ready = |host: &Host| host.node.as_ref().is_some_and(Node::is_ready);
        while !self.hosts.iter().all(is_ready) && self.now_ms < FAULTS_MS {
            self.step();
        }
        self.now_ms - 10_000
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.is_verbose {
            println!("{:>7} ms  {}", self.now_ms, text());
        }
    }

    fn start(&mut self, index: usize) {
        let settings = Settings {
            cluster: "simulated".to_owned(),
            name: format!("node {index}"),
            id: NodeId(self.rng.u64(..)),
            retained_bytes_max: 1 << self.rng.u32(10..20),
        };
        let host = &mut self.hosts[index];
        let now_ms = self.now_ms + host.clock_ms;
        host.retained_bytes_max = settings.retained_bytes_max;
        host.swarms = Model::new(settings.id, self.now_ms + host.swarms_ms);
        let mut node = Node::new(&settings, now_ms);
        if !self.bus.weather.disconnected.contains(&index) {
            node.set_connected(true, now_ms);
        }
        host.node = Some(node);
        self.say(|| format!("node {index} starts as {}", settings.id));
    }

    fn step(&mut self) {
        self.now_ms += STEP_MS;
        self.change_faults();
        while let Some(delivery) = self.bus.next(self.now_ms) {
            self.deliver(&delivery);
        }
        self.announce();
        (0..self.browsers.len()).for_each(|browser| self.browse(browser));
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            if host.is_suspended {
                host.clock_ms -= STEP_MS;
                self.suspended_ms += STEP_MS;
                continue;
            }
            let now_ms = self.now_ms + host.clock_ms;
            host.swarms.now_ms = self.now_ms + host.swarms_ms;
            let Some(node) = &mut host.node else { continue };
            node.run(now_ms, &mut host.swarms);
            host.runs += 1;
            if host.runs.is_multiple_of(50) {
                host.swarms.expire();
            }
            self.send(index);
        }
    }

    /// Sends what a node has to send.
    fn send(&mut self, from: usize) {
        while let Some(message) = self.hosts[from].node.as_mut().and_then(Node::next_message) {
            let is_to_stranger = message.subject.ends_with(&STRANGER.to_string());
            assert!(!is_to_stranger, "a node of another version gets nothing");
            let subscribes = |&to: &usize| {
                let is_wanted = |subscription: &String| {
                    let prefix = subscription.strip_suffix('*').unwrap_or(subscription);
                    message.subject == *subscription
                        || prefix != subscription && message.subject.starts_with(prefix)
                };
                to != from
                    && self.hosts[to]
                        .node
                        .as_ref()
                        .is_some_and(|node| node.subscriptions().iter().any(is_wanted))
            };
            let to: Vec<_> = (0..self.hosts.len()).filter(subscribes).collect();
            self.bus.send(from, to.into_iter(), &message, self.now_ms, &mut self.rng);
        }
    }

    fn deliver(&mut self, Delivery { to, subject, payload }: &Delivery) {
        if self.bus.weather.disconnected.contains(to) {
            return;
        }
        let host = &mut self.hosts[*to];
        host.swarms.now_ms = self.now_ms + host.swarms_ms;
        if let Some(node) = host.node.as_mut().filter(|_| !host.is_suspended) {
            node.receive(subject, payload, self.now_ms + host.clock_ms, &mut host.swarms);
        }
    }

    fn announce(&mut self) {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            let ends = client.end_ms.filter(|(end_ms, _)| self.now_ms >= *end_ms);
            let is_due = self.now_ms >= client.next_ms;
            if client.is_over || !is_due && ends.is_none() {
                continue;
            }
            let up: Vec<_> = (0..self.hosts.len()).filter(|&host| self.hosts[host].is_up()).collect();
            let Some(&other) = up.get(self.rng.usize(..up.len().max(1))) else { continue };
            let client = &mut self.clients[index];
            if !up.contains(&client.home) || self.rng.u32(..10) == 0 {
                client.home = other;
            }
            let action = match ends {
                Some((_, false)) => {
                    client.is_over = true;
                    continue;
                }
                Some((_, true)) => {
                    client.is_over = true;
                    Action::Stop
                }
                None if client.completes && !client.seeds && client.last_ms.is_some() => {
                    client.seeds = true;
                    *self.downloads.entry(info_hash(client.torrent)).or_default() += 1;
                    Action::Complete
                }
                None if client.seeds => Action::Seed,
                None => Action::Leech,
            };
            if action == Action::Stop && client.last_ms.is_none() {
                continue;
            }
            client.next_ms = self.now_ms + INTERVAL_MS - self.rng.u64(..INTERVAL_MS / 5);
            if action != Action::Stop {
                client.last_ms = Some(self.now_ms);
            }
            let (info_hash, ip, port) = client.key();
            let host = &mut self.hosts[client.home];
            client.last_run = host.swarms.id;
            host.swarms.now_ms = self.now_ms + host.swarms_ms;
            let delta = host.swarms.announce(Delta { info_hash, action, ip, port });
            if self.is_verbose {
                println!(
                    "{:>7} ms  {port} announces {action:?} at node {}: {}",
                    self.now_ms,
                    client.home,
                    delta.is_some()
                );
            }
            if let (Some(node), Some(delta)) = (&mut host.node, delta) {
                node.record(&delta, self.now_ms + host.clock_ms);
            }
        }
    }

    /// Connects a browser, lets it announce, or disconnects it.
    fn browse(&mut self, index: usize) {
        let browser = &self.browsers[index];
        if self.now_ms < browser.begin_ms {
            return;
        }
        let run_of = |host: usize| self.hosts[host].is_up().then(|| self.hosts[host].swarms.id);
        let connected = browser.connected.filter(|(host, run)| run_of(*host) == Some(*run));
        let is_over = browser.end_ms.is_some_and(|end_ms| self.now_ms >= end_ms);
        let up: Vec<_> = (0..self.hosts.len()).filter_map(|host| Some((host, run_of(host)?))).collect();
        let (host, run) = match (connected, is_over) {
            (None, is_over) if is_over || up.is_empty() => {
                self.browsers[index].connected = None;
                return;
            }
            (None, _) => up[self.rng.usize(..up.len())],
            (Some(connected), _) => connected,
        };
        let browser = &mut self.browsers[index];
        let key = browser.key();
        let (info_hash, peer_id) = key;
        let is_due = self.now_ms >= browser.next_ms || connected.is_none();
        browser.connected = Some((host, run)).filter(|_| !is_over);
        let Host { node: Some(node), swarms, clock_ms, swarms_ms, .. } = &mut self.hosts[host] else {
            return;
        };
        let node_ms = self.now_ms + *clock_ms;
        swarms.now_ms = self.now_ms + *swarms_ms;
        let action = match (is_over, browser.seeds) {
            (true, _) => Action::Stop,
            (false, true) => Action::Seed,
            (false, false) => Action::Leech,
        };
        if is_over {
            swarms.disconnect(run, key);
        } else if !is_due {
            return;
        } else {
            browser.next_ms = self.now_ms + INTERVAL_MS - self.rng.u64(..INTERVAL_MS / 5);
            if !swarms.connect(run, key, browser.seeds) {
                return;
            }
        }
        node.record_presence(&Presence { info_hash, action, peer_id, source: [1; 7] }, node_ms);
    }

    fn change_faults(&mut self) {
        let now_ms = self.now_ms;
        let begun: Vec<_> = self.faults.extract_if(.., |fault| fault.from_ms <= now_ms).collect();
        for scheduled in begun {
            self.say(|| format!("{:?} until {} ms", scheduled.fault, scheduled.until_ms));
            if let Fault::Crash(index) | Fault::Restart(index) = scheduled.fault {
                self.stop(index, matches!(scheduled.fault, Fault::Restart(_)));
            }
            self.active.push(scheduled);
            self.set_weather();
            self.set_suspended();
        }
        let ended: Vec<_> = self.active.extract_if(.., |fault| fault.until_ms <= now_ms).collect();
        for scheduled in ended {
            self.say(|| format!("{:?} is over", scheduled.fault));
            self.set_weather();
            self.set_suspended();
            if let Fault::Crash(index) | Fault::Restart(index) = scheduled.fault
                && self.hosts[index].node.is_none()
            {
                self.start(index);
            }
        }
        for index in 0..self.active.len() {
            match self.active[index].fault {
                Fault::Garbage => self.send_garbage(),
                Fault::Stranger => self.send_of_stranger(),
                _ => {}
            }
        }
    }

    /// Suspends nodes, and resumes them. Meanwhile their browsers have gone elsewhere.
    fn set_suspended(&mut self) {
        for index in 0..self.hosts.len() {
            let is_suspended = self
                .active
                .iter()
                .any(|active| matches!(active.fault, Fault::Suspend(node) if node == index));
            let host = &mut self.hosts[index];
            let was_suspended = std::mem::replace(&mut host.is_suspended, is_suspended);
            let Some(node) = host.node.as_mut().filter(|_| was_suspended && !is_suspended) else { continue };
            let now_ms = self.now_ms + host.clock_ms;
            host.swarms.now_ms = self.now_ms + host.swarms_ms;
            host.swarms.expire();
            let run = host.swarms.id;
            let own = host.swarms.browsers.extract_if(.., |_, browser| browser.node == run);
            let is_connected = |key: &(InfoHash, PeerId)| {
                let browser = self.browsers.iter().find(|browser| browser.key() == *key);
                browser.is_some_and(|browser| browser.connected == Some((index, run)))
            };
            let (still_there, gone): (Vec<_>, Vec<_>) = own.partition(|(key, _)| is_connected(key));
            host.swarms.browsers.extend(still_there);
            for ((info_hash, peer_id), _) in gone {
                let presence = Presence { info_hash, action: Action::Stop, peer_id, source: [1; 7] };
                node.record_presence(&presence, now_ms);
            }
        }
    }

    fn stop(&mut self, index: usize, is_orderly: bool) {
        if let Some(node) = self.hosts[index].node.as_mut().filter(|_| is_orderly) {
            node.leave();
            self.send(index);
        }
        self.ended_ms.insert(self.hosts[index].swarms.id, self.now_ms);
        self.hosts[index].node = None;
        self.hosts[index].swarms = Model::new(NodeId(0), 0);
    }

    /// Sets the weather of the faults that last.
    fn set_weather(&mut self) {
        let before = std::mem::take(&mut self.bus.weather);
        let weather = &mut self.bus.weather;
        for Scheduled { fault, .. } in &self.active {
            match *fault {
                Fault::Disconnect(index) => _ = weather.disconnected.insert(index),
                Fault::Cut(nodes) => {
                    weather.cut = (0..8).filter(|index| nodes >> index & 1 != 0).collect();
                }
                Fault::Loss(per_cent) => weather.lost = per_cent,
                Fault::Double(per_cent) => weather.doubled = per_cent,
                Fault::Disorder(ms) => weather.disorder_ms = ms,
                Fault::Slow(index, ms) => _ = weather.slow.insert(index, ms),
                Fault::Crash(_)
                | Fault::Restart(_)
                | Fault::Suspend(_)
                | Fault::Garbage
                | Fault::Stranger => {}
            }
        }
        let now = weather.disconnected.clone();
        for &index in before.disconnected.symmetric_difference(&now) {
            let host = &mut self.hosts[index];
            if let Some(node) = &mut host.node {
                node.set_connected(!now.contains(&index), self.now_ms + host.clock_ms);
            }
        }
    }

    /// Sends random bytes, or a message of a node that does not exist, whose fields are random.
    fn send_garbage(&mut self) {
        let any = self.rng.usize(..self.hosts.len());
        let node = self.hosts[any].swarms.id;
        let kind = self.rng.u32(..4);
        let shard = self.rng.usize(..SHARDS);
        let subject = match kind {
            0 => "shoal.simulated.hello".to_owned(),
            1 => format!("shoal.simulated.delta.{shard}"),
            2 => format!("shoal.simulated.node.{node}"),
            _ => "elsewhere".to_owned(),
        };
        let length = self.rng.usize(..200);
        let bytes: Bytes = std::iter::repeat_with(|| self.rng.u8(..3)).take(length).collect();
        let payload = if self.rng.bool() { bytes } else { self.invent(kind, shard, &bytes) };
        self.put(subject, payload);
    }

    /// Returns a message of a node that does not exist, mostly for a subject of this kind.
    fn invent(&mut self, kind: u32, shard: usize, bytes: &[u8]) -> Bytes {
        let rng = &mut self.rng;
        // Too short to invent a peer.
        let short = &bytes[..bytes.len().min(20)];
        let snapshot = rng.u32(..3);
        let (first, at_ms) = (rng.u64(..50), rng.u64(..));
        let scope = if rng.bool() { Scope::Addresses } else { Scope::Connected };
        let message = match (kind, rng.u32(..10)) {
            (0, 0) => Message::Goodbye,
            (0, _) => {
                let streams =
                    std::array::from_fn(|_| StreamHead { next: rng.u64(..50), digest: rng.u64(..3) });
                // The last one was a property of nodes that is gone.
                let (is_ready, is_whole, _) = (rng.bool(), rng.bool(), rng.bool());
                Message::Hello(Box::new(Hello {
                    is_ready,
                    is_whole,
                    sent_ms: at_ms,
                    uptime_ms: first,
                    name: "invented",
                    streams,
                }))
            }
            (1, _) => Message::Batch { shard, sequence: first, sent_ms: at_ms, deltas: short },
            (_, 0) => Message::Resend { shard, first, last: first + rng.u64(..50) },
            (_, 1) => Message::Gone { shard, first },
            (_, 2 | 3) => Message::Fetch { snapshot, next: rng.u32(..3), scope },
            (_, 4) => Message::Part { snapshot, part: rng.u32(..3), is_last: rng.bool(), block: short },
            (_, 5) => Message::Refused { snapshot },
            (_, 6) => Message::Ping { at_ms },
            (_, 7) => Message::Pong { at_ms },
            (_, 8) => Message::Relay { content: bytes },
            _ => Message::Heads { snapshot, nodes: Heads::new(&[]) },
        };
        encode(INVENTED[rng.usize(..INVENTED.len())], &message)
    }

    /// Sends a message of the node of another version: a hello, or a request.
    fn send_of_stranger(&mut self) {
        let any = self.rng.usize(..self.hosts.len());
        let node = self.hosts[any].swarms.id;
        let (subject, message) = match self.rng.u32(..20) {
            0 => ("hello".to_owned(), Message::Goodbye),
            1 => (format!("node.{node}"), Message::Fetch { snapshot: 1, next: 0, scope: Scope::Addresses }),
            2 => (format!("node.{node}"), Message::Resend { shard: 0, first: 1, last: 9 }),
            3 => (format!("node.{node}"), Message::Ping { at_ms: 1 }),
            _ => return,
        };
        let mut bytes = encode(STRANGER, &message).to_vec();
        bytes[0] = 2;
        let end = bytes.len() - 4;
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        self.put(format!("shoal.simulated.{subject}"), bytes.into());
    }

    /// Puts a message of none of the nodes on the bus.
    fn put(&mut self, subject: String, payload: Bytes) {
        let message = Outgoing { subject, payload };
        self.bus.send(usize::MAX, 0..self.hosts.len(), &message, self.now_ms, &mut self.rng);
    }

    /// Checks that no node has a peer that has been silent for much longer than the timeout, or that never was, or one that is
    /// connected to a node that has ended.
    fn check_invented(&self) {
        // The time for which a node was suspended has not passed there, and what it tells then seems to be new.
        let suspended_ms = self.suspended_ms;
        let running = |(_, host): &(usize, &Host)| !host.is_suspended;
        for (index, host) in self.hosts.iter().enumerate().filter(running) {
            for browser in host.swarms.browsers.values() {
                let ended_ms = self.ended_ms.get(&browser.node);
                let is_recent =
                    ended_ms.is_none_or(|ended_ms| self.now_ms <= ended_ms + SLACK_MS + suspended_ms);
                assert!(is_recent, "node {index} at {} ms: {browser:?}, {ended_ms:?}", self.now_ms);
            }
        }
        let known: BTreeMap<Key, u64> =
            self.clients.iter().filter_map(|client| Some((client.key(), client.last_ms?))).collect();
        for (index, host) in self.hosts.iter().enumerate().filter(running) {
            for key in host.swarms.peers.keys() {
                let last_ms = known.get(key);
                let is_recent = last_ms
                    .is_some_and(|last_ms| self.now_ms <= last_ms + TIMEOUT_MS + SLACK_MS + suspended_ms);
                assert!(
                    is_recent,
                    "node {index} has {key:?} at {} ms, last announced {last_ms:?}",
                    self.now_ms
                );
            }
        }
    }

    /// Checks that the messages that nodes hold are within their bounds, which are far below the traffic of a schedule.
    fn check_bounded(&self) {
        for (index, host) in self.hosts.iter().enumerate() {
            let Some(node) = &host.node else { continue };
            let [retained, waiting, outgoing] = node.held_bytes();
            let now_ms = self.now_ms;
            assert!(
                retained <= host.retained_bytes_max,
                "node {index} at {now_ms} ms retains {retained} bytes"
            );
            assert!(waiting <= WAITING_BYTES_MAX, "node {index} at {now_ms} ms: {waiting} bytes wait");
            assert_eq!(outgoing, 0, "node {index} at {now_ms} ms");
        }
    }

    /// Checks that every node has the live peers, and maybe some that have ended.
    fn check_present(&self) {
        for browser in &self.browsers {
            let Some((_, run)) = browser.connected else { continue };
            for (index, host) in self.hosts.iter().enumerate() {
                let found = host.swarms.browsers.get(&browser.key()).map(|found| (found.node, found.seeds));
                assert_eq!(found, Some((run, browser.seeds)), "node {index}, {:?}", browser.key());
            }
        }
        let runs: BTreeSet<_> = self.hosts.iter().map(|host| host.swarms.id).collect();
        // A node that ends without a connection takes what it alone knew along.
        let live = self.clients.iter().filter(|client| !client.is_over && client.last_ms.is_some());
        let is_recent =
            |client: &Client| client.last_ms.is_some_and(|last_ms| self.now_ms < last_ms + RECENT_MS);
        let live = live.filter(|client| runs.contains(&client.last_run) && !is_recent(client));
        for key in live.map(Client::key) {
            for (index, host) in self.hosts.iter().enumerate() {
                let status = host.node.as_ref().map(|node| node.status(self.now_ms + host.clock_ms));
                assert!(host.swarms.peers.contains_key(&key), "node {index} misses {key:?}: {status:#?}");
            }
        }
    }

    /// Checks that every node has the live peers, with their roles, and knows that it misses nothing.
    fn check_converged(&self) {
        let live: BTreeMap<Key, bool> = self
            .clients
            .iter()
            .filter(|client| !client.is_over && client.last_ms.is_some())
            .map(|client| (client.key(), client.seeds))
            .collect();
        for (index, host) in self.hosts.iter().enumerate() {
            let node = host.node.as_ref().expect("every node is up in the end");
            let found: BTreeMap<Key, bool> =
                host.swarms.peers.iter().map(|(key, entry)| (*key, entry.seeds)).collect();
            let differs: BTreeSet<_> = live.iter().collect();
            let differs: Vec<_> = differs.symmetric_difference(&found.iter().collect()).copied().collect();
            let status = node.status(self.now_ms + host.clock_ms);
            assert!(differs.is_empty(), "node {index} differs in {differs:?}: {status:#?}");
            assert_eq!(status.state, NodeState::Ready, "node {index}: {status:#?}");
            let stranger = status.nodes.iter().find(|node| node.id == STRANGER.to_string());
            let is_stranger = stranger.is_none_or(|node| node.state == NodeState::OtherVersion);
            assert!(is_stranger, "node {index}: {status:#?}");
            let ready = status.nodes.iter().filter(|node| node.state == NodeState::Ready).count();
            assert_eq!(ready, self.hosts.len() - 1, "node {index}: {status:#?}");
            let connected =
                self.browsers.iter().filter_map(|browser| Some((browser.key(), browser.connected?.1)));
            let found = host.swarms.browsers.iter().map(|(key, browser)| (*key, browser.node));
            assert_eq!(found.collect::<BTreeMap<_, _>>(), connected.collect(), "node {index}");
            if self.suspended_ms > 0 {
                // Batches of before a suspension seem to be newer than they are, and their downloads may count twice.
                continue;
            }
            for (torrent, completed) in &host.swarms.completed {
                let downloads = self.downloads.get(torrent).copied().unwrap_or(0);
                assert!(
                    *completed <= downloads,
                    "node {index} counts {completed} of {downloads} downloads of {torrent:?}"
                );
            }
        }
    }
}
