//! Sends bundles: many datagrams of one size that go to one place in one system call, cut up by the kernel on the
//! way out (`udp(7)`, UDP_SEGMENT).
//!
//! For a client whose datagrams all go to the same server, this saves most of the cost of sending. A real server has no
//! use for it, because each of its replies goes elsewhere.
#![allow(unsafe_code, reason = "sendmsg takes a header that points to buffers")]

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, send, sendto};

use crate::fault::last_errno;
use crate::socket::{NAME_LEN, encode};

/// Most datagrams in a bundle: `UDP_MAX_SEGMENTS` of linux/udp.h before it was raised to 128.
pub const BUNDLE_MAX: usize = 64;

/// Most bytes in a bundle: on its way to be cut up it is one UDP datagram over IPv4.
const BUNDLE_BYTES_MAX: usize = 65_507;

/// Sends from the sockets of a client.
#[derive(Debug)]
pub struct Bundler {
    sockets: Vec<Arc<OwnedFd>>,
    /// Whether the kernel cuts bundles up. Some network cards cannot, and then each datagram takes a call.
    segments: bool,
}

/// A control message with the size of a segment, laid out as `cmsg(3)` has it.
#[repr(C)]
struct SegmentControl {
    header: libc::cmsghdr,
    bytes: u16,
    padding: [u8; 6],
}

/// `CMSG_LEN(2)`.
const CONTROL_LEN: usize = size_of::<libc::cmsghdr>() + size_of::<u16>();

impl Bundler {
    pub(crate) fn new(sockets: Vec<Arc<OwnedFd>>) -> Self {
        Self { sockets, segments: true }
    }

    /// Sends the datagrams that lie back to back in `bundle`, each `datagram_bytes` long, from socket `index` to `to`, or
    /// with `None` to where it is connected. Returns how many the kernel took; it does not take more than
    /// [`BUNDLE_MAX`] at once, of large ones fewer, and never waits.
    ///
    /// # Errors
    /// Where it takes none. `CONNREFUSED` tells of an earlier datagram: the server's host says that nobody listens.
    pub fn send(
        &mut self,
        index: usize,
        to: Option<SocketAddr>,
        bundle: &[u8],
        datagram_bytes: usize,
    ) -> Result<usize, Errno> {
        let fitting = (BUNDLE_BYTES_MAX / datagram_bytes).clamp(1, BUNDLE_MAX);
        let bundle = &bundle[..bundle.len().min(fitting * datagram_bytes)];
        let socket = &self.sockets[index];
        if self.segments && bundle.len() > datagram_bytes {
            match send_segments(socket, to, bundle, datagram_bytes) {
                Ok(sent) => return Ok(sent / datagram_bytes),
                // What the device cannot do, as `udp_send_skb` of net/ipv4/udp.c answers it.
                Err(Errno::IO | Errno::INVAL | Errno::OPNOTSUPP) => self.segments = false,
                Err(errno) => return Err(errno),
            }
        }
        send_one_by_one(socket, to, bundle, datagram_bytes)
    }
}

fn send_one_by_one(
    socket: &OwnedFd,
    to: Option<SocketAddr>,
    bundle: &[u8],
    datagram_bytes: usize,
) -> Result<usize, Errno> {
    let mut sent = 0;
    for datagram in bundle.chunks(datagram_bytes) {
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

fn send_segments(
    socket: &OwnedFd,
    to: Option<SocketAddr>,
    bundle: &[u8],
    datagram_bytes: usize,
) -> Result<usize, Errno> {
    let mut name = to.map(encode);
    let mut vector = libc::iovec { iov_base: bundle.as_ptr().cast_mut().cast(), iov_len: bundle.len() };
    // SAFETY: a control message is integers and bytes; some C libraries have padding in it that has no name.
    let mut control: SegmentControl = unsafe { std::mem::zeroed() };
    control.header.cmsg_len = CONTROL_LEN as _;
    control.header.cmsg_level = libc::SOL_UDP;
    control.header.cmsg_type = libc::UDP_SEGMENT;
    control.bytes = u16::try_from(datagram_bytes).expect("a datagram has at most 65,507 bytes");
    // SAFETY: `msghdr` is integers and pointers that may be null.
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
    // SAFETY: the header points at the name, the vector and the control message above, and the vector at `bundle`, all
    // of which outlive the call; sendmsg only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
    usize::try_from(sent).map_err(|_| last_errno())
}
