//! Answers the messages of WebTorrent clients by the rules of the engine, and relays what they have for each other.
//!
//! Is handed one whole message at a time and who sent it. Whatever is to be said, to its sender or to others, is written
//! into the post of their connections as whole frames of a WebSocket, ready to be sent; `shoal-connection` fetches it
//! there. Frames that come in, pings and closing are its business.
//!
//! Peers of both families share a swarm: nobody is dialled by the address that the tracker knows.

mod claim;
mod member;
mod settings;

use core::fmt::Write;
use core::net::IpAddr;
use std::sync::Arc;

use shoal_relay::{
    Address, Announced, Class, Counts, OfferKey, Place, Postroom, Rejection, Settlement, Stance, Swarms,
    Target, Unwritten,
};
use shoal_store::Action;
use shoal_types::{InfoHash, PeerId};
use shoal_wire::stream::Handle;
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::webtorrent::{
    self as wire, Announce, Answer, Limits, OFFER_ID_BYTES_MAX, Offer, Request, Storage, Unreadable, reply,
};

use self::claim::{Claim, Claims};
pub use self::member::Member;
use self::member::Peer;
pub use self::settings::Settings;
use crate::counter::{Kind, Loss, Outcome, Relay, Tally};
use crate::refusal::Refusal;
use crate::{Now, policy};

/// What stands around an offer and its id in the message by which it is relayed, where no byte of the info hash and the peer
/// id has to be escaped, with the head of its frame.
const OFFER_HEAD_BYTES: usize = 114;

/// Answers the WebTorrent clients of one worker.
#[derive(Debug)]
pub struct Responder {
    limits: Limits,
    /// Where the parts of the message in hand are noted.
    storage: Storage,
    desk: Desk,
}

/// A responder but for what holds the message in hand.
#[derive(Debug)]
struct Desk {
    settings: Settings,
    swarms: Arc<Swarms>,
    postroom: Postroom,
    tally: Tally,
    rng: fastrand::Rng,
    /// What waits for other connections to show that they live.
    claims: Claims,
    /// The time of the last turn.
    now: Now,
    /// The names of the offers in hand.
    offers: Vec<OfferKey>,
    /// Whom they go to.
    targets: Vec<Target>,
    /// The torrents of the scrape in hand.
    info_hashes: Vec<InfoHash>,
    /// What is wrong with the message in hand.
    words: String,
    /// Whether there was no room for a reply to the message in hand.
    is_reply_lost: bool,
}

impl Responder {
    /// A responder on the common `swarms`, which counts into `tally` and draws from `rng`. Each worker needs a seed of its
    /// own, or they all draw the same peers.
    #[must_use]
    pub fn new(
        settings: Settings,
        swarms: Arc<Swarms>,
        postroom: Postroom,
        tally: Tally,
        rng: fastrand::Rng,
    ) -> Self {
        let limits = Limits {
            offers_max: settings.offers_max,
            offer_bytes_max: settings.offer_bytes_max,
            info_hashes_max: settings.scrape_hashes_max,
        };
        let desk = Desk {
            settings,
            swarms,
            postroom,
            tally,
            rng,
            claims: Claims::default(),
            now: Now::default(),
            offers: Vec::new(),
            targets: Vec::new(),
            info_hashes: Vec::new(),
            words: String::new(),
            is_reply_lost: false,
        };
        Self { limits, storage: Storage::default(), desk }
    }

    /// A client has connected from `ip`, which is canonical. It is in no swarm before it announces.
    #[must_use]
    pub fn enter(&self, handle: Handle, ip: IpAddr) -> Member {
        let Desk { settings, swarms, .. } = &self.desk;
        Member::new(handle, ip, swarms.source(ip), settings.refuse_private_addresses)
    }

    /// Answers a message. All that is said on it waits in the post afterwards. Returns whether the client may stay: one
    /// that leaves more replies unread than may wait is to be disconnected.
    pub fn hear(&mut self, member: &mut Member, message: &[u8], now: Now) -> bool {
        let Self { limits, storage, desk } = self;
        desk.is_reply_lost = false;
        match wire::decode(message, limits, storage) {
            Ok(Request::Announce(announce)) => desk.announce(member, &announce, now),
            Ok(Request::Answer(answer)) => desk.answer(member, &answer, now),
            Ok(Request::Scrape(info_hashes)) => desk.scrape(member, info_hashes),
            Err(unreadable) => desk.fail_message(member, &unreadable),
        }
        !desk.is_reply_lost
    }

