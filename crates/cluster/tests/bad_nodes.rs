//! A node among others that lie, ask too much, or give nothing. The bus carries only what the tests put there.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use bytes::Bytes;
use shoal_base::{Action, Delta, InfoHash, Presence};
use shoal_cluster::protocol::message::{Decoded, Heads, Hello, Message, StreamHead, decode, encode};
use shoal_cluster::protocol::{
    BATCH_BYTES_MAX, Damaged, Node, NodeId, Outgoing, SHARDS, Scope, Settings, Swarms, WAITING_BYTES_MAX,
};

const ME: NodeId = NodeId(1);
const BAD: NodeId = NodeId(66);
const GOOD: NodeId = NodeId(7);

/// A block that no node adopts.
const DAMAGED: &[u8] = b"damaged";

/// Bytes of batches that the node retains.
const RETAINED_BYTES_MAX: usize = 16 << 20;

/// Swarms that count what reaches them, and export blocks of the usual size.
struct Counted {
    deltas: usize,
    /// The age of the last ones.
    age_ms: u64,
    blocks: usize,
    /// The number of blocks that they export.
    exported: u32,
}

impl Default for Counted {
    fn default() -> Self {
        Self { deltas: 0, age_ms: 0, blocks: 0, exported: 100 }
    }
}

impl Swarms for Counted {
    type Export = u32;

    fn apply(&mut self, deltas: &[Delta], age_ms: u64) {
        self.deltas += deltas.len();
        self.age_ms = age_ms;
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
        *export < self.exported
    }

