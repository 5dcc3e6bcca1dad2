//! The steps by which a socket is opened (`Documentation/networking/af_xdp.rst`). They need privileges.

use std::os::fd::BorrowedFd;

use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{bind, sockopt};

use super::umem::{CHUNK_BYTES, Sizes, Umem};
use super::{OpenError, ZeroCopy};

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

/// Binds the socket to its queue, in the mode that is asked for.
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
    bind(socket, &SocketAddrXdp::new(flags, sizes.interface_index, sizes.queue))
        .map_err(|errno| OpenError::of_bind(errno, sizes.queue))
}

/// Returns which mode that was.
pub(super) fn is_zero_copy(socket: BorrowedFd<'_>) -> Result<bool, OpenError> {
    let options = sockopt::xdp_options(socket).map_err(OpenError::at("XDP_OPTIONS"))?;
    Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}
