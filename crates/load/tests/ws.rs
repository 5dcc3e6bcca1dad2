//! The generator against WebTorrent trackers that are made for the test: good ones, and ones that break a rule each.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod session;
mod webtorrent;

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use session::watched;
use shoal_load::ws::{WsSettings, open};
use shoal_load::{
    Bottleneck, Connections, Kinds, Mix, OpenError, Pace, Plan, Popularity, Population, Relays, Report, Stop,
    Watch, WrongRelays,
};
use webtorrent::{Behavior, Tracker, Treatment};

const CONNECTIONS: usize = 12;

fn plan(target: SocketAddr) -> Plan {
    let population = Population {
        torrents: 2,
        peers: u32::try_from(CONNECTIONS).unwrap(),
        popularity: Popularity::Uniform,
        seeder_share: 0.25,
        announces_per_life: 0,
        vanish_share: 0.0,
    };
    Plan { population, timeout: PATIENCE, ..session::plan(target) }
}

fn settings() -> WsSettings {
    WsSettings {
        host: "tracker.example".to_owned(),
        path: "/announce".to_owned(),
        origin: None,
        tls: None,
        connections: NonZeroUsize::new(CONNECTIONS).unwrap(),
        ramp: None,
        offers: 4,
        sdp_bytes: 700,
        answer_share: 0.5,
        announces_per_connection: 0,
        held: 0,
        held_announce: false,
        slow_readers: 0,
    }
}

fn requests(count: u64) -> Stop {
    Stop { after: Some(Duration::from_secs(60)), requests: Some(count) }
}

const CLOSED: Pace = Pace::Closed { window: 1024 };

/// For trackers that answer everything, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// For trackers that leave requests without an answer.
const IMPATIENCE: Duration = Duration::from_millis(600);

/// Fills a tracker of this behavior and makes two hundred requests.
fn run_with(settings: &WsSettings, change: impl FnOnce(&mut Plan), behavior: Behavior) -> (Report, Report) {
    let tracker = Tracker::start("127.0.0.1:0", behavior);
    let mut plan = plan(tracker.addr);
    change(&mut plan);
    let mut session = open(&plan, settings).unwrap();
    let filled = watched(|watch| session.fill(watch));
    (filled, watched(|watch| session.run(CLOSED, requests(200), watch)))
}

fn run(behavior: Behavior) -> Report {
    run_with(&settings(), |_| {}, behavior).1
}

fn connections(report: &Report) -> &Connections {
    report.connections.as_ref().unwrap()
}

fn relays(report: &Report) -> &Relays {
    report.relays.as_ref().unwrap()
}

/// A tracker that relays so.
fn relaying(deed: impl Fn(u64) -> Treatment + Send + Sync + 'static) -> Behavior {
    Behavior { relay: Box::new(deed), ..Behavior::good() }
}

#[test]
fn a_good_tracker_has_no_faults_over_either_family_and_every_relay_is_seen() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        for workers in [1, 3] {
            let tracker = Tracker::start(bind, Behavior::good());
            let mix = Mix { connect: 0, announce: 3, scrape: 1 };
            let plan = Plan { mix, workers: vec![None; workers], ..plan(tracker.addr) };
            let mut session = open(&plan, &settings()).unwrap();
            let filled = watched(|watch| session.fill(watch));
            assert_eq!(filled.responses, Kinds { announce: 12, ..Kinds::default() }, "{filled:#?}");
            let report = watched(|watch| session.run(CLOSED, requests(400), watch));
            assert_eq!((report.requests.total(), report.responses), (400, report.requests), "{report:#?}");
            assert_eq!((report.lost, report.errors, report.wrong.total()), (0, 0, 0), "{report:#?}");
            // Three in four, with five deviations.
            assert!(report.requests.announce.abs_diff(300) < 45, "{:?}", report.requests);
            assert_ne!(report.verdict, Bottleneck::Unanswered);
            let (made, relayed) = (connections(&report), relays(&report));
            assert_eq!((made.opened, made.open_at_end, made.failures.total()), (0, 12, 0), "{made:?}");
            assert_eq!(relayed.offers_sent, 4 * report.requests.announce);
            assert_eq!((relayed.offers, relayed.wrong.total()), (relayed.offers_due, 0), "{relayed:?}");
            assert!(relayed.offers > 0 && relayed.answers > 0, "{relayed:?}");
            assert_eq!(relayed.answers, relayed.answers_sent);
            // Half of the offers, with five deviations.
            let half = f64::from(u32::try_from(relayed.offers).unwrap()) / 2.0;
            let answers = f64::from(u32::try_from(relayed.answers).unwrap());
            assert!((answers - half).abs() < 5.0 * half.sqrt(), "{relayed:?}");
            assert!(relayed.offer_latency.p50_us > 0.0 && relayed.answer_latency.p50_us > 0.0);
        }
    }
}

