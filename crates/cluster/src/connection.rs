//! The connection to NATS, on a separate thread and runtime, so that neither requests nor the control listener wait for
//! it.
//!
//! The client library reconnects for as long as the tracker runs, at growing pauses of up to four seconds. This module
//! logs when NATS goes away and comes back, and passes messages through two bounded queues. A message for a full queue
//! is dropped and counted; the protocol of the nodes notices and asks again.
//!
//! The client library reads a line or a message of any length into memory. So this module gives up a server that sends
//! bytes without an end: it drops the runtime with all buffers of the library, and starts a new one after a pause. It
//! does the same if the task of the library ends, as after a panic.
//!
//! Any NATS client with the right to publish to a subject of the cluster chooses the headers of its messages. The
//! published client library parses them into a map of any size, and gives up the connection at a malformed one. Batches
//! need no headers, but replies of JetStream and values of the shared state do, and their subjects are open to the same
//! clients. A server passes headers on a connection for all subjects or for none, so a second connection without
//! headers would only move the problem. A patch of the library (`vendor/async-nats`) therefore bounds headers before
//! they are parsed. It leaves out and counts the rest, and passes the message on, so that no stream of messages has a
//! gap.
//!
//! Messages that wait while NATS is away are dropped and counted, since they would be out of date. A connection that
//! was lost has lost messages, even if it is back before the node looks. So the node follows the number of connections,
//! not only whether one is open.
//!
//! NATS tells its clients of other servers. The tracker ignores these: the sandbox permits only the ports of configured
//! servers, and certificates need not cover what servers call each other. 8 MiB without a message count as bytes
//! without an end.
//!
//! Two alternatives to the patch were rejected. `CONNECT` with `headers: false` would also make the server strip
//! headers of JetStream, which the shared state needs. A client of our own would have to follow TLS, nkeys, JWTs and
//! reconnects of NATS.
//!
//! The log has one line when NATS goes away, one for each further reason, and one when it is back. The client library
//! logs each attempt as an error, so its lines up to the level "info" are left out.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver as Inbox, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::protocol::{MESSAGE_BYTES_MAX, Outgoing};
use anyhow::Context;
use async_nats::client::PublishErrorKind;
use async_nats::{AuthError, Client, ConnectOptions, Event, Server, ServerAddr, Subject};
use futures_util::StreamExt;
use futures_util::stream::select_all;
use parking_lot::Mutex;
use shoal_base::metrics::Gauge;
use shoal_config::{ClusterConfig, NatsServer};
use shoal_net::Waker;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::credentials::{Certificates, Credentials};
use super::credit::{self, CreditLink};
use super::shared::{self, NodeKeys, SharedState};
use shoal_runtime::repeated::Repeated;

/// Maximum number of messages that wait for the node, and their memory.
const INBOX_MESSAGES_MAX: usize = 4096;
pub(super) const INBOX_BYTES_MAX: usize = 16 << 20;

/// Maximum number of messages of a subscription that wait in the client library.
const SUBSCRIPTION_MESSAGES_MAX: usize = 1024;

/// Maximum number of commands that wait in the client library.
const COMMANDS_MAX: usize = 256;

/// Time after which a silent server is asked for a sign of life. Two unanswered pings end the connection.
const PING_EVERY: Duration = Duration::from_secs(5);

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Pauses between attempts to connect: the first and the maximum. Each is twice the one before.
const RETRY_MS: (u64, u64) = (100, 4000);

/// Pause after a connection that was given up.
const PAUSE: Duration = Duration::from_millis(RETRY_MS.1);

/// Number of remembered refusals of the server.
const VIOLATIONS_MAX: usize = 8;

/// Maximum number of bytes from a server without a message among them. If the server permits messages of half of it or
/// more, the maximum is twice the largest message. The client library collects as many bytes as a line or a message
/// claims to have.
const SILENT_BYTES_MAX: u64 = 8 << 20;

/// Largest message that a server can permit.
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;

/// Bytes per second that do not count: signs of life, and news of other servers.
const SILENT_BYTES_PER_S: u64 = 4;

/// Number of server errors that the log distinguishes.
const ERRORS_MAX: usize = 8;

