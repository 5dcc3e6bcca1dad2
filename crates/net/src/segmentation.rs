//! Sends many datagrams of one size to one address in one system call. The kernel splits them (`udp(7)`, UDP_SEGMENT).
//!
//! This saves most of the cost of sending for a client whose datagrams all go to the same server. A server's replies go
//! to different addresses, so a server has no use for it.
#![allow(unsafe_code, reason = "sendmsg takes a header that points to buffers")]

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, send, sendto};

use crate::fault::last_errno;
use crate::socket::{NAME_LEN, encode};

/// Maximum number of datagrams in a call: `UDP_MAX_SEGMENTS` of linux/udp.h before it was raised to 128.
pub const SEGMENTS_MAX: usize = 64;

/// Maximum number of bytes in a call: until it is split, the whole is one UDP datagram over IPv4.
const SEGMENTED_BYTES_MAX: usize = 65_507;

/// Sends from the sockets of a client.
#[derive(Debug)]
pub struct SegmentedSender {
    sockets: Vec<Arc<OwnedFd>>,
    /// Whether the kernel can split. Some network cards do not support it, and each datagram then takes a call.
    segments: bool,
}

/// A control message with the size of a segment, with the layout of `cmsg(3)`.
#[repr(C)]
struct SegmentControl {
    header: libc::cmsghdr,
    bytes: u16,
    padding: [u8; 6],
}

/// `CMSG_LEN(2)`.
const CONTROL_LEN: usize = size_of::<libc::cmsghdr>() + size_of::<u16>();

impl SegmentedSender {
    pub(crate) fn new(sockets: Vec<Arc<OwnedFd>>) -> Self {
        Self { sockets, segments: true }
    }

    /// Sends the consecutive `datagrams`, each `datagram_bytes` long, from socket `index` to `to`, or to the connected
    /// address without `to`. Returns how many of them the kernel accepted, at most [`SEGMENTS_MAX`] and fewer if they
    /// are large. Never waits. Fails if the kernel accepts none. `CONNREFUSED` is about an earlier datagram: the
    /// server's host reports that no program listens there.
    pub fn send(
        &mut self,
        index: usize,
        to: Option<SocketAddr>,
        datagrams: &[u8],
        datagram_bytes: usize,
    ) -> Result<usize, Errno> {
        let fitting = (SEGMENTED_BYTES_MAX / datagram_bytes).clamp(1, SEGMENTS_MAX);
        let datagrams = &datagrams[..datagrams.len().min(fitting * datagram_bytes)];
        let socket = &self.sockets[index];
        if self.segments && datagrams.len() > datagram_bytes {
            match send_segments(socket, to, datagrams, datagram_bytes) {
                Ok(sent) => return Ok(sent / datagram_bytes),
                // The errors of a device that cannot split, see `udp_send_skb` of net/ipv4/udp.c.
                Err(Errno::IO | Errno::INVAL | Errno::OPNOTSUPP) => self.segments = false,
                Err(errno) => return Err(errno),
            }
        }
        let mut sent = 0;
        for datagram in datagrams.chunks(datagram_bytes) {
            let outcome = match to {
                Some(to) => sendto(socket, datagram, SendFlags::DONTWAIT, &to),
                None => send(socket, datagram, SendFlags::DONTWAIT),
            };
            match outcome {
                Ok(_) => sent += 1,
                Err(errno) if sent == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(sent)
    }
}

fn send_segments(
    socket: &OwnedFd,
    to: Option<SocketAddr>,
    datagrams: &[u8],
    datagram_bytes: usize,
) -> Result<usize, Errno> {
    let mut name = to.map(encode);
    let mut vector = libc::iovec { iov_base: datagrams.as_ptr().cast_mut().cast(), iov_len: datagrams.len() };
    // SAFETY: a control message consists of integers and bytes; some C libraries have unnamed padding in it.
    let mut control: SegmentControl = unsafe { std::mem::zeroed() };
    control.header.cmsg_len = CONTROL_LEN as _;
    control.header.cmsg_level = libc::SOL_UDP;
    control.header.cmsg_type = libc::UDP_SEGMENT;
    control.bytes = u16::try_from(datagram_bytes).expect("a datagram has at most 65,507 bytes");
    // SAFETY: `msghdr` consists of integers and pointers that may be null.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some(name) = &mut name {
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = NAME_LEN;
    }
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<SegmentControl>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points at the name, the vector and the control message above, and the vector at `datagrams`.
    // All of them outlive the call, and sendmsg only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
    usize::try_from(sent).map_err(|_| last_errno())
}
