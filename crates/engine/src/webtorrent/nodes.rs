//! The clients of other nodes of a cluster, for the thread that exchanges messages with those nodes.
//!
//! The swarms know a peer of another node by the node's address. Workers write offers and answers for such peers to
//! one mailbox. This module sorts them by node, and delivers messages from other nodes to connections of this one.
//! Both nodes record an offer as pending, so that its answer finds the way back.
//!
//! The module must not know how messages travel. A node that does not take its messages loses them: its queue is
//! bounded, like the queue of a connection.
//!
//! An offer carries its sender's source, since it may arrive before the batch that introduces the sender. Other nodes
//! know one peer of each id at a node, and offers for it go to the first connection with that id. A peer's source
//! comes as keyed hashes, so that the peer counts towards its source's share.

use std::sync::Arc;

use shoal_base::metrics::{counters, labels};
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, InfoHash, Presence};
use shoal_relay::{
    Address, AnswerMatch, Dispatcher, Mailboxes, MessageKind, QueueLimits, REMOTE_WORKER, ReceivedOffer,
    RemoteAnnounce, Source, Swarms,
};

use super::remote::{self, Content, RemoteMessage};

const NODES_MAX: usize = 256;

/// Limits of the queue of messages to a node: as much as for a hundred connections.
const QUEUE_LIMITS: QueueLimits = QueueLimits { queue_bytes_max: 4 << 20, reply_bytes_max: 4 << 20 };

labels! {
    /// The outcome of a message between clients of different nodes.
    pub enum ForwardedMessage {
        /// It was delivered to a connection of this node.
        Delivered = "delivered",
        /// Its sender or its receiver is gone, or the receiver is not owed an answer.
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
    counters: Arc<NodeCounters>,
}

/// The place of a node. The generation of the handle rises with each node in this place.
#[derive(Clone, Copy, Debug)]
struct Slot {
    node: Option<u64>,
    generation: u32,
}

impl Nodes {
    /// Creates an empty set of clients. The mailboxes must come from [`Mailboxes::with_remote`].
    pub fn new(swarms: Arc<Swarms>, mailboxes: Arc<Mailboxes>) -> Self {
        let dispatcher = Dispatcher::new(REMOTE_WORKER, mailboxes).with_limits(QUEUE_LIMITS);
        Self { swarms, dispatcher, slots: Vec::new(), counters: Arc::default() }
    }

    /// Applies changes of the clients of the node `from`. Skips torrents that are not `permitted`.
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
                // The client may have moved from this node to the other one.
                Ok(Some(older)) => self.dispatcher.request_ping(older),
                Ok(None) => {}
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

    /// Collects the messages of workers for other nodes, and calls `send` with each node and its messages. Calls
    /// `wake` for each worker that has got messages from other nodes. To be called several times a second.
    pub fn exchange(&mut self, mut send: impl FnMut(u64, &[u8]), mut wake: impl FnMut(u16)) {
        self.dispatcher.collect();
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

    /// Divides messages for a node, as [`exchange`](Self::exchange) passes them, into pieces of at most `bytes_max`
    /// with whole messages. Skips longer messages.
    pub fn split(messages: &[u8], bytes_max: usize) -> impl Iterator<Item = &[u8]> {
        remote::pieces(messages, bytes_max)
    }

    /// Frees memory that was not needed since the last call. To be called every few seconds.
    pub fn trim(&mut self) {
        self.dispatcher.trim();
    }

    /// Returns the counts, for an exporter.
    pub const fn counters(&self) -> &Arc<NodeCounters> {
        &self.counters
    }

    fn deliver_one(&mut self, from: Handle, message: &RemoteMessage<'_>, now_s: u32) {
        let &RemoteMessage { info_hash, to, content } = message;
        let key = self.swarms.swarm_key(&info_hash);
        let to_connection = match content {
            Content::Offer { source, from: peer_id, offer_id, frame } => {
                let (offer, source) = (self.swarms.offer_key(offer_id), Source::from_bytes(source));
                let receive = || self.swarms.receive_offer(&key, from, (&peer_id, &to), offer, now_s);
                let mut received = receive();
                // An offer may arrive before the batch that introduces its sender and the sender's role.
                let announce = RemoteAnnounce { node: from, source, peer_id, action: Action::Leech };
                if received == ReceivedOffer::UnknownOfferer
                    && let Ok(older) = self.swarms.announce_remote(&key, &announce, now_s)
                {
                    received = receive();
                    older.into_iter().for_each(|older| self.dispatcher.request_ping(older));
                }
                match received {
                    ReceivedOffer::For(address) => Some((address, MessageKind::Offer(source.group()), frame)),
                    ReceivedOffer::Refused | ReceivedOffer::UnknownOfferer => None,
                }
            }
            Content::Answer { from: answerer_id, offer_id, frame } => {
                let offer = self.swarms.offer_key(offer_id);
                let answerer = (Address::of_node(from), &answerer_id);
                match self.swarms.match_answer(&key, &to, answerer, offer, now_s) {
                    AnswerMatch::Offerer(address) if !address.is_remote() => {
                        Some((address, MessageKind::Answer, frame))
                    }
                    AnswerMatch::Offerer(_) | AnswerMatch::NotPending | AnswerMatch::PeerGone => None,
                }
            }
        };
        match to_connection {
            Some((address, kind, frame)) => self.forward(address, kind, frame),
            None => self.count(ForwardedMessage::Unwanted),
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

    /// Returns the handle of a node. A new node gets one if there is room.
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
