//! How a worker asks: on which connection, from which address, which peer.

use rand::RngExt;

use super::Reuse;
use super::check::Asked;
use super::worker::Worker;
use crate::Mix;
use crate::connection::{Fault, Stage};
use crate::population::Say;
use crate::tally::Kind;

impl Worker {
    /// Asks as often as the connection has room, at most `count` times, by the weights of the mix. Returns how often.
    pub(super) fn ask_some(
        &mut self,
        slot: usize,
        count: usize,
        now_ns: u64,
        due_ns: impl Fn(usize) -> u64,
    ) -> usize {
        if !self.is_there(slot, None, now_ns) {
            return 0;
        }
        let count = count.min(self.depth - self.connections[slot].asked.len());
        for index in 0..count {
            let line = self.connections[slot].line;
            let peer = self.peers.any(line);
            let Mix { announce, scrape, .. } = self.mix;
            if self.random.random_range(0..announce + scrape) < announce {
                let say = self.peers.next(peer);
                self.write_announce(slot, &say, due_ns(index), now_ns);
            } else {
                self.write_scrape(slot, peer, due_ns(index), now_ns);
            }
        }
        self.send(slot, now_ns);
        count
    }

    /// Asks what one peer says, from the address where it lives.
    pub(super) fn ask_say(&mut self, slot: usize, say: &Say, now_ns: u64) -> bool {
        let line = say.peer as usize % self.locals.len();
        if !self.is_there(slot, Some(line), now_ns) {
            return false;
        }
        self.write_announce(slot, say, now_ns, now_ns);
        self.send(slot, now_ns);
        true
    }

    fn write_announce(&mut self, slot: usize, say: &Say, due_ns: u64, now_ns: u64) {
        self.request.clear();
        self.forms.announce(say, self.is_last(), &mut self.request);
        let (peer, port) = (say.peer, say.port);
        let asked = Asked { due_ns, asked_ns: now_ns, peer, port, hashes: 0, kind: Kind::Announce };
        self.write(slot, asked);
    }

    fn write_scrape(&mut self, slot: usize, peer: u32, due_ns: u64, now_ns: u64) {
        let hashes = self.random.random_range(1..=self.scrape_hashes_max);
        let (line, is_last) = (self.connections[slot].line, self.is_last());
        self.request.clear();
        let Self { forms, peers, request, .. } = self;
        let torrent = || {
            let peer = peers.any(line);
            peers.torrent(peer)
        };
        forms.scrape(hashes, torrent, is_last, request);
        self.write(slot, Asked { due_ns, asked_ns: now_ns, peer, port: 0, hashes, kind: Kind::Scrape });
    }

    fn write(&mut self, slot: usize, asked: Asked) {
        let connection = &mut self.connections[slot];
        // A session that takes nothing any more fails when it is flushed.
        let _ = connection.write(&self.request);
        connection.asked.push_back(asked);
        self.in_flight += 1;
        self.tally.requests.count(asked.kind);
    }

    fn send(&mut self, slot: usize, now_ns: u64) {
        let before = self.connections[slot].stage;
        if let Err(fault) = self.connections[slot].flush() {
            self.fail(slot, &fault, now_ns);
        } else if before == Stage::Connecting && self.connections[slot].stage == Stage::Open {
            self.note_open(slot, self.shared.clock.now_ns());
        }
    }

    /// Whether the request that is being written is the last one of its connection.
    fn is_last(&self) -> bool {
        self.reuse == Reuse::PerRequest && !self.is_filling
    }

    /// Sees to it that there is a connection, from a certain address where one is given. Where none can be had, the slot
    /// has been put to rest.
    fn is_there(&mut self, slot: usize, line: Option<usize>, now_ns: u64) -> bool {
        let connection = &mut self.connections[slot];
        if line.is_some_and(|line| connection.line != line) && connection.asked.is_empty() {
            connection.close(self.reset);
        }
        if connection.stage != Stage::Closed {
            return true;
        }
        if let Some(line) = line {
            connection.line = line;
        } else if self.reuse == Reuse::PerRequest {
            connection.line = self.next_line;
            self.next_line = (self.next_line + 1) % self.locals.len();
        }
        self.dial(slot, now_ns).is_ok()
    }

    /// Begins a connection.
    pub(super) fn dial(&mut self, slot: usize, now_ns: u64) -> Result<(), Fault> {
        let connection = &mut self.connections[slot];
        let from = self.locals[connection.line];
        let generation = connection.generation.wrapping_add(1);
        // One request and one handshake never wait for each other.
        let no_delay = self.reuse == Reuse::Kept;
        let opened = connection.open(from, self.server, self.tls.as_ref(), no_delay, now_ns);
        let opened =
            opened.and_then(|socket| self.poll.watch(socket, slot, generation).map_err(Fault::Other));
        match opened {
            Ok(()) if self.connections[slot].stage == Stage::Open => {
                self.note_open(slot, now_ns);
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(fault) => {
                self.fail(slot, &fault, now_ns);
                Err(fault)
            }
        }
    }
}
