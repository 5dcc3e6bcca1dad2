//! The messages of the tracker: replies, offers and answers, and how they are checked.

use rand::RngExt;
use shoal_wire::websocket::frame::Opcode;
use shoal_wire::websocket::{Event, Read, Role as Side, handshake};
use shoal_wire::webtorrent::OFFER_ID_BYTES_MAX;
use shoal_wire::webtorrent::received::{
    AnnounceReply, Failure, Received, RelayedAnswer, RelayedOffer, ScrapeReply, decode,
};

use super::client::Client;
use super::request::Details;
use crate::connection::{Fault, Pending, Stage};
use crate::driver::Run;
use crate::tally::{Kind, excerpt};

/// The longest message that is accepted. Offers are the longest ones; a scrape of the most torrents is far shorter.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

impl Client {
    /// Handles the messages of a connection that are complete, and the reply to the upgrade before them.
    pub(super) fn read_messages(&mut self, run: &mut Run, slot: usize, now_ns: u64) -> Result<(), Fault> {
        let connection = &mut self.pool.connections[slot];
        let mut used = 0;
        if connection.stage == Stage::Upgrading {
            let confirmed = handshake::confirm(&connection.input, &self.key);
            let Some(head_bytes) = confirmed.map_err(|error| Fault::WebSocket(error.to_string()))? else {
                return Ok(());
            };
            used = head_bytes;
            self.note_upgrade(run, slot, now_ns);
        }
        let mut input = std::mem::take(&mut self.pool.connections[slot].input);
        let mut reader = std::mem::take(&mut self.slots[slot].reader);
        // A message may close the connection.
        while self.pool.connections[slot].stage == Stage::Open {
            let read = reader.read(&mut input[used..], Side::Client, MESSAGE_BYTES_MAX);
            match read.map_err(|violation| Fault::WebSocket(violation.reason().to_owned()))? {
                Read { used: 0, .. } => break,
                Read { used: bytes, event } => {
                    used += bytes;
                    self.handle_event(run, slot, event, now_ns)?;
                }
            }
        }
        let connection = &mut self.pool.connections[slot];
        connection.input = input;
        if connection.stage == Stage::Closed {
            connection.input.clear();
        } else {
            connection.consume(used);
            self.slots[slot].reader = reader;
        }
        Ok(())
    }

    fn handle_event(
        &mut self,
        run: &mut Run,
        slot: usize,
        event: Option<Event<'_>>,
        now_ns: u64,
    ) -> Result<(), Fault> {
        match event {
            None => Ok(()),
            Some(Event::Message(message)) => self.handle_message(run, slot, message, now_ns),
            Some(Event::Ping(payload)) => {
                let pong = self.encoder.control(Opcode::Pong, payload);
                self.pool.connections[slot].send(pong)
            }
            Some(Event::Pong(_)) => {
                self.slots[slot].has_ponged = true;
                Ok(())
            }
            Some(Event::Close(code)) => {
                let is_idle = self.pool.connections[slot].requests.is_empty();
                if is_idle && matches!(code, None | Some(1000 | 1001)) {
                    self.close_idle(run, slot, now_ns);
                    return Ok(());
                }
                let code = code.map_or_else(|| "no code".to_owned(), |code| format!("code {code}"));
                Err(Fault::WebSocket(format!("the tracker closed it with {code}")))
            }
        }
    }

    fn handle_message(
        &mut self,
        run: &mut Run,
        slot: usize,
        message: &[u8],
        now_ns: u64,
    ) -> Result<(), Fault> {
        run.tally.relays().messages += 1;
        run.note_alive(now_ns);
        self.last_message_ns = now_ns;
        match decode(message) {
            Ok(Received::Offer(offer)) => return self.handle_offer(run, slot, &offer, now_ns),
            Ok(Received::Answer(answer)) => self.check_answer(run, slot, &answer, now_ns),
            Ok(Received::Announce(reply)) => self.check_announce(run, slot, &reply, message.len(), now_ns),
            Ok(Received::Scrape(reply)) => self.check_scrape(run, slot, reply, now_ns),
            Ok(Received::Failure(failure)) => self.handle_failure(run, slot, &failure, now_ns),
            Err(error) => {
                run.tally.wrong.malformed += 1;
                run.tally.note_fault(|| format!("{error}: {}", excerpt(message)));
                // It is taken for the reply, since it is unknown what else it could be.
                self.take_reply(run, slot, now_ns);
            }
        }
        Ok(())
    }

