//! The interfaces of the host and their addresses, as the C library lists them.
#![allow(unsafe_code, reason = "getifaddrs returns a list of pointers")]

use std::ffi::CStr;
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

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Ip(IpAddr),
    Mac { interface_index: u32, mac: [u8; 6] },
    Other,
}

/// Returns the name of an interface and an address of it, for each address of any kind.
pub(super) fn entries() -> io::Result<Vec<(String, Address)>> {
    let mut first = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let list = List(first);
    let mut entries = Vec::new();
    let mut next = list.0;
    // SAFETY: the entries are a list that ends with a null pointer, and live until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: the name is a string of the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        entries.push((name.to_string_lossy().into_owned(), address(entry.ifa_addr)));
        next = entry.ifa_next;
    }
    Ok(entries)
}

/// Returns the address that an entry of the list refers to.
fn address(pointer: *const libc::sockaddr) -> Address {
    // SAFETY: the pointer is null, or that of an address of the list.
    let family = unsafe { pointer.as_ref() }.map_or(libc::AF_UNSPEC, |address| address.sa_family.into());
    match family {
        libc::AF_INET => {
            // SAFETY: addresses of this family are such structures. The list does not say that they are aligned.
            let address = unsafe { pointer.cast::<libc::sockaddr_in>().read_unaligned() };
            Address::Ip(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as for the other family.
            let address = unsafe { pointer.cast::<libc::sockaddr_in6>().read_unaligned() };
            Address::Ip(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        libc::AF_PACKET => {
            // SAFETY: as for the others.
            let address = unsafe { pointer.cast::<libc::sockaddr_ll>().read_unaligned() };
            let interface_index = u32::try_from(address.sll_ifindex).ok();
            match (interface_index, address.sll_halen, address.sll_addr) {
                (Some(interface_index), 6, [mac @ .., _, _]) => Address::Mac { interface_index, mac },
                _ => Address::Other,
            }
        }
        _ => Address::Other,
    }
}
