//! The keys of datagrams.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use shoal_base::transport::datagram::REPLY_BYTES_MAX;

use super::{LISTEN_ADDRESSES_MAX, PORT};
use crate::declare::settings;
use crate::values::{ByteSize, DatagramBackend, InterfaceName, XdpMode};

/// The maximum number of interfaces with the XDP data path.
const XDP_INTERFACES_MAX: usize = 8;

/// The datagram that every host must be able to receive, less headers: 576 - 20 - 8 (RFC 791, section 3.1).
const REPLY_BYTES_MIN: u32 = 548;

/// The size of the reply buffers. The assertion makes the cast safe.
const REPLY_BYTES_LIMIT: u32 = {
    assert!(REPLY_BYTES_MAX <= 65_507, "a datagram over IPv4 carries at most 65,507 bytes");
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let limit = REPLY_BYTES_MAX as u32;
    limit
};

settings! {
    /// The UDP tracker protocol (BEP 15), which most clients prefer.
    section udp: UdpConfig {
        /// Addresses and ports to serve. IPv4 and IPv6 use separate sockets, so list an address of each family. On a host
        /// with several addresses, each reply leaves from the address that received the request. Port 0 selects any free
        /// port, and the log names it. [] disables UDP.
        listen: Vec<SocketAddr> = vec![
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)),
        ], in 0..=LISTEN_ADDRESSES_MAX => Reload, essential;

        /// How the tracker receives and sends datagrams. "mmsg" uses recvmmsg and sendmmsg, which work everywhere.
        /// "uring" uses io_uring, which many containers forbid. "auto" selects the cheapest back end that works (by
        /// measurement, mmsg) and logs the choice.
        io: DatagramBackend = DatagramBackend::Auto => Restart;

        /// Kernel buffer of each socket for requests that wait to be processed. Every worker has one socket for each
        /// address. A larger buffer absorbs longer bursts. The sysctl net.core.rmem_max caps the size; the log warns if
        /// the kernel grants less.
        receive_buffer: ByteSize = ByteSize::mib(4), in ByteSize::kib(64)..=ByteSize::gib(1) => Reload;

        /// Maximum size of a reply in bytes, without headers. A reply that is too large for the network path is lost, or
        /// split into fragments that many firewalls drop. 1232 fits all paths in use today, tunnels included, and the
        /// smallest packet size that IPv6 allows (1280 with headers). It holds 202 peers over IPv4 and 67 over IPv6.
        reply_bytes_max: u32 = 1232, in REPLY_BYTES_MIN..=REPLY_BYTES_LIMIT => Reload;
    }

    /// The XDP data path: an eBPF program at the driver of a network interface answers requests for connection ids, and
    /// hands announces and scrapes to the workers without the kernel's socket path (docs/xdp.md). Firewall rules do not
    /// see these datagrams. It serves the addresses of udp.listen beside their sockets, which take what else arrives.
    section xdp = "udp.xdp": XdpConfig {
        /// Network interfaces with the data path, such as ["eth0"]. [] is none. It needs Linux 6.4, and at the start the
        /// capabilities CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_NET_RAW and, unless "ulimit -l" permits the memory, CAP_IPC_LOCK.
        interfaces: Vec<InterfaceName> = Vec::new(), in 0..=XDP_INTERFACES_MAX => Restart;

        /// Start without the data path on an interface where it does not work, with a warning. Otherwise, the tracker
        /// refuses to start and tells what is missing.
        optional: bool = false => Restart;

        /// Where the program runs: "native" is in the driver, "generic" in the kernel before its socket path, which every
        /// interface permits and which gains little. "auto" is native if the driver has it.
        mode: XdpMode = XdpMode::Auto => Restart;

        /// Number of frames of 4 KiB for each receive queue of an interface, which is rounded up to a power of two. They are
        /// part of memory.max.
        frames: u32 = 4096, in 1024..=65_536 => Restart;
    }
}
