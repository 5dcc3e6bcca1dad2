//! Answers the messages of WebTorrent clients by the rules of the engine, and relays messages between clients.
//!
//! The input of this module is one whole message at a time, and its sender. It writes every reply and every relayed
//! message to the outbound queue of the receiving connection, as whole WebSocket frames that are ready to be sent.
//! `shoal-session` takes them from there, and owns incoming frames, pings and closing.
//!
//! Peers of both families share a swarm: browsers do not connect to the address that the tracker knows.
//!
//! Nothing here reads the SDP of an offer, so its candidates (ICE) are not filtered by address. An honest candidate
//! may be a TURN relay's address, an address of the client's other family or interface, or a `.local` name, and an
//! offer may have a form that is no SDP. A filter would keep honest pairs apart, and an attacker would pass on its
//! candidates in another form. Instead, the number of offers is bounded.

mod announce;
mod member;
mod nodes;
mod relay;
mod remote;
mod transfer;

use core::fmt::Write;
use core::net::IpAddr;
use std::sync::Arc;

use shoal_access::rules::HeaderMatch;
use shoal_base::transport::stream::Handle;
use shoal_base::{Action, Counts, InfoHash, PeerChange, Presence};
use shoal_config::Config;
use shoal_relay::{Dispatcher, MessageKind, OfferKey, OfferTarget, Swarms, WriteError};
use shoal_wire::websocket::frame;
use shoal_wire::webtorrent::{self as wire, Limits, Storage, Unreadable, reply};

pub use self::member::Member;
use self::member::Peer;
pub use self::nodes::{ForwardedMessage, NodeCounters, Nodes, RefusedRemotePeer};
pub use self::remote::{Content, RemoteMessage};
use self::transfer::FormerConnections;
pub use self::transfer::MemberState;
use crate::Now;
use crate::access_log::{Record, saturated};
use crate::context::Context;
use crate::counter::{Kind, Loss, Outcome};
use crate::limits::Activity;
use crate::pace::Pace;
use crate::policy::{Policy, Protocol, ScrapeRequest, Torrents};
use crate::refusal::{Refusal, Refused};
use crate::tokens::{Shown, SocketToken};
use crate::udp::SCRAPE_HASHES_MAX;
use crate::watch::Sighting;

/// Answers the WebTorrent clients of one worker.
#[derive(Debug)]
pub struct Responder {
    limits: Limits,
    storage: Storage,
    inner: Inner,
}

/// Why a client is disconnected after its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnection {
    /// The client leaves more replies unread than may be queued.
    RepliesUnread,
    /// A rule drops the client's request, which gets no reply.
    Dropped,
    /// The client's announce was refused because the tracker drains. It announces to another tracker on a new
    /// connection.
    Draining,
    /// The client has earned a ban.
    Banned,
}

/// A responder without the buffers of the current message.
#[derive(Debug)]
struct Inner {
    context: Context<Presence>,
    swarms: Arc<Swarms>,
    dispatcher: Dispatcher,
    /// The connections that clients of another process had there.
    former: FormerConnections,
    /// The time of the last poll round.
    now: Now,
    offers: Vec<OfferKey>,
    targets: Vec<OfferTarget>,
    info_hashes: Vec<InfoHash>,
    error_text: String,
    /// Whether the reply to the current message did not fit the queue.
    is_reply_lost: bool,
    /// Whether the current message was refused because the tracker drains.
    is_draining: bool,
    /// Whether a rule drops the current message.
    is_dropped: bool,
    reply_bytes: usize,
}

impl Responder {
    /// Creates a responder on the shared `swarms`.
    pub fn new(context: Context<Presence>, swarms: Arc<Swarms>, dispatcher: Dispatcher) -> Self {
        let limits = limits(context.policy.config());
        let inner = Inner {
            context,
            swarms,
            dispatcher,
            former: FormerConnections::default(),
            now: Now::default(),
            offers: Vec::new(),
            targets: Vec::new(),
            info_hashes: Vec::new(),
            error_text: String::new(),
            is_reply_lost: false,
            is_draining: false,
            is_dropped: false,
            reply_bytes: 0,
        };
        Self { limits, storage: Storage::default(), inner }
    }

