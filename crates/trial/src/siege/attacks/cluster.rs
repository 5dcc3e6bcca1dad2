//! Attacks by a client of NATS with the right to publish on the subjects of a cluster, and by one without.

mod attacker;
mod credit;
mod headers;

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use shoal_base::{Action, Delta, InfoHash, PeerId, Presence};
use shoal_cluster::protocol::message::{Heads, Hello, Message, StreamHead, encode};
use shoal_cluster::protocol::{NodeId, SHARDS, Scope, encode_delta, encode_presence};

use self::attacker::{Attacker, delta_subject, hello_subject, node_subject};
use crate::measure;
use crate::siege::attack::{Attack, JWKS, Layer, Limits};
use crate::siege::cluster::{metric, status, write_password};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::nats::NatsClient;

/// The part that all these attacks have in common: two nodes, whose honest clients are served, and which find each other afterwards.
pub(super) const ATTACK: Attack = Attack {
    is_of_cluster: true,
    prepare: write_password,
    finish: find_each_other,
    ..Layer::Cluster.attack("", "", "", |_| Ok(()))
};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "garbage",
        tries: "random bytes, truncated messages, wrong checksums and giant messages on every subject",
        promise: "both nodes serve, count what they refuse, and stay together",
        run: garbage,
        ..ATTACK
    },
    Attack {
        name: "no-credentials",
        tries: "clients without credentials, or with wrong ones, publish and subscribe",
        promise: "NATS refuses them, and no message reaches a node",
        run: without_credentials,
        ..ATTACK
    },
    Attack {
        name: "forged-sources",
        tries: "messages in the names of both nodes: batches far ahead, ends of streams, hellos and goodbyes",
        promise: "both nodes serve, count those in their own name, and find each other afterwards",
        run: forged_sources,
        ..ATTACK
    },
    Attack {
        name: "invented-nodes",
        tries: "hellos and batches of thousands of nodes that do not exist",
        promise: "128 nodes are known at most, the real ones among them",
        run: invented_nodes,
        ..ATTACK
    },
    Attack {
        name: "forbidden-peers",
        tries: "peers of denied torrents, networks and ports, and with addresses that cannot be reached",
        promise: "none of them is handed out, and each reason is counted",
        settings: &[
            ("access.torrents_deny", "TRACKER_FOLDER/torrents"),
            ("access.networks_deny", "TRACKER_FOLDER/networks"),
            ("access.ports_deny", "1-1023"),
        ],
        prepare: write_lists,
        run: forbidden_peers,
        ..ATTACK
    },
    Attack {
        name: "peers-of-one-torrent",
        tries: "millions of peers that do not exist in one torrent",
        promise: "the store stays within its maximum, and honest clients are answered",
        limits: Limits::SWARMS_STAY,
        run: peers_of_one_torrent,
        ..ATTACK
    },
    Attack {
        name: "peers-of-many-torrents",
        tries: "as many torrents with a peer of UDP and one of WebTorrent as can be sent",
        promise: "the store stays within its maximum, and honest clients are answered",
        limits: Limits { honest_share_min: 0.0, ..Limits::SWARMS_STAY },
        run: peers_of_many_torrents,
        ..ATTACK
    },
    Attack {
        name: "requests",
        tries: "requests for snapshots, for huge ranges of batches, and pings, in the names of hundreds of nodes",
        promise: "a node sends no more than 64 MiB a second and twice the bytes of the requests",
        run: requests,
        ..ATTACK
    },
    Attack {
        name: "relayed-messages",
        tries: "offers and answers from and to peers that do not exist, and malformed ones",
        promise: "none is delivered, and each is counted",
        run: relayed_messages,
        ..ATTACK
    },
    Attack {
        name: "header-bombs",
        tries: "messages of 1 and 8 MB that are header with hundreds of thousands of names, on every subject and as values of the shared state",
        promise: "the memory of both nodes stays within its bound, each header is counted, and no connection is lost",
        // The client library has a buffer as large as the largest message.
        limits: Limits { is_memory_returned: false, ..Limits::USUAL },
        run: headers::bombs,
        ..ATTACK
    },
    Attack {
        name: "malformed-headers",
        tries: "malformed headers of a few bytes, and subjects that are not text, on every subject",
        promise: "both nodes stay connected and serve, and each header is counted",
        run: headers::malformed,
        ..ATTACK
    },
    Attack {
        name: "credit",
        tries: "announces of users over UDP without a pause, while no stream takes their credit",
        promise: "the announces are served, their credit waits in bounded memory, and what is lost is counted",
        settings: &[
            ("tokens.jwks", JWKS),
            ("tokens.required", "false"),
            ("cluster.credit_stream", "CREDIT"),
            ("cluster.jetstream_domain", "nowhere"),
            // The memory of tokens and of credit is part of memory.max.
            ("store.memory_max", "32MiB"),
        ],
        limits: Limits::SWARMS_STAY,
        run: credit::announces,
        ..ATTACK
    },
];

