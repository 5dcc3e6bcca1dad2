//! The report of HTTP: connections, the ratio to each rival, and idle connections.

use shoal_compare::report;
use shoal_compare::result::{Comparison, IdleConnections, Round};
use shoal_load::{ConnectionFailures, Connections, Kinds, LatencySummary};

use crate::figures::line;
use crate::sample::{self, cell_of, empty_round, report, usage};

/// Ten seconds, a connection and a full handshake for each of 20,000 announces; of the connections 30 failed.
fn handshakes(cpu_s: f64) -> Round {
    let mut load = report(Kinds { connect: 0, announce: 20_000, scrape: 0 });
    load.connections = Some(Connections {
        opened: 20_030,
        handshakes_full: 20_010,
        handshakes_resumed: 20,
        setup: LatencySummary { p50_us: 740.0, ..LatencySummary::default() },
        failures: ConnectionFailures { reset: 10, tls: 20, ..ConnectionFailures::default() },
        ..Connections::default()
    });
    Round { load: Some(load), usage: Some(usage(0.0, cpu_s, Some(cpu_s))), ..empty_round(1) }
}

fn idle(wanted: usize, open: usize, failure: Option<&str>) -> Round {
    let idle = IdleConnections {
        wanted,
        open,
        failure: failure.map(str::to_owned),
        resident_before_bytes: 4_000_000,
        resident_open_bytes: 4_000_000 + 1536 * 10_000,
        steps: vec![],
    };
    Round { idle: Some(idle), ..empty_round(1) }
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
fn failed_connections_are_not_responses() {
    let comparison = with(vec![("shoal-uring", handshakes(10.0))]);
    let markdown = report::markdown(&comparison);
    let connections = line(&markdown, "Connections", "Shoal (io_uring)");
    assert_eq!(connections, ["Shoal (io_uring)", "1", "2,003", "2,001", "2", "740", "30"]);
    let main = line(&markdown, "Result", "Shoal (io_uring)");
    assert_eq!(main[2..4], ["2,000", "500.00"], "responses, and CPU time per response");
    assert_eq!(line(&markdown, "Replies", "Shoal (io_uring)")[2], "–", "HTTP has no connects");
}

#[test]
fn a_load_without_connections_has_no_table_of_them() {
    assert!(!report::markdown(&sample::comparison(&[1])).contains("## Connections"));
}

#[test]
fn each_rival_has_its_ratio() {
    let rounds = vec![
        ("shoal-uring", handshakes(5.0)),
        ("opentracker", handshakes(20.0)),
        ("chihaya", handshakes(8.0)),
        ("echo-uring", handshakes(4.0)),
    ];
    let markdown = report::markdown(&with(rounds));
    let section = markdown.split("## Shoal against the best rival").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let ratio = |rival: &str| -> Vec<String> {
        let of = |line: &&str| line.split('|').nth(2).is_some_and(|name| name.trim() == rival);
        let line = section.lines().find(of).unwrap_or_else(|| panic!("{rival} in {section}"));
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    assert_eq!(ratio("opentracker")[2..4], ["1", "0.25"]);
    assert_eq!(ratio("chihaya")[2..4], ["1", "0.62"]);
    assert!(!section.contains("| Ceiling"), "the ceiling is not a rival: {section}");
}

#[test]
fn idle_connections_have_their_own_report() {
    let comparison = with(vec![("shoal-mmsg", idle(10_000, 10_000, None))]);
    let markdown = report::markdown(&comparison);
    // 15,360,000 bytes more, for ten thousand.
    let main = line(&markdown, "Result", "Shoal (mmsg)");
    assert_eq!(main, ["Shoal (mmsg)", "1", "10,000", "1.50", "4.00", "19.4"]);
    for absent in ["## Replies", "## Latency", "## Shoal against", "## Fewer"] {
        assert!(!markdown.contains(absent), "{absent}");
    }
    assert!(markdown.contains("](plots/idle.svg)") && !markdown.contains("](plots/throughput.svg)"));
}

#[test]
fn missing_connections_are_reported() {
    let refused = "connection 5001 failed: Connection refused (os error 111)";
    let comparison =
        with(vec![("shoal-mmsg", idle(10_000, 5000, Some(refused))), ("opentracker", idle(10_000, 0, None))]);
    let markdown = report::markdown(&comparison);
    let main = line(&markdown, "Result", "Shoal (mmsg)");
    assert_eq!(main[2..4], ["5,000\\*", "3.00\\*"]);
    assert!(markdown.contains("5000 of 10000: connection 5001 failed: Connection refused"), "{markdown}");
    assert!(
        markdown.contains("opentracker, cores: 1, round 1: failed: no connection stayed open"),
        "{markdown}"
    );
}
