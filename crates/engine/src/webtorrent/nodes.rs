//! The clients of other nodes of a cluster, for the thread that exchanges messages with those nodes.
//!
//! The swarms know a peer of another node by the address of that node. Workers write offers and answers for such peers to one
//! mailbox; this module collects them by node, and delivers those of other nodes to the connections of this one. Claims
//! work across nodes too: a challenge goes to the node of the connection that has the peer, which says whether that is alive.
//!
//! It must not know how messages travel. A node that does not take its messages loses them: its queue is bounded, like that
//! of a connection.

use std::collections::VecDeque;
use std::sync::Arc;

use shoal_metrics::{counters, labels};
use shoal_relay::{
    Address, AnswerMatch, CHALLENGE_S, Dispatcher, Mailboxes, MessageKind, QueueLimits, REMOTE_WORKER,
    Rejection, RemoteAnnounce, Source, Swarms,
};
use shoal_transport::stream::Handle;
use shoal_types::{InfoHash, PeerId, Presence};

use super::claim;
use super::remote::{self, Content, RemoteMessage};

/// Maximum number of nodes.
const NODES_MAX: usize = 256;

/// Limits of the queue of messages to a node: as much as a hundred connections may have.
const QUEUE_LIMITS: QueueLimits = QueueLimits { queue_bytes_max: 4 << 20, reply_bytes_max: 4 << 20 };

/// Maximum number of challenges of other nodes that wait for their outcome. Of further ones, the claims are refused.
const CHALLENGES_MAX: usize = 1024;

labels! {
    /// The outcome of a message between clients of different nodes.
    pub enum ForwardedMessage {
        /// It was delivered to a connection of this node.
        Delivered = "delivered",
        /// Its receiver is gone, or not owed an answer.
        Unwanted = "unwanted",
        /// It did not fit a queue.
        Dropped = "dropped",
        /// It is malformed.
        Malformed = "malformed",
    }
}

labels! {
    /// Why a WebTorrent peer of another node is refused.
    pub enum RefusedRemotePeer {
        /// A list forbids its torrent.
        Torrent = "torrent_denied",
        /// There is no room for it, or for its node.
        NoRoom = "no_room",
    }
}

counters! {
    /// The counters of the clients of other nodes.
    pub struct NodeCounters {
        /// Messages between WebTorrent clients of different nodes, by outcome at this one.
        pub messages = "shoal_cluster_forwarded", by outcome: ForwardedMessage;
        /// WebTorrent peers of other nodes that were refused, by reason.
        pub refused = "shoal_cluster_webtorrent_refused", by reason: RefusedRemotePeer;
    }
}

/// The clients of other nodes.
#[derive(Debug)]
pub struct Nodes {
    swarms: Arc<Swarms>,
    dispatcher: Dispatcher,
    /// The nodes, by the indexes of their handles.
    slots: Vec<Slot>,
    challenges: VecDeque<Challenge>,
    counters: Arc<NodeCounters>,
}

/// The place of a node. The generation of its handle rises with each node that has it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    node: Option<u64>,
    generation: u32,
}

/// A connection of this node that was challenged for another one.
#[derive(Clone, Copy, Debug)]
struct Challenge {
    from: Handle,
    info_hash: InfoHash,
    peer_id: PeerId,
    challenged_s: u32,
}

impl Nodes {
    /// Creates the clients of no node. The mailboxes must be those of [`Mailboxes::with_remote`].
    #[must_use]
    pub fn new(swarms: Arc<Swarms>, mailboxes: Arc<Mailboxes>) -> Self {
        let dispatcher = Dispatcher::new(REMOTE_WORKER, mailboxes).with_limits(QUEUE_LIMITS);
        Self { swarms, dispatcher, slots: Vec::new(), challenges: VecDeque::new(), counters: Arc::default() }
    }