fn hello(name: &str, streams: [StreamHead; SHARDS]) -> Message<'_> {
    let (is_ready, is_whole, sent_ms, uptime_ms) = (true, true, 0, 1_000);
    let hello = Hello { is_ready, is_whole, sent_ms, uptime_ms, name, streams };
    Message::Hello(Box::new(hello))
}

/// Returns the ends of streams that this many batches have.
fn heads(next: u64) -> [StreamHead; SHARDS] {
    [StreamHead { next, digest: fastrand::u64(..) }; SHARDS]
}

/// Returns an invented node.
fn invented(number: u32) -> NodeId {
    NodeId(0xbad0_0000_0000_0000 | u64::from(number))
}

fn random_bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::fill(&mut bytes);
    bytes
}

/// Returns some message of every kind.
fn messages() -> Vec<Vec<u8>> {
    let deltas = random_bytes(27);
    let shard = fastrand::usize(..SHARDS);
    let all = [
        Message::Batch { shard, sequence: 1, sent_ms: 0, deltas: &deltas },
        hello("x", heads(1)),
        Message::Goodbye,
        Message::Resend { shard, first: 1, last: 1 << 40 },
        Message::Gone { shard, first: 1 << 40 },
        Message::Fetch { snapshot: 1, next: 0, scope: Scope::Addresses },
        Message::Part { snapshot: 0, part: 1, is_last: true, block: &deltas },
        Message::Refused { snapshot: 0 },
        Message::Ping { at_ms: 1 },
        Message::Pong { at_ms: 1 },
        Message::Relay { content: &deltas },
        Message::Heads { snapshot: 0, nodes: Heads::new(&[]) },
    ];
    all.iter().map(|message| encode(invented(0), message).to_vec()).collect()
}

fn garbage(context: &Context<'_>) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    let (subjects, messages) = (attacker.subjects(), messages());
    attacker.repeat(|attacker, number| {
        let subject = &subjects[number as usize % subjects.len()];
        let message = &messages[fastrand::usize(..messages.len())];
        let payload = match number % 4 {
            0 => random_bytes(fastrand::usize(..400)),
            1 => message[..fastrand::usize(..message.len())].to_vec(),
            2 => {
                let mut changed = message.clone();
                changed[fastrand::usize(..message.len())] ^= 1 << fastrand::u8(..8);
                changed
            }
            // On a subject where it may not belong.
            _ => message.clone(),
        };
        attacker.publish(subject, &payload)
    })?;
    // As large as NATS passes on.
    for subject in &subjects {
        attacker.publish(subject, &random_bytes(1 << 20))?;
        attacker.client.flush()?;
    }
    attacker.check_counted("shoal_cluster_messages_refused_total{reason=\"malformed\"}")
}

