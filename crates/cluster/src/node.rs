//! The thread that owns the state of the node. It takes messages from the connection, passes on the messages of the
//! node, and publishes the status.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::protocol::{Node, Outgoing, Settings, Status, Swarms};
use shoal_net::Waker;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::connection::{Link, Received};
use super::events::Events;
use shoal_runtime::clock;
use shoal_runtime::published::Published;

/// Maximum time between two turns of the node, whose batches are due after 50 ms. Messages end the wait.
const TURN: Duration = Duration::from_millis(5);

/// Maximum number of messages of a turn. The timers of the node run afterwards.
const MESSAGES_PER_TURN_MAX: usize = 256;

/// Time between two publications of the status.
const STATUS_EVERY_MS: u64 = 250;

/// The swarms of the tracker, which its own announces change as well.
pub(super) trait LocalSwarms: Swarms {
    /// Waits while they may not be used. Returns whether this process still has them.
    fn begin_turn(&mut self) -> bool;

    /// Passes the changes of this tracker to the node, and exchanges messages between clients.
    fn exchange(&mut self, node: &mut Node<Self::Export>);
}

pub(super) struct NodeThread<S: LocalSwarms> {
    node: Node<S::Export>,
    swarms: S,
    link: Arc<Link>,
    inbox: Receiver<Received>,
    waker: Waker,
    /// Whether the last turn has left messages.
    is_behind: bool,
    outgoing: Sender<Outgoing>,
    /// The number of connections that the node knows of, and whether it knows the last one as open.
    known_connects: u64,
    status_ms: u64,
    events: Events,
}

impl<S: LocalSwarms> NodeThread<S> {
    pub(super) fn new(
        settings: &Settings,
        swarms: S,
        link: Arc<Link>,
        (inbox, waker): (Receiver<Received>, Waker),
        outgoing: Sender<Outgoing>,
    ) -> Self {
        let node = Node::new(settings, clock::monotonic_ms());
        let (is_behind, known_connects, status_ms, events) = (false, 0, 0, Events::default());
        Self { node, swarms, link, inbox, waker, is_behind, outgoing, known_connects, status_ms, events }
    }

    pub(super) fn subscriptions(&self) -> Vec<String> {
        self.node.subscriptions()
    }

    pub(super) fn status(&self) -> Arc<Status> {
        Arc::new(self.node.status(clock::monotonic_ms()))
    }

    /// Waits for messages, for at most a few milliseconds, and does the due work.
    pub(super) fn turn(&mut self, status: &Published<Status>) {
        if !self.is_behind {
            self.waker.wait(TURN);
        }
        self.is_behind = false;
        // Another process joins the cluster with the swarms. This thread only says farewell.
        if !self.swarms.begin_turn() {
            return;
        }
        let now_ms = clock::monotonic_ms();
        self.follow_connection(now_ms);
        self.is_behind = true;
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Ok(message) = self.inbox.try_recv() else {
                self.is_behind = false;
                break;
            };
            self.link.took(&message);
            self.node.receive(&message.subject, &message.payload, now_ms, &mut self.swarms);
        }
        self.swarms.exchange(&mut self.node);
        self.node.run(now_ms, &mut self.swarms);
        self.send_messages();
        if now_ms >= self.status_ms + STATUS_EVERY_MS {
            self.status_ms = now_ms;
            let latest = self.node.status(now_ms);
            self.events.note(&latest, Instant::now());
            status.replace(|_| latest);
        }
    }

    /// Tells the node whether NATS is connected. A connection that was lost and is back has lost messages, so the node
    /// is told of both events.
    fn follow_connection(&mut self, now_ms: u64) {
        let connects = self.link.connects();
        if connects != self.known_connects {
            self.known_connects = connects;
            self.node.set_connected(false, now_ms);
        }
        self.node.set_connected(self.link.is_connected(), now_ms);
    }

    fn send_messages(&mut self) {
        while let Some(message) = self.node.next_message() {
            if self.outgoing.try_send(message).is_err() {
                self.link.unsent.add(1);
            }
        }
    }
}

