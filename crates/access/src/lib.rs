//! The operator's rules: which torrents, networks and clients the tracker serves.
//!
//! This crate owns the tables of rules and the formats of the lists that they are built from. A table is immutable: a
//! change builds a new one while requests are served. Apart from [`fetch`], the crate must not use files or sockets,
//! and it uses no threads or clocks: texts come as bytes, and secrets as arguments. It only decides whether a rule
//! matches; `shoal-engine` asks it, for every protocol alike.
//!
//! Clients choose the keys that are looked up, so positions in tables depend on a secret ([`HashKey`]).
#![forbid(unsafe_code)]

pub mod budget;
pub mod clients;
pub mod faults;
pub mod fetch;
mod hash;
pub mod networks;
pub mod ports;
pub mod rules;
pub mod text;
pub mod token;
pub mod torrents;

use std::sync::Arc;

use clients::ClientLists;
pub use hash::HashKey;
use networks::NetworkTable;
use ports::PortSet;
use rules::RuleSet;
use torrents::TorrentLists;

/// All rules of a tracker. A kind of rule that the operator does not use is absent.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Which torrents are served.
    pub torrents: Option<Arc<TorrentLists>>,
    /// Which networks are served.
    pub networks: Option<Arc<NetworkTable>>,
    /// Serves all addresses but those of sources that have earned a ban.
    pub bans: Option<Arc<NetworkTable>>,
    /// Which clients are served.
    pub clients: Option<Arc<ClientLists>>,
    /// The ports that are never handed out.
    pub ports_deny: Option<Arc<PortSet>>,
    /// The rules about what requests say. Those about networks are in the table of networks.
    pub rules: Option<Arc<RuleSet>>,
}

/// The operator's words for a rule, by their place in the tables of one [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub(crate) ReasonPlace);

/// The place of a rule's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasonPlace {
    /// In a deny list of torrents.
    Torrent {
        /// The number of the table.
        table: u16,
        /// The number of the text.
        text: u32,
    },
    /// In the deny list of clients.
    Client {
        /// The number of the rule.
        rule: usize,
    },
    /// In a rule about what a request says.
    Rule {
        /// The number of the rule.
        rule: u8,
    },
    /// The names of the hosts that are served.
    Hosts,
}

impl Access {
    /// Returns whether there is no rule.
    pub const fn is_empty(&self) -> bool {
        self.torrents.is_none()
            && self.networks.is_none()
            && self.bans.is_none()
            && self.clients.is_none()
            && self.ports_deny.is_none()
            && self.rules.is_none()
    }

    /// Returns the operator's words, if `reason` is one of these rules.
    pub fn reason(&self, reason: Reason) -> Option<&str> {
        match reason.0 {
            ReasonPlace::Torrent { table, text } => self.torrents.as_ref()?.reason(table, text),
            ReasonPlace::Client { rule } => self.clients.as_ref()?.reason(rule),
            ReasonPlace::Rule { rule } => self.rules.as_ref()?.reason(rule),
            ReasonPlace::Hosts => Some(self.rules.as_ref()?.hosts_text()),
        }
    }
}
