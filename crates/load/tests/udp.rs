//! The generator against trackers that are made for the test: a good one, and ones that break a rule each.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod session;

use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use session::watched;
use shoal_load::udp::open;
use shoal_load::{
    Bottleneck, Kinds, Mix, OpenError, Pace, Plan, Popularity, Population, Report, Sources, Stop, Watch,
};
use shoal_net::Backend;

/// How a tracker answers one request: bytes in, from whom, how many before; bytes out, or none.
type Answer = dyn Fn(&[u8], SocketAddr, u64) -> Option<Vec<u8>> + Send;

/// A tracker on a thread of its own.
struct Tracker {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tracker {
    fn start(bind: &str, answer: Box<Answer>) -> Self {
        let socket = UdpSocket::bind(bind).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (addr, stop) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut packet, mut before) = ([0; 2048], 0);
            while !stopped.load(Ordering::Relaxed) {
                let Ok((bytes, source)) = socket.recv_from(&mut packet) else { continue };
                if let Some(reply) = answer(&packet[..bytes], source, before) {
                    socket.send_to(&reply, source).unwrap();
                }
                before += 1;
            }
        });
        Self { addr, stop, thread: Some(thread) }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Returns the reply of a good tracker that knows no peers.
fn good(request: &[u8]) -> Vec<u8> {
    let mut reply = request[8..16].to_vec();
    match request[11] {
        0 => reply.extend([7; 8]),
        1 => reply.extend([0; 12]),
        _ => reply.resize(8 + (request.len() - 16) / 20 * 12, 0),
    }
    reply
}

fn plan(target: SocketAddr) -> Plan {
    let plan = session::plan(target);
    let popularity = Popularity::Zipf { exponent: 1.0 };
    let sockets_per_worker = NonZeroUsize::new(4).unwrap();
    Plan {
        population: Population { popularity, ..plan.population },
        mix: Mix { connect: 1, announce: 3, scrape: 1 },
        sources: Sources { sockets_per_worker, ..plan.sources },
        timeout: PATIENCE,
        ..plan
    }
}

fn requests(count: u64) -> Stop {
    Stop { after: Some(Duration::from_secs(20)), requests: Some(count) }
}

const CLOSED: Pace = Pace::Closed { window: 64 };

/// For trackers that answer everything, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// For trackers that leave requests without an answer.
const IMPATIENCE: Duration = Duration::from_millis(300);

/// A thousand requests to a tracker that answers this way.
fn run(
    timeout: Duration,
    answer: impl Fn(&[u8], SocketAddr, u64) -> Option<Vec<u8>> + Send + 'static,
) -> Report {
    let tracker = Tracker::start("127.0.0.1:0", Box::new(answer));
    let mut session = open(&Plan { timeout, ..plan(tracker.addr) }).unwrap();
    watched(|watch| session.run(CLOSED, requests(1000), watch))
}

#[test]
fn a_good_tracker_has_no_faults_over_either_family_and_back_end() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        for io in Backend::ALL.into_iter().filter(|io| io.probe().is_ok()) {
            let tracker = Tracker::start(bind, Box::new(|request, _, _| Some(good(request))));
            let mut session = open(&Plan { io, ..plan(tracker.addr) }).unwrap();
            let filled = watched(|watch| session.fill(watch));
            assert_eq!(filled.responses, Kinds { announce: 200, ..Kinds::default() }, "{bind} {io}");
            let report = watched(|watch| session.run(CLOSED, requests(1000), watch));
            assert_eq!(report.requests.total(), 1000);
            assert_eq!(report.responses, report.requests, "{report:#?}");
            assert_eq!((report.lost, report.errors, report.wrong.total()), (0, 0, 0));
            // One in five, three in five, one in five: five deviations.
            for (count, expected) in [
                (report.requests.connect, 200),
                (report.requests.announce, 600),
                (report.requests.scrape, 200),
            ] {
                assert!(count.abs_diff(expected) < 80, "{:?}", report.requests);
            }
            // On a busy machine it is the generator that waits.
            assert_ne!(report.verdict, Bottleneck::Unanswered);
        }
    }
}

