//! Lists of networks: files and fetched contents.

use std::io;
use std::path::Path;

use shoal_access::HashKey;
use shoal_access::networks::{LIST_BYTES_MAX, Network, NetworkTable, parse};

use super::entries::{Body, Entries, Reading};
use super::fetches::{Fetched, UrlReading};
use super::file::{self, Capped};
use super::list::List;

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The networks of one source.
#[derive(Debug, Default)]
pub(super) struct Networks(Vec<Network>);

impl Entries for Networks {
    fn read(&mut self, path: &Path, key: &HashKey) -> io::Result<Option<Reading<Self>>> {
        let is_large = file::is_large(&file::open(path)?)?;
        if is_large { Ok(None) } else { Self::read_whole(path, key).map(Some) }
    }

    fn read_whole(path: &Path, key: &HashKey) -> io::Result<Reading<Self>> {
        let file = file::open(path)?;
        let mut reader = file::reader(&file, FILE_BYTES_MAX);
        let body = Body { text: &mut reader, media_type: None, bytes_max: LIST_BYTES_MAX };
        Self::parse(body, key, &mut Vec::new())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn wrap(reading: UrlReading<Self>) -> Fetched {
        Fetched::Networks(reading)
    }

    fn parse(body: Body<'_>, _: &HashKey, _: &mut Vec<String>) -> io::Result<Reading<Self>> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut Capped::new(body.text, FILE_BYTES_MAX), &mut bytes)?;
        let mut networks = Vec::new();
        let fault = parse(&bytes, body.bytes_max, &mut networks).err();
        Ok(Reading::new(Self(networks), fault.map(|fault| fault.to_string())))
    }
}

/// Returns the table that follows from both keys and the bans, or `None` if neither names a source and there is no ban.
pub(super) fn table(
    allow: &List<Networks>,
    deny: &List<Networks>,
    bans: impl Iterator<Item = Network>,
) -> Option<NetworkTable> {
    let mut bans = bans.peekable();
    if allow.is_empty() && deny.is_empty() && bans.peek().is_none() {
        return None;
    }
    let networks = |list: &List<Networks>| -> Vec<Network> {
        list.entries().flat_map(|source| source.0.iter().copied()).collect()
    };
    let (allow, mut deny) = ((!allow.is_empty()).then(|| networks(allow)), networks(deny));
    deny.extend(bans);
    let allowed = allow.as_ref().map_or("all".to_owned(), |allow| allow.len().to_string());
    tracing::info!(allowed, denied = deny.len(), "lists of networks");
    Some(NetworkTable::new(allow.as_deref(), &deny))
}
