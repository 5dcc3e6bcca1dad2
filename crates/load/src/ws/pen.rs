//! Writes what a worker says, each message as one masked frame.
//!
//! The large parts, offers and answers, lie ready and are only signed anew. Nothing is allocated once the longest message
//! has been written.

use arrayvec::ArrayVec;
use shoal_types::{InfoHash, PeerId};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::webtorrent::request::{AnnounceRequest, AnswerRequest, OfferRequest, Style, scrape};

use super::description::{Description, Side};
use super::stamp::{STAMP_BYTES, Stamp};
use super::{OFFERS_MAX, Settings};
use crate::hash::{info_hash, mix, peer_id};
use crate::population::Say;

/// What one worker writes with.
#[derive(Debug)]
pub(super) struct Pen {
    seed: u64,
    worker: usize,
    numwant: Option<u32>,
    /// Those of an announce, in order, and their ids.
    offers: Vec<Description>,
    offer_ids: Vec<[u8; STAMP_BYTES]>,
    answer: Description,
    /// The torrents of a scrape.
    pub(super) scraped: Vec<InfoHash>,
    message: Vec<u8>,
    frame: Vec<u8>,
    masks: u64,
}

impl Pen {
    pub(super) fn new(settings: &Settings, seed: u64, worker: usize, numwant: i32) -> Self {
        let offer = Description::new(Side::Offer, settings.sdp_bytes);
        Self {
            seed,
            worker,
            numwant: u32::try_from(numwant).ok(),
            offers: vec![offer; settings.offers.max(1)],
            offer_ids: vec![[0; STAMP_BYTES]; settings.offers],
            answer: Description::new(Side::Answer, settings.sdp_bytes),
            scraped: Vec::new(),
            message: Vec::new(),
            frame: Vec::new(),
            masks: mix(seed ^ worker as u64),
        }
    }

    /// What the connection in a place calls itself.
    pub(super) fn peer_id(&self, worker: usize, slot: usize) -> PeerId {
        peer_id(self.seed, (worker as u64) << 40 | slot as u64)
    }

    pub(super) fn info_hash(&self, torrent: u32) -> InfoHash {
        info_hash(self.seed, torrent)
    }

    /// An announce that makes the first `count` offers.
    pub(super) fn announce(&mut self, slot: usize, say: &Say, count: usize, sent_ns: u64) -> &[u8] {
        let mut stamp = Stamp { sent_ns, worker: self.worker, slot, index: 0, torrent: say.torrent };
        for (index, id) in self.offer_ids.iter_mut().take(count).enumerate() {
            stamp.index = index;
            *id = stamp.write(self.seed);
            self.offers[index].sign(id);
        }
        let made = self.offers.iter().zip(&self.offer_ids).take(count);
        let offers: ArrayVec<_, OFFERS_MAX> =
            made.map(|(offer, id)| OfferRequest { offer_id: id, offer: offer.json() }).collect();
        let request = AnnounceRequest {
            info_hash: self.info_hash(say.torrent),
            peer_id: self.peer_id(self.worker, slot),
            event: say.event,
            left_bytes: Some(say.left_bytes.unsigned_abs()),
            // Whoever has nothing to offer can have nobody.
            numwant: if count == 0 { Some(0) } else { self.numwant },
            offers: &offers,
        };
        self.message.clear();
        request.encode(Style::Raw, &mut self.message);
        drop(offers);
        self.seal()
    }

    /// A scrape of the torrents that were noted.
    pub(super) fn scrape(&mut self) -> &[u8] {
        self.message.clear();
        scrape(&self.scraped, Style::Raw, &mut self.message);
        self.seal()
    }

    /// An answer to the offer `offer_id` of `to_peer_id`.
    pub(super) fn answer(
        &mut self,
        slot: usize,
        torrent: u32,
        to_peer_id: PeerId,
        offer_id: &[u8],
        sent_ns: u64,
    ) -> &[u8] {
        let stamp = Stamp { sent_ns, worker: self.worker, slot, index: 0, torrent };
        self.answer.sign(&stamp.write(self.seed));
        let request = AnswerRequest {
            info_hash: self.info_hash(torrent),
            peer_id: self.peer_id(self.worker, slot),
            to_peer_id,
            offer_id,
            answer: self.answer.json(),
        };
        self.message.clear();
        request.encode(Style::Raw, &mut self.message);
        self.seal()
    }

    /// A control frame.
    pub(super) fn control(&mut self, opcode: Opcode, payload: &[u8]) -> &[u8] {
        let mask = self.mask();
        self.frame.clear();
        frame::encode(opcode, payload, Some(mask), &mut self.frame);
        &self.frame
    }

    /// Who made an offer, where it is whole and of this generator.
    pub(super) fn read_stamp(&self, text: &[u8]) -> Option<Stamp> {
        Stamp::read(text, self.seed)
    }

    /// Whether an offer is what was signed so.
    pub(super) fn is_offer(&self, offer: &[u8], stamp: &[u8]) -> bool {
        self.offers[0].is(offer, stamp)
    }

    /// Who wrote an answer, where it is to the byte what he wrote.
    pub(super) fn read_answer(&self, answer: &[u8]) -> Option<Stamp> {
        let stamp = self.answer.stamp(answer)?;
        if self.answer.is(answer, stamp) { Stamp::read(stamp, self.seed) } else { None }
    }

    fn seal(&mut self) -> &[u8] {
        let mask = self.mask();
        self.frame.clear();
        frame::encode(Opcode::Text, &self.message, Some(mask), &mut self.frame);
        &self.frame
    }

    /// Another mask for each frame (RFC 6455, 5.3), though one that can be foreseen.
    fn mask(&mut self) -> [u8; 4] {
        self.masks = mix(self.masks);
        let [a, b, c, d, ..] = self.masks.to_le_bytes();
        [a, b, c, d]
    }
}