fn without_credentials(context: &Context<'_>) -> Result<()> {
    let port = context.cluster()?.port;
    let before = metric(context.tracker, "shoal_cluster_messages_refused_total")?;
    let logins = [None, Some(("shoal", "wrong")), Some(("", "")), Some(("admin", "admin"))];
    let (mut tried, mut let_in) = (0, 0);
    for round in context.rounds() {
        let login = logins[round as usize % logins.len()];
        context.spend(1, 0);
        tried += 1;
        let_in += u32::from(NatsClient::open(port, login).is_ok());
    }
    context.check("clients that NATS let in", let_in == 0, format!("{let_in} of {tried}"));
    let refused = metric(context.tracker, "shoal_cluster_messages_refused_total")? - before;
    context.check("messages that reached the node", refused == 0, refused.to_string());
    Ok(())
}

fn forged_sources(context: &Context<'_>) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    let nodes = attacker.nodes.clone();
    attacker.repeat(|attacker, number| {
        let (from, shard) = (nodes[number as usize % nodes.len()], fastrand::usize(..SHARDS));
        let to = nodes[(number as usize + 1) % nodes.len()];
        let far = fastrand::u64(1..1 << 48);
        match number % 6 {
            0 => {
                let batch = Message::Batch { shard, sequence: far, sent_ms: far, deltas: &[] };
                attacker.send(from, &delta_subject(shard), &batch)
            }
            1 => attacker.send(from, &node_subject(to), &Message::Gone { shard, first: far }),
            2 => attacker.send(from, &hello_subject(), &hello("forged", heads(far))),
            3 => attacker.send(from, &hello_subject(), &Message::Goodbye),
            4 => attacker.send(from, &node_subject(to), &Message::Pong { at_ms: far }),
            _ => {
                let part =
                    Message::Part { snapshot: fastrand::u32(..4), part: 1, is_last: true, block: b"C" };
                attacker.send(from, &node_subject(to), &part)
            }
        }
    })?;
    attacker.check_counted("shoal_cluster_messages_refused_total{reason=\"forged\"}")
}

fn invented_nodes(context: &Context<'_>) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    attacker.repeat(|attacker, number| {
        let (from, shard) = (invented(fastrand::u32(..20_000)), fastrand::usize(..SHARDS));
        if number.is_multiple_of(2) {
            attacker.send(from, &hello_subject(), &hello("invented", heads(fastrand::u64(1..100))))
        } else {
            let deltas = random_bytes(fastrand::usize(..2_000));
            let sequence = fastrand::u64(2..300);
            let batch = Message::Batch { shard, sequence, sent_ms: 0, deltas: &deltas };
            attacker.send(from, &delta_subject(shard), &batch)
        }
    })?;
    attacker.check_counted("shoal_cluster_messages_refused_total{reason=\"too_many\"}")?;
    let cluster = status(context.tracker)?;
    let known = cluster["nodes"].as_array().context("a list of nodes")?;
    context.check("nodes that are known", known.len() <= 128, known.len().to_string());
    let is_known = known.iter().any(|node| node["name"] == cluster["node"]);
    context.check("the other real node is known", is_known, is_known.to_string());
    Ok(())
}

/// A stream of batches of one invented node.
struct Source {
    id: NodeId,
    next: [u64; SHARDS],
}

impl Source {
    fn new(number: u32) -> Self {
        Self { id: invented(number), next: [1; SHARDS] }
    }

    /// Sends the next batch of a shard.
    fn send(&mut self, attacker: &mut Attacker<'_>, shard: usize, deltas: &[u8]) -> Result<()> {
        let batch = Message::Batch { shard, sequence: self.next[shard], sent_ms: 0, deltas };
        self.next[shard] += 1;
        attacker.send(self.id, &delta_subject(shard), &batch)
    }
}

fn info_hash(shard: usize, number: u64) -> InfoHash {
    let mut bytes = [0xee; 20];
    bytes[0] = u8::try_from(shard << 4).unwrap_or(0);
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    InfoHash(bytes)
}