    /// Applies changes of the clients of the node `from`. Torrents that are not `permitted` are left out.
    pub fn apply(
        &mut self,
        from: u64,
        presences: &[Presence],
        permitted: impl Fn(&InfoHash) -> bool,
        now_s: u32,
    ) {
        let Some(node) = self.meet(from) else {
            self.refuse(RefusedRemotePeer::NoRoom, presences.len());
            return;
        };
        for &Presence { info_hash, action, peer_id, source } in presences {
            if !permitted(&info_hash) {
                self.refuse(RefusedRemotePeer::Torrent, 1);
                continue;
            }
            let announce = RemoteAnnounce { node, source: Source::from_bytes(source), peer_id, action };
            let key = self.swarms.swarm_key(&info_hash);
            match self.swarms.announce_remote(&key, &announce, now_s) {
                // A connection of this node has it. One of the nodes will give it up.
                Ok(()) | Err(Rejection::PeerIdTaken(_)) => {}
                Err(_) => self.refuse(RefusedRemotePeer::NoRoom, 1),
            }
        }
    }

    /// Forgets a node and its clients.
    pub fn forget(&mut self, node: u64) {
        if let Some(handle) = self.handle(node) {
            self.swarms.forget_node(handle);
            self.dispatcher.remove(handle);
            if let Some(slot) = self.slots.get_mut(handle.index as usize) {
                *slot =
                    Slot { node: None, generation: slot.generation.wrapping_add(1) & Handle::GENERATION_MAX };
            }
        }
    }

    /// Delivers the messages of the node `from` to connections of this one.
    pub fn deliver(&mut self, from: u64, messages: &[u8], now_s: u32) {
        let Some(from) = self.meet(from) else { return };
        for message in RemoteMessage::decode_all(messages) {
            match message {
                Some(message) => self.deliver_one(from, &message, now_s),
                None => self.count(ForwardedMessage::Malformed),
            }
        }
    }

    /// Collects what workers have written for other nodes, calls `send` with each of these nodes and its messages, and wakes
    /// with `wake` the workers to which messages of other nodes were delivered. To be called several times a second.
    pub fn exchange(&mut self, now_s: u32, mut send: impl FnMut(u64, &[u8]), mut wake: impl FnMut(u16)) {
        self.dispatcher.collect();
        while let Some((node, payload)) = self.dispatcher.next_challenge() {
            let Some((info_hash, to)) = claim::parse(&payload) else { continue };
            let key = self.swarms.swarm_key(&info_hash);
            // Unless its node says in time that the peer is alive, it is given away here.
            if self.swarms.challenge(&key, &to, Address::of_node(node), now_s) {
                self.write(node, RemoteMessage { info_hash, to, content: Content::Challenge });
            }
        }
        self.decide_challenges(now_s);
        while let Some(handle) = self.dispatcher.next_to_flush() {
            let node = self.node(handle);
            self.dispatcher.drain(handle, |messages| {
                if let Some(node) = node {
                    send(node, messages);
                }
            });
        }
        self.dispatcher.dispatch().for_each(&mut wake);
        let losses = self.dispatcher.take_losses();
        let lost = losses.mailbox_full + losses.queue_full;
        self.counters.messages.of(ForwardedMessage::Dropped).add(lost);
    }

    /// Divides messages for a node, as [`exchange`](Self::exchange) hands them out, into pieces of at most `bytes_max` that hold
    /// whole messages. A message that is longer is left out.
    pub fn split(messages: &[u8], bytes_max: usize) -> impl Iterator<Item = &[u8]> {
        remote::pieces(messages, bytes_max)
    }

    /// Frees memory that was not needed since the last call. To be called every few seconds.
    pub fn trim(&mut self) {
        self.dispatcher.trim();
    }

    /// Returns the counts, for an exporter.
    #[must_use]
    pub const fn counters(&self) -> &Arc<NodeCounters> {
        &self.counters
    }

