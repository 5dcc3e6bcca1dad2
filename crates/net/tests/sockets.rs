//! Opening sockets: errors, and the kernel's counters.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::UdpSocket;
use std::num::NonZeroUsize;
use std::thread;

use common::{bind, bind_one, connect, settings};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use shoal_net::{BindError, InheritedSockets, SOCKETS_MAX, SocketSettings, Sockets};

#[test]
fn a_port_in_use_is_named() {
    let other = bind_one(&["127.0.0.1:0"]);
    let addr = other.local_addrs().next().unwrap().to_string();
    let error = bind(&[&addr], 2).unwrap_err();
    let expected = format!("cannot listen on UDP {addr}: port");
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(error.to_string().contains("is in use"), "{error}");
}

#[test]
fn a_port_in_use_on_one_address_is_in_use_on_the_wildcard() {
    let other = bind_one(&["127.0.0.1:0"]);
    let port = other.local_addrs().next().unwrap().port();
    assert!(bind(&[&format!("0.0.0.0:{port}")], 1).is_err());
}

#[test]
fn both_families_have_a_port_of_the_same_number() {
    let v4 = bind_one(&["0.0.0.0:0"]);
    let port = v4.local_addrs().next().unwrap().port();
    bind_one(&[&format!("[::]:{port}")]);
}

#[test]
fn an_address_of_another_host_is_named() {
    let error = bind(&["192.0.2.1:0"], 1).unwrap_err();
    assert!(error.to_string().contains("does not have the address 192.0.2.1"), "{error}");
    assert!(!error.is_family_missing());
}

#[test]
fn too_many_addresses() {
    let error = bind(&["127.0.0.1:0"; SOCKETS_MAX + 1], 1).unwrap_err();
    assert!(matches!(error, BindError::TooMany(count) if count == SOCKETS_MAX + 1), "{error}");
}

#[test]
fn a_smaller_buffer_than_asked_for_is_reported() {
    let vast = SocketSettings { recv_buffer_bytes: 1 << 30, ..settings("127.0.0.1:0".parse().unwrap()) };
    let workers = Sockets::bind(&[vast], NonZeroUsize::MIN).unwrap();
    let shortfalls: Vec<_> = workers[0].shortfalls().collect();
    let [shortfall] = shortfalls[..] else { panic!("{shortfalls:?}") };
    assert_eq!((shortfall.sysctl, shortfall.wanted_bytes), ("net.core.rmem_max", 1 << 30));
    assert!(shortfall.to_string().contains("raise net.core.rmem_max"), "{shortfall}");

    assert_eq!(bind_one(&["127.0.0.1:0"]).shortfalls().count(), 0);
}

#[test]
fn a_probe_sees_the_queue_and_the_drops() {
    let small = SocketSettings { recv_buffer_bytes: 4096, ..settings("127.0.0.1:0".parse().unwrap()) };
    let sockets = Sockets::bind(&[small], NonZeroUsize::MIN).unwrap().remove(0);
    let probe = sockets.probes().next().unwrap();
    let client = connect(probe.local_addr());
    client.send(b"one").unwrap();
    let before = probe.read().unwrap().unwrap();
    assert!(before.receive_queue_bytes > 0);
    assert_eq!(before.receive_drops, 0);
    for _ in 0..1000 {
        client.send(b"more than fit").unwrap();
    }
    let after = probe.read().unwrap().unwrap();
    assert!((900..1000).contains(&after.receive_drops), "{after:?}");

    drop(sockets);
    assert_eq!(probe.read().unwrap(), None);
}

fn receive_queue(worker: &Sockets) -> u32 {
    worker.probes().next().unwrap().read().unwrap().unwrap().receive_queue_bytes
}

/// Over loopback, the processor that sends a datagram also receives it.
#[test]
fn steered_datagrams_reach_the_worker_of_the_processor_that_received_them() {
    let here = (0..CpuSet::MAX_CPU).find(|cpu| sched_getaffinity(None).unwrap().is_set(*cpu)).unwrap();
    let mut only_here = CpuSet::new();
    only_here.set(here);
    for steered_to in 0..3 {
        let workers = bind(&["127.0.0.1:0"], 3).unwrap();
        let mut processors = [usize::MAX; 3];
        processors[steered_to] = here;
        Sockets::steer(&workers, &processors).unwrap();
        let address = workers[0].local_addrs().next().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, &only_here).unwrap();
                for _ in 0..20 {
                    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[1], address).unwrap();
                }
            });
        });
        let reached: Vec<usize> = (0..3).filter(|&worker| receive_queue(&workers[worker]) > 0).collect();
        assert_eq!(reached, [steered_to]);
    }
}

#[test]
fn datagrams_of_other_processors_reach_some_worker() {
    let workers = bind(&["127.0.0.1:0"], 2).unwrap();
    Sockets::steer(&workers, &[usize::MAX, usize::MAX - 1]).unwrap();
    let address = workers[0].local_addrs().next().unwrap();
    for _ in 0..40 {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[1], address).unwrap();
    }
    for worker in &workers {
        assert!(receive_queue(worker) > 0);
    }
}

#[test]
fn sockets_that_stay_have_their_buffers_until_they_are_resized() {
    let size = |sockets: &Sockets| {
        let socket = sockets.descriptors().next().unwrap();
        rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap()
    };
    let before = bind_one(&["127.0.0.1:0"]);
    let small = size(&before) / 4;
    let addr = before.local_addrs().next().unwrap();
    let wanted = [SocketSettings { addr, recv_buffer_bytes: small / 2, send_buffer_bytes: 1 << 16 }];
    let mut after = Sockets::change(&[before], &wanted, &InheritedSockets::default()).unwrap().remove(0);
    assert_eq!(size(&after), 4 * small);
    after.resize(&wanted).unwrap();
    assert_eq!(size(&after), small);
}
