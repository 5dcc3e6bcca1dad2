//! The peers of a sample of torrents, counted by scrapes over UDP.
//!
//! The load announces to torrents with even numbers; the sample has odd ones.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use shoal_load::info_hash;
use shoal_testkit::client::udp::{Client, Refused};

/// Torrents of a scrape: fewer than the 74 of BEP 15, for trackers that answer fewer.
const HASHES: usize = 50;

/// Timeout of a request, and how often it is sent.
const TIMEOUT: Duration = Duration::from_millis(500);
const ATTEMPTS: usize = 6;

/// The address of the client.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 4, 1));

/// A sample of torrents.
#[derive(Debug)]
pub(crate) struct Sample {
    target: SocketAddr,
    hashes: Vec<[u8; 20]>,
}

impl Sample {
    /// Returns at most `most` of the torrents with odd numbers, evenly spread. They include the first one, which is the
    /// most popular of them.
    pub(crate) fn new(target: SocketAddr, seed: u64, torrents: u32, most: u32) -> Self {
        let odd = torrents / 2;
        let count = odd.min(most);
        let number = |index: u32| u64::from(index) * u64::from(odd) / u64::from(count.max(1)) * 2 + 1;
        let hash = |index| info_hash(seed, u32::try_from(number(index)).unwrap_or(1)).0;
        Self { target, hashes: (0..count).map(hash).collect() }
    }

    /// Returns the number of torrents.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Counts the peers now.
    ///
    /// # Errors
    /// Returns an error, as a sentence, if the tracker does not answer or refuses.
    pub(crate) fn count(&self) -> Result<u64, String> {
        if self.hashes.is_empty() {
            return Ok(0);
        }
        let client = Client::bind(CLIENT, self.target, TIMEOUT, 1);
        let client = client.map_err(|error| format!("no socket for scrapes: {error}"))?;
        self.hashes.chunks(HASHES).map(|hashes| count(&client, hashes)).sum()
    }
}

/// Counts the peers of a few torrents.
fn count(client: &Client, hashes: &[[u8; 20]]) -> Result<u64, String> {
    let mut refusal = None;
    for _ in 0..ATTEMPTS {
        // The tracker may have forgotten an earlier connection id.
        match client.connect().and_then(|_| client.scrape(hashes)) {
            Ok(counts) if counts.len() == hashes.len() => {
                return Ok(counts.iter().map(|counts| u64::from(counts.members())).sum());
            }
            Ok(_) => {}
            Err(error) => refusal = error.downcast().ok().or(refusal),
        }
    }
    Err(refusal.map_or_else(
        || "scrapes were not answered".to_owned(),
        |Refused(reason)| format!("a scrape was refused: {reason}"),
    ))
}
