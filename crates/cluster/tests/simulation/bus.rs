//! A bus that delays, loses, duplicates and reorders messages, and that can be cut in parts.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fastrand::Rng;
use shoal_cluster::protocol::Outgoing;

/// A message on its way to a node.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) to: usize,
    pub(crate) subject: String,
    pub(crate) payload: Bytes,
}

/// The faults of the bus.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    /// Per cent of messages that are lost, and that come twice.
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
    /// Maximum time by which a message overtakes others.
    pub(crate) disorder_ms: u64,
    /// Nodes whose messages are late, by this time.
    pub(crate) slow: BTreeMap<usize, u64>,
    /// The nodes on one side of a cut.
    pub(crate) cut: BTreeSet<usize>,
    /// Nodes without a connection.
    pub(crate) disconnected: BTreeSet<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Bus {
    pub(crate) weather: Weather,
    /// By the time of the delivery, and the order of sending.
    queue: BTreeMap<(u64, u64), Delivery>,
    sent: u64,
    /// The time of the last delivery between two nodes, so that messages stay in order.
    last_ms: BTreeMap<(usize, usize), u64>,
    pub(crate) bytes: u64,
}

impl Bus {
    /// Sends a message to all nodes of `to` that can be reached.
    pub(crate) fn send(
        &mut self,
        from: usize,
        to: impl Iterator<Item = usize>,
        message: &Outgoing,
        now_ms: u64,
        rng: &mut Rng,
    ) {
        for to in to {
            if self.is_reachable(from, to) && rng.u32(..100) >= self.weather.lost {
                self.post(from, to, message, now_ms, rng);
                if rng.u32(..100) < self.weather.doubled {
                    self.post(from, to, message, now_ms, rng);
                }
            }
        }
    }

    fn is_reachable(&self, from: usize, to: usize) -> bool {
        let Weather { cut, disconnected, .. } = &self.weather;
        cut.contains(&from) == cut.contains(&to)
            && !disconnected.contains(&from)
            && !disconnected.contains(&to)
    }

    fn post(&mut self, from: usize, to: usize, message: &Outgoing, now_ms: u64, rng: &mut Rng) {
        let late_ms: u64 = [from, to].iter().filter_map(|node| self.weather.slow.get(node)).sum();
        let mut at_ms = now_ms + 1 + rng.u64(..5) + late_ms + rng.u64(..=self.weather.disorder_ms);
        if self.weather.disorder_ms == 0 {
            let last_ms = self.last_ms.entry((from, to)).or_default();
            at_ms = at_ms.max(*last_ms);
            *last_ms = at_ms;
        }
        self.sent += 1;
        self.bytes += message.payload.len() as u64;
        let delivery = Delivery { to, subject: message.subject.clone(), payload: message.payload.clone() };
        self.queue.insert((at_ms, self.sent), delivery);
    }

    /// Returns the next message that has arrived.
    pub(crate) fn next(&mut self, now_ms: u64) -> Option<Delivery> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= now_ms).then(|| first.remove())
    }
}
