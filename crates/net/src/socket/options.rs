//! Socket options for which `rustix` has no function.
#![allow(unsafe_code, reason = "setsockopt and getsockopt take pointers to their values")]

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use libc::{c_int, socklen_t};
use rustix::io::Errno;

use crate::fault::last_errno;

/// Makes every datagram report the local IPv4 address that it was sent to (`ip(7)`, IP_PKTINFO).
pub(super) fn report_local_v4(socket: impl AsFd) -> Result<(), Errno> {
    enable(socket, libc::IPPROTO_IP, libc::IP_PKTINFO)
}

/// Makes every datagram report the local IPv6 address that it was sent to (`ipv6(7)`, IPV6_RECVPKTINFO).
pub(super) fn report_local_v6(socket: impl AsFd) -> Result<(), Errno> {
    enable(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
}

/// The kernel's counters of a socket: `SK_MEMINFO_*` of linux/sock_diag.h, indexed by those constants.
pub(super) type MemoryInfo = [u32; 9];

/// Bytes of received datagrams that wait to be read, including the kernel's overhead.
pub(super) const SK_MEMINFO_RMEM_ALLOC: usize = 0;
/// Datagrams dropped because they did not fit the receive buffer, since the socket was created.
pub(super) const SK_MEMINFO_DROPS: usize = 8;

/// Reads the counters of a socket (`socket(7)`, SO_MEMINFO).
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

/// Makes the kernel retain accepted connections until data arrive, or for this long (`tcp(7)`, TCP_DEFER_ACCEPT).
pub(crate) fn defer_accept(socket: impl AsFd, seconds: c_int) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Makes the kernel accept no more output of a connection while this many bytes wait to be sent for the first time
/// (`tcp(7)`, TCP_NOTSENT_LOWAT).
pub(crate) fn limit_unsent(socket: impl AsFd, bytes: c_int) -> Result<(), Errno> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Makes the kernel choose the socket of a group that shares a port by the processor that received the datagram. The
/// socket's index in its group equals the processor's index in `processors` (`socket(7)`, SO_ATTACH_REUSEPORT_CBPF).
/// Datagrams of other processors are distributed by their addresses, as without this.
pub(super) fn steer_by_processor(socket: impl AsFd, processors: &[usize]) -> Result<(), Errno> {
    let mut program = steering(processors);
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the descriptor and the program to which it points before the call returns; the pointer
    // and the length are those of a vector that lives until then.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            ptr::from_ref(&program).cast(),
            socklen_of::<libc::sock_fprog>(),
        )
    };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Returns the program that maps processors to the indexes of sockets (linux/filter.h).
fn steering(processors: &[usize]) -> Vec<libc::sock_filter> {
    let instruction = |code: u32, jf, k| {
        let code = u16::try_from(code).expect("the codes of instructions have 16 bits");
        libc::sock_filter { code, jt: 0, jf, k }
    };
    let current = (libc::SKF_AD_OFF + libc::SKF_AD_CPU).cast_unsigned();
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, current)];
    for (index, processor) in (0..).zip(processors) {
        let processor = u32::try_from(*processor).unwrap_or(u32::MAX);
        // On any other processor, one instruction is skipped.
        program.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, processor));
        program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, index));
    }
    // No group has a socket with this index.
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, u32::MAX));
    program
}

fn enable(socket: impl AsFd, level: c_int, option: c_int) -> Result<(), Errno> {
    set(socket, level, option, 1)
}

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
