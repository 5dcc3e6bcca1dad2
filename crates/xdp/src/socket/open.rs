//! The steps that open a socket (`Documentation/networking/af_xdp.rst`). They need privileges.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{bind, sockopt};

use super::umem::{CHUNK_BYTES, Sizes, Umem};
use super::{OpenError, ZeroCopy};

/// How often and how long to wait for a queue in use. The kernel gives up the queue of a closed socket in the
/// background (`xp_put_pool` of net/xdp/xsk_buff_pool.c), for example the queue of a tracker that was restarted.
const RETRIES_MAX: usize = 50;
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Registers the memory with a new socket, and creates its rings.
pub(super) fn configure(socket: BorrowedFd<'_>, umem: &Umem, sizes: &Sizes) -> Result<(), OpenError> {
    let (addr, len) = umem.registered();
    let flags = XdpUmemRegFlags::empty();
    let memory = XdpUmemReg { addr, len, chunk_size: CHUNK_BYTES, headroom: 0, flags, tx_metadata_len: 0 };
    sockopt::set_xdp_umem_reg(socket, memory).map_err(|errno| OpenError::of_memory(errno, len))?;
    sockopt::set_xdp_umem_fill_ring_size(socket, sizes.fill).map_err(OpenError::at("XDP_UMEM_FILL_RING"))?;
    sockopt::set_xdp_umem_completion_ring_size(socket, sizes.completion)
        .map_err(OpenError::at("XDP_UMEM_COMPLETION_RING"))?;
    sockopt::set_xdp_rx_ring_size(socket, sizes.receive).map_err(OpenError::at("XDP_RX_RING"))?;
    sockopt::set_xdp_tx_ring_size(socket, sizes.transmit).map_err(OpenError::at("XDP_TX_RING"))
}

/// Binds the socket to its queue, in the requested mode.
pub(super) fn bind_to_queue(
    socket: BorrowedFd<'_>,
    sizes: &Sizes,
    zero_copy: ZeroCopy,
) -> Result<(), OpenError> {
    let flags = match zero_copy {
        ZeroCopy::Auto => SocketAddrXdpFlags::empty(),
        ZeroCopy::On => SocketAddrXdpFlags::XDP_ZEROCOPY,
        ZeroCopy::Off => SocketAddrXdpFlags::XDP_COPY,
    };
    let flags = flags | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    let address = SocketAddrXdp::new(flags, sizes.interface_index, sizes.queue);
    let mut bound = bind(socket, &address);
    for _ in 0..RETRIES_MAX {
        if bound != Err(Errno::BUSY) {
            break;
        }
        thread::sleep(RETRY_AFTER);
        bound = bind(socket, &address);
    }
    bound.map_err(|errno| OpenError::of_bind(errno, sizes.queue))
}

/// Returns whether the socket was bound in zero-copy mode.
pub(super) fn is_zero_copy(socket: BorrowedFd<'_>) -> Result<bool, OpenError> {
    let options = sockopt::xdp_options(socket).map_err(OpenError::at("XDP_OPTIONS"))?;
    Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}
