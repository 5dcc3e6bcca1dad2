//! The types of the maps, as `bpf/shoal.bpf.c` defines them.

use std::net::{IpAddr, SocketAddr};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::frame::{ETHERNET_PROVIDER_TAG, ETHERNET_TAG};
use crate::interface::{Segment, Vlan};

/// Number of copies of the settings. One is active.
pub(super) const SETTINGS: usize = 8;

/// Words of 64 bits in one copy, and in the part before the first one.
pub(super) const SETTINGS_WORDS: usize = size_of::<Settings>() / 8;
pub(super) const CONTROL_WORDS: usize = 8;

/// Positions of the words of a queue.
pub(super) const BACKLOG_WORDS: usize = 16;
pub(super) const BACKLOG_REDIRECTED: usize = 0;
pub(super) const BACKLOG_CONSUMED: usize = 8;
pub(super) const BACKLOG_FRAMES_MAX: usize = 9;

pub(super) const COUNTS: usize = 32;

/// Cells of a line of token buckets, of 8 bytes each.
pub(super) const LINE_CELLS: usize = 8;

/// `enum` of the flags of settings.
pub(super) const ANSWERS_CONNECTS: u32 = 1;
pub(super) const HAS_NETWORKS_V4: u32 = 2;
pub(super) const HAS_NETWORKS_V6: u32 = 4;
pub(super) const LIMITS_CONNECTS: u32 = 8;
pub(super) const LIMITS_REQUESTS: u32 = 16;
pub(super) const HAS_FORMER: u32 = 32;
pub(super) const IS_NATIVE: u32 = 64;

/// `enum` of the flags of a network.
pub(super) const NETWORK_DENIED: u32 = 1;
pub(super) const NETWORK_EXEMPT: u32 = 2;

/// `struct settings`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Settings {
    pub(super) keyed: [u64; 4],
    pub(super) former: [u64; 4],
    pub(super) slot: u64,
    pub(super) slot_end_ns: u64,
    pub(super) valid_ns: u64,
    pub(super) former_end_ns: u64,
    pub(super) connects: Rate,
    pub(super) requests: Rate,
    pub(super) bucket_key: [u64; 2],
    pub(super) own_addresses: u64,
    pub(super) flags: u32,
    pub(super) network_default: u32,
    pub(super) line_mask: u32,
    pub(super) unused: u32,
    pub(super) near: [[u8; 20]; NEAR_ENDPOINTS],
}

/// Number of endpoints in the settings.
pub(super) const NEAR_ENDPOINTS: usize = 8;

const _: () = assert!(size_of::<Settings>() == 328);

/// `struct rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Rate {
    pub(super) token_ns: u64,
    pub(super) full_ns: u64,
}

/// Start of the entries of provider VLANs (IEEE 802.1ad).
const PROVIDER_SEGMENTS: u32 = 1 << 12;

/// The entry of a segment that the host does not belong to.
pub(super) const NO_SEGMENT: [u8; 12] = [0; 12];

/// Returns a `struct segment`.
pub(super) fn segment(segment: &Segment) -> [u8; 12] {
    let mut entry = NO_SEGMENT;
    entry[..4].copy_from_slice(&segment.interface_index.to_ne_bytes());
    entry[4..10].copy_from_slice(&segment.mac);
    entry
}

/// Returns the entry of a segment. A VLAN of number 0, which is no VLAN, and a VLAN of another protocol have none.
pub(super) fn segment_index(vlan: Option<Vlan>) -> Option<u32> {
    match vlan {
        None => Some(0),
        Some(Vlan { protocol: ETHERNET_TAG, number: number @ 1..4096 }) => Some(number.into()),
        Some(Vlan { protocol: ETHERNET_PROVIDER_TAG, number: number @ 1..4096 }) => {
            Some(PROVIDER_SEGMENTS + u32::from(number))
        }
        Some(_) => None,
    }
}

/// Returns the bit of `own_addresses` for an address.
pub(super) fn bit_of(ip: IpAddr) -> u64 {
    1 << (hash_of(&endpoint(SocketAddr::new(ip, 0))) >> 26)
}

/// Returns the endpoints by their places in the settings. If two have the same place, the first gets it.
pub(super) fn near<'e>(endpoints: impl Iterator<Item = &'e [u8; 20]>) -> [[u8; 20]; NEAR_ENDPOINTS] {
    let mut near = [[0; 20]; NEAR_ENDPOINTS];
    for endpoint in endpoints {
        let place = &mut near[(hash_of(endpoint) >> (u32::BITS - NEAR_ENDPOINTS.ilog2())) as usize];
        if *place == [0; 20] {
            *place = *endpoint;
        }
    }
    near
}

/// Returns `hash_of` for a `struct endpoint`.
fn hash_of(endpoint: &[u8; 20]) -> u32 {
    let ip = endpoint[..16].as_chunks().0.iter().fold(0, |sum, word| sum ^ u32::from_ne_bytes(*word));
    let port = u16::from_ne_bytes([endpoint[16], endpoint[17]]);
    (ip ^ u32::from(port)).wrapping_mul(0x9e37_79b1)
}

/// Returns a `struct endpoint`.
pub(super) fn endpoint(address: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    match address.ip() {
        IpAddr::V4(ip) => key[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => key[..16].copy_from_slice(&ip.octets()),
    }
    key[16..18].copy_from_slice(&address.port().to_be_bytes());
    let family: u16 = if address.is_ipv4() { 4 } else { 6 };
    key[18..].copy_from_slice(&family.to_ne_bytes());
    key
}
