//! The submissions that stay armed: the multishot receive of a socket, and the polls that end a wait.
#![allow(unsafe_code, reason = "a receive names a header in memory")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::{opcode, types};

use super::message::{MESSAGE_BYTES_MAX, Message};
use super::token::Token;
use crate::ring::provided::BufferGroup;
use crate::ring::{Ring, Submission};
use crate::shared::Shared;
use crate::socket::{CONTROL_BYTES, NAME_LEN};

/// The common part of all receives: the space for name and control message in a provided buffer.
#[derive(Debug)]
pub(super) struct Template {
    header: Shared<libc::msghdr>,
}

impl Template {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: `msghdr` is a C struct of integers and pointers that may be null.
        let mut header = unsafe { Shared::<libc::msghdr>::zeroed(1)? };
        // SAFETY: the kernel does not know of this memory yet.
        let template = unsafe { header.element_mut(0) };
        template.msg_namelen = NAME_LEN;
        template.msg_controllen = CONTROL_BYTES;
        // Each receive names the header, so it stays until `reclaim`.
        header.leak();
        Ok(Self { header })
    }

    /// Receives on `socket`, repeatedly, into the buffers of the group with the same number.
    pub(super) fn receive(&self, socket: u8) -> Submission {
        let entry =
            opcode::RecvMsgMulti::new(types::Fixed(socket.into()), self.header.pointer(0), socket.into());
        // SAFETY: the header is written only in `new`, and stays mapped until the ring is idle (`reclaim`). The
        // entry does not refer to the buffers of the group: the kernel takes those that it is lent.
        unsafe { Submission::new(entry.build(), Token::Receive { socket }.encode()) }
    }

    /// Lets the memory be freed with the template.
    ///
    /// # Safety
    /// No receive may be in progress, or begin later.
    pub(super) unsafe fn reclaim(&mut self) {
        // SAFETY: only receives read the header.
        unsafe { self.header.reclaim() };
    }
}

/// Creates the buffers of a socket, and registers them under its number.
pub(super) fn open_group(ring: &Ring, socket: u8, count: u16) -> io::Result<BufferGroup<Message>> {
    // SAFETY: `Message` consists of integers and bytes only.
    let mut group = unsafe { BufferGroup::new(socket, count, MESSAGE_BYTES_MAX)? };
    group.register(ring)?;
    Ok(group)
}

/// Completes whenever the waker at `file` becomes readable.
pub(super) fn await_wake(file: u32) -> Submission {
    poll(opcode::PollAdd::new(types::Fixed(file), READABLE).multi(true), Token::Wake)
}

/// Completes once, when `descriptor` is readable. The descriptor is not a file of the ring, because a ring cannot
/// register another ring (`io_uring_register_files(3)`, EBADF).
pub(super) fn watch(descriptor: impl AsFd) -> Submission {
    poll(opcode::PollAdd::new(types::Fd(descriptor.as_fd().as_raw_fd()), READABLE), Token::Watch)
}

const READABLE: u32 = libc::POLLIN.cast_unsigned() as u32;

fn poll(entry: opcode::PollAdd, token: Token) -> Submission {
    // SAFETY: a poll refers to no memory.
    unsafe { Submission::new(entry.build(), token.encode()) }
}
