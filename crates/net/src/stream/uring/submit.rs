//! The submissions that name no memory of a connection, and the descriptors that come out of an accept.
#![allow(unsafe_code, reason = "a submission vouches for memory, and a completion for a descriptor")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;

use io_uring::squeue::Flags;
use io_uring::{opcode, squeue, types};

use super::super::slab::Key;
use super::link::Socket;
use super::slots::{Slot, Slots};
use super::token::Token;
use crate::ring::provided::BufferGroup;
use crate::ring::{Ring, Submission};

/// Bytes of a receive buffer.
pub(super) const INPUT_BYTES: usize = 16 * 1024;

/// What one receive yields.
pub(super) type Input = [u8; INPUT_BYTES];

/// The only group of buffers.
const GROUP: u8 = 0;

/// Does not try before the socket is readable (linux/io_uring.h, IORING_RECVSEND_POLL_FIRST).
const POLL_FIRST: u16 = 1;

/// Makes the receive buffers of a worker, known to the kernel.
pub(super) fn open_buffers(ring: &Ring, count: u16) -> io::Result<BufferGroup<Input>> {
    const LENGTH: u32 = 16 * 1024;
    const { assert!(LENGTH as usize == INPUT_BYTES) };
    // SAFETY: a `u8` may have any value.
    let group = unsafe { BufferGroup::new(GROUP, count, LENGTH)? };
    // SAFETY: the ring is idle before the group is dropped, or the group is leaked (`UringIo::drop`).
    unsafe { group.register(ring)? };
    Ok(group)
}

/// Accepts from `listener`, over and over.
pub(super) fn accept(listener: BorrowedFd<'_>, index: u32) -> Submission {
    let entry = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC);
    plain(entry.build(), Token::Accept(index))
}

/// Receives once into a buffer of the group: at once what is there, or with `later` what will come.
pub(super) fn receive(socket: &Socket, key: Key, later: bool) -> Submission {
    let entry = match socket {
        Socket::Descriptor(fd) => opcode::Recv::new(types::Fd(fd.as_raw_fd()), ptr::null_mut(), 0),
        Socket::Slot(Slot(slot)) => opcode::Recv::new(types::Fixed(*slot), ptr::null_mut(), 0),
    };
    let entry = entry.buf_group(GROUP.into()).ioprio(if later { POLL_FIRST } else { 0 });
    plain(entry.build().flags(Flags::BUFFER_SELECT), Token::Receive(key))
}

/// Puts `socket` into a slot that was taken, and closes its descriptor, which from now on is the kernel's.
pub(super) fn enlist(slots: &Slots, slot: Slot, socket: OwnedFd) -> [Submission; 2] {
    let (descriptor, note) = slots.note(slot, socket);
    let offset = i32::try_from(slot.0).expect("a table has fewer slots");
    let update = opcode::FilesUpdate::new(note, 1).offset(offset).build().flags(Flags::SKIP_SUCCESS);
    // SAFETY: the note stays where it is and as it is until the slot is taken again, which is after the completion of its
    // close, and that is submitted later; the notes are dropped when the ring is idle, or are leaked (`UringIo::drop`).
    let update = unsafe { Submission::new(update, Token::None.encode()) };
    [update, quiet(opcode::Close::new(types::Fd(descriptor)).build())]
}

/// Closes what is in a slot.
pub(super) fn close_slot(slot: Slot) -> Submission {
    plain(opcode::Close::new(types::Fixed(slot.0)).build(), Token::Close(slot))
}

/// Has the kernel throw away what the peer has not taken when it closes what is in a slot (`socket(7)`, SO_LINGER).
pub(super) fn reset_on_close(slot: Slot) -> Submission {
    static AT_ONCE: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };
    const LENGTH: u32 = 8;
    const { assert!(LENGTH as usize == size_of::<libc::linger>()) };
    let (level, name) = (libc::SOL_SOCKET.unsigned_abs(), libc::SO_LINGER.unsigned_abs());
    let entry =
        opcode::SetSockOpt::new(types::Fixed(slot.0), level, name, (&raw const AT_ONCE).cast(), LENGTH);
    // SAFETY: what it names is never freed, nor written to.
    unsafe { Submission::new(entry.build().flags(Flags::SKIP_SUCCESS), Token::None.encode()) }
}

/// Closes the sending direction of what is in a slot.
pub(super) fn end_sending(slot: Slot, key: Key) -> Submission {
    plain(opcode::Shutdown::new(types::Fixed(slot.0), libc::SHUT_WR).build(), Token::End(key))
}

/// Gives a connection that has more to say its turn.
pub(super) fn resume(key: Key) -> Submission {
    plain(opcode::Nop::new().build(), Token::Resume(key))
}

/// Closes `socket`, which from now on is the kernel's.
pub(super) fn close(socket: OwnedFd) -> Submission {
    quiet(opcode::Close::new(types::Fd(socket.into_raw_fd())).build())
}

/// Closes a socket after the submission that this one is linked to. It stays the caller's in case that does not come to
/// pass.
pub(super) fn close_later(socket: &Socket) -> Submission {
    match socket {
        Socket::Descriptor(fd) => quiet(opcode::Close::new(types::Fd(fd.as_raw_fd())).build()),
        Socket::Slot(slot) => close_slot(*slot),
    }
}

/// Cancels what has this token.
pub(super) fn cancel(token: Token) -> Submission {
    quiet(opcode::AsyncCancel::new(token.encode()).build())
}

/// The descriptor that an accept has yielded, to be called once for each.
pub(super) fn accepted(descriptor: usize) -> OwnedFd {
    let descriptor = RawFd::try_from(descriptor).expect("descriptors are small numbers");
    // SAFETY: the completion that tells of it is the only one to know of it, and it is taken once.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// A submission whose success goes without saying.
fn quiet(entry: squeue::Entry) -> Submission {
    plain(entry.flags(Flags::SKIP_SUCCESS), Token::None)
}

fn plain(entry: squeue::Entry, token: Token) -> Submission {
    // SAFETY: none of the entries that come here names memory; the buffers of the group are none of theirs, the kernel takes those
    // it is lent.
    unsafe { Submission::new(entry, token.encode()) }
}
