//! Calls for which `rustix` has no function.
#![allow(unsafe_code, reason = "getrusage and setsockopt take pointers")]
#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::ops::Sub;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

/// CPU time, in user mode and in the kernel. The kernel knows the sum exactly and estimates the shares from its clock
/// ticks, so the shares need some seconds to become accurate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTime {
    pub(crate) fn of_this_thread() -> Self {
        // SAFETY: `rusage` is a C struct of integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `rusage`, to one.
        let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        assert_eq!(failed, 0);
        Self { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
}

/// Pins this thread to a core, if there are that many.
pub(crate) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(errno) = sched_setaffinity(None, &set) {
        eprintln!("not pinned to core {core}: {errno}");
    }
}

/// Makes the kernel split each send into datagrams of this size.
pub(crate) fn segment(socket: impl AsFd, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap();
    // SAFETY: UDP_SEGMENT takes an int, and the kernel copies one from `bytes`.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            ptr::from_ref(&bytes).cast(),
            4,
        )
    };
    assert_eq!(failed, 0);
}
