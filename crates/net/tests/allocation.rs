//! A back end allocates nothing after it was opened.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Kind, PATIENCE, bind_one, connect};
use shoal_net::{DatagramIo, Echo, REQUEST_BYTES_MAX, Unread};
use shoal_testkit::allocator::{CountingAllocator, allocations};

over_every_back_end! {
    polls_allocate_nothing,
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn polls_allocate_nothing(kind: Kind) {
    const ROUNDS: usize = 50;
    const BURST: usize = 150; // More than a batch, and less than a client's receive buffer holds of replies.
    let sockets = bind_one(&["127.0.0.1:0", "[::1]:0"]);
    let (addrs, counters): (Vec<_>, _) = (sockets.local_addrs().collect(), sockets.counters());
    let waker = sockets.waker();
    let mut io = kind.open(sockets);
    let clients: Vec<_> = addrs.iter().map(|addr| connect(*addr)).collect();
    let (small, large) = ([7; 98], [7; REQUEST_BYTES_MAX + 1]);

    let before = allocations();
    for _ in 0..ROUNDS {
        for client in &clients {
            for _ in 0..BURST {
                client.send(&small).unwrap();
            }
            client.send(&large).unwrap();
        }
        waker.wake();
        io.poll(PATIENCE, &mut Echo::default()).unwrap();
        io.poll(Duration::from_millis(1), &mut Echo::default()).unwrap();
        io.drain(&mut Echo::default(), || true).unwrap();
        for client in &clients {
            client.set_nonblocking(true).unwrap();
            while client.recv(&mut [0; 98]).is_ok() {}
        }
    }
    assert_eq!(allocations() - before, 0);

    for family in [&counters.v4, &counters.v6] {
        assert_eq!(family.received.read(), (ROUNDS * BURST) as u64);
        assert_eq!(family.unread.of(Unread::Oversized).read(), ROUNDS as u64);
    }
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(vec![1; 100]));
    assert_eq!(allocations() - before, 1);
}
