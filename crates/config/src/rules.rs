//! What no single key can tell: values that are each in range and impossible together.

use crate::keys::Config;

/// Keys whose values contradict each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The full names of the keys, the one to change first.
    pub(crate) keys: &'static [&'static str],
    /// Why it cannot be, and what would be accepted.
    pub(crate) fault: String,
}

/// Bytes before the counts of a scrape reply, and of each count (BEP 15, "scrape").
const SCRAPE_HEAD_BYTES: u32 = 8;
const SCRAPE_ENTRY_BYTES: u32 = 12;

/// Bytes before the peers of an announce reply, and of an IPv4 peer (BEP 15, "announce").
const ANNOUNCE_HEAD_BYTES: u32 = 20;
const PEER_V4_BYTES: u32 = 6;

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
    let room = (config.udp.reply_bytes_max_v4 - ANNOUNCE_HEAD_BYTES) / PEER_V4_BYTES;
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
    let room = (reply_bytes_max - SCRAPE_HEAD_BYTES) / SCRAPE_ENTRY_BYTES;
    (config.scrape.hashes_max > room)
        .then(|| format!("the reply has no room for so many counts; hashes_max must be at most {room}"))
}
