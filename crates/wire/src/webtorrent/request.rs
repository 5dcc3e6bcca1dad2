//! Messages of clients, encoded for load generators. [`decode`](super::decode) decodes them for trackers.

use shoal_base::{Event, InfoHash, PeerId};

use super::text::{push_binary, push_escaped_binary};
use crate::http::number;

/// The style of binary strings. Clients use either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Literal characters in UTF-8, as `JSON.stringify` writes them.
    #[default]
    Raw,
    /// Escapes of the form `\u00XX` for everything except plain ASCII.
    Escaped,
}

/// An announce.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceRequest<'r> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer id.
    pub peer_id: PeerId,
    /// The event. An update is written without the key.
    pub event: Event,
    /// The number of bytes that the peer still needs; `null` if it is unknown.
    pub left_bytes: Option<u64>,
    /// The number of peers wanted; omitted if `None`.
    pub numwant: Option<u32>,
    /// The offers, one for each peer to which the client would connect.
    pub offers: &'r [OfferRequest<'r>],
}

/// An offer of an announce.
#[derive(Clone, Copy, Debug)]
pub struct OfferRequest<'r> {
    /// The id that the offerer chose, of any bytes.
    pub offer_id: &'r [u8],
    /// The offer, a JSON object.
    pub offer: &'r [u8],
}

/// An answer to an offer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerRequest<'r> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The answerer.
    pub peer_id: PeerId,
    /// The offerer.
    pub to_peer_id: PeerId,
    /// The id of the answered offer, of any bytes.
    pub offer_id: &'r [u8],
    /// The answer, a JSON object.
    pub answer: &'r [u8],
}

impl AnnounceRequest<'_> {
    /// Appends the message to `out`.
    pub fn encode(&self, style: Style, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"action":"announce","info_hash":"#);
        style.push(&self.info_hash.0, out);
        out.extend_from_slice(br#","peer_id":"#);
        style.push(&self.peer_id.0, out);
        out.extend_from_slice(br#","uploaded":0,"downloaded":0,"left":"#);
        match self.left_bytes {
            Some(left_bytes) => number::push(left_bytes, out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(match self.event {
            Event::Update => b"",
            Event::Completed => br#","event":"completed""#,
            Event::Started => br#","event":"started""#,
            Event::Stopped => br#","event":"stopped""#,
        });
        if let Some(numwant) = self.numwant {
            out.extend_from_slice(br#","numwant":"#);
            number::push(numwant.into(), out);
        }
        out.extend_from_slice(br#","offers":["#);
        for (index, offer) in self.offers.iter().enumerate() {
            push_separator(index, out);
            out.extend_from_slice(br#"{"offer":"#);
            out.extend_from_slice(offer.offer);
            out.extend_from_slice(br#","offer_id":"#);
            style.push(offer.offer_id, out);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
    }
}

impl AnswerRequest<'_> {
    /// Appends the message to `out`.
    pub fn encode(&self, style: Style, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"action":"announce","info_hash":"#);
        style.push(&self.info_hash.0, out);
        out.extend_from_slice(br#","peer_id":"#);
        style.push(&self.peer_id.0, out);
        out.extend_from_slice(br#","to_peer_id":"#);
        style.push(&self.to_peer_id.0, out);
        out.extend_from_slice(br#","answer":"#);
        out.extend_from_slice(self.answer);
        out.extend_from_slice(br#","offer_id":"#);
        style.push(self.offer_id, out);
        out.push(b'}');
    }
}

/// Appends a scrape of these torrents, always as an array.
pub fn scrape(info_hashes: &[InfoHash], style: Style, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"action":"scrape","info_hash":["#);
    for (index, info_hash) in info_hashes.iter().enumerate() {
        push_separator(index, out);
        style.push(&info_hash.0, out);
    }
    out.extend_from_slice(b"]}");
}

impl Style {
    fn push(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Raw => push_binary(bytes, out),
            Self::Escaped => push_escaped_binary(bytes, out),
        }
    }
}

fn push_separator(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}
