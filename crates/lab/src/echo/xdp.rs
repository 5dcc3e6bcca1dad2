//! The driver hook of the echo: the program of Shoal, which answers connects, and an AF_XDP socket for the rest.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use shoal_net::XdpQueue;
use shoal_xdp::interface::segments;
use shoal_xdp::program::{Ids, Link, Maps, Mode, Program, Settings, Sizes};
use shoal_xdp::route::permit_lookups;
use shoal_xdp::socket::{SocketSettings, XdpSocket, ZeroCopy};

/// As many as a tracker has by default.
const FRAMES: u32 = 4096;

/// The program, attached until this is dropped.
pub(super) struct DriverEcho {
    _link: Link,
    _maps: Maps,
    _program: Program,
}

impl DriverEcho {
    /// Attaches the program to an interface. It answers connects to `addresses`, and passes the rest to the returned
    /// socket.
    pub(super) fn attach(interface: &str, addresses: &[SocketAddr]) -> Result<(Self, XdpQueue)> {
        let any_socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let index = name_to_index(any_socket.as_fd(), interface)
            .with_context(|| format!("there is no network interface {interface}"))?;
        let sizes = Sizes { queues: 1, networks_max: 1, sources_max: 1, endpoints_max: 64 };
        let (program, mut maps) = Program::load(&sizes)?;
        maps.set_endpoints(addresses)?;
        // Nothing checks the ids.
        let ids = Ids { keyed: [1, 2, 3, 4], former: None, valid_ns: 180_000_000_000 };
        maps.set_settings(&Settings { ids: Some(ids), ..Settings::default() });
        maps.set_slot(1, 1 << 62);
        permit_lookups()?;
        maps.set_segments(&segments(index).context("cannot list the VLANs of the interface")?)?;
        let settings = SocketSettings { frames: FRAMES, zero_copy: ZeroCopy::Auto, busy_poll: false };
        let socket = XdpSocket::open(index, 0, &settings)?;
        maps.set_socket(0, Some(socket.as_fd()))?;
        let queue = XdpQueue::new(socket, maps.backlog(0));
        let link = program.attach(index, Mode::Auto)?;
        Ok((Self { _link: link, _maps: maps, _program: program }, queue))
    }
}
