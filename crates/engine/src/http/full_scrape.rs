//! The answer to a scrape of all torrents (BEP 48), piece by piece: no more than a piece is in memory, and no lock is
//! held between two of them.
//!
//! Torrents come in the order of the store, not in ascending order of their info hashes as bencoding wants it: to sort
//! tens of millions of them would take as much memory as the store. Clients do not insist on it.

use shoal_store::{Listed, Walk};
use shoal_wire::http::reply;

use super::{Responder, scrape_file};

/// A piece is complete when it has that many bytes. What the store lists at a time adds some 10 KiB at most.
const PIECE_BYTES: usize = 20 << 10;

/// Most looks into the store for a piece, should there be little to find: each takes microseconds.
const LOOKS_MAX: usize = 64;

/// What is left of the answer.
#[derive(Debug, Default)]
pub struct FullScrape {
    has_begun: bool,
    walk: Walk,
    listed: Vec<Listed>,
}

impl FullScrape {
    /// How much memory it holds beside itself.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.listed.capacity() * size_of::<Listed>()
    }

    /// Appends the next piece to `body`, about 32 KiB at most, at times nothing. Returns whether there is more; after
    /// the last piece it must not be called again.
    pub fn next(&mut self, responder: &Responder, body: &mut Vec<u8>) -> bool {
        if !self.has_begun {
            reply::scrape_begin(body);
            self.has_begun = true;
        }
        let piece_end = body.len() + PIECE_BYTES;
        for _ in 0..LOOKS_MAX {
            let has_more = responder.store.list(&mut self.walk, &mut self.listed);
            for torrent in &self.listed {
                reply::scrape_file(torrent.info_hash, scrape_file(torrent.counts), body);
            }
            if !has_more {
                reply::scrape_end(None, body);
                return false;
            }
            if body.len() >= piece_end {
                break;
            }
        }
        true
    }
}
