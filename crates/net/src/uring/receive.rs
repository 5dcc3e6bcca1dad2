//! The submissions that stay armed: the multishot receive of a socket, and the watch on the waker.
#![allow(unsafe_code, reason = "a receive names a header in memory")]

use std::io;

use io_uring::{opcode, types};

use super::ring::Submission;
use super::token::Token;
use crate::shared::Shared;
use crate::socket::{CONTROL_BYTES, NAME_LEN};

/// What all receives have in common: how much room a provided buffer has for name and control message.
#[derive(Debug)]
pub(super) struct Template {
    header: Shared<libc::msghdr>,
}

impl Template {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: `msghdr` is a C struct of integers and pointers that may be null.
        let header = unsafe { Shared::<libc::msghdr>::zeroed(1)? };
        // SAFETY: the kernel does not know of this memory yet.
        let template = unsafe { header.element_mut(0) };
        template.msg_namelen = NAME_LEN;
        template.msg_controllen = CONTROL_BYTES;
        Ok(Self { header })
    }

    /// Receives on `socket`, over and over, into the buffers of the group of the same number.
    pub(super) fn receive(&self, socket: u8) -> Submission {
        let entry =
            opcode::RecvMsgMulti::new(types::Fixed(socket.into()), self.header.pointer(0), socket.into());
        // SAFETY: the header is written only in `new`, and stays mapped until the ring is idle (`UringIo::drop`).
        // The buffers of the group are none of this entry's: the kernel takes those it is lent.
        unsafe { Submission::new(entry.build(), Token::Receive { socket }) }
    }

    /// Keeps the memory for ever, because the kernel may still read it.
    pub(super) fn leak(&mut self) {
        self.header.leak();
    }
}

/// Completes whenever `file` becomes readable.
pub(super) fn watch(file: u32) -> Submission {
    let readable = u32::from(libc::POLLIN.cast_unsigned());
    let entry = opcode::PollAdd::new(types::Fixed(file), readable).multi(true).build();
    // SAFETY: a poll names no memory.
    unsafe { Submission::new(entry, Token::Wake) }
}