/// Time between two looks at the bytes of the server.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Maximum time for the last messages of an ending node.
const FLUSH_TIME_MAX: Duration = Duration::from_millis(300);

#[derive(Clone, Debug)]
pub(super) struct ConnectionSettings {
    pub(super) servers: Vec<NatsServer>,
    name: String,
    inbox_prefix: String,
    credentials: Credentials,
    certificates: Certificates,
}

impl ConnectionSettings {
    /// Returns the settings of a connection with this name, and checks their files. The error is the key, its value and
    /// what is wrong with it.
    pub(super) fn read(config: &ClusterConfig, name: String) -> Result<Self, String> {
        Ok(Self {
            servers: config.servers.clone(),
            name,
            inbox_prefix: SharedState::inbox_prefix(config.name.as_str()),
            credentials: Credentials::read(config)?,
            certificates: Certificates::read(config)?,
        })
    }
}

#[derive(Debug)]
pub(super) struct Received {
    pub(super) subject: Subject,
    pub(super) payload: bytes::Bytes,
}

/// The state of the connection, which several threads share.
#[derive(Debug)]
pub struct Link {
    inbox: SyncSender<Received>,
    /// Ends the wait of the node.
    waker: Waker,
    inbox_bytes: AtomicUsize,
    is_connected: AtomicBool,
    connects: AtomicU64,
    /// Messages that were dropped because too many waited for the node.
    pub(super) overflowed: Gauge,
    /// How often the client library has dropped messages because too many waited in it.
    pub(super) slow_consumer: Gauge,
    /// Messages of the node that were dropped because too many waited for the connection.
    pub(super) unsent: Gauge,
    /// Messages of the node that were dropped because the server does not permit messages of their size.
    pub(super) too_large: Gauge,
    /// Headers of messages that the client library has left out.
    pub(super) ignored_headers: Gauge,
    pub(super) received: Traffic,
    pub(super) sent: Traffic,
    client: Mutex<Option<Client>>,
    notices: Mutex<Notices>,
}

#[derive(Debug, Default)]
struct Notices {
    /// Since when NATS is away, once this was logged.
    away_since: Option<Instant>,
    /// Why NATS is away.
    reason: String,
    /// The faults of the servers at the last attempt.
    server_faults: String,
    /// Why a reachable server does not suffice.
    limit: Option<String>,
    errors: Vec<(String, Repeated)>,
    /// All errors beyond those above.
    other_errors: Repeated,
    /// The last messages that the server refused for lack of a permission.
    violations: VecDeque<String>,
}

#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) messages: Gauge,
    pub(super) bytes: Gauge,
}

impl Traffic {
    fn count(&self, subject: &str, payload: &[u8]) {
        self.messages.add(1);
        self.bytes.add((subject.len() + payload.len()) as u64);
    }
}

/// Advice to the operator, which depends on why NATS is away.
#[derive(Clone, Debug, Default)]
struct Advice {
    /// The configuration keys of the credentials.
    credentials: &'static str,
    /// The servers whose names are looked up.
    names: String,
}

impl Advice {
    fn new(settings: &ConnectionSettings) -> Self {
        let names = settings.servers.iter().filter(|server| server.address().is_none());
        let names: Vec<String> = names.map(ToString::to_string).collect();
        Self { credentials: settings.credentials.keys(), names: names.join(", ") }
    }

    /// Adds an explanation to a reason, if the client library gives none.
    fn explain(&self, reason: &str) -> String {
        let Self { credentials, names } = self;
        // The client library names the kind of an error twice.
        let reason = reason.replace("authorization violation: nats: authorization", "authorization");
        let meaning = if reason.contains("authorization violation") {
            format!("the server accepts other credentials: {credentials}")
        } else if reason.contains("InvalidContentType") {
            "the server does not speak TLS: cluster.servers, cluster.tls_ca".to_owned()
        } else if reason.contains("CaUsedAsEndEntity") {
            "the server shows the certificate of an authority, and needs one of its own".to_owned()
        } else if reason.contains("UnknownIssuer") {
            "the certificate of its authority belongs into the file of cluster.tls_ca".to_owned()
        } else if reason.contains("DNS error") {
            format!("no address was found for {names}: cluster.servers")
        } else if reason.ends_with("timed out") {
            "no NATS server speaks there, or a firewall is between".to_owned()
        } else {
            return reason;
        };
        format!("{reason} ({meaning})")
    }
}

