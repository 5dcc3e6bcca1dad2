//! The report of WebTorrent: messages instead of replies, relays, and slow readers.

use shoal_compare::report;
use shoal_compare::result::{Comparison, CpuTime, IdleConnections, IdleStep, Round, SlowReaderRound};
use shoal_load::{Connections, Kinds, LatencySummary, Relays, Report, WrongRelays};

use crate::figures::line;
use crate::sample::{self, cell_of, empty_round, report, usage};

/// Ten seconds and 13,000 messages: 1,000 announces with 10,000 offers, of which 8,000 were due and 7,996 arrived, and
/// 3,998 answers of 4,000. Five offers arrived damaged, and there was an error.
fn signalled() -> Report {
    let mut load = report(Kinds { connect: 0, announce: 1000, scrape: 0 });
    load.errors = 1;
    load.connections = Some(Connections { opened: 0, open_at_end: 100, ..Connections::default() });
    load.relays = Some(Relays {
        messages: 13_000,
        messages_per_s: 1300.0,
        offers_sent: 10_000,
        offers_due: 8000,
        offers: 7996,
        answers_sent: 4000,
        answers: 3998,
        wrong: WrongRelays { damaged: 5, ..WrongRelays::default() },
        offer_latency: LatencySummary { p50_us: 200.0, p99_us: 900.0, ..LatencySummary::default() },
        ..Relays::default()
    });
    load
}

fn round(cpu_s: f64) -> Round {
    Round {
        fill: Some(report(Kinds { connect: 0, announce: 100, scrape: 0 })),
        load: Some(signalled()),
        latency: Some(signalled()),
        usage: Some(usage(cpu_s / 4.0, cpu_s * 3.0 / 4.0, Some(cpu_s))),
        resident_before_bytes: Some(5_000_000),
        resident_filled_bytes: Some(5_000_000 + 100 * 2048),
        resident_loaded_bytes: Some(7_000_000),
        ..empty_round(1)
    }
}

fn with(rounds: Vec<(&str, Round)>) -> Comparison {
    let mut comparison = sample::comparison(&[1]);
    comparison.cells.iter_mut().for_each(|cell| cell.rounds.clear());
    for (tracker, round) in rounds {
        cell_of(&mut comparison, tracker, 1).rounds.push(round);
    }
    comparison
}

#[test]
fn cpu_time_is_for_every_message_that_was_sent() {
    let markdown = report::markdown(&with(vec![("shoal-uring", round(0.13))]));
    let main = line(&markdown, "Result", "Shoal (io_uring)");
    // 0.13 s for 13,000 messages.
    let expected =
        ["Shoal (io_uring)", "1", "1,300", "10.00", "2.50", "100.0 %", "100", "5.20", "2.00", "7.00", "900"];
    assert_eq!(main, expected);
    let messages = line(&markdown, "Messages", "Shoal (io_uring)");
    let expected = ["1", "100", "0", "800", "0.05 %", "400", "0.05 %", "0 %", "1", "5", "1 of 1"];
    assert_eq!(messages[1..], expected);
    let latency = line(&markdown, "Latency at a fixed rate", "Shoal (io_uring)");
    assert_eq!(latency[4..8], ["200", "0", "900", "0"]);
    // The tracker had used 0.052 s at the last sample, after five seconds, and had sent 6,500 messages by then.
    let mut round = round(0.13);
    round.usage.as_mut().unwrap().at_work = Some(CpuTime {
        sampled_user_s: None,
        user_error_s: None,
        elapsed_s: 5.0,
        user_s: 0.01,
        system_s: 0.03,
        exact_s: Some(0.052),
    });
    let at_work = report::markdown(&with(vec![("shoal-uring", round)]));
    assert_eq!(line(&at_work, "Result", "Shoal (io_uring)")[3..5], ["8.00", "2.00"]);
    assert!(!markdown.contains("## Replies") && !markdown.contains("slow readers"), "{markdown}");
}

#[test]
fn rivals_are_compared_by_messages() {
    let rounds = vec![("shoal-uring", round(0.13)), ("opentracker", round(0.52)), ("echo-uring", round(0.1))];
    let markdown = report::markdown(&with(rounds));
    let ranking = line(&markdown, "Shoal against the best rival", "Shoal (io_uring)");
    assert_eq!(ranking[2..4], ["0.25 × opentracker", "0.25 × opentracker"]);
    assert!(markdown.contains(" Messages/s to the ceiling "), "{markdown}");
    assert!(report::html(&with(vec![("opentracker", round(1.0))])).unwrap().contains("CPU time per message"));
}

#[test]
fn a_round_is_shown_without_and_with_slow_readers() {
    let mut slower = signalled();
    let relays = slower.relays.as_mut().unwrap();
    relays.offer_latency.p99_us = 1350.0;
    (relays.slow_readers, relays.slow_readers_closed) = (1000, 998);
    let second = SlowReaderRound {
        fill: None,
        load: Some(slower.clone()),
        latency: Some(slower),
        resident_bytes: Some(64_000_000),
    };
    let rounds = vec![
        ("shoal-uring", Round { slow_readers: Some(second), ..round(0.13) }),
        ("opentracker", round(1.0)),
    ];
    let markdown = report::markdown(&with(rounds));
    let heading = "With slow readers";
    let slow_readers = line(&markdown, heading, "Shoal (io_uring)");
    assert_eq!(slow_readers[2..], ["900", "1,350", "1.50", "900", "1,350", "1.50", "1,000", "998", "64.0"]);
    assert_eq!(line(&markdown, heading, "opentracker")[2], "not measured");
}

/// Results up to 2026-11-22 called slow readers `deaf`.
#[test]
fn slow_readers_of_an_earlier_result_are_read() {
    let mut slower = signalled();
    let relays = slower.relays.as_mut().unwrap();
    (relays.slow_readers, relays.slow_readers_closed) = (1000, 998);
    let second = SlowReaderRound { load: Some(slower), ..SlowReaderRound::default() };
    let json = serde_json::to_string(&Round { slow_readers: Some(second), ..round(1.0) }).unwrap();
    let earlier = json.replace("\"slow_readers", "\"deaf");
    assert!(earlier.contains("\"deaf_closed\":998"), "{earlier}");
    let read: Round = serde_json::from_str(&earlier).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), json);
}

#[test]
fn the_memory_of_idle_connections_has_a_step() {
    let idle = IdleConnections {
        wanted: 10_000,
        open: 10_000,
        failure: None,
        resident_before_bytes: 4_000_000,
        resident_open_bytes: 4_000_000 + 3072 * 10_000,
        steps: vec![IdleStep { open: 1000, resident_bytes: 4_000_000 + 2048 * 1000 }],
    };
    let markdown =
        report::markdown(&with(vec![("shoal-mmsg", Round { idle: Some(idle), ..empty_round(1) })]));
    let main = line(&markdown, "Result", "Shoal (mmsg)");
    assert_eq!(main, ["Shoal (mmsg)", "1", "10,000", "3.00", "4.00", "34.7", "2.00"]);
    assert!(markdown.contains("KiB each of the first 1,000"), "{markdown}");
}
