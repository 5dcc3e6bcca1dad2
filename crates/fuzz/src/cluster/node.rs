//! A node of a cluster that receives any messages at any time.
//!
//! An input is a sequence of steps:
//!
//! | Bytes | Meaning |
//! |---|---|
//! | 1 | low 3 bits: the sender; next: whether the subject is another one than usual; next: whether the message is raw; highest 3: the time that passes |
//! | 1 | the kind of the message |
//! | 2 | length of the body, big-endian, cut to the length of the rest |
//! | n | the body, or the whole message if that is raw |
//!
//! The node has the identity 0, as one sender. The kinds beyond those of messages are events at the node.

use bytes::Bytes;
use shoal_base::{Action, Delta, InfoHash, Presence};
use shoal_cluster::protocol::message::{Decoded, decode};
use shoal_cluster::protocol::{Damaged, Deltas, Node, NodeId, Scope, Settings, Swarms, decode_deltas};

use crate::cluster::message::seal;

/// The first kind that is an event at the node.
const EVENTS: u8 = 200;

/// The kinds of messages whose usual subject is that of hellos.
const HELLO: u8 = 2;
const GOODBYE: u8 = 3;

/// The kind of batches.
const BATCH: u8 = 1;

/// The time that passes with a step, in milliseconds.
const PASSES_MS: [u64; 8] = [0, 1, 60, 250, 1_100, 3_100, 11_000, 700_000];

/// Blocks of an export, and their size in bytes.
const BLOCKS: u32 = 12;
const BLOCK_BYTES: usize = 100;

/// Maximum size of a message in bytes, and number of the messages that a step may cause: the batches that are sent again at a
/// request, and some for each node that is known.
const MESSAGE_BYTES_MAX: usize = 512 * 1024;
const MESSAGES_PER_STEP_MAX: usize = 2 * 1024;

/// Swarms that check what reaches them.
#[derive(Default)]
struct AnySwarms {
    adopted: u64,
}

impl Swarms for AnySwarms {
    type Export = u32;

    fn apply(&mut self, deltas: &[Delta], _: u64) {
        assert!(deltas.len() < MESSAGE_BYTES_MAX);
    }

    fn apply_presences(&mut self, from: NodeId, presences: &[Presence]) {
        assert!(from != NodeId(0) && !presences.is_empty());
    }

    fn deliver(&mut self, from: NodeId, _: &[u8]) {
        assert_ne!(from, NodeId(0));
    }

    fn forget(&mut self, node: NodeId) {
        assert_ne!(node, NodeId(0));
    }

    fn begin_export(&mut self, _: Scope) -> u32 {
        0
    }

    fn export(&mut self, export: &mut u32, block: &mut Vec<u8>) -> bool {
        block.resize(BLOCK_BYTES, 1);
        *export += 1;
        *export < BLOCKS
    }

    fn adopt(&mut self, from: NodeId, block: &[u8]) -> Result<(), Damaged> {
        assert_ne!(from, NodeId(0));
        self.adopted += 1;
        if block.first() == Some(&b'!') { Err(Damaged) } else { Ok(()) }
    }
}

struct World {
    node: Node<u32>,
    swarms: AnySwarms,
    now_ms: u64,
}

/// Runs a node through the steps of an input. It sends only well-formed, bounded messages, and can always be shown.
pub fn cluster_node(input: &[u8]) {
    let settings =
        Settings { cluster: "c".into(), name: "node".into(), id: NodeId(0), retained_bytes_max: 4096 };
    let (node, now_ms) = (Node::new(&settings, 1_000), 1_000);
    let mut world = World { node, swarms: AnySwarms::default(), now_ms };
    world.node.set_connected(true, now_ms);
    let mut rest = input;
    while let [flags, kind, high, low, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (body, after) = after.split_at(length.min(after.len()));
        rest = after;
        world.now_ms += PASSES_MS[usize::from(flags >> 5)];
        if *kind >= EVENTS {
            world.do_something(*kind, body);
        } else {
            world.receive(*flags, *kind, body);
        }
        world.node.run(world.now_ms, &mut world.swarms);
        world.take_messages();
    }
    world.node.set_connected(true, world.now_ms);
    world.node.leave();
    world.take_messages();
}

impl World {
    fn receive(&mut self, flags: u8, kind: u8, body: &[u8]) {
        let (is_unusual, is_raw) = (flags & 8 != 0, flags & 16 != 0);
        // A fuzzer has no need to find that the shard is the first byte of a batch.
        let shard = body.first().map_or(0, |byte| byte & 15);
        let subject = match (kind, is_unusual) {
            (HELLO | GOODBYE, false) | (4.., true) => "shoal.c.hello".to_owned(),
            (BATCH, false) | (HELLO | GOODBYE, true) => format!("shoal.c.delta.{shard}"),
            _ => "shoal.c.node.0000000000000000".to_owned(),
        };
        let message = if is_raw { body.to_vec() } else { seal(kind, (flags & 7).into(), body) };
        self.node.receive(&subject, &Bytes::from(message), self.now_ms, &mut self.swarms);
    }

    /// Does what happens at the node itself.
    fn do_something(&mut self, kind: u8, body: &[u8]) {
        match kind % 4 {
            0 => self.node.set_connected(false, self.now_ms),
            1 => self.node.set_connected(true, self.now_ms),
            2 => {
                for &byte in body {
                    let delta = Delta {
                        info_hash: InfoHash([byte; 20]),
                        action: Action::Seed,
                        ip: [192, 0, 2, byte].into(),
                        port: 6881,
                    };
                    self.node.record(&delta, self.now_ms);
                }
            }
            _ => self.node.send_to(NodeId(body.len() as u64), body),
        }
    }

    fn take_messages(&mut self) {
        let mut count = 0;
        while let Some(message) = self.node.next_message() {
            count += 1;
            assert!(message.payload.len() <= MESSAGE_BYTES_MAX && message.subject.starts_with("shoal.c."));
            let Ok(Decoded::Message { from, message }) = decode(&message.payload) else {
                panic!("{message:?} is malformed")
            };
            assert_eq!(from, NodeId(0));
            if let shoal_cluster::protocol::message::Message::Batch { deltas, .. } = message {
                assert_eq!(decode_deltas(deltas, &mut Deltas::default()), Ok(()));
            }
        }
        assert!(count <= MESSAGES_PER_STEP_MAX, "{count} messages");
        let status = self.node.status(self.now_ms);
        assert!(status.nodes.len() <= 7, "no other node sends");
        assert!(
            !status.nodes.iter().any(|node| node.name.len() > 64 || node.name.chars().any(char::is_control))
        );
    }
}
