//! What the body of a reply says (BEP 3, 7, 23 and 48), in whichever of the allowed forms.

use std::net::SocketAddr;

use super::bencode::{Dictionary, Value, read};
use super::response::Response;
use crate::case::{Checked, Unmet};
use crate::peer::{Announced, Counts, read_compact};

/// The dictionary in a response of status 200. That nothing stands behind it is a rule of its own.
pub(super) fn dictionary(response: &Response) -> Checked<Dictionary> {
    let expected = "status 200 and a bencoded dictionary";
    if response.status != 200 {
        return Err(unlike(expected, response.words()));
    }
    let read = read(&response.body).map(|(dictionary, _)| dictionary);
    read.map_err(|wrong| unlike(expected, format!("{wrong}, in {}", response.words())))
}

/// The dictionary of a reply that is not a refusal.
pub(super) fn accepted(response: &Response) -> Checked<Dictionary> {
    let dictionary = dictionary(response)?;
    if dictionary.value("failure reason").is_some() {
        return Err(unlike("a reply without failure reason", response.words()));
    }
    Ok(dictionary)
}

/// The answer to an announce. Counts that are left out are zeros here, because whether they are there is a rule of its
/// own.
pub(super) fn announced(response: &Response) -> Checked<Announced> {
    let dictionary = accepted(response)?;
    let told = |wrong: &str| unlike("the reply to an announce", format!("{wrong}, in {}", response.words()));
    let interval_s = number(&dictionary, "interval").ok_or_else(|| told("no interval"))?;
    let mut peers = peers(&dictionary, "peers", 4).map_err(|wrong| told(&wrong))?;
    peers.extend(self::peers(&dictionary, "peers6", 16).map_err(|wrong| told(&wrong))?);
    let leechers = number(&dictionary, "incomplete").unwrap_or_default();
    let seeders = number(&dictionary, "complete").unwrap_or_default();
    Ok(Announced { interval_s, leechers, seeders, peers })
}

/// The torrents in the answer to a scrape, by their info hashes.
pub(super) fn scraped(response: &Response) -> Checked<Vec<([u8; 20], Counts)>> {
    let dictionary = accepted(response)?;
    let told = |wrong: &str| unlike("the reply to a scrape", format!("{wrong}, in {}", response.words()));
    let Some(Value::Dictionary(files)) = dictionary.value("files") else {
        return Err(told("no dictionary called files"));
    };
    let entry = |(key, value): &(Vec<u8>, Value)| {
        let hash = <[u8; 20]>::try_from(&key[..]).map_err(|_| told("a key that is no info hash"))?;
        let Value::Dictionary(counts) = value else { return Err(told("an entry that is no dictionary")) };
        let count = |key| number(counts, key).ok_or_else(|| told(&format!("no number {key:?}")));
        let counts = Counts {
            seeders: count("complete")?,
            completed: count("downloaded")?,
            leechers: count("incomplete")?,
        };
        Ok((hash, counts))
    };
    files.0.iter().map(entry).collect()
}

fn number(dictionary: &Dictionary, key: &str) -> Option<u32> {
    u32::try_from(dictionary.integer(key)?).ok()
}

/// The peers of a key, in compact form (BEP 23, BEP 7) or as dictionaries (BEP 3).
fn peers(dictionary: &Dictionary, key: &str, ip_bytes: usize) -> Result<Vec<SocketAddr>, String> {
    match dictionary.value(key) {
        None => Ok(Vec::new()),
        Some(Value::Bytes(bytes)) => {
            let peers = compact(bytes, ip_bytes);
            peers.ok_or_else(|| {
                format!("{} bytes of {key}, which is not a multiple of {}", bytes.len(), ip_bytes + 2)
            })
        }
        Some(Value::List(values)) => {
            let peer =
                |value| original(value).ok_or_else(|| format!("an entry of {key} without ip and port"));
            values.iter().map(peer).collect()
        }
        Some(_) => Err(format!("{key} that is neither a string nor a list")),
    }
}

fn compact(bytes: &[u8], ip_bytes: usize) -> Option<Vec<SocketAddr>> {
    let (peers, rest) = (bytes.chunks_exact(ip_bytes + 2), bytes.len() % (ip_bytes + 2));
    (rest == 0).then_some(())?;
    peers.map(read_compact).collect()
}

fn original(value: &Value) -> Option<SocketAddr> {
    let Value::Dictionary(peer) = value else { return None };
    let ip = std::str::from_utf8(peer.bytes("ip")?).ok()?.parse().ok()?;
    Some(SocketAddr::new(ip, peer.integer("port")?.try_into().ok()?))
}

fn unlike(expected: &str, seen: String) -> Unmet {
    Unmet::Fail { expected: expected.to_owned(), seen }
}