impl Link {
    /// Creates the state of a closed connection, and the queue of its messages.
    pub(super) fn new(waker: Waker) -> (Arc<Self>, Inbox<Received>) {
        let (inbox, received) = sync_channel(INBOX_MESSAGES_MAX);
        let link = Self {
            inbox,
            waker,
            inbox_bytes: AtomicUsize::new(0),
            is_connected: AtomicBool::new(false),
            connects: AtomicU64::new(0),
            overflowed: Gauge::default(),
            slow_consumer: Gauge::default(),
            unsent: Gauge::default(),
            too_large: Gauge::default(),
            ignored_headers: Gauge::default(),
            received: Traffic::default(),
            sent: Traffic::default(),
            client: Mutex::default(),
            notices: Mutex::default(),
        };
        (Arc::new(link), received)
    }

    /// Returns whether NATS is connected.
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Acquire)
    }

    /// Returns how often the connection was opened.
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Acquire)
    }

    /// Returns the name of the server, while NATS is there.
    pub fn server(&self) -> Option<String> {
        let client = self.client().filter(|_| self.is_connected())?;
        Some(client.server_info().server_name).filter(|name| !name.is_empty())
    }

    /// Returns why NATS is away or does not suffice.
    pub fn fault(&self) -> Option<String> {
        let notices = self.notices.lock();
        if self.is_connected() {
            return notices.limit.clone();
        }
        Some(notices.reason.clone()).filter(|reason| !reason.is_empty())
    }

    /// Puts a message into the queue of the node, if there is room.
    pub(super) fn put(&self, message: Received) {
        self.received.count(&message.subject, &message.payload);
        let bytes = size(&message);
        let waiting = self.inbox_bytes.fetch_add(bytes, Ordering::Relaxed);
        if waiting + bytes > INBOX_BYTES_MAX || self.inbox.try_send(message).is_err() {
            self.inbox_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.overflowed.add(1);
        }
        self.waker.wake();
    }

    pub(super) fn took(&self, message: &Received) {
        self.inbox_bytes.fetch_sub(size(message), Ordering::Relaxed);
    }

    /// Records that the connection was made.
    pub(super) fn connected(&self) {
        let mut notices = self.notices.lock();
        self.connects.fetch_add(1, Ordering::AcqRel);
        self.is_connected.store(true, Ordering::Release);
        notices.reason.clear();
        match notices.away_since.take() {
            None => tracing::info!("connected to NATS"),
            Some(since) => tracing::info!(away_s = since.elapsed().as_secs(), "NATS is back"),
        }
    }

    /// Records why NATS is away, and logs the reason unless it was logged before.
    fn away(&self, reason: &str) {
        let mut notices = self.notices.lock();
        self.is_connected.store(false, Ordering::Release);
        let is_known = notices.away_since.is_some() && notices.reason == reason;
        reason.clone_into(&mut notices.reason);
        notices.away_since.get_or_insert_with(Instant::now);
        if !is_known {
            tracing::warn!(reason, "NATS is away: this node goes on alone, and tries again and again");
        }
    }

    /// Records the largest message size that the server permits, and logs a size that is too small.
    fn note_payload_max(&self, bytes: usize) {
        let mut notices = self.notices.lock();
        notices.limit = (bytes < MESSAGE_BYTES_MAX).then(|| {
            format!(
                "its max_payload is {bytes}, and nodes send messages of up to {MESSAGE_BYTES_MAX} bytes: set it to that or more"
            )
        });
        if let Some(reason) = &notices.limit {
            tracing::error!(
                max_payload = bytes,
                needed = MESSAGE_BYTES_MAX,
                "the NATS server does not suffice: {reason}; larger messages are dropped, and nodes lack them"
            );
        }
    }

    fn note(&self, event: Event, advice: &Advice) {
        match event {
            Event::Connected => self.connected(),
            Event::Disconnected | Event::Closed => self.away("the connection was lost"),
            Event::SlowConsumer(_) => self.slow_consumer.add(1),
            Event::LameDuckMode => {
                tracing::info!("the NATS server is about to end; another one will be used")
            }
            Event::Draining => {}
            Event::ServerError(error) => {
                let error = error.to_string();
                self.note_violation(&error);
                // The shared state logs its own lack of permissions.
                if !["$JS.", "$KV."].into_iter().any(|part| error.contains(part)) {
                    self.log_error(&error);
                }
            }
            Event::ClientError(error) if self.is_connected() => self.log_error(&error.to_string()),
            Event::ClientError(error) => {
                let detail = self.notices.lock().server_faults.clone();
                let kind = error.to_string();
                let kind = kind.strip_prefix("nats: ").unwrap_or(&kind);
                // The faults of the servers begin with the kind. Earlier ones may have another kind.
                self.away(&advice.explain(if detail.contains(kind) { &detail } else { kind }));
            }
        }
    }

    /// Records the faults of the servers, for the next log line that NATS is away.
    fn note_servers(&self, servers: &[Server]) {
        let fault = |server: &Server| {
            let error = server.last_error.as_ref()?;
            Some(format!("{}:{}: {error}", server.addr.host(), server.addr.port()))
        };
        self.notices.lock().server_faults = servers.iter().filter_map(fault).collect::<Vec<_>>().join("; ");
    }

    fn note_violation(&self, error: &str) {
        if error.to_lowercase().contains("permissions violation") {
            let violations = &mut self.notices.lock().violations;
            violations.truncate(VIOLATIONS_MAX - 1);
            violations.push_front(error.to_owned());
        }
    }

    /// Returns whether the server has refused a message because its user may not publish to this subject.
    pub(super) fn may_not_publish(&self, subject: &str) -> bool {
        self.notices.lock().violations.iter().any(|violation| violation.contains(subject))
    }

    pub(super) fn client(&self) -> Option<Client> {
        self.client.lock().clone()
    }

    fn set_client(&self, client: Client) {
        *self.client.lock() = Some(client);
    }

    /// Logs an error that does not end the connection, at most once a minute.
    fn log_error(&self, error: &str) {
        let mut notices = self.notices.lock();
        let Notices { errors, other_errors, .. } = &mut *notices;
        let is_known = errors.iter().any(|(text, _)| text == error);
        if !is_known && errors.len() < ERRORS_MAX {
            errors.push((error.to_owned(), Repeated::default()));
        }
        let own = errors.iter_mut().find(|(text, _)| text == error);
        let repeated = own.map_or(other_errors, |(_, repeated)| repeated);
        if let Some(unlogged) = repeated.note(Instant::now()) {
            tracing::warn!(error, unlogged, "NATS has refused something");
        }
    }
}

