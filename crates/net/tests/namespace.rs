//! Tests that need addresses, routes and queues that a host may not have. Each test creates its own network namespace.
//! If that is forbidden, or the tools are missing, the test is skipped; in CI it fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod isolation;

use std::num::NonZeroUsize;
use std::time::Duration;

use common::{Kind, Server, bind_one, connect_from, receive, settings};
use isolation::{configure, in_namespace};
use shoal_net::{DatagramIo, Echo, SocketSettings, Sockets, Unsent};

over_every_back_end! {
    replies_leave_from_the_v6_address_asked,
    replies_leave_from_a_link_local_address,
    an_unreachable_source_is_counted,
    a_full_send_buffer_drops_and_does_not_wait,
}

fn replies_leave_from_the_v6_address_asked(kind: Kind) {
    in_namespace(|| {
        configure("ip addr add 2001:db8::1/128 dev lo nodad")?;
        configure("ip addr add 2001:db8::2/128 dev lo nodad")?;
        configure("ip addr add 2001:db8::9/128 dev lo nodad")?;
        let server = Server::start(kind, &["[::]:0"], Echo::default());
        let port = server.addrs[0].port();
        for ip in ["2001:db8::1", "2001:db8::2", "::1"] {
            assert_answered("[2001:db8::9]:0", &format!("[{ip}]:{port}"));
        }
        Some(())
    });
}

/// Two interfaces, two addresses on one of them, and a source that does not name the interface.
fn replies_leave_from_a_link_local_address(kind: Kind) {
    in_namespace(|| {
        configure("ip link add here type veth peer name there")?;
        configure("ip link set here up")?;
        configure("ip link set there up")?;
        configure("ip addr add fe80::5/64 dev here nodad")?;
        configure("ip addr add fe80::6/64 dev here nodad")?;
        configure("ip addr add fe80::7/64 dev there nodad")?;
        configure("ip addr add 2001:db8::9/128 dev here nodad")?;
        configure("ip addr add 169.254.7.5/32 dev here")?;
        let server = Server::start(kind, &["[::]:0", "0.0.0.0:0"], Echo::default());
        let (v6, v4) = (server.addrs[0].port(), server.addrs[1].port());
        for (ip, interface) in [("fe80::5", "here"), ("fe80::6", "here"), ("fe80::7", "there")] {
            let asked = format!("[{ip}%{}]:{v6}", interface_index(interface));
            assert_answered("[::]:0", &asked);
        }
        assert_answered("[2001:db8::9]:0", &format!("[fe80::6%{}]:{v6}", interface_index("here")));
        assert_answered("0.0.0.0:0", &format!("169.254.7.5:{v4}"));
        Some(())
    });
}

/// A connected client receives only from the address that it sent to. The kernel completes new addresses in the
/// background, and a socket that was connected too early never works, hence several attempts.
fn assert_answered(local: &str, asked: &str) {
    let answered = (0..50).any(|_| {
        let client = connect_from(local, asked.parse().unwrap());
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        client.send(b"hello").is_ok() && client.recv(&mut [0; 5]).is_ok()
    });
    assert!(answered, "no answer from {asked}");
}

fn interface_index(name: &str) -> u32 {
    // Not from /sys, which shows the namespace in which it was mounted.
    let listing = isolation::run(&format!("ip -o link show {name}")).unwrap();
    listing.split(':').next().unwrap().parse().unwrap()
}

fn an_unreachable_source_is_counted(kind: Kind) {
    in_namespace(|| {
        configure("ip addr add 192.0.2.1/32 dev lo")?;
        configure("ip addr add 192.0.2.9/32 dev lo")?;
        let sockets = bind_one(&["192.0.2.1:0"]);
        let (addr, counters) = (sockets.local_addrs().next().unwrap(), sockets.counters());
        let mut io = kind.open(sockets);
        let gone = connect_from("192.0.2.9:0", addr);
        for _ in 0..3 {
            gone.send(b"farewell").unwrap();
        }
        configure("ip addr del 192.0.2.9/32 dev lo")?;
        configure("ip route add unreachable 192.0.2.9/32")?;
        let stays = connect_from("192.0.2.1:0", addr);
        stays.send(b"still there").unwrap();
        io.drain(&mut Echo::default(), || true).unwrap();
        assert_eq!(receive(&stays), b"still there");
        drop(io);
        assert_eq!(counters.v4.unsent.of(Unsent::Unreachable).read(), 3);
        assert_eq!(counters.v4.sent.read(), 1);
        Some(())
    });
}

fn a_full_send_buffer_drops_and_does_not_wait(kind: Kind) {
    const COUNT: u64 = 200;
    in_namespace(|| {
        let addr = "127.0.0.1:0".parse().unwrap();
        let small = SocketSettings { send_buffer_bytes: 1, ..settings(addr) };
        let sockets = Sockets::bind(&[small], NonZeroUsize::MIN).unwrap().remove(0);
        let (addr, counters) = (sockets.local_addrs().next().unwrap(), sockets.counters());
        let mut io = kind.open(sockets);
        let client = connect_from("127.0.0.1:0", addr);
        for _ in 0..COUNT {
            client.send(&[7; 1000]).unwrap();
        }
        // From here on a kilobyte takes many seconds through the loopback.
        configure("tc qdisc add dev lo root tbf rate 1kbit burst 2000 limit 1000000")?;
        while io.poll(Duration::from_millis(20), &mut Echo::default()).unwrap() > 0 {}
        drop(io);
        let (sent, full) = (counters.v4.sent.read(), counters.v4.unsent.of(Unsent::Full).read());
        assert!(full > COUNT / 2, "{full} replies found the buffer full");
        assert_eq!(sent + full, COUNT);
        Some(())
    });
}
