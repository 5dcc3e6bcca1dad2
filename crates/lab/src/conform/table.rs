//! Formats the report of the conformance suite for the terminal.

use std::env;
use std::fmt::Write;
use std::io::{IsTerminal, stdout};

use shoal_conform::{Case, CaseVerdict, Direction, Finding, Report, Run, Severity};

use crate::terminal::{counted, wrapped};

/// Most events that are shown for a case. The JSON contains more.
const EVENTS_MAX: usize = 4;

/// With fewer failed musts, the details of each say what is wrong.
const REFUSED_MUSTS_MIN: usize = 5;

/// Returns whether stdout is a terminal whose user has not disabled colours (<https://no-color.org>).
pub(super) fn is_coloured() -> bool {
    let is_refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout().is_terminal() && !is_refused
}

/// Lists the cases with their rules.
pub(super) fn list(cases: &[&Case]) -> String {
    let mut text = String::new();
    for case in cases {
        let slow = if case.is_slow { ", only with --slow" } else { "" };
        let _ = writeln!(text, "{} ({}{slow})", case.id, case.severity.as_str());
        let _ = writeln!(text, "    {}", case.rule);
        let _ = writeln!(text, "    {}", case.source);
        if let Some((trackers, answer)) = case.answer() {
            let _ = writeln!(text, "    broken by {trackers}: {answer}");
        }
    }
    let info_hashes: usize = cases.iter().map(|case| case.info_hashes).sum();
    let (cases, hashes) =
        (counted(cases.len(), "case", "cases"), counted(info_hashes, "info hash", "info hashes"));
    let _ = writeln!(text, "{cases}, with {hashes} in each family");
    text
}

/// Formats the whole report: the verdicts, then the details of failures if they are wanted, then the totals.
pub(super) fn report(report: &Report, has_details: bool, is_coloured: bool) -> String {
    let mut text = String::new();
    for run in &report.runs {
        write_run(&mut text, run, has_details, is_coloured);
    }
    let (verdict, colour) = if report.is_conforming {
        ("Every must is kept.", GREEN)
    } else if report.runs.iter().any(|run| run.summary.musts_failed > 0) {
        ("Not every must is kept.", RED)
    } else if report.runs.iter().any(|run| run.silent_since.is_some()) {
        ("Not every case could be run.", RED)
    } else {
        ("Not every tracker could be tested.", RED)
    };
    let verdict = paint(verdict, colour, is_coloured);
    let _ = writeln!(text, "{verdict} (--seed {} repeats the info hashes)", report.seed);
    if report.runs.iter().any(seems_to_refuse_all) {
        let hint = format!(
            "Most musts fail. Does the tracker serve listed torrents only? Then list the output of `shoal-lab conform \
             --print-info-hashes --seed {0} URL...`, with the same URLs, and test again with --seed {0}.",
            report.seed
        );
        let _ = writeln!(text, "{}", wrapped(&hint, 0));
    }
    for run in &report.runs {
        write_stop(&mut text, run, is_coloured);
    }
    text
}

fn write_run(text: &mut String, run: &Run, has_details: bool, is_coloured: bool) {
    match run.address {
        Some(address) => _ = writeln!(text, "{} at {address}", run.url),
        None => _ = writeln!(text, "{}", run.url),
    }
    if let Some(reason) = &run.unreachable {
        let _ = writeln!(text, "  {} {reason}\n", paint("unreachable:", RED, is_coloured));
        return;
    }
    let width = run.findings.iter().map(|finding| finding.id.len()).max().unwrap_or_default();
    for finding in &run.findings {
        // Padded before it is coloured, since colours have no width on the screen.
        let verdict = format!("{:<14}", finding.verdict.as_str());
        let verdict = paint(&verdict, colour(finding.verdict), is_coloured);
        let severity = finding.severity.as_str();
        let _ = writeln!(text, "  {verdict}  {severity:<6}  {:<width$}  {}", finding.id, finding.source);
    }
    let is_shown = |verdict| matches!(verdict, CaseVerdict::Fail | CaseVerdict::NotSupported);
    for finding in run.findings.iter().filter(|finding| has_details && is_shown(finding.verdict)) {
        write_details(text, finding, is_coloured);
    }
    let sum = run.summary;
    let musts = counted(sum.musts_failed, "must", "musts");
    let shoulds = counted(sum.shoulds_failed, "recommendation", "recommendations");
    let _ = write!(text, "\n  {} passed, {musts} failed, {shoulds} failed, ", sum.passed);
    let _ = write!(text, "{} not supported, {} not configured", sum.not_supported, sum.not_configured);
    let _ = match sum.not_run {
        0 => writeln!(text, "\n"),
        not_run => writeln!(text, ", {not_run} not run\n"),
    };
}

/// Says since which case the tracker is silent, and how many cases could not be run.
fn write_stop(text: &mut String, run: &Run, is_coloured: bool) {
    let Some(case) = &run.silent_since else { return };
    let after = match run.summary.not_run {
        0 => "which was the last one".to_owned(),
        1 => "and the case after it was not run".to_owned(),
        not_run => format!("and the {not_run} cases after it were not run"),
    };
    let stopped = paint("has not answered since", RED, is_coloured);
    let _ = writeln!(text, "The tracker at {} {stopped} {case}, {after}.", run.url);
}

/// Returns whether the tracker fails as one does that knows none of the torrents of the suite.
fn seems_to_refuse_all(run: &Run) -> bool {
    let is_must = |finding: &&Finding| finding.severity == Severity::Must;
    let is_checked = |finding: &&Finding| matches!(finding.verdict, CaseVerdict::Pass | CaseVerdict::Fail);
    let checked = run.findings.iter().filter(is_must).filter(is_checked).count();
    let failed = run.summary.musts_failed;
    failed >= REFUSED_MUSTS_MIN && 2 * failed >= checked
}

fn write_details(text: &mut String, finding: &Finding, is_coloured: bool) {
    let verdict = paint(finding.verdict.as_str(), colour(finding.verdict), is_coloured);
    let _ = writeln!(text, "\n  {verdict} ({}): {}", finding.severity.as_str(), finding.id);
    let _ = writeln!(text, "    rule      {}", finding.rule);
    let _ = writeln!(text, "    source    {}", finding.source);
    if finding.verdict == CaseVerdict::NotSupported {
        let _ = writeln!(text, "    reason    {}", finding.seen);
        return;
    }
    let _ = writeln!(text, "    expected  {}", finding.expected);
    let _ = writeln!(text, "    seen      {}", finding.seen);
    let earlier = finding.exchange.len().saturating_sub(EVENTS_MAX);
    for event in finding.exchange.iter().skip(earlier) {
        let arrow = match event.direction {
            Direction::Sent => "sent",
            Direction::Seen => "got ",
        };
        let _ = writeln!(text, "      {arrow} {}", event.text);
        let _ = writeln!(text, "           {}", event.hex);
    }
}

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

const fn colour(verdict: CaseVerdict) -> &'static str {
    match verdict {
        CaseVerdict::Pass => GREEN,
        CaseVerdict::Fail => RED,
        CaseVerdict::NotSupported | CaseVerdict::NotConfigured | CaseVerdict::NotRun => YELLOW,
    }
}

fn paint(text: &str, colour: &str, is_coloured: bool) -> String {
    if is_coloured { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}
