//! Socket options for which `rustix` has no function.
#![allow(unsafe_code, reason = "setsockopt and getsockopt take pointers to their values")]

use std::mem::MaybeUninit;
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

/// Returns whether the peer of a connection has sent something lately, or has yet to receive earlier output and may still
/// be receiving it: the send queue is not empty, and either nothing is in flight, because the peer's window is closed, or
/// the last acknowledgement is recent (`tcp(7)`, SIOCOUTQ and TCP_INFO). A peer whose host is gone acknowledges nothing.
/// Over a Unix socket, output in the send queue is enough: a peer that has ended would have closed the socket.
pub(crate) fn is_receiving(socket: impl AsFd) -> bool {
    /// The age in milliseconds from which a segment of the peer shows nothing. With the resolution of both clocks it is
    /// below the time from a challenge to this question, so that nothing from before the challenge counts.
    const AGE_MS_MAX: u32 = 2500;
    let has_queue = || queued_bytes(&socket).is_ok_and(|queued| queued > 0);
    match tcp_info(&socket) {
        Ok(info) if info.tcpi_last_data_recv < AGE_MS_MAX => true,
        Ok(info) => {
            let is_in_flight = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
            has_queue() && (!is_in_flight || info.tcpi_last_ack_recv < AGE_MS_MAX)
        }
        Err(_) => has_queue(),
    }
}

/// Returns how many bytes of output are in the send queue, including those in flight (`tcp(7)`, SIOCOUTQ, which is
/// TIOCOUTQ).
fn queued_bytes(socket: impl AsFd) -> Result<c_int, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int to `bytes` before the call returns.
    let failed = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if failed == 0 { Ok(bytes) } else { Err(last_errno()) }
}

/// Returns the state of a TCP connection (`tcp(7)`, TCP_INFO).
fn tcp_info(socket: impl AsFd) -> Result<libc::tcp_info, Errno> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut bytes = socklen_of::<libc::tcp_info>();
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of `info`.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    // SAFETY: all fields are integers, for which zero and any other bytes are valid.
    if failed == 0 { Ok(unsafe { info.assume_init() }) } else { Err(last_errno()) }
}

/// Makes the kernel choose the socket of a group that shares a port by the processor that received the datagram: that of
/// `processors` with the same index as the socket in its group (`socket(7)`, SO_ATTACH_REUSEPORT_CBPF). Datagrams that
/// other processors receive are distributed by their addresses, as without this.
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

/// Sets an option that takes an int.
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn a_peer_with_output_in_flight_is_receiving_and_one_that_has_all_is_not() {
        let (mut server, mut client) = pair();
        thread::sleep(Duration::from_secs(3));
        assert!(!is_receiving(&server));
        server.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(more) = server.write(&[0; 100_000]) {
            written += more;
        }
        assert!(is_receiving(&server), "{written} bytes are in the queues");
        client.read_exact(&mut vec![0; written]).unwrap();
        // The last acknowledgement may take a moment.
        for _ in 0..10_000 {
            if !is_receiving(&server) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the peer has received everything, and still counts as receiving");
    }

    #[test]
    fn a_peer_whose_window_has_been_closed_for_seconds_is_receiving() {
        let (mut server, _client) = pair();
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 100_000]).is_ok() {}
        thread::sleep(Duration::from_millis(3500));
        assert!(is_receiving(&server), "it answers the probes of its window");
    }

    #[test]
    fn a_peer_that_has_sent_something_lately_is_receiving() {
        let (server, mut client) = pair();
        thread::sleep(Duration::from_secs(3));
        client.write_all(b"announce").unwrap();
        for _ in 0..1000 {
            if is_receiving(&server) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the announce has not arrived, or does not count");
    }

    #[test]
    fn the_peer_of_a_unix_socket_is_receiving_while_it_leaves_output_unread() {
        let (mut server, mut client) = UnixStream::pair().unwrap();
        assert!(!is_receiving(&server));
        server.write_all(b"ping").unwrap();
        assert!(is_receiving(&server));
        client.read_exact(&mut [0; 4]).unwrap();
        assert!(!is_receiving(&server));
    }

    /// Needs root (CAP_SYS_ADMIN), since it takes down the loopback device of a network namespace of its own.
    #[test]
    fn a_peer_that_acknowledges_nothing_is_not_receiving() {
        let isolated = || {
            // SAFETY: the flag changes the network of this thread only; descriptors stay shared.
            if let Err(errno) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
                // `cargo xtask` recognises this line, which is an error in CI.
                eprintln!("skipped: this test needs root to create a network namespace: {errno}");
                return;
            }
            let loopback = |state| {
                let status = Command::new("ip").args(["link", "set", "lo", state]).status();
                assert!(status.expect("ip is installed").success());
            };
            loopback("up");
            let (mut server, _client) = pair();
            loopback("down");
            server.write_all(b"ping").unwrap();
            assert!(is_receiving(&server), "it may only be slow");
            thread::sleep(Duration::from_secs(3));
            assert!(!is_receiving(&server));
        };
        thread::scope(|scope| scope.spawn(isolated).join()).unwrap();
    }
}
