//! The encoding of deltas.
//!
//! A delta is a byte of flags, the info hash unless the previous delta has the same, and the peer: its address and
//! port, or for WebTorrent its peer id and source. An IPv4 announce takes 27 bytes, or 7 for the same torrent; an IPv6
//! announce 39, or 19; a WebTorrent announce 48, or 28.
//!
//! | Bits of the flags | Meaning |
//! |---|---|
//! | 0 and 1 | the action: 0 leech, 1 seed, 2 complete, 3 stop |
//! | 2 and 3 | the peer: 0 an IPv4 address, 1 an IPv6 address, 2 a peer of WebTorrent |
//! | 4 | the torrent is the same as in the previous delta |
//! | 5 to 7 | zero |

use core::net::IpAddr;

use shoal_base::{Action, Delta, InfoHash, PeerId, PeerV4, PeerV6, Presence};

use crate::protocol::message::{Malformed, Reader};

/// Maximum length of an encoded delta in bytes: of a WebTorrent peer.
pub const DELTA_BYTES_MAX: usize = 1 + 20 + 20 + 7;

const ACTION: u8 = 0b11;
const V4: u8 = 0 << 2;
const V6: u8 = 1 << 2;
const WEBTORRENT: u8 = 2 << 2;
const SAME_TORRENT: u8 = 1 << 4;

/// The content of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deltas {
    /// Deltas of UDP and HTTP peers, in order.
    pub addresses: Vec<Delta>,
    /// Deltas of WebTorrent peers, in order.
    pub presences: Vec<Presence>,
}

impl Deltas {
    /// Returns the number of deltas.
    pub const fn len(&self) -> usize {
        self.addresses.len() + self.presences.len()
    }

    /// Returns whether there are no deltas.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn torrents(&self) -> impl Iterator<Item = &InfoHash> {
        let of_presences = self.presences.iter().map(|presence| &presence.info_hash);
        self.addresses.iter().map(|delta| &delta.info_hash).chain(of_presences)
    }

    fn clear(&mut self) {
        self.addresses.clear();
        self.presences.clear();
    }
}

/// Appends a delta. `before` is the torrent of the previous delta, if any.
pub fn encode_delta(delta: &Delta, before: Option<&InfoHash>, out: &mut Vec<u8>) {
    let family = if delta.ip.is_ipv6() { V6 } else { V4 };
    write_head(family, delta.action, &delta.info_hash, before, out);
    match delta.ip {
        IpAddr::V4(ip) => out.extend_from_slice(&PeerV4::new(ip, delta.port).0),
        IpAddr::V6(ip) => out.extend_from_slice(&PeerV6::new(ip, delta.port).0),
    }
}

/// Appends the delta of a peer of WebTorrent.
pub fn encode_presence(presence: &Presence, before: Option<&InfoHash>, out: &mut Vec<u8>) {
    write_head(WEBTORRENT, presence.action, &presence.info_hash, before, out);
    out.extend_from_slice(&presence.peer_id.0);
    out.extend_from_slice(&presence.source);
}

fn write_head(peer: u8, action: Action, info_hash: &InfoHash, before: Option<&InfoHash>, out: &mut Vec<u8>) {
    let action = match action {
        Action::Leech => 0,
        Action::Seed => 1,
        Action::Complete => 2,
        Action::Stop => 3,
    };
    if before == Some(info_hash) {
        out.push(peer | action | SAME_TORRENT);
    } else {
        out.push(peer | action);
        out.extend_from_slice(&info_hash.0);
    }
}

