//! Formats the report of the conformance suite for the terminal.

use std::env;
use std::fmt::Write;
use std::io::{IsTerminal, stdout};

use shoal_conform::{Case, CaseVerdict, Direction, Finding, Report, Run};

/// Most events that are shown for a case. The JSON contains more.
const EVENTS_MAX: usize = 4;

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
    let _ = writeln!(text, "{} cases, with {info_hashes} info hashes in each family", cases.len());
    text
}

/// Formats the whole report: the verdicts, then the details of failures, then the totals.
pub(super) fn report(report: &Report, is_coloured: bool) -> String {
    let mut text = String::new();
    for run in &report.runs {
        write_run(&mut text, run, is_coloured);
    }
    let (verdict, colour) = if report.is_conforming {
        ("Every must is kept.", GREEN)
    } else if report.runs.iter().any(|run| run.summary.musts_failed > 0) {
        ("Not every must is kept.", RED)
    } else {
        ("Not every tracker could be tested.", RED)
    };
    let verdict = paint(verdict, colour, is_coloured);
    let _ = writeln!(text, "{verdict} (--seed {} repeats the info hashes)", report.seed);
    text
}

fn write_run(text: &mut String, run: &Run, is_coloured: bool) {
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
    let is_shown = |verdict| !matches!(verdict, CaseVerdict::Pass | CaseVerdict::NotConfigured);
    for finding in run.findings.iter().filter(|finding| is_shown(finding.verdict)) {
        write_details(text, finding, is_coloured);
    }
    let sum = run.summary;
    let _ = writeln!(
        text,
        "\n  {} passed, {} musts failed, {} shoulds failed, {} not supported, {} not configured\n",
        sum.passed, sum.musts_failed, sum.shoulds_failed, sum.not_supported, sum.not_configured
    );
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
        CaseVerdict::NotSupported | CaseVerdict::NotConfigured => YELLOW,
    }
}

fn paint(text: &str, colour: &str, is_coloured: bool) -> String {
    if is_coloured { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}
