//! Addresses of datagrams, in the form that the kernel uses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::socklen_t;

/// Space for any UDP address: `sockaddr_in6` takes 28 bytes, and 32 keep the next field aligned.
pub(crate) const NAME_LEN: socklen_t = 32;
/// [`NAME_LEN`] as an array size.
pub(crate) const NAME_BYTES: usize = NAME_LEN as usize;

/// A `struct sockaddr_in` (linux/in.h) or `sockaddr_in6` (linux/in6.h), as `recvmsg` writes it and `sendmsg` takes it.
pub(crate) type Name = [u8; NAME_BYTES];

const _: () = assert!(size_of::<libc::sockaddr_in6>() <= NAME_BYTES);

/// Returns the address in `name`, or `None` if its family does not fit UDP. Returns a v4-mapped IPv6 address as IPv4.
pub(crate) fn decode_source(name: &Name) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes([name[0], name[1]]);
    let port = u16::from_be_bytes([name[2], name[3]]);
    match i32::from(family) {
        libc::AF_INET => {
            let ip = Ipv4Addr::new(name[4], name[5], name[6], name[7]);
            Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
        }
        libc::AF_INET6 => {
            // Bytes 4 to 7 are the flow label, which a tracker ignores.
            let ip: [u8; 16] = name[8..24].try_into().expect("the range has 16 bytes");
            let scope_id = u32::from_ne_bytes([name[24], name[25], name[26], name[27]]);
            let ip = Ipv6Addr::from(ip);
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddr::V4(SocketAddrV4::new(ip, port)),
                None => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope_id)),
            })
        }
        _ => None,
    }
}

/// Returns the name of an address for `sendmsg`.
pub(crate) fn encode(addr: SocketAddr) -> Name {
    let mut name = [0; NAME_BYTES];
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    name[..2].copy_from_slice(&u16::try_from(family).expect("families are small numbers").to_ne_bytes());
    name[2..4].copy_from_slice(&addr.port().to_be_bytes());
    match addr {
        SocketAddr::V4(addr) => name[4..8].copy_from_slice(&addr.ip().octets()),
        SocketAddr::V6(addr) => {
            name[8..24].copy_from_slice(&addr.ip().octets());
            name[24..28].copy_from_slice(&addr.scope_id().to_ne_bytes());
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> Name {
        let mut name = [0; NAME_BYTES];
        name[..bytes.len()].copy_from_slice(bytes);
        name
    }

    fn name_v6(ip: &str, port: u16, scope_id: u32) -> Name {
        let mut bytes = u16::try_from(libc::AF_INET6).unwrap().to_ne_bytes().to_vec();
        bytes.extend(port.to_be_bytes());
        bytes.extend([9; 4]);
        bytes.extend(ip.parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(scope_id.to_ne_bytes());
        name(&bytes)
    }

    #[test]
    fn v4() {
        let [low, high] = u16::try_from(libc::AF_INET).unwrap().to_ne_bytes();
        let name = name(&[low, high, 0x1b, 0x39, 192, 0, 2, 7]);
        assert_eq!(decode_source(&name), Some("192.0.2.7:6969".parse().unwrap()));
    }

    #[test]
    fn v6_keeps_the_scope_of_a_link_local_address() {
        let expected = SocketAddrV6::new("fe80::1".parse().unwrap(), 6969, 0, 3);
        assert_eq!(decode_source(&name_v6("fe80::1", 6969, 3)), Some(expected.into()));
    }

    #[test]
    fn v4_mapped_is_v4() {
        let source = decode_source(&name_v6("::ffff:192.0.2.7", 6969, 0));
        assert_eq!(source, Some("192.0.2.7:6969".parse().unwrap()));
    }

    #[test]
    fn other_families_are_none() {
        assert_eq!(decode_source(&name(&[])), None);
        assert_eq!(decode_source(&[0xff; NAME_BYTES]), None);
    }

    #[test]
    fn encoded_addresses_are_decoded() {
        for addr in ["192.0.2.7:6881", "[2001:db8::7]:6881", "[fe80::1%3]:1"] {
            let addr = addr.parse().unwrap();
            assert_eq!(decode_source(&encode(addr)), Some(addr));
        }
    }
}