    /// Replaces the policy for all later messages.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.limits = limits(policy.config());
        self.inner.context.set_policy(policy);
    }

    /// Sets how far the intervals of all later replies are raised.
    pub fn set_pace(&mut self, pace: Pace) {
        self.inner.context.set_pace(pace);
    }

    /// Registers a client that has connected from the canonical `ip` with this token, by a request with these header
    /// fields. It is in no swarm before it announces.
    pub fn enter(&self, handle: Handle, ip: IpAddr, token: SocketToken, headers: HeaderMatch) -> Member {
        Member::new(handle, ip, self.inner.swarms.source(ip), token, headers)
    }

    /// Answers a message of the client at `ip`. Afterwards, all resulting messages are in the outbound queues. Fails
    /// if the client must be disconnected.
    pub fn receive(
        &mut self,
        member: &mut Member,
        ip: IpAddr,
        message: &[u8],
        now: Now,
    ) -> Result<(), Disconnection> {
        let Self { limits, storage, inner } = self;
        (inner.is_reply_lost, inner.is_draining, inner.is_dropped) = (false, false, false);
        inner.context.set_now(now);
        if inner.context.drops_banned(ip) {
            return Err(Disconnection::Banned);
        }
        match wire::decode(message, limits, storage) {
            Ok(wire::Request::Announce(announce)) => inner.announce(member, ip, &announce, now),
            Ok(wire::Request::Answer(answer)) => inner.answer(member, &answer, now),
            Ok(wire::Request::Scrape(info_hashes)) => inner.scrape(member, ip, info_hashes, now),
            Err(unreadable) => {
                // It counts as a request only: any web page can make its visitors send such messages, and so could have a
                // carrier's address banned.
                let _ = inner.context.policy.limit(ip, Activity::Request(Protocol::WebTorrent), now);
                inner.fail_message(member, ip, &unreadable);
            }
        }
        if inner.is_reply_lost {
            Err(Disconnection::RepliesUnread)
        } else if inner.is_dropped {
            Err(Disconnection::Dropped)
        } else if inner.is_draining {
            Err(Disconnection::Draining)
        } else {
            Ok(())
        }
    }

    /// Counts a message of the client at `ip` that is no message of a WebSocket.
    pub fn observe_malformed(&self, ip: IpAddr, now: Now) {
        self.inner.context.policy.observe(ip, Sighting::Malformed, 1, now);
    }

    /// Appends whole frames, written by `write`, to the queue of a client. These frames do not answer a message.
    pub fn append(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        self.inner.queue(member, write);
    }

    /// Removes a disconnected client: all its peers leave their swarms.
    pub fn leave(&mut self, mut member: Member) {
        self.inner.dispatcher.remove(member.handle());
        self.inner.remove_peers(&mut member);
    }

    /// Removes the peers of a client whose token is spent, and discards its queue: relayed offers and answers are
    /// only for clients that may announce. Must be called before the client's input is read, so that no reply is
    /// discarded, and before its queue is drained.
    pub fn expire(&mut self, member: &mut Member) {
        if member.has_peers() && self.inner.context.policy.is_spent(&member.token, self.inner.now) {
            self.inner.remove_peers(member);
            self.inner.dispatcher.drain(member.handle(), |_| ());
        }
    }

    /// Returns the next connection with queued messages, see [`Dispatcher::next_to_flush`].
    pub fn next_to_flush(&mut self) -> Option<Handle> {
        self.inner.dispatcher.next_to_flush()
    }

    /// Calls `read` with the queued bytes of a connection, in place, so that they can be encrypted without a copy.
    pub fn drain<R>(&mut self, handle: Handle, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.inner.dispatcher.drain(handle, read)
    }

    /// Records how many written bytes the socket of a connection has not yet accepted, see
    /// [`Dispatcher::set_unsent`].
    pub fn set_unsent(&mut self, handle: Handle, unsent_bytes: usize) {
        self.inner.dispatcher.set_unsent(handle, unsent_bytes);
    }

    /// Puts off the messages for a client, see [`Dispatcher::put_off`].
    pub fn put_off(&mut self, handle: Handle) {
        self.inner.dispatcher.put_off(handle);
    }

    /// Returns whether to ping a client whose queue is about to be drained. Another connection has announced the peer
    /// id of one of its peers, so the client may be dead.
    pub fn is_ping_requested(&self, handle: Handle) -> bool {
        self.inner.dispatcher.is_ping_requested(handle)
    }

    /// Returns how many bytes are queued for a client that does not read them, see [`Dispatcher::backlog_bytes`].
    pub fn backlog_bytes(&self, handle: Handle) -> usize {
        self.inner.dispatcher.backlog_bytes(handle)
    }

    /// Returns how many bytes are queued for a client.
    pub fn queued_bytes(&self, handle: Handle) -> usize {
        self.inner.dispatcher.queued_bytes(handle)
    }

    /// Collects messages from clients of other workers. Must be called before a poll round.
    pub fn collect(&mut self, now: Now) {
        let Self { inner, .. } = self;
        inner.now = now;
        inner.context.set_now(now);
        inner.dispatcher.collect();
        inner.count_losses();
    }

    /// Frees memory that was not needed since the last call. To be called every few seconds.
    pub fn trim(&mut self) {
        self.inner.dispatcher.trim();
        self.inner.former.trim(self.inner.now.monotonic_s);
    }

    /// Sends the messages for clients of other workers, and returns the workers to wake. Must be called after a poll
    /// round.
    pub fn dispatch(&mut self) -> impl Iterator<Item = u16> {
        // The next dispatch counts the messages that this one loses.
        self.inner.count_losses();
        self.inner.dispatcher.dispatch()
    }
}

