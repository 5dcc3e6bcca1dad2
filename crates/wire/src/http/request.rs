//! Requests, encoded for clients.
//!
//! A load generator encodes a request once and then patches the values that differ from peer to peer. These values
//! therefore have a fixed width: every byte of an info hash and a peer id is escaped, and a port has five digits, with
//! leading zeros. Different values of the other parameters (event, bytes left, numwant) need a new request.

use shoal_base::{Event, InfoHash, PeerId};

use super::percent::{ESCAPE_BYTES, escape};
use super::query::PeersForm;
use super::{Version, number};

/// The length of an info hash or a peer id with every byte escaped.
const ID_BYTES: usize = 20 * ESCAPE_BYTES;
const PORT_BYTES: usize = 5;
const INFO_HASH_KEY: &[u8] = b"info_hash=";

/// The destination of a request and its header fields.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The path, such as `/announce`.
    pub path: &'a str,
    /// The host, with its port unless it is the default of the scheme.
    pub host: &'a str,
    /// The version of the request.
    pub version: Version,
    /// Whether the connection stays open.
    pub keep_alive: bool,
    /// Additional fields, such as `User-Agent`.
    pub fields: &'a [(&'a str, &'a str)],
}

/// An announce to encode.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceRequest {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer id.
    pub peer_id: PeerId,
    /// The port on which the peer listens.
    pub port: u16,
    /// The number of bytes that the peer still needs.
    pub left_bytes: u64,
    /// The event.
    pub event: Event,
    /// The number of peers wanted; omitted if `None`.
    pub numwant: Option<u32>,
    /// The form of the peers in the reply.
    pub form: PeersForm,
}

/// The positions of the values in an encoded announce that can be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceSlots {
    info_hash: usize,
    peer_id: usize,
    port: usize,
}

/// The positions of the info hashes in an encoded scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeSlots {
    first: usize,
    count: usize,
}

impl AnnounceRequest {
    /// Appends the request. Returns the positions to patch, relative to the start of the request.
    pub fn encode(&self, target: &Target<'_>, out: &mut Vec<u8>) -> AnnounceSlots {
        let start = out.len();
        push_line_start(target, out);
        out.extend_from_slice(INFO_HASH_KEY);
        let info_hash = out.len() - start;
        out.extend_from_slice(&[0; ID_BYTES]);
        out.extend_from_slice(b"&peer_id=");
        let peer_id = out.len() - start;
        out.extend_from_slice(&[0; ID_BYTES]);
        out.extend_from_slice(b"&port=");
        let port = out.len() - start;
        out.extend_from_slice(&[0; PORT_BYTES]);
        out.extend_from_slice(b"&uploaded=0&downloaded=0&left=");
        number::push(self.left_bytes, out);
        out.extend_from_slice(match self.form {
            PeersForm::Compact => b"&compact=1",
            PeersForm::Dictionaries => b"&compact=0",
        });
        if let Some(numwant) = self.numwant {
            out.extend_from_slice(b"&numwant=");
            number::push(numwant.into(), out);
        }
        out.extend_from_slice(match self.event {
            Event::Update => b"",
            Event::Started => b"&event=started",
            Event::Completed => b"&event=completed",
            Event::Stopped => b"&event=stopped",
        });
        push_line_end(target, out);
        let slots = AnnounceSlots { info_hash, peer_id, port };
        let request = &mut out[start..];
        slots.set_info_hash(request, self.info_hash);
        slots.set_peer_id(request, self.peer_id);
        slots.set_port(request, self.port);
        slots
    }
}

impl AnnounceSlots {
    /// Sets the info hash.
    ///
    /// # Panics
    /// Panics if `request` is shorter than the encoded request, like the other setters.
    pub fn set_info_hash(&self, request: &mut [u8], info_hash: InfoHash) {
        put_id(&info_hash.0, &mut request[self.info_hash..][..ID_BYTES]);
    }

    /// Sets the peer id.
    pub fn set_peer_id(&self, request: &mut [u8], peer_id: PeerId) {
        put_id(&peer_id.0, &mut request[self.peer_id..][..ID_BYTES]);
    }

    /// Sets the port.
    pub fn set_port(&self, request: &mut [u8], port: u16) {
        let mut rest = port;
        for digit in request[self.port..][..PORT_BYTES].iter_mut().rev() {
            *digit = number::digit(rest.into());
            rest /= 10;
        }
    }
}

/// Appends a scrape of `info_hashes`. Returns the positions to patch, relative to the start of the request.
pub fn encode_scrape(target: &Target<'_>, info_hashes: &[InfoHash], out: &mut Vec<u8>) -> ScrapeSlots {
    let start = out.len();
    push_line_start(target, out);
    let slots = ScrapeSlots { first: out.len() - start + INFO_HASH_KEY.len(), count: info_hashes.len() };
    for (index, info_hash) in info_hashes.iter().enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(INFO_HASH_KEY);
        out.extend(info_hash.0.into_iter().flat_map(escape));
    }
    push_line_end(target, out);
    slots
}

impl ScrapeSlots {
    /// Sets the info hash at `index`.
    ///
    /// # Panics
    /// Panics if `index` is out of range.
    pub fn set_info_hash(&self, request: &mut [u8], index: usize, info_hash: InfoHash) {
        assert!(index < self.count, "{index} of {} info hashes", self.count);
        let at = self.first + index * (ID_BYTES + 1 + INFO_HASH_KEY.len());
        put_id(&info_hash.0, &mut request[at..][..ID_BYTES]);
    }
}

fn put_id(id: &[u8; 20], out: &mut [u8]) {
    for (byte, slot) in id.iter().zip(out.chunks_exact_mut(ESCAPE_BYTES)) {
        slot.copy_from_slice(&escape(*byte));
    }
}

fn push_line_start(target: &Target<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(target.path.as_bytes());
    // The path may already contain parameters.
    out.push(if target.path.contains('?') { b'&' } else { b'?' });
}

fn push_line_end(target: &Target<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(match target.version {
        Version::Http10 => b" HTTP/1.0\r\nHost: ",
        Version::Http11 => b" HTTP/1.1\r\nHost: ",
    });
    out.extend_from_slice(target.host.as_bytes());
    out.extend_from_slice(match (target.keep_alive, target.version) {
        (true, Version::Http11) => b"\r\n",
        (true, Version::Http10) => b"\r\nConnection: keep-alive\r\n",
        (false, _) => b"\r\nConnection: close\r\n",
    });
    for (name, value) in target.fields {
        for part in [name, ": ", value, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}
