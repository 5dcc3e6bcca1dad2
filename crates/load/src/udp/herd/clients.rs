//! The clients of a herd, without I/O and without a clock.
//!
//! The schedule of a client is tested against the examples of BEP 15. Clients share sockets: a thousand ports would
//! show no more than 64.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng};
use shoal_wire::udp::{ConnectionId, Reply, TransactionId};

use super::HerdReport;

/// The first time to wait for a reply, which each retransmission doubles (BEP 15, "Time outs").
const TIMEOUT_NS: u64 = 15_000_000_000;

/// The number of retransmissions after which a client gives up (BEP 15: "n starts at 0 and is increased up to 8").
pub const HERD_RETRIES_MAX: u8 = 8;

/// A client requests a new connection id when its own is as old (BEP 15: "until one minute after they have received it").
const CONNECTION_NS_MAX: u64 = 60_000_000_000;

/// The clients of one worker, each of which connects and announces once.
#[derive(Debug)]
pub(super) struct Clients {
    clients: Vec<Client>,
    /// When each client starts, in order.
    starts_ns: Vec<u64>,
    started: usize,
    /// The clients that have just got a connection id.
    ready: VecDeque<u32>,
    /// Requests that wait for a reply, by number of retransmissions: when they time out, in order, and their client.
    waiting: Vec<VecDeque<(u64, u32)>>,
    retries_max: u8,
    unfinished: usize,
    pub(super) report: HerdReport,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    connection_id: ConnectionId,
    connected_ns: u64,
    due_ns: u64,
    stage: Stage,
    /// Retransmissions of its request, and of all its requests.
    resent: u8,
    retries: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Announcing,
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientRequest {
    pub(super) client: u32,
    /// The connection id of an announce, or `None` for a connect.
    pub(super) connection_id: Option<ConnectionId>,
}

impl Clients {
    /// Creates clients that start at random moments within a time.
    pub(super) fn new(count: u32, within_ns: u64, retries_max: u8, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut starts_ns: Vec<u64> = (0..count).map(|_| rng.random_range(0..=within_ns)).collect();
        starts_ns.sort_unstable();
        let client = Client {
            connection_id: ConnectionId(0),
            connected_ns: 0,
            due_ns: 0,
            stage: Stage::Connecting,
            resent: 0,
            retries: 0,
        };
        Self {
            clients: vec![client; starts_ns.len()],
            unfinished: starts_ns.len(),
            starts_ns,
            started: 0,
            ready: VecDeque::new(),
            waiting: vec![VecDeque::new(); usize::from(retries_max) + 1],
            retries_max,
            report: HerdReport { clients: u64::from(count), ..HerdReport::default() },
        }
    }

    /// Returns whether every client has an answer or has given up.
    pub(super) const fn are_finished(&self) -> bool {
        self.unfinished == 0
    }

    pub(super) fn next(&mut self, now_ns: u64) -> Option<ClientRequest> {
        if let Some(client) = self.ready.pop_front() {
            return Some(self.request(client, now_ns));
        }
        if self.starts_ns.get(self.started).is_some_and(|start_ns| *start_ns <= now_ns) {
            let client = u32::try_from(self.started).expect("clients are counted in 32 bits");
            self.started += 1;
            return Some(self.request(client, now_ns));
        }
        for resent in 0..self.waiting.len() {
            while let Some(&(due_ns, number)) = self.waiting[resent].front()
                && due_ns <= now_ns
            {
                self.waiting[resent].pop_front();
                let client = &mut self.clients[number as usize];
                // Otherwise the request was answered.
                if client.stage != Stage::Finished && client.due_ns == due_ns {
                    if client.resent == self.retries_max {
                        client.stage = Stage::Finished;
                        self.unfinished -= 1;
                        self.report.never += 1;
                        continue;
                    }
                    client.resent += 1;
                    client.retries = client.retries.saturating_add(1);
                    return Some(self.request(number, now_ns));
                }
            }
        }
        None
    }

    fn request(&mut self, number: u32, now_ns: u64) -> ClientRequest {
        let client = &mut self.clients[number as usize];
        if now_ns >= client.connected_ns + CONNECTION_NS_MAX {
            client.stage = Stage::Connecting;
        }
        client.due_ns = now_ns + (TIMEOUT_NS << client.resent);
        self.waiting[usize::from(client.resent)].push_back((client.due_ns, number));
        let connection_id = (client.stage == Stage::Announcing).then_some(client.connection_id);
        let count =
            if connection_id.is_some() { &mut self.report.announces } else { &mut self.report.connects };
        *count += 1;
        ClientRequest { client: number, connection_id }
    }

