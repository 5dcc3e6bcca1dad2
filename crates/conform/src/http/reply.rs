//! Decodes the body of a reply (BEP 3, 7, 23 and 48) in any of the allowed forms.

use std::net::SocketAddr;

use super::bencode::{Dictionary, Value, read};
use super::response::Response;
use crate::case::{Checked, Unmet};
use crate::peer::{Announced, Counts, read_compact};

/// Returns the dictionary in a response with status 200. Another rule requires that nothing follows it.
pub(super) fn dictionary(response: &Response) -> Checked<Dictionary> {
    let expected = "status 200 and a bencoded dictionary";
    if response.status != 200 {
        return Err(unlike(expected, response.describe()));
    }
    let read = read(&response.body).map(|(dictionary, _)| dictionary);
    read.map_err(|wrong| unlike(expected, format!("{wrong}, in {}", response.describe())))
}

/// Returns the dictionary of a reply that is not a refusal.
pub(super) fn accepted(response: &Response) -> Checked<Dictionary> {
    let dictionary = dictionary(response)?;
    if dictionary.value("failure reason").is_some() {
        return Err(unlike("a reply without a failure reason", response.describe()));
    }
    Ok(dictionary)
}

/// Decodes the reply to an announce. Missing counts are zeros, because another rule requires them.
pub(super) fn announced(response: &Response) -> Checked<Announced> {
    let dictionary = accepted(response)?;
    let fail =
        |wrong: &str| unlike("the reply to an announce", format!("{wrong}, in {}", response.describe()));
    let interval_s = number(&dictionary, "interval").ok_or_else(|| fail("no interval"))?;
    let mut peers = peers(&dictionary, "peers", 6).map_err(|wrong| fail(&wrong))?;
    peers.extend(self::peers(&dictionary, "peers6", 18).map_err(|wrong| fail(&wrong))?);
    let leechers = number(&dictionary, "incomplete").unwrap_or_default();
    let seeders = number(&dictionary, "complete").unwrap_or_default();
    Ok(Announced { interval_s, leechers, seeders, peers })
}

/// How much a decoded reply has to agree with BEP 48.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// Entirely, for the rule about the layout itself.
    Exact,
    /// As far as the meaning is clear, for all other rules: one deviation of the layout must not hide the rest.
    Lenient,
}

/// Decodes the reply to a scrape: info hashes and their counts.
///
/// [`Strictness::Lenient`] reads a missing count as zero (chihaya sends no `downloaded`), and an info hash whose bytes were
/// encoded as the characters of the same numbers in UTF-8 (as bittorrent-tracker does).
pub(super) fn scraped(response: &Response, strictness: Strictness) -> Checked<Vec<([u8; 20], Counts)>> {
    let is_lenient = strictness == Strictness::Lenient;
    let dictionary = accepted(response)?;
    let fail = |wrong: &str| unlike("the reply to a scrape", format!("{wrong}, in {}", response.describe()));
    let Some(Value::Dictionary(files)) = dictionary.value("files") else {
        return Err(fail("no dictionary called files"));
    };
    let entry = |(key, value): &(Vec<u8>, Value)| {
        let hash = <[u8; 20]>::try_from(&key[..]).ok().or_else(|| of_characters(key).filter(|_| is_lenient));
        let hash = hash.ok_or_else(|| fail("a key that is not an info hash"))?;
        let Value::Dictionary(counts) = value else { return Err(fail("an entry that is not a dictionary")) };
        let count = |key| {
            let found = number(counts, key).or_else(|| is_lenient.then_some(0));
            found.ok_or_else(|| fail(&format!("no number {key:?}")))
        };
        let counts = Counts {
            seeders: count("complete")?,
            completed: count("downloaded")?,
            leechers: count("incomplete")?,
        };
        Ok((hash, counts))
    };
    files.0.iter().map(entry).collect()
}

/// Returns the info hash whose bytes are the numbers of these characters in UTF-8.
fn of_characters(key: &[u8]) -> Option<[u8; 20]> {
    let characters = std::str::from_utf8(key).ok()?.chars();
    let bytes: Option<Vec<u8>> =
        characters.map(|character| u8::try_from(u32::from(character)).ok()).collect();
    bytes?.try_into().ok()
}

fn number(dictionary: &Dictionary, key: &str) -> Option<u32> {
    u32::try_from(dictionary.integer(key)?).ok()
}

/// Decodes the peers of a key, in compact form (BEP 23, BEP 7) or as dictionaries (BEP 3).
fn peers(dictionary: &Dictionary, key: &str, peer_bytes: usize) -> Result<Vec<SocketAddr>, String> {
    match dictionary.value(key) {
        None => Ok(Vec::new()),
        Some(Value::Bytes(bytes)) => {
            let peers: Option<Vec<SocketAddr>> = bytes.chunks(peer_bytes).map(read_compact).collect();
            peers.filter(|_| bytes.len() % peer_bytes == 0).ok_or_else(|| {
                format!("{} bytes of {key}, which is not a multiple of {peer_bytes}", bytes.len())
            })
        }
        Some(Value::List(values)) => {
            let peer = |value: &Value| {
                let Value::Dictionary(peer) = value else { return None };
                let ip = std::str::from_utf8(peer.bytes("ip")?).ok()?.parse().ok()?;
                Some(SocketAddr::new(ip, peer.integer("port")?.try_into().ok()?))
            };
            let peers: Option<Vec<SocketAddr>> = values.iter().map(peer).collect();
            peers.ok_or_else(|| format!("an entry of {key} without ip and port"))
        }
        Some(_) => Err(format!("{key} that is neither a string nor a list")),
    }
}

fn unlike(expected: &str, seen: String) -> Unmet {
    Unmet::Fail { expected: expected.to_owned(), seen }
}
