//! The requests of the WebTorrent client: announces and scrapes.

use rand::RngExt;
use shoal_base::Event;

use super::client::{Client, Role};
use crate::connection::Pending;
use crate::driver::Run;
use crate::population::{LEFT_BYTES, PeerAnnounce};
use crate::stream::StreamProtocol as _;
use crate::tally::Kind;

/// The properties of a request that its reply is checked against, in addition to [`Pending`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    /// The number of announces and answers that were sent before it.
    pub(super) sequence: u64,
    pub(super) torrent: u32,
    pub(super) offers: u16,
    pub(super) is_seeder: bool,
    pub(super) stops: bool,
}

impl Client {
    pub(super) fn request(&mut self, run: &mut Run, slot: usize, due_ns: u64, now_ns: u64) {
        let peer = run.peers.draw(slot);
        if run.draw_kind() == Kind::Announce {
            let announce = run.peers.next(peer);
            let offers = if announce.event == Event::Stopped { 0 } else { self.offers };
            self.announce(run, slot, &announce, offers, due_ns, now_ns);
        } else {
            self.scrape(run, slot, due_ns, now_ns);
        }
    }

    pub(super) fn announce(
        &mut self,
        run: &mut Run,
        slot: usize,
        announce: &PeerAnnounce,
        offers: usize,
        due_ns: u64,
        now_ns: u64,
    ) {
        let details = Details {
            sequence: self.slots[slot].sent,
            torrent: announce.torrent,
            offers: u16::try_from(offers).expect("the settings were checked"),
            is_seeder: announce.left_bytes == 0,
            stops: announce.event == Event::Stopped,
        };
        self.slots[slot].sent += 1;
        run.tally.relays().offers_sent += offers as u64;
        let message = self.encoder.announce(slot, announce, offers, due_ns);
        let outcome = self.pool.connections[slot].send(message);
        let (kind, peer) = (Kind::Announce, announce.peer);
        let request = Pending { due_ns, sent_ns: now_ns, kind, peer, hashes: 0, details };
        self.pool.add_request(run, slot, request);
        if let Err(fault) = outcome {
            self.fail(run, slot, &fault, now_ns);
        }
    }

    /// Announces a peer of a connection that is no announcer: in the torrent of an announcer, and without offers.
    pub(super) fn announce_once(&mut self, run: &mut Run, slot: usize, now_ns: u64) {
        let peer = run.peers.draw(slot % self.announcers);
        let torrent = run.peers.torrent(peer);
        let (event, left_bytes) = (Event::Started, LEFT_BYTES);
        let announce = PeerAnnounce { peer, generation: 0, torrent, port: 0, event, left_bytes };
        if self.slots[slot].role == Role::Held {
            return self.announce(run, slot, &announce, 0, now_ns, now_ns);
        }
        // The reply to a slow reader is never read, so that no request is in flight.
        let message = self.encoder.announce(slot, &announce, 0, now_ns);
        if let Err(fault) = self.pool.connections[slot].send(message) {
            self.fail(run, slot, &fault, now_ns);
        }
    }

    fn scrape(&mut self, run: &mut Run, slot: usize, due_ns: u64, now_ns: u64) {
        self.encoder.scraped.clear();
        for _ in 0..run.draw_scrape_hashes() {
            let announcer = run.random.random_range(0..self.announcers);
            let peer = run.peers.draw(announcer);
            let info_hash = self.encoder.info_hash(run.peers.torrent(peer));
            // Clients do not name a torrent twice.
            if !self.encoder.scraped.contains(&info_hash) {
                self.encoder.scraped.push(info_hash);
            }
        }
        let hashes = u8::try_from(self.encoder.scraped.len()).expect("the plan was checked");
        let outcome = self.pool.connections[slot].send(self.encoder.scrape());
        let (kind, details) = (Kind::Scrape, Details::default());
        self.pool.add_request(run, slot, Pending { due_ns, sent_ns: now_ns, kind, peer: 0, hashes, details });
        if let Err(fault) = outcome {
            self.fail(run, slot, &fault, now_ns);
        }
    }
}