    /// Has `write` append whole frames to what waits for a client, where it has to be told something else than the answer
    /// to a message.
    pub fn append(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        self.desk.post(member, write);
    }

    /// A client has gone: all its peers leave their swarms.
    pub fn leave(&mut self, member: Member) {
        let Desk { swarms, postroom, claims, .. } = &mut self.desk;
        postroom.forget(member.handle());
        if member.claims > 0 {
            claims.forget(&member);
        }
        let address = member.address(postroom.worker());
        for Peer { info_hash, peer_id } in member.peers() {
            swarms.leave(&swarms.locate(info_hash), peer_id, address);
        }
    }

    /// The next connection for which something waits, see [`Postroom::speaker`].
    pub fn speaker(&mut self) -> Option<Handle> {
        self.desk.postroom.speaker()
    }

    /// Lets `fetch` see what waits for a connection, where it lies, so that it can be sealed without a copy.
    pub fn fetch<R>(&mut self, handle: Handle, fetch: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.desk.postroom.fetch(handle, fetch)
    }

    /// The socket of a connection has not taken so many bytes of what it was told, see [`Postroom::set_unsent`].
    pub fn set_unsent(&mut self, handle: Handle, unsent_bytes: usize) {
        self.desk.postroom.set_unsent(handle, unsent_bytes);
    }

    /// A client has answered a ping: perhaps one by which it was asked whether it lives.
    pub fn take_pong(&mut self, member: &Member, payload: &[u8]) {
        let Desk { swarms, postroom, .. } = &self.desk;
        if let Some((info_hash, peer_id)) = claim::parse(payload) {
            swarms.vouch(&swarms.locate(&info_hash), &peer_id, member.address(postroom.worker()));
        }
    }

    /// Decides the claims of a client that have become due, for which its connection was called. To be called before what
    /// waits for it is fetched.
    pub fn decide_claims(&mut self, member: &mut Member) {
        while member.claims > 0
            && let Some(claim) = self.desk.claims.take(member)
        {
            self.desk.decide(member, &claim);
        }
    }

    /// How many bytes wait for a client that does not take what it is told, see [`Postroom::backlog_bytes`].
    #[must_use]
    pub fn backlog_bytes(&self, handle: Handle) -> usize {
        self.desk.postroom.backlog_bytes(handle)
    }

    /// Takes in what the clients of other workers have for those of this one, and calls those of which a claim is due. To
    /// be called before a turn.
    pub fn collect(&mut self, now: Now) {
        let Self { desk, .. } = self;
        desk.now = now;
        desk.postroom.collect();
        while let Some((handle, payload)) = desk.postroom.challenge() {
            desk.challenge(handle, &payload, now);
        }
        while let Some(handle) = desk.claims.next_due(now.monotonic_s) {
            desk.postroom.call(handle);
        }
        desk.count_losses();
    }

    /// Gives back memory that was not needed since the last call. To be called every few seconds.
    pub fn trim(&mut self) {
        self.desk.postroom.trim();
    }

    /// Sends off what is for clients of other workers, and names the workers that are to be woken. To be called after a
    /// turn.
    pub fn dispatch(&mut self) -> impl Iterator<Item = u16> {
        // What this dispatch loses is counted by the next.
        self.desk.count_losses();
        self.desk.postroom.dispatch()
    }
}

impl Desk {
    fn announce(&mut self, member: &mut Member, announce: &Announce<'_>, now: Now) {
        self.tally.request(member.family, Kind::Announce);
        self.targets.clear();
        let place = self.swarms.locate(&announce.info_hash);
        let granted = match stance(policy::action(announce.event, announce.left_bytes)) {
            None => Ok(self.stop(member, announce, &place)),
            Some(stance) => match self.join(member, announce, stance, &place, now) {
                Err(Rejected::Taken(holder)) if self.claim(member, announce, stance, holder, now) => return,
                joined => joined.map_err(Rejected::into_refusal),
            },
        };
        let is_granted = granted.is_ok();
        self.reply(member, &announce.info_hash, granted);
        if is_granted {
            self.relay_offers(member, announce, now);
        }
    }

