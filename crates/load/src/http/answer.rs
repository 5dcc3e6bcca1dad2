//! What a worker does when something has happened on a connection: it is there, a reply has come, it has ended.

use rustix::event::epoll::EventFlags;
use rustls::HandshakeKind;

use super::Reuse;
use super::check::{Judge, Verdict};
use super::reply;
use super::worker::Worker;
use crate::connection::{Fault, Fetched, Stage};
use crate::tally::Kind;

impl Worker {
    /// Goes on with a connection as far as it goes.
    pub(super) fn go_on(&mut self, slot: usize, flags: EventFlags, now_ns: u64) -> Result<(), Fault> {
        let is_ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if flags == EventFlags::OUT && self.connections[slot].stage != Stage::Connecting {
            return self.connections[slot].flush();
        }
        if self.connections[slot].stage == Stage::Connecting {
            if !is_ending && !flags.contains(EventFlags::OUT) {
                return Ok(());
            }
            self.connections[slot].arrive()?;
            if self.connections[slot].stage == Stage::Open {
                self.note_open(slot, now_ns);
            }
        }
        loop {
            let connection = &mut self.connections[slot];
            let fetched = connection.fetch(&mut self.room, is_ending)?;
            if let Some(kind) = connection.has_shaken_hands() {
                self.note_handshake(kind);
                self.note_open(slot, now_ns);
            }
            if fetched != Fetched::Nothing {
                self.take_replies(slot, fetched == Fetched::End, now_ns)?;
            }
            match fetched {
                Fetched::End => return self.end_of(slot),
                Fetched::Bytes { more: true } => {}
                Fetched::Bytes { more: false } | Fetched::Nothing => break,
            }
        }
        self.connections[slot].flush()
    }

    pub(super) fn note_open(&mut self, slot: usize, now_ns: u64) {
        let setup_ns = now_ns.saturating_sub(self.connections[slot].since_ns);
        let counts = self.counts();
        counts.opened += 1;
        counts.setup.saturating_record(setup_ns);
    }

    fn note_handshake(&mut self, kind: HandshakeKind) {
        let counts = self.counts();
        match kind {
            HandshakeKind::Resumed => counts.handshakes_resumed += 1,
            HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest => counts.handshakes_full += 1,
        }
    }

    /// Judges the replies that are whole.
    fn take_replies(&mut self, slot: usize, is_all: bool, now_ns: u64) -> Result<(), Fault> {
        let mut read = 0;
        loop {
            let connection = &mut self.connections[slot];
            let input = &connection.input[read..];
            if input.is_empty() {
                break;
            }
            let Some(asked) = connection.asked.front().copied() else {
                // What nobody asked for.
                self.tally.wrong.transaction_id += 1;
                self.tally.note_fault(|| "a reply without a request".to_owned());
                return self.part(slot, false, now_ns);
            };
            let own = self.locals[connection.line].ip();
            let live = &self.shared.lives[self.index];
            let mut judge = Judge { rules: self.rules, own, now_ns, tally: &mut self.tally, live };
            let keep_alive = match reply::read(input, is_all, &mut self.chunks) {
                Ok(None) => break,
                Ok(Some(reply)) => {
                    read += reply.bytes;
                    if judge.judge(&asked, &reply) == Verdict::Late {
                        note_unheard(&mut self.unheard, asked.kind, asked.peer);
                    }
                    Some(reply.keep_alive)
                }
                Err(error) => {
                    judge.malformed(&error.to_string());
                    None
                }
            };
            (self.heard_ns, self.is_troubled) = (now_ns, false);
            self.in_flight -= 1;
            let connection = &mut self.connections[slot];
            connection.asked.pop_front();
            connection.is_proven = true;
            match keep_alive {
                // Where the next reply would begin, nobody knows.
                None => return self.part(slot, false, now_ns),
                Some(keep_alive) if !keep_alive || self.reuse == Reuse::PerRequest && !self.is_filling => {
                    // One that has ended by itself will be found to.
                    return self.part(slot, !keep_alive && !is_all, now_ns);
                }
                Some(_) => {}
            }
        }
        let connection = &mut self.connections[slot];
        if read == connection.input.len() {
            connection.input.clear();
        } else {
            connection.input.drain(..read);
        }
        self.offer(slot);
        Ok(())
    }

    /// Has done with a connection. Where the tracker is about to close it, that is waited for, so that it is the tracker
    /// who closes, as with real clients.
    fn part(&mut self, slot: usize, wait: bool, now_ns: u64) -> Result<(), Fault> {
        self.give_up_all(slot);
        let connection = &mut self.connections[slot];
        connection.input.clear();
        if wait {
            (connection.stage, connection.since_ns) = (Stage::Parting, now_ns);
        } else {
            connection.close(self.reset);
            self.offer(slot);
        }
        Ok(())
    }

    /// The tracker has closed.
    fn end_of(&mut self, slot: usize) -> Result<(), Fault> {
        let connection = &mut self.connections[slot];
        match connection.stage {
            Stage::Closed => return Ok(()),
            Stage::Parting => {}
            Stage::Open if connection.asked.is_empty() => self.counts().closed_idle += 1,
            _ => return Err(Fault::Closed),
        }
        self.connections[slot].close(self.reset);
        self.offer(slot);
        Ok(())
    }

    /// A connection has failed, and with it all that was asked on it.
    pub(super) fn fail(&mut self, slot: usize, fault: &Fault, now_ns: u64) {
        self.is_troubled = true;
        let (stage, is_proven) = (self.connections[slot].stage, self.connections[slot].is_proven);
        if stage != Stage::Parting {
            fault.count(&mut self.counts().failures);
            self.tally.note_fault(|| fault.to_string());
        }
        self.give_up_all(slot);
        self.connections[slot].close(self.reset);
        // Whoever gets nowhere must not try again as fast as he can.
        if is_proven {
            self.offer(slot);
        } else {
            self.rest(slot, now_ns);
        }
    }

    /// Counts as lost what was asked on a connection.
    fn give_up_all(&mut self, slot: usize) {
        while let Some(asked) = self.connections[slot].asked.pop_front() {
            self.in_flight -= 1;
            self.tally.lost += 1;
            note_unheard(&mut self.unheard, asked.kind, asked.peer);
        }
    }
}

/// Has an announce repeated that did not get through.
fn note_unheard(unheard: &mut Option<Vec<u32>>, kind: Kind, peer: u32) {
    if let (Some(unheard), Kind::Announce) = (unheard, kind) {
        unheard.push(peer);
    }
}
