//! The open connections of the control listener: their number, and which one makes room for a new one.
//!
//! A new connection is always accepted. If its source, or all sources together, have too many, the oldest connection of
//! the source with the most is closed. So a client that holds connections cannot keep others out, not even from the
//! same address: a request with a quick reply is over before it is the oldest.
//!
//! Endless responses, like a feed of events, are *streams*. They are counted apart, and a new one is refused if there
//! are too many, so they take no connections away from other requests. The age of an endless response says nothing
//! about its client.
//!
//! The alternative was to refuse new connections. Clients that hold connections would then keep all others out, and on
//! loopback all clients have the same address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::counters::{ConnectionEnd, ControlCounters};
use crate::problem::Problem;

/// Maximum number of connections that are not streams, of all sources and of one. With the streams, they fit in the
/// reserved descriptors (`crate::descriptors`).
const CONNECTIONS_MAX: usize = 64;
const CONNECTIONS_PER_SOURCE_MAX: usize = 48;

/// Maximum number of streams, of all sources and of one.
const STREAMS_MAX: usize = 40;
const STREAMS_PER_SOURCE_MAX: usize = 32;

/// Maximum time for a connection that is not a stream, from its first byte to its last.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(15);

/// Maximum time for a stream. Clients then connect again.
const STREAM_TIME_MAX: Duration = Duration::from_hours(1);

/// Time after which a client with a refused stream tries again.
const STREAM_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Connections {
    table: Mutex<Table>,
    counters: Arc<ControlCounters>,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of the next connection. Older ones have smaller numbers.
    next: u64,
    open: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    is_stream: bool,
    end: watch::Sender<Instant>,
    closed: Arc<Notify>,
}

/// The unit that counts as one client: an IPv4 address or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source(IpAddr);

/// An open connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) connection: Connection,
    end: watch::Receiver<Instant>,
    closed: Arc<Notify>,
}

/// The connection of a request, which handlers get as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    all: Arc<Connections>,
    number: u64,
    /// The address of the client. A loopback address if it has a local user.
    pub(crate) peer: SocketAddr,
    /// The user at the other end of the socket for the users of this host, who needs no token.
    pub(crate) local_user: Option<u32>,
}

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }
}

impl Connections {
    /// Returns no connections. How they end is counted by `counters`.
    pub(crate) fn new(counters: Arc<ControlCounters>) -> Self {
        Self { table: Mutex::default(), counters }
    }

    /// Adds a connection. If there are too many, it closes another one.
    pub(crate) fn open(self: &Arc<Self>, peer: SocketAddr, local_user: Option<u32>) -> Open {
        let source = Source::of(peer.ip());
        let (end, end_receiver) = watch::channel(Instant::now() + CONNECTION_TIME_MAX);
        let closed = Arc::new(Notify::new());
        let mut table = self.table.lock();
        if let Some(entry) = table.superfluous(source).and_then(|number| table.open.remove(&number)) {
            entry.closed.notify_one();
            self.count(ConnectionEnd::Evicted);
        }
        let number = table.next;
        table.next += 1;
        table.open.insert(number, Entry { source, is_stream: false, end, closed: Arc::clone(&closed) });
        let connection = Connection { all: Arc::clone(self), number, peer, local_user };
        Open { connection, end: end_receiver, closed }
    }

    /// Ends all streams. Those that may continue are opened again by their clients.
    pub(crate) fn end_streams(&self) {
        let table = self.table.lock();
        table.open.values().filter(|entry| entry.is_stream).for_each(|entry| entry.closed.notify_one());
    }

    fn count(&self, end: ConnectionEnd) {
        self.counters.ended.of(end).increment();
    }
}

impl Table {
    fn count(&self, is_stream: bool, source: Option<Source>) -> usize {
        let entries = self.open.values().filter(|entry| entry.is_stream == is_stream);
        entries.filter(|entry| source.is_none_or(|source| entry.source == source)).count()
    }

    /// Returns the connection to close before one of `source` is opened.
    fn superfluous(&self, source: Source) -> Option<u64> {
        let is_own_full = self.count(false, Some(source)) >= CONNECTIONS_PER_SOURCE_MAX;
        if !is_own_full && self.count(false, None) < CONNECTIONS_MAX {
            return None;
        }
        let mut held = BTreeMap::<Source, usize>::new();
        let connections = || self.open.iter().filter(|(_, entry)| !entry.is_stream);
        connections().for_each(|(_, entry)| *held.entry(entry.source).or_default() += 1);
        let largest = held.into_iter().max_by_key(|(_, count)| *count).map(|(source, _)| source);
        let from = if is_own_full { source } else { largest? };
        connections().find(|(_, entry)| entry.source == from).map(|(number, _)| *number)
    }
}

