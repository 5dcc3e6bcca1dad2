//! The program on a pair of virtual interfaces, between two network namespaces of the test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use shoal_engine::connection_id::{ConnectionIds, ConnectionKey, slot_at};
use shoal_testkit::network::{Side, between_two, packet_socket, ping};
use shoal_wire::udp::ConnectionId;
use shoal_xdp::frame::{Checksum, Datagram, Head, parse};
use shoal_xdp::interface::{Interface, Segment, Vlan, segments};
use shoal_xdp::program::{
    AttachError, Counted, Ids, Link, Maps, Mode, Network, NetworkRule, Program, Rate, Settings, Sizes,
};
use shoal_xdp::route::permit_lookups;

const SIZES: Sizes = Sizes { queues: 4, networks_max: 16, sources_max: 1000, endpoints_max: 16 };

const UNIX_S: u64 = 1_700_000_000;

/// An end of the slot that no test reaches.
const NEVER_NS: u64 = 1 << 62;

/// How long a test waits for a reply that has to come, and for one that must not.
const PATIENCE: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_millis(200);

/// The addresses of the tracker and of the client.
const PATHS: [(&str, &str); 2] = [("192.0.2.1", "192.0.2.2"), ("2001:db8:1::1", "2001:db8:1::2")];

/// Addresses of the client in networks that the tests deny.
const DENIED: [&str; 2] = ["192.0.2.99", "2001:db8:1::99"];

const PORT: u16 = 6969;

const CONNECT: [u8; 16] = [0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, 1, 2, 3, 4];

fn ids(key: u8) -> ConnectionIds {
    ConnectionIds::new(&ConnectionKey::new([key; 16]))
}

fn settings(ids: &ConnectionIds) -> Settings {
    let shared = ids.share();
    let ids = Ids { keyed: shared.keyed, former: None, valid_ns: shared.valid_s * 1_000_000_000 };
    Settings { ids: Some(ids), bucket_key: [1, 2], ..Settings::default() }
}

/// Gives both sides their addresses.
fn configure(server: &Side, client: &Side) {
    for (tracker, ip) in PATHS {
        add_address(server, tracker);
        add_address(client, ip);
    }
    DENIED.iter().for_each(|ip| add_address(client, ip));
    for side in [server, client] {
        side.command(&format!("ip link set {} up", side.device));
    }
    add_neighbours(server, client);
}

/// Tells the kernel of the server the MAC address of the client, as it finds it out itself before its first reply.
fn add_neighbours(server: &Side, client: &Side) {
    let mac = client.run(|| Interface::find(client.device).unwrap().mac);
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    for ip in PATHS.map(|(_, ip)| ip).into_iter().chain(DENIED) {
        server.command(&format!("ip neigh replace {ip} lladdr {mac} nud permanent dev {}", server.device));
    }
}

fn add_address(side: &Side, ip: &str) {
    let rest = if ip.contains(':') { "/64 nodad" } else { "/24" };
    side.command(&format!("ip addr add {ip}{rest} dev {}", side.device));
}

/// Loads a program that answers for all addresses of the tracker with ids of this key.
fn load(key: u8, server: &Side) -> (Program, Maps) {
    let (program, mut maps) = Program::load(&SIZES).unwrap();
    let endpoints = PATHS.map(|(ip, _)| SocketAddr::new(ip.parse().unwrap(), PORT));
    maps.set_endpoints(&endpoints).unwrap();
    maps.set_settings(&settings(&ids(key)));
    maps.set_slot(slot_at(UNIX_S).0, NEVER_NS);
    let segments = server.run(|| {
        permit_lookups().unwrap();
        segments(server.index).unwrap()
    });
    maps.set_segments(&segments).unwrap();
    (program, maps)
}

/// Attaches a program to the end of the client: a veth passes on what XDP sends only if its other end expects that.
fn attach_client(client: &Side) -> Link {
    let index = client.index;
    client.run(move || Program::load(&SIZES).unwrap().0.attach(index, Mode::Native).unwrap())
}