#[test]
fn requests_come_from_all_addresses_and_ports() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let report = run(PATIENCE, move |request, source, _| {
        sender.send(source).unwrap();
        Some(good(request))
    });
    assert_eq!(report.wrong.total(), 0);
    let mut sources: Vec<SocketAddr> = receiver.iter().collect();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), 4, "{sources:?}");
    let mut addresses: Vec<String> = sources.iter().map(|source| source.ip().to_string()).collect();
    addresses.dedup();
    assert_eq!(addresses, ["127.0.0.9", "127.0.0.10", "127.0.0.11"]);
}

/// A good announce reply with these peers.
fn announced(request: &[u8], peers: &[u8]) -> Vec<u8> {
    [&good(request)[..], peers].concat()
}

#[test]
fn a_reply_that_breaks_a_rule_is_no_response() {
    /// Spoils announce replies only, since nothing goes without a connection id.
    fn spoil(reply: fn(&[u8], SocketAddr) -> Vec<u8>) -> Report {
        run(PATIENCE, move |request, source, _| {
            let is_announce = request[11] == 1;
            Some(if is_announce { reply(request, source) } else { good(request) })
        })
    }
    let own = |request: &[u8], source: SocketAddr| {
        let SocketAddr::V4(source) = source else { panic!("{source}") };
        announced(request, &[&source.ip().octets()[..], &request[96..98]].concat())
    };
    let report = spoil(own);
    assert_eq!((report.responses.announce, report.wrong.own_address), (0, report.requests.announce));

    let report = spoil(|request, _| announced(request, &[1; 6 * 11]));
    assert_eq!((report.responses.announce, report.wrong.count), (0, report.requests.announce));

    let report = spoil(|request, _| announced(request, &[1; 7]));
    assert_eq!((report.responses.announce, report.wrong.malformed), (0, report.requests.announce));

    let report = spoil(|request, _| [&[0, 0, 0, 2], &good(request)[4..8], &[0; 12]].concat());
    assert_eq!((report.responses.announce, report.wrong.action), (0, report.requests.announce));

    let report = spoil(|request, _| [&[0, 0, 0, 3], &good(request)[4..8], b"go away"].concat());
    assert_eq!((report.responses.announce, report.errors), (0, report.requests.announce));
    assert_eq!(report.first_error.as_deref(), Some("go away"));
    assert!(report.responses.connect > 0 && report.responses.scrape > 0);
}

#[test]
fn replies_to_nobody_are_wrong_and_the_requests_are_lost() {
    let report = run(IMPATIENCE, |request, _, _| {
        let mut reply = good(request);
        if request[11] == 1 {
            reply[7] ^= 0x80; // another request of the same slot, in a window of 64
        }
        Some(reply)
    });
    assert_eq!((report.responses.announce, report.lost), (0, report.requests.announce));
    assert!(report.wrong.transaction_id > 0, "{:?}", report.wrong);
}

#[test]
fn losses_are_counted_and_a_fill_repeats_them() {
    let tracker = Tracker::start(
        "127.0.0.1:0",
        Box::new(|request, _, before| (request[11] == 0 || before % 10 > 0).then(|| good(request))),
    );
    let mut session = open(&Plan { timeout: IMPATIENCE, ..plan(tracker.addr) }).unwrap();
    let filled = watched(|watch| session.fill(watch));
    assert_eq!(filled.responses.announce, 200);
    assert!(filled.lost > 10 && filled.failure.is_none(), "{filled:?}");
    let report = watched(|watch| session.run(CLOSED, requests(500), watch));
    assert_eq!(report.responses.total() + report.lost, 500);
    assert!(report.lost > 20, "{report:?}");
}

#[test]
fn an_open_loop_counts_from_when_a_request_was_due() {
    // The tracker stalls once for 100 ms; at 2,000 requests a second 200 of 1,000 have to wait. A closed loop would
    // have let only those wait that were on their way.
    let tracker = Tracker::start(
        "127.0.0.1:0",
        Box::new(|request, _, before| {
            if before == 200 {
                thread::sleep(Duration::from_millis(100));
            }
            Some(good(request))
        }),
    );
    let mut session = open(&plan(tracker.addr)).unwrap();
    let report = watched(|watch| session.run(Pace::Open { rate: 2000.0 }, requests(1000), watch));
    assert_eq!(report.responses.total(), 1000, "{report:#?}");
    let waited = |ms: f64| {
        let below = report.latency_curve.iter().filter(|point| point.latency_us < ms * 1e3);
        100.0 - below.map(|point| point.percentile).fold(0.0, f64::max)
    };
    // 200 wait at all, half of them for more than half of the stall. A busy machine only adds to that.
    assert!(waited(2.0) > 17.0 && waited(50.0) > 7.0, "{:#?}", report.latency_curve);
    assert!(report.latency.max_us > 95e3 && report.send_delay.is_some());
}

