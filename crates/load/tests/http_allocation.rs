//! Nothing is allocated per request on connections that stay open. A binary of its own, since it counts what all threads of
//! the process allocate.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use shoal_counting_allocator::{CountingAllocator, allocations_elsewhere};
use shoal_load::http::{HttpSettings, Reuse, open};
use shoal_load::{Mix, Pace, Plan, Popularity, Population, Sources, Stop, Watch};
use shoal_net::Backend;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CONNECTIONS: usize = 4;

const ANNOUNCED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n\
    d8:completei1e10:incompletei0e8:intervali60e5:peers0:e\n";
const SCRAPED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nd5:filesdee\n";

/// Replies without allocating, too, so that the count is that of the generator.
fn serve(mut stream: TcpStream, stop: &AtomicBool) {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut request = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        // One request is under way at a time, and comes whole.
        let Ok(bytes) = stream.read(&mut request) else { continue };
        if bytes == 0 {
            break;
        }
        let reply = if request.starts_with(b"GET /announce") { ANNOUNCED } else { SCRAPED };
        stream.write_all(reply).unwrap();
    }
}

#[test]
fn nothing_is_allocated_per_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, stop) = (listener.local_addr().unwrap(), AtomicBool::new(false));
    let some = |count| NonZeroUsize::new(count).unwrap();
    let plan = Plan {
        target: addr,
        population: Population {
            torrents: 50,
            peers: 200,
            popularity: Popularity::Uniform,
            seeder_share: 0.5,
            announces_per_life: 10,
        },
        mix: Mix { connect: 0, announce: 1, scrape: 1 },
        numwant: 10,
        scrape_hashes_max: 5,
        sources: Sources { first: addr.ip(), addresses: some(2), sockets_per_worker: some(2) },
        workers: vec![None],
        seed: 1,
        io: Backend::Mmsg,
        timeout: Duration::from_secs(5),
        own_address_is_wrong: true,
    };
    let settings = HttpSettings {
        host: addr.to_string(),
        announce_path: "/announce".to_owned(),
        scrape_path: "/scrape".to_owned(),
        tls: None,
        connections: some(CONNECTIONS),
        pipelining: NonZeroUsize::MIN,
        reuse: Reuse::KeepAlive,
        reset: false,
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            // There is one more connection than those with requests: a session first checks that the tracker is there.
            listener.set_nonblocking(true).unwrap();
            while !stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => drop(scope.spawn(|| serve(stream, &stop))),
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        let mut session = open(&plan, &settings).unwrap();
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
            Pace::Closed { window: CONNECTIONS },
            stop_after,
            &mut Watch { cancel: &cancel, progress: &mut progress },
        );
        stop.store(true, Ordering::Relaxed);
        assert!(report.responses.total() > 500 && looks.load(Ordering::Relaxed) > 2, "{report:?}");
        assert_eq!((report.lost, report.wrong.total()), (0, 0), "{report:?}");
        assert_eq!(first.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
    });
}
