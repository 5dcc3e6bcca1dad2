//! SIGHUP: listeners come and go, and those that stay lose nothing.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::http::{Way, certificate};
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{PATIENCE, Tracker, eventually};
use crate::kit::web::{Web, announce};
use crate::udp::hash;

const BACK_ENDS: [&str; 2] = ["mmsg", "uring"];

/// A tracker whose file says where it listens.
struct Listening {
    tracker: Tracker,
    file: PathBuf,
    io: &'static str,
    directory: TempDir,
}

impl Listening {
    fn start(io: &'static str, udp: &str, http: &str, tls: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shoal.toml");
        fs::write(&file, text(io, udp, http, tls)).unwrap();
        Self { tracker: Tracker::start_where_file_says(&file), file, io, directory }
    }

    /// Replaces the addresses and waits for a line of the log, which it returns.
    fn reload(&self, udp: &str, http: &str, tls: &str, message: &str) -> serde_json::Value {
        fs::write(&self.file, text(self.io, udp, http, tls)).unwrap();
        self.tracker.signal(Signal::SIGHUP);
        self.tracker.wait_for_line(message)
    }

    /// Replaces the addresses, and returns where the tracker listens then: UDP, HTTP and HTTPS.
    fn change(&self, udp: &str, http: &str, tls: &str) -> [Vec<SocketAddr>; 3] {
        let line = self.reload(udp, http, tls, "listening");
        ["udp", "http", "tls"].map(|field| {
            line[field].as_str().unwrap().split(", ").filter_map(|address| address.parse().ok()).collect()
        })
    }
}

/// Returns a file with these addresses, each list with commas between.
fn text(io: &str, udp: &str, http: &str, tls: &str) -> String {
    let list = |addresses: &str| {
        let quoted: Vec<_> = addresses
            .split(',')
            .filter(|address| !address.is_empty())
            .map(|address| format!("{address:?}"))
            .collect();
        quoted.join(", ")
    };
    let (certificate, key) = certificate();
    format!(
        "[udp]\nio = {io:?}\nlisten = [{}]\n[http]\nlisten = [{}]\n[tls]\nlisten = [{}]\ncertificates = [{certificate:?}]\n\
         keys = [{key:?}]\n[announce]\npeers_per_address_max = 0\n\
         [proxy]\ntrusted = [\"unix\"]\nheader = \"x-real-ip\"\n",
        list(udp),
        list(http),
        list(tls)
    )
}

fn is_served_over_udp(address: SocketAddr) -> bool {
    let client = Client::new(address);
    client.announce(&Announce::leecher(hash(1), 6881)).interval_s > 0
}

fn is_served_over_http(address: SocketAddr, tls: bool) -> bool {
    Web::connect(address, tls).get(&announce(hash(1), 6881, "")).status == 200
}

/// Waits until no socket is bound here any more.
fn wait_until_free(address: SocketAddr) {
    eventually("the socket is closed", || UdpSocket::bind(address).ok());
}

#[test]
fn listeners_are_added_and_removed() {
    for io in BACK_ENDS {
        let listening = Listening::start(io, "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0");
        let tracker = &listening.tracker;
        let mut open = Web::connect(tracker.http[0], false);
        // The kernel passes a connection on with its first request.
        assert_eq!(open.get(&announce(hash(1), 6881, "")).status, 200);
        let mut browser = Browser::open(Way::PLAIN, tracker);
        browser.ask(&browser::announce('t', 'a', 1));
        let [udp, http, tls] = listening.change(
            "127.0.0.1:0,127.0.0.2:0,[::1]:0",
            "127.0.0.1:0,[::1]:0",
            "127.0.0.2:0,127.0.0.1:0",
        );
        assert_eq!((udp[0], http[0], tls[1]), (tracker.udp[0], tracker.http[0], tracker.tls[0]));
        // Each worker serves some of these.
        for _ in 0..8 {
            assert!(udp.iter().all(|address| is_served_over_udp(*address)));
            assert!(http.iter().all(|address| is_served_over_http(*address, false)));
            assert!(tls.iter().all(|address| is_served_over_http(*address, true)));
        }
        let metrics = tracker.page("/metrics").body;
        assert!(metrics.contains(&format!("address=\"{}\"", udp[2])), "{metrics}");
        // The listeners of the start go, and connections that they have accepted stay.
        listening.change("[::1]:0", "[::1]:0", "127.0.0.2:0");
        wait_until_free(tracker.udp[0]);
        eventually("the listener is closed", || TcpStream::connect(tracker.http[0]).is_err().then_some(()));
        eventually("the listener is closed", || TcpStream::connect(tracker.tls[0]).is_err().then_some(()));
        assert!(
            is_served_over_udp(udp[2])
                && is_served_over_http(http[1], false)
                && is_served_over_http(tls[0], true)
        );
        assert_eq!(open.get(&announce(hash(1), 6881, "")).status, 200);
        browser.ask(&browser::announce('t', 'a', 1));
        let applied = tracker.metric("shoal_reloads_total", &["outcome=\"applied\""]);
        assert_eq!(applied, 2);
    }
}