#[test]
fn nobody_at_all_is_said_so() {
    let addr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = open(&Plan { timeout: IMPATIENCE, ..plan(addr) }).unwrap_err();
    assert!(
        matches!(&refused, OpenError::Unreachable(words) if words.contains("nothing listens")),
        "{refused}"
    );

    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let plan = Plan { timeout: IMPATIENCE, ..plan(mute.local_addr().unwrap()) };
    let refused = open(&plan).unwrap_err();
    assert!(matches!(&refused, OpenError::Unreachable(words) if words.contains("firewall")), "{refused}");

    for (reply, expected) in
        [(&b"\0\0\0\x03...."[..], "0 wrong replies and 12 errors"), (b"\0\0\0\x02....", "12 wrong")]
    {
        let answer = |request: &[u8], _, _| Some([&reply[..4], &request[12..16], b"no"].concat());
        let tracker = Tracker::start("127.0.0.1:0", Box::new(answer));
        let refused = open(&Plan { target: tracker.addr, ..plan.clone() }).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}

#[test]
fn a_tracker_that_dies_at_the_end_is_reported_and_one_that_loses_the_end_is_not() {
    // The last of a thousand requests are lost; then it is dead, or answers again.
    let dead = run(IMPATIENCE, |request, _, before| (before < 900).then(|| good(request)));
    assert!(dead.failure.is_some_and(|words| words.contains("fell silent")));
    assert!(dead.lost >= 64 && dead.ended_early);
    let lossy = run(IMPATIENCE, |request, _, before| (!(900..1005).contains(&before)).then(|| good(request)));
    assert_eq!((lossy.failure.as_deref(), lossy.ended_early), (None, false));
    assert!(lossy.lost >= 64 && lossy.responses.total() + lossy.lost == 1000, "{lossy:?}");
}

#[test]
fn a_tracker_that_dies_ends_the_run_with_what_was_measured() {
    let report = run(IMPATIENCE, |request, _, before| (before < 300).then(|| good(request)));
    let failure = report.failure.as_deref().unwrap_or_default();
    assert!(report.ended_early && failure.contains("fell silent"), "{report:?}");
    assert!((200..=300).contains(&report.responses.total()), "{report:?}");
    assert!(report.lost > 0);
    // It was silent for 3 s, which do not count as part of the run.
    assert!(report.elapsed_s < 2.0, "{report:?}");
}

#[test]
fn few_requests_are_waited_for() {
    // All have left before the first is answered.
    let report = {
        let answer = |request: &[u8], _, _| {
            thread::sleep(Duration::from_millis(20));
            Some(good(request))
        };
        let tracker = Tracker::start("127.0.0.1:0", Box::new(answer));
        let mut session = open(&plan(tracker.addr)).unwrap();
        watched(|watch| session.run(CLOSED, requests(10), watch))
    };
    assert_eq!(report.responses.total(), 10);
    assert!(report.elapsed_s > 0.19 && (5.0..51.0).contains(&report.responses_per_s), "{report:?}");
}

#[test]
fn a_reply_after_the_timeout_does_not_count() {
    let report = run(IMPATIENCE, |request, _, before| {
        // The last request then in flight waits for 400 ms, the first does not wait.
        if before > 300 && before < 340 {
            thread::sleep(Duration::from_millis(10));
        }
        Some(good(request))
    });
    assert!(report.late > 0 && report.lost >= report.late, "{report:?}");
    assert!(report.latency.max_us <= 301e3, "{report:?}");
    assert_eq!(report.responses.total() + report.lost, 1000);
    assert_eq!(report.wrong.total(), 0);
}

#[test]
fn late_replies_to_one_run_do_not_disturb_the_next() {
    // Announces are answered once the run is over: with the connects of the next one.
    let late_replies = std::sync::Mutex::new(Vec::<Vec<u8>>::new());
    let (socket, answers) = (UdpSocket::bind("127.0.0.1:0").unwrap(), AtomicBool::new(false));
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (addr, stop) = (socket.local_addr().unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut packet = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let Ok((bytes, source)) = socket.recv_from(&mut packet) else { continue };
                let reply = good(&packet[..bytes]);
                if packet[11] != 0 && !answers.load(Ordering::Relaxed) {
                    late_replies.lock().unwrap().push(reply);
                    continue;
                }
                if !answers.load(Ordering::Relaxed) {
                    socket.send_to(&reply, source).unwrap();
                    continue;
                }
                for late in late_replies.lock().unwrap().drain(..) {
                    socket.send_to(&late, source).unwrap();
                }
                socket.send_to(&reply, source).unwrap();
            }
        });
        let mix = Mix { connect: 1, announce: 1, scrape: 0 };
        let mut session = open(&Plan { mix, timeout: IMPATIENCE, ..plan(addr) }).unwrap();
        let first = watched(|watch| session.run(CLOSED, requests(64), watch));
        answers.store(true, Ordering::Relaxed);
        let second = watched(|watch| session.run(CLOSED, requests(64), watch));
        stop.store(true, Ordering::Relaxed);
        assert!(first.lost > 0 && first.responses.connect > 0, "{first:?}");
        assert_eq!((second.responses, second.lost), (second.requests, 0), "{second:?}");
        assert_eq!((second.wrong.total(), second.late > 0), (0, true), "{second:?}");
    });
}