#[test]
fn an_offer_that_arrives_changed_is_detected() {
    let wrong = |deed: Treatment| {
        let every_fifth = move |before| if before % 5 == 4 { deed } else { Treatment::Pass };
        let report = run(relaying(every_fifth));
        assert_eq!((report.responses.announce, report.lost), (200, 0), "{report:#?}");
        assert!(connections(&report).first_fault.is_some());
        let relayed = relays(&report);
        assert_eq!(relayed.offers + relayed.wrong.total(), relayed.offers_due, "{relayed:?}");
        relayed.wrong
    };
    let found = wrong(Treatment::Damage);
    assert!(found.damaged > 0 && found == WrongRelays { damaged: found.damaged, ..WrongRelays::default() });
    let found = wrong(Treatment::Return);
    assert!(found.own > 0 && found == WrongRelays { own: found.own, ..WrongRelays::default() });
    let found = wrong(Treatment::OtherTorrent);
    let misdirected = WrongRelays { misdirected: found.misdirected, ..WrongRelays::default() };
    assert!(found.misdirected > 0 && found == misdirected);
    let found = wrong(Treatment::OtherId);
    assert!(found.foreign > 0 && found == WrongRelays { foreign: found.foreign, ..WrongRelays::default() });
}

#[test]
fn an_answer_that_arrives_changed_is_detected() {
    let answering = |deed: Treatment| {
        let report = run(Behavior { answer: Box::new(move |_| deed), ..Behavior::good() });
        let relayed = relays(&report);
        assert!(relayed.answers_sent > 0, "{relayed:?}");
        relayed.clone()
    };
    let relayed = answering(Treatment::Damage);
    assert_eq!((relayed.answers, relayed.wrong.damaged), (0, relayed.answers_sent), "{relayed:?}");
    // To the peer that made the offer.
    let relayed = answering(Treatment::Return);
    assert_eq!((relayed.answers, relayed.wrong.misdirected), (0, relayed.answers_sent), "{relayed:?}");
    let relayed = answering(Treatment::Drop);
    assert_eq!((relayed.answers, relayed.wrong.total()), (0, 0), "{relayed:?}");
}

#[test]
fn a_tracker_that_drops_relays_is_detected() {
    let report = run(relaying(|before| if before % 2 == 0 { Treatment::Drop } else { Treatment::Pass }));
    let relayed = relays(&report);
    assert_eq!((report.responses.announce, relayed.wrong.total()), (200, 0), "{report:#?}");
    assert!(relayed.offers.abs_diff(relayed.offers_due / 2) <= 1, "{relayed:?}");
}

#[test]
fn replies_that_break_a_rule_are_no_responses() {
    let replying = |reply: &'static str| {
        let report = run(Behavior { reply: Some(reply), ..Behavior::good() });
        assert_eq!((report.responses.total(), report.requests.total()), (0, 200), "{report:#?}");
        report
    };
    let report = replying("{");
    assert_eq!((report.wrong.malformed, report.lost), (200, 0), "{report:#?}");
    assert!(connections(&report).first_fault.is_some());
    let report = replying(r#"{"action":"announce","failure reason":"go away"}"#);
    assert_eq!((report.errors, report.first_error.as_deref()), (200, Some("go away")), "{report:#?}");
}

