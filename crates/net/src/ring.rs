//! One io_uring: its setup, and the one system call that drives it.
//!
//! This module owns the ring's descriptor and queues. It does not know the meaning of submissions: each carries a token
//! of 64 bits for its owner. The buffers that the kernel fills are in `provided`.
#![allow(unsafe_code, reason = "a submission tells the kernel addresses to read and write")]

pub(crate) mod provided;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

/// When the kernel does its share of the work, such as copying an arrived datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRun {
    /// When the worker asks for completions, all at once, and never by an interrupt (Linux 6.1).
    Deferred,
    /// Whenever the worker enters the kernel (Linux 6.0).
    Cooperative,
}

/// A ring, used only by the thread that enables it. Another thread may have created it.
pub(crate) struct Ring {
    uring: IoUring,
    /// Submissions that the submission queue had no room for.
    spilled: VecDeque<squeue::Entry>,
    wait_flags: EnterFlags,
}

#[derive(Debug)]
pub(crate) struct Submission(squeue::Entry);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The token of the submission.
    pub(crate) token: u64,
    result: i32,
    flags: u32,
}

/// `IORING_UNREGISTER_FILES` and `IORING_REGISTER_SYNC_CANCEL` of linux/io_uring.h.
const UNREGISTER_FILES: u8 = 3;
const SYNC_CANCEL: u8 = 24;

/// Maximum wait of one call. A longer one would not fit the kernel's type, and is never needed.
const WAIT_MAX: Duration = Duration::from_secs(3600);

impl Ring {
    /// Creates a ring for `submissions_max` concurrent submissions. It permits only the operations that the back end
    /// uses, and accepts none before [`Ring::enable`].
    ///
    /// The seccomp filter does not see the operations of a ring, so an attacker's code could otherwise open files and
    /// connect to other hosts through it.
    pub(crate) fn new(task_run: TaskRun, submissions_max: usize, completions_max: usize) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_r_disabled();
        builder.dontfork().setup_clamp().setup_submit_all().setup_single_issuer();
        builder.setup_cqsize(queue_entries(completions_max));
        match task_run {
            TaskRun::Deferred => builder.setup_defer_taskrun(),
            TaskRun::Cooperative => builder.setup_coop_taskrun(),
        };
        let uring = builder.build(queue_entries(submissions_max))?;
        let operations = [opcode::RecvMsgMulti::CODE, opcode::SendMsg::CODE, opcode::PollAdd::CODE];
        let flags = squeue::Flags::FIXED_FILE | squeue::Flags::BUFFER_SELECT;
        let registrations = [UNREGISTER_FILES, SYNC_CANCEL].map(Restriction::register_op);
        let mut permitted: Vec<_> = operations.into_iter().map(Restriction::sqe_op).collect();
        permitted.push(Restriction::sqe_flags_allowed(flags.bits()));
        permitted.extend(registrations);
        uring.submitter().register_restrictions(&mut permitted)?;
        // An idle tracker waits for its peers, not for a disk, and should not count as "iowait".
        let no_iowait =
            if uring.params().is_feature_no_iowait() { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() };
        Ok(Self { uring, spilled: VecDeque::new(), wait_flags: EnterFlags::EXT_ARG | no_iowait })
    }

    /// Registers a ring of provided buffers at `address`.
    ///
    /// # Safety
    /// The address must be that of a page, with room for `count` entries until the ring is closed.
    pub(crate) unsafe fn register_buffer_group(&self, address: u64, count: u16, id: u16) -> io::Result<()> {
        // SAFETY: the caller guarantees what the call requires.
        unsafe { self.uring.submitter().register_buf_ring_with_flags(address, count, id, 0) }
    }

    /// Enables the ring for this thread. Submissions refer to `files` by their index. From now on, the ring can
    /// register nothing.
    pub(crate) fn enable(&self, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        if !files.is_empty() {
            let descriptors: Vec<_> = files.iter().map(AsRawFd::as_raw_fd).collect();
            self.uring.submitter().register_files(&descriptors)?;
        }
        self.uring.submitter().register_enable_rings()
    }

    /// Queues a submission for the next `enter`.
    pub(crate) fn push(&mut self, submission: Submission) {
        if !self.spilled.is_empty() || !self.submit_later(&submission.0) {
            self.spilled.push_back(submission.0);
        }
    }

    /// Puts an entry into the submission queue, if there is room for it.
    fn submit_later(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the caller of `Submission::new` has guaranteed that the memory in the entry is valid.
        unsafe { self.uring.submission().push(entry) }.is_ok()
    }

    pub(crate) fn has_queued(&mut self) -> bool {
        !self.spilled.is_empty() || !self.uring.submission().is_empty()
    }

    /// Passes the queued submissions to the kernel, lets it do its work, and with a timeout waits for the first
    /// completion.
    pub(crate) fn enter(&mut self, timeout: Duration) -> io::Result<()> {
        while !self.spilled.is_empty() {
            let spilled_before = self.spilled.len();
            while let Some(entry) = self.spilled.pop_front() {
                if !self.submit_later(&entry) {
                    self.spilled.push_front(entry);
                    break;
                }
            }
            if self.spilled.is_empty() {
                break;
            }
            self.enter_once(Duration::ZERO)?;
            if self.spilled.len() == spilled_before {
                // The kernel accepts nothing before completions are taken, which is the caller's next step.
                return Ok(());
            }
        }
        self.enter_once(timeout)
    }

    fn enter_once(&mut self, timeout: Duration) -> io::Result<()> {
        let queued = u32::try_from(self.uring.submission().len()).expect("queues have 32-bit indices");
        let submitter = self.uring.submitter();
        let entered = if timeout.is_zero() {
            let flags = EnterFlags::GETEVENTS.bits();
            // SAFETY: no argument is passed.
            unsafe { submitter.enter::<SubmitArgs<'_, '_>>(queued, 0, flags, None) }
        } else {
            let flags = (EnterFlags::GETEVENTS | self.wait_flags).bits();
            let timeout = Timespec::from(timeout.min(WAIT_MAX));
            let args = SubmitArgs::new().timespec(&timeout);
            // SAFETY: with EXT_ARG the argument is an `io_uring_getevents_arg`, which `SubmitArgs` is.
            unsafe { submitter.enter(queued, 1, flags, Some(&args)) }
        };
        match entered.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(_) => Ok(()),
            // The time is up, a signal came, or completions must be taken before more submissions. The caller checks
            // the completions next, and queued submissions remain queued.
            Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    pub(crate) fn complete(&mut self) -> Option<Completion> {
        let entry = self.uring.completion().next()?;
        Some(Completion { token: entry.user_data(), result: entry.result(), flags: entry.flags() })
    }

    /// Unregisters the files, so that a socket closes when its owner closes it, not when the kernel dismantles the
    /// ring.
    pub(crate) fn release_files(&self) {
        // It fails if no files are registered.
        let _ = self.uring.submitter().unregister_files();
    }

    /// Cancels all operations in progress. Each still has a completion, and is over only then.
    pub(crate) fn cancel_all(&self, timeout: Duration) {
        // It fails if none is in progress. An operation that it does not cancel shows as a missing completion.
        let timeout = Timespec::from(timeout);
        let _ = self.uring.submitter().register_sync_cancel(Some(timeout), CancelBuilder::any());
    }
}

