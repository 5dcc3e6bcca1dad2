//! Nothing is allocated per request on open connections. Its own binary, since it counts what all threads allocate.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod no_allocation;
mod session;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use shoal_load::http::{HttpSettings, Reuse, open};
use shoal_load::{Mix, Plan};

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
    let plan = Plan { mix: Mix { connect: 0, announce: 1, scrape: 1 }, ..session::plan(addr) };
    let settings = HttpSettings {
        host: addr.to_string(),
        announce_path: "/announce".to_owned(),
        scrape_path: "/scrape".to_owned(),
        tls: None,
        connections: NonZeroUsize::new(CONNECTIONS).unwrap(),
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
        let (report, allocated) = no_allocation::run(&mut session, CONNECTIONS);
        stop.store(true, Ordering::Relaxed);
        assert!(report.responses.total() > 500, "{report:?}");
        assert_eq!((report.lost, report.wrong.total()), (0, 0), "{report:?}");
        assert_eq!(allocated, 0);
    });
}
