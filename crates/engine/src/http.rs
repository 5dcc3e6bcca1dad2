//! Answers announces and scrapes over HTTP (BEP 3, 48) by the rules of the engine.
//!
//! Is handed what stands behind the `?` of a request and who asks, and appends one bencoded dictionary to the caller's
//! buffer. What HTTP puts around it (statuses, heads, framing, who is believed to be the client) is `shoal-connection`'s.

use core::net::IpAddr;
use std::io::Write;
use std::sync::Arc;

use shoal_store::{Store, Walk};

use crate::counter::{Family, Kind, Outcome, Tally};
use crate::refusal::Refusal;
use crate::{Now, Settings};

/// Answers the HTTP requests of one worker.
#[derive(Debug)]
pub struct Responder {
    store: Arc<Store>,
    tally: Tally,
    full_scrape: bool,
}

/// The answer to a scrape of all torrents, which comes in pieces.
#[derive(Debug, Default)]
pub struct FullScrape {
    walk: Walk,
}

impl Responder {
    /// A responder on the common `store`, which counts into `tally` and draws from `rng`. Each worker needs a seed
    /// of its own, or they all hand out the same samples.
    #[must_use]
    pub fn new(settings: &Settings, store: Arc<Store>, tally: Tally, _rng: fastrand::Rng) -> Self {
        Self { store, tally, full_scrape: settings.full_scrape }
    }

    /// Answers an announce by the client at `ip`, which is canonical.
    pub fn announce(&mut self, ip: IpAddr, _query: &[u8], _now: Now, body: &mut Vec<u8>) {
        self.fail(Family::of(ip), Kind::Announce, Refusal::BadQuery, body);
    }

    /// Answers a scrape of named torrents by the client at `ip`, which is canonical.
    pub fn scrape(&mut self, ip: IpAddr, _query: &[u8], _now: Now, body: &mut Vec<u8>) {
        self.fail(Family::of(ip), Kind::Scrape, Refusal::FullScrapeOff, body);
    }

    /// Whether a scrape with this query asks for all torrents, and may. It is then answered by
    /// [`begin_full_scrape`](Self::begin_full_scrape), or refused as one too many, and not by [`scrape`](Self::scrape).
    #[must_use]
    pub fn is_full_scrape(&self, query: &[u8]) -> bool {
        self.full_scrape && !query.windows(10).any(|bytes| bytes == b"info_hash=")
    }

    /// Begins the answer to a scrape of all torrents by the client at `ip`.
    pub fn begin_full_scrape(&mut self, ip: IpAddr) -> FullScrape {
        self.tally.request(Family::of(ip), Kind::FullScrape);
        self.tally.reply(Family::of(ip), Kind::FullScrape, Outcome::Ok);
        FullScrape::default()
    }

    /// Refuses a request for a reason that lies outside of it. A client without an address counts as IPv4.
    pub fn refuse(&mut self, ip: Option<IpAddr>, refusal: Refusal, body: &mut Vec<u8>) {
        let kind = match refusal {
            Refusal::FullScrapeOff | Refusal::TooManyScrapes => Kind::FullScrape,
            _ => Kind::Other,
        };
        self.fail(ip.map_or(Family::V4, Family::of), kind, refusal, body);
    }

    fn fail(&mut self, family: Family, kind: Kind, refusal: Refusal, body: &mut Vec<u8>) {
        self.tally.request(family, kind);
        self.tally.reply(family, kind, Outcome::Refused(refusal));
        let words = refusal.message();
        let _ = write!(body, "d14:failure reason{}:{words}e", words.len());
    }
}

impl FullScrape {
    /// Appends the next piece, of about 32 KiB at most. Returns whether there is more.
    pub fn next(&mut self, responder: &Responder, body: &mut Vec<u8>) -> bool {
        let mut listed = Vec::new();
        while responder.store.list(&mut self.walk, &mut listed) {}
        body.extend_from_slice(b"d5:filesdee");
        false
    }
}
