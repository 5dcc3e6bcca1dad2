//! Nothing is allocated per request. A binary of its own, since it counts what all threads of the process allocate.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

use std::net::UdpSocket;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use shoal_counting_allocator::{CountingAllocator, allocations_elsewhere};
use shoal_load::udp::open;
use shoal_load::{Mix, Pace, Plan, Popularity, Population, Sources, Stop, Watch};
use shoal_net::Backend;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn nothing_is_allocated_per_request() {
    // Replies without allocating, too, so that the count is that of the generator.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (addr, stop) = (socket.local_addr().unwrap(), AtomicBool::new(false));
    let plan = Plan {
        target: addr,
        population: Population {
            torrents: 50,
            peers: 200,
            popularity: Popularity::Uniform,
            seeder_share: 0.5,
            announces_per_life: 10,
        },
        mix: Mix { connect: 1, announce: 1, scrape: 1 },
        numwant: 10,
        scrape_hashes_max: 5,
        sources: Sources {
            first: addr.ip(),
            addresses: NonZeroUsize::new(4).unwrap(),
            sockets_per_worker: NonZeroUsize::new(4).unwrap(),
        },
        workers: vec![None],
        seed: 1,
        io: Backend::Mmsg,
        timeout: Duration::from_secs(1),
        own_address_is_wrong: true,
    };
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
        session.fill(&mut Watch { cancel: &AtomicBool::new(false), progress: &mut |_| {} });
        // Between the second look and the last one, other threads of this process do nothing else.
        let (first, last, looks) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let mut progress = |_: &_| {
            last.store(allocations_elsewhere(), Ordering::Relaxed);
            if looks.fetch_add(1, Ordering::Relaxed) == 1 {
                first.store(allocations_elsewhere(), Ordering::Relaxed);
            }
        };
        let stop_after = Stop { after: Some(Duration::from_millis(1500)), requests: None };
        let cancel = AtomicBool::new(false);
        let report = session.run(
            Pace::Closed { window: 64 },
            stop_after,
            &mut Watch { cancel: &cancel, progress: &mut progress },
        );
        stop.store(true, Ordering::Relaxed);
        assert!(report.responses.total() > 1000 && looks.load(Ordering::Relaxed) > 2, "{report:?}");
        assert_eq!(first.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
    });
}
