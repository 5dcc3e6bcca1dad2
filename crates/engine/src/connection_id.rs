//! Connection ids (BEP 15, "UDP connections / spoofing"): proof that a client receives datagrams sent to its
//! address.
//!
//! The tracker keeps no state for them: an id is a keyed hash of the address and of the time slot of its issue.
//! Trackers with the same key accept each other's ids if their clocks are right within two minutes. The port is left
//! out, because NATs change it between two requests.
//!
//! An id is 56 bits of the hash, 2 bits of version and 6 bits of slot (modulo 64), from high to low. A check
//! therefore costs one hash, for any validity and any number of wrong ids. Guessing 56 bits for one address takes
//! centuries at ten million guesses a second, and saves only one connect request.
//!
//! The hash is SipHash-2-4. A slot is shortened to 24 bits, so that an IPv4 address, its slot and their length fit a
//! single block: six rounds, half the rounds for 24 bytes. A variant with fewer rounds would therefore save little.
//! Slots repeat after 63 years. SipHash mixes in the length, so IPv4 and IPv6 cannot be confused. A hash by AES
//! instructions would be as fast, but the eBPF program of shoal-xdp also answers connect requests, and lacks these
//! instructions.
//!
//! The version shows nodes with a shared key which format an id has. A new format takes the next version and another
//! key, derived from the configured one. Both versions are accepted for one release before any node issues the new
//! one. Otherwise half of the clients of a mixed cluster would have to connect again.
//!
//! SipHash-1-3 would save 28 of the 175 instructions of a connect. But it leaves only four rounds between an
//! attacker's address and the id. Published differences pass through four rounds with a probability of 2⁻³⁵
//! (Dobraunig, Mendel and Schläffer 2014), which is too close to the number of guesses in two minutes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shoal_wire::udp::ConnectionId;

const SLOT_S: u64 = 120;

/// Seconds after its issue for which every id is accepted. BEP 15: "Trackers should accept the connection ID until
/// two minutes after it has been send."
const VALID_S_MIN: u64 = 120;

/// Additional seconds, since some clients keep their ids too long. The window of slots stays far below the 64 that
/// the low bits distinguish.
const GRACE_S: u64 = 120;

/// Seconds after the end of its slot for which an id is accepted.
const VALID_S: u64 = VALID_S_MIN + GRACE_S;

const SLOT_BITS: u64 = 0x3f;

/// The version of the format, shifted to its place.
const VERSION: u64 = 1 << 6;

const HASH_BITS: u64 = !0xff;

/// The bits of a slot that are hashed.
const LOW_SLOT: u64 = 0xff_ffff;

/// The secret behind the ids. Anyone who knows it can forge a source address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectionKey([u8; 16]);

impl ConnectionKey {
    /// Wraps a key, chosen by the operator or random. Every bit of it counts.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for ConnectionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionKey(hidden)")
    }
}

/// Issues and checks connection ids.
#[derive(Clone)]
pub struct ConnectionIds {
    key: ConnectionKey,
    keyed: SipHash,
    /// The previous key, and until when its ids are accepted, in seconds since 1970.
    former: Option<(SipHash, u64)>,
}

/// SipHash-2-4 (Aumasson and Bernstein 2012) under one key: its state before the message.
#[derive(Clone, Copy)]
struct SipHash([u64; 4]);

/// The secrets with which another program issues and accepts the same ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedIds {
    /// SipHash-2-4 under the key: its state before the message.
    pub keyed: [u64; 4],
    /// The same state for the previous key, and the end of the validity of its ids, in seconds since 1970.
    pub former: Option<([u64; 4], u64)>,
    /// How long an id is accepted after the end of its slot, in seconds.
    pub valid_s: u64,
}

impl fmt::Debug for SharedIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedIds").field("valid_s", &self.valid_s).finish_non_exhaustive()
    }
}

/// Returns the number of a time's slot, and the slot's end, in seconds since 1970.
pub const fn slot_at(unix_s: u64) -> (u64, u64) {
    let slot = unix_s / SLOT_S;
    (slot, (slot + 1).saturating_mul(SLOT_S))
}

