//! Tables of the owners of networks: files and fetched contents.
//!
//! Only the networks that rules name are kept. When the rules change what they name, everything is read again. Until then,
//! the former reading applies, as far as rules still name its networks.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use shoal_access::networks::{self, Network, NetworkTable, read_owners};
use shoal_access::rules::{NamedNetworks, Subject};
use shoal_access::torrents::Links;
use shoal_config::{AccessConfig, Config};

use super::entries::{Body, Build, Entries, Reading};
use super::fetches::{Fetched, UrlReading};
use super::list::List;
use super::networks as lists;
use super::networks::Networks;
use crate::clock;

/// Age at which the log warns about a table. Tables are made anew each month or more often.
const OLD_S: u64 = 400 * 24 * 3600;

/// The autonomous systems and countries that rules name. All threads that read tables share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Named(Arc<Mutex<Arc<NamedNetworks>>>);

impl Named {
    pub(super) fn get(&self) -> Arc<NamedNetworks> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the names. Returns whether they differ.
    pub(super) fn replace(&self, named: NamedNetworks) -> bool {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = **current != named;
        if differs {
            *current = Arc::new(named);
        }
        differs
    }
}

/// The networks of one table that rules name.
#[derive(Debug, Default)]
pub struct Owners {
    owners: networks::Owners,
    /// The names in the rules when the table was read.
    named: Arc<NamedNetworks>,
}

impl Owners {
    /// Returns whether the rules named the same when the table was read.
    pub(super) fn is_of(&self, named: &NamedNetworks) -> bool {
        *self.named == *named
    }
}

impl Entries for Owners {
    fn len(&self) -> usize {
        self.owners.networks.len()
    }

    fn len_before(&self, new: &Self) -> usize {
        // Other rules name other networks, of which there may be any number.
        if self.is_of(&new.named) { self.len() } else { 0 }
    }

    fn wrap(reading: UrlReading<Self>) -> Fetched {
        Fetched::Owners(reading)
    }

    fn parse(body: Body<'_>, build: &Build, _: &mut Links) -> io::Result<Reading<Self>> {
        let named = build.named.get();
        let mut owners = read_owners(body.text, body.bytes_max, &named, &build.budget)?;
        let age_s = owners.built_unix_s.map(|built_unix_s| clock::unix_s().saturating_sub(built_unix_s));
        if let Some(age_s) = age_s.filter(|age_s| *age_s > OLD_S) {
            let days = age_s / (24 * 3600);
            tracing::warn!(days, "a table of access.geoip is old; networks have changed their owners since");
        }
        let lines = std::mem::take(&mut owners.faults);
        Ok(Reading::new(Self { owners, named }, lines, None))
    }
}

/// Warns of rules about exempt networks, to which no rule applies.
pub(super) fn warn_of_exempt(config: &Config) {
    for rule in &config.access.rules {
        let Subject::Network(network) = *rule.subject() else { continue };
        let overlaps =
            |exempt: &&IpNet| exempt.contains(&network.first()) || network.contains(exempt.network());
        if let Some(exempt) = config.limits.exempt.iter().find(overlaps) {
            tracing::warn!(%rule, %exempt, "no rule applies to the networks of limits.exempt");
        }
    }
}

/// Returns the table of the lists, the bans and the rules, or `None` if there are none of them.
pub(super) fn table(
    (allow, deny, geoip): (&List<Networks>, &List<Networks>, &List<Owners>),
    bans: impl Iterator<Item = Network>,
    config: &AccessConfig,
    named: &NamedNetworks,
) -> Option<NetworkTable> {
    let of_tables = geoip.entries().flat_map(|source| {
        let numbers = named.renumbering(&source.named);
        let ruled = source.owners.networks.ruled();
        ruled.filter_map(move |(network, rule)| Some((network, numbers[usize::from(rule)]?)))
    });
    let mut ruled = NamedNetworks::networks(&config.rules).chain(of_tables).peekable();
    let has_rules = ruled.peek().is_some();
    if has_rules {
        let networks = geoip.entries().map(Entries::len).sum::<usize>();
        tracing::info!(networks, "networks of the rules about autonomous systems and countries");
    }
    lists::table(allow, deny, bans, has_rules.then_some(ruled))
}