#[test]
fn a_reply_about_another_torrent_or_of_another_kind_answers_nothing() {
    for (reply, count) in [
        (
            r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","interval":9,"complete":1,"incomplete":1}"#,
            0,
        ),
        (r#"{"action":"scrape","files":{}}"#, 1),
    ] {
        let behavior = Behavior { reply: Some(reply), ..Behavior::good() };
        let tracker = Tracker::start("127.0.0.1:0", behavior);
        let plan = Plan { timeout: IMPATIENCE, ..plan(tracker.addr) };
        let mut session = open(&plan, &settings()).unwrap();
        let report = watched(|watch| session.run(CLOSED, requests(12), watch));
        let wrong = [report.wrong.transaction_id, report.wrong.action];
        assert_eq!((wrong[count], wrong[1 - count]), (12, 0), "{report:#?}");
        assert_eq!((report.responses.total(), report.lost), (0, 12), "{report:#?}");
    }
}

#[test]
fn replies_to_answers_are_no_replies_to_announces() {
    let mix = Mix { connect: 0, announce: 3, scrape: 1 };
    let behavior = Behavior { replies_to_answers: true, ..Behavior::good() };
    let (_, report) = run_with(&settings(), |plan| plan.mix = mix, behavior);
    assert_eq!((report.responses.total(), report.lost, report.wrong.total()), (200, 0, 0), "{report:#?}");
    let relayed = relays(&report);
    assert!(relayed.answers > 0 && relayed.answers == relayed.answers_sent, "{relayed:?}");
    assert_eq!(relayed.offers, relayed.offers_due, "{relayed:?}");
}

#[test]
fn connections_that_are_lost_are_counted_and_opened_again() {
    let behavior = Behavior { ends: Box::new(|before| before > 12 && before % 20 == 0), ..Behavior::good() };
    let report = run(behavior);
    let made = connections(&report);
    assert!(report.lost > 0 && report.lost == made.failures.closed + made.failures.reset, "{report:#?}");
    assert_eq!(report.responses.total() + report.lost, 200, "{report:#?}");
    assert_eq!(made.opened, made.failures.total() - (12 - made.open_at_end), "{report:#?}");
    assert!(report.failure.is_none());
}

#[test]
fn connections_are_closed_and_opened_again_after_some_announces() {
    let settings = WsSettings { announces_per_connection: 5, ..settings() };
    let (filled, report) = run_with(&settings, |_| {}, Behavior::good());
    assert_eq!(connections(&filled).opened, 11, "{filled:#?}");
    let made = connections(&report);
    assert_eq!((report.responses.announce, report.lost, made.failures.total()), (200, 0, 0), "{report:#?}");
    // One in five announces, with five deviations.
    assert!(made.opened.abs_diff(40) < 29 && relays(&report).wrong.total() == 0, "{report:#?}");
}

#[test]
fn a_fill_sends_lost_announces_again() {
    let behavior = Behavior { ends: Box::new(|before| before % 5 == 4), ..Behavior::good() };
    let tracker = Tracker::start("127.0.0.1:0", behavior);
    let mut session = open(&plan(tracker.addr), &settings()).unwrap();
    let filled = watched(|watch| session.fill(watch));
    assert_eq!(filled.responses.announce, 12, "{filled:#?}");
    assert!(filled.lost >= 2 && filled.failure.is_none(), "{filled:#?}");
}

#[test]
fn several_peers_of_a_connection_have_one_peer_id_and_live_their_lives() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let behavior = Behavior { announces: Some(sender), ..Behavior::good() };
    let change = |plan: &mut Plan| {
        plan.population.peers = 36;
        plan.population.torrents = 20;
        plan.population.announces_per_life = 5;
    };
    let (filled, report) = run_with(&settings(), change, behavior);
    assert_eq!((filled.responses.announce, report.responses.announce), (36, 200), "{report:#?}");
    assert_eq!((report.lost, report.wrong.total(), relays(&report).wrong.total()), (0, 0, 0), "{report:#?}");
    let mut ids: Vec<_> = receiver.try_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    // Pairs of a connection and a peer id.
    assert_eq!(ids.len(), CONNECTIONS);
}

#[test]
fn held_connections_are_pinged_at_the_end_and_may_take_offers() {
    for held_announce in [false, true] {
        let settings = WsSettings { held: 9, held_announce, ..settings() };
        let (filled, report) = run_with(&settings, |_| {}, Behavior::good());
        let (made, relayed) = (connections(&report), relays(&report));
        assert_eq!((connections(&filled).opened, made.open_at_end), (20, 21), "{filled:#?}");
        assert_eq!((relayed.held, relayed.held_alive), (9, 9), "{relayed:?}");
        assert_eq!((relayed.offers, relayed.wrong.total()), (relayed.offers_due, 0), "{relayed:?}");
    }
    // A connection that is open and does not answer is not alive.
    let settings = WsSettings { held: 9, ..settings() };
    let behavior = Behavior { pongs: Box::new(|before| before % 3 != 0), ..Behavior::good() };
    let (_, report) = run_with(&settings, |plan| plan.timeout = IMPATIENCE, behavior);
    assert_eq!((relays(&report).held, relays(&report).held_alive), (9, 6), "{report:#?}");
}

#[test]
fn slow_readers_do_not_disturb_the_others_and_are_seen_to_be_closed() {
    let settings = WsSettings { slow_readers: 6, sdp_bytes: 20_000, ..settings() };
    let (_, report) = run_with(&settings, |_| {}, Behavior::good());
    let relayed = relays(&report);
    assert_eq!((report.responses.announce, report.lost), (200, 0), "{report:#?}");
    assert_eq!((relayed.slow_readers, relayed.wrong.total()), (6, 0), "{relayed:?}");
    // The messages to them exceed every socket buffer: the tracker of the test closes them.
    assert!(relayed.slow_readers_closed > 0 && relayed.slow_readers_closed <= 6, "{relayed:?}");
    assert!(relayed.offers < relayed.offers_due, "{relayed:?}");
    assert_eq!(connections(&report).failures.total(), 0, "{report:#?}");
}

