//! Rules that all protocols share. Each is generic over the protocol that a case checks it with.
//!
//! Rules of a single protocol, such as its layout and framing, belong to the module of that protocol.

pub(crate) mod event;
pub(crate) mod identity;
pub(crate) mod numwant;
pub(crate) mod operator;
pub(crate) mod swarm;

use std::net::IpAddr;

use self::operator::Reaction;
use crate::case::{Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, Announced, Counts, counts};

/// A protocol in which peers announce themselves.
pub(crate) trait Protocol {
    type Client<'c>: Client;

    fn client<'c>(context: &'c Context<'c>) -> Checked<Self::Client<'c>>;

    /// Creates a client at this local address, which may not exist.
    fn client_at<'c>(context: &'c Context<'c>, source: IpAddr) -> Checked<Self::Client<'c>>;
}

/// A client of a tracker, whose peers leave on drop.
pub(crate) trait Client {
    fn announce(&self, announce: &Announce) -> Checked<Announced>;

    /// Announces something that the tracker may refuse or ignore. The tracker has processed it on return.
    fn try_announce(&self, announce: &Announce) -> Checked;

    /// Announces something that the tracker may refuse, and returns its reaction.
    fn react(&self, announce: &Announce) -> Checked<Reaction>;

    fn announce_all(&self, announces: &[Announce]) -> Checked<Vec<Announced>>;

    /// Scrapes torrents. The counts of a torrent that the tracker does not know are zeros.
    fn scrape(&self, info_hashes: &[[u8; 20]]) -> Checked<Vec<Counts>>;

    fn scrape_one(&self, info_hash: [u8; 20]) -> Checked<Counts> {
        Ok(self.scrape(&[info_hash])?.pop().unwrap_or_default())
    }

    /// Scrapes one torrent and fails the case unless it has these counts.
    fn ensure_scraped(
        &self,
        info_hash: [u8; 20],
        seeders: u32,
        leechers: u32,
        expected: impl Into<String>,
    ) -> Checked {
        let seen = self.scrape_one(info_hash)?;
        let is_expected = (seen.seeders, seen.leechers) == (seeders, leechers);
        ensure(is_expected, expected, counts(seen.seeders, seen.leechers))
    }
}
