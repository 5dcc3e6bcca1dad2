//! The memory of an idle session, and the allocations of a request. A separate binary, since it replaces the allocator.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "sessions/identity.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod identity;
#[path = "sessions/peer.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod peer;

use std::fs;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use rustls::SupportedProtocolVersion;
use shoal_session::tls::{Server, Session};
use shoal_testkit::allocator::{CountingAllocator, allocations};

use identity::{Folder, Identity, Kind};
use peer::{BOTH, Client, sealed, transfer, trusting};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NAME: &str = "tracker.example";

fn server() -> (Server, Identity) {
    let folder = Folder::new();
    let identity = Identity::new(Kind::P256, &[NAME]);
    (Server::load(&[folder.files("one", &identity)]).unwrap(), identity)
}

/// Creates a session that has served a request and waits for the next.
fn idle(
    server: &Server,
    identity: &Identity,
    version: &'static SupportedProtocolVersion,
) -> (Session, Client) {
    let mut session = Session::new(server);
    let mut client = Client::new(&Arc::new(trusting(&[&identity.der], version)), NAME);
    transfer(&mut session, &mut client);
    client.write(&[b'x'; 400]);
    assert_eq!(transfer(&mut session, &mut client).len(), 400);
    client.read(&sealed(&mut session, &[b'y'; 400])).unwrap();
    (session, client)
}

/// Returns the resident memory of this process, proc(5), "/proc/pid/statm".
fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let resident: u64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    resident * 4096
}

/// The tests measure the memory of the process, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn an_idle_session_takes_little() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const SESSIONS: u64 = 1_000;
    let (server, identity) = server();
    // All sessions are kept, so that no memory is reused.
    let mut sessions = Vec::new();
    for version in BOTH {
        sessions.extend((0..50).map(|_| idle(&server, &identity, version).0));
        let before = resident_bytes();
        sessions.extend((0..SESSIONS).map(|_| idle(&server, &identity, version).0));
        let each = (resident_bytes() - before) / SESSIONS;
        println!("an idle session of {:?}: {each} bytes", version.version);
        assert!(each > 0 && each < 6 * 1024, "an idle session of {:?} takes {each} bytes", version.version);
        let reported = sessions.last().map_or(0, Session::idle_bytes) as u64;
        assert!((each..6 * 1024).contains(&reported), "it reports {reported} bytes");
    }
}

#[test]
fn a_session_within_its_handshake_reports_its_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const SESSIONS: u64 = 500;
    let (server, identity) = server();
    for version in BOTH {
        let config = Arc::new(trusting(&[&identity.der], version));
        // It receives only the client hello.
        let begun = || {
            let (mut session, mut client) = (Session::new(&server), Client::new(&config, NAME));
            let (mut plaintext, mut output) = (Vec::new(), Vec::new());
            session.open(&mut client.sent(), &mut plaintext, &mut output).unwrap();
            assert!(session.is_handshaking() && !output.is_empty());
            session
        };
        let mut sessions: Vec<_> = (0..50).map(|_| begun()).collect();
        let before = resident_bytes();
        sessions.extend((0..SESSIONS).map(|_| begun()));
        let each = (resident_bytes() - before) / SESSIONS;
        let reported =
            sessions.last().map_or(0, |session| session.idle_bytes() + session.pending_bytes()) as u64;
        println!(
            "a session of {:?} within its handshake: {each} bytes, reported {reported}",
            version.version
        );
        assert!((each..8 * 1024).contains(&reported), "{each} bytes, reported {reported}");
    }
}

/// rustls allocates a `Vec` for each opened record and one for each sealed record.
#[test]
fn a_request_costs_two_allocations() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (server, identity) = server();
    for version in BOTH {
        let (mut session, mut client) = idle(&server, &identity, version);
        let (mut plaintext, mut output) = (Vec::with_capacity(1_024), Vec::with_capacity(1_024));
        for _ in 0..10 {
            client.write(&[b'x'; 400]);
            let mut sent = client.sent();
            plaintext.clear();
            output.clear();
            let before = allocations();
            session.open(&mut sent, &mut plaintext, &mut output).unwrap();
            session.seal(&[b'y'; 400], &mut output);
            assert_eq!(allocations() - before, 2);
            assert_eq!(plaintext.len(), 400);
            assert!(output.len() > 400);
        }
    }
}
