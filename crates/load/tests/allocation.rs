//! Nothing is allocated per request. Its own binary, since it counts what all threads allocate.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod no_allocation;
mod session;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use shoal_load::udp::open;
use shoal_load::{Mix, Plan};

#[test]
fn nothing_is_allocated_per_request() {
    // Replies without allocating, too, so that the count is that of the generator.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (addr, stop) = (socket.local_addr().unwrap(), AtomicBool::new(false));
    let mix = Mix { connect: 1, announce: 1, scrape: 1 };
    let plan = Plan { mix, timeout: Duration::from_secs(1), ..session::plan(addr) };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut packet = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let Ok((bytes, source)) = socket.recv_from(&mut packet) else { continue };
                packet.copy_within(8..16, 0);
                let reply_bytes = match packet[3] {
                    0 => 16,
                    1 => 20,
                    _ => 8 + (bytes - 16) / 20 * 12,
                };
                socket.send_to(&packet[..reply_bytes], source).unwrap();
            }
        });
        let mut session = open(&plan).unwrap();
        let (report, allocated) = no_allocation::run(&mut session, 64);
        stop.store(true, Ordering::Relaxed);
        assert!(report.responses.total() > 1000, "{report:?}");
        assert_eq!(allocated, 0);
    });
}
