//! What no single key can tell: values that are each in range and impossible together.

use shoal_protocol::PeerV4;
use shoal_wire::udp::{AnnounceHead, ScrapeEntry, ScrapeHead};

use crate::keys::Config;

/// Keys whose values contradict each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The full names of the keys, the one to change first.
    pub(crate) keys: &'static [&'static str],
    /// Why it cannot be, and what would be accepted.
    pub(crate) fault: String,
}

/// Every contradiction of `config`.
pub(crate) fn check(config: &Config) -> Vec<Conflict> {
    let rules =
        [listen_once, numwant_order, timeout_after_interval, peers_fit, scrape_fits_v4, scrape_fits_v6];
    rules.iter().filter_map(|rule| rule(config)).collect()
}

fn listen_once(config: &Config) -> Option<Conflict> {
    let addresses = &config.udp.listen;
    let twice = addresses
        .iter()
        .enumerate()
        .find(|(index, address)| address.port() != 0 && addresses[..*index].contains(address));
    twice.map(|(_, address)| Conflict {
        keys: &["udp.listen"],
        fault: format!("{address} is listed twice; list each address once"),
    })
}

fn numwant_order(config: &Config) -> Option<Conflict> {
    let most = config.announce.numwant_max;
    (config.announce.numwant_default > most).then(|| Conflict {
        keys: &["announce.numwant_default", "announce.numwant_max"],
        fault: format!("the default exceeds the maximum; numwant_default must be at most {most}"),
    })
}

fn timeout_after_interval(config: &Config) -> Option<Conflict> {
    let longest_s = config.announce.interval_s + config.announce.interval_jitter_s;
    (config.announce.peer_timeout_s <= longest_s).then(|| Conflict {
        keys: &["announce.peer_timeout_s", "announce.interval_s", "announce.interval_jitter_s"],
        fault: format!(
            "peers would be forgotten before they announce again; peer_timeout_s must be more than {longest_s}"
        ),
    })
}

fn peers_fit(config: &Config) -> Option<Conflict> {
    let room = entries_that_fit::<AnnounceHead, PeerV4>(config.udp.reply_bytes_max_v4);
    (config.announce.numwant_max > room).then(|| Conflict {
        keys: &["announce.numwant_max", "udp.reply_bytes_max_v4"],
        fault: format!("the reply has no room for so many peers; numwant_max must be at most {room}"),
    })
}

fn scrape_fits_v4(config: &Config) -> Option<Conflict> {
    let fault = scrape_fault(config, config.udp.reply_bytes_max_v4)?;
    Some(Conflict { keys: &["scrape.hashes_max", "udp.reply_bytes_max_v4"], fault })
}

fn scrape_fits_v6(config: &Config) -> Option<Conflict> {
    let fault = scrape_fault(config, config.udp.reply_bytes_max_v6)?;
    Some(Conflict { keys: &["scrape.hashes_max", "udp.reply_bytes_max_v6"], fault })
}

fn scrape_fault(config: &Config, reply_bytes_max: u32) -> Option<String> {
    let room = entries_that_fit::<ScrapeHead, ScrapeEntry>(reply_bytes_max);
    (config.scrape.hashes_max > room)
        .then(|| format!("the reply has no room for so many counts; hashes_max must be at most {room}"))
}

/// How many entries a reply holds behind its head.
fn entries_that_fit<Head, Entry>(reply_bytes_max: u32) -> u32 {
    const { assert!(size_of::<Head>() < 100 && size_of::<Entry>() < 100, "so that the casts lose nothing") };
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let (head_bytes, entry_bytes) = (size_of::<Head>() as u32, size_of::<Entry>() as u32);
    reply_bytes_max.saturating_sub(head_bytes) / entry_bytes
}
