//! The program, as the tests of a single frame need it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use shoal_engine::connection_id::{ConnectionIds, ConnectionKey};
use shoal_testkit::network::enter_behind;
use shoal_xdp::interface::Segment;
use shoal_xdp::program::{Ids, Maps, Settings, Sizes};
use shoal_xdp::route::permit_lookups;

/// `enum xdp_action`, `linux/bpf.h`.
pub(crate) const XDP_DROP: u32 = 1;
pub(crate) const XDP_PASS: u32 = 2;
pub(crate) const XDP_TX: u32 = 3;
pub(crate) const XDP_REDIRECT: u32 = 4;

pub(crate) const UNIX_S: u64 = 1_700_000_000;

/// An end of the slot that no test reaches.
pub(crate) const NEVER_NS: u64 = 1 << 62;

pub(crate) const SIZES: Sizes =
    Sizes { queues: 4, networks_max: 1000, sources_max: 10_000, endpoints_max: 16 };

pub(crate) fn ids() -> ConnectionIds {
    ConnectionIds::new(&ConnectionKey::new(*b"0123456789abcdef"))
}

pub(crate) fn settings(ids: &ConnectionIds) -> Settings {
    let shared = ids.share();
    let ids = Ids { keyed: shared.keyed, former: None, valid_ns: shared.valid_s * 1_000_000_000 };
    Settings { ids: Some(ids), bucket_key: [1, 2], ..Settings::default() }
}

/// Puts a socket into the map, which no frame reaches: a test run ends with the verdict.
pub(crate) fn add_socket(maps: &mut Maps) -> OwnedFd {
    let socket = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
    sockopt::set_xdp_rx_ring_size(&socket, 64).unwrap();
    maps.set_socket(0, Some(socket.as_fd())).unwrap();
    maps.backlog(0).unwrap().set_frames_max(u64::MAX);
    socket
}

/// The MAC address that frames come from.
pub(crate) const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Moves this thread into a network of its own, whose routes all lead back to [`GATEWAY`]. Returns the segment of frames without a tag.
pub(crate) fn network() -> Segment {
    thread_local! {
        static INDEX: u32 = {
            let index = enter_behind("02:00:00:00:00:02");
            assert_eq!(permit_lookups().unwrap().len(), 2);
            index
        };
    }
    Segment { vlan: None, interface_index: INDEX.with(|index| *index), mac: [2, 0, 0, 0, 0, 1] }
}
