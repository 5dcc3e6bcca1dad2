//! Offers and answers between clients.

use shoal_relay::{AnswerMatch, MESSAGE_BYTES_MIN, MessageKind, WriteError};
use shoal_wire::websocket::frame;
use shoal_wire::webtorrent::{Announce, Answer, OFFER_ID_BYTES_MAX, Offer, reply};

use super::member::Member;
use super::remote::{Content, RemoteMessage};
use super::{Inner, loss};
use crate::Now;
use crate::counter::{Kind, Loss, Relay, Tally};

/// Bytes around an offer and its id in the relayed message, including the head of the frame, if no byte of the info
/// hash or the peer id needs an escape.
const OFFER_HEAD_BYTES: usize = 114;

impl Inner {
    /// Stores the keys of the offers to relay in `self.offers`: no more than wanted, and no more than the sender's
    /// allowance covers now, except that the last offer may exceed it.
    pub(super) fn name_offers(&mut self, member: &Member, announce: &Announce<'_>, wanted: usize, now: Now) {
        let (swarms, mut room) = (&self.swarms, [0; OFFER_ID_BYTES_MAX]);
        let mut bytes_left = swarms.relay_bytes_available(member.source(), member.bucket, now.monotonic_s);
        self.offers.clear();
        let mut refused = 0;
        for offer in announce.offers.iter().take(wanted) {
            if bytes_left == 0 {
                refused += 1;
                continue;
            }
            bytes_left = bytes_left.saturating_sub(charged_bytes(&offer));
            self.offers.push(swarms.offer_key(offer.offer_id.bytes(&mut room)));
        }
        self.context.tally.lose(Loss::RateLimited, refused);
    }

    /// Relays the offers of an announce to their drawn targets.
    pub(super) fn relay_offers(&mut self, member: &mut Member, announce: &Announce<'_>, now: Now) {
        if self.targets.is_empty() {
            return;
        }
        let kind = MessageKind::Offer(member.source().group());
        let (mut bytes, mut room) = (0, [0; OFFER_ID_BYTES_MAX]);
        for (target, offer) in self.targets.iter().zip(announce.offers.iter()) {
            bytes += charged_bytes(&offer);
            if !self.swarms.admit_offer(member.source(), target, now.monotonic_s) {
                self.context.tally.lose(Loss::RateLimited, 1);
                continue;
            }
            let write_frame = |out: &mut Vec<u8>| {
                frame::write_text(out, |out| {
                    reply::offer(&announce.info_hash, &announce.peer_id, &offer, out);
                });
            };
            let written = self.dispatcher.write(target.address, kind, |out| {
                if target.address.is_remote() {
                    let (info_hash, to) = (announce.info_hash, target.peer_id);
                    let (source, from) = (member.source().to_bytes(), announce.peer_id);
                    let offer_id = offer.offer_id.bytes(&mut room);
                    let content = Content::Offer { source, from, offer_id, frame: &[] };
                    RemoteMessage { info_hash, to, content }.encode(out, write_frame);
                } else {
                    write_frame(out);
                }
            });
            count_relayed(&mut self.context.tally, Relay::Offer, written);
        }
        self.swarms.charge_relay(member.source(), &mut member.bucket, bytes, now.monotonic_s);
    }

    /// Relays an answer to the client that awaits it. The sender never gets a reply.
    pub(super) fn answer(&mut self, member: &Member, answer: &Answer<'_>, now: Now) {
        self.context.tally.request(member.family, Kind::Answer);
        let answerer = member.address(self.dispatcher.worker());
        let mut room = [0; OFFER_ID_BYTES_MAX];
        let offer_id = answer.offer_id.bytes(&mut room);
        let offer = self.swarms.offer_key(offer_id);
        let key = self.swarms.swarm_key(&answer.info_hash);
        let (swarms, now_s) = (&self.swarms, now.monotonic_s);
        let match_as = |answerer| {
            swarms.match_answer(&key, &answer.to_peer_id, (answerer, &answer.peer_id), offer, now_s)
        };
        let matched = match (match_as(answerer), self.former.find(member.handle())) {
            (AnswerMatch::NotPending | AnswerMatch::PeerGone, Some(former)) => match_as(former),
            (matched, _) => matched,
        };
        let write_frame = |out: &mut Vec<u8>| {
            frame::write_text(out, |out| reply::answer(&answer.info_hash, &answer.peer_id, answer, out));
        };
        match matched {
            AnswerMatch::Offerer(offerer) => {
                let written = self.dispatcher.write(offerer, MessageKind::Answer, |out| {
                    if offerer.is_remote() {
                        let (info_hash, to) = (answer.info_hash, answer.to_peer_id);
                        let content = Content::Answer { from: answer.peer_id, offer_id, frame: &[] };
                        RemoteMessage { info_hash, to, content }.encode(out, write_frame);
                    } else {
                        write_frame(out);
                    }
                });
                count_relayed(&mut self.context.tally, Relay::Answer, written);
            }
            AnswerMatch::NotPending => self.context.tally.lose(Loss::Unawaited, 1),
            AnswerMatch::PeerGone => self.context.tally.lose(Loss::Gone, 1),
        }
    }
}

/// Returns how many bytes a sender is charged for an offer: the size of the relaying message, with a minimum.
fn charged_bytes(offer: &Offer<'_>) -> u64 {
    let bytes = OFFER_HEAD_BYTES + offer.offer_id.raw().len() + offer.offer.len();
    (bytes as u64).max(MESSAGE_BYTES_MIN)
}

fn count_relayed(tally: &mut Tally, relay: Relay, written: Result<(), WriteError>) {
    match written {
        Ok(()) => tally.relay(relay),
        Err(error) => tally.lose(loss(error), 1),
    }
}
