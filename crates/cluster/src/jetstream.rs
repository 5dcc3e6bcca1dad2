//! The few requests of JetStream that the shared state and the credit of users need: a stream, writes that name the
//! revision they replace, and a watch of all keys.
//!
//! A watch is an ephemeral pull consumer. Its pulls bound the waiting messages by 256, and need no further permission.
//! A watch never continues after a fault: its owner opens another one, which begins with all present keys. It reads at
//! most 32 MiB. So an interrupted watch, a moved leader and another bucket are one case, and nothing is missed.
//!
//! The JetStream part of the client library was the alternative. It answers flow control in a task that panics without
//! a connection, and continues an ordered watch at a sequence number even if the stream was replaced.
//!
//! Replies and values arrive at inboxes below the subjects of the cluster, so that a node needs no other subscriptions.

use core::fmt;
use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::{Client, HeaderMap, Message, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::connection::Link;

/// Maximum time for a reply.
const REPLY_TIME_MAX: Duration = Duration::from_secs(2);

/// Maximum number of messages of a pull. All of them may wait here.
const PULL_MESSAGES: usize = 256;

/// Time after which a pull ends.
const PULL_TIME: Duration = Duration::from_secs(30);

/// How often a server without messages confirms a waiting pull.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// Time without a message after which a watch has failed.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// The header of a conditional write: the revision that the key must have, 0 for none.
const EXPECTED_REVISION: &str = "Nats-Expected-Last-Subject-Sequence";

/// The headers with a message's id, by which the server recognises a repetition, and with the name of its stream.
const MESSAGE_ID: &str = "Nats-Msg-Id";
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";

/// The header of a removal, and of one that leaves nothing behind.
const OPERATION: &str = "KV-Operation";
const DELETE: &str = "DEL";

/// The header of a heartbeat that numbers the last message.
const LAST_DELIVERED: &str = "Nats-Last-Consumer";

/// Number of copies of a stream, if there are enough NATS servers.
const COPIES: usize = 3;

/// Number of refused creations after which one copy must do.
const REFUSALS_MAX: u32 = 5;

/// Error codes of the JetStream API.
const WRONG_REVISION: u64 = 10071;
const STREAM_NOT_FOUND: u64 = 10059;
const OUT_OF_SPACE: [u64; 3] = [10047, 10077, 10122];
const NOT_ENABLED: [u64; 2] = [10039, 10076];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No server with JetStream is reachable.
    NoJetStream,
    /// A request with this subject got no reply.
    NoReply(String),
    /// The user may not publish to this subject.
    NotPermitted(String),
    /// The stream does not exist.
    NoStream,
    /// The key has another revision.
    WrongRevision,
    /// The stream is full.
    Full,
    /// The server has refused the request, for this reason.
    Refused(String),
    /// The connection is gone, or the watch was interrupted.
    Interrupted(&'static str),
}

/// Whether a stream can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// It is used.
    Used,
    /// It cannot be reached at present. The reason is absent before the first attempt.
    Away(Option<String>),
    /// It cannot be used before an operator changes something, or has no room.
    Refused(String),
}

impl Availability {
    /// Returns the availability after a fault.
    pub(super) fn after(is_lasting: bool, reason: String) -> Self {
        if is_lasting { Self::Refused(reason) } else { Self::Away(Some(reason)) }
    }

    /// Returns one of the names of the three, and the reason.
    pub(super) fn told(self, [used, away, refused]: [&str; 3]) -> (String, Option<String>) {
        match self {
            Self::Used => (used.to_owned(), None),
            Self::Away(reason) => (away.to_owned(), reason),
            Self::Refused(reason) => (refused.to_owned(), Some(reason)),
        }
    }
}

/// With how many copies a stream is created.
///
/// Only a server's refusal proves that three copies are impossible. While JetStream is off, has no leader or may not be
/// used, nothing is known, and a stream created with one copy would keep it.
#[derive(Debug, Default)]
pub(super) struct Copies {
    refusals: u32,
}

/// The API of JetStream at one domain.
#[derive(Clone, Debug)]
pub(super) struct JetStream {
    client: Client,
    api: String,
    /// The prefix of writes to another domain, with a dot at the end.
    write_prefix: String,
}

