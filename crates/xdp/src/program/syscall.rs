//! The commands of `bpf` for links, in the form of `union bpf_attr` (`linux/bpf.h`). aya, which does the rest, would
//! attach a program without a link if the kernel refuses a link, and such a program outlives its process.
//!
//! Inside the sandbox, a running tracker only writes to open maps and moves its link (`BPF_LINK_UPDATE`). The seccomp
//! filter of the control plane permits these commands.
#![allow(unsafe_code, reason = "the kernel takes pointers")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// `enum bpf_cmd`.
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_UPDATE: libc::c_long = 29;

/// `enum bpf_attach_type` and `enum bpf_link_type`.
const BPF_XDP: u32 = 37;
const BPF_LINK_TYPE_XDP: u32 = 6;

/// `linux/if_link.h`.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// `union bpf_attr`, `link_create`.
#[repr(C)]
struct LinkCreate {
    program_fd: u32,
    interface_index: u32,
    attach_type: u32,
    flags: u32,
}

/// `union bpf_attr`, `link_update`.
#[repr(C)]
struct LinkUpdate {
    link_fd: u32,
    program_fd: u32,
    flags: u32,
    former_program_fd: u32,
}

/// `union bpf_attr`, `info`.
#[repr(C)]
struct GetInfo {
    fd: u32,
    bytes: u32,
    info: u64,
}

/// The first fields of `struct bpf_link_info` of an XDP link.
#[repr(C)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program_id: u32,
    unused: u32,
    interface_index: u32,
    unused_end: u32,
}

/// Attaches a program to an interface, in the driver if `native`.
pub(super) fn create_link(
    program: BorrowedFd<'_>,
    interface_index: u32,
    native: bool,
) -> Result<OwnedFd, Errno> {
    let flags = if native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
    let program_fd = number(program)?;
    let mut attributes = LinkCreate { program_fd, interface_index, attach_type: BPF_XDP, flags };
    let fd = bpf(BPF_LINK_CREATE, &mut attributes)?;
    // SAFETY: the kernel has just opened the descriptor for this process, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let (link_fd, program_fd) = (number(link)?, number(program)?);
    let mut attributes = LinkUpdate { link_fd, program_fd, flags: 0, former_program_fd: 0 };
    bpf(BPF_LINK_UPDATE, &mut attributes).map(drop)
}

/// Returns the index of the interface of an XDP link, or `None` if it has vanished.
pub(super) fn interface_of_link(link: BorrowedFd<'_>) -> Result<Option<u32>, Errno> {
    let mut info: MaybeUninit<LinkInfo> = MaybeUninit::zeroed();
    let bytes = u32::try_from(size_of::<LinkInfo>()).map_err(|_| Errno::OVERFLOW)?;
    let mut attributes =
        GetInfo { fd: number(link)?, bytes, info: info.as_mut_ptr().expose_provenance() as u64 };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attributes)?;
    // SAFETY: all of it was zeroed, which is valid for numbers, and the kernel has written at most its length.
    let info = unsafe { info.assume_init() };
    if info.kind != BPF_LINK_TYPE_XDP {
        return Err(Errno::BADF);
    }
    Ok((info.interface_index != 0).then_some(info.interface_index))
}

/// Calls `bpf` and returns its number. `A` is the variant of `union bpf_attr` for the command.
fn bpf<A>(command: libc::c_long, attributes: &mut A) -> Result<i32, Errno> {
    // SAFETY: the callers pass the structure of their command, whose pointers stay valid during the call. The kernel
    // takes fields beyond its length as zero, and writes only within it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<A>()) };
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    i32::try_from(result).map_err(|_| Errno::OVERFLOW)
}

fn number(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    u32::try_from(fd.as_raw_fd()).map_err(|_| Errno::BADF)
}