/// Returns the two numbers in 16 bytes, as SipHash reads them.
#[inline]
fn words(bytes: [u8; 16]) -> [u64; 2] {
    let words: [zerocopy::little_endian::U64; 2] = zerocopy::transmute!(bytes);
    words.map(zerocopy::little_endian::U64::get)
}

impl SipHash {
    fn new(key: &ConnectionKey) -> Self {
        let [k0, k1] = words(key.0);
        // The constants are "somepseudorandomlygeneratedbytes".
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    /// Hashes a message of whole blocks. The last block holds up to seven bytes of the message, and the message's
    /// length modulo 256 as its highest byte.
    #[inline]
    fn hash<const BLOCKS: usize>(self, blocks: [u64; BLOCKS]) -> u64 {
        let mut state = self;
        for block in blocks {
            state.0[3] ^= block;
            state.round();
            state.round();
            state.0[0] ^= block;
        }
        state.0[2] ^= 0xff;
        (0..4).for_each(|_| state.round());
        let [v0, v1, v2, v3] = state.0;
        v0 ^ v1 ^ v2 ^ v3
    }

    #[inline]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32).wrapping_add(v3);
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        self.0 = [v0, v1, v2.rotate_left(32), v3];
    }
}

impl ConnectionIds {
    /// Creates ids from `key`. They are accepted for at least four minutes.
    pub fn new(key: &ConnectionKey) -> Self {
        Self { key: *key, keyed: SipHash::new(key), former: None }
    }

    /// Issues ids from another key from now on. Ids of the previous key keep their validity.
    pub fn replace_key(&mut self, key: &ConnectionKey, unix_s: u64) {
        if self.key == *key {
            return;
        }
        let until_s = unix_s.saturating_add(2 * SLOT_S + VALID_S);
        self.former = Some((self.keyed, until_s));
        (self.key, self.keyed) = (*key, SipHash::new(key));
    }

    /// Returns the secrets with which another program issues and accepts the same ids.
    pub fn share(&self) -> SharedIds {
        let former = self.former.map(|(keyed, until_s)| (keyed.0, until_s));
        SharedIds { keyed: self.keyed.0, former, valid_s: VALID_S }
    }

    /// Returns the id for a client at `ip`, which may be v4-mapped.
    #[inline(always)]
    pub fn issue(&self, ip: IpAddr, unix_s: u64) -> ConnectionId {
        self.id_of_slot(ip, unix_s / SLOT_S)
    }

    /// Returns whether `id` was issued to `ip` recently enough.
    ///
    /// Ids of the next slot are accepted as well: another node's clock may be ahead, or this one may have been set
    /// back.
    #[inline(always)]
    pub fn accepts(&self, id: ConnectionId, ip: IpAddr, unix_s: u64) -> bool {
        let newest = (unix_s / SLOT_S) + 1;
        let age_slots = newest.wrapping_sub(id.0) & SLOT_BITS;
        let Some(slot) = newest.checked_sub(age_slots) else { return false };
        let slot_end_s = (slot + 1).saturating_mul(SLOT_S);
        let in_time = unix_s.saturating_sub(slot_end_s) < VALID_S;
        // This runs in constant time: no secret decides how far the check gets, and one instruction compares all 64
        // bits.
        in_time && (self.id_of_slot(ip, slot) == id || self.former_accepts(id, ip, slot, unix_s))
    }

    /// Returns whether the previous key made this id and its ids are still accepted. Which key made an id is no
    /// secret.
    #[cold]
    fn former_accepts(&self, id: ConnectionId, ip: IpAddr, slot: u64, unix_s: u64) -> bool {
        let former = self.former.filter(|(_, until_s)| unix_s < *until_s);
        former.is_some_and(|(keyed, _)| keyed.id_of_slot(ip, slot) == id)
    }

    #[inline(always)]
    fn id_of_slot(&self, ip: IpAddr, slot: u64) -> ConnectionId {
        self.keyed.id_of_slot(ip, slot)
    }
}