impl Open {
    /// Waits until the connection has to be closed.
    pub(crate) async fn ended(&mut self) {
        loop {
            let end = *self.end.borrow_and_update();
            tokio::select! {
                () = self.closed.notified() => return,
                () = tokio::time::sleep_until(end) => return self.connection.count(ConnectionEnd::TimeOver),
                changed = self.end.changed() => if changed.is_err() { return },
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.all.table.lock().open.remove(&self.connection.number);
    }
}

impl Connection {
    /// Counts how the connection has ended, if not after its response.
    pub(crate) fn count(&self, end: ConnectionEnd) {
        self.all.count(end);
    }

    /// Counts this connection as a stream from now on, which may last for an hour. Fails if there are too many streams,
    /// or if the connection has just been closed for another one.
    pub(crate) fn begin_stream(&self) -> Result<(), Problem> {
        let source = Source::of(self.peer.ip());
        let mut table = self.all.table.lock();
        if table.count(true, None) >= STREAMS_MAX || table.count(true, Some(source)) >= STREAMS_PER_SOURCE_MAX
        {
            return Err(Problem::later(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_STREAMS, STREAM_PAUSE));
        }
        let Some(entry) = table.open.get_mut(&self.number) else {
            return Err(Problem::later(StatusCode::SERVICE_UNAVAILABLE, CLOSED, STREAM_PAUSE));
        };
        entry.is_stream = true;
        entry.end.send_replace(Instant::now() + STREAM_TIME_MAX);
        Ok(())
    }
}

const TOO_MANY_STREAMS: &str = "too many feeds are open; close some, or try again later";

const CLOSED: &str = "this connection was closed for another one; try again later";

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> SocketAddr {
        ([127, 0, 0, last], 1).into()
    }

    async fn is_closed(open: &mut Open) -> bool {
        tokio::select! {
            biased;
            () = open.ended() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn the_oldest_connection_of_the_greediest_source_is_closed() {
        let all = Arc::<Connections>::default();
        let mut small: Vec<Open> = (1..=16).map(|last| all.open(peer(last), None)).collect();
        let mut greedy: Vec<Open> =
            (0..CONNECTIONS_PER_SOURCE_MAX).map(|_| all.open(peer(200), None)).collect();
        assert!(!is_closed(&mut greedy[0]).await);
        // The source has too many.
        let again = all.open(peer(200), None);
        assert!(is_closed(&mut greedy[0]).await && !is_closed(&mut greedy[1]).await);
        // All have too many.
        let other = all.open(peer(17), None);
        assert!(is_closed(&mut greedy[1]).await && !is_closed(&mut greedy[2]).await);
        for open in &mut small {
            assert!(!is_closed(open).await);
        }
        drop((again, other, greedy, small));
        assert!(all.table.lock().open.is_empty());
    }

    #[tokio::test]
    async fn streams_are_counted_apart_and_refused_when_there_are_too_many() {
        let all = Arc::<Connections>::default();
        let mut streams: Vec<Open> = (0..STREAMS_PER_SOURCE_MAX)
            .map(|_| {
                let open = all.open(peer(1), None);
                open.connection.begin_stream().unwrap();
                open
            })
            .collect();
        let refused = all.open(peer(1), None).connection.begin_stream().unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        let others: Vec<Open> = (0..CONNECTIONS_PER_SOURCE_MAX).map(|_| all.open(peer(1), None)).collect();
        for open in &mut streams {
            assert!(!is_closed(open).await);
        }
        all.end_streams();
        for open in &mut streams {
            assert!(is_closed(open).await);
        }
        streams.clear();
        assert!(others[0].connection.begin_stream().is_ok());
    }

    #[test]
    fn a_connection_that_was_closed_for_another_begins_no_stream() {
        let all = Arc::<Connections>::default();
        let open: Vec<Open> = (0..=CONNECTIONS_PER_SOURCE_MAX).map(|_| all.open(peer(1), None)).collect();
        let refused = open[0].connection.begin_stream().unwrap_err();
        assert_eq!(
            (refused.status, all.table.lock().count(true, None)),
            (StatusCode::SERVICE_UNAVAILABLE, 0)
        );
        assert!(open[1].connection.begin_stream().is_ok());
        assert_eq!(all.counters.ended.of(ConnectionEnd::Evicted).read(), 1);
    }

    #[test]
    fn a_subnet_of_ipv6_is_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