/// The relevant part of a stream's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamInfo {
    /// When the stream was created. Another time means another stream.
    pub(super) created: String,
    pub(super) replicas: u64,
    /// The revision of its last change.
    pub(super) revision: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Update {
    /// A key now has this value, or none.
    Change { subject: Subject, value: Option<Bytes>, revision: u64, unix_s: u64 },
    /// The changes so far are all that exist.
    Current,
}

/// The changes of a stream, from its beginning.
pub(super) struct Watch {
    client: Client,
    messages: Subscriber,
    inbox: Subject,
    pull_subject: String,
    /// The remaining messages of the current pull.
    awaited: usize,
    /// The number of the last message.
    delivered: u64,
    /// Whether the last message was the latest one and the caller was not told yet.
    is_latest: bool,
    silent_since: Instant,
}

impl JetStream {
    /// Returns the API that `client` reaches, in a separate domain if one is named.
    pub(super) fn new(client: Client, domain: Option<&str>) -> Self {
        let (api, write_prefix) = match domain {
            None => ("$JS.API".to_owned(), String::new()),
            Some(domain) => (format!("$JS.{domain}.API"), format!("$JS.{domain}.API.")),
        };
        Self { client, api, write_prefix }
    }

    /// Returns the number of servers of the NATS cluster.
    pub(super) fn servers(&self) -> usize {
        self.client.server_info().connect_urls.len().max(1)
    }

    pub(super) async fn stream(&self, name: &str) -> Result<StreamInfo, Fault> {
        self.ask(&format!("STREAM.INFO.{name}"), &Value::Null).await.map(|reply| StreamInfo::of(&reply))
    }

    /// Finds a stream, or creates it with the first configuration for which there is room.
    pub(super) async fn open_stream(
        &self,
        name: &str,
        configs: Vec<Value>,
        copies: &mut Copies,
    ) -> Result<StreamInfo, Fault> {
        match self.stream(name).await {
            Err(Fault::NoStream) => {}
            found => return found,
        }
        let servers = self.servers();
        let replicas = copies.of(servers);
        let mut created = Err(Fault::Full);
        for mut config in configs {
            config["num_replicas"] = json!(replicas);
            let reply = self.ask(&format!("STREAM.CREATE.{name}"), &config).await;
            created = reply.map(|reply| StreamInfo::of(&reply));
            if created != Err(Fault::Full) {
                break;
            }
        }
        copies.note(replicas, created.as_ref().err());
        if created.is_ok() {
            tracing::info!(stream = name, replicas, "a stream of the cluster was created");
            if servers >= COPIES && replicas < COPIES {
                tracing::warn!(
                    stream = name,
                    servers,
                    "the stream has one copy, because the NATS servers refused more: it is lost with its server"
                );
            }
        }
        created
    }

    /// Forgets everything about a subject of a stream up to a revision.
    pub(super) async fn purge(&self, stream: &str, subject: &str, revision: u64) -> Result<(), Fault> {
        let purge = json!({ "filter": subject, "seq": revision + 1 });
        self.ask(&format!("STREAM.PURGE.{stream}"), &purge).await.map(drop)
    }

    /// Writes a value, if the key has the expected revision. Returns the new revision.
    pub(super) async fn put(&self, subject: &str, value: Bytes, expected: Option<u64>) -> Result<u64, Fault> {
        let mut headers = HeaderMap::new();
        if let Some(revision) = expected {
            headers.insert(EXPECTED_REVISION, revision.to_string());
        }
        self.write(subject, value, headers).await
    }

