//! The generator over TLS, against a server that uses TLS as Shoal does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod session;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use session::watched;
use shoal_load::http::{HttpSettings, Reuse, TlsSettings, TlsVersion, open};
use shoal_load::{Connections, Pace, Plan, Population, Report, Stop};
use shoal_session::tls::{CertificateFiles, Server};
use tempfile::TempDir;

/// A tracker by TLS, with a thread for each connection.
struct Tracker {
    addr: SocketAddr,
    folder: TempDir,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 54\r\n\r\n\
    d8:completei1e10:incompletei0e8:intervali60e5:peers0:e";

impl Tracker {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = shoal_session::tls::self_signed(&["localhost".to_owned()]).unwrap();
        let chain = folder.path().join("certificate.pem");
        let key = folder.path().join("key.pem");
        fs::write(&chain, made.certificate_pem).unwrap();
        fs::write(&key, made.key_pem).unwrap();
        let server = Server::load(&[CertificateFiles { chain, key: Some(key) }]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let acceptor = thread::spawn(move || {
            thread::scope(|scope| {
                while let Ok((stream, _)) = listener.accept() {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    scope.spawn(|| serve(stream, &server, &stopped));
                }
            });
        });
        Self { addr, folder, stop, acceptor: Some(acceptor) }
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.addr);
        self.acceptor.take().unwrap().join().unwrap();
    }
}

fn serve(mut stream: TcpStream, server: &Server, stop: &AtomicBool) {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut session = shoal_session::tls::Session::new(server);
    let (mut piece, mut heads) = ([0; 4096], Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let bytes = match stream.read(&mut piece) {
            Ok(0) => return,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut output = Vec::new();
        let failed = session.open(&mut piece[..bytes], &mut heads, &mut output).is_err();
        let mut is_last = false;
        while let Some(end) = heads.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head: Vec<u8> = heads.drain(..end + 4).collect();
            is_last |= String::from_utf8(head).unwrap().contains("Connection: close");
            session.seal(REPLY, &mut output);
        }
        if is_last {
            session.close(&mut output);
        }
        if stream.write_all(&output).is_err() || failed || is_last {
            return;
        }
    }
}

fn plan(target: SocketAddr) -> Plan {
    let plan = session::plan(target);
    let population = Population { torrents: 20, peers: 40, announces_per_life: 0, ..plan.population };
    Plan { population, scrape_hashes_max: 1, ..plan }
}

fn settings(reuse: Reuse) -> HttpSettings {
    HttpSettings {
        host: "localhost".to_owned(),
        announce_path: "/announce".to_owned(),
        scrape_path: "/scrape".to_owned(),
        tls: Some(TlsSettings {
            version: TlsVersion::Tls13,
            resumption: false,
            trusted: None,
            name: "localhost".to_owned(),
        }),
        connections: NonZeroUsize::new(4).unwrap(),
        pipelining: NonZeroUsize::MIN,
        reuse,
        reset: false,
    }
}

fn change(reuse: Reuse, change: impl FnOnce(&mut TlsSettings)) -> HttpSettings {
    let mut settings = settings(reuse);
    settings.tls.as_mut().map(change).unwrap();
    settings
}

fn run(settings: &HttpSettings) -> (Report, Connections) {
    let tracker = Tracker::start();
    let mut session = open(&plan(tracker.addr), settings).unwrap();
    let stop = Stop { after: Some(Duration::from_secs(60)), requests: Some(100) };
    let report = watched(|watch| session.run(Pace::Closed { window: 100 }, stop, watch));
    assert_eq!((report.responses.announce, report.lost, report.wrong.total()), (100, 0, 0), "{report:#?}");
    let made = report.connections.clone().unwrap();
    assert_eq!(made.failures.total(), 0, "{made:?}");
    assert_eq!(made.opened, made.handshakes_full + made.handshakes_resumed, "{made:?}");
    (report, made)
}

#[test]
fn connections_that_stay_shake_hands_once() {
    let (_, made) = run(&settings(Reuse::KeepAlive));
    // The first was there before the run.
    assert_eq!((made.handshakes_full, made.handshakes_resumed, made.open_at_end), (3, 0, 4), "{made:?}");
}

#[test]
fn a_connection_for_each_request_has_a_full_handshake_unless_it_resumes() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let (report, made) = run(&change(Reuse::PerRequest, |tls| tls.version = version));
        assert_eq!((made.handshakes_full, made.handshakes_resumed), (99, 0), "{version:?} {made:?}");
        assert!(made.setup.p50_us > 0.0 && report.latency.p50_us > made.setup.p50_us, "{report:?}");

        let resuming = change(Reuse::PerRequest, |tls| (tls.version, tls.resumption) = (version, true));
        let (_, made) = run(&resuming);
        // The first ones, which are on their way at once, have no ticket yet.
        assert!(made.handshakes_full <= 4 && made.handshakes_resumed >= 95, "{version:?} {made:?}");
    }
}

#[test]
fn any_certificate_is_accepted_unless_trusted_ones_are_given() {
    let tracker = Tracker::start();
    let trusted = |file: PathBuf, name: &str| {
        let settings =
            change(Reuse::KeepAlive, |tls| (tls.trusted, tls.name) = (Some(file), name.to_owned()));
        open(&plan(tracker.addr), &settings).map(drop)
    };
    assert!(trusted(tracker.certificate(), "localhost").is_ok());
    let refused = trusted(tracker.certificate(), "tracker.example").unwrap_err().to_string();
    assert!(refused.contains("no TLS can be agreed on") && refused.contains("certificate"), "{refused}");
    let other = Tracker::start();
    assert!(trusted(other.certificate(), "localhost").is_err());
    let refused = trusted(tracker.folder.path().join("key.pem"), "localhost").unwrap_err().to_string();
    assert!(refused.contains("key.pem cannot be used"), "{refused}");
    let refused = trusted(tracker.folder.path().join("none.pem"), "localhost").unwrap_err().to_string();
    assert!(refused.contains("none.pem cannot be used"), "{refused}");
}

#[test]
fn a_tracker_without_tls_is_reported() {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = plain.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = plain.accept().unwrap();
        let _ = stream.read(&mut [0; 512]);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let refused = open(&plan(addr), &settings(Reuse::KeepAlive)).unwrap_err().to_string();
    assert!(refused.contains("no TLS can be agreed on"), "{refused}");
    server.join().unwrap();
}