fn delta(info_hash: InfoHash, ip: [u8; 4], port: u16) -> Delta {
    Delta { info_hash, action: Action::Seed, ip: IpAddr::from(ip), port }
}

/// Returns the encoding of deltas.
fn encoded(deltas: impl Iterator<Item = Delta>) -> Vec<u8> {
    let (mut bytes, mut before) = (Vec::new(), None);
    for delta in deltas {
        encode_delta(&delta, before.as_ref(), &mut bytes);
        before = Some(delta.info_hash);
    }
    bytes
}

/// A torrent that the lists of `forbidden-peers` deny.
const DENIED: InfoHash = InfoHash([0; 20]);

fn write_lists(folder: &Path) -> Result<()> {
    write_password(folder)?;
    fs::write(folder.join("torrents"), format!("{}\n", "00".repeat(20)))?;
    fs::write(folder.join("networks"), "198.51.100.0/24\n").context("cannot write a list")
}

fn forbidden_peers(context: &Context<'_>) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    let (mut source, permitted) = (Source::new(1), info_hash(0, 1));
    attacker.repeat(|attacker, _| {
        let [one, two] = [fastrand::u8(1..), fastrand::u8(1..)];
        let deltas = [
            delta(DENIED, [5, 5, one, two], 6881),
            delta(permitted, [198, 51, 100, one], 6881),
            delta(permitted, [5, 5, one, two], 80),
            delta(permitted, [0, 0, 0, 0], 6881),
            delta(permitted, [224, 0, one, two], 6881),
            delta(permitted, [255, 255, 255, 255], 6881),
            delta(permitted, [5, 5, one, two], 0),
        ];
        let mut bytes = encoded(deltas.into_iter());
        let peer_id = PeerId([one; 20]);
        let presence = Presence { info_hash: DENIED, action: Action::Seed, peer_id, source: [two; 7] };
        encode_presence(&presence, None, &mut bytes);
        source.send(attacker, 0, &bytes)
    })?;
    for reason in ["torrent_denied", "network_denied", "port_denied", "unusable_address"] {
        attacker.check_counted(&format!("shoal_replication_refused_total{{reason=\"{reason}\"}}"))?;
    }
    attacker.check_counted("shoal_cluster_webtorrent_refused_total{reason=\"torrent_denied\"}")?;
    for node in [context.tracker, &context.cluster()?.other] {
        let ip = crate::siege::address::hostile_v4(1);
        let client = crate::siege::udp::open(ip, node.udp(ip), TIMEOUT)?;
        let members = client.scrape(&[permitted.0])?[0].members();
        context.check("forbidden peers that are handed out", members == 0, members.to_string());
    }
    Ok(())
}

fn peers_of_one_torrent(context: &Context<'_>) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    let (mut source, torrent, mut number) = (Source::new(1), info_hash(3, 1), 0_u32);
    attacker.repeat(|attacker, _| {
        let deltas = (0..500).map(|_| {
            number += 1;
            let [a, b, c, d] = number.to_be_bytes();
            delta(torrent, [20 + a % 100, b, c, d], 6881)
        });
        let bytes = encoded(deltas);
        source.send(attacker, 3, &bytes)
    })?;
    attacker.check_counted("shoal_replication_applied_total")
}

fn peers_of_many_torrents(context: &Context<'_>) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    let (mut source, mut number) = (Source::new(1), 0_u64);
    attacker.repeat(|attacker, burst| {
        let shard = burst as usize % SHARDS;
        let mut bytes = Vec::new();
        for _ in 0..150 {
            number += 1;
            let info_hash = info_hash(shard, number);
            encode_delta(&delta(info_hash, [20, 1, 1, 1], 6881), None, &mut bytes);
            let (peer_id, source) = (PeerId([7; 20]), [1; 7]);
            let presence = Presence { info_hash, action: Action::Leech, peer_id, source };
            encode_presence(&presence, Some(&info_hash), &mut bytes);
        }
        source.send(attacker, shard, &bytes)
    })?;
    attacker.check_counted("shoal_replication_applied_total")
}

