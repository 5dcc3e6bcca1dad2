//! The system calls of the tracker, by role, and the kernel's reaction to others.
//!
//! | A call | Reaction | Why |
//! | of its role | it is made | |
//! | in no list | it fails with EPERM, and the kernel logs it | a library may try a call and do without it; a new
//! version of one must not end the tracker |
//! | for another family of addresses | it fails with EAFNOSUPPORT | the resolver of the C library tries such sockets
//! and does without them |
//! | `clone3` | it fails with ENOSYS | a filter cannot see its flags; the C library then uses `clone` |
//! | that starts a program or reaches out of the process | the process ends | the tracker's own code never makes such
//! a call, so foreign code runs |
//!
//! The control plane has one list of system calls. Each worker adds a shorter one when its ring is open. The kernel
//! combines filters. A call without conditions on its arguments costs one look into the kernel's bitmap.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use anyhow::Context;
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Every thread other than a worker: the main thread, and those that read files, fetch URLs and manage memory.
    /// They open files and connections, and start threads.
    Control {
        /// Whether host names are looked up. The C library may load libraries for that.
        loads_libraries: bool,
        /// Whether an XDP data path exists. Its maps change while the tracker runs, and the tracker asks for the
        /// host's addresses.
        has_data_path: bool,
    },
    /// Serves requests on open sockets. Opens nothing.
    Worker {
        /// Whether it uses io_uring.
        has_ring: bool,
        /// Whether the worker may have to remove the file of a Unix socket at the end.
        removes_files: bool,
    },
}

pub(super) struct Filter {
    pub(super) program: BpfProgram,
    pub(super) is_logged: bool,
}

/// Calls of every role, with any arguments: memory, time, threads, and open descriptors.
const ALL: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
    // Open sockets.
    libc::SYS_accept4,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Further calls of every role, which newer architectures lack.
#[cfg(target_arch = "x86_64")]
const ALL_LEGACY: &[c_long] = &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ALL_LEGACY: &[c_long] = &[];

/// Further calls of the control plane.
const CONTROL: &[c_long] = &[
    // Files.
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sync_file_range,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    // Descriptors, and connections to the servers of URLs.
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_signalfd4,
    // The families of addresses have a filter of their own.
    libc::SYS_socket,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Workers begin as threads of this role.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_sched_setaffinity,
    // Memory on machines with several nodes, the priority of background work, limits, and the process's user.
    libc::SYS_get_mempolicy,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpriority,
    libc::SYS_getuid,
    libc::SYS_mbind,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_prlimit64,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    // These calls can only take rights away.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
];

#[cfg(target_arch = "x86_64")]
const CONTROL_LEGACY: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const CONTROL_LEGACY: &[c_long] = &[];

