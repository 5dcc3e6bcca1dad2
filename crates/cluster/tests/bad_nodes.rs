//! A node among others that lie, ask too much, or give nothing. The bus carries only what the tests put there.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use bytes::Bytes;
use shoal_cluster::message::{Decoded, Heads, Hello, Message, StreamHead, decode, encode};
use shoal_cluster::{
    BATCH_BYTES_MAX, Damaged, Node, NodeId, Outgoing, SHARDS, Scope, Settings, Swarms, WAITING_BYTES_MAX,
};
use shoal_types::{Action, Delta, InfoHash, Presence};

const ME: NodeId = NodeId(1);
const BAD: NodeId = NodeId(66);
const GOOD: NodeId = NodeId(7);

/// Bytes of batches that the node retains.
const RETAINED_BYTES_MAX: usize = 16 << 20;

/// Swarms that count what reaches them, and export blocks of the usual size.
#[derive(Default)]
struct Counted {
    deltas: usize,
    blocks: usize,
}

impl Swarms for Counted {
    type Export = u32;

    fn apply(&mut self, deltas: &[Delta], _: u64) {
        self.deltas += deltas.len();
    }

    fn apply_presences(&mut self, _: NodeId, _: &[Presence]) {}

    fn deliver(&mut self, _: NodeId, _: &[u8]) {}

    fn forget(&mut self, _: NodeId) {}

    fn begin_export(&mut self, _: Scope) -> u32 {
        0
    }

    fn export(&mut self, export: &mut u32, block: &mut Vec<u8>) -> bool {
        block.resize(64 << 10, 0);
        *export += 1;
        *export < 100
    }

    fn adopt(&mut self, _: NodeId, _: &[u8]) -> Result<(), Damaged> {
        self.blocks += 1;
        Ok(())
    }
}

/// A node with a bus, and the time.
struct World {
    node: Node<u32>,
    swarms: Counted,
    now_ms: u64,
    sent: Vec<Outgoing>,
}

impl World {
    fn new() -> Self {
        let settings = Settings {
            cluster: "c".into(),
            name: "me".into(),
            id: ME,
            retained_bytes_max: RETAINED_BYTES_MAX,
        };
        let mut node = Node::new(&settings, 0);
        node.set_connected(true, 0);
        Self { node, swarms: Counted::default(), now_ms: 0, sent: Vec::new() }
    }

    /// A node that has joined, since there was no other.
    fn alone() -> Self {
        let mut world = Self::new();
        world.pass(2_000);
        assert!(world.node.is_ready());
        world
    }

    /// Lets time pass, and returns the messages of the node.
    fn pass(&mut self, ms: u64) -> Vec<Outgoing> {
        for _ in 0..ms.div_ceil(10) {
            self.now_ms += 10;
            self.node.run(self.now_ms, &mut self.swarms);
            self.sent.extend(core::iter::from_fn(|| self.node.next_message()));
        }
        core::mem::take(&mut self.sent)
    }

    fn receive(&mut self, from: NodeId, subject: &str, message: &Message<'_>) {
        let bytes = encode(from, message);
        self.node.receive(&format!("shoal.c.{subject}"), &bytes, self.now_ms, &mut self.swarms);
        self.sent.extend(core::iter::from_fn(|| self.node.next_message()));
    }

    fn receive_own(&mut self, from: NodeId, message: &Message<'_>) {
        self.receive(from, &format!("node.{ME}"), message);
    }

    /// Receives the hello of a node that is ready and misses nothing.
    fn greet(&mut self, from: NodeId) {
        let hello = Hello {
            is_ready: true,
            is_whole: true,
            sent_ms: self.now_ms,
            uptime_ms: self.now_ms,
            name: "other",
            streams: [StreamHead::FIRST; SHARDS],
        };
        self.receive(from, "hello", &Message::Hello(Box::new(hello)));
    }

    /// Records deltas for one shard until this many batches are full.
    fn fill(&mut self, batches: u64) {
        let begin = self.node.status(self.now_ms).counters.batches_out;
        let mut number = 0_u64;
        while self.node.status(self.now_ms).counters.batches_out < begin + batches {
            for _ in 0..500 {
                number += 1;
                let mut info_hash = [0; 20];
                info_hash[12..].copy_from_slice(&number.to_be_bytes());
                let delta = Delta {
                    info_hash: InfoHash(info_hash),
                    action: Action::Leech,
                    ip: [192, 0, 2, 1].into(),
                    port: 6881,
                };
                self.node.record(&delta, self.now_ms);
            }
        }
        self.sent.extend(core::iter::from_fn(|| self.node.next_message()));
    }

    fn counters(&self) -> shoal_cluster::Counters {
        self.node.status(self.now_ms).counters
    }
}

fn bytes(messages: &[Outgoing]) -> usize {
    messages.iter().map(|message| message.payload.len()).sum()
}

/// Returns the receiver of a request for part 0 of a snapshot, and the number of the snapshot.
fn fetched(messages: &[Outgoing], to: NodeId) -> Option<u32> {
    let is_to = |message: &&Outgoing| message.subject == format!("shoal.c.node.{to}");
    messages.iter().filter(is_to).find_map(|message| match decode(&message.payload) {
        Ok(Decoded::Message { message: Message::Fetch { snapshot, .. }, .. }) => Some(snapshot),
        _ => None,
    })
}

#[test]
fn a_node_joins_although_another_one_never_gives_its_snapshot() {
    let mut world = World::new();
    for second in 0..70 {
        world.greet(BAD);
        world.pass(1_000);
        assert!(second > 5 || !world.node.is_ready(), "it gives up too early");
    }
    assert!(world.node.is_ready());
    assert!(world.counters().failed_resyncs >= 3);
}

