//! Socket options for which `rustix` has no function.
#![allow(unsafe_code, reason = "setsockopt and getsockopt take pointers to their values")]

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use libc::{c_int, socklen_t};
use rustix::io::Errno;

use crate::fault::last_errno;

/// Has every datagram tell which local IPv4 address it was sent to (`ip(7)`, IP_PKTINFO).
pub(super) fn report_local_v4(socket: impl AsFd) -> Result<(), Errno> {
    enable(socket, libc::IPPROTO_IP, libc::IP_PKTINFO)
}

/// Has every datagram tell which local IPv6 address it was sent to (`ipv6(7)`, IPV6_RECVPKTINFO).
pub(super) fn report_local_v6(socket: impl AsFd) -> Result<(), Errno> {
    enable(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
}

/// The kernel's accounts of a socket: `SK_MEMINFO_*` of linux/sock_diag.h, indexed by those constants.
pub(super) type MemoryInfo = [u32; 9];

/// Bytes of received datagrams that wait to be read, with the kernel's own overhead.
pub(super) const SK_MEMINFO_RMEM_ALLOC: usize = 0;
/// Datagrams that were dropped because they did not fit the receive buffer, since the socket was made.
pub(super) const SK_MEMINFO_DROPS: usize = 8;

/// Reads the accounts of a socket (`socket(7)`, SO_MEMINFO).
pub(super) fn memory_info(socket: impl AsFd) -> Result<MemoryInfo, Errno> {
    let mut info = MemoryInfo::default();
    let mut bytes = socklen_of::<MemoryInfo>();
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of `info`, and any `u32` is valid.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            ptr::from_mut(&mut info).cast(),
            &raw mut bytes,
        )
    };
    if failed == 0 { Ok(info) } else { Err(last_errno()) }
}

/// Keeps accepted connections with the kernel until data arrive, or for this long (`tcp(7)`, TCP_DEFER_ACCEPT).
pub(crate) fn defer_accept(socket: impl AsFd, seconds: c_int) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Has the kernel take no more for the peer of a connection while so many bytes wait to be sent a first time (`tcp(7)`,
/// TCP_NOTSENT_LOWAT).
pub(crate) fn limit_unsent(socket: impl AsFd, bytes: c_int) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

fn enable(socket: impl AsFd, level: c_int, option: c_int) -> Result<(), Errno> {
    set(socket, level, option, 1)
}

/// Sets an option that takes an int, as all of those above do.
fn set(socket: impl AsFd, level: c_int, option: c_int, value: c_int) -> Result<(), Errno> {
    // SAFETY: the kernel copies one int, or less, from `value` before the call returns.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            ptr::from_ref(&value).cast(),
            socklen_of::<c_int>(),
        )
    };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

fn socklen_of<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).expect("option values have a few bytes")
}