/// Further calls of a worker with io_uring.
const RING: &[c_long] = &[libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Further calls of a worker that removes the file of a Unix socket.
const REMOVAL: &[c_long] = &[libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_unlinkat];
#[cfg(target_arch = "x86_64")]
const REMOVAL_LEGACY: &[c_long] = &[libc::SYS_lstat, libc::SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const REMOVAL_LEGACY: &[c_long] = &[];

/// Calls that end the process: other programs, other processes, namespaces, mounts, and the kernel itself.
const FATAL: &[c_long] = &[
    libc::SYS_add_key,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

#[cfg(target_arch = "x86_64")]
const FATAL_LEGACY: &[c_long] =
    &[libc::SYS_fork, libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const FATAL_LEGACY: &[c_long] = &[];

/// Commands of `bpf` on open maps and links (`enum bpf_cmd` of linux/bpf.h). None loads a program or opens an object.
const BPF_COMMANDS: [u64; 6] = [
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    15, // BPF_OBJ_GET_INFO_BY_FD
    29, // BPF_LINK_UPDATE
];

const FAMILIES: [i32; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Operations on descriptors: terminal queries, as the log asks whether it writes to one; blocking mode; and queued
/// bytes of sockets.
const IOCTLS: [u64; 6] =
    [libc::TCGETS, libc::TIOCGWINSZ, libc::FIONBIO, libc::FIOCLEX, libc::FIONREAD, libc::TIOCOUTQ];

/// Operations of `prctl`: names of threads and mappings, and the two that only take rights away.
const PRCTLS: [i32; 5] = [
    libc::PR_GET_NAME,
    libc::PR_SET_NAME,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_SET_VMA,
];

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Compiles the filters of a role. All of them apply; where they differ, the kernel follows the strictest.
pub(super) fn filters(role: Role) -> anyhow::Result<Vec<Filter>> {
    let errno = |errno: i32| SeccompAction::Errno(errno.cast_unsigned());
    let permitted = compile(permitted(role)?, errno(libc::EPERM), SeccompAction::Allow)?;
    let mut filters = vec![Filter { program: permitted, is_logged: true }];
    // A worker already has the filters of the control plane.
    if let Role::Control { has_data_path, .. } = role {
        let other_families = socket_families(has_data_path)?;
        let clone3 = Rules::from([(libc::SYS_clone3, Vec::new())]);
        let mut fatal: Rules = FATAL.iter().chain(FATAL_LEGACY).map(|call| (*call, Vec::new())).collect();
        fatal.insert(libc::SYS_bpf, if has_data_path { vec![none_of(0, BPF_COMMANDS)?] } else { Vec::new() });
        for (rules, action) in [
            (other_families, errno(libc::EAFNOSUPPORT)),
            (clone3, errno(libc::ENOSYS)),
            (fatal, SeccompAction::KillProcess),
        ] {
            let program = compile(rules, SeccompAction::Allow, action)?;
            filters.push(Filter { program, is_logged: false });
        }
    }
    Ok(filters)
}

fn permitted(role: Role) -> anyhow::Result<Rules> {
    let mut calls = vec![ALL, ALL_LEGACY];
    match role {
        Role::Control { .. } => calls.extend([CONTROL, CONTROL_LEGACY]),
        Role::Worker { has_ring, removes_files } => {
            calls.extend(has_ring.then_some(RING));
            calls.extend(removes_files.then_some([REMOVAL, REMOVAL_LEGACY]).into_iter().flatten());
        }
    }
    let mut rules: Rules = calls.into_iter().flatten().map(|call| (*call, Vec::new())).collect();
    let loads_libraries = matches!(role, Role::Control { loads_libraries: true, .. });
    if let Role::Control { has_data_path: true, .. } = role {
        rules.insert(libc::SYS_bpf, Vec::new());
        // The C library binds its netlink socket. Only that address is so short (struct sockaddr_nl of
        // linux/netlink.h has 12 bytes, sockaddr_in 16).
        rules.insert(libc::SYS_bind, vec![rule(2, SeccompCmpOp::Eq, size_of::<libc::sockaddr_nl>() as u64)?]);
    }
    // Memory never becomes code, except when libraries are loaded.
    let is_code = libc::PROT_EXEC.cast_unsigned().into();
    rules.insert(libc::SYS_mprotect, vec![rule(2, SeccompCmpOp::MaskedEq(is_code), 0)?]);
    if loads_libraries {
        rules.insert(libc::SYS_mmap, Vec::new());
    } else {
        rules.insert(libc::SYS_mmap, vec![rule(2, SeccompCmpOp::MaskedEq(is_code), 0)?]);
    }
    rules.insert(libc::SYS_ioctl, one_of(1, IOCTLS)?);
    rules.insert(libc::SYS_prctl, one_of(0, PRCTLS.map(|operation| operation.cast_unsigned().into()))?);
    // The process can end itself, as `abort` does, but no other process.
    rules.insert(libc::SYS_tgkill, one_of(0, [std::process::id().into()])?);
    // A pair of streams reaches only its own two ends; a datagram socket of a pair could send to any Unix socket.
    let type_ = 0xf; // SOCK_TYPE_MASK of include/linux/net.h
    let is_stream = rule(1, SeccompCmpOp::MaskedEq(type_), libc::SOCK_STREAM.cast_unsigned().into())?;
    rules.insert(libc::SYS_socketpair, vec![is_stream]);
    if let Role::Control { .. } = role {
        // Threads only, no processes. Another filter answers `clone3`.
        let is_thread = libc::CLONE_THREAD.cast_unsigned().into();
        rules.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(is_thread), is_thread)?]);
        rules.insert(libc::SYS_clone3, Vec::new());
    }
    Ok(rules)
}

/// Returns a rule for sockets of other families. The data path reads the host's addresses from a netlink socket.
fn socket_families(has_data_path: bool) -> anyhow::Result<Rules> {
    let netlink = has_data_path.then_some(libc::AF_NETLINK);
    let families = FAMILIES.into_iter().chain(netlink).map(|family| family.cast_unsigned().into());
    Ok(Rules::from([(libc::SYS_socket, vec![none_of(0, families)?])]))
}

/// Returns a rule for an argument that has none of these values.
fn none_of(argument: u8, values: impl IntoIterator<Item = u64>) -> anyhow::Result<SeccompRule> {
    let differs = |value| condition(argument, SeccompCmpOp::Ne, value);
    let conditions: anyhow::Result<Vec<_>> = values.into_iter().map(differs).collect();
    SeccompRule::new(conditions?).context("a rule of seccomp")
}

/// Returns rules for an argument that has one of these values.
fn one_of(argument: u8, values: impl IntoIterator<Item = u64>) -> anyhow::Result<Vec<SeccompRule>> {
    values.into_iter().map(|value| rule(argument, SeccompCmpOp::Eq, value)).collect()
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> anyhow::Result<SeccompRule> {
    SeccompRule::new(vec![condition(argument, operator, value)?]).context("a rule of seccomp")
}

/// Returns a condition on the lower half of an argument. The kernel ignores the upper half in these calls.
fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> anyhow::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).context("a rule of seccomp")
}

fn compile(rules: Rules, others: SeccompAction, matching: SeccompAction) -> anyhow::Result<BpfProgram> {
    let architecture = ARCH.try_into().context("seccomp on this architecture")?;
    let filter = SeccompFilter::new(rules, others, matching, architecture).context("a filter of seccomp")?;
    filter.try_into().context("a filter of seccomp")
}