    fn deliver_one(&mut self, from: Handle, message: &RemoteMessage<'_>, now_s: u32) {
        let &RemoteMessage { info_hash, to, content } = message;
        let key = self.swarms.swarm_key(&info_hash);
        let own = self.swarms.address_of(&key, &to).filter(|address| !address.is_remote());
        match (content, own) {
            (Content::Offer { group, frame }, Some(address)) => {
                self.forward(address, MessageKind::Offer(group), frame);
            }
            (Content::Answer { from: answerer_id, offer_id, frame }, Some(_)) => {
                let offer = self.swarms.offer_key(offer_id);
                let answerer = (Address::of_node(from), &answerer_id);
                match self.swarms.match_answer(&key, &to, answerer, offer, now_s) {
                    AnswerMatch::Offerer(address) => self.forward(address, MessageKind::Answer, frame),
                    AnswerMatch::Remote(_) | AnswerMatch::NotPending | AnswerMatch::PeerGone => {
                        self.count(ForwardedMessage::Unwanted);
                    }
                }
            }
            // Claims that cannot be checked are refused.
            (Content::Challenge, Some(_)) if self.challenges.len() >= CHALLENGES_MAX => {
                self.write(from, RemoteMessage { info_hash, to, content: Content::Alive });
            }
            (Content::Challenge, Some(address)) => {
                let payload = claim::payload(&info_hash, &to);
                self.forward(address, MessageKind::Challenge, &payload);
                self.challenges.push_back(Challenge { from, info_hash, peer_id: to, challenged_s: now_s });
            }
            (Content::Alive, None) => self.swarms.confirm_alive(&key, &to, Address::of_node(from)),
            _ => {
                self.count(ForwardedMessage::Unwanted);
            }
        }
    }

    /// Tells other nodes which of the connections that were challenged for them are alive. The others are not mentioned.
    fn decide_challenges(&mut self, now_s: u32) {
        for _ in 0..self.challenges.len() {
            let Some(challenge) = self.challenges.pop_front() else { return };
            let Challenge { from, info_hash, peer_id: to, challenged_s } = challenge;
            let key = self.swarms.swarm_key(&info_hash);
            // Times are whole seconds, and the worker may not have pinged the connection yet.
            let is_due = now_s > challenged_s + 1;
            match self.swarms.is_challenged(&key, &to).filter(|_| is_due) {
                Some(false) => self.write(from, RemoteMessage { info_hash, to, content: Content::Alive }),
                // Its pong may still come in time.
                _ if now_s < challenged_s + CHALLENGE_S => self.challenges.push_back(challenge),
                _ => {}
            }
        }
    }

    fn count(&self, outcome: ForwardedMessage) {
        self.counters.messages.of(outcome).increment();
    }

    fn refuse(&self, reason: RefusedRemotePeer, peers: usize) {
        self.counters.refused.of(reason).add(peers as u64);
    }

    /// Writes bytes of another node to a connection of this one.
    fn forward(&mut self, address: Address, kind: MessageKind, bytes: &[u8]) {
        match self.dispatcher.write(address, kind, |out| out.extend_from_slice(bytes)) {
            Ok(()) => self.count(ForwardedMessage::Delivered),
            Err(_) => self.count(ForwardedMessage::Dropped),
        }
    }

    /// Writes a message of this node itself to another one.
    fn write(&mut self, node: Handle, message: RemoteMessage<'_>) {
        let to = Address::of_node(node);
        if self.dispatcher.write(to, MessageKind::Answer, |out| message.encode(out, |_| {})).is_err() {
            self.count(ForwardedMessage::Dropped);
        }
    }

    /// Returns the handle of a node, which gets one if there is room.
    fn meet(&mut self, node: u64) -> Option<Handle> {
        if let Some(handle) = self.handle(node) {
            return Some(handle);
        }
        let free = self.slots.iter().position(|slot| slot.node.is_none());
        let index = free.or_else(|| {
            (self.slots.len() < NODES_MAX).then(|| {
                self.slots.push(Slot { node: None, generation: 0 });
                self.slots.len() - 1
            })
        })?;
        let slot = &mut self.slots[index];
        slot.node = Some(node);
        Some(Handle { index: u32::try_from(index).ok()?, generation: slot.generation })
    }

    fn handle(&self, node: u64) -> Option<Handle> {
        let index = self.slots.iter().position(|slot| slot.node == Some(node))?;
        Some(Handle { index: u32::try_from(index).ok()?, generation: self.slots[index].generation })
    }

    fn node(&self, handle: Handle) -> Option<u64> {
        let slot = self.slots.get(handle.index as usize)?;
        slot.node.filter(|_| slot.generation == handle.generation)
    }
}
