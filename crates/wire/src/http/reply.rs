//! Bencoded replies, written straight into the bytes to be sent.
//!
//! Dictionaries have their keys in order, as BEP 3 asks for. Appends to a vector that the caller keeps, so that
//! nothing is allocated once it has grown to the size of a reply. How a client reads them is in
//! [`received`](super::received).

use core::net::IpAddr;
use std::io::Write as _;

use shoal_types::{InfoHash, PeerV4, PeerV6};
use zerocopy::IntoBytes;

use super::number;
use super::query::PeersForm;

/// Longest text of an address: an IPv6 address with an IPv4 address at its end.
const ADDRESS_BYTES_MAX: usize = 45;

/// The answer to an announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnounceReply<'a> {
    /// Peers that have everything.
    pub complete: u32,
    /// Downloads completed.
    pub downloaded: u32,
    /// Peers that still download.
    pub incomplete: u32,
    /// Seconds until the next regular announce.
    pub interval_s: u32,
    /// Seconds before which no announce is welcome.
    pub min_interval_s: Option<u32>,
    /// Where the client was seen (BEP 24).
    pub external_ip: Option<IpAddr>,
    /// Peers at IPv4 addresses. The key is there even without any, because µTorrent fails on a reply without it.
    pub peers_v4: &'a [PeerV4],
    /// Peers at IPv6 addresses. The key `peers6` (BEP 7) is there only where there are any: whoever knows it takes its
    /// absence for an empty one, whatever family he asks by.
    pub peers_v6: &'a [PeerV6],
    /// How peers are written. Dictionaries name peers of both families in `peers`, without ids, which are not kept.
    pub form: PeersForm,
    /// Something that the user should read.
    pub warning: Option<&'a str>,
    /// What the client shall send with its next announce.
    pub tracker_id: Option<&'a str>,
}

/// The counts of one torrent (BEP 48).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrapeFile {
    /// Peers that have everything.
    pub complete: u32,
    /// Downloads completed.
    pub downloaded: u32,
    /// Peers that still download.
    pub incomplete: u32,
}

/// When a refused client may come again (BEP 31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryIn {
    /// After that many minutes.
    Minutes(u32),
    /// Not at all.
    Never,
}

impl AnnounceReply<'_> {
    /// Appends the reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"d8:complete");
        push_integer(self.complete, out);
        out.extend_from_slice(b"10:downloaded");
        push_integer(self.downloaded, out);
        match self.external_ip {
            Some(IpAddr::V4(ip)) => push_entry(b"11:external ip", &ip.octets(), out),
            Some(IpAddr::V6(ip)) => push_entry(b"11:external ip", &ip.octets(), out),
            None => {}
        }
        out.extend_from_slice(b"10:incomplete");
        push_integer(self.incomplete, out);
        out.extend_from_slice(b"8:interval");
        push_integer(self.interval_s, out);
        if let Some(min_interval_s) = self.min_interval_s {
            out.extend_from_slice(b"12:min interval");
            push_integer(min_interval_s, out);
        }
        match self.form {
            PeersForm::Compact => self.push_compact(out),
            PeersForm::Dictionaries => self.push_dictionaries(out),
        }
        if let Some(tracker_id) = self.tracker_id {
            push_entry(b"10:tracker id", tracker_id.as_bytes(), out);
        }
        if let Some(warning) = self.warning {
            push_entry(b"15:warning message", warning.as_bytes(), out);
        }
        out.push(b'e');
    }

    fn push_compact(&self, out: &mut Vec<u8>) {
        push_entry(b"5:peers", self.peers_v4.as_bytes(), out);
        if !self.peers_v6.is_empty() {
            push_entry(b"6:peers6", self.peers_v6.as_bytes(), out);
        }
    }

    fn push_dictionaries(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"5:peersl");
        for peer in self.peers_v4.iter().map(|peer| peer.addr()) {
            push_peer((*peer.ip()).into(), peer.port(), out);
        }
        for peer in self.peers_v6.iter().map(|peer| peer.addr()) {
            push_peer((*peer.ip()).into(), peer.port(), out);
        }
        out.push(b'e');
    }
}

/// Appends a refusal: a reason in plain words, and when to come again. BEP 3: "no other keys are required", so the
/// rule that `peers` is always there is one for replies that hold anything.
pub fn failure(reason: &str, retry_in: Option<RetryIn>, out: &mut Vec<u8>) {
    push_entry(b"d14:failure reason", reason.as_bytes(), out);
    match retry_in {
        Some(RetryIn::Minutes(minutes)) => {
            out.extend_from_slice(b"8:retry in");
            push_integer(minutes, out);
        }
        Some(RetryIn::Never) => out.extend_from_slice(b"8:retry in5:never"),
        None => {}
    }
    out.push(b'e');
}

/// Appends what stands before the entries of a scrape reply.
pub fn scrape_begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"d5:filesd");
}

/// Appends one entry of a scrape reply. Bencoding wants the info hashes in ascending order; no client insists on it,
/// so a scrape of everything may come in the order of the store.
pub fn scrape_file(info_hash: InfoHash, file: ScrapeFile, out: &mut Vec<u8>) {
    push_entry(b"", &info_hash.0, out);
    out.extend_from_slice(b"d8:complete");
    push_integer(file.complete, out);
    out.extend_from_slice(b"10:downloaded");
    push_integer(file.downloaded, out);
    out.extend_from_slice(b"10:incomplete");
    push_integer(file.incomplete, out);
    out.push(b'e');
}

/// Appends what stands behind the entries of a scrape reply; with `min_request_interval` among the `flags` (a habit
/// of old trackers that clients still read) where one is given.
pub fn scrape_end(min_request_interval_s: Option<u32>, out: &mut Vec<u8>) {
    out.push(b'e');
    if let Some(interval_s) = min_request_interval_s {
        out.extend_from_slice(b"5:flagsd20:min_request_interval");
        push_integer(interval_s, out);
        out.push(b'e');
    }
    out.push(b'e');
}

fn push_integer(number: u32, out: &mut Vec<u8>) {
    out.push(b'i');
    number::push(number.into(), out);
    out.push(b'e');
}

/// Appends a key that is encoded already and a string.
fn push_entry(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    number::push(u64::try_from(value.len()).unwrap_or(u64::MAX), out);
    out.push(b':');
    out.extend_from_slice(value);
}

fn push_peer(ip: IpAddr, port: u16, out: &mut Vec<u8>) {
    let mut text = [0; ADDRESS_BYTES_MAX];
    let mut room = &mut text[..];
    write!(room, "{ip}").expect("room for the longest address");
    let text_bytes = ADDRESS_BYTES_MAX - room.len();
    push_entry(b"d2:ip", &text[..text_bytes], out);
    out.extend_from_slice(b"4:port");
    push_integer(port.into(), out);
    out.push(b'e');
}
