//! A batch of datagrams, as `recvmmsg` fills it.
#![allow(unsafe_code, reason = "recvmmsg takes headers that point to buffers")]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use shoal_base::transport::datagram::BATCH_MAX;

use crate::REQUEST_BYTES_MAX;
use crate::fault::last_errno;
use crate::shared::Shared;
use crate::socket::{CONTROL_BYTES, Control, NAME_BYTES, NAME_LEN, Name, turn_around};

/// Buffers for `BATCH_MAX` datagrams. Headers, vectors and buffers always point at each other, so a receive has to
/// reset only those that the previous one used.
#[derive(Debug)]
pub(super) struct ReceiveBatch {
    headers: Shared<libc::mmsghdr>,
    vectors: Shared<libc::iovec>,
    buffers: Shared<Buffer>,
    /// The number of headers, from the first, whose lengths and flags the kernel has written.
    used: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'i> {
    pub(super) name: &'i Name,
    name_bytes: usize,
    control: &'i Control,
    control_bytes: usize,
    /// Its content. `None` if it exceeded the maximum size of a request.
    pub(super) request: Option<&'i [u8]>,
}

/// The data that the kernel writes for one datagram. The size is not a multiple of 256 bytes, so that the starts of
/// many buffers do not share a few sets of the cache.
#[repr(C, align(64))]
#[derive(Debug)]
struct Buffer {
    name: Name,
    control: Control,
    payload: [u8; REQUEST_BYTES_MAX],
}

const _: () = assert!(!(size_of::<Buffer>() / 64).is_multiple_of(4));

impl ReceiveBatch {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: `mmsghdr` is a C struct of integers and pointers that may be null.
        let headers = unsafe { Shared::zeroed(BATCH_MAX)? };
        // SAFETY: `iovec` is as well.
        let vectors = unsafe { Shared::zeroed(BATCH_MAX)? };
        // SAFETY: `Buffer` consists of bytes only.
        let buffers = unsafe { Shared::zeroed(BATCH_MAX)? };
        let batch = Self { headers, vectors, buffers, used: BATCH_MAX };
        for index in 0..BATCH_MAX {
            let part = |offset| batch.buffers.pointer(index).wrapping_byte_add(offset).cast();
            // SAFETY: nothing else can access a batch that is being made.
            let vector = unsafe { batch.vectors.element_mut(index) };
            vector.iov_base = part(offset_of!(Buffer, payload));
            vector.iov_len = REQUEST_BYTES_MAX;
            // SAFETY: the same holds for the headers.
            let header = &mut unsafe { batch.headers.element_mut(index) }.msg_hdr;
            header.msg_name = part(offset_of!(Buffer, name));
            header.msg_control = part(offset_of!(Buffer, control));
            header.msg_iov = batch.vectors.pointer(index);
            header.msg_iovlen = 1;
        }
        Ok(batch)
    }

    /// Receives the datagrams that have arrived, at most `BATCH_MAX`, without waiting.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        for index in 0..self.used {
            // SAFETY: `&mut self`, and no receive is in progress, so there is no other access to the headers.
            let header = &mut unsafe { self.headers.element_mut(index) }.msg_hdr;
            // The kernel has overwritten the lengths with the last datagram's.
            header.msg_namelen = NAME_LEN;
            header.msg_controllen = CONTROL_BYTES;
        }
        self.used = 0;
        let count = libc::c_uint::try_from(BATCH_MAX).expect("a batch has a few dozen datagrams");
        // SAFETY: there are BATCH_MAX headers. `new` pointed each at memory of this batch, the loop above has restored
        // the lengths of that memory, and `&mut self` excludes all references to it during the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.pointer(0),
                count,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else { return Err(last_errno()) };
        self.used = received;
        for index in 0..received {
            // SAFETY: `&mut self`, and the receive is over, so there is no other access to the headers.
            let header = &mut unsafe { self.headers.element_mut(index) }.msg_hdr;
            // SAFETY: the same holds for the buffers.
            let buffer = unsafe { self.buffers.element_mut(index) };
            header.msg_controllen = turn_around(&mut buffer.control, header.msg_controllen);
        }
        Ok(received)
    }

    /// Returns datagram `index` of those received last.
    pub(super) fn datagram(&self, index: usize) -> Datagram<'_> {
        assert!(index < self.used, "datagram {index} of {}", self.used);
        // SAFETY: the kernel writes headers only in `receive`, which needs `&mut self`.
        let header = unsafe { self.headers.element(index) };
        // SAFETY: the same holds for the buffers.
        let buffer = unsafe { self.buffers.element(index) };
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        Datagram {
            name: &buffer.name,
            name_bytes: (header.msg_hdr.msg_namelen as usize).min(NAME_BYTES),
            control: &buffer.control,
            control_bytes: header.msg_hdr.msg_controllen,
            request: if truncated { None } else { buffer.payload.get(..header.msg_len as usize) },
        }
    }
}

impl<'i> Datagram<'i> {
    /// Returns the name of the source, as the destination of the reply.
    pub(super) fn return_name(&self) -> &'i [u8] {
        &self.name[..self.name_bytes]
    }

    /// Returns the control message that sends the reply from the request's destination address. May be empty.
    pub(super) fn return_control(&self) -> &'i [u8] {
        &self.control[..self.control_bytes]
    }
}