impl<S: LocalSwarms> Drop for NodeThread<S> {
    fn drop(&mut self) {
        self.swarms.exchange(&mut self.node);
        self.node.leave();
        self.send_messages();
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::{NodeId, NodeState};
    use tokio::sync::mpsc;

    use crate::protocol::{Damaged, Scope};
    use shoal_base::{Delta, Presence};

    use super::*;

    /// Swarms without peers.
    struct NoSwarms;

    impl LocalSwarms for NoSwarms {
        fn begin_turn(&mut self) -> bool {
            true
        }

        fn exchange(&mut self, _: &mut Node<()>) {}
    }

    impl Swarms for NoSwarms {
        type Export = ();

        fn apply(&mut self, _: &[Delta], _: u64) {}

        fn apply_presences(&mut self, _: NodeId, _: &[Presence]) {}

        fn deliver(&mut self, _: NodeId, _: &[u8]) {}

        fn forget(&mut self, _: NodeId) {}

        fn begin_export(&mut self, _: Scope) {}

        fn export(&mut self, (): &mut (), _: &mut Vec<u8>) -> bool {
            false
        }

        fn adopt(&mut self, _: NodeId, _: &[u8]) -> Result<(), Damaged> {
            Ok(())
        }
    }

    fn settings(name: &str, id: u64) -> Settings {
        Settings { cluster: "test".into(), name: name.into(), id: NodeId(id), retained_bytes_max: 1 << 20 }
    }

    #[test]
    fn a_node_without_a_connection_sends_nothing_and_is_alone() {
        let waker = Waker::new().unwrap();
        let (link, inbox) = Link::new(waker.clone());
        let (outgoing, mut sent) = mpsc::channel(8);
        let mut thread = NodeThread::new(&settings("a", 1), NoSwarms, link, (inbox, waker), outgoing);
        let status = Published::new(thread.status());
        thread.turn(&status);
        assert_eq!((status.latest().state, status.latest().is_ready), (NodeState::Alone, false));
        assert!(sent.try_recv().is_err());
    }

    #[test]
    fn messages_beyond_the_queue_of_the_connection_are_counted() {
        let waker = Waker::new().unwrap();
        let (link, inbox) = Link::new(waker.clone());
        let (outgoing, _sent) = mpsc::channel(1);
        let mut thread =
            NodeThread::new(&settings("a", 1), NoSwarms, Arc::clone(&link), (inbox, waker), outgoing);
        let status = Published::new(thread.status());
        link.connected();
        thread.turn(&status);
        assert_eq!(link.unsent.read(), 0, "its hello waits for the connection");
        drop(thread);
        assert_eq!(link.unsent.read(), 1, "there was no room for its farewell");
    }

    #[test]
    fn messages_that_arrive_are_given_to_the_node() {
        let waker = Waker::new().unwrap();
        let (link, inbox) = Link::new(waker.clone());
        let (to_other, mut sent) = mpsc::channel(8);
        let mut one =
            NodeThread::new(&settings("one", 1), NoSwarms, Arc::clone(&link), (inbox, waker), to_other);
        let one_status = Published::new(one.status());
        link.connected();
        one.turn(&one_status);
        let hello = sent.try_recv().unwrap();

        let waker = Waker::new().unwrap();
        let (link, inbox) = Link::new(waker.clone());
        let (outgoing, _sent) = mpsc::channel(8);
        let mut other =
            NodeThread::new(&settings("other", 2), NoSwarms, Arc::clone(&link), (inbox, waker), outgoing);
        let status = Published::new(other.status());
        link.connected();
        link.put(Received { subject: hello.subject.into(), payload: hello.payload });
        other.turn(&status);
        let names: Vec<_> = status.latest().nodes.iter().map(|node| node.name.clone()).collect();
        assert_eq!(names, ["one"]);
    }
}