impl Inner {
    /// Records a message from `ip` that was answered. `describe` adds details.
    fn log(&mut self, ip: IpAddr, kind: Kind, outcome: Outcome, describe: impl FnOnce(&mut Record)) {
        let reply_bytes = saturated(self.reply_bytes);
        self.context.log(Some(ip), kind, outcome, |record| {
            record.reply_bytes = reply_bytes;
            describe(record);
        });
    }

    /// Answers a scrape. Torrents without peers get zeros.
    fn scrape(&mut self, member: &mut Member, ip: IpAddr, info_hashes: &[InfoHash], now: Now) {
        let (kind, torrents) = match info_hashes {
            [] => (Kind::FullScrape, Torrents::All),
            named => (Kind::Scrape, Torrents::Named(named)),
        };
        self.context.tally.request(member.family, kind);
        self.context.policy.refresh_socket_token(&mut member.token, ip, now);
        let shown = Shown::Socket(&member.token);
        let headers = member.headers;
        let request = ScrapeRequest { protocol: Protocol::WebTorrent, ip, torrents, shown, headers };
        if let Err(refused) = self.context.policy.admit_scrape(&request, self.context.pace, now) {
            self.refuse(member, kind, (wire::Action::Scrape, None), refused);
            return self.log_scrape(ip, kind, Outcome::Refused(refused.refusal), info_hashes);
        }
        let mut named = core::mem::take(&mut self.info_hashes);
        named.clear();
        named.extend_from_slice(info_hashes);
        // Each hash occurs once, because the keys of an object must be unique.
        named.sort_unstable();
        named.dedup();
        let swarms = Arc::clone(&self.swarms);
        self.queue_text(member, |out| {
            reply::scrape_begin(out);
            for info_hash in &named {
                let Counts { seeders, leechers, completed } = swarms.scrape(&swarms.swarm_key(info_hash));
                reply::scrape_file(info_hash, seeders, leechers, completed, out);
            }
            reply::scrape_end(out);
        });
        self.info_hashes = named;
        self.context.tally.reply(member.family, kind, Outcome::Ok);
        self.log_scrape(ip, kind, Outcome::Ok, info_hashes);
    }

