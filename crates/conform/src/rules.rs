//! Rules that hold in every protocol, each once: a case of a protocol names its rule with the protocol to check it by.
//!
//! What is the business of one protocol alone, its layout and its framing, is not here.

pub(crate) mod event;
pub(crate) mod identity;
pub(crate) mod numwant;
pub(crate) mod swarm;

use crate::case::Checked;
use crate::context::Context;
use crate::peer::{Announce, Announced, Counts};

/// A protocol in which peers announce themselves.
pub(crate) trait Protocol {
    /// Who speaks it.
    type Client<'c>: Client;

    /// A client at the usual local address.
    fn client<'c>(context: &'c Context<'c>) -> Checked<Self::Client<'c>>;

    /// A client at the local address number `index`; there may be no such address.
    fn client_at_source<'c>(context: &'c Context<'c>, index: usize) -> Checked<Self::Client<'c>>;
}

/// A client of a tracker, whose peers leave on drop.
pub(crate) trait Client {
    /// Announces.
    fn announce(&self, announce: &Announce) -> Checked<Announced>;

    /// Announces what a tracker may refuse or ignore. Whatever the tracker does about it, it has done on return.
    fn announce_in_vain(&self, announce: &Announce) -> Checked;

    /// Announces many. Returns the answers in the same order.
    fn announce_all(&self, announces: &[Announce]) -> Checked<Vec<Announced>>;

    /// Asks for the counts of torrents. Those of a torrent that the tracker does not know are zeros.
    fn scrape(&self, info_hashes: &[[u8; 20]]) -> Checked<Vec<Counts>>;

    /// Asks for the counts of one torrent.
    fn scrape_one(&self, info_hash: [u8; 20]) -> Checked<Counts> {
        Ok(self.scrape(&[info_hash])?.pop().unwrap_or_default())
    }
}