/// Sends a connect request from one address to another, with a payload of `bytes` in all. Returns the reply.
fn connect(client: &Side, from: &str, to: &str, bytes: usize, wait: Duration) -> Option<[u8; 16]> {
    let (from, to) = (from.parse::<IpAddr>().unwrap(), to.parse::<IpAddr>().unwrap());
    client.run(move || {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.connect((to, PORT)).unwrap();
        socket.set_read_timeout(Some(wait)).unwrap();
        let mut request = CONNECT.to_vec();
        request.resize(bytes, 0x55);
        socket.send(&request).unwrap();
        let mut reply = [0; 100];
        let received = socket.recv(&mut reply).ok()?;
        assert_eq!(received, 16);
        reply[..16].try_into().ok()
    })
}

#[track_caller]
fn assert_answered(client: &Side, from: &str, to: &str, bytes: usize, key: u8) {
    let reply = connect(client, from, to, bytes, PATIENCE).expect("a reply");
    let (head, id) = reply.split_at(8);
    assert_eq!(head, [0, 0, 0, 0, 1, 2, 3, 4]);
    let id = ConnectionId(u64::from_be_bytes(id.try_into().unwrap()));
    assert_eq!(id, ids(key).issue(from.parse().unwrap(), UNIX_S));
    assert!(ids(key).accepts(id, from.parse().unwrap(), UNIX_S));
}

/// Asserts that the other services of the server work: ping, TCP, and UDP on another port.
fn assert_others_unharmed(server: &Side, client: &Side) {
    for (tracker, _) in PATHS {
        let tracker: IpAddr = tracker.parse().unwrap();
        client.run(move || ping(tracker));
        let listener = server.run(move || TcpListener::bind((tracker, 0)).unwrap());
        let address = listener.local_addr().unwrap();
        let server_thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received.len()
        });
        client.run(move || TcpStream::connect(address).unwrap().write_all(&[7; 200_000]).unwrap());
        assert_eq!(server_thread.join().unwrap(), 200_000);
        let other = server.run(move || UdpSocket::bind((tracker, 53)).unwrap());
        client.run(move || {
            let socket = UdpSocket::bind((if tracker.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).unwrap();
            // One datagram that is fragmented, and one that is not.
            socket.send_to(&[8; 3000], (tracker, 53)).unwrap();
            socket.send_to(&CONNECT, (tracker, 53)).unwrap();
        });
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut lengths = [0, 0].map(|_: usize| other.recv(&mut [0; 4000]).unwrap());
        lengths.sort_unstable();
        assert_eq!(lengths, [16, 3000]);
    }
}

/// Returns the next datagram from the port of the tracker.
fn receive_reply(socket: &OwnedFd) -> Datagram {
    loop {
        let mut frame = [0; 2000];
        let (bytes, _) = recv(socket, &mut frame, RecvFlags::empty()).expect("a reply");
        let datagram = parse(&frame[..bytes]).ok();
        if let Some(datagram) = datagram.filter(|datagram| datagram.source.port() == PORT) {
            assert_eq!(datagram.checksum(&frame[..bytes]), Checksum::Valid);
            assert_eq!(datagram.payload.len(), 16);
            return datagram;
        }
    }
}

