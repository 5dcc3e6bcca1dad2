//! The local address of a datagram, as a control message of `recvmsg` and `sendmsg` (RFC 3542, section 6; `ip(7)`).
//!
//! A socket bound to the wildcard address receives for every address of the host. By default the kernel sends the reply
//! from the address that the route prefers, which may differ from the request's destination. A client that checks the
//! source (as connected sockets, NATs and firewalls do) drops such a reply.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Space for either message, including header and padding.
pub(crate) const CONTROL_BYTES: usize = V6_BYTES;

/// A buffer for control messages. The sockets enable one kind of message each, so it never contains a second one.
pub(crate) type Control = [u8; CONTROL_BYTES];

// `struct cmsghdr` (linux/socket.h) of a 64-bit kernel: length with header (8), level (4), type (4).
const HEADER_BYTES: usize = 16;
const LEVEL: Range<usize> = 8..12;
const TYPE: Range<usize> = 12..16;

// `struct in_pktinfo` (linux/in.h): interface (4), local address (4), destination in the header (4).
const V4_INTERFACE: Range<usize> = HEADER_BYTES..HEADER_BYTES + 4;
const V4_LOCAL: Range<usize> = HEADER_BYTES + 4..HEADER_BYTES + 8;
const V4_BYTES: usize = 32; // 12 bytes, aligned to 8.

// `struct in6_pktinfo` (linux/ipv6.h): address (16), interface (4).
const V6_LOCAL: Range<usize> = HEADER_BYTES..HEADER_BYTES + 16;
const V6_INTERFACE: Range<usize> = HEADER_BYTES + 16..HEADER_BYTES + 20;
const V6_BYTES: usize = 40; // 20 bytes, aligned to 8.

const _: () = {
    assert!(HEADER_BYTES == size_of::<libc::cmsghdr>());
    assert!(V4_BYTES == (HEADER_BYTES + size_of::<libc::in_pktinfo>()).next_multiple_of(8));
    assert!(V6_BYTES == (HEADER_BYTES + size_of::<libc::in6_pktinfo>()).next_multiple_of(8));
};

/// Turns the control message of a request into one that sends the reply from the request's destination address. Returns
/// its length, or 0 if the reply needs none.
///
/// `received_bytes` is the length that the kernel wrote to `control`. The message keeps its interface only if the local
/// address has no meaning without it (link-local). Any other reply is routed as usual, even if the route back uses
/// another interface than the request.
pub(crate) fn turn_around(control: &mut Control, received_bytes: usize) -> usize {
    let word = |range: Range<usize>| {
        i32::from_ne_bytes(control[range].try_into().expect("both ranges have 4 bytes"))
    };
    match (received_bytes, word(LEVEL), word(TYPE)) {
        (V4_BYTES.., libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // For a broadcast the kernel has written the address of the interface here, so this is always an address of
            // this host.
            let local: [u8; 4] = control[V4_LOCAL].try_into().expect("the range has 4 bytes");
            if !Ipv4Addr::from(local).is_link_local() {
                control[V4_INTERFACE].fill(0);
            }
            V4_BYTES
        }
        (V6_BYTES.., libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let local: [u8; 16] = control[V6_LOCAL].try_into().expect("the range has 16 bytes");
            let local = Ipv6Addr::from(local);
            if !local.is_unicast_link_local() {
                control[V6_INTERFACE].fill(0);
            }
            // A group cannot be a source: the kernel then chooses among the addresses of the interface.
            if local.is_multicast() { 0 } else { V6_BYTES }
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(local: [u8; 4], interface: u32) -> Control {
        let mut control = header(28, libc::IPPROTO_IP, libc::IP_PKTINFO);
        control[V4_INTERFACE].copy_from_slice(&interface.to_ne_bytes());
        control[V4_LOCAL].copy_from_slice(&local);
        control
    }

    fn v6(local: &str, interface: u32) -> Control {
        let mut control = header(36, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
        control[V6_LOCAL].copy_from_slice(&local.parse::<Ipv6Addr>().unwrap().octets());
        control[V6_INTERFACE].copy_from_slice(&interface.to_ne_bytes());
        control
    }

    fn header(bytes: usize, level: i32, kind: i32) -> Control {
        let mut control = [0; CONTROL_BYTES];
        control[..8].copy_from_slice(&bytes.to_ne_bytes());
        control[LEVEL].copy_from_slice(&level.to_ne_bytes());
        control[TYPE].copy_from_slice(&kind.to_ne_bytes());
        control
    }

    #[test]
    fn global_addresses_lose_their_interface() {
        let mut control = v4([192, 0, 2, 1], 7);
        assert_eq!(turn_around(&mut control, V4_BYTES), V4_BYTES);
        assert_eq!(control, v4([192, 0, 2, 1], 0));

        let mut control = v6("2001:db8::1", 7);
        assert_eq!(turn_around(&mut control, V6_BYTES), V6_BYTES);
        assert_eq!(control, v6("2001:db8::1", 0));
    }

    #[test]
    fn link_local_addresses_keep_their_interface() {
        let mut control = v4([169, 254, 1, 1], 7);
        assert_eq!(turn_around(&mut control, V4_BYTES), V4_BYTES);
        assert_eq!(control, v4([169, 254, 1, 1], 7));

        let mut control = v6("fe80::1", 7);
        assert_eq!(turn_around(&mut control, V6_BYTES), V6_BYTES);
        assert_eq!(control, v6("fe80::1", 7));
    }

    #[test]
    fn a_group_is_not_replied_from() {
        assert_eq!(turn_around(&mut v6("ff02::1", 7), V6_BYTES), 0);
    }

    #[test]
    fn nothing_received_is_nothing_sent() {
        assert_eq!(turn_around(&mut [0; CONTROL_BYTES], 0), 0);
        assert_eq!(turn_around(&mut v4([192, 0, 2, 1], 7), V4_BYTES - 1), 0);
        assert_eq!(turn_around(&mut header(28, libc::SOL_SOCKET, libc::IP_PKTINFO), V4_BYTES), 0);
    }
}