#[test]
fn a_node_that_gives_nothing_is_asked_after_one_that_does() {
    let mut world = World::new();
    // The bad one is nearer: it answers pings at once.
    let mut snapshot = None;
    while snapshot.is_none() && world.now_ms < 30_000 {
        world.greet(BAD);
        world.greet(GOOD);
        for message in world.pass(500) {
            if let Ok(Decoded::Message { message: Message::Ping { at_ms }, .. }) = decode(&message.payload)
                && message.subject.ends_with(&BAD.to_string())
            {
                world.receive_own(BAD, &Message::Pong { at_ms });
            }
            snapshot = snapshot.or_else(|| fetched(&[message], GOOD));
        }
    }
    let snapshot = snapshot.expect("the good node is asked");
    assert_eq!(world.counters().failed_resyncs, 1);
    world.receive_own(GOOD, &Message::Heads { snapshot, nodes: Heads::new(&[]) });
    world.receive_own(GOOD, &Message::Part { snapshot, part: 1, is_last: true, block: b"" });
    assert_eq!((world.counters().resyncs, world.swarms.blocks), (1, 1));
}

#[test]
fn few_bytes_are_sent_again_whatever_is_requested() {
    let mut world = World::alone();
    world.fill(1_000);
    world.pass(100);
    let mut sent = 0;
    for number in 0..20_000_u64 {
        let request = Message::Resend { shard: 0, first: 1, last: 1 << 40 };
        world.receive_own(NodeId(100 + number % 100), &request);
        sent += bytes(&core::mem::take(&mut world.sent));
    }
    let maximum = 32 << 20;
    assert!((16 << 20..maximum + 20_000 * 64).contains(&sent), "{sent} bytes");
    let counters = world.counters();
    assert!(counters.resent > 1_000 && counters.refused > 19_000, "{counters:?}");
    // A second later, there is as much again.
    world.pass(1_000);
    world.receive_own(GOOD, &Message::Resend { shard: 0, first: 900, last: 950 });
    assert_eq!(world.counters().resent - counters.resent, 51);
}

#[test]
fn parts_of_a_snapshot_are_seldom_repeated() {
    let mut world = World::alone();
    world.receive_own(BAD, &Message::Fetch { snapshot: 1, next: 0, scope: Scope::Addresses });
    let ahead = bytes(&world.pass(1_000));
    assert!(ahead > 7 * (64 << 10), "{ahead} bytes");
    for _ in 0..1_000 {
        world.receive_own(BAD, &Message::Fetch { snapshot: 1, next: 0, scope: Scope::Addresses });
    }
    let repeated = bytes(&world.pass(10));
    assert!((ahead - 1024..=ahead + 1024).contains(&repeated), "{repeated} bytes");
    assert_eq!(world.counters().refused, 999);
}

#[test]
fn batches_that_wait_for_others_are_bounded() {
    let mut world = World::alone();
    let mut accepted = 0;
    for node in 0..120 {
        for shard in 0..SHARDS {
            for sequence in 2..=200 {
                let deltas = b"";
                let batch = Message::Batch { shard, sequence, sent_ms: 0, deltas };
                world.receive(NodeId(100 + node), &format!("delta.{shard}"), &batch);
                accepted += 1;
            }
        }
    }
    let counters = world.counters();
    assert_eq!(counters.reordered + counters.refused, accepted);
    // Each takes its 31 bytes and the memory of its place.
    assert!(counters.reordered < WAITING_BYTES_MAX as u64 / 128, "{counters:?}");
    assert!(counters.refused > accepted / 2);
}

#[test]
fn invented_nodes_are_bounded_and_known_ones_remain() {
    let mut world = World::alone();
    world.greet(GOOD);
    for number in 0..10_000 {
        world.greet(NodeId(1_000 + number));
    }
    let status = world.node.status(world.now_ms);
    assert!(status.nodes.len() <= 128 && status.nodes.iter().any(|node| node.id == GOOD.to_string()));
    assert!(status.counters.refused > 9_000);
    // They are forgotten in favour of others as soon as they are silent.
    for _ in 0..7 {
        world.greet(GOOD);
        world.pass(1_000);
    }
    world.greet(NodeId(8));
    let status = world.node.status(world.now_ms);
    assert!([GOOD, NodeId(8)].iter().all(|id| status.nodes.iter().any(|node| node.id == id.to_string())));
}

#[test]
fn messages_in_the_name_of_the_node_itself_are_counted_and_ignored() {
    let mut world = World::alone();
    let delta_bytes = [0; 27];
    let batch = Message::Batch { shard: 0, sequence: 1, sent_ms: 0, deltas: &delta_bytes };
    world.receive(ME, "delta.0", &batch);
    world.receive(ME, "hello", &Message::Goodbye);
    assert_eq!((world.counters().forged, world.counters().deltas_in, world.swarms.deltas), (2, 0, 0));
    // From another one, the batch counts.
    world.receive(BAD, "delta.0", &batch);
    assert_eq!((world.counters().deltas_in, world.swarms.deltas), (1, 1));
}

#[test]
fn messages_of_the_largest_size_are_read_and_larger_ones_are_refused() {
    let mut world = World::alone();
    let content = vec![0; Node::<u32>::RELAY_BYTES_MAX + 1];
    for length in [content.len() - 1, content.len()] {
        world.receive_own(BAD, &Message::Relay { content: &content[..length] });
    }
    let counters = world.counters();
    assert_eq!((counters.relayed_in, counters.malformed), (1, 1));
    let huge = Bytes::from(vec![0; 64 * BATCH_BYTES_MAX]);
    world.node.receive("shoal.c.hello", &huge, world.now_ms, &mut world.swarms);
    assert_eq!(world.counters().malformed, 2);
}