    /// Removes a key, if it has the expected revision. Returns the new revision.
    pub(super) async fn delete(&self, subject: &str, expected: Option<u64>) -> Result<u64, Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, DELETE);
        if let Some(revision) = expected {
            headers.insert(EXPECTED_REVISION, revision.to_string());
        }
        self.write(subject, Bytes::new(), headers).await
    }

    /// Publishes a message that a stream must have once, and waits until it does. A message for another domain takes
    /// the normal way.
    pub(super) async fn publish(
        &self,
        subject: &str,
        payload: Bytes,
        id: &str,
        stream: &str,
    ) -> Result<(), Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE_ID, id);
        headers.insert(EXPECTED_STREAM, stream);
        let reply = self.send(subject.to_owned(), Request::new().payload(payload).headers(headers)).await;
        let reply = match reply {
            // JetStream exists, because the stream was found.
            Err(Fault::NoJetStream) => return Err(Fault::Refused(format!("no stream takes {subject}"))),
            reply => reply?,
        };
        if reply["stream"] == stream {
            Ok(())
        } else {
            Err(Fault::Refused(format!("another program replies to {subject}")))
        }
    }

    async fn write(&self, subject: &str, value: Bytes, headers: HeaderMap) -> Result<u64, Fault> {
        let subject = format!("{}{subject}", self.write_prefix);
        let request = Request::new().payload(value).headers(headers);
        let reply = self.send(subject, request).await?;
        reply["seq"].as_u64().ok_or_else(|| Fault::Refused("the reply names no revision".to_owned()))
    }

    pub(super) async fn watch(&self, stream: &str) -> Result<Watch, Fault> {
        let config = json!({
            "deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant", "max_deliver": 1,
            "inactive_threshold": nanoseconds(PULL_TIME), "mem_storage": true, "num_replicas": 1,
        });
        let consumer = json!({ "stream_name": stream, "config": config });
        let created = self.ask(&format!("CONSUMER.CREATE.{stream}"), &consumer).await?;
        let name = created["name"].as_str().unwrap_or_default();
        let inbox = Subject::from(self.client.new_inbox());
        let messages = self.client.subscribe(inbox.clone()).await;
        Ok(Watch {
            client: self.client.clone(),
            messages: messages.map_err(|_| Fault::Interrupted("the connection is gone"))?,
            inbox,
            pull_subject: format!("{}.CONSUMER.MSG.NEXT.{stream}.{name}", self.api),
            awaited: 0,
            delivered: 0,
            is_latest: created["num_pending"] == 0,
            silent_since: Instant::now(),
        })
    }

    async fn ask(&self, subject: &str, content: &Value) -> Result<Value, Fault> {
        let payload = if content.is_null() { String::new() } else { content.to_string() };
        self.send(format!("{}.{subject}", self.api), Request::new().payload(payload.into())).await
    }

    async fn send(&self, subject: String, request: Request) -> Result<Value, Fault> {
        let reply = self.client.send_request(subject.clone(), request.timeout(Some(REPLY_TIME_MAX))).await;
        let reply = reply.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => Fault::NoJetStream,
            RequestErrorKind::TimedOut => Fault::NoReply(subject),
            RequestErrorKind::Other => Fault::Interrupted("the connection is gone"),
            _ => Fault::Refused(error.to_string()),
        })?;
        let reply: Value =
            serde_json::from_slice(&reply.payload).map_err(|error| Fault::Refused(error.to_string()))?;
        match Fault::of(&reply["error"]) {
            Some(fault) => Err(fault),
            None => Ok(reply),
        }
    }
}

impl Copies {
    /// Returns the number of copies in a cluster of `servers` servers.
    const fn of(&self, servers: usize) -> usize {
        if servers >= COPIES && self.refusals < REFUSALS_MAX { COPIES } else { 1 }
    }

    /// Notes the outcome of a creation with `replicas` copies.
    const fn note(&mut self, replicas: usize, fault: Option<&Fault>) {
        match fault {
            Some(Fault::Refused(_) | Fault::Full) if replicas == COPIES => self.refusals += 1,
            Some(_) => {}
            None => self.refusals = 0,
        }
    }
}

impl Watch {
    /// Waits for the next message. May be cancelled at any time.
    pub(super) async fn next(&mut self) -> Result<Update, Fault> {
        loop {
            if core::mem::take(&mut self.is_latest) {
                return Ok(Update::Current);
            }
            if self.awaited == 0 {
                self.pull().await?;
            }
            let message = timeout_at(self.silent_since + SILENCE_MAX, self.messages.next()).await;
            let Ok(message) = message else { return Err(Fault::Interrupted("the server is silent")) };
            let message = message.ok_or(Fault::Interrupted("the connection is gone"))?;
            self.silent_since = Instant::now();
            if let Some(update) = self.read(message)? {
                return Ok(update);
            }
        }
    }