#[test]
fn cancelling_ends_a_run() {
    let tracker = Tracker::start("127.0.0.1:0", Box::new(|request, _, _| Some(good(request))));
    let mut session = open(&plan(tracker.addr)).unwrap();
    let (cancel, mut looks) = (AtomicBool::new(false), 0);
    let mut progress = |_: &_| {
        looks += 1;
        cancel.store(true, Ordering::Relaxed);
    };
    let stop = Stop { after: Some(Duration::from_secs(600)), requests: None };
    let report = session.run(CLOSED, stop, &mut Watch { cancel: &cancel, progress: &mut progress });
    assert!(report.ended_early && report.failure.is_none());
    assert!(report.responses.total() > 0 && looks > 0);
    // Requests in flight do not count as lost: they are answered, or not waited for.
    assert_eq!(report.lost, 0, "{report:?}");
}

#[test]
fn impossible_plans_are_refused() {
    let addr = "127.0.0.1:9".parse().unwrap();
    let words = |change: fn(&mut Plan)| {
        let mut plan = plan(addr);
        change(&mut plan);
        open(&plan).unwrap_err().to_string()
    };
    assert!(words(|plan| plan.population.torrents = 0).contains("torrents cannot be 0"));
    assert!(words(|plan| plan.population.seeder_share = 1.5).contains("from 0 to 1"));
    assert!(words(|plan| plan.scrape_hashes_max = 75).contains("1 to 74"));
    assert!(words(|plan| plan.population.peers = 3).contains("4 sockets"));
    assert!(words(|plan| plan.mix = Mix { connect: 0, announce: 0, scrape: 0 }).contains("mix"));
    assert!(words(|plan| plan.sources.first = "::1".parse().unwrap()).contains("family"));
    assert!(words(|plan| plan.sources.first = "192.0.2.1".parse().unwrap()).contains("192.0.2.1"));
    assert!(words(|plan| plan.sources.first = "255.255.255.254".parse().unwrap()).contains("from the first"));
    assert!(words(|plan| plan.sources.first = "127.255.255.255".parse().unwrap()).contains("from the first"));
    let many = |plan: &mut Plan| plan.sources.addresses = NonZeroUsize::new(5).unwrap();
    assert!(words(many).contains("at most one for each of the 4 sockets"));
    assert!(words(|plan| plan.workers = vec![None; 1025]).contains("1 to 1024"));
    assert!(words(|plan| plan.workers = vec![Some(1000)]).contains("processor 1000"));
}