    fn adopt(&mut self, _: NodeId, block: &[u8]) -> Result<(), Damaged> {
        if block == DAMAGED {
            return Err(Damaged);
        }
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

    /// Lets time pass in which nodes say hello, until the node asks one of them for a snapshot. Returns that node, the number
    /// of the snapshot and its scope.
    fn until_fetch(&mut self, greeting: &[NodeId]) -> (NodeId, u32, Scope) {
        for turn in 0..1_000 {
            if turn % 10 == 0 {
                greeting.iter().for_each(|&node| self.greet(node));
            }
            let sent = self.pass(100);
            for message in sent.iter().filter(|message| message.subject.contains("node.")) {
                let to = message.subject.rsplit('.').next().unwrap().parse().unwrap();
                let Ok(Decoded::Message { message, .. }) = decode(&message.payload) else { continue };
                if let Message::Fetch { snapshot, next: 0, scope } = message {
                    return (to, snapshot, scope);
                }
            }
        }
        panic!("no snapshot is fetched");
    }

    /// Receives a snapshot without content.
    fn give(&mut self, (from, snapshot, _): (NodeId, u32, Scope)) {
        self.receive_own(from, &Message::Heads { snapshot, nodes: Heads::new(&[]) });
        self.receive_own(from, &Message::Part { snapshot, part: 1, is_last: true, block: b"" });
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

    fn counters(&self) -> shoal_cluster::protocol::Counters {
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

/// Requests the first part of a snapshot, and returns whether it comes.
fn is_given(world: &mut World, to: NodeId, snapshot: u32, scope: Scope) -> bool {
    world.pass(10);
    world.receive_own(to, &Message::Fetch { snapshot, next: 0, scope });
    world.sent.iter().any(|message| {
        let decoded = decode(&message.payload);
        matches!(decoded, Ok(Decoded::Message { message: Message::Heads { .. }, .. }))
            && message.subject.ends_with(&to.to_string())
    })
}

#[test]
fn snapshots_whose_parts_were_sent_keep_no_node_waiting() {
    let mut world = World::alone();
    world.swarms.exported = 3;
    for node in 100..108 {
        for scope in [Scope::Addresses, Scope::Connected] {
            assert!(is_given(&mut world, NodeId(node), scope as u32, scope), "node {node}, {scope:?}");
            let last = Message::Fetch { snapshot: scope as u32, next: 4, scope };
            world.pass(10);
            world.receive_own(NodeId(node), &last);
        }
    }
    // Those that were not acknowledged are retained for a while, but few of them.
    let given = (200..240).filter(|&node| is_given(&mut world, NodeId(node), 1, Scope::Addresses)).count();
    assert_eq!(given, 12);
    assert_eq!(world.counters().refused, 28);
}

#[test]
fn nodes_that_acknowledge_nothing_keep_no_other_waiting() {
    let mut world = World::alone();
    let mut given_ms = None;
    while given_ms.is_none() && world.now_ms < 60_000 {
        for number in [1, 2] {
            let request = Message::Fetch { snapshot: 1, next: 0, scope: Scope::Addresses };
            world.receive_own(NodeId(100 + number), &request);
        }
        world.sent.clear();
        assert!(
            is_given(&mut world, BAD, 1, Scope::Connected) || world.now_ms > 2_100,
            "its slot is another"
        );
        given_ms = is_given(&mut world, GOOD, 1, Scope::Addresses).then_some(world.now_ms);
        world.pass(680);
    }
    assert!(given_ms.is_some_and(|given_ms| given_ms < 8_000), "{given_ms:?}");
}

#[test]
fn a_node_that_refuses_its_snapshot_is_asked_after_one_that_does_not() {
    let mut world = World::new();
    let (first, snapshot, _) = world.until_fetch(&[GOOD, BAD]);
    world.receive_own(first, &Message::Refused { snapshot });
    let refused_ms = world.now_ms;
    let second = world.until_fetch(&[GOOD, BAD]);
    assert!(second.0 != first && world.now_ms <= refused_ms + 100, "{second:?}");
    world.receive_own(second.0, &Message::Refused { snapshot: second.1 });
    // If both are busy, each is asked again in its turn, twice a second.
    let mut asked = vec![first, second.0];
    for _ in 0..40 {
        let (from, snapshot, _) = world.until_fetch(&[GOOD, BAD]);
        world.receive_own(from, &Message::Refused { snapshot });
        assert_ne!(asked.last(), Some(&from));
        asked.push(from);
    }
    assert!((refused_ms + 9_500..refused_ms + 13_000).contains(&world.now_ms), "{} ms", world.now_ms);
    assert_eq!((world.counters().failed_resyncs, world.counters().refused_resyncs), (0, 42));
}

#[test]
fn a_node_joins_although_all_others_refuse_their_snapshots() {
    let mut world = World::new();
    while !world.node.is_ready() && world.now_ms < 120_000 {
        let (from, snapshot, _) = world.until_fetch(&[GOOD, BAD]);
        world.receive_own(from, &Message::Refused { snapshot });
        world.pass(10);
    }
    assert!(world.node.is_ready() && world.now_ms > 60_000, "{} ms", world.now_ms);
    // It still fetches what it misses.
    let fetch = world.until_fetch(&[GOOD, BAD]);
    assert_eq!(fetch.2, Scope::Addresses);
}

#[test]
fn a_node_joins_although_another_one_refuses_its_connected_peers() {
    let mut world = World::new();
    let mut asked = 0;
    while world.now_ms < 40_000 {
        let fetch = world.until_fetch(&[GOOD, BAD]);
        if fetch.0 == BAD && fetch.2 == Scope::Connected {
            world.receive_own(BAD, &Message::Refused { snapshot: fetch.1 });
            asked += 1;
        } else {
            world.give(fetch);
        }
        world.pass(10);
        assert!(world.node.is_ready() || world.now_ms < 15_000, "{} ms", world.now_ms);
    }
    assert!(asked > 60, "it tries on");
}

#[test]
fn a_node_whose_snapshots_fail_does_not_keep_this_one_from_those_of_others() {
    let mut world = World::alone();
    // Something of the bad one is lost, and its snapshots never come.
    world.greet(BAD);
    world.receive_own(BAD, &Message::Gone { shard: 0, first: 50 });
    let first = world.until_fetch(&[BAD, GOOD]);
    assert_eq!((first.0, first.2), (BAD, Scope::Addresses));
    while world.counters().failed_resyncs < 1 {
        world.pass(500);
        world.greet(BAD);
        world.greet(GOOD);
    }
    // The connected peers of the good one are missing from now on.
    world.receive_own(GOOD, &Message::Gone { shard: 0, first: 50 });
    let lost_ms = world.now_ms;
    let fetches = [world.until_fetch(&[BAD, GOOD]), {
        let fetch = world.until_fetch(&[BAD, GOOD]);
        world.give(fetch);
        fetch
    }];
    assert!(fetches.iter().any(|fetch| fetch.0 == GOOD), "{fetches:?}");
    assert!(world.now_ms < lost_ms + 8_000, "{} ms", world.now_ms - lost_ms);
}

#[test]
fn a_snapshot_with_a_damaged_block_has_failed_and_another_node_is_asked() {
    for damaged in [1, 2] {
        let mut world = World::new();
        let (from, snapshot, _) = world.until_fetch(&[GOOD, BAD]);
        world.receive_own(from, &Message::Heads { snapshot, nodes: Heads::new(&[]) });
        for part in [1, 2] {
            let block = if part == damaged { DAMAGED } else { b"" };
            world.receive_own(from, &Message::Part { snapshot, part, is_last: part == 2, block });
        }
        let counters = world.counters();
        assert_eq!((counters.failed_resyncs, counters.resyncs, counters.malformed), (1, 0, 1));
        let damaged_ms = world.now_ms;
        let next = world.until_fetch(&[GOOD, BAD]);
        assert!(next.0 != from && next.2 == Scope::Addresses, "{next:?}");
        assert!(world.now_ms <= damaged_ms + 100);
    }
}

#[test]
fn the_time_for_which_a_node_was_suspended_is_no_age() {
    let mut world = World::alone();
    let batch = |sequence, sent_ms| Message::Batch { shard: 0, sequence, sent_ms, deltas: &[0; 27] };
    let hello = |next, sent_ms| {
        let mut streams = [StreamHead::FIRST; SHARDS];
        streams[0].next = next;
        let (is_ready, is_whole) = (true, true);
        let (uptime_ms, name) = (1_000, "other");
        Message::Hello(Box::new(Hello { is_ready, is_whole, sent_ms, uptime_ms, name, streams }))
    };
    world.receive(GOOD, "hello", &hello(1, world.now_ms));
    world.receive(GOOD, "delta.0", &batch(1, world.now_ms));
    assert_eq!(world.swarms.age_ms, 0);
    // Its clock stands still for an hour.
    let suspended_ms = world.now_ms;
    world.pass(10_000);
    world.now_ms += 3_600_000;
    world.receive(GOOD, "hello", &hello(2, suspended_ms + 10));
    world.pass(100);
    world.receive(GOOD, "delta.0", &batch(2, suspended_ms + 110));
    assert_eq!((world.swarms.deltas, world.swarms.age_ms), (2, 0));
    // If both were suspended for different times, no one was lost, and hellos bound the ages.
    world.now_ms += 3_600_000;
    world.receive(GOOD, "hello", &hello(3, suspended_ms + 120));
    world.pass(100);
    world.receive(GOOD, "delta.0", &batch(3, suspended_ms + 220));
    assert_eq!(world.swarms.deltas, 3);
    assert!(world.swarms.age_ms <= 5_100, "{} ms", world.swarms.age_ms);
}
