//! The generator against HTTP trackers that are made for the test: good ones, and ones that break a rule each.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod session;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use session::watched;
use shoal_load::http::{HttpSettings, Reuse, open};
use shoal_load::{
    Bottleneck, Connections, Kinds, Mix, OpenError, Pace, Plan, Popularity, Population, Report, Stop, Watch,
};

/// Decides what a tracker does about a request, given the number of earlier ones.
type Answer = dyn Fn(&Request, u64) -> Reaction + Send + Sync;

struct Request {
    target: String,
    wants_close: bool,
    source: SocketAddr,
}

enum Reaction {
    Say(Vec<u8>),
    /// Sends it, and closes the connection.
    SayAndClose(Vec<u8>),
    Reset,
    Silence,
}

use Reaction::{Reset, Say, SayAndClose, Silence};

/// A tracker with a thread for each connection.
struct Tracker {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
    acceptor: Option<JoinHandle<()>>,
}

impl Tracker {
    fn start(answer: impl Fn(&Request, u64) -> Reaction + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0", answer)
    }

    fn start_on(bind: &str, answer: impl Fn(&Request, u64) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(bind).unwrap();
        let (addr, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let threads = Arc::new(Mutex::new(Vec::new()));
        let (stopped, spawned) = (Arc::clone(&stop), Arc::clone(&threads));
        let (answer, before): (Arc<Answer>, _) = (Arc::new(answer), Arc::new(AtomicU64::new(0)));
        let acceptor = thread::spawn(move || {
            while let Ok((stream, source)) = listener.accept() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (answer, before, stopped) =
                    (Arc::clone(&answer), Arc::clone(&before), Arc::clone(&stopped));
                let thread = thread::spawn(move || {
                    serve(stream, source, &stopped, |request| {
                        answer(request, before.fetch_add(1, Ordering::Relaxed))
                    })
                });
                let mut spawned = spawned.lock().unwrap();
                // A thread that is over keeps its stack until then.
                spawned.retain(|thread: &JoinHandle<()>| !thread.is_finished());
                spawned.push(thread);
            }
        });
        Self { addr, stop, threads, acceptor: Some(acceptor) }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.addr);
        self.acceptor.take().unwrap().join().unwrap();
        for thread in self.threads.lock().unwrap().drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Serves one connection until either side ends it, or the test is over.
fn serve(
    mut stream: TcpStream,
    source: SocketAddr,
    stop: &AtomicBool,
    answer: impl Fn(&Request) -> Reaction,
) {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut input, mut piece) = (Vec::new(), [0; 4096]);
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut piece) {
            Ok(0) => return,
            Ok(bytes) => input.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        }
        while let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8(input.drain(..end + 4).collect()).unwrap();
            let target = head.split(' ').nth(1).unwrap().to_owned();
            let request = Request { target, wants_close: head.contains("Connection: close"), source };
            // In some tests, the client closes before the reply comes.
            let is_over = match answer(&request) {
                Say(reply) => stream.write_all(&reply).is_err() || request.wants_close,
                SayAndClose(reply) => {
                    let _ = stream.write_all(&reply);
                    true
                }
                Reset => {
                    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
                    true
                }
                Silence => false,
            };
            if is_over {
                return;
            }
        }
    }
}

/// Returns the reply of a good tracker that knows only the announcing peer.
fn good(request: &Request) -> Vec<u8> {
    if request.target.starts_with("/scrape") {
        let hashes = request.target.matches("info_hash=").count();
        let files: Vec<u8> = (0..hashes)
            .flat_map(|file| {
                let file = u8::try_from(file).unwrap();
                [b"20:", &[b'a' + file; 20][..], b"d8:completei1e10:incompletei0ee"].concat()
            })
            .collect();
        return ok(&[b"d5:filesd", &files[..], b"ee"].concat());
    }
    announced(b"", "1")
}

