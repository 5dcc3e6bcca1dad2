//! Socket options for which `rustix` has no function, and the calls that wake the kernel up.
#![allow(unsafe_code, reason = "setsockopt takes a pointer")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// `XDP_MAX_TX_SKB_BUDGET` of `linux/if_xdp.h` (Linux 6.17).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// How long a busy poll looks for packets, in microseconds, and how many it takes.
const BUSY_POLL_US: libc::c_int = 20;
const BUSY_POLL_PACKETS: libc::c_int = 64;

/// Makes system calls on the socket poll the network card, instead of interrupts, or stops that.
pub(super) fn set_busy_poll(socket: BorrowedFd<'_>, polls: bool) -> Result<(), Errno> {
    set(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, polls.into())?;
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, if polls { BUSY_POLL_US } else { 0 })?;
    if polls { set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, BUSY_POLL_PACKETS) } else { Ok(()) }
}

/// Lets a call send this many frames if the kernel copies them. The default is 32.
pub(super) fn set_transmit_budget(socket: BorrowedFd<'_>, frames: u32) -> Result<(), Errno> {
    set(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, frames.cast_signed())
}

/// Lets the frames in transmission take more memory than a socket's default, if this process is permitted to.
pub(super) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: i32) -> Result<(), Errno> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
}

pub(super) fn wake_transmit(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    send(socket, &[], SendFlags::DONTWAIT).map(drop)
}

/// Makes the kernel take frames from the fill ring. With busy polling, it polls the network card too.
pub(super) fn wake_receive(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    recv(socket, &mut [0_u8; 0], RecvFlags::DONTWAIT).map(drop)
}

fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    let bytes = libc::socklen_t::try_from(size_of_val(&value)).map_err(|_| Errno::INVAL)?;
    // SAFETY: all of these options take an int, which the kernel copies.
    let failed =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, ptr::from_ref(&value).cast(), bytes) };
    if failed == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    fn busy_poll_of(socket: BorrowedFd<'_>) -> [libc::c_int; 2] {
        [libc::SO_PREFER_BUSY_POLL, libc::SO_BUSY_POLL].map(|option| {
            let (mut value, mut bytes): (libc::c_int, libc::socklen_t) = (-1, 4);
            // SAFETY: the kernel writes one int and its length.
            let failed = unsafe {
                let (fd, value) = (socket.as_raw_fd(), (&raw mut value).cast());
                libc::getsockopt(fd, libc::SOL_SOCKET, option, value, &raw mut bytes)
            };
            assert_eq!((failed, bytes), (0, 4));
            value
        })
    }

    #[test]
    fn busy_polling_begins_and_ends() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (polls, expected) in [(false, [0, 0]), (true, [1, BUSY_POLL_US]), (false, [0, 0])] {
            match set_busy_poll(socket.as_fd(), polls) {
                // It takes CAP_NET_ADMIN.
                Err(Errno::PERM) => return,
                outcome => outcome.unwrap(),
            }
            assert_eq!(busy_poll_of(socket.as_fd()), expected, "{polls}");
        }
    }
}
