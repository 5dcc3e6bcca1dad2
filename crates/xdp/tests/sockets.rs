//! Opening AF_XDP sockets: what a socket needs, and how it says what is missing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
#[allow(dead_code, reason = "this test uses a part of it")]
use shoal_testkit::network::{Side, between_two};
use shoal_xdp::interface::{Interface, Segment, local_addresses, segments};
use shoal_xdp::socket::{OpenError, SocketSettings, XdpSocket, ZeroCopy};

const SMALL: SocketSettings = SocketSettings { frames: 64, zero_copy: ZeroCopy::Auto, busy_poll: false };

/// Opens a socket of queue 0 on a thread without some capabilities.
fn open_without(
    side: &Side,
    missing: CapabilitySet,
    settings: &SocketSettings,
) -> Result<XdpSocket, OpenError> {
    side.run(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(missing);
        set_capabilities(None, sets).unwrap();
        XdpSocket::open(side.index, 0, settings)
    })
}

fn with_interface(test: impl FnOnce(&Side)) {
    between_two(|server, client| {
        [server, client].iter().for_each(|side| side.command(&format!("ip link set {} up", side.device)));
        test(server);
    });
}

#[test]
fn what_is_missing_is_named() {
    with_interface(|side| {
        let error = open_without(side, CapabilitySet::NET_RAW, &SMALL).unwrap_err();
        assert!(matches!(error, OpenError::NotPermitted), "{error}");
        // Root may lock any number of pages, and only without the capability does the limit count.
        let former = getrlimit(Resource::Memlock);
        setrlimit(Resource::Memlock, Rlimit { current: Some(1 << 20), ..former }).unwrap();
        let large = SocketSettings { frames: 4096, ..SMALL };
        let error = open_without(side, CapabilitySet::IPC_LOCK, &large).unwrap_err();
        assert!(matches!(error, OpenError::LockedMemory { bytes: 16_777_216 }), "{error}");
        assert!(error.to_string().contains("ulimit -l"));
        open_without(side, CapabilitySet::IPC_LOCK, &SMALL).unwrap();
        side.run(|| {
            let open = |queue, settings| XdpSocket::open(side.index, queue, &settings).unwrap_err();
            let error = open(9, SMALL);
            assert!(matches!(error, OpenError::NoQueue { queue: 9 }), "{error}");
            let error = open(0, SocketSettings { zero_copy: ZeroCopy::On, ..SMALL });
            assert!(matches!(error, OpenError::NoZeroCopy), "{error}");
            for frames in [0, 32, 100, 1 << 17] {
                let error = open(0, SocketSettings { frames, ..SMALL });
                assert!(matches!(error, OpenError::Frames { .. }), "{error}");
            }
            let error = XdpSocket::open(999, 0, &SMALL).unwrap_err();
            assert!(matches!(error, OpenError::NoInterface), "{error}");
            let socket = XdpSocket::open(side.index, 0, &SMALL).unwrap();
            let error = open(0, SMALL);
            assert!(matches!(error, OpenError::Occupied { queue: 0 }), "{error}");
            drop(socket);
            XdpSocket::open(side.index, 0, &SMALL).unwrap();
        });
    });
}

#[test]
fn an_open_socket_needs_no_privileges() {
    with_interface(|side| {
        let socket = side.run(|| XdpSocket::open(side.index, 0, &SMALL).unwrap());
        let parts = socket.parts().unwrap();
        side.run(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective = CapabilitySet::empty();
            set_capabilities(None, sets).unwrap();
            let mut other = XdpSocket::from_parts(parts, false).unwrap();
            assert_eq!(
                (other.queue(), other.interface_index(), other.is_zero_copy()),
                (0, side.index, false)
            );
            assert_eq!(other.receive().unwrap(), 0);
            assert_eq!(other.answer([]).unwrap().sent, 0);
            assert_eq!((other.owned().receiving, other.owned().free), (32, 32));
            other.check().unwrap();
            assert_eq!(other.statistics().unwrap().rx_dropped, 0);
        });
    });
}

#[test]
fn a_vanished_interface_is_noticed() {
    with_interface(|side| {
        let socket = side.run(|| XdpSocket::open(side.index, 0, &SMALL).unwrap());
        socket.check().unwrap();
        side.command("ip link del server");
        socket.check().unwrap_err();
        assert!(matches!(XdpSocket::from_parts(socket.parts().unwrap(), false), Err(_gone)));
    });
}

#[test]
fn interfaces_are_described() {
    with_interface(|side| {
        side.command("ip addr add 192.0.2.1/24 dev server");
        side.command("ip link set server address 02:00:00:00:00:07 mtu 1400");
        let find = || side.run(|| Interface::find("server").unwrap());
        let interface = find();
        assert_eq!((interface.index, interface.queues, interface.mtu), (side.index, 1, 1400));
        assert_eq!((interface.driver.as_str(), interface.mac), ("veth", [2, 0, 0, 0, 0, 7]));
        assert!(interface.is_up && interface.vlans.is_empty() && interface.strips_vlan);
        side.command("ethtool -K server rxvlan off");
        side.command("ip link set server down");
        let interface = find();
        assert!(!interface.is_up && !interface.strips_vlan);
        let addresses = side.run(|| local_addresses().unwrap());
        assert!(addresses.contains(&"192.0.2.1".parse().unwrap()), "{addresses:?}");
        let segment = Segment { vlan: None, interface_index: side.index, mac: [2, 0, 0, 0, 0, 7] };
        assert_eq!(side.run(|| segments(side.index).unwrap()), [segment]);
        assert_eq!(side.run(|| segments(u32::MAX >> 1).unwrap()), []);
    });
}