    /// Returns whether a reply is to an answer. One tracker takes answers for announces and replies to all in their
    /// order. Its first reply that nothing else explains gives it away.
    fn is_to_answer(&mut self, slot: usize) -> bool {
        let state = &mut self.slots[slot];
        let sequence = state.replied;
        state.replied += 1;
        let request = self.pool.connections[slot].requests.front();
        let announce = request.filter(|request| request.kind == Kind::Announce);
        self.replies_to_answers |= announce.is_none() && sequence < state.sent;
        self.replies_to_answers
            && announce.is_none_or(|announce| announce.details.sequence != sequence)
            && sequence < state.sent
    }

    fn check_announce(
        &mut self,
        run: &mut Run,
        slot: usize,
        reply: &AnnounceReply,
        bytes: usize,
        now_ns: u64,
    ) {
        if self.is_to_answer(slot) {
            return;
        }
        let Some(request) = self.request_of(run, slot, Kind::Announce) else { return };
        let Details { torrent, offers, is_seeder, stops, .. } = request.details;
        if reply.info_hash != self.encoder.info_hash(torrent) {
            run.tally.wrong.transaction_id += 1;
            run.tally.note_fault(|| "the reply to an announce is about another torrent".to_owned());
            return;
        }
        if !self.take_reply(run, slot, now_ns) {
            return;
        }
        let (complete, incomplete) = (u64::from(reply.complete), u64::from(reply.incomplete));
        if !stops && complete + incomplete == 0 {
            run.tally.wrong.implausible += 1;
            run.tally.note_fault(|| "the swarm is empty, although the announcer is in it".to_owned());
            return;
        }
        run.note_swarm(request.peer, complete + incomplete);
        let others = if is_seeder { incomplete } else { (complete + incomplete).saturating_sub(1) };
        let wanted = u64::try_from(run.rules.numwant).unwrap_or(u64::MAX);
        run.tally.relays().offers_due += u64::from(offers).min(others).min(wanted);
        run.tally.announce_reply_bytes += bytes as u64;
        run.note_good(Kind::Announce, request.due_ns, now_ns);
    }

    fn check_scrape(&mut self, run: &mut Run, slot: usize, reply: ScrapeReply<'_>, now_ns: u64) {
        let Some(request) = self.request_of(run, slot, Kind::Scrape) else { return };
        if !self.take_reply(run, slot, now_ns) {
            return;
        }
        // Torrents that the tracker does not know may be left out.
        if reply.files().count() > usize::from(request.hashes) {
            run.tally.wrong.count += 1;
        } else {
            run.note_good(Kind::Scrape, request.due_ns, now_ns);
        }
    }

    fn handle_failure(&mut self, run: &mut Run, slot: usize, failure: &Failure<'_>, now_ns: u64) {
        run.tally.note_error(failure.reason.as_bytes());
        let request = self.pool.connections[slot].requests.front();
        // If it is about another torrent, it is about something else than the request, such as an answer.
        let is_reply = request.is_some_and(|request| {
            let info_hash = self.encoder.info_hash(request.details.torrent);
            request.kind == Kind::Scrape || failure.info_hash.is_none_or(|hash| hash == info_hash)
        });
        if is_reply {
            self.take_reply(run, slot, now_ns);
        }
    }