    /// Answers an announce.
    fn reply(&mut self, member: &Member, info_hash: &InfoHash, granted: Result<Counts, Refusal>) {
        match granted {
            Ok(Counts { seeders, leechers, .. }) => {
                let interval_s = self.interval_s();
                self.say(member, |out| reply::announce(info_hash, interval_s, seeders, leechers, out));
                self.tally.reply(member.family, Kind::Announce, Outcome::Ok);
            }
            Err(refusal) => {
                let action = Some(wire::Action::Announce);
                self.say(member, |out| reply::failure(action, Some(info_hash), refusal.message(), out));
                self.tally.reply(member.family, Kind::Announce, Outcome::Refused(refusal));
            }
        }
    }

    /// The peer of an announce is that of another connection: asks whether that is alive, and has the announce wait.
    /// Returns whether it does, or else is to be refused.
    fn claim(
        &mut self,
        member: &mut Member,
        announce: &Announce<'_>,
        stance: Stance,
        holder: Address,
        now: Now,
    ) -> bool {
        let &Announce { info_hash, peer_id, .. } = announce;
        let claim = Claim { handle: member.handle(), info_hash, peer_id, stance };
        if !self.claims.add(member, claim, now.monotonic_s) {
            return false;
        }
        let payload = claim::payload(&info_hash, &peer_id);
        if holder.worker == self.postroom.worker() {
            self.challenge(holder.handle, &payload, now);
        } else {
            // Where it is lost the holder is not asked, and keeps its peer.
            let _ = self.postroom.write(holder, Class::Challenge, |out| out.extend_from_slice(&payload));
        }
        true
    }

    /// Asks a connection of this worker for a sign of life on account of a peer. Not where it has not taken what it was
    /// told before: what others have for it must not make it seem dead, and if it is, that will show by itself.
    fn challenge(&mut self, handle: Handle, payload: &[u8], now: Now) {
        let Some((info_hash, peer_id)) = claim::parse(payload) else { return };
        let address = Address { worker: self.postroom.worker(), handle };
        let place = self.swarms.locate(&info_hash);
        if self.postroom.has_unsent(handle)
            || !self.swarms.challenge(&place, &peer_id, address, now.monotonic_s)
        {
            return;
        }
        let ping = |out: &mut Vec<u8>| frame::encode(Opcode::Ping, payload, None, out);
        if self.postroom.write(address, Class::Reply, ping).is_err() {
            self.swarms.vouch(&place, &peer_id, address);
        }
    }

    /// Decides a claim: by now, the connection that had the peer has shown that it lives, or has not. Without offers,
    /// which the next announce brings.
    fn decide(&mut self, member: &mut Member, claim: &Claim) {
        let &Claim { info_hash, peer_id, stance, .. } = claim;
        let place = self.swarms.locate(&info_hash);
        self.offers.clear();
        let entered = self.enter(member, &info_hash, peer_id, stance, &place, self.now);
        self.reply(member, &info_hash, entered.map_err(Rejected::into_refusal));
    }

    /// Has a peer join or refreshes it, and leaves the targets of its offers.
    fn join(
        &mut self,
        member: &mut Member,
        announce: &Announce<'_>,
        stance: Stance,
        place: &Place,
        now: Now,
    ) -> Result<Counts, Rejected> {
        if let Some(refusal) = member.refusal {
            return Err(Rejected::For(refusal));
        }
        self.name_offers(member, announce, now);
        self.enter(member, &announce.info_hash, announce.peer_id, stance, place, now)
    }

    /// Has a peer join or refreshes it, with the offers that were named.
    fn enter(
        &mut self,
        member: &mut Member,
        info_hash: &InfoHash,
        peer_id: PeerId,
        stance: Stance,
        place: &Place,
        now: Now,
    ) -> Result<Counts, Rejected> {
        let worker = self.postroom.worker();
        let mut announced = self.enter_swarm(member, peer_id, stance, place, now);
        if announced == Err(Rejection::MayNotJoin) && member.prune(&self.swarms, worker, &mut self.rng) {
            announced = self.enter_swarm(member, peer_id, stance, place, now);
        }
        let Announced { counts, joined } = announced.map_err(rejected)?;
        if joined {
            member.add(Peer { info_hash: *info_hash, peer_id });
        }
        Ok(counts)
    }

    fn enter_swarm(
        &mut self,
        member: &Member,
        peer_id: PeerId,
        stance: Stance,
        place: &Place,
        now: Now,
    ) -> Result<Announced, Rejection> {
        let announce = shoal_relay::Announce {
            address: member.address(self.postroom.worker()),
            source: member.source(),
            peer_id,
            stance,
            may_join: member.peers().len() < self.settings.torrents_per_socket_max,
            offers: &self.offers,
        };
        self.swarms.announce(place, &announce, now.monotonic_s, &mut self.rng, &mut self.targets)
    }

