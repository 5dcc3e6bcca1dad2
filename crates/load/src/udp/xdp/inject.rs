//! Injects frames into an interface, as if the program had received and returned them: `BPF_PROG_RUN` with live frames.
//!
//! The library that loads the program has no interface for it.
#![allow(unsafe_code, reason = "the system call has no safe interface")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

// linux/bpf.h
const BPF_PROG_RUN: libc::c_int = 10;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;

/// Most frames that the kernel allocates and sends together (`TEST_XDP_MAX_BATCH` of net/bpf/test_run.c).
pub(super) const BATCH_MAX: u32 = 256;

/// The part of `union bpf_attr` that the command uses.
#[repr(C)]
#[derive(Default)]
struct RunAttributes {
    program: u32,
    return_value: u32,
    data_bytes: u32,
    data_out_bytes: u32,
    data: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_bytes: u32,
    context_out_bytes: u32,
    context: u64,
    context_out: u64,
    flags: u32,
    processor: u32,
    batch: u32,
    padding: u32,
}

/// `struct xdp_md`.
#[repr(C)]
#[derive(Default)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    interface: u32,
    queue: u32,
    egress: u32,
}

const _: () = assert!(size_of::<RunAttributes>() == 80 && size_of::<Context>() == 24);

/// Runs `program` on copies of a frame, as if they had come from `interface`, and does with each what the program says. `batch` of
/// them are allocated and sent together, at most [`BATCH_MAX`]. Copies that were sent and freed are used again, and are then as the
/// program has left them.
pub(super) fn inject(
    program: BorrowedFd<'_>,
    interface: u32,
    frame: &[u8],
    repeat: u32,
    batch: u32,
) -> io::Result<()> {
    let data_bytes = u32::try_from(frame.len()).map_err(io::Error::other)?;
    let context = Context { data_end: data_bytes, interface, ..Context::default() };
    let mut attributes = RunAttributes {
        program: u32::try_from(program.as_raw_fd()).map_err(io::Error::other)?,
        data_bytes,
        data: frame.as_ptr().expose_provenance() as u64,
        repeat,
        context_bytes: u32::try_from(size_of::<Context>()).map_err(io::Error::other)?,
        context: ptr::from_ref(&context).expose_provenance() as u64,
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        batch: batch.min(repeat).min(BATCH_MAX),
        ..RunAttributes::default()
    };
    // SAFETY: the attributes have the size that is stated, and the kernel writes its results to them. The frame and the context
    // live until the call returns and have the sizes that are stated; the kernel only reads them.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_RUN, &raw mut attributes, size_of::<RunAttributes>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