#[test]
fn a_family_of_listeners_can_go_as_a_whole_and_return() {
    for io in BACK_ENDS {
        let listening = Listening::start(io, "127.0.0.1:0", "", "");
        let [udp, http, _] = listening.change("", "127.0.0.1:0", "");
        assert!(udp.is_empty() && is_served_over_http(http[0], false));
        wait_until_free(listening.tracker.udp[0]);
        let [udp, http, _] = listening.change("127.0.0.1:0", "", "");
        assert!(http.is_empty() && is_served_over_udp(udp[0]));
        // The workers have no certificates.
        let applies = "`shoal upgrade` or a restart applies: tls.listen";
        listening.reload("127.0.0.1:0", "", "127.0.0.1:0", applies);
        assert!(is_served_over_udp(udp[0]));
    }
}

#[test]
fn an_address_that_cannot_be_bound_changes_nothing() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let listening = Listening::start("auto", "127.0.0.1:0", "127.0.0.1:0", "");
    let line = listening.reload("127.0.0.2:0", &taken, "", "the configuration stays as it was");
    let error = line["error"].as_str().unwrap();
    assert!(error.contains(&taken) && error.contains("in use"), "{error}");
    assert!(is_served_over_udp(listening.tracker.udp[0]));
    assert!(is_served_over_http(listening.tracker.http[0], false));
    drop(other);
    let [_, http, _] = listening.change("127.0.0.1:0", &taken, "");
    assert!(is_served_over_http(http[0], false));
}

#[test]
fn a_unix_socket_comes_and_goes_with_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    let [one, other] = [&first, &second].map(|path| format!("unix:{}", path.display()));
    let listening = Listening::start("auto", "127.0.0.1:0", &one, "");
    let serves = |path| {
        let mut web = Web::connect_unix(path);
        let target = announce(hash(1), 6881, "");
        web.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\nX-Real-IP: 198.51.100.7\r\n\r\n").as_bytes());
        web.answer().status == 200
    };
    assert!(serves(&first));
    listening.change("127.0.0.1:0", &format!("{one},{other}"), "");
    // The workers share it.
    assert!((0..8).all(|_| serves(&first) && serves(&second)));
    listening.change("127.0.0.1:0", &other, "");
    eventually("the file is removed", || (!first.exists()).then_some(()));
    assert!(serves(&second));
    let elsewhere = format!("unix:{}", listening.directory.path().join("third").display());
    let line = listening.reload("127.0.0.1:0", &elsewhere, "", "the configuration stays as it was");
    // By the sandbox, or else by the broker.
    assert!(line["error"].as_str().unwrap().contains("third"), "{line}");
    assert!(serves(&second));
}

/// Every request to an address that stays is answered exactly once, while others come and go.
#[test]
fn no_request_is_lost_during_changes() {
    for io in BACK_ENDS {
        let listening = Listening::start(io, "127.0.0.1:0", "127.0.0.1:0", "");
        let (udp, http) = (listening.tracker.udp[0], listening.tracker.http[0]);
        let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let clients: Vec<_> = (0..6_u16)
            .map(|number| {
                let (is_over, answered) = (Arc::clone(&is_over), Arc::clone(&answered));
                thread::spawn(move || {
                    let client = Client::new(udp);
                    let mut port = 1000 + 1000 * number;
                    while !is_over.load(Ordering::Relaxed) {
                        port += 1;
                        if number < 3 {
                            client.announce(&Announce::leecher(hash(7), port));
                        } else {
                            let mut web = Web::connect(http, false);
                            assert_eq!(web.get(&announce(hash(7), port, "&left=1")).status, 200);
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for round in 0..6 {
            let before = answered.load(Ordering::Relaxed);
            match round % 2 {
                0 => listening.change("127.0.0.1:0,127.0.0.2:0", "127.0.0.1:0,[::1]:0", ""),
                _ => listening.change("127.0.0.1:0", "127.0.0.1:0", ""),
            };
            eventually("requests are answered", || {
                (answered.load(Ordering::Relaxed) > before + 50).then_some(())
            });
        }
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
    }
}

#[test]
fn an_upgrade_takes_over_what_a_reload_has_added() {
    let listening = Listening::start("auto", "127.0.0.1:0", "127.0.0.1:0", "");
    let [udp, http, _] = listening.change("127.0.0.1:0,127.0.0.2:0", "[::1]:0", "");
    let mut tracker = listening.tracker;
    kill(tracker.pid(), Signal::SIGUSR2).unwrap();
    tracker.wait_for_line("the new process serves");
    assert!(udp.iter().all(|address| is_served_over_udp(*address)));
    assert!(is_served_over_http(http[0], false));
    assert!(tracker.wait(PATIENCE).success());
    assert!(udp.iter().all(|address| is_served_over_udp(*address)));
}
