//! The client side over each back end: sockets that are connected to a server, and segmented sends from them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::time::Duration;

use shoal_base::transport::datagram::{DatagramService, Exchange};
use shoal_net::{
    Backend, ClientSettings, ConnectError, DatagramIo, SEGMENTS_MAX, SOCKETS_MAX, SocketSettings, Sockets,
    Unread,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Records what it receives, and answers nothing.
#[derive(Default)]
struct Listener(Vec<Vec<u8>>);

impl DatagramService for Listener {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        self.0.extend(batch.iter().map(|exchange| exchange.request.to_vec()));
    }
}

fn connect(locals: &[&str], server: SocketAddr) -> Result<Sockets, ConnectError> {
    let locals: Vec<SocketAddr> = locals.iter().map(|local| local.parse().unwrap()).collect();
    let bytes = 1 << 20;
    Sockets::connect(&ClientSettings {
        locals: &locals,
        server,
        recv_buffer_bytes: bytes,
        send_buffer_bytes: bytes,
    })
}

/// Returns whether the back end works on this host. One that does not must refuse the sockets.
fn works(backend: Backend) -> bool {
    let Err(unsupported) = backend.probe() else { return true };
    let sockets = connect(&["127.0.0.2:0"], "127.0.0.1:1".parse().unwrap()).unwrap();
    assert!(backend.open(sockets).is_err(), "{unsupported}, but it opens");
    false
}

#[test]
fn a_segmented_send_arrives_as_datagrams() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let sockets = connect(&["127.0.0.2:0", "127.0.0.3:0"], server.local_addr().unwrap()).unwrap();
    let locals: Vec<SocketAddr> = sockets.local_addrs().collect();
    let mut sender = sockets.segmented_sender();
    for (index, count) in [(0, 1), (1, 2), (0, SEGMENTS_MAX)] {
        let bundle: Vec<u8> = (0..count).flat_map(|number| [u8::try_from(number).unwrap(); 98]).collect();
        assert_eq!(sender.send(index, None, &bundle, 98), Ok(count));
        for number in 0..count {
            let mut datagram = [0; 200];
            let (bytes, source) = server.recv_from(&mut datagram).unwrap();
            assert_eq!((bytes, source), (98, locals[index]));
            assert_eq!(datagram[..98], [u8::try_from(number).unwrap(); 98]);
        }
    }
    // Datagrams beyond the maximum of a call are left to the caller.
    assert_eq!(sender.send(0, None, &[0; 20 * (SEGMENTS_MAX + 1)], 20), Ok(SEGMENTS_MAX));
}

#[test]
fn large_datagrams_take_several_segmented_sends() {
    // 64 scrapes of 74 torrents are more bytes than the kernel accepts at once.
    const DATAGRAM_BYTES: usize = 16 + 74 * 20;
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sockets = connect(&["127.0.0.1:0"], server.local_addr().unwrap()).unwrap();
    let (mut sender, bundle) = (sockets.segmented_sender(), vec![0; SEGMENTS_MAX * DATAGRAM_BYTES]);
    let (mut sent, mut calls) = (0, 0);
    while sent < SEGMENTS_MAX {
        sent += sender.send(0, None, &bundle[sent * DATAGRAM_BYTES..], DATAGRAM_BYTES).unwrap();
        calls += 1;
    }
    assert_eq!((sent, calls), (SEGMENTS_MAX, 2));
}

#[test]
fn an_unconnected_socket_sends_segments_to_any_address() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let addr = bind.parse().unwrap();
        let settings = SocketSettings { addr, recv_buffer_bytes: 1 << 16, send_buffer_bytes: 1 << 16 };
        let sockets = Sockets::bind(&[settings], NonZeroUsize::MIN).unwrap();
        let client = UdpSocket::bind(bind).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = Some(client.local_addr().unwrap());
        for count in [1, 5] {
            assert_eq!(sockets[0].segmented_sender().send(0, to, &vec![7; 40 * count], 40), Ok(count));
            (0..count).for_each(|_| assert_eq!(client.recv(&mut [0; 100]).unwrap(), 40));
        }
    }
}

#[test]
fn replies_come_through_every_back_end() {
    for backend in Backend::ALL.into_iter().filter(|backend| works(*backend)) {
        let server = UdpSocket::bind("[::1]:0").unwrap();
        let sockets = connect(&["[::1]:0"; 3], server.local_addr().unwrap()).unwrap();
        let locals: Vec<SocketAddr> = sockets.local_addrs().collect();
        let mut io = backend.open(sockets).unwrap();
        // The kernel drops datagrams of other addresses on a connected socket.
        UdpSocket::bind("[::1]:0").unwrap().send_to(b"stranger", locals[0]).unwrap();
        for (number, local) in (0..).zip(&locals) {
            server.send_to(&[number; 40], local).unwrap();
        }
        let mut listener = Listener::default();
        while listener.0.len() < locals.len() {
            assert!(io.poll(PATIENCE, &mut listener).unwrap() > 0, "{backend}: waited in vain");
        }
        listener.0.sort();
        assert_eq!(listener.0, [vec![0; 40], vec![1; 40], vec![2; 40]], "{backend}");
    }
}

#[test]
fn a_refused_datagram_is_counted_and_ends_nothing() {
    let unused_address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for backend in Backend::ALL.into_iter().filter(|backend| works(*backend)) {
        let sockets = connect(&["127.0.0.1:0"], unused_address).unwrap();
        let (counters, mut sender) = (sockets.counters(), sockets.segmented_sender());
        let mut io = backend.open(sockets).unwrap();
        sender.send(0, None, &[0; 16], 16).unwrap();
        while counters.v4.unread.of(Unread::Failed).read() == 0 {
            io.poll(Duration::from_millis(10), &mut Listener::default()).unwrap();
        }
    }
}

#[test]
fn errors_name_the_cause() {
    let server = "127.0.0.1:9".parse().unwrap();
    let message = |locals: &[&str]| connect(locals, server).unwrap_err().to_string();
    assert!(message(&["127.0.0.1:0"; SOCKETS_MAX + 1]).contains("at most 64"));
    assert!(message(&["192.0.2.1:0"]).contains("does not have the address 192.0.2.1"));
}