#[test]
fn a_ramp_opens_connections_at_its_pace_before_anything_is_measured() {
    let settings = WsSettings { ramp: Some(40.0), ..settings() };
    let tracker = Tracker::start("127.0.0.1:0", Behavior::good());
    let mut session = open(&plan(tracker.addr), &settings).unwrap();
    let began = tracker.opened();
    let report = watched(|watch| session.run(CLOSED, requests(100), watch));
    let opened = tracker.opened();
    assert_eq!((opened.len(), connections(&report).opened), (12, 11), "{report:#?}");
    // Eleven in turn, one of them at once, whatever else the machine does.
    let took = *opened.last().unwrap() - *began.last().unwrap();
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert_eq!((report.responses.announce, report.lost), (100, 0), "{report:#?}");
}

#[test]
fn an_open_loop_keeps_its_pace() {
    let tracker = Tracker::start("127.0.0.1:0", Behavior::good());
    let mut session = open(&plan(tracker.addr), &settings()).unwrap();
    let report = watched(|watch| session.run(Pace::Open { rate: 400.0 }, requests(200), watch));
    assert_eq!((report.responses.announce, report.lost), (200, 0), "{report:#?}");
    assert!(report.send_delay.is_some() && report.elapsed_s > 0.45, "{report:#?}");
}

#[test]
fn a_tracker_without_web_sockets_is_reported() {
    let behavior =
        Behavior { upgrade: Some("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), ..Behavior::good() };
    let tracker = Tracker::start("127.0.0.1:0", behavior);
    let refused = open(&plan(tracker.addr), &settings()).unwrap_err().to_string();
    assert!(refused.contains("404") && refused.contains("WS 127.0.0.1"), "{refused}");

    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = open(&plan(addr), &settings()).unwrap_err();
    assert!(
        matches!(&refused, OpenError::Unreachable(words) if words.contains("nothing listens")),
        "{refused}"
    );
}

#[test]
fn the_request_for_an_upgrade_has_the_given_headers() {
    let tracker = Tracker::start("127.0.0.1:0", Behavior::good());
    let settings =
        WsSettings { origin: Some("https://page.example".into()), path: "/x?y".into(), ..settings() };
    drop(open(&plan(tracker.addr), &settings).unwrap());
    let head = tracker.first_head();
    assert!(head.starts_with("GET /x?y HTTP/1.1\r\nHost: tracker.example\r\n"), "{head}");
    assert!(head.contains("\r\nOrigin: https://page.example\r\n"), "{head}");
}

#[test]
fn a_tracker_that_falls_silent_ends_the_run_with_what_was_measured() {
    let behavior = Behavior { silent_after: 112, ..Behavior::good() };
    let tracker = Tracker::start("127.0.0.1:0", behavior);
    let plan = Plan { timeout: IMPATIENCE, ..plan(tracker.addr) };
    let mut session = open(&plan, &settings()).unwrap();
    let filled = watched(|watch| session.fill(watch));
    assert_eq!(filled.responses.announce, 12, "{filled:#?}");
    let report = watched(|watch| session.run(CLOSED, requests(100_000), watch));
    let failure = report.failure.as_deref().unwrap_or_default();
    assert!(report.ended_early && failure.contains("fell silent"), "{report:#?}");
    assert!(report.responses.total() > 0, "{report:#?}");
}

#[test]
fn cancelling_ends_a_run() {
    let tracker = Tracker::start("127.0.0.1:0", Behavior::good());
    let mut session = open(&plan(tracker.addr), &settings()).unwrap();
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
    let addr = SocketAddr::from(([127, 0, 0, 1], 9));
    let words = |change: fn(&mut Plan, &mut WsSettings)| {
        let (mut plan, mut settings) = (plan(addr), settings());
        change(&mut plan, &mut settings);
        open(&plan, &settings).unwrap_err().to_string()
    };
    let no_announce = Mix { connect: 1, announce: 0, scrape: 0 };
    assert!(words(|_, settings| settings.path = "announce".into()).contains("begins with a slash"));
    assert!(words(|_, settings| settings.origin = Some("a b".into())).contains("origin"));
    assert!(words(|_, settings| settings.offers = 257).contains("at most 256"));
    assert!(words(|_, settings| settings.sdp_bytes = 100).contains("192 to"));
    assert!(words(|_, settings| settings.answer_share = 1.5).contains("from 0 to 1"));
    assert!(words(|_, settings| settings.ramp = Some(0.0)).contains("above 0"));
    assert!(words(|_, settings| settings.held = 4 << 20).contains("for each worker"));
    assert!(words(|_, settings| settings.held = 1 << 19).contains("ulimit -n"));
    assert!(words(|plan, _| plan.population.peers = 3).contains("one for each connection"));
    let mut own = plan(addr);
    own.mix = no_announce;
    let refused = open(&own, &settings()).unwrap_err().to_string();
    assert!(refused.contains("no connects"), "{refused}");
}
