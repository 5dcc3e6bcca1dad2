//! Bytes that pass between processes of this host with descriptors beside them (`unix(7)`, SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Maximum number of descriptors beside the bytes of one call. The kernel passes 253 (`SCM_MAX_FD` in net/scm.h).
pub(crate) const DESCRIPTORS_MAX: usize = 250;

/// Sends bytes with at most [`DESCRIPTORS_MAX`] descriptors. Returns the number of bytes sent, which may be a part on a
/// stream. The error is the kernel's error. A signal causes none, even if the socket has a time limit (`signal(7)`).
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let has_room = control.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(has_room, "{} descriptors", descriptors.len());
    }
    let parts = [IoSlice::new(bytes)];
    Ok(retry_on_intr(|| sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL))?)
}

/// Receives bytes with their descriptors. Returns zero bytes at the end of the connection. The error is the kernel's
/// error, as [`send`] does, or an error if the buffers are too small.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let received = retry_on_intr(|| recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    Ok((received.bytes, descriptors))
}
