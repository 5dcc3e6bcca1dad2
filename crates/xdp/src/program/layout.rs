//! The types of the maps, as `bpf/shoal.bpf.c` defines them.

use std::net::{IpAddr, SocketAddr};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Number of settings, of which one is active.
pub(super) const SETTINGS: usize = 8;

/// Words of 64 bits of one of them, and of what is before the first one.
pub(super) const SETTINGS_WORDS: usize = size_of::<Settings>() / 8;
pub(super) const CONTROL_WORDS: usize = 8;

/// Where the words of a queue are.
pub(super) const BACKLOG_WORDS: usize = 16;
pub(super) const BACKLOG_REDIRECTED: usize = 0;
pub(super) const BACKLOG_CONSUMED: usize = 8;
pub(super) const BACKLOG_FRAMES_MAX: usize = 9;

/// Number of counters.
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
pub(super) const HAS_MAC: u32 = 64;
pub(super) const IS_NATIVE: u32 = 128;

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
    pub(super) mac: [u8; 6],
    pub(super) unused: [u8; 6],
}

const _: () = assert!(size_of::<Settings>() == 176);

/// `struct rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Rate {
    pub(super) token_ns: u64,
    pub(super) full_ns: u64,
}

/// Returns the bit of `own_addresses` for an address.
pub(super) fn bit_of(ip: IpAddr) -> u64 {
    let octets = match ip {
        IpAddr::V4(ip) => &ip.octets()[..],
        IpAddr::V6(ip) => &ip.octets(),
    };
    let words = octets.as_chunks().0.iter().fold(0, |sum, word| sum ^ u32::from_ne_bytes(*word));
    1 << (words.wrapping_mul(0x9e37_79b1) >> 26)
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