/// Returns the size of a queue with room for `count`.
fn queue_entries(count: usize) -> u32 {
    u32::try_from(count.next_power_of_two()).expect("a queue has room for a few thousand entries")
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("parameters", self.uring.params()).finish_non_exhaustive()
    }
}

impl Submission {
    /// Ties an entry to the token of its completion.
    ///
    /// # Safety
    /// All memory that the entry refers to must stay valid, and unused by others, until its last completion.
    pub(crate) unsafe fn new(entry: squeue::Entry, token: u64) -> Self {
        Self(entry.user_data(token))
    }
}

impl Completion {
    /// Returns how many bytes the operation moved, or how it failed.
    pub(crate) fn outcome(&self) -> Result<usize, Errno> {
        usize::try_from(self.result).map_err(|_| Errno::from_raw_os_error(-self.result))
    }

    /// Returns whether the submission yields more completions after this one.
    pub(crate) fn has_more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// Returns the provided buffer that the operation used.
    pub(crate) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use io_uring::types::Fixed;

    use super::*;
    use crate::Backend;

    /// Returns how the kernel answers `entry`.
    fn outcome(ring: &mut Ring, entry: squeue::Entry) -> Result<usize, Errno> {
        // SAFETY: the entries of these tests refer to no memory, or to a string that lives as long as the program.
        ring.push(unsafe { Submission::new(entry, 7) });
        ring.enter(Duration::from_secs(10)).unwrap();
        ring.complete().expect("the kernel has answered").outcome()
    }

    #[test]
    fn a_ring_refuses_every_operation_and_registration_that_the_back_end_does_not_use() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let opened = Ring::new(TaskRun::Cooperative, 8, 8).and_then(|ring| {
            ring.enable(&[socket.as_fd()])?;
            Ok(ring)
        });
        if let Err(unsupported) = Backend::Uring.probe() {
            assert!(opened.is_err(), "{unsupported}, but a ring opens");
            return;
        }
        let mut ring = opened.unwrap();
        let path = c"/etc/hostname".as_ptr();
        let open = opcode::OpenAt::new(io_uring::types::Fd(libc::AT_FDCWD), path).build();
        let connect = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build();
        for entry in [opcode::Nop::new().build(), open, connect] {
            assert_eq!(outcome(&mut ring, entry), Err(Errno::ACCESS));
        }
        let poll = opcode::PollAdd::new(Fixed(0), u32::from(libc::POLLOUT.cast_unsigned())).build();
        assert_eq!(outcome(&mut ring, poll), Ok(usize::from(libc::POLLOUT.cast_unsigned())));
        let linked = opcode::PollAdd::new(Fixed(0), 1).build().flags(squeue::Flags::IO_LINK);
        assert_eq!(outcome(&mut ring, linked), Err(Errno::ACCESS));
        let registered = ring.uring.submitter().register_eventfd(0).unwrap_err();
        assert_eq!(Errno::from_io_error(&registered), Some(Errno::ACCESS));
        ring.uring.submitter().register_restrictions(&mut []).unwrap_err();
    }
}