    async fn pull(&mut self) -> Result<(), Fault> {
        let pull = json!({
            "batch": PULL_MESSAGES,
            "expires": nanoseconds(PULL_TIME),
            "idle_heartbeat": nanoseconds(HEARTBEAT_EVERY),
        });
        let sent = self.client.publish_with_reply(
            self.pull_subject.clone(),
            self.inbox.clone(),
            pull.to_string().into(),
        );
        sent.await.map_err(|_| Fault::Interrupted("the connection is gone"))?;
        self.awaited = PULL_MESSAGES;
        self.silent_since = Instant::now();
        Ok(())
    }

    fn read(&mut self, message: Message) -> Result<Option<Update>, Fault> {
        match message.status.map(|status| status.as_u16()) {
            None => {}
            Some(100) => return self.check(&message),
            // The time of the pull is over.
            Some(404 | 408) => {
                self.awaited = 0;
                return Ok(None);
            }
            Some(503) => return Err(Fault::NoJetStream),
            Some(_) => return Err(Fault::Interrupted("the server has ended the watch")),
        }
        let place = message.reply.as_deref().and_then(Place::parse);
        let place = place.ok_or(Fault::Interrupted("a message has no place in the stream"))?;
        if place.delivered != self.delivered + 1 {
            return Err(Fault::Interrupted("a message was lost"));
        }
        self.delivered = place.delivered;
        self.awaited = self.awaited.saturating_sub(1);
        self.is_latest = place.pending == 0;
        let is_removal = message.headers.as_ref().is_some_and(|headers| headers.get(OPERATION).is_some());
        let value = (!is_removal).then_some(message.payload);
        let Place { revision, unix_s, .. } = place;
        Ok(Some(Update::Change { subject: message.subject, value, revision, unix_s }))
    }

