//! Passes seccomp filters to the kernel.
//!
//! `seccompiler` compiles filters. It could also install them, but lacks two flags. Without `SPEC_ALLOW`, kernels
//! before Linux 5.16 slow down every thread with a filter, by mitigations against sandboxed code that attacks its own
//! process. Without `LOG`, the kernel does not log refused calls.
#![allow(unsafe_code, reason = "a system call that no library wraps with these flags")]

use std::io;

use super::calls::Filter;

/// The threads to which a filter applies. It also applies to all threads that they start later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threads {
    All,
    Calling,
}

/// Installs a filter on top of earlier ones. `no_new_privs` must be set. Fails if the kernel refuses, or if a thread
/// has filters that this one does not have.
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
        // With TSYNC, the result is the thread that differs.
        1.. => Err(io::Error::other(format!("thread {result} has other filters"))),
        _ => Err(io::Error::last_os_error()),
    }
}
