//! Messages to clients. Each function appends a JSON object, or its part of one.
//!
//! Every message contains `action`, except a refusal whose torrent is unknown. The client of webtorrent.io treats a
//! message without it as an error of the socket, and reconnects for all its torrents. But it looks up the torrent of
//! every announce, and throws if that is missing.

use shoal_base::{InfoHash, PeerId};

use super::text::{push_text, push_twenty};
use super::{Action, Answer, Offer};
use crate::http::number;

/// Appends the reply to an announce.
pub fn announce(info_hash: &InfoHash, interval_s: u32, complete: u32, incomplete: u32, out: &mut Vec<u8>) {
    begin_announce(info_hash, out);
    push_count(r#","interval":"#, interval_s, out);
    push_count(r#","complete":"#, complete, out);
    push_count(r#","incomplete":"#, incomplete, out);
    out.push(b'}');
}

/// Appends an offer of `peer_id` to the recipient.
pub fn offer(info_hash: &InfoHash, peer_id: &PeerId, offer: &Offer<'_>, out: &mut Vec<u8>) {
    begin_relayed(info_hash, peer_id, offer.offer_id.raw(), out);
    end_relayed(r#","offer":"#, offer.offer, out);
}

/// Appends an answer of `peer_id` to the recipient.
pub fn answer(info_hash: &InfoHash, peer_id: &PeerId, answer: &Answer<'_>, out: &mut Vec<u8>) {
    begin_relayed(info_hash, peer_id, answer.offer_id.raw(), out);
    end_relayed(r#","answer":"#, answer.answer, out);
}

/// Appends the start of a scrape reply, up to its torrents.
pub fn scrape_begin(out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"action":"scrape","files":{"#);
}

/// Appends the counts of one torrent after [`scrape_begin`] or after another torrent.
pub fn scrape_file(info_hash: &InfoHash, complete: u32, incomplete: u32, downloaded: u32, out: &mut Vec<u8>) {
    if out.ends_with(b"}") {
        out.push(b',');
    }
    push_twenty(&info_hash.0, out);
    push_count(r#":{"complete":"#, complete, out);
    push_count(r#","incomplete":"#, incomplete, out);
    push_count(r#","downloaded":"#, downloaded, out);
    out.push(b'}');
}

/// Appends the end of a scrape reply, after its torrents.
pub fn scrape_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}}");
}

/// Appends a refusal. It names its action if that is known, but never an announce without a torrent.
pub fn failure(action: Option<Action>, info_hash: Option<&InfoHash>, reason: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    if let Some(action) = action.filter(|&action| action == Action::Scrape || info_hash.is_some()) {
        out.extend_from_slice(br#""action":""#);
        out.extend_from_slice(action.name().as_bytes());
        out.extend_from_slice(b"\",");
    }
    if let Some(info_hash) = info_hash {
        out.extend_from_slice(br#""info_hash":"#);
        push_twenty(&info_hash.0, out);
        out.push(b',');
    }
    out.extend_from_slice(br#""failure reason":"#);
    push_text(reason, out);
    out.push(b'}');
}

fn begin_announce(info_hash: &InfoHash, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"action":"announce","info_hash":"#);
    push_twenty(&info_hash.0, out);
}

fn begin_relayed(info_hash: &InfoHash, peer_id: &PeerId, offer_id: &[u8], out: &mut Vec<u8>) {
    begin_announce(info_hash, out);
    out.extend_from_slice(br#","peer_id":"#);
    push_twenty(&peer_id.0, out);
    out.extend_from_slice(br#","offer_id":"#);
    out.extend_from_slice(offer_id);
}

fn end_relayed(key: &str, object: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(object);
    out.push(b'}');
}

fn push_count(key: &str, count: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(key.as_bytes());
    number::push(count.into(), out);
}
