//! A batch of replies, as `sendmmsg` takes it.
#![allow(unsafe_code, reason = "sendmmsg takes headers that point to buffers")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::socklen_t;
use rustix::io::Errno;
use shoal_base::transport::datagram::BATCH_MAX;

use crate::fault::last_errno;
use crate::{FamilyCounters, fault};

/// Headers for `BATCH_MAX` replies. Their pointers are valid only while `send` runs, and are used only there.
pub(super) struct SendBatch {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reply<'r> {
    /// The name of the destination.
    pub(super) name: &'r [u8],
    /// The control message that chooses the local address. May be empty.
    pub(super) control: &'r [u8],
    pub(super) payload: &'r [u8],
}

impl SendBatch {
    pub(super) fn new() -> Self {
        // SAFETY: `mmsghdr` is a C struct of integers and pointers that may be null.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self { headers: Box::new([header; BATCH_MAX]), vectors: Box::new([vector; BATCH_MAX]) }
    }

    /// Sends the replies, at most `BATCH_MAX`, and counts the outcome of each. Never waits: if the socket or the device
    /// has no room, the rest of the batch is dropped, because it would find no room either.
    pub(super) fn send<'r>(
        &mut self,
        socket: BorrowedFd<'_>,
        replies: impl Iterator<Item = Reply<'r>>,
        counters: &FamilyCounters,
    ) {
        let mut count = 0;
        for ((reply, header), vector) in replies.zip(&mut self.headers).zip(&mut self.vectors) {
            point(&mut header.msg_hdr, vector, &reply);
            count += 1;
        }
        let mut next = 0;
        while next < count {
            let (headers, flags) = (&mut self.headers[next..count], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            let len = libc::c_uint::try_from(headers.len()).expect("a batch has a few dozen datagrams");
            // SAFETY: the slice has `len` headers. `point` has just directed them at replies that are borrowed for 'r,
            // which outlives this call, and at vectors that are borrowed with `self`. sendmmsg writes only to the
            // lengths.
            let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), len, flags) };
            match usize::try_from(sent).map_err(|_| last_errno()) {
                Ok(sent) => {
                    counters.sent.add(sent as u64);
                    next += sent;
                }
                Err(Errno::INTR) => {}
                Err(errno @ (Errno::AGAIN | Errno::NOBUFS)) => {
                    fault::count_send(errno, count - next, counters);
                    break;
                }
                Err(errno) => {
                    // The error concerns the first header. The others may succeed.
                    fault::count_send(errno, 1, counters);
                    next += 1;
                }
            }
        }
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch").finish_non_exhaustive()
    }
}

/// Directs a header at a reply. The kernel declares pointers to mutable memory here, but only reads.
fn point(header: &mut libc::msghdr, vector: &mut libc::iovec, reply: &Reply<'_>) {
    *vector =
        libc::iovec { iov_base: reply.payload.as_ptr().cast_mut().cast(), iov_len: reply.payload.len() };
    header.msg_name = reply.name.as_ptr().cast_mut().cast();
    header.msg_namelen = socklen_t::try_from(reply.name.len()).expect("a name has a few dozen bytes");
    header.msg_control = reply.control.as_ptr().cast_mut().cast();
    header.msg_controllen = reply.control.len();
    header.msg_iov = vector;
    header.msg_iovlen = 1;
}
