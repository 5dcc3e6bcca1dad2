//! How a worker asks: which peer, through which socket, on which sheet; and how what is on the sheets leaves.

use rand::RngExt;
use rustix::io::Errno;
use shoal_net::Bundler;

use super::flight::{Asked, Landed};
use super::press::Sheet;
use super::worker::Worker;
use crate::Mix;
use crate::population::Say;
use crate::tally::Kind;

/// A connection id may be used for a minute (BEP 15, "connect"); it is renewed before that.
pub(super) const CONNECTION_NS_MAX: u64 = 50_000_000_000;

impl Worker {
    /// Asks `count` times, by the weights of the mix, through the next socket in turn.
    pub(super) fn ask_some(&mut self, count: usize, now_ns: u64, due_ns: impl Fn(usize) -> u64) {
        let socket = self.next_socket;
        self.next_socket = (socket + 1) % self.lines.len();
        self.keep_connected(socket, now_ns);
        let hashes = self.random.random_range(1..=self.scrape_hashes_max);
        self.press.size_scrapes(usize::from(hashes));
        let Mix { connect, announce, scrape } = self.mix;
        for index in 0..count.min(self.flight.room()) {
            let due_ns = due_ns(index);
            let drawn = self.random.random_range(0..connect + announce + scrape);
            if drawn < connect {
                self.ask_connect(socket, due_ns);
            } else {
                let peer = self.peers.any(socket);
                if drawn < connect + announce {
                    let say = self.peers.next(peer);
                    self.ask_announce(socket, due_ns, &say);
                } else {
                    self.ask_scrape(socket, due_ns, peer, hashes);
                }
            }
        }
        self.flush(socket);
    }

    /// Renews the connection id of a socket in time.
    pub(super) fn keep_connected(&mut self, socket: usize, now_ns: u64) {
        let line = &mut self.lines[socket];
        if now_ns.saturating_sub(line.connected_ns) > CONNECTION_NS_MAX && self.flight.room() > 0 {
            // Asked again after a while, should the answer be lost.
            line.connected_ns += CONNECTION_NS_MAX / 8;
            self.ask_connect(socket, now_ns);
        }
    }

    pub(super) fn ask_connect(&mut self, socket: usize, due_ns: u64) {
        let asked = Asked { due_ns, peer: 0, port: 0, socket: small(socket), hashes: 0, kind: Kind::Connect };
        if let Some(transaction_id) = self.flight.launch(asked) {
            self.press.connect(transaction_id);
        }
    }

    pub(super) fn ask_announce(&mut self, socket: usize, due_ns: u64, say: &Say) {
        let Some(id) = self.lines[socket].connection_id else { return };
        let (peer, port) = (say.peer, say.port);
        let asked = Asked { due_ns, peer, port, socket: small(socket), hashes: 0, kind: Kind::Announce };
        if let Some(transaction_id) = self.flight.launch(asked) {
            self.press.announce(id, transaction_id, say);
        }
    }

    fn ask_scrape(&mut self, socket: usize, due_ns: u64, peer: u32, hashes: u8) {
        let Some(id) = self.lines[socket].connection_id else { return };
        let asked = Asked { due_ns, peer, port: 0, socket: small(socket), hashes, kind: Kind::Scrape };
        let Some(transaction_id) = self.flight.launch(asked) else { return };
        let Self { press, peers, .. } = self;
        press.scrape(id, transaction_id, || {
            let peer = peers.any(socket);
            peers.torrent(peer)
        });
    }

    /// Sends what is on the sheets.
    pub(super) fn flush(&mut self, socket: usize) {
        let Self { bundler, press, flight, tally, unheard, .. } = self;
        let requests = &mut tally.requests;
        let sheets = [
            (&mut press.connects, &mut requests.connect),
            (&mut press.announces, &mut requests.announce),
            (&mut press.scrapes, &mut requests.scrape),
        ];
        for (sheet, count) in sheets {
            let sent = send(bundler, socket, sheet);
            *count += sent as u64;
            for transaction_id in sheet.transactions(sent) {
                tally.send_failures += 1;
                if let Landed::Known(asked) = flight.land(transaction_id) {
                    note_unheard(unheard, &asked);
                }
            }
            sheet.clear();
        }
    }
}

/// Has an announce repeated that did not get through.
pub(super) fn note_unheard(unheard: &mut Option<Vec<u32>>, asked: &Asked) {
    if let (Some(unheard), Kind::Announce) = (unheard, asked.kind) {
        unheard.push(asked.peer);
    }
}

/// Sends the datagrams of a sheet, and returns how many the kernel took.
fn send(bundler: &mut Bundler, socket: usize, sheet: &Sheet) -> usize {
    let (bundle, datagram_bytes) = sheet.bundle();
    let (mut sent, mut refusals) = (0, 0);
    while sent < sheet.len() {
        match bundler.send(socket, None, &bundle[sent * datagram_bytes..], datagram_bytes) {
            Ok(count) => sent += count,
            // The error of an earlier datagram, which this one did not cause.
            Err(Errno::CONNREFUSED | Errno::INTR) if refusals < 3 => refusals += 1,
            Err(_) => break,
        }
    }
    sent
}

fn small(socket: usize) -> u8 {
    u8::try_from(socket).expect("a worker has at most SOCKETS_MAX sockets")
}
