//! Lists of networks: files and fetched contents.

use std::io;

use shoal_access::faults::Faults;
use shoal_access::networks::{Network, NetworkList, NetworkTable, read_networks};
use shoal_access::torrents::Links;

use super::entries::{Body, Build, Entries, Reading};
use super::fetches::{Fetched, UrlReading};
use super::list::List;

/// The networks of one source.
#[derive(Debug, Default)]
pub struct Networks(NetworkList);

impl Entries for Networks {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn wrap(reading: UrlReading<Self>) -> Fetched {
        Fetched::Networks(reading)
    }

    fn parse(body: Body<'_>, build: &Build, _: &mut Links) -> io::Result<Reading<Self>> {
        let (mut networks, mut lines) = (NetworkList::within(&build.budget), Faults::default());
        read_networks(body.text, body.bytes_max, &mut networks, &mut lines)?;
        Ok(Reading::new(Self(networks), lines, None))
    }
}

/// Returns the table of both keys, the bans and the networks of rules, or `None` if there are neither sources nor bans
/// nor rules.
pub(super) fn table(
    allow: &List<Networks>,
    deny: &List<Networks>,
    bans: impl Iterator<Item = Network>,
    ruled: Option<impl Iterator<Item = (Network, u8)>>,
) -> Option<NetworkTable> {
    let mut bans = bans.peekable();
    if allow.is_empty() && deny.is_empty() && bans.peek().is_none() && ruled.is_none() {
        return None;
    }
    let sum = |list: &List<Networks>| list.entries().map(Entries::len).sum::<usize>();
    let allowed = if allow.is_empty() { "all".to_owned() } else { sum(allow).to_string() };
    let ruled = ruled.into_iter().flatten();
    let allow_list = (!allow.is_empty()).then(|| networks(allow));
    let table = NetworkTable::with_rules(allow_list, networks(deny).chain(bans), ruled);
    tracing::info!(allowed, denied = sum(deny), "lists of networks");
    Some(table)
}

fn networks(list: &List<Networks>) -> impl Iterator<Item = Network> {
    list.entries().flat_map(|source| source.0.iter())
}
