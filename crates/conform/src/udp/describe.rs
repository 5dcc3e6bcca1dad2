//! Descriptions of datagrams for the report.

use super::packet::{ANNOUNCE, CONNECT, ERROR, PROTOCOL_ID, SCRAPE, read_scraped, u32_at, u64_at};
use crate::peer::Announced;
use crate::trace::hex;

/// The number of peers or torrents that are listed.
const ITEMS_MAX: usize = 8;

pub(crate) fn request(bytes: &[u8]) -> String {
    let (Some(id), Some(action), Some(transaction_id)) =
        (u64_at(bytes, 0), u32_at(bytes, 8), u32_at(bytes, 12))
    else {
        return format!("{} bytes, too short for a request", bytes.len());
    };
    let kind = match action {
        CONNECT if id == PROTOCOL_ID => "connect".to_owned(),
        CONNECT => format!("connect with protocol id {id:#x}"),
        ANNOUNCE => format!("announce with connection id {id:#x}{}", announce(bytes)),
        SCRAPE => format!("scrape of {} info hashes with connection id {id:#x}", (bytes.len() - 16) / 20),
        other => format!("action {other} with connection id {id:#x}"),
    };
    format!("{kind}, transaction id {transaction_id:#x}, {} bytes", bytes.len())
}

fn announce(bytes: &[u8]) -> String {
    let (Some(hash), Some(left), Some(event), Some(numwant), Some(port)) =
        (bytes.get(16..36), u64_at(bytes, 64), u32_at(bytes, 80), u32_at(bytes, 92), bytes.get(96..98))
    else {
        return " (truncated)".to_owned();
    };
    let event = match event {
        0 => "none".to_owned(),
        1 => "completed".to_owned(),
        2 => "started".to_owned(),
        3 => "stopped".to_owned(),
        other => other.to_string(),
    };
    let port = u16::from_be_bytes([port[0], port[1]]);
    format!(
        ", info hash {}, left {}, event {event}, numwant {}, port {port}",
        hex(hash).replace(' ', ""),
        left.cast_signed(),
        numwant.cast_signed()
    )
}

/// Describes a datagram from the tracker to a client in whose family a peer has `peer_bytes` bytes.
pub(crate) fn reply(bytes: &[u8], peer_bytes: usize) -> String {
    let (Some(action), Some(transaction_id)) = (u32_at(bytes, 0), u32_at(bytes, 4)) else {
        return format!("{} bytes, too short for a reply", bytes.len());
    };
    let kind = match action {
        CONNECT => match u64_at(bytes, 8) {
            Some(id) => format!("connect reply with connection id {id:#x}"),
            None => "connect reply without a connection id".to_owned(),
        },
        ANNOUNCE => match Announced::read(bytes, peer_bytes) {
            Some(read) => {
                format!(
                    "announce reply: interval {} s, {}, {}",
                    read.interval_s,
                    read.counts(),
                    list("peers", &read.peers)
                )
            }
            None => format!("announce reply that is not a list of peers of {peer_bytes} bytes"),
        },
        SCRAPE => match read_scraped(bytes) {
            Some(counts) => {
                let triples: Vec<_> = counts
                    .iter()
                    .map(|counts| format!("{}/{}/{}", counts.seeders, counts.completed, counts.leechers))
                    .collect();
                format!("scrape reply (seeders/completed/leechers): {}", list("torrents", &triples))
            }
            None => "scrape reply that is not a list of entries of 12 bytes".to_owned(),
        },
        ERROR => format!("error {:?}", String::from_utf8_lossy(&bytes[8..])),
        other => format!("reply with unknown action {other}"),
    };
    format!("{kind}, transaction id {transaction_id:#x}, {} bytes", bytes.len())
}

fn list(label: &str, items: &[impl ToString]) -> String {
    let shown: Vec<String> = items.iter().take(ITEMS_MAX).map(ToString::to_string).collect();
    let more = if items.len() > ITEMS_MAX { ", …" } else { "" };
    format!("{} {label} [{}{more}]", items.len(), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::packet::{connect, scrape};
    use super::{reply, request};
    use crate::peer::Announce;

    #[test]
    fn requests_are_described() {
        assert_eq!(request(&connect(7)), "connect, transaction id 0x7, 16 bytes");
        let text = request(&Announce::leecher([0xab; 20], 1001).packet(1, 2));
        for word in ["connection id 0x1", "abababab", "left 1048576", "event none", "numwant -1", "port 1001"]
        {
            assert!(text.contains(word), "{text}");
        }
        assert!(request(&scrape(1, 2, &[[0; 20]; 3])).starts_with("scrape of 3 info hashes"));
        assert!(request(&[0; 50]).contains("protocol id 0x0"));
    }

    #[test]
    fn any_bytes_are_described_without_a_panic() {
        let mut rng = fastrand::Rng::with_seed(7);
        for length in 0..200 {
            let mut bytes = vec![0; length];
            for _ in 0..20 {
                rng.fill(&mut bytes);
                if let Some(last) = bytes.get_mut(..4) {
                    last.copy_from_slice(&rng.u32(0..6).to_be_bytes());
                }
                assert!(!reply(&bytes, 6).is_empty() && !reply(&bytes, 18).is_empty());
                if let Some(action) = bytes.get_mut(8..12) {
                    action.copy_from_slice(&rng.u32(0..6).to_be_bytes());
                }
                assert!(!request(&bytes).is_empty());
            }
        }
    }
}
