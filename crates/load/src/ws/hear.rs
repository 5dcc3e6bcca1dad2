//! What a worker does when a message has come: a reply, an offer, an answer.

use shoal_wire::websocket::frame::Opcode;
use shoal_wire::websocket::{Event, Read, Role as Side, handshake};
use shoal_wire::webtorrent::OFFER_ID_BYTES_MAX;
use shoal_wire::webtorrent::received::{
    AnnounceReply, Failure, Received, RelayedAnswer, RelayedOffer, ScrapeReply, decode,
};

use rand::RngExt;

use super::seat::Asked;
use super::worker::Worker;
use crate::connection::{Fault, Stage};
use crate::rules::words;
use crate::tally::Kind;

/// Longest message that is read. Offers are the largest, and a scrape of the most torrents is far shorter.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

impl Worker {
    /// Takes the messages that are whole.
    pub(super) fn take_messages(&mut self, slot: usize, now_ns: u64) -> Result<(), Fault> {
        let seat = &mut self.seats[slot];
        let mut input = std::mem::take(&mut seat.connection.input);
        let mut reader = std::mem::take(&mut seat.reader);
        let mut used = 0;
        if !seat.is_upgraded {
            let confirmed = handshake::confirm(&input, &self.key);
            match confirmed.map_err(|error| Fault::WebSocket(error.to_string()))? {
                Some(head_bytes) => {
                    used = head_bytes;
                    self.note_upgrade(slot, now_ns);
                }
                None => {
                    self.seats[slot].connection.input = input;
                    return Ok(());
                }
            }
        }
        // A failure on the way closes the connection.
        while self.seats[slot].is_upgraded {
            let read = reader.read(&mut input[used..], Side::Client, MESSAGE_BYTES_MAX);
            match read.map_err(|violation| Fault::WebSocket(violation.reason().to_owned()))? {
                Read { used: 0, .. } => break,
                Read { used: bytes, event } => {
                    used += bytes;
                    self.take_event(slot, event, now_ns)?;
                }
            }
        }
        if used == input.len() {
            input.clear();
        } else {
            input.drain(..used);
        }
        let seat = &mut self.seats[slot];
        if seat.connection.stage == Stage::Closed {
            input.clear();
        } else {
            seat.reader = reader;
        }
        seat.connection.input = input;
        Ok(())
    }

    fn take_event(&mut self, slot: usize, event: Option<Event<'_>>, now_ns: u64) -> Result<(), Fault> {
        match event {
            None => Ok(()),
            Some(Event::Message(message)) => self.hear(slot, message, now_ns),
            Some(Event::Ping(payload)) => {
                let pong = self.pen.control(Opcode::Pong, payload);
                self.seats[slot].connection.pass(pong)
            }
            Some(Event::Pong(_)) => {
                self.seats[slot].has_ponged = true;
                Ok(())
            }
            Some(Event::Close(code)) => {
                let connection = &mut self.seats[slot].connection;
                if connection.asked.is_empty() && matches!(code, None | Some(1000 | 1001)) {
                    self.part(slot, now_ns);
                    return Ok(());
                }
                let code = code.map_or_else(|| "no code".to_owned(), |code| format!("code {code}"));
                Err(Fault::WebSocket(format!("the tracker closed it with {code}")))
            }
        }
    }

    fn hear(&mut self, slot: usize, message: &[u8], now_ns: u64) -> Result<(), Fault> {
        self.relays().messages += 1;
        (self.heard_ns, self.is_troubled) = (now_ns, false);
        match decode(message) {
            Ok(Received::Offer(offer)) => return self.hear_offer(slot, &offer, now_ns),
            Ok(Received::Answer(answer)) => self.hear_answer(slot, &answer, now_ns),
            Ok(Received::Announce(reply)) => self.hear_announce(slot, &reply, message.len(), now_ns),
            Ok(Received::Scrape(scrape)) => self.hear_scrape(slot, scrape, now_ns),
            Ok(Received::Failure(failure)) => self.hear_failure(slot, &failure, now_ns),
            Err(error) => {
                self.tally.wrong.malformed += 1;
                self.tally.note_fault(|| format!("{error}: {}", words(message)));
                // Which is taken for the answer, since nobody knows what else it could have been.
                self.settle(slot, now_ns);
            }
        }
        Ok(())
    }