/// Returns the approximate memory of a message in the queue.
fn size(message: &Received) -> usize {
    message.payload.len() + message.subject.len() + size_of::<Received>()
}

/// The parts of a node that use JetStream, if there are any.
#[derive(Clone)]
pub(super) struct Followed {
    pub(super) shared: Option<(Arc<SharedState>, NodeKeys)>,
    pub(super) credit: Option<Arc<CreditLink>>,
}

pub(super) struct Connection {
    thread: JoinHandle<()>,
    running: oneshot::Receiver<()>,
}

impl Connection {
    /// Starts the thread. It ends when the other end of `outgoing` is dropped. Fails if the kernel provides no more
    /// threads.
    pub(super) fn start(
        settings: ConnectionSettings,
        subjects: Vec<String>,
        link: Arc<Link>,
        outgoing: Receiver<Outgoing>,
        followed: Followed,
    ) -> anyhow::Result<Self> {
        let (runs, running) = oneshot::channel();
        let runtime = new_runtime()?;
        let mut outgoing = outgoing;
        let body = move || {
            let _runs: oneshot::Sender<()> = runs;
            let mut next = Some(runtime);
            while let Some(runtime) = next {
                let ended =
                    runtime.block_on(pass_messages(&settings, &subjects, &link, &mut outgoing, &followed));
                // A name may still be looked up. The buffers of the client library end with its tasks.
                runtime.shutdown_background();
                match ended {
                    Ok(End::Stopped) => return,
                    Ok(End::Flooded) => link.away("the server sends endless bytes without a message"),
                    Ok(End::Lost) => {
                        link.away("the client of NATS has ended, which is a bug, and is started again")
                    }
                    Err(error) => link.away(&format!("the client of NATS cannot start: {error:#}")),
                }
                next = pause(&link, &mut outgoing);
            }
        };
        let thread = thread::Builder::new().name("nats".to_owned()).spawn(body)?;
        Ok(Self { thread, running })
    }

