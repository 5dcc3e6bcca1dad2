//! Bencoded replies, written directly into the output.
//!
//! The keys of dictionaries are in order, as BEP 3 requires. The functions append to a vector that the caller reuses,
//! so that nothing is allocated when it has grown to the size of a reply. [`received`](super::received) decodes replies
//! for clients.

use core::net::{IpAddr, SocketAddr};
use std::io::Write as _;

use shoal_base::{InfoHash, PeerV4, PeerV6};
use zerocopy::IntoBytes;

use super::number;
use super::query::PeersForm;

/// The maximum length of an address as text: an IPv6 address that ends with an IPv4 address.
const ADDRESS_BYTES_MAX: usize = 45;

/// The reply to an announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnounceReply<'a> {
    /// The number of seeders.
    pub complete: u32,
    /// The number of completed downloads.
    pub downloaded: u32,
    /// The number of leechers.
    pub incomplete: u32,
    /// Seconds until the next regular announce.
    pub interval_s: u32,
    /// The minimum seconds until any announce.
    pub min_interval_s: Option<u32>,
    /// The client's address as the tracker sees it (BEP 24).
    pub external_ip: Option<IpAddr>,
    /// Peers with IPv4 addresses. The key is present even without peers, because µTorrent fails on a reply without it.
    pub peers_v4: &'a [PeerV4],
    /// Peers with IPv6 addresses. The key `peers6` (BEP 7) is present only if there are any: clients that know the key
    /// treat a missing one as empty, whatever family they announce over.
    pub peers_v6: &'a [PeerV6],
    /// The form of the peers. Dictionaries contain peers of both families in `peers`, without peer ids, which are not
    /// stored.
    pub form: PeersForm,
    /// A message for the user.
    pub warning: Option<&'a str>,
    /// The tracker id, which the client sends back with its next announce.
    pub tracker_id: Option<&'a str>,
}

/// The counts of one torrent (BEP 48).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrapeFile {
    /// The number of seeders.
    pub complete: u32,
    /// The number of completed downloads.
    pub downloaded: u32,
    /// The number of leechers.
    pub incomplete: u32,
}

/// When a refused client may try again (BEP 31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryIn {
    /// After this number of minutes.
    Minutes(u32),
    /// Never.
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
            PeersForm::Compact => {
                push_entry(b"5:peers", self.peers_v4.as_bytes(), out);
                if !self.peers_v6.is_empty() {
                    push_entry(b"6:peers6", self.peers_v6.as_bytes(), out);
                }
            }
            PeersForm::Dictionaries => {
                out.extend_from_slice(b"5:peersl");
                let v4 = self.peers_v4.iter().map(|peer| SocketAddr::V4(peer.addr()));
                let v6 = self.peers_v6.iter().map(|peer| SocketAddr::V6(peer.addr()));
                v4.chain(v6).for_each(|peer| push_peer(peer.ip(), peer.port(), out));
                out.push(b'e');
            }
        }
        if let Some(tracker_id) = self.tracker_id {
            push_entry(b"10:tracker id", tracker_id.as_bytes(), out);
        }
        if let Some(warning) = self.warning {
            push_entry(b"15:warning message", warning.as_bytes(), out);
        }
        out.push(b'e');
    }
}

/// Appends a refusal: a reason in plain text, and when to try again. A refusal has no `peers`, unlike every other
/// reply: BEP 3 says "no other keys are required". The time of the next try is `interval` as well, since most clients know
/// nothing of BEP 31.
pub fn failure(reason: &str, retry_in: Option<RetryIn>, out: &mut Vec<u8>) {
    push_entry(b"d14:failure reason", reason.as_bytes(), out);
    match retry_in {
        Some(RetryIn::Minutes(minutes)) => {
            out.extend_from_slice(b"8:interval");
            push_integer(minutes.saturating_mul(60), out);
            out.extend_from_slice(b"8:retry in");
            push_integer(minutes, out);
        }
        Some(RetryIn::Never) => out.extend_from_slice(b"8:retry in5:never"),
        None => {}
    }
    out.push(b'e');
}