fn ok(body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// Returns an announce reply with these peers and this number of seeders.
fn announced(peers: &[u8], complete: &str) -> Vec<u8> {
    let head = format!("d8:completei{complete}e10:incompletei0e8:intervali60e5:peers{}:", peers.len());
    ok(&[head.as_bytes(), peers, b"e"].concat())
}

fn plan(target: SocketAddr) -> Plan {
    let plan = session::plan(target);
    let popularity = Popularity::Gamma { shape: 0.2, scale: 1.0 };
    let mix = Mix { connect: 0, announce: 3, scrape: 1 };
    Plan { population: Population { popularity, ..plan.population }, mix, timeout: PATIENCE, ..plan }
}

fn settings(reuse: Reuse) -> HttpSettings {
    HttpSettings {
        host: "tracker.example".to_owned(),
        announce_path: "/announce".to_owned(),
        scrape_path: "/scrape".to_owned(),
        tls: None,
        connections: NonZeroUsize::new(8).unwrap(),
        pipelining: NonZeroUsize::MIN,
        reuse,
        reset: false,
    }
}

fn requests(count: u64) -> Stop {
    Stop { after: Some(Duration::from_secs(60)), requests: Some(count) }
}

const CLOSED: Pace = Pace::Closed { window: 1024 };

/// For trackers that answer everything, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// For trackers that leave requests without an answer.
const IMPATIENCE: Duration = Duration::from_millis(400);

fn run_with(
    settings: &HttpSettings,
    timeout: Duration,
    count: u64,
    answer: impl Fn(&Request, u64) -> Reaction + Send + Sync + 'static,
) -> Report {
    let tracker = Tracker::start(answer);
    let mut session = open(&Plan { timeout, ..plan(tracker.addr) }, settings).unwrap();
    watched(|watch| session.run(CLOSED, requests(count), watch))
}

fn run(answer: impl Fn(&Request, u64) -> Reaction + Send + Sync + 'static) -> Report {
    run_with(&settings(Reuse::KeepAlive), PATIENCE, 200, answer)
}

fn connections(report: &Report) -> &Connections {
    report.connections.as_ref().unwrap()
}

#[test]
fn a_good_tracker_has_no_faults_over_either_family_however_connections_are_used() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        for (reuse, depth) in [(Reuse::KeepAlive, 1), (Reuse::KeepAlive, 4), (Reuse::PerRequest, 1)] {
            let tracker = Tracker::start_on(bind, |request, _| Say(good(request)));
            let pipelining = NonZeroUsize::new(depth).unwrap();
            let settings = HttpSettings { pipelining, ..settings(reuse) };
            let mut session = open(&plan(tracker.addr), &settings).unwrap();
            let filled = watched(|watch| session.fill(watch));
            assert_eq!(filled.responses, Kinds { announce: 200, ..Kinds::default() }, "{bind} {reuse:?}");
            let report = watched(|watch| session.run(CLOSED, requests(400), watch));
            assert_eq!((report.requests.total(), report.responses), (400, report.requests), "{report:#?}");
            assert_eq!((report.lost, report.errors, report.wrong.total()), (0, 0, 0));
            // Three in four, with five deviations.
            assert!(report.requests.announce.abs_diff(300) < 45, "{:?}", report.requests);
            // On a busy machine it is the generator that waits.
            assert_ne!(report.verdict, Bottleneck::Unanswered);
            let connections = connections(&report);
            assert_eq!(connections.failures.total(), 0);
            match reuse {
                Reuse::PerRequest => assert!((390..=400).contains(&connections.opened), "{connections:?}"),
                _ => assert_eq!((connections.opened, connections.open_at_end), (0, 8), "{connections:?}"),
            }
        }
    }
}

#[test]
fn requests_come_from_all_addresses_and_peers_stay_where_they_are() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let report = run_with(&settings(Reuse::PerRequest), PATIENCE, 300, move |request, _| {
        let id = request.target.split("peer_id=").nth(1).map(|rest| rest[..60].to_owned());
        sender.send((request.source.ip(), id)).unwrap();
        Say(good(request))
    });
    assert_eq!(report.responses.total(), 300);
    let mut seen: Vec<_> = receiver.iter().collect();
    let mut addresses: Vec<String> = seen.iter().map(|(ip, _)| ip.to_string()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses, ["127.0.0.10", "127.0.0.11", "127.0.0.9"]);
    seen.retain(|(_, id)| id.is_some());
    seen.sort_unstable();
    seen.dedup();
    let mut ids: Vec<_> = seen.iter().map(|(_, id)| id).collect();
    let pairs = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), pairs, "a peer announced from two addresses");
}