    /// Checks by a heartbeat that no message was lost. Awaited messages may also have been removed.
    fn check(&self, heartbeat: &Message) -> Result<Option<Update>, Fault> {
        let last = heartbeat.headers.as_ref().and_then(|headers| headers.get(LAST_DELIVERED));
        match last.and_then(|last| last.as_str().parse().ok()) {
            Some(last) if self.delivered < last => Err(Fault::Interrupted("a message was lost")),
            _ => Ok(Some(Update::Current)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    revision: u64,
    delivered: u64,
    /// When it was stored, in seconds since 1970.
    unix_s: u64,
    pending: u64,
}

impl Place {
    /// Reads the subject for acknowledgements, which has one of two forms (ADR-15):
    /// `$JS.ACK.STREAM.CONSUMER.DELIVERIES.STREAM SEQUENCE.CONSUMER SEQUENCE.TIME.PENDING`, or the same with a domain
    /// and an account before the stream.
    fn parse(subject: &str) -> Option<Self> {
        let tokens: Vec<&str> = subject.strip_prefix("$JS.ACK.")?.split('.').collect();
        let numbers = match tokens.len() {
            7 => &tokens[2..],
            9.. => &tokens[4..],
            _ => return None,
        };
        let number = |index: usize| numbers.get(index)?.parse::<u64>().ok();
        let unix_s = number(3)? / 1_000_000_000;
        Some(Self { revision: number(1)?, delivered: number(2)?, unix_s, pending: number(4)? })
    }
}

impl StreamInfo {
    fn of(reply: &Value) -> Self {
        Self {
            created: reply["created"].as_str().unwrap_or_default().to_owned(),
            replicas: reply["config"]["num_replicas"].as_u64().unwrap_or(1),
            revision: reply["state"]["last_seq"].as_u64().unwrap_or(u64::MAX),
        }
    }
}

impl Fault {
    /// Returns whether the fault lasts until an operator changes something.
    pub(super) const fn is_lasting(&self) -> bool {
        matches!(self, Self::NoJetStream | Self::NotPermitted(_))
    }

    /// Returns the fault in a reply, if it reports one.
    fn of(error: &Value) -> Option<Self> {
        let text = error["description"].as_str().unwrap_or("no reason given");
        Some(match error.as_object()?.get("err_code").and_then(Value::as_u64).unwrap_or(0) {
            WRONG_REVISION => Self::WrongRevision,
            STREAM_NOT_FOUND => Self::NoStream,
            code if OUT_OF_SPACE.contains(&code) => Self::Full,
            code if NOT_ENABLED.contains(&code) => Self::NoJetStream,
            _ => Self::Refused(text.to_owned()),
        })
    }

    /// Returns the fault as the server has explained it meanwhile: a request without a reply may be one that it forbids.
    pub(super) fn explained(self, link: &Link) -> Self {
        match self {
            Self::NoReply(subject) if link.may_not_publish(&subject) => Self::NotPermitted(subject),
            fault => fault,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJetStream => f.write_str("the NATS server has no JetStream for this account"),
            Self::NoReply(subject) => {
                write!(
                    f,
                    "no reply to {subject}: JetStream has no leader at present, or does not reach this node"
                )
            }
            Self::NotPermitted(subject) => write!(f, "the NATS user may not publish to {subject}"),
            Self::NoStream => f.write_str("the bucket does not exist"),
            Self::WrongRevision => f.write_str("another node has changed it meanwhile"),
            Self::Full => f.write_str("there is no room in the bucket"),
            Self::Refused(reason) => f.write_str(reason),
            Self::Interrupted(reason) => f.write_str(reason),
        }
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_has_to_do_only_where_servers_have_refused_three() {
        let mut copies = Copies::default();
        assert_eq!([1, 2, 3, 5].map(|servers| copies.of(servers)), [1, 1, 3, 3]);
        let subject = || "$JS.API.STREAM.CREATE.a".to_owned();
        let unknown = [
            Fault::NoJetStream,
            Fault::NoReply(subject()),
            Fault::NotPermitted(subject()),
            Fault::NoStream,
            Fault::Interrupted("the connection is gone"),
        ];
        for fault in unknown.iter().cycle().take(100) {
            copies.note(copies.of(3), Some(fault));
            assert_eq!(copies.of(3), 3, "{fault}");
        }
        let refusals = [Fault::Refused("no suitable peers for placement".to_owned()), Fault::Full];
        for fault in refusals.iter().cycle().take(100) {
            copies.note(1, Some(fault));
        }
        assert_eq!(copies.of(3), 3, "one copy was refused");
        for fault in refusals.iter().cycle().take(5) {
            assert_eq!(copies.of(3), 3);
            copies.note(3, Some(fault));
        }
        assert_eq!(copies.of(3), 1);
        copies.note(1, None);
        assert_eq!(copies.of(3), 3, "the next stream may find room");
    }

    #[test]
    fn places_of_both_forms_are_read() {
        let place = Some(Place { revision: 12, delivered: 3, unix_s: 1_700_000_000, pending: 4 });
        assert_eq!(Place::parse("$JS.ACK.KV_a.x.1.12.3.1700000000000000000.4"), place);
        assert_eq!(Place::parse("$JS.ACK.hub.AB12.KV_a.x.1.12.3.1700000000000000000.4.token"), place);
        for wrong in ["", "$JS.ACK.", "$JS.ACK.KV_a.x.1.12.3.4", "$JS.ACK.KV_a.x.1.12.z.17.4", "other.a.b"] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn errors_of_the_server_are_told_apart() {
        let fault = |code: u64, err_code: u64| {
            Fault::of(&json!({ "code": code, "err_code": err_code, "description": "d" }))
        };
        assert_eq!(fault(400, WRONG_REVISION), Some(Fault::WrongRevision));
        assert_eq!(fault(404, STREAM_NOT_FOUND), Some(Fault::NoStream));
        assert_eq!(fault(503, 10039), Some(Fault::NoJetStream));
        assert_eq!(fault(503, 10008), Some(Fault::Refused("d".to_owned())), "it is so for a moment");
        assert_eq!(fault(503, 10077), Some(Fault::Full));
        assert_eq!(fault(400, 1), Some(Fault::Refused("d".to_owned())));
        assert_eq!(Fault::of(&Value::Null), None);
    }
}