/// Everything that is not a connect request is served by the sockets of the tracker, since the queue has no AF_XDP socket.
fn assert_served_by_sockets(server: &Side, client: &Side) {
    for (tracker, ip) in PATHS {
        let (tracker, ip): (IpAddr, IpAddr) = (tracker.parse().unwrap(), ip.parse().unwrap());
        let socket = server.run(move || UdpSocket::bind((tracker, PORT)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        client.run(move || {
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            socket.send_to(&[1; 98], (tracker, PORT)).unwrap();
            socket.send_to(&[1; 5000], (tracker, PORT)).unwrap();
        });
        assert_eq!([0, 0].map(|_| socket.recv(&mut [0; 6000]).unwrap()), [98, 5000]);
    }
}

fn serves(mode: Mode) {
    between_two(|server, client| {
        configure(server, client);
        let (program, maps) = load(1, server);
        let link = server.run(|| program.attach(server.index, mode).unwrap());
        assert_eq!((link.mode(), link.interface_index().unwrap()), (mode, Some(server.index)));
        let _client_link = attach_client(client);
        for (tracker, ip) in PATHS {
            for bytes in [16, 17, 18, 19, 20, 400, 1452] {
                assert_answered(client, ip, tracker, bytes, 1);
            }
        }
        let counts = maps.counts().unwrap();
        assert_eq!((counts.of(Counted::ConnectsV4), counts.of(Counted::ConnectsV6)), (7, 7), "{counts:?}");
        assert_others_unharmed(server, client);
        assert_served_by_sockets(server, client);
        let counts = maps.counts().unwrap();
        assert_eq!(
            (counts.of(Counted::NoSocket), counts.of(Counted::Malformed), counts.of(Counted::BadChecksum)),
            (2, 0, 0),
            "{counts:?}"
        );
        assert!(counts.of(Counted::Fragments) >= 4, "{counts:?}");
    });
}

#[test]
fn connects_are_answered_in_the_driver_and_all_else_is_unharmed() {
    serves(Mode::Native);
}

#[test]
fn connects_are_answered_in_the_kernel_and_all_else_is_unharmed() {
    serves(Mode::Generic);
}

/// A kernel without VLANs has none to offer, so the frames are sent and received as they are. The interface itself stands for that
/// of the VLAN.
#[test]
fn a_request_with_a_vlan_tag_is_answered_with_the_same_tag() {
    between_two(|server, client| {
        configure(server, client);
        let (program, mut maps) = load(1, server);
        let _link = server.run(|| program.attach(server.index, Mode::Native).unwrap());
        let _client_link = attach_client(client);
        let [own, other] =
            [server, client].map(|side| side.run(|| Interface::find(side.device).unwrap().mac));
        let vlan = |protocol, number| {
            let vlan = Some(Vlan { protocol, number });
            Segment { vlan, interface_index: server.index, mac: own }
        };
        maps.set_segments(&[vlan(0x8100, 5), vlan(0x88a8, 7)]).unwrap();
        let socket = client.run(|| packet_socket(client.index));
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
        for tag in [[0x81, 0, 0x20, 5], [0x88, 0xa8, 0, 7]] {
            for (tracker, ip) in PATHS {
                let head = Head {
                    destination_mac: own,
                    source_mac: other,
                    tag: Some(tag),
                    source: SocketAddr::new(ip.parse().unwrap(), 6881),
                    destination: SocketAddr::new(tracker.parse().unwrap(), PORT),
                };
                let mut frame = vec![0; head.bytes()];
                frame.extend(CONNECT);
                head.write(&mut frame, head.bytes(), CONNECT.len()).unwrap();
                send(&socket, &frame, SendFlags::empty()).unwrap();
                let reply = receive_reply(&socket);
                // The kernel takes the tag off a frame that it receives.
                assert_eq!((reply.ip_offset, reply.source), (14, head.destination));
                assert_eq!(reply.destination, head.source);
            }
        }
        let counts = maps.counts().unwrap();
        assert_eq!((counts.of(Counted::ConnectsV4), counts.of(Counted::ConnectsV6)), (2, 2), "{counts:?}");
    });
}

#[test]
fn denied_networks_and_requests_over_the_limit_are_dropped() {
    between_two(|server, client| {
        configure(server, client);
        let (program, mut maps) = load(1, server);
        let _link = server.run(|| program.attach(server.index, Mode::Auto).unwrap());
        let _client_link = attach_client(client);
        let denied = NetworkRule { denied: true, exempt: false };
        let networks: Vec<Network> =
            DENIED.iter().map(|ip| Network { ip: ip.parse().unwrap(), bits: 128, rule: denied }).collect();
        maps.set_networks(&networks, NetworkRule::default()).unwrap();
        for ((tracker, ip), denied) in PATHS.iter().zip(DENIED) {
            assert_answered(client, ip, tracker, 16, 1);
            assert_eq!(connect(client, denied, tracker, 16, SILENCE), None);
        }
        assert_eq!(maps.counts().unwrap().of(Counted::Denied), 2);
        maps.set_networks(&[], NetworkRule::default()).unwrap();
        for ((tracker, _), denied) in PATHS.iter().zip(DENIED) {
            assert_answered(client, denied, tracker, 16, 1);
        }
        // A token each thousand seconds or so is none in the time of a test.
        let rate = Rate { token_ns: 1 << 40, full_ns: 3 << 40 };
        maps.set_settings(&Settings { connects: Some(rate), ..settings(&ids(1)) });
        for (tracker, ip) in PATHS {
            (0..3).for_each(|_| assert_answered(client, ip, tracker, 16, 1));
            assert_eq!(connect(client, ip, tracker, 16, SILENCE), None);
        }
        assert_eq!(maps.counts().unwrap().by_path()["rate_limited"], 2);
        // The other address of the client is another source over IPv4, and the same over IPv6.
        assert_answered(client, DENIED[0], PATHS[0].0, 16, 1);
        assert_eq!(connect(client, DENIED[1], PATHS[1].0, 16, SILENCE), None);
    });
}

#[test]
fn a_link_is_handed_over_and_ends_with_its_last_process() {
    between_two(|server, client| {
        configure(server, client);
        let (tracker, ip) = PATHS[0];
        let (program, _maps) = load(1, server);
        let link = server.run(|| program.attach(server.index, Mode::Native).unwrap());
        let _client_link = attach_client(client);
        assert_answered(client, ip, tracker, 16, 1);
        let second = server.run(|| program.attach(server.index, Mode::Native).unwrap_err());
        assert!(matches!(second, AttachError::Occupied), "{second}");
        // Another process has the link, and this one no longer.
        fcntl_setfd(&link, FdFlags::empty()).unwrap();
        let mut holder = Command::new("sleep").arg("1000").spawn().unwrap();
        let fd = OwnedFd::from(link);
        let (next, _next_maps) = load(2, server);
        let link = next.replace(fd, Mode::Native).unwrap();
        drop((program, _maps));
        assert_answered(client, ip, tracker, 16, 2);
        drop((next, link));
        assert_answered(client, ip, tracker, 16, 2);
        // SIGKILL.
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(connect(client, ip, tracker, 16, SILENCE), None);
        let (next, _maps) = load(3, server);
        let _link = server.run(|| next.attach(server.index, Mode::Native).unwrap());
        assert_answered(client, ip, tracker, 16, 3);
    });
}

/// Neither the loopback nor frames of 9000 bytes are for the drivers here.
#[test]
fn without_native_mode_the_kernel_runs_the_program() {
    between_two(|server, client| {
        configure(server, client);
        for side in [server, client] {
            side.command(&format!("ip link set {} mtu 9000", side.device));
        }
        let (program, _maps) = load(1, server);
        let link = server.run(|| program.attach(server.index, Mode::Auto).unwrap());
        assert_eq!(link.mode(), Mode::Generic);
        assert!(matches!(link.passed_over(), Some(AttachError::Refused(_))), "{link:?}");
        assert_answered(client, PATHS[0].1, PATHS[0].0, 16, 1);
        let error = server.run(|| program.attach(server.index, Mode::Native).unwrap_err());
        assert!(matches!(error, AttachError::Occupied | AttachError::Refused(_)), "{error}");
        let loopback = server.run(|| program.attach(1, Mode::Auto).unwrap());
        assert_eq!(loopback.mode(), Mode::Generic);
        assert!(matches!(loopback.passed_over(), Some(AttachError::NoNativeMode)), "{loopback:?}");
        let error = server.run(|| program.attach(1, Mode::Native).unwrap_err());
        assert!(
            error.to_string().contains("no native XDP") || matches!(error, AttachError::Occupied),
            "{error}"
        );
    });
}

#[test]
fn an_interface_that_was_down_is_served_again() {
    between_two(|server, client| {
        configure(server, client);
        let (program, maps) = load(1, server);
        let link = server.run(|| program.attach(server.index, Mode::Native).unwrap());
        let _client_link = attach_client(client);
        for state in ["down", "up"] {
            server.command(&format!("ip link set {} {state}", server.device));
        }
        add_neighbours(server, client);
        assert_eq!(link.interface_index().unwrap(), Some(server.index));
        assert_answered(client, PATHS[0].1, PATHS[0].0, 16, 1);
        assert_eq!(maps.counts().unwrap().of(Counted::ConnectsV4), 1);
    });
}

#[test]
fn an_interface_that_vanishes_leaves_a_link_to_nothing() {
    between_two(|server, _client| {
        let (program, _maps) = load(1, server);
        let link = server.run(|| program.attach(server.index, Mode::Native).unwrap());
        server.command(&format!("ip link del {}", server.device));
        assert_eq!(link.interface_index().unwrap(), None);
        let error = server.run(|| program.attach(server.index, Mode::Auto).unwrap_err());
        assert!(matches!(error, AttachError::NoInterface), "{error}");
        let error = program.replace(link.into(), Mode::Native).unwrap_err();
        assert!(matches!(error, AttachError::NoInterface), "{error}");
        let no_link = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(
            program.replace(no_link.into(), Mode::Native),
            Err(AttachError::NoLink | AttachError::Refused(_))
        ));
    });
}