    /// Waits until the thread fails, and returns the reason.
    pub(super) async fn failure(&mut self) -> anyhow::Error {
        // Nothing is ever sent.
        let _ended = (&mut self.running).await;
        anyhow::anyhow!("the thread of the connection to NATS has ended")
    }

    /// Waits until the last messages are sent, or their time is over.
    pub(super) fn finish(self) {
        // A panic of the thread is already in the log.
        let _ended = self.thread.join();
    }
}

/// Why messages are no longer passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The node has ended.
    Stopped,
    /// The server sends bytes without any message.
    Flooded,
    /// The task of the client library has ended.
    Lost,
}

fn new_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

async fn pass_messages(
    settings: &ConnectionSettings,
    subjects: &[String],
    link: &Arc<Link>,
    outgoing: &mut Receiver<Outgoing>,
    followed: &Followed,
) -> anyhow::Result<End> {
    let servers: Result<Vec<ServerAddr>, io::Error> =
        settings.servers.iter().map(|server| server.to_string().parse()).collect();
    let client = options(settings.clone(), link).connect(servers.context("a URL of a server")?).await?;
    link.set_client(client.clone());
    let mut subscriptions = Vec::new();
    for subject in subjects {
        subscriptions.push(client.subscribe(subject.clone()).await?);
    }
    let into = Arc::clone(link);
    let mut receive = tokio::spawn(async move {
        let mut messages = select_all(subscriptions);
        while let Some(message) = messages.next().await {
            into.put(Received { subject: message.subject, payload: message.payload });
        }
    });
    let Followed { shared, credit } = followed.clone();
    let follow = shared.map(|(state, keys)| tokio::spawn(shared::follow(state, keys)));
    let publish = credit.map(|credit| tokio::spawn(credit::publish(credit)));
    let end = tokio::select! {
        end = send_messages(&client, link, outgoing) => end,
        () = wait_for_flood(&client, link) => End::Flooded,
        // Subscriptions end with the task that has the connection.
        _ended = &mut receive => End::Lost,
    };
    receive.abort();
    follow.into_iter().chain(publish).for_each(|task| task.abort());
    if end == End::Stopped && link.is_connected() {
        let _in_time_or_not = tokio::time::timeout(FLUSH_TIME_MAX, client.flush()).await;
    }
    Ok(end)
}

/// Publishes messages until the node or the client ends.
async fn send_messages(client: &Client, link: &Link, outgoing: &mut Receiver<Outgoing>) -> End {
    while let Some(message) = outgoing.recv().await {
        // Messages that wait while NATS is away would be out of date later.
        if !link.is_connected() {
            link.unsent.add(1);
            continue;
        }
        let (subject, payload) = (message.subject, message.payload);
        let published = client.publish(subject.clone(), payload.clone()).await;
        match published.map_err(|error| error.kind()) {
            Ok(()) => link.sent.count(&subject, &payload),
            Err(PublishErrorKind::MaxPayloadExceeded) => link.too_large.add(1),
            Err(PublishErrorKind::InvalidSubject) => link.unsent.add(1),
            Err(PublishErrorKind::Send) => {
                link.unsent.add(1);
                return End::Lost;
            }
        }
    }
    End::Stopped
}

/// Waits until the server of a connection has sent too many bytes without a message. Meanwhile follows the message size
/// that the server permits, and counts the headers that the client library has left out.
async fn wait_for_flood(client: &Client, link: &Link) {
    let statistics = client.statistics();
    let progress = || (link.connects(), statistics.in_messages.load(Ordering::Relaxed));
    let bytes = || statistics.in_bytes.load(Ordering::Relaxed);
    let (mut last, mut bytes_then, mut since) = (progress(), bytes(), Instant::now());
    let (mut payload_max, mut ignored) = (None, 0);
    while bytes() - bytes_then <= silent_bytes_max(client.max_payload(), since.elapsed()) {
        tokio::time::sleep(LOOK_EVERY).await;
        let ignored_before = mem::replace(&mut ignored, statistics.ignored_headers.load(Ordering::Relaxed));
        link.ignored_headers.add(ignored - ignored_before);
        if progress() != last {
            (last, bytes_then, since) = (progress(), bytes(), Instant::now());
        }
        let connection = (link.connects(), client.max_payload());
        if link.is_connected() && payload_max.replace(connection) != Some(connection) {
            link.note_payload_max(connection.1);
        }
    }
}

