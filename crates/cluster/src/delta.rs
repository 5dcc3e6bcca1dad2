//! The encoding of deltas.
//!
//! A delta is a byte of flags, the info hash unless it is that of the delta before, and the address and port of the peer. An
//! IPv4 announce takes 27 bytes, or 7 for the same torrent; an IPv6 announce 39, or 19.
//!
//! | Bits of the flags | Meaning |
//! |---|---|
//! | 0 and 1 | the action: 0 leech, 1 seed, 2 complete, 3 stop |
//! | 2 | the peer has an IPv6 address |
//! | 3 | the torrent is that of the delta before |
//! | 4 to 7 | zero |

use core::net::IpAddr;

use shoal_types::{Action, Delta, InfoHash, PeerV4, PeerV6};

use crate::message::{Malformed, Reader};

/// Maximum length of an encoded delta in bytes.
pub const DELTA_BYTES_MAX: usize = 1 + 20 + 18;

const ACTION: u8 = 0b11;
const V6: u8 = 0b100;
const SAME_TORRENT: u8 = 0b1000;

/// Appends a delta. `before` is the torrent of the delta before it, if there is one.
pub fn encode_delta(delta: &Delta, before: Option<&InfoHash>, out: &mut Vec<u8>) {
    let action = match delta.action {
        Action::Leech => 0,
        Action::Seed => 1,
        Action::Complete => 2,
        Action::Stop => 3,
    };
    let is_same = before == Some(&delta.info_hash);
    let family = if delta.ip.is_ipv6() { V6 } else { 0 };
    out.push(action | family | if is_same { SAME_TORRENT } else { 0 });
    if !is_same {
        out.extend_from_slice(&delta.info_hash.0);
    }
    match delta.ip {
        IpAddr::V4(ip) => out.extend_from_slice(&PeerV4::new(ip, delta.port).0),
        IpAddr::V6(ip) => out.extend_from_slice(&PeerV6::new(ip, delta.port).0),
    }
}

/// Appends the deltas of an encoding to `deltas`.
///
/// # Errors
/// Fails if the bytes are no such encoding. Then the content of `deltas` is unspecified.
pub fn decode_deltas(bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let mut torrent = None;
    while !reader.is_empty() {
        let [flags] = reader.array()?;
        if flags & !(ACTION | V6 | SAME_TORRENT) != 0 {
            return Err(Malformed);
        }
        let info_hash = match (flags & SAME_TORRENT != 0, torrent) {
            (true, Some(before)) => before,
            (true, None) => return Err(Malformed),
            (false, _) => InfoHash(reader.array()?),
        };
        torrent = Some(info_hash);
        let (ip, port) = if flags & V6 == 0 {
            let peer = PeerV4(reader.array()?).addr();
            (IpAddr::V4(*peer.ip()), peer.port())
        } else {
            let peer = PeerV6(reader.array()?).addr();
            (IpAddr::V6(*peer.ip()), peer.port())
        };
        let action = match flags & ACTION {
            0 => Action::Leech,
            1 => Action::Seed,
            2 => Action::Complete,
            _ => Action::Stop,
        };
        deltas.push(Delta { info_hash, action, ip, port });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn deltas() -> impl Strategy<Value = Vec<Delta>> {
        let action =
            prop_oneof![Just(Action::Leech), Just(Action::Seed), Just(Action::Complete), Just(Action::Stop)];
        let delta = (0_u8..3, action, any::<IpAddr>(), any::<u16>());
        let delta = delta.prop_map(|(torrent, action, ip, port)| Delta {
            info_hash: InfoHash([torrent; 20]),
            action,
            ip,
            port,
        });
        proptest::collection::vec(delta, 0..40)
    }

    fn encode(deltas: &[Delta]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, delta) in deltas.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &deltas[before].info_hash);
            encode_delta(delta, before, &mut bytes);
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(deltas in deltas()) {
            let mut read = Vec::new();
            prop_assert_eq!(decode_deltas(&encode(&deltas), &mut read), Ok(()));
            prop_assert_eq!(read, deltas);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut read = Vec::new();
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
        assert_eq!(encode(&[delta(1, v4)]).len(), 27);
        assert_eq!(encode(&[delta(1, v4), delta(1, v4)]).len(), 34);
        assert_eq!(encode(&[delta(1, v6), delta(1, v6), delta(2, v4)]).len(), 39 + 19 + 27);
        assert_eq!(encode(&[delta(1, v6)]).len(), DELTA_BYTES_MAX);
    }
}