/// Replaces the content of `deltas` by decoded ones. Fails if the bytes are no valid encoding. The content of `deltas`
/// is then unspecified.
pub fn decode_deltas(bytes: &[u8], deltas: &mut Deltas) -> Result<(), Malformed> {
    deltas.clear();
    let mut reader = Reader::new(bytes);
    let mut torrent = None;
    while !reader.is_empty() {
        let [flags] = reader.array()?;
        let info_hash = match (flags & SAME_TORRENT != 0, torrent) {
            (true, Some(before)) => before,
            (true, None) => return Err(Malformed),
            (false, _) => InfoHash(reader.array()?),
        };
        torrent = Some(info_hash);
        let action = match flags & ACTION {
            0 => Action::Leech,
            1 => Action::Seed,
            2 => Action::Complete,
            _ => Action::Stop,
        };
        let (ip, port) = match flags & !(ACTION | SAME_TORRENT) {
            V4 => {
                let peer = PeerV4(reader.array()?).addr();
                (IpAddr::V4(*peer.ip()), peer.port())
            }
            V6 => {
                let peer = PeerV6(reader.array()?).addr();
                (IpAddr::V6(*peer.ip()), peer.port())
            }
            WEBTORRENT => {
                let (peer_id, source) = (PeerId(reader.array()?), reader.array()?);
                deltas.presences.push(Presence { info_hash, action, peer_id, source });
                continue;
            }
            _ => return Err(Malformed),
        };
        deltas.addresses.push(Delta { info_hash, action, ip, port });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn deltas() -> impl Strategy<Value = Deltas> {
        let action = || {
            prop_oneof![Just(Action::Leech), Just(Action::Seed), Just(Action::Complete), Just(Action::Stop)]
        };
        let delta = (0_u8..3, action(), any::<IpAddr>(), any::<u16>());
        let delta = delta.prop_map(|(torrent, action, ip, port)| Delta {
            info_hash: InfoHash([torrent; 20]),
            action,
            ip,
            port,
        });
        let presence = (0_u8..3, action(), any::<[u8; 20]>(), any::<[u8; 7]>());
        let presence = presence.prop_map(|(torrent, action, peer_id, source)| Presence {
            info_hash: InfoHash([torrent; 20]),
            action,
            peer_id: PeerId(peer_id),
            source,
        });
        let (addresses, presences) =
            (proptest::collection::vec(delta, 0..40), proptest::collection::vec(presence, 0..40));
        (addresses, presences).prop_map(|(addresses, presences)| Deltas { addresses, presences })
    }

    /// Encodes the deltas of both kinds in turn.
    fn encode(Deltas { addresses, presences }: &Deltas) -> Vec<u8> {
        let (mut bytes, mut before) = (Vec::new(), None);
        for index in 0..addresses.len().max(presences.len()) {
            if let Some(delta) = addresses.get(index) {
                encode_delta(delta, before, &mut bytes);
                before = Some(&delta.info_hash);
            }
            if let Some(presence) = presences.get(index) {
                encode_presence(presence, before, &mut bytes);
                before = Some(&presence.info_hash);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(deltas in deltas()) {
            let mut read = Deltas::default();
            prop_assert_eq!(decode_deltas(&encode(&deltas), &mut read), Ok(()));
            prop_assert_eq!(read, deltas);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut read = Deltas::default();
            if decode_deltas(&bytes, &mut read).is_ok() {
                // A repeated info hash may have been spelled out.
                prop_assert!(encode(&read).len() <= bytes.len());
            }
        }
    }

    #[test]
    fn an_announce_takes_27_bytes_and_7_more_for_the_same_torrent() {
        let delta = |torrent: u8, ip: &str| Delta {
            info_hash: InfoHash([torrent; 20]),
            action: Action::Seed,
            ip: ip.parse().unwrap(),
            port: 6881,
        };
        let [v4, v6] = ["192.0.2.1", "2001:db8::1"];
        let length = |addresses: &[Delta]| {
            encode(&Deltas { addresses: addresses.to_vec(), presences: Vec::new() }).len()
        };
        assert_eq!(length(&[delta(1, v4)]), 27);
        assert_eq!(length(&[delta(1, v4), delta(1, v4)]), 34);
        assert_eq!(length(&[delta(1, v6), delta(1, v6), delta(2, v4)]), 39 + 19 + 27);
        let (info_hash, peer_id) = (InfoHash([1; 20]), PeerId([2; 20]));
        let presence = Presence { info_hash, action: Action::Leech, peer_id, source: [3; 7] };
        let deltas = Deltas { addresses: Vec::new(), presences: vec![presence; 2] };
        assert_eq!(encode(&deltas).len(), DELTA_BYTES_MAX + DELTA_BYTES_MAX - 20);
    }
}
