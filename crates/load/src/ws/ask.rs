//! How a worker asks: on which connection, which peer, with what offers.

use rand::RngExt;
use shoal_types::Event;

use super::seat::Asked;
use super::worker::Worker;
use crate::Mix;
use crate::population::{LEFT_BYTES, Say};
use crate::tally::Kind;

impl Worker {
    /// Has a connection ask by the weights of the mix what was due at `due_ns`.
    pub(super) fn ask(&mut self, slot: usize, due_ns: u64, now_ns: u64) {
        let peer = self.peers.any(slot);
        let Mix { announce, scrape, .. } = self.mix;
        if self.random.random_range(0..announce + scrape) < announce {
            let say = self.peers.next(peer);
            let offers = if say.event == Event::Stopped { 0 } else { self.offers };
            self.ask_say(slot, &say, offers, due_ns, now_ns);
        } else {
            self.ask_scrape(slot, due_ns, now_ns);
        }
    }

    /// Asks what one peer says, with so many offers.
    pub(super) fn ask_say(&mut self, slot: usize, say: &Say, offers: usize, due_ns: u64, now_ns: u64) {
        let asked = Asked {
            due_ns,
            asked_ns: now_ns,
            place: self.seats[slot].said,
            torrent: say.torrent,
            hashes: 0,
            offers: u16::try_from(offers).expect("the settings were checked"),
            is_seeder: say.left_bytes == 0,
            stays: say.event != Event::Stopped,
            kind: Kind::Announce,
        };
        self.seats[slot].said += 1;
        self.relays().offers_sent += offers as u64;
        let sent = self.pen.announce(slot, say, offers, due_ns);
        let sent = self.seats[slot].connection.pass(sent);
        self.note_asked(slot, asked);
        if let Err(fault) = sent {
            self.fail(slot, &fault, now_ns);
        }
    }

    /// Has a connection that does nothing else announce a peer: in a torrent that others are in, and without offers.
    pub(super) fn say_once(&mut self, slot: usize, now_ns: u64, is_heard: bool) {
        let peer = self.peers.any(slot % self.traders);
        let torrent = self.peers.torrent(peer);
        let say =
            Say { peer, generation: 0, torrent, port: 0, event: Event::Started, left_bytes: LEFT_BYTES };
        if is_heard {
            return self.ask_say(slot, &say, 0, now_ns, now_ns);
        }
        let sent = self.pen.announce(slot, &say, 0, now_ns);
        if let Err(fault) = self.seats[slot].connection.pass(sent) {
            self.fail(slot, &fault, now_ns);
        }
    }

    fn ask_scrape(&mut self, slot: usize, due_ns: u64, now_ns: u64) {
        self.pen.scraped.clear();
        for _ in 0..self.random.random_range(1..=self.scrape_hashes_max) {
            let trader = self.random.random_range(0..self.traders);
            let peer = self.peers.any(trader);
            let info_hash = self.pen.info_hash(self.peers.torrent(peer));
            // No client names a torrent twice.
            if !self.pen.scraped.contains(&info_hash) {
                self.pen.scraped.push(info_hash);
            }
        }
        let hashes = u8::try_from(self.pen.scraped.len()).expect("the plan was checked");
        let sent = self.seats[slot].connection.pass(self.pen.scrape());
        let asked = Asked {
            due_ns,
            asked_ns: now_ns,
            place: 0,
            torrent: 0,
            hashes,
            offers: 0,
            is_seeder: false,
            stays: true,
            kind: Kind::Scrape,
        };
        self.note_asked(slot, asked);
        if let Err(fault) = sent {
            self.fail(slot, &fault, now_ns);
        }
    }

    fn note_asked(&mut self, slot: usize, asked: Asked) {
        self.seats[slot].connection.asked.push_back(asked);
        self.in_flight += 1;
        self.tally.requests.count(asked.kind);
    }
}
