//! The figures of the report, computed by hand.

use shoal_compare::report;
use shoal_compare::result::{Cell, Comparison, Round};
use shoal_load::{Bottleneck, Kinds, WrongReplies};

use crate::sample::{self, cell_of, empty_round, report, usage};

/// Returns the cells of a tracker's line in the table under a heading, without their padding.
pub(crate) fn line(markdown: &str, heading: &str, title: &str) -> Vec<String> {
    let section = markdown.split(&format!("## {heading}\n")).nth(1).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap();
    let start = format!("| {title} ");
    let line = section.lines().find(|line| line.starts_with(&start)).expect("the tracker has a line");
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// A round of ten seconds with 800,000 good connects, 200,000 good announces and a few bad replies.
fn round(number: usize, exact_s: Option<f64>) -> Round {
    let mut load = report(Kinds { connect: 800_000, announce: 200_000, scrape: 0 });
    load.requests = Kinds { connect: 800_000, announce: 450_000, scrape: 0 };
    load.lost = 12_500;
    load.late = 10_000;
    load.errors = 100_000;
    load.wrong = WrongReplies { malformed: 40_000, own_address: 50_000, ..WrongReplies::default() };
    load.own_address_tolerated = 10_000;
    Round {
        fill: Some(report(Kinds { connect: 0, announce: 2000, scrape: 0 })),
        load: Some(load),
        usage: Some(usage(1.0, 3.0, exact_s)),
        resident_before_bytes: Some(3_100_000),
        resident_filled_bytes: Some(43_100_000),
        ..empty_round(number)
    }
}

fn with_shoal(rounds: Vec<Round>) -> Comparison {
    let mut comparison = sample::comparison(&[1]);
    let cell: &mut Cell = cell_of(&mut comparison, "shoal-mmsg", 1);
    cell.load_cpus = vec![4];
    cell.rounds = rounds;
    comparison
}

#[test]
fn cpu_time_is_for_every_reply_that_was_sent() {
    // 1,000,000 good (10,000 of them tolerated) + 90,000 wrong + 100,000 errors + 10,000 late = 1,200,000 replies.
    // 4 s / 1.2 M = 3.33 µs, of which a quarter is user time.
    let markdown = report::markdown(&with_shoal(vec![round(1, None)]));
    let main = line(&markdown, "Result", "Shoal (mmsg)");
    assert_eq!(main, ["Shoal (mmsg)", "1", "100,000", "3.33", "0.83", "100.0 %", "43.1", "40.0", "–"]);
    let processors = line(&markdown, "Processors", "Shoal (mmsg)");
    assert_eq!(processors, ["Shoal (mmsg)", "1", "0.83", "2.50", "–", "3.33", "100.0 %", "70 %"]);
    let replies = line(&markdown, "Replies", "Shoal (mmsg)");
    let expected =
        ["Shoal (mmsg)", "1", "80,000", "20,000", "0", "28.50", "1.00 %", "100,000", "90,000", "1 of 1"];
    assert_eq!(replies, expected);
    assert_eq!(line(&markdown, "Latency at a fixed rate", "Shoal (mmsg)")[2], "not measured");
}

#[test]
fn cpu_time_at_the_fixed_rate_is_its_own_figure() {
    // 505,000 replies of the open loop took 2.02 s, in which one processor was busy.
    let usage = usage(0.5, 1.5, Some(2.02));
    let open_loop = report(Kinds { connect: 250_000, announce: 250_000, scrape: 5_000 });
    let timed = Round { latency: Some(open_loop), latency_usage: Some(usage), ..round(1, None) };
    let markdown = report::markdown(&with_shoal(vec![timed]));
    assert_eq!(line(&markdown, "Latency at a fixed rate", "Shoal (mmsg)")[7..9], ["4.00", "4.00"]);
    assert_eq!(line(&markdown, "Result", "Shoal (mmsg)")[3..5], ["3.33", "0.83"]);
}

#[test]
fn the_exact_account_scales_the_split() {
    // The scheduler reports 6 s and the ticks 1 + 3, so the parts are 1.5 s and 4.5 s.
    let markdown = report::markdown(&with_shoal(vec![round(1, Some(6.0))]));
    assert_eq!(line(&markdown, "Result", "Shoal (mmsg)")[3..5], ["5.00", "1.25"]);
    assert_eq!(line(&markdown, "Processors", "Shoal (mmsg)")[2..4], ["1.25", "3.75"]);
}

#[test]
fn medians_leave_failed_rounds_out() {
    let mut rounds: Vec<Round> = (1..=4).map(|number| round(number, None)).collect();
    for (round, rate) in rounds.iter_mut().zip([90_000.0, 1.0, 110_000.0, 103_000.0]) {
        round.load.as_mut().unwrap().responses_per_s = rate;
    }
    rounds[1].failure = Some("the tracker died".into());
    let markdown = report::markdown(&with_shoal(rounds));
    assert_eq!(line(&markdown, "Result", "Shoal (mmsg)")[2], "103,000 (90,000–110,000)");
    assert_eq!(line(&markdown, "Replies", "Shoal (mmsg)")[9], "3 of 4");
    assert!(markdown.contains("- Shoal (mmsg), cores: 1, round 2: failed: the tracker died\n"));
}

#[test]
fn ratios_are_to_the_best_rival_and_to_the_ceiling_of_the_same_back_end() {
    let mut comparison = with_shoal(vec![round(1, None)]);
    // opentracker uses the least of everything but is not the fastest; echo-mmsg answers 125,000 a second.
    let rival = Round {
        resident_before_bytes: Some(6_200_000),
        resident_filled_bytes: Some(86_200_000),
        ..round(1, Some(8.0))
    };
    cell_of(&mut comparison, "opentracker", 1).rounds = vec![rival];
    for name in ["aquatic_udp-io_uring", "aquatic_udp-mio", "chihaya"] {
        let mut slow = Round { resident_filled_bytes: Some(900_000_000), ..round(1, Some(16.0)) };
        slow.load.as_mut().unwrap().responses_per_s = 50_000.0;
        cell_of(&mut comparison, name, 1).rounds = vec![slow];
    }
    let mut ceiling = round(1, Some(0.1));
    ceiling.load.as_mut().unwrap().responses_per_s = 125_000.0;
    cell_of(&mut comparison, "echo-mmsg", 1).rounds = vec![ceiling];
    // A tracker that shrank during the fill is not the best rival.
    let shrunk = &mut cell_of(&mut comparison, "chihaya", 1).rounds[0];
    shrunk.resident_before_bytes = Some(950_000_000);
    let markdown = report::markdown(&comparison);
    let ranking = line(&markdown, "Shoal against the best rival", "Shoal (mmsg)");
    let expected = [
        "0.50 × opentracker",
        "0.50 × opentracker",
        "0.50 × opentracker",
        "0.50 × opentracker",
        "1.00 × opentracker",
        "0.80 × Ceiling (mmsg)",
    ];
    assert_eq!(ranking[2..], expected);
}

#[test]
fn absent_and_failed_are_never_zero() {
    let markdown = report::markdown(&sample::comparison(&[1, 2]));
    let absent = line(&markdown, "Result", "mochi");
    assert_eq!(
        absent,
        ["mochi", "–", "absent: no program \\`mochi\\` on PATH", "–", "–", "–", "–", "–", "–"]
    );
    let failed = line(&markdown, "Result", "torrust-tracker");
    assert!(failed[2].starts_with("failed: the tracker ended"), "{failed:?}");
    for heading in ["Result", "Processors", "Latency at a fixed rate"] {
        for title in ["mochi", "torrust-tracker"] {
            let figures = line(&markdown, heading, title)[3..].to_vec();
            assert!(figures.iter().all(|figure| figure == "–"), "{heading}, {title}: {figures:?}");
        }
    }
    assert_eq!(
        line(&markdown, "Replies", "torrust-tracker")[2..],
        ["failed", "–", "–", "–", "–", "–", "–", "0 of 5"]
    );
}

#[test]
fn a_tracker_without_a_good_reply_has_failed() {
    let mut silent = round(1, None);
    silent.load.as_mut().unwrap().verdict = Bottleneck::Unanswered;
    let mut refusing = round(2, None);
    let load = refusing.load.as_mut().unwrap();
    (load.responses, load.responses_per_s) = (Kinds::default(), 0.0);
    load.first_error = Some("not on the list".into());
    let never = empty_round(3);
    let markdown = report::markdown(&with_shoal(vec![silent, refusing, never]));
    assert_eq!(line(&markdown, "Result", "Shoal (mmsg)")[2], "failed: the tracker never answered the load");
    let reason =
        "round 2: failed: no good reply; 90000 wrong and 100000 error replies, the first: not on the list";
    assert!(markdown.contains(reason), "{markdown}");
    assert!(markdown.contains("round 3: failed: the load was never run"));
}

#[test]
fn doubtful_rounds_are_marked_and_not_hidden() {
    let mut stolen = round(2, None);
    stolen.usage.as_mut().unwrap().steal = 0.11;
    let mut waiting = round(3, None);
    waiting.usage.as_mut().unwrap().cpu.elapsed_s *= 1.2;
    let markdown = report::markdown(&with_shoal(vec![stolen, waiting]));
    assert_eq!(line(&markdown, "Result", "Shoal (mmsg)")[2], "100,000†‡");
    assert!(
        markdown
            .contains("- † generator-bound: in at least one round the tracker had work for less than 98 %")
    );
    assert!(markdown.contains("- ‡ the hypervisor took away more than 10 %"));
    assert!(!markdown.contains('§'), "unused signs are not explained");
}

#[test]
fn a_busy_tracker_is_not_generator_bound_whatever_the_generator_did() {
    let mut busy = round(1, None);
    busy.load.as_mut().unwrap().verdict = Bottleneck::GeneratorBound;
    let usage = busy.usage.as_mut().unwrap();
    // It ran for half of the time, and a spinning thread had the other half.
    usage.cpu.elapsed_s *= 2.0;
    (usage.ready_share, usage.spinners) = (Some(0.991), 1);
    let markdown = report::markdown(&with_shoal(vec![busy.clone()]));
    let shown = line(&markdown, "Result", "Shoal (mmsg)");
    assert_eq!((shown[2].as_str(), shown[5].as_str()), ("200,000", "99.1 %"));
    assert!(markdown.contains("threads that only spin shared the processors"));
    busy.usage.as_mut().unwrap().ready_share = Some(0.979);
    let markdown = report::markdown(&with_shoal(vec![busy]));
    assert_eq!(line(&markdown, "Result", "Shoal (mmsg)")[5], "97.9 %†");
}

#[test]
fn a_partial_comparison_says_so() {
    let mut comparison = sample::comparison(&[1]);
    comparison.cells.retain(|cell| cell.tracker != "chihaya");
    let markdown = report::markdown(&comparison);
    assert!(markdown.contains("> **Partial: "));
    assert!(report::html(&comparison).unwrap().contains("class=\"warning\""));
    assert_eq!(line(&markdown, "Result", "chihaya")[2], "not run");
    comparison.partial = false;
    assert!(!report::markdown(&comparison).contains("Partial"));
}