/// Returns how many bytes a server may have sent since its last message, if it permits messages of `payload_max` bytes.
fn silent_bytes_max(payload_max: usize, since: Duration) -> u64 {
    let largest = (payload_max as u64).min(PAYLOAD_BYTES_MAX);
    SILENT_BYTES_MAX.max(2 * largest).saturating_add(SILENT_BYTES_PER_S.saturating_mul(since.as_secs()))
}

/// Waits before the next connection, and drops the messages of the node meanwhile. Returns a new runtime, or `None`
/// once the node has ended.
fn pause(link: &Link, outgoing: &mut Receiver<Outgoing>) -> Option<Runtime> {
    let runtime = loop {
        match new_runtime() {
            Ok(runtime) => break runtime,
            Err(error) => link.away(&format!("the client of NATS cannot start: {error}")),
        }
        thread::sleep(PAUSE);
        if outgoing.is_closed() {
            return None;
        }
    };
    let drop_messages = async {
        while outgoing.recv().await.is_some() {
            link.unsent.add(1);
        }
    };
    let ended = runtime.block_on(async { tokio::time::timeout(PAUSE, drop_messages).await });
    ended.is_err().then_some(runtime)
}

fn options(settings: ConnectionSettings, link: &Arc<Link>) -> ConnectOptions {
    let advice = Advice::new(&settings);
    let ConnectionSettings { name, inbox_prefix, credentials, certificates, .. } = settings;
    let (of_events, of_servers) = (Arc::clone(link), Arc::clone(link));
    let mut options = ConnectOptions::with_auth_callback(move |nonce| {
        let auth = credentials.authenticate(&nonce);
        async move { auth.map_err(AuthError::new) }
    });
    options = options
        .name(name)
        .custom_inbox_prefix(inbox_prefix)
        .no_echo()
        .retry_on_initial_connect()
        .max_reconnects(None)
        // The sandbox may forbid the names and ports of other servers, and certificates may not cover them.
        .ignore_discovered_servers()
        .ping_interval(PING_EVERY)
        .connection_timeout(CONNECT_TIME_MAX)
        .subscription_capacity(SUBSCRIPTION_MESSAGES_MAX)
        .client_capacity(COMMANDS_MAX)
        .reconnect_delay_callback(|attempts| Duration::from_millis(pause_ms(attempts, fastrand::f64())))
        .event_callback(move |event| {
            of_events.note(event, &advice);
            async {}
        })
        .reconnect_to_server_callback(move |servers, _| {
            of_servers.note_servers(&servers);
            async { None }
        });
    if let Some(authorities) = certificates.authorities {
        options = options.add_root_certificates(authorities).require_tls(true);
    }
    if let Some((certificate, key)) = certificates.own {
        options = options.add_client_certificate(certificate, key);
    }
    options
}

/// Returns the pause before an attempt. The first has none. `random` is from 0 to 1, so that many nodes do not come
/// back at the same moment.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "pauses are short and positive"
)]
fn pause_ms(attempts: usize, random: f64) -> u64 {
    let doublings = u32::try_from(attempts.saturating_sub(2)).unwrap_or(u32::MAX).min(16);
    let whole = (RETRY_MS.0 << doublings).min(RETRY_MS.1);
    if attempts <= 1 { 0 } else { (whole as f64 * (0.5 + random / 2.0)) as u64 }
}

#[cfg(test)]
mod tests {
    use async_nats::ClientError;

    use super::*;

    fn message(bytes: usize) -> Received {
        Received { subject: "a".into(), payload: vec![0; bytes].into() }
    }

