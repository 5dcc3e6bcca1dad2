//! Reads the counters of a worker's socket from another thread.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use super::options::{SK_MEMINFO_DROPS, SK_MEMINFO_RMEM_ALLOC, memory_info};

/// Reads the kernel's counters of one socket. It does not keep the socket open: the worker decides when it closes.
#[derive(Clone, Debug)]
pub struct SocketProbe {
    socket: Weak<OwnedFd>,
    local: SocketAddr,
}

/// The kernel's counters of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMemory {
    /// Memory of received datagrams that wait to be read, including the kernel's overhead.
    pub receive_queue_bytes: u32,
    /// Datagrams dropped since the socket was opened because its receive buffer was full. Wraps around.
    pub receive_drops: u32,
}

impl SocketProbe {
    pub(super) fn new(socket: &Arc<OwnedFd>, local: SocketAddr) -> Self {
        Self { socket: Arc::downgrade(socket), local }
    }

    /// Returns the address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the current counters, or `None` if the worker has closed the socket. Fails before Linux 4.12.
    pub fn read(&self) -> io::Result<Option<SocketMemory>> {
        let Some(socket) = self.socket.upgrade() else { return Ok(None) };
        let info = memory_info(&*socket)?;
        Ok(Some(SocketMemory {
            receive_queue_bytes: info[SK_MEMINFO_RMEM_ALLOC],
            receive_drops: info[SK_MEMINFO_DROPS],
        }))
    }
}