    /// Takes out a peer of the sender. One of somebody else stays.
    fn stop(&mut self, member: &mut Member, announce: &Announce<'_>, place: &Place) -> Counts {
        let address = member.address(self.postroom.worker());
        let left = self.swarms.leave(place, &announce.peer_id, address);
        // Also where it was forgotten or taken over before, so that it counts no more.
        member.remove(&Peer { info_hash: announce.info_hash, peer_id: announce.peer_id });
        left.counts
    }

    /// Leaves the names of as many offers as are to be relayed: no more than are wanted, nor than the sender may have
    /// relayed now, save that the last one may be larger.
    fn name_offers(&mut self, member: &Member, announce: &Announce<'_>, now: Now) {
        let wanted = match announce.numwant {
            Some(numwant @ 0..) => usize::try_from(numwant).unwrap_or(usize::MAX),
            Some(..0) | None => self.settings.numwant_default,
        };
        let (swarms, mut room) = (&self.swarms, [0; OFFER_ID_BYTES_MAX]);
        let mut bytes_left = swarms.relay_room_bytes(member.source(), member.bucket, now.monotonic_s);
        self.offers.clear();
        let mut refused = 0;
        for offer in announce.offers.iter().take(wanted.min(self.settings.offers_max)) {
            if bytes_left == 0 {
                refused += 1;
                continue;
            }
            bytes_left = bytes_left.saturating_sub(relayed_bytes(&offer));
            self.offers.push(swarms.offer(offer.offer_id.bytes(&mut room)));
        }
        self.tally.lose(Loss::RateLimited, refused);
    }

    fn relay_offers(&mut self, member: &mut Member, announce: &Announce<'_>, now: Now) {
        if self.targets.is_empty() {
            return;
        }
        let class = Class::Offer(member.source().group());
        let mut bytes = 0;
        for (target, offer) in self.targets.iter().zip(announce.offers.iter()) {
            bytes += relayed_bytes(&offer);
            let written = self.postroom.write(target.address, class, |out| {
                frame::write_text(out, |out| {
                    reply::offer(&announce.info_hash, &announce.peer_id, &offer, out);
                });
            });
            count_relayed(&mut self.tally, Relay::Offer, written);
        }
        self.swarms.charge_relay(member.source(), &mut member.bucket, bytes, now.monotonic_s);
    }

    /// Relays an answer to who awaits it. Its sender hears nothing, whatever becomes of it.
    fn answer(&mut self, member: &Member, answer: &Answer<'_>, now: Now) {
        self.tally.request(member.family, Kind::Answer);
        let debtor = member.address(self.postroom.worker());
        let offer = self.swarms.offer(answer.offer_id.bytes(&mut [0; OFFER_ID_BYTES_MAX]));
        let place = self.swarms.locate(&answer.info_hash);
        let settlement =
            self.swarms.settle(&place, &answer.to_peer_id, (debtor, &answer.peer_id), offer, now.monotonic_s);
        match settlement {
            Settlement::Owed(creditor) => {
                let written = self.postroom.write(creditor, Class::Answer, |out| {
                    frame::write_text(out, |out| {
                        reply::answer(&answer.info_hash, &answer.peer_id, answer, out);
                    });
                });
                count_relayed(&mut self.tally, Relay::Answer, written);
            }
            Settlement::Unawaited => self.tally.lose(Loss::Unawaited, 1),
            Settlement::Gone => self.tally.lose(Loss::Gone, 1),
        }
    }

    /// Answers a scrape; torrents that nobody announced have zeros.
    fn scrape(&mut self, member: &Member, info_hashes: &[InfoHash]) {
        if info_hashes.is_empty() {
            return self.refuse_full_scrape(member);
        }
        self.tally.request(member.family, Kind::Scrape);
        let mut named = core::mem::take(&mut self.info_hashes);
        named.clear();
        named.extend_from_slice(info_hashes);
        // Each once, as the keys of an object have to be.
        named.sort_unstable();
        named.dedup();
        let swarms = Arc::clone(&self.swarms);
        self.say(member, |out| {
            reply::scrape_begin(out);
            for info_hash in &named {
                let Counts { seeders, leechers, completed } = swarms.scrape(&swarms.locate(info_hash));
                reply::scrape_file(info_hash, seeders, leechers, completed, out);
            }
            reply::scrape_end(out);
        });
        self.info_hashes = named;
        self.tally.reply(member.family, Kind::Scrape, Outcome::Ok);
    }