impl SipHash {
    // Inlined, because a call would put the address on the stack.
    #[inline(always)]
    fn id_of_slot(&self, ip: IpAddr, slot: u64) -> ConnectionId {
        let hash = match ip.to_canonical() {
            IpAddr::V4(ip) => self.hash_v4(ip, slot),
            IpAddr::V6(ip) => self.hash_v6(ip, slot),
        };
        ConnectionId(hash & HASH_BITS | VERSION | slot & SLOT_BITS)
    }

    /// Hashes an address and three bytes of the slot.
    #[inline(never)]
    fn hash_v4(&self, ip: Ipv4Addr, slot: u64) -> u64 {
        let ip = u64::from(u32::from_le_bytes(ip.octets()));
        self.hash([ip | (slot & LOW_SLOT) << 32 | 7 << 56])
    }

    /// Does the same for IPv6.
    #[inline(never)]
    fn hash_v6(&self, ip: Ipv6Addr, slot: u64) -> u64 {
        let [first, second] = words(ip.octets());
        self.hash([first, second, slot & LOW_SLOT | 19 << 56])
    }
}

impl fmt::Debug for ConnectionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionIds").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a slot.
    const SLOT_START_S: u64 = 14_000_000 * SLOT_S;

    fn ids() -> ConnectionIds {
        ConnectionIds::new(&ConnectionKey::new(*b"0123456789abcdef"))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn accepted_for_two_minutes_and_the_grace_wherever_in_the_slot_it_was_issued() {
        let ids = ids();
        for offset_s in 0..SLOT_S {
            let issued_s = SLOT_START_S + offset_s;
            let id = ids.issue(ip("192.0.2.1"), issued_s);
            let valid_s = SLOT_S - offset_s + VALID_S;
            assert!(valid_s > VALID_S_MIN);
            for later_s in (0..valid_s).step_by(7).chain([0, VALID_S_MIN, valid_s - 1]) {
                assert!(ids.accepts(id, ip("192.0.2.1"), issued_s + later_s), "{later_s}");
            }
            for later_s in [valid_s, valid_s + 1, valid_s + SLOT_S, 256 * SLOT_S, 1 << 40] {
                assert!(!ids.accepts(id, ip("192.0.2.1"), issued_s + later_s), "{later_s}");
            }
        }
    }

    #[test]
    fn the_clock_may_step_back_by_a_slot() {
        let ids = ids();
        for offset_s in 0..SLOT_S {
            let issued_s = SLOT_START_S + offset_s;
            let id = ids.issue(ip("192.0.2.1"), issued_s);
            for back_s in 0..=SLOT_S {
                assert!(ids.accepts(id, ip("192.0.2.1"), issued_s - back_s));
            }
            assert!(!ids.accepts(id, ip("192.0.2.1"), issued_s - 2 * SLOT_S));
        }
    }

    #[test]
    fn bound_to_the_address_and_the_key() {
        let (mine, other) = (ids(), ConnectionIds::new(&ConnectionKey::new([1; 16])));
        let id = mine.issue(ip("192.0.2.1"), SLOT_START_S);
        assert!(mine.accepts(id, ip("192.0.2.1"), SLOT_START_S));
        assert!(!mine.accepts(id, ip("192.0.2.2"), SLOT_START_S));
        assert!(!mine.accepts(id, ip("2001:db8::1"), SLOT_START_S));
        assert!(!other.accepts(id, ip("192.0.2.1"), SLOT_START_S));
    }

    #[test]
    fn a_mapped_address_is_that_of_ipv4() {
        let id = ids().issue(ip("::ffff:192.0.2.1"), SLOT_START_S);
        assert_eq!(id, ids().issue(ip("192.0.2.1"), SLOT_START_S));
        assert!(ids().accepts(id, ip("::ffff:192.0.2.1"), SLOT_START_S));
    }

    #[test]
    fn every_bit_counts() {
        let ids = ids();
        let id = ids.issue(ip("2001:db8::1"), SLOT_START_S);
        for bit in 0..64 {
            let forged = ConnectionId(id.0 ^ (1 << bit));
            assert!(!ids.accepts(forged, ip("2001:db8::1"), SLOT_START_S), "bit {bit}");
        }
    }

    /// The format is a contract between the nodes of a cluster, and between versions. These ids come from another
    /// implementation of SipHash-2-4.
    #[test]
    fn ids_are_the_same_on_every_machine() {
        let id = |address| ids().issue(ip(address), 1_700_000_000);
        assert_eq!(id("192.0.2.1"), ConnectionId(0x4776_ca12_515a_054a));
        assert_eq!(id("2001:db8::1"), ConnectionId(0x84ba_fe80_1718_634a));
    }

    #[test]
    fn hashes_are_those_of_siphash() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let (key, slot) = (rng.u128(..).to_le_bytes(), rng.u64(..));
            let ids = ConnectionIds::new(&ConnectionKey::new(key));
            let oracle = siphasher::sip::SipHasher24::new_with_key(&key);
            for ip in [IpAddr::from(rng.u32(..).to_be_bytes()), IpAddr::from(rng.u128(..).to_be_bytes())] {
                let mut message = match ip {
                    IpAddr::V4(ip) => ip.octets().to_vec(),
                    IpAddr::V6(ip) => ip.octets().to_vec(),
                };
                message.extend(&slot.to_le_bytes()[..3]);
                let (id, hash) = (ids.id_of_slot(ip, slot), oracle.hash(&message));
                assert_eq!((id.0 >> 8, id.0 >> 6 & 3, id.0 & 63), (hash >> 8, 1, slot & 63), "{ip}");
            }
        }
    }

    #[test]
    fn an_id_of_another_version_is_refused() {
        let ids = ids();
        let id = ids.issue(ip("192.0.2.1"), SLOT_START_S);
        for version in [0, 2, 3] {
            let other = ConnectionId(id.0 & !0xc0 | version << 6);
            assert!(!ids.accepts(other, ip("192.0.2.1"), SLOT_START_S), "{version}");
        }
    }

    #[test]
    fn ids_of_the_key_before_are_accepted_for_their_time() {
        let mut ids = ids();
        let (ip, next) = (ip("192.0.2.1"), ConnectionKey::new([1; 16]));
        let old = ids.issue(ip, SLOT_START_S);
        ids.replace_key(&next, SLOT_START_S);
        ids.replace_key(&next, SLOT_START_S + 1);
        let new = ids.issue(ip, SLOT_START_S);
        assert_eq!(new, ConnectionIds::new(&next).issue(ip, SLOT_START_S));
        let last_s = SLOT_START_S + SLOT_S + VALID_S - 1;
        for id in [old, new] {
            assert!(ids.accepts(id, ip, SLOT_START_S) && ids.accepts(id, ip, last_s));
            assert!(!ids.accepts(id, ip, last_s + 1));
        }
        // The old key issues no more ids, so it accepts none of a later slot.
        let forged = self::ids().issue(ip, SLOT_START_S + 4 * SLOT_S);
        assert!(!ids.accepts(forged, ip, SLOT_START_S + 4 * SLOT_S));
    }

    #[test]
    fn extreme_times() {
        let ids = ids();
        for unix_s in [0, 1, SLOT_S, 255 * SLOT_S, u64::MAX - 1, u64::MAX] {
            let id = ids.issue(ip("192.0.2.1"), unix_s);
            assert!(ids.accepts(id, ip("192.0.2.1"), unix_s));
            for any in [0, 1, 0xff, u64::MAX] {
                assert!(!ids.accepts(ConnectionId(any), ip("192.0.2.1"), unix_s));
            }
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let key = ConnectionKey::new(*b"0123456789abcdef");
        let ids = ConnectionIds::new(&key);
        let printed = format!("{key:?} {ids:?} {:?}", ids.share());
        assert_eq!(printed, "ConnectionKey(hidden) ConnectionIds { .. } SharedIds { valid_s: 240, .. }");
    }
}
