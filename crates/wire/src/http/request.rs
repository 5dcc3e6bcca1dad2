//! Requests as a client writes them.
//!
//! A load generator encodes a request once and then patches what differs from peer to peer. So the values that change
//! have a fixed width: every byte of an info hash and a peer id is escaped, and a port has five digits, with zeros
//! before it where needed. Everything else (event, bytes left, numwant) is worth a request of its own.

use shoal_types::{Event, InfoHash, PeerId};

use super::percent::{ESCAPE_BYTES, escape};
use super::query::PeersForm;
use super::{Version, number};

/// Bytes of an info hash or a peer id with every byte escaped.
const ID_BYTES: usize = 20 * ESCAPE_BYTES;
const PORT_BYTES: usize = 5;
const INFO_HASH_KEY: &[u8] = b"info_hash=";

/// Where a request goes and what comes with it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The path, such as `/announce`.
    pub path: &'a str,
    /// The host, with its port where it is not that of the scheme.
    pub host: &'a str,
    /// Version of the request.
    pub version: Version,
    /// Whether the connection shall be kept.
    pub keep_alive: bool,
    /// Further fields, such as `User-Agent`.
    pub fields: &'a [(&'a str, &'a str)],
}

/// An announce to be.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceRequest {
    /// Which torrent.
    pub info_hash: InfoHash,
    /// What the peer calls itself.
    pub peer_id: PeerId,
    /// Where it listens.
    pub port: u16,
    /// Bytes that it still lacks.
    pub left_bytes: u64,
    /// What happened.
    pub event: Event,
    /// How many peers are wanted; not said where there is none.
    pub numwant: Option<u32>,
    /// In which form.
    pub form: PeersForm,
}

/// Where in an encoded announce the values are that can be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceSlots {
    info_hash: usize,
    peer_id: usize,
    port: usize,
}

/// Where in an encoded scrape the info hashes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeSlots {
    first: usize,
    count: usize,
}

impl AnnounceRequest {
    /// Appends the request and tells where to patch it, counted from where it begins.
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
    /// Asks for another torrent.
    ///
    /// # Panics
    /// Where `request` is shorter than the one that was encoded; so do the others.
    pub fn set_info_hash(&self, request: &mut [u8], info_hash: InfoHash) {
        put_id(&info_hash.0, &mut request[self.info_hash..][..ID_BYTES]);
    }

    /// Is another peer.
    pub fn set_peer_id(&self, request: &mut [u8], peer_id: PeerId) {
        put_id(&peer_id.0, &mut request[self.peer_id..][..ID_BYTES]);
    }

    /// Listens elsewhere.
    pub fn set_port(&self, request: &mut [u8], port: u16) {
        let mut rest = port;
        for digit in request[self.port..][..PORT_BYTES].iter_mut().rev() {
            *digit = number::digit(rest.into());
            rest /= 10;
        }
    }
}

/// Appends a scrape of `info_hashes` and tells where to patch it, counted from where it begins.
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
    /// Asks for another torrent in the place of number `index`.
    ///
    /// # Panics
    /// Where there is no such place.
    pub fn set_info_hash(&self, request: &mut [u8], index: usize, info_hash: InfoHash) {
        assert!(index < self.count, "{index} of {} info hashes", self.count);
        let at = self.first + index * (ID_BYTES + 1 + INFO_HASH_KEY.len());
        put_id(&info_hash.0, &mut request[at..][..ID_BYTES]);
    }
}

fn put_id(id: &[u8; 20], room: &mut [u8]) {
    for (byte, room) in id.iter().zip(room.chunks_exact_mut(ESCAPE_BYTES)) {
        room.copy_from_slice(&escape(*byte));
    }
}

fn push_line_start(target: &Target<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(target.path.as_bytes());
    // A path may come with parameters of its own.
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