    /// Whether a reply is to an answer. No client needs it, but there is a tracker that takes answers for announces and
    /// replies to all in their order; it is known by its first reply to nothing else.
    fn is_to_answer(&mut self, slot: usize) -> bool {
        let seat = &mut self.seats[slot];
        let place = seat.replied;
        seat.replied += 1;
        let asked = seat.connection.asked.front().filter(|asked| asked.kind == Kind::Announce);
        self.replies_to_answers |= asked.is_none() && place < seat.said;
        self.replies_to_answers && asked.is_none_or(|asked| asked.place != place) && place < seat.said
    }

    fn hear_announce(&mut self, slot: usize, reply: &AnnounceReply, bytes: usize, now_ns: u64) {
        if self.is_to_answer(slot) {
            return;
        }
        let Some(asked) = self.under_way(slot, Kind::Announce) else { return };
        if reply.info_hash != self.pen.info_hash(asked.torrent) {
            self.tally.wrong.transaction_id += 1;
            self.tally.note_fault(|| "the reply to an announce is about another torrent".to_owned());
            return;
        }
        if !self.settle(slot, now_ns) {
            return;
        }
        let (complete, incomplete) = (u64::from(reply.complete), u64::from(reply.incomplete));
        if asked.stays && complete + incomplete == 0 {
            self.tally.wrong.implausible += 1;
            self.tally.note_fault(|| "nobody is in the swarm, the announcer included".to_owned());
            return;
        }
        let others = if asked.is_seeder { incomplete } else { (complete + incomplete).saturating_sub(1) };
        let wanted = u64::try_from(self.rules.numwant).unwrap_or(u64::MAX);
        self.relays().offers_due += u64::from(asked.offers).min(others).min(wanted);
        self.tally.announce_reply_bytes += bytes as u64;
        self.count(&asked, now_ns);
    }

    fn hear_scrape(&mut self, slot: usize, scrape: ScrapeReply<'_>, now_ns: u64) {
        let Some(asked) = self.under_way(slot, Kind::Scrape) else { return };
        if !self.settle(slot, now_ns) {
            return;
        }
        // Torrents that the tracker does not know may be left out, and one that was named twice comes once.
        let files = scrape.files().count();
        if files > usize::from(asked.hashes) {
            self.tally.wrong.count += 1;
        } else {
            self.count(&asked, now_ns);
        }
    }

    fn hear_failure(&mut self, slot: usize, failure: &Failure<'_>, now_ns: u64) {
        self.tally.errors += 1;
        self.tally.first_error.get_or_insert_with(|| words(failure.reason.as_bytes()));
        let asked = self.seats[slot].connection.asked.front();
        // One that is about another torrent is about something else, such as an answer.
        let is_ours = asked.is_some_and(|asked| {
            asked.kind == Kind::Scrape
                || failure.info_hash.is_none_or(|hash| hash == self.pen.info_hash(asked.torrent))
        });
        if is_ours {
            self.settle(slot, now_ns);
        }
    }