#[test]
fn a_reply_that_breaks_a_rule_is_no_response() {
    fn spoil(reply: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Report {
        let report = run(move |request, _| {
            Say(if request.target.starts_with("/announce") { reply(request) } else { good(request) })
        });
        assert_eq!((report.responses.announce, report.responses.scrape), (0, report.requests.scrape));
        assert_eq!(report.lost, 0);
        report
    }
    let of = |report: &Report| (report.wrong.total(), report.requests.announce);

    let report = spoil(|request| {
        let std::net::IpAddr::V4(ip) = request.source.ip() else { panic!() };
        let port = request.target.split("port=").nth(1).unwrap()[..5].parse::<u16>().unwrap();
        announced(&[&ip.octets()[..], &port.to_be_bytes()].concat(), "1")
    });
    assert_eq!((report.wrong.own_address, of(&report).1), of(&report));

    let report = spoil(|_| announced(&[1; 6 * 11], "20"));
    assert_eq!((report.wrong.count, of(&report).1), of(&report));

    let report = spoil(|_| announced(&[1; 6 * 2], "1"));
    assert_eq!((report.wrong.implausible, of(&report).1), of(&report));

    for body in [&announced(&[1; 7], "3")[..], &announced(b"", "-1"), &ok(b"hello"), &ok(b"d8:intervali60ee")]
    {
        let body = body.to_vec();
        let report = spoil(move |_| body.clone());
        assert_eq!((report.wrong.malformed, of(&report).1), of(&report));
        assert!(connections(&report).first_fault.is_some());
    }

    let report = spoil(|_| b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone".to_vec());
    assert_eq!((report.wrong.status, of(&report).1), of(&report));
    assert_eq!(connections(&report).first_fault.as_deref(), Some("status 404: gone"));

    let report = spoil(|_| ok(b"d14:failure reason7:go awaye"));
    assert_eq!((report.errors, report.wrong.total()), (report.requests.announce, 0));
    assert_eq!(report.first_error.as_deref(), Some("go away"));
}

#[test]
fn a_reply_that_is_not_http_ends_its_connection_and_is_counted_once() {
    let report = run(|_, _| Say(b"220 smtp.example ESMTP\r\n\r\n".to_vec()));
    assert_eq!((report.wrong.malformed, report.requests.total()), (200, 200), "{report:#?}");
    assert!(connections(&report).opened >= 192, "{report:#?}");

    let report = run(|request, _| Say([good(request), good(request)].concat()));
    assert!(report.wrong.transaction_id > 0, "{report:#?}");
    assert_eq!(report.responses.total() + report.lost, 200);
}

#[test]
fn replies_that_end_with_chunks_or_with_the_connection_are_read() {
    let chunked = |request: &Request, _| {
        let good = good(request);
        let body = good.split(|byte| *byte == b'd').skip(1).collect::<Vec<_>>().join(&b'd');
        let chunk = format!("{:x}\r\n", body.len() + 1).into_bytes();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        Say([&head[..], &chunk, b"d", &body, b"\r\n0\r\n\r\n"].concat())
    };
    let report = run(chunked);
    assert_eq!((report.responses.total(), report.lost), (200, 0), "{report:#?}");

    // As in HTTP/1.0, without a length.
    let closing = |request: &Request, _| {
        let good = good(request);
        let body = good.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        SayAndClose([b"HTTP/1.0 200 OK\r\n\r\n", &good[body..]].concat())
    };
    let report = run(closing);
    assert_eq!((report.responses.total(), report.lost), (200, 0), "{report:#?}");
    assert!(connections(&report).opened >= 192, "{report:#?}");
}

#[test]
fn every_way_to_lose_a_connection_is_counted_separately() {
    let report = run(|request, before| if before % 10 == 9 { Reset } else { Say(good(request)) });
    let failures = connections(&report).failures;
    assert_eq!((failures.reset, failures.total(), report.lost), (20, 20, 20), "{report:#?}");

    let report =
        run(
            |request, before| {
                if before % 10 == 9 {
                    SayAndClose(b"HTTP/1.1 200 OK\r\n".to_vec())
                } else {
                    Say(good(request))
                }
            },
        );
    let failures = connections(&report).failures;
    assert_eq!((failures.closed, failures.total(), report.lost), (20, 20, 20), "{report:#?}");

    let silent = |request: &Request, before| if before % 50 == 49 { Silence } else { Say(good(request)) };
    let report = run_with(&settings(Reuse::KeepAlive), IMPATIENCE, 200, silent);
    let failures = connections(&report).failures;
    // Of four connections with 200 requests together, at least one comes to its fiftieth.
    assert!(report.lost >= 1 && report.responses.total() + report.lost == 200, "{report:#?}");
    assert!(failures.timeout == report.lost && failures.timeout == failures.total(), "{report:#?}");

    // An orderly end between two requests is no failure.
    let tracker = Tracker::start(|request, _| {
        let reply = good(request);
        SayAndClose(reply)
    });
    let mut session = open(&plan(tracker.addr), &settings(Reuse::KeepAlive)).unwrap();
    let report = watched(|watch| session.run(CLOSED, requests(8), watch));
    assert_eq!((report.responses.total(), connections(&report).failures.total()), (8, 0), "{report:#?}");
}

#[test]
fn a_fill_sends_lost_announces_again() {
    let tracker = Tracker::start(|request, before| if before % 10 == 5 { Reset } else { Say(good(request)) });
    let mut session = open(&plan(tracker.addr), &settings(Reuse::PerRequest)).unwrap();
    let filled = watched(|watch| session.fill(watch));
    assert_eq!(filled.responses.announce, 200);
    assert!(filled.lost > 10 && filled.failure.is_none(), "{filled:?}");
}

#[test]
fn an_open_loop_counts_from_when_a_request_was_due() {
    // At 400 requests a second, 8 connections are all held up for 300 ms at a time.
    let tracker = Tracker::start(|request, before| {
        if (100..108).contains(&before) {
            thread::sleep(Duration::from_millis(300));
        }
        Say(good(request))
    });
    let mut session = open(&plan(tracker.addr), &settings(Reuse::KeepAlive)).unwrap();
    let report = watched(|watch| session.run(Pace::Open { rate: 400.0 }, requests(400), watch));
    assert_eq!(report.responses.total(), 400, "{report:#?}");
    let above = |ms: f64| {
        let below = report.latency_curve.iter().filter(|point| point.latency_us < ms * 1e3);
        100.0 - below.map(|point| point.percentile).fold(0.0, f64::max)
    };
    // 120 of 400 wait at all, half of them for more than half of the stall. A busy machine only adds to that.
    assert!(above(5.0) > 20.0 && above(150.0) > 8.0, "{:#?}", report.latency_curve);
    assert!(report.latency.max_us > 290e3 && report.send_delay.is_some());
}

#[test]
fn a_request_that_waits_for_a_connection_for_too_long_is_never_sent() {
    let tracker = Tracker::start(|request, before| if before > 20 { Silence } else { Say(good(request)) });
    let plan = Plan { timeout: IMPATIENCE, ..plan(tracker.addr) };
    let mut session = open(&plan, &settings(Reuse::KeepAlive)).unwrap();
    let report = watched(|watch| session.run(Pace::Open { rate: 500.0 }, requests(600), watch));
    assert!(report.unsent > 0 && report.lost > report.unsent, "{report:#?}");
    assert_eq!(report.responses.total() + report.lost, report.requests.total() + report.unsent);
}

#[test]
fn held_connections_are_counted_at_the_end() {
    let answer = |request: &Request, before| {
        if before % 4 == 3 {
            // Is closed without a word, a moment after it was answered in good order.
            return SayAndClose(good(request));
        }
        Say(good(request))
    };
    let tracker = Tracker::start(answer);
    let connections = NonZeroUsize::new(40).unwrap();
    let settings = HttpSettings { connections, ..settings(Reuse::Held) };
    let mut session = open(&plan(tracker.addr), &settings).unwrap();
    let stop = Stop { after: Some(Duration::from_millis(800)), requests: None };
    let report = watched(|watch| session.run(CLOSED, stop, watch));
    assert_eq!((report.responses.total(), report.requests.total()), (40, 40), "{report:#?}");
    let made = report.connections.unwrap();
    assert_eq!((made.opened, made.open_at_end, made.closed_idle), (40, 30, 10), "{made:?}");
}

#[test]
fn nobody_and_silence_are_told_apart() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = open(&plan(addr), &settings(Reuse::KeepAlive)).unwrap_err();
    assert!(
        matches!(&refused, OpenError::Unreachable(words) if words.contains("nothing listens")),
        "{refused}"
    );

    // From an address that nothing leads back to.
    let tracker = Tracker::start(|request, _| Say(good(request)));
    let mut plan = plan(tracker.addr);
    plan.sources.first = "192.0.2.7".parse().unwrap();
    plan.sources.addresses = NonZeroUsize::MIN;
    let refused = open(&plan, &settings(Reuse::KeepAlive)).unwrap_err();
    assert!(refused.to_string().contains("cannot send from 192.0.2.7"), "{refused}");
}

#[test]
fn a_tracker_that_goes_away_ends_the_run_with_what_was_measured() {
    for reaction in [|| Silence, || Reset] {
        let answer =
            move |request: &Request, before| if before < 100 { Say(good(request)) } else { reaction() };
        let report = run_with(&settings(Reuse::KeepAlive), IMPATIENCE, 100_000, answer);
        let failure = report.failure.as_deref().unwrap_or_default();
        assert!(report.ended_early && failure.contains("fell silent"), "{report:#?}");
        assert_eq!(report.responses.total(), 100);
        // It was silent for 3 s, which do not count as part of the run.
        assert!(report.elapsed_s < 2.5, "{report:?}");
    }
}

#[test]
fn cancelling_ends_a_run() {
    let tracker = Tracker::start(|request, _| Say(good(request)));
    let mut session = open(&plan(tracker.addr), &settings(Reuse::KeepAlive)).unwrap();
    let (cancel, mut looks) = (AtomicBool::new(false), 0);
    let mut progress = |_: &_| {
        looks += 1;
        cancel.store(true, Ordering::Relaxed);
    };
    let stop = Stop { after: Some(Duration::from_secs(600)), requests: None };
    let report = session.run(CLOSED, stop, &mut Watch { cancel: &cancel, progress: &mut progress });
    assert!(report.ended_early && report.failure.is_none() && looks > 0);
    assert!(report.responses.total() > 0 && report.lost == 0, "{report:?}");
}

#[test]
fn impossible_settings_are_refused() {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let words = |change: fn(&mut Plan, &mut HttpSettings)| {
        let (mut plan, mut settings) = (plan(addr), settings(Reuse::KeepAlive));
        change(&mut plan, &mut settings);
        open(&plan, &settings).unwrap_err().to_string()
    };
    let many = |settings: &mut HttpSettings, count| settings.connections = NonZeroUsize::new(count).unwrap();
    assert!(words(|plan, _| plan.mix = Mix { connect: 1, announce: 0, scrape: 0 }).contains("no connects"));
    assert!(words(|_, settings| settings.announce_path = "announce".into()).contains("begins with a slash"));
    assert!(words(|_, settings| settings.host = "a b".into()).contains("printable"));
    let deep = |_: &mut Plan, settings: &mut HttpSettings| {
        settings.pipelining = NonZeroUsize::new(2).unwrap();
        settings.reuse = Reuse::PerRequest;
    };
    assert!(words(deep).contains("a single request"));
    let (plan, mut own) = (plan(addr), settings(Reuse::KeepAlive));
    many(&mut own, 2 << 20);
    assert!(open(&plan, &own).unwrap_err().to_string().contains("connections of a worker"));
    many(&mut own, 1 << 20);
    assert!(open(&plan, &own).unwrap_err().to_string().contains("ulimit -n"));
}