    pub(super) fn take(&mut self, reply: &[u8], now_ns: u64) {
        let report = &mut self.report;
        let Ok(reply) = Reply::decode(reply) else {
            report.malformed += 1;
            return;
        };
        let (Reply::Connect { transaction_id: TransactionId(number), .. }
        | Reply::Announce { transaction_id: TransactionId(number), .. }
        | Reply::Scrape { transaction_id: TransactionId(number), .. }
        | Reply::Error { transaction_id: TransactionId(number), .. }) = reply;
        let Some(client) = self.clients.get_mut(number as usize) else {
            report.malformed += 1;
            return;
        };
        match (client.stage, reply) {
            (Stage::Connecting, Reply::Connect { connection_id, .. }) => {
                (client.connection_id, client.connected_ns) = (connection_id, now_ns);
                (client.stage, client.resent, client.due_ns) = (Stage::Announcing, 0, 0);
                return self.ready.push_back(number);
            }
            (Stage::Announcing, Reply::Announce { interval_s, .. }) => {
                report.note_answer(client.retries, now_ns, interval_s);
            }
            (Stage::Connecting | Stage::Announcing, Reply::Error { message, .. }) => {
                report.refused += 1;
                report.first_refusal.get_or_insert_with(|| String::from_utf8_lossy(message).into_owned());
            }
            // The reply to an earlier transmission has come after all.
            _ => return report.repeated += 1,
        }
        client.stage = Stage::Finished;
        self.unfinished -= 1;
    }
}

#[cfg(test)]
mod tests {
    use shoal_wire::udp::{AnnounceHead, ConnectReply};
    use zerocopy::IntoBytes;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn connected(client: u32) -> Vec<u8> {
        ConnectReply::new(TransactionId(client), ConnectionId(7)).as_bytes().to_vec()
    }

    fn announced(client: u32) -> Vec<u8> {
        AnnounceHead::new(TransactionId(client), 1800, 1, 0).as_bytes().to_vec()
    }

    /// Returns when the only client sends connects (false) and announces (true), in seconds. `answers` says whether the
    /// n-th request is answered.
    fn times(clients: &mut Clients, answers: impl Fn(usize) -> bool) -> Vec<(u64, bool)> {
        let mut sent = Vec::new();
        for now_ns in (0..8000).map(|now_s| now_s * S) {
            while let Some(request) = clients.next(now_ns) {
                if answers(sent.len()) {
                    let reply = if request.connection_id.is_some() { announced(0) } else { connected(0) };
                    clients.take(&reply, now_ns);
                }
                sent.push((now_ns / S, request.connection_id.is_some()));
            }
        }
        sent
    }

    #[test]
    fn a_client_that_gets_no_answer_sends_nine_requests_and_gives_up() {
        let mut clients = Clients::new(1, 0, HERD_RETRIES_MAX, 1);
        let sent = times(&mut clients, |_| false);
        let expected = [0, 15, 45, 105, 225, 465, 945, 1905, 3825].map(|at_s| (at_s, false));
        assert_eq!(sent, expected);
        assert!(clients.are_finished());
        assert_eq!((clients.report.never, clients.report.connects), (1, 9));
    }

    #[test]
    fn a_client_announces_at_once_and_connects_again_when_its_id_is_old() {
        let mut clients = Clients::new(1, 0, HERD_RETRIES_MAX, 1);
        // BEP 15, the third example of "Time outs": the connection id expires before the announce is answered.
        let sent = times(&mut clients, |n| n == 1 || n >= 5);
        let expected =
            [(0, false), (15, false), (15, true), (30, true), (60, true), (120, false), (120, true)];
        assert_eq!(sent, expected);
        assert!(clients.are_finished());
        assert_eq!(clients.report.answered, [0, 0, 0, 0, 1]);
    }

    #[test]
    fn refusals_and_late_replies_are_told_apart() {
        let mut clients = Clients::new(3, 0, HERD_RETRIES_MAX, 1);
        while clients.next(0).is_some() {}
        for client in 0..3 {
            clients.take(&connected(client), 0);
        }
        while clients.next(0).is_some() {}
        clients.take(&connected(0), 0);
        clients.take(&announced(0), 0);
        let refusal = Reply::Error { transaction_id: TransactionId(1), message: b"no" };
        let mut bytes = [0; 10];
        let length = refusal.encode(&mut bytes).unwrap();
        clients.take(&bytes[..length], 0);
        clients.take(&announced(0), 0);
        clients.take(b"?", 0);
        clients.take(&announced(9), 0);
        let HerdReport { answered, refused, repeated, malformed, .. } = &clients.report;
        assert_eq!((&answered[..], *refused, *repeated, *malformed), (&[1][..], 1, 2, 2));
        assert!(!clients.are_finished(), "the third has no answer");
    }
}