/// Appends the start of a scrape reply, up to its entries.
pub fn scrape_begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"d5:filesd");
}

/// Appends one entry of a scrape reply. Bencoding requires ascending info hashes, but no client checks that, so a full
/// scrape may use the order of the store.
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

/// Appends the end of a scrape reply, after its entries. If an interval is given, the `flags` include it as
/// `min_request_interval`, an old convention that clients still support.
pub fn scrape_end(min_request_interval_s: Option<u32>, out: &mut Vec<u8>) {
    out.push(b'e');
    if let Some(interval_s) = min_request_interval_s {
        out.extend_from_slice(b"5:flagsd20:min_request_interval");
        push_integer(interval_s, out);
        out.push(b'e');
    }
    out.push(b'e');
}

/// The form of a scrape of all torrents: BEP 48, or one of opentracker's lists (`mode=tpbs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrapeFormat {
    /// The dictionary of BEP 48.
    #[default]
    Bencoded,
    /// For each torrent the 20 bytes of its info hash, and two numbers of 32 bits in network order: seeders and
    /// leechers.
    Binary,
    /// A line for each torrent, with the info hash in hexadecimal: `HASH:SEEDERS:LEECHERS`.
    Text,
    /// Like `Text`, with the info hash encoded as in a URL.
    UrlEncoded,
}

impl ScrapeFormat {
    /// Returns opentracker's format for a value of `format`.
    pub const fn of_opentracker(name: &[u8]) -> Option<Self> {
        match name {
            b"ben" => Some(Self::Bencoded),
            b"bin" => Some(Self::Binary),
            b"txt" => Some(Self::Text),
            b"url" => Some(Self::UrlEncoded),
            _ => None,
        }
    }

    /// Appends the start of the list, up to its entries.
    pub fn begin(self, out: &mut Vec<u8>) {
        if self == Self::Bencoded {
            scrape_begin(out);
        }
    }

    /// Appends an entry.
    pub fn push(self, info_hash: InfoHash, file: ScrapeFile, out: &mut Vec<u8>) {
        let counts = [file.complete, file.incomplete];
        let digits = |byte: u8| [byte >> 4, byte & 0xf].map(|digit| b"0123456789ABCDEF"[usize::from(digit)]);
        match self {
            Self::Bencoded => return scrape_file(info_hash, file, out),
            Self::Binary => {
                out.extend_from_slice(&info_hash.0);
                return counts.iter().for_each(|count| out.extend_from_slice(&count.to_be_bytes()));
            }
            Self::Text => info_hash.0.iter().for_each(|&byte| out.extend_from_slice(&digits(byte))),
            Self::UrlEncoded => {
                for byte in info_hash.0 {
                    // RFC 3986, 2.3: the characters that need no escape.
                    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                        out.push(byte);
                    } else {
                        out.push(b'%');
                        out.extend_from_slice(&digits(byte));
                    }
                }
            }
        }
        for count in counts {
            out.push(b':');
            number::push(count.into(), out);
        }
        out.push(b'\n');
    }

    /// Appends the end of the list, after its entries.
    pub fn end(self, out: &mut Vec<u8>) {
        if self == Self::Bencoded {
            scrape_end(None, out);
        }
    }
}

fn push_integer(number: u32, out: &mut Vec<u8>) {
    out.push(b'i');
    number::push(number.into(), out);
    out.push(b'e');
}

/// Appends an already encoded key and a string.
fn push_entry(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    number::push(u64::try_from(value.len()).unwrap_or(u64::MAX), out);
    out.push(b':');
    out.extend_from_slice(value);
}

fn push_peer(ip: IpAddr, port: u16, out: &mut Vec<u8>) {
    let mut text = [0; ADDRESS_BYTES_MAX];
    let mut rest = &mut text[..];
    write!(rest, "{ip}").expect("the buffer holds the longest address");
    let text_bytes = ADDRESS_BYTES_MAX - rest.len();
    push_entry(b"d2:ip", &text[..text_bytes], out);
    out.extend_from_slice(b"4:port");
    push_integer(port.into(), out);
    out.push(b'e');
}
