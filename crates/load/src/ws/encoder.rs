//! Encodes the messages of a worker, each as one masked frame.
//!
//! The large parts, offers and answers, are encoded once, and only their stamps are replaced. Nothing is allocated
//! once the longest message has been encoded.

use arrayvec::ArrayVec;
use shoal_base::{InfoHash, PeerId};
use shoal_wire::websocket::frame::{self, Opcode};
use shoal_wire::webtorrent::request::{AnnounceRequest, AnswerRequest, OfferRequest, Style, scrape};

use super::description::{Description, Side};
use super::stamp::{STAMP_BYTES, Stamp};
use super::{OFFERS_MAX, WsSettings};
use crate::population::{PeerAnnounce, info_hash, mix, peer_id};

#[derive(Debug)]
pub(super) struct Encoder {
    seed: u64,
    worker: usize,
    numwant: Option<u32>,
    offers: Vec<Description>,
    offer_ids: Vec<[u8; STAMP_BYTES]>,
    answer: Description,
    pub(super) scraped: Vec<InfoHash>,
    message: Vec<u8>,
    frame: Vec<u8>,
    mask_state: u64,
}

impl Encoder {
    pub(super) fn new(settings: &WsSettings, seed: u64, worker: usize, numwant: i32) -> Self {
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
            mask_state: mix(seed ^ worker as u64),
        }
    }

    pub(super) fn peer_id(&self, worker: usize, slot: usize) -> PeerId {
        peer_id(self.seed, (worker as u64) << 40 | slot as u64)
    }

    pub(super) fn info_hash(&self, torrent: u32) -> InfoHash {
        info_hash(self.seed, torrent)
    }

    pub(super) fn announce(
        &mut self,
        slot: usize,
        announce: &PeerAnnounce,
        count: usize,
        sent_ns: u64,
    ) -> &[u8] {
        let PeerAnnounce { torrent, event, left_bytes, .. } = *announce;
        let mut stamp = Stamp { sent_ns, worker: self.worker, slot, index: 0, torrent };
        for (index, id) in self.offer_ids.iter_mut().take(count).enumerate() {
            stamp.index = index;
            *id = stamp.write(self.seed);
            self.offers[index].set_stamp(id);
        }
        let offers = self.offers.iter().zip(&self.offer_ids).take(count);
        let offers: ArrayVec<_, OFFERS_MAX> =
            offers.map(|(offer, id)| OfferRequest { offer_id: id, offer: offer.json() }).collect();
        let request = AnnounceRequest {
            info_hash: self.info_hash(torrent),
            peer_id: self.peer_id(self.worker, slot),
            event,
            left_bytes: Some(left_bytes.unsigned_abs()),
            // A peer without offers cannot be given other peers.
            numwant: if count == 0 { Some(0) } else { self.numwant },
            offers: &offers,
        };
        self.message.clear();
        request.encode(Style::Raw, &mut self.message);
        drop(offers);
        self.frame_message()
    }

    pub(super) fn scrape(&mut self) -> &[u8] {
        self.message.clear();
        scrape(&self.scraped, Style::Raw, &mut self.message);
        self.frame_message()
    }

    pub(super) fn answer(
        &mut self,
        slot: usize,
        torrent: u32,
        to_peer_id: PeerId,
        offer_id: &[u8],
        sent_ns: u64,
    ) -> &[u8] {
        let stamp = Stamp { sent_ns, worker: self.worker, slot, index: 0, torrent };
        self.answer.set_stamp(&stamp.write(self.seed));
        let request = AnswerRequest {
            info_hash: self.info_hash(torrent),
            peer_id: self.peer_id(self.worker, slot),
            to_peer_id,
            offer_id,
            answer: self.answer.json(),
        };
        self.message.clear();
        request.encode(Style::Raw, &mut self.message);
        self.frame_message()
    }

    pub(super) fn control(&mut self, opcode: Opcode, payload: &[u8]) -> &[u8] {
        let mask = self.next_mask();
        self.frame.clear();
        frame::encode(opcode, payload, Some(mask), &mut self.frame);
        &self.frame
    }

    /// Returns the stamp of an offer id, if this generator has made it.
    pub(super) fn read_stamp(&self, text: &[u8]) -> Option<Stamp> {
        Stamp::read(text, self.seed)
    }

    pub(super) fn is_offer(&self, offer: &[u8], stamp: &[u8]) -> bool {
        self.offers[0].matches(offer, stamp)
    }

    /// Returns the stamp of an answer, if the answer is unchanged.
    pub(super) fn read_answer(&self, answer: &[u8]) -> Option<Stamp> {
        let stamp = self.answer.stamp(answer)?;
        if self.answer.matches(answer, stamp) { Stamp::read(stamp, self.seed) } else { None }
    }

    fn frame_message(&mut self) -> &[u8] {
        let mask = self.next_mask();
        self.frame.clear();
        frame::encode(Opcode::Text, &self.message, Some(mask), &mut self.frame);
        &self.frame
    }

    /// Returns a new mask for each frame (RFC 6455, 5.3). It is predictable, which does not matter here.
    fn next_mask(&mut self) -> [u8; 4] {
        self.mask_state = mix(self.mask_state);
        let [a, b, c, d, ..] = self.mask_state.to_le_bytes();
        [a, b, c, d]
    }
}