fn requests(context: &Context<'_>) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    let sent_before = metric(context.tracker, "shoal_cluster_bytes_total{direction=\"out\"}")?;
    let (began, node) = (measure::now(), attacker.nodes.clone());
    attacker.repeat(|attacker, number| {
        let (from, shard) = (invented(number % 300), fastrand::usize(..SHARDS));
        let to = node_subject(node[number as usize % node.len()]);
        match number % 3 {
            0 => attacker.send(from, &to, &Message::Ping { at_ms: 1 }),
            1 => attacker.send(from, &to, &Message::Resend { shard, first: 1, last: 1 << 48 }),
            _ => {
                let (snapshot, next) = (number / 3_000, fastrand::u32(..3));
                attacker.send(from, &to, &Message::Fetch { snapshot, next, scope: Scope::Addresses })
            }
        }
    })?;
    context.sleep_ms(500);
    let sent = metric(context.tracker, "shoal_cluster_bytes_total{direction=\"out\"}")? - sent_before;
    let seconds = (measure::now() - began).as_secs() + 1;
    let (_, received) = context.spent();
    let found = format!("{sent} bytes for {received} in {seconds} s");
    context.check("bytes that the node has sent", sent <= 2 * received + (64 << 20) * seconds, found);
    attacker.check_counted("shoal_cluster_messages_refused_total{reason=\"too_many\"}")
}

/// Kinds of messages between clients.
const OFFER: u8 = 16;
const ANSWER: u8 = 8;

/// Returns a message between clients, see `shoal_engine::webtorrent::RemoteMessage`.
fn of_client(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut content = vec![kind];
    content.extend_from_slice(&random_bytes(40));
    content.extend_from_slice(rest);
    let mut message = u32::try_from(content.len()).unwrap_or(0).to_le_bytes().to_vec();
    message.append(&mut content);
    message
}

fn relayed_messages(context: &Context<'_>) -> Result<()> {
    let mut attacker = Attacker::new(context)?;
    let nodes = attacker.nodes.clone();
    let frame = b"\x81\x07{\"a\":1}";
    let rest = [[9; 20].as_slice(), b"\x01o", frame].concat();
    attacker.repeat(|attacker, number| {
        let mut content = Vec::new();
        for _ in 0..20 {
            content.extend_from_slice(&of_client(OFFER, &[[7; 7].as_slice(), &rest].concat()));
            content.extend_from_slice(&of_client(ANSWER, &rest));
        }
        // Half a frame, an unknown kind, and a length beyond the end.
        content.extend_from_slice(match number % 3 {
            0 => b"\x2c\0\0\0\x10",
            1 => b"\x01\0\0\0\xff",
            _ => b"\xff\xff\xff\xff",
        });
        let (from, to) = (invented(number % 100), nodes[number as usize % nodes.len()]);
        attacker.send(from, &node_subject(to), &Message::Relay { content: &content })
    })?;
    for outcome in ["unwanted", "malformed"] {
        attacker.check_counted(&format!("shoal_cluster_forwarded_total{{outcome=\"{outcome}\"}}"))?;
    }
    let delivered = metric(context.tracker, "shoal_cluster_forwarded_total{outcome=\"delivered\"}")?;
    context.check("messages that were delivered", delivered == 0, delivered.to_string());
    Ok(())
}

/// Waits until the nodes know each other as ready, which they do however they were disturbed.
pub(super) fn find_each_other(context: &Context<'_>) -> Result<()> {
    let took = context.cluster()?.wait_until_ready(context.tracker);
    let found =
        took.as_ref().map_or_else(ToString::to_string, |took| format!("after {} ms", took.as_millis()));
    context.check("the nodes find each other", took.is_ok(), found);
    Ok(())
}
