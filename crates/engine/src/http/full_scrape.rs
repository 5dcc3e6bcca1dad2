//! The reply to a scrape of all torrents (BEP 48, and the forms of opentracker), piece by piece: at most one piece is
//! in memory, and no lock is held between two pieces.
//!
//! Torrents come in the order of the store, although bencoding requires ascending info hashes: sorting tens of
//! millions would take as much memory as the store. Clients do not insist on the order.
//!
//! The walk takes a segment of each family's tables at a time. A torrent that exists during the whole walk appears
//! exactly once, even if tables grow or shrink meanwhile.

use shoal_config::OpentrackerMode;
use shoal_store::{Listed, Walk};
use shoal_wire::http::reply::ScrapeFormat;

use super::{Responder, scrape_file};

/// Size in bytes at which a piece is complete. One read of the store adds up to a segment of each family: usually
/// some 40 KiB, at most 75.
const PIECE_BYTES: usize = 20 << 10;

/// Maximum number of store reads per piece, in case they find little. Each read takes microseconds.
const READS_MAX: usize = 64;

/// Returns the format of the list of all torrents that a query for `/stats` of opentracker asks for. Without
/// `format`, opentracker leaves out the dictionary around bencoded entries; this reply has it.
pub(super) fn opentracker_list(query: &[u8]) -> Option<ScrapeFormat> {
    let value = |name: &[u8]| {
        query
            .split(|&byte| byte == b'&')
            .find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix(b"="))
    };
    if value(b"mode")? != OpentrackerMode::Tpbs.name().as_bytes() {
        return None;
    }
    value(b"format").map_or(Some(ScrapeFormat::Bencoded), ScrapeFormat::of_opentracker)
}

/// The rest of the reply.
#[derive(Debug)]
pub struct FullScrape {
    format: ScrapeFormat,
    has_begun: bool,
    walk: Walk,
    listed: Vec<Listed>,
}

impl FullScrape {
    pub(super) fn new(format: ScrapeFormat) -> Self {
        Self { format, has_begun: false, walk: Walk::default(), listed: Vec::new() }
    }

    /// Returns the size of its heap memory.
    pub const fn held_bytes(&self) -> usize {
        self.listed.capacity() * size_of::<Listed>()
    }

    /// Appends the next piece to `body`: at most about 100 KiB, sometimes nothing. Returns whether there is more.
    /// Must not be called again after the last piece.
    pub fn next(&mut self, responder: &Responder, body: &mut Vec<u8>) -> bool {
        if !self.has_begun {
            self.format.begin(body);
            self.has_begun = true;
        }
        let piece_end = body.len() + PIECE_BYTES;
        for _ in 0..READS_MAX {
            let has_more = responder.store.list(&mut self.walk, &mut self.listed);
            for torrent in &self.listed {
                self.format.push(torrent.info_hash, scrape_file(torrent.counts), body);
            }
            if !has_more {
                self.format.end(body);
                return false;
            }
            if body.len() >= piece_end {
                break;
            }
        }
        true
    }
}