    fn handle_offer(
        &mut self,
        run: &mut Run,
        slot: usize,
        offer: &RelayedOffer<'_>,
        now_ns: u64,
    ) -> Result<(), Fault> {
        let mut buffer = [0; OFFER_ID_BYTES_MAX];
        let id = offer.offer_id.bytes(&mut buffer);
        let Some(stamp) = self.encoder.read_stamp(id) else {
            run.tally.relays().wrong.foreign += 1;
            run.tally.note_fault(|| "an offer that this generator has not sent".to_owned());
            return Ok(());
        };
        let offerer = self.encoder.peer_id(stamp.worker, stamp.slot);
        let is_directed =
            offer.info_hash == self.encoder.info_hash(stamp.torrent) && offer.peer_id == offerer;
        let is_own = (stamp.worker, stamp.slot) == (run.index(), slot);
        let relays = run.tally.relays();
        if !self.encoder.is_offer(offer.offer, id) {
            relays.wrong.damaged += 1;
            run.tally.note_fault(|| format!("an offer came damaged: {}", excerpt(offer.offer)));
        } else if is_own {
            relays.wrong.own += 1;
            run.tally.note_fault(|| "an offer came back to the peer that made it".to_owned());
        } else if is_directed {
            relays.offers += 1;
            run.tally.offer_latency.record(now_ns.saturating_sub(stamp.sent_ns));
            if self.answer_share > 0.0 && run.random.random::<f64>() < self.answer_share {
                run.tally.relays().answers_sent += 1;
                self.slots[slot].sent += 1;
                let answer = self.encoder.answer(slot, stamp.torrent, offerer, id, now_ns);
                return self.pool.connections[slot].send(answer);
            }
        } else {
            relays.wrong.misdirected += 1;
            run.tally.note_fault(|| "an offer came with the torrent or the peer id of another".to_owned());
        }
        Ok(())
    }

    fn check_answer(&mut self, run: &mut Run, slot: usize, answer: &RelayedAnswer<'_>, now_ns: u64) {
        let mut buffer = [0; OFFER_ID_BYTES_MAX];
        let Some(offered) = self.encoder.read_stamp(answer.offer_id.bytes(&mut buffer)) else {
            run.tally.relays().wrong.foreign += 1;
            run.tally.note_fault(|| "an answer to an offer that this generator has not made".to_owned());
            return;
        };
        let Some(stamp) = self.encoder.read_answer(answer.answer) else {
            run.tally.relays().wrong.damaged += 1;
            run.tally.note_fault(|| format!("an answer came damaged: {}", excerpt(answer.answer)));
            return;
        };
        let is_directed = (offered.worker, offered.slot) == (run.index(), slot)
            && offered.torrent == stamp.torrent
            && answer.info_hash == self.encoder.info_hash(stamp.torrent)
            && answer.peer_id == self.encoder.peer_id(stamp.worker, stamp.slot);
        let relays = run.tally.relays();
        if is_directed {
            relays.answers += 1;
            run.tally.answer_latency.record(now_ns.saturating_sub(stamp.sent_ns));
        } else {
            relays.wrong.misdirected += 1;
            run.tally
                .note_fault(|| "an answer came to another peer than the one that made the offer".to_owned());
        }
    }

    /// Returns the request in flight if it is of this kind. Otherwise the reply is wrong.
    fn request_of(&self, run: &mut Run, slot: usize, kind: Kind) -> Option<Pending<Details>> {
        match self.pool.connections[slot].requests.front() {
            Some(request) if request.kind == kind => return Some(*request),
            Some(_) => {
                run.tally.wrong.action += 1;
                run.tally.note_fault(|| "a reply of another kind than the request".to_owned());
            }
            None => {
                run.tally.wrong.transaction_id += 1;
                run.tally.note_fault(|| "a reply without a request".to_owned());
            }
        }
        None
    }

    /// Completes the request in flight. Then the connection takes another one, or is opened again. Returns whether the reply came in time.
    fn take_reply(&mut self, run: &mut Run, slot: usize, now_ns: u64) -> bool {
        let Some(request) = self.pool.take_request(slot) else { return false };
        let is_late = run.is_late(request.kind, request.peer, request.due_ns, now_ns);
        if !is_late && request.kind == Kind::Announce {
            self.slots[slot].filled += 1;
        }
        match request.kind {
            Kind::Announce => self.reconnect_or_queue(run, slot),
            Kind::Connect | Kind::Scrape => self.queue(slot),
        }
        !is_late
    }
}