    fn refuse_full_scrape(&mut self, member: &Member) {
        let refusal = Refusal::FullScrapeOff;
        self.tally.request(member.family, Kind::FullScrape);
        self.say(member, |out| reply::failure(Some(wire::Action::Scrape), None, refusal.message(), out));
        self.tally.reply(member.family, Kind::FullScrape, Outcome::Refused(refusal));
    }

    /// Says what is wrong with a message, and what it was about as far as that can be told: clients take an error without
    /// an action for one of the whole connection, and come back with all their torrents.
    fn fail_message(&mut self, member: &Member, unreadable: &Unreadable) {
        let kind = match unreadable.action {
            Some(wire::Action::Announce) => Kind::Announce,
            Some(wire::Action::Scrape) => Kind::Scrape,
            None => Kind::Other,
        };
        self.tally.request(member.family, kind);
        let mut words = core::mem::take(&mut self.words);
        words.clear();
        write!(words, "{}", unreadable.fault).expect("a string takes everything");
        self.say(member, |out| {
            reply::failure(unreadable.action, unreadable.info_hash.as_ref(), &words, out);
        });
        self.words = words;
        self.tally.reply(member.family, kind, Outcome::Refused(Refusal::BadMessage));
    }

    /// Says something to the client whose message is in hand.
    fn say(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        self.post(member, |out| frame::write_text(out, write));
    }

    /// Has `write` append to what waits for the client.
    fn post(&mut self, member: &Member, write: impl FnOnce(&mut Vec<u8>)) {
        let address = member.address(self.postroom.worker());
        match self.postroom.write(address, Class::Reply, write) {
            Ok(()) => {}
            Err(Unwritten::QueueFull) => {
                self.is_reply_lost = true;
                self.tally.lose(Loss::ReplyQueueFull, 1);
            }
            Err(unwritten) => self.tally.lose(loss(unwritten), 1),
        }
    }

    fn interval_s(&mut self) -> u32 {
        self.settings.interval_s.saturating_add(self.rng.u32(0..=self.settings.interval_jitter_s))
    }

    fn count_losses(&mut self) {
        let losses = self.postroom.losses();
        self.tally.lose(Loss::Gone, losses.gone);
        self.tally.lose(Loss::MailboxFull, losses.mailbox_full);
        self.tally.lose(Loss::QueueFull, losses.queue_full);
    }
}

/// What a peer has, unless it leaves.
const fn stance(action: Action) -> Option<Stance> {
    match action {
        Action::Leech => Some(Stance::Leech),
        Action::Seed => Some(Stance::Seed),
        Action::Complete => Some(Stance::Complete),
        Action::Stop => None,
    }
}

/// Why a peer does not enter a swarm.
enum Rejected {
    /// This connection has it.
    Taken(Address),
    For(Refusal),
}

impl Rejected {
    const fn into_refusal(self) -> Refusal {
        match self {
            Self::Taken(_) => Refusal::PeerIdTaken,
            Self::For(refusal) => refusal,
        }
    }
}

const fn rejected(rejection: Rejection) -> Rejected {
    match rejection {
        Rejection::PeerIdTaken(holder) => Rejected::Taken(holder),
        Rejection::MayNotJoin => Rejected::For(Refusal::TooManyTorrents),
        Rejection::Full => Rejected::For(Refusal::StoreFull),
        Rejection::OverShare => Rejected::For(Refusal::SourceOverShare),
    }
}

const fn loss(unwritten: Unwritten) -> Loss {
    match unwritten {
        Unwritten::Gone => Loss::Gone,
        Unwritten::QueueFull => Loss::QueueFull,
        Unwritten::MailboxFull => Loss::MailboxFull,
    }
}

/// How many bytes a sender is charged for an offer: those of the message by which it goes to another client.
const fn relayed_bytes(offer: &Offer<'_>) -> u64 {
    (OFFER_HEAD_BYTES + offer.offer_id.raw().len() + offer.offer.len()) as u64
}

fn count_relayed(tally: &mut Tally, relay: Relay, written: Result<(), Unwritten>) {
    match written {
        Ok(()) => tally.relay(relay),
        Err(unwritten) => tally.lose(loss(unwritten), 1),
    }
}