    #[test]
    fn pauses_grow_to_their_maximum() {
        let pauses: Vec<u64> = (0..9).map(|attempts| pause_ms(attempts, 1.0)).collect();
        assert_eq!(pauses, [0, 0, 100, 200, 400, 800, 1600, 3200, 4000]);
        assert_eq!(pause_ms(2, 0.0), 50);
        assert_eq!(pause_ms(usize::MAX, 1.0), 4000);
    }

    #[test]
    fn messages_beyond_the_queue_of_the_node_are_counted() {
        let (link, inbox) = Link::new(Waker::new().unwrap());
        for _ in 0..=INBOX_MESSAGES_MAX {
            link.put(message(1));
        }
        assert_eq!(link.overflowed.read(), 1);
        inbox.try_iter().for_each(|message| link.took(&message));
        link.put(message(1));
        assert_eq!(link.overflowed.read(), 1, "there is room again");
    }

    #[test]
    fn large_messages_fill_the_queue_by_their_size() {
        let (link, inbox) = Link::new(Waker::new().unwrap());
        for _ in 0..INBOX_BYTES_MAX >> 20 {
            link.put(message(1 << 20));
        }
        assert_eq!(link.overflowed.read(), 1, "their heads take memory, too");
        inbox.try_iter().for_each(|message| link.took(&message));
        assert_eq!(link.inbox_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_server_may_be_silent_by_twice_the_largest_message_and_for_long() {
        let hour = Duration::from_secs(3600);
        assert_eq!(silent_bytes_max(8192, Duration::ZERO), 8 << 20);
        assert_eq!(silent_bytes_max(16 << 20, Duration::ZERO), 32 << 20);
        assert_eq!(silent_bytes_max(usize::MAX, Duration::ZERO), 128 << 20);
        // One sign of life every five seconds.
        assert!(silent_bytes_max(8192, hour) - (8 << 20) > 720 * "PONG\r\n".len() as u64);
    }

    #[test]
    fn errors_are_told_apart_in_the_log_up_to_a_number() {
        let (link, _inbox) = Link::new(Waker::new().unwrap());
        for number in 0..ERRORS_MAX + 3 {
            link.log_error(&number.to_string());
            link.log_error("0");
        }
        let mut notices = link.notices.lock();
        assert_eq!(notices.errors.len(), ERRORS_MAX);
        let later = Instant::now() + Duration::from_mins(1);
        assert_eq!(notices.errors[0].1.note(later), Some(ERRORS_MAX as u64 + 3));
        assert_eq!(notices.errors[1].1.note(later), Some(0));
        assert_eq!(notices.other_errors.note(later), Some(2));
    }

    #[test]
    fn the_reason_why_nats_is_away_is_known_until_it_is_back() {
        let (link, _inbox) = Link::new(Waker::new().unwrap());
        let advice = Advice::default();
        assert_eq!((link.is_connected(), link.fault()), (false, None));
        link.note(Event::ClientError(ClientError::Other("no route".to_owned())), &advice);
        assert_eq!(link.fault().as_deref(), Some("no route"));
        link.notices.lock().server_faults = "a:4222: IO error: refused".to_owned();
        link.note(Event::ClientError(ClientError::Other("IO error".to_owned())), &advice);
        assert_eq!(link.fault().as_deref(), Some("a:4222: IO error: refused"));
        link.note(Event::Connected, &advice);
        assert_eq!((link.is_connected(), link.fault(), link.connects()), (true, None, 1));
        link.note(Event::Disconnected, &advice);
        assert_eq!((link.is_connected(), link.fault().as_deref()), (false, Some("the connection was lost")));
    }
    #[test]
    fn a_reason_names_the_key_to_look_at() {
        let advice =
            Advice { credentials: "cluster.token_file", names: "nats://nats.example:4222".to_owned() };
        let violation = "10.0.0.1:4222: authorization violation";
        for (reason, expected) in [
            ("DNS error", "DNS error (no address was found for nats://nats.example:4222: cluster.servers)"),
            ("a:4222: IO error: Connection refused", "a:4222: IO error: Connection refused"),
            (
                &format!("{violation}: nats: authorization violation"),
                &format!("{violation} (the server accepts other credentials: cluster.token_file)"),
            ),
        ] {
            assert_eq!(advice.explain(reason), expected);
        }
    }
}