    /// Answers a message with an error, and counts that. A rule may drop the message, which then has no answer.
    fn refuse(
        &mut self,
        member: &Member,
        kind: Kind,
        (action, info_hash): (wire::Action, Option<&InfoHash>),
        refused: Refused,
    ) {
        if refused.refusal == Refusal::Dropped {
            self.is_dropped = true;
        } else {
            let policy = Arc::clone(&self.context.policy);
            self.queue_text(member, |out| {
                reply::failure(Some(action), info_hash, policy.message(refused), out);
            });
        }
        self.context.tally.reply(member.family, kind, Outcome::Refused(refused.refusal));
    }

    fn log_scrape(&mut self, ip: IpAddr, kind: Kind, outcome: Outcome, info_hashes: &[InfoHash]) {
        self.log(ip, kind, outcome, |record| {
            record.info_hash = info_hashes.first().copied();
            record.torrents = saturated(info_hashes.len());
        });
    }

    /// Answers an undecodable message with an error that names its action and torrent, if known.
    fn fail_message(&mut self, member: &Member, ip: IpAddr, unreadable: &Unreadable) {
        let kind = match unreadable.action {
            Some(wire::Action::Announce) => Kind::Announce,
            Some(wire::Action::Scrape) => Kind::Scrape,
            None => Kind::Other,
        };
        self.context.tally.request(member.family, kind);
        let mut error_text = core::mem::take(&mut self.error_text);
        error_text.clear();
        write!(error_text, "{}", unreadable.fault).expect("writing to a string never fails");
        self.queue_text(member, |out| {
            reply::failure(unreadable.action, unreadable.info_hash.as_ref(), &error_text, out);
        });
        self.error_text = error_text;
        let outcome = Outcome::Refused(Refusal::BadMessage);
        self.context.tally.reply(member.family, kind, outcome);
        self.log(ip, kind, outcome, |record| record.info_hash = unreadable.info_hash);
    }

    /// Removes all peers of a client from their swarms.
    fn remove_peers(&mut self, member: &mut Member) {
        let address = member.address(self.dispatcher.worker());
        for Peer { info_hash, peer_id } in member.take_peers() {
            let left = self.swarms.leave(&self.swarms.swarm_key(&info_hash), &peer_id, address);
            if left.was_first {
                self.record(member, PeerChange::Left, Action::Stop, info_hash, peer_id);
            }
        }
    }

    /// Queues a text message for the sender of the current message.
    fn queue_text(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        self.queue(member, |out| frame::write_text(out, write));
    }

    /// Appends the frames of `write` to the queue of the client.
    fn queue(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        let address = member.address(self.dispatcher.worker());
        self.reply_bytes = 0;
        let write_counted = |out: &mut Vec<u8>| {
            let before = out.len();
            write(out);
            self.reply_bytes = out.len() - before;
        };
        match self.dispatcher.write(address, MessageKind::Reply, write_counted) {
            Ok(()) => {}
            Err(WriteError::QueueFull) => {
                self.is_reply_lost = true;
                self.context.tally.lose(Loss::ReplyQueueFull, 1);
            }
            Err(error) => self.context.tally.lose(loss(error), 1),
        }
    }

    fn count_losses(&mut self) {
        let losses = self.dispatcher.take_losses();
        self.context.tally.lose(Loss::Gone, losses.gone);
        self.context.tally.lose(Loss::MailboxFull, losses.mailbox_full);
        self.context.tally.lose(Loss::QueueFull, losses.queue_full);
    }
}

/// Maximum size of an offer or an answer. An SDP of a browser has 0.5 to 4 KiB.
const OFFER_BYTES_MAX: usize = 16 << 10;

/// Returns what the decoder of messages accepts.
fn limits(config: &Config) -> Limits {
    Limits {
        offers_max: as_usize(config.webtorrent.offers_max),
        offer_bytes_max: OFFER_BYTES_MAX,
        info_hashes_max: SCRAPE_HASHES_MAX,
    }
}

fn as_usize(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

const fn loss(error: WriteError) -> Loss {
    match error {
        WriteError::Gone => Loss::Gone,
        WriteError::QueueFull => Loss::QueueFull,
        WriteError::MailboxFull => Loss::MailboxFull,
    }
}
