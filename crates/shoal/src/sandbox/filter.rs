//! Passes seccomp filters to the kernel.
//!
//! `seccompiler` compiles filters, and could install them as well, but not with the flags that are needed here: without
//! `SPEC_ALLOW`, kernels before Linux 5.16 make every thread with a filter slower, by mitigations against code that
//! runs in a sandbox to attack its own process; and without `LOG`, the kernel does not log what a filter refuses.
#![allow(unsafe_code, reason = "a system call that no library wraps with these flags")]

use std::io;

use super::calls::Filter;

/// The threads to which a filter applies, and with them all that they start later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threads {
    All,
    Calling,
}

/// Installs a filter on top of those that are installed already. `no_new_privs` must be set.
///
/// # Errors
/// Returns an error if the kernel refuses it, or if a thread has filters that this one does not have.
pub(super) fn install(filter: &Filter, threads: Threads) -> io::Result<()> {
    let mut flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    if threads == Threads::All {
        flags |= libc::SECCOMP_FILTER_FLAG_TSYNC;
    }
    if filter.is_logged {
        flags |= libc::SECCOMP_FILTER_FLAG_LOG;
    }
    let instructions = filter.program.iter();
    let mut instructions: Vec<libc::sock_filter> = instructions
        .map(|&seccompiler::sock_filter { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(io::Error::other)?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: `program` refers to `len` instructions, and both outlive the call. The kernel checks and copies them.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match result {
        0 => Ok(()),
        // With TSYNC, this is the thread that differs.
        1.. => Err(io::Error::other(format!("thread {result} has other filters"))),
        _ => Err(io::Error::last_os_error()),
    }
}
