//! The addresses of the host, from the C library.
#![allow(unsafe_code, reason = "getifaddrs returns a list of pointers")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// A list of `getifaddrs`, which it frees.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list was returned by `getifaddrs`, and nothing refers to it any more.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

pub(super) fn ips() -> io::Result<Vec<IpAddr>> {
    let mut first = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let list = List(first);
    let mut ips = Vec::new();
    let mut next = list.0;
    // SAFETY: the entries are a list that ends with a null pointer, and live until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        ips.extend(ip(entry.ifa_addr));
        next = entry.ifa_next;
    }
    Ok(ips)
}

/// Returns the address of an entry of the list, if it is an IP address.
fn ip(pointer: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the pointer is null or refers to an address of the list.
    let family = unsafe { pointer.as_ref() }.map_or(libc::AF_UNSPEC, |address| address.sa_family.into());
    match family {
        libc::AF_INET => {
            // SAFETY: addresses of this family are such structures. The list does not say that they are aligned.
            let address = unsafe { pointer.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as for IPv4.
            let address = unsafe { pointer.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
