//! Why a socket cannot be opened, in words for the operator.

use std::io;

use rustix::io::Errno;

/// The error that an AF_XDP socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A capability is missing.
    #[error(
        "the kernel does not permit to open an AF_XDP socket: it needs the capability CAP_NET_RAW, or root"
    )]
    NotPermitted,
    /// The kernel was built without such sockets.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS)")]
    NoFamily,
    /// The limit on locked memory does not allow the frames.
    #[error(
        "the frames of an AF_XDP socket take {bytes} bytes of locked memory, which is more than the limit permits: give the \
         process the capability CAP_IPC_LOCK, raise the limit (`ulimit -l`, or LimitMEMLOCK= of systemd), or use fewer frames"
    )]
    LockedMemory {
        /// The length of the memory of one socket.
        bytes: u64,
    },
    /// The numbers of frames and of ring entries do not match.
    #[error("an AF_XDP socket needs a power of two of frames from 64 to 65536, not {frames}")]
    Frames {
        /// The number of frames.
        frames: u32,
    },
    /// The interface does not exist, or no longer.
    #[error("there is no such interface")]
    NoInterface,
    /// The interface is down.
    #[error("the interface is down: `ip link set dev INTERFACE up`")]
    Down,
    /// The interface has no such queue.
    #[error("the interface has no queue {queue}")]
    NoQueue {
        /// The number of the queue.
        queue: u32,
    },
    /// Another socket is bound to the queue.
    #[error("another AF_XDP socket is bound to queue {queue} of the interface; `ss --xdp` shows its process")]
    Occupied {
        /// The number of the queue.
        queue: u32,
    },
    /// The driver cannot share frames with the card.
    #[error("the driver of the interface has no zero-copy mode")]
    NoZeroCopy,
    /// The parts of another process's socket do not belong together.
    #[error("the other process has handed over no AF_XDP socket of this version: {0}")]
    HandedOver(#[source] io::Error),
    /// Something else.
    #[error("an AF_XDP socket cannot be opened ({step}): {reason}")]
    Other {
        /// The system call or option.
        step: &'static str,
        /// The reason.
        #[source]
        reason: io::Error,
    },
}

impl OpenError {
    /// Returns a function that names the step of an error.
    pub(super) fn at<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> Self {
        move |reason| Self::Other { step, reason: reason.into() }
    }

    pub(super) fn of_socket(errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::NotPermitted,
            Errno::AFNOSUPPORT => Self::NoFamily,
            other => Self::at("socket")(other),
        }
    }

    pub(super) fn of_memory(errno: Errno, bytes: u64) -> Self {
        match errno {
            // `xdp_umem_account_pages` of net/xdp/xdp_umem.c returns it.
            Errno::NOBUFS | Errno::NOMEM => Self::LockedMemory { bytes },
            other => Self::at("XDP_UMEM_REG")(other),
        }
    }

    pub(super) fn of_bind(errno: Errno, queue: u32) -> Self {
        match errno {
            Errno::NODEV => Self::NoInterface,
            Errno::NETDOWN => Self::Down,
            Errno::INVAL => Self::NoQueue { queue },
            Errno::BUSY => Self::Occupied { queue },
            Errno::OPNOTSUPP => Self::NoZeroCopy,
            Errno::PERM | Errno::ACCESS => Self::NotPermitted,
            other => Self::at("bind")(other),
        }
    }
}