    /// Whether an offer is what it has to be. Some are answered.
    fn hear_offer(&mut self, slot: usize, offer: &RelayedOffer<'_>, now_ns: u64) -> Result<(), Fault> {
        let mut room = [0; OFFER_ID_BYTES_MAX];
        let id = offer.offer_id.bytes(&mut room);
        let Some(stamp) = self.pen.read_stamp(id) else {
            self.relays().wrong.foreign += 1;
            self.tally.note_fault(|| "an offer by nobody of this generator".to_owned());
            return Ok(());
        };
        let maker = self.pen.peer_id(stamp.worker, stamp.slot);
        let is_directed = offer.info_hash == self.pen.info_hash(stamp.torrent) && offer.peer_id == maker;
        let is_whole = self.pen.is_offer(offer.offer, id);
        let is_own = (stamp.worker, stamp.slot) == (self.index, slot);
        let relays = self.relays();
        if !is_whole {
            relays.wrong.damaged += 1;
            self.tally.note_fault(|| format!("an offer came damaged: {}", words(offer.offer)));
        } else if is_own {
            relays.wrong.own += 1;
            self.tally.note_fault(|| "an offer came back to who made it".to_owned());
        } else if is_directed {
            relays.offers += 1;
            relays.offer_latency.saturating_record(now_ns.saturating_sub(stamp.sent_ns));
            if self.answer_share > 0.0 && self.random.random::<f64>() < self.answer_share {
                self.relays().answers_sent += 1;
                self.seats[slot].said += 1;
                let answer = self.pen.answer(slot, stamp.torrent, maker, id, now_ns);
                return self.seats[slot].connection.pass(answer);
            }
        } else {
            relays.wrong.misdirected += 1;
            self.tally.note_fault(|| "an offer came as of another torrent or peer".to_owned());
        }
        Ok(())
    }

    fn hear_answer(&mut self, slot: usize, answer: &RelayedAnswer<'_>, now_ns: u64) {
        let mut room = [0; OFFER_ID_BYTES_MAX];
        let Some(offered) = self.pen.read_stamp(answer.offer_id.bytes(&mut room)) else {
            self.relays().wrong.foreign += 1;
            self.tally.note_fault(|| "an answer to no offer of this generator".to_owned());
            return;
        };
        let Some(stamp) = self.pen.read_answer(answer.answer) else {
            self.relays().wrong.damaged += 1;
            self.tally.note_fault(|| format!("an answer came damaged: {}", words(answer.answer)));
            return;
        };
        let is_directed = (offered.worker, offered.slot) == (self.index, slot)
            && offered.torrent == stamp.torrent
            && answer.info_hash == self.pen.info_hash(stamp.torrent)
            && answer.peer_id == self.pen.peer_id(stamp.worker, stamp.slot);
        let relays = self.relays();
        if is_directed {
            relays.answers += 1;
            relays.answer_latency.saturating_record(now_ns.saturating_sub(stamp.sent_ns));
        } else {
            relays.wrong.misdirected += 1;
            self.tally.note_fault(|| "an answer came to another than who made the offer".to_owned());
        }
    }

    /// What is under way on a connection, if it is of this kind; otherwise the reply is to no request.
    fn under_way(&mut self, slot: usize, kind: Kind) -> Option<Asked> {
        let asked = self.seats[slot].connection.asked.front().copied();
        match asked {
            Some(asked) if asked.kind == kind => return Some(asked),
            Some(_) => {
                self.tally.wrong.action += 1;
                self.tally.note_fault(|| "a reply of another kind than the request".to_owned());
            }
            None => {
                self.tally.wrong.transaction_id += 1;
                self.tally.note_fault(|| "a reply without a request".to_owned());
            }
        }
        None
    }

    /// Takes a request for answered, in whatever words, and has the connection ask again. Returns whether the answer came
    /// in time.
    fn settle(&mut self, slot: usize, now_ns: u64) -> bool {
        let Some(asked) = self.seats[slot].connection.asked.pop_front() else { return false };
        self.in_flight -= 1;
        self.seats[slot].connection.is_proven = true;
        let is_late = now_ns.saturating_sub(asked.due_ns) > self.rules.timeout_ns;
        if is_late {
            self.tally.lost += 1;
            self.tally.late += 1;
        } else if asked.kind == Kind::Announce {
            self.seats[slot].filled += 1;
        }
        self.offer(slot);
        !is_late
    }

    /// A good reply.
    fn count(&mut self, asked: &Asked, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(asked.due_ns);
        self.tally.responses.count(asked.kind);
        self.tally.record_latency(latency_ns);
        self.shared.lives[self.index].record(latency_ns);
    }
}
