//! The report on a tracker: findings and their summary.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::case::{Case, CaseVerdict, Checked, Severity, Unmet};
use crate::trace::TraceEntry;

/// The name and version of the JSON of [`Report`]. The version increases when a reader could misunderstand it.
pub const SCHEMA: &str = "shoal-lab-conform/2";

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of the case.
    pub id: String,
    /// The weight of the rule.
    pub severity: Severity,
    /// The document that the rule comes from.
    pub source: String,
    /// The rule in one sentence.
    pub rule: String,
    /// The outcome.
    pub verdict: CaseVerdict,
    /// The expected behaviour: the rule itself, unless the case failed at a certain step.
    pub expected: String,
    /// The observed behaviour, or why the rule could not be checked. Empty if the case passed.
    pub seen: String,
    /// Whether the tracker has not answered since this case.
    pub tracker_stopped: bool,
    /// The last messages of the case, oldest first.
    pub exchange: Vec<TraceEntry>,
}

impl Finding {
    /// Returns the result of a case that was checked, with its last messages.
    pub(crate) fn new(case: &Case, checked: Checked, exchange: Vec<TraceEntry>) -> Self {
        let rule = case.rule.to_owned();
        let (verdict, expected, seen) = match checked {
            Ok(()) => (CaseVerdict::Pass, rule, String::new()),
            Err(Unmet::Fail { expected, seen }) => (CaseVerdict::Fail, expected, seen),
            Err(Unmet::NotSupported(reason)) => (CaseVerdict::NotSupported, rule, reason),
            Err(Unmet::NotConfigured(reason)) => (CaseVerdict::NotConfigured, rule, reason),
        };
        Self {
            id: case.id.to_owned(),
            severity: case.severity,
            source: case.source.to_owned(),
            rule: case.rule.to_owned(),
            verdict,
            expected,
            seen,
            tracker_stopped: false,
            exchange,
        }
    }

    /// Returns the result of a case that was not run, because the tracker had stopped answering.
    pub(crate) fn not_run(case: &Case, silent_since: &str) -> Self {
        let seen = format!("the tracker has not answered since the case {silent_since}");
        Self { verdict: CaseVerdict::NotRun, seen, ..Self::new(case, Ok(()), Vec::new()) }
    }
}

/// Counts of findings by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Cases that passed.
    pub passed: usize,
    /// Failed cases of weight "must".
    pub musts_failed: usize,
    /// Failed cases of weight "should".
    pub shoulds_failed: usize,
    /// Cases that could not be checked from here.
    pub not_supported: usize,
    /// Cases about rules that were not named.
    pub not_configured: usize,
    /// Cases that came after the tracker had stopped answering.
    pub not_run: usize,
}

impl Summary {
    /// Counts these findings.
    pub fn of(findings: &[Finding]) -> Self {
        let count = |verdict, severity: Option<Severity>| {
            let counts = |finding: &&Finding| {
                finding.verdict == verdict && severity.is_none_or(|severity| severity == finding.severity)
            };
            findings.iter().filter(counts).count()
        };
        Self {
            passed: count(CaseVerdict::Pass, None),
            musts_failed: count(CaseVerdict::Fail, Some(Severity::Must)),
            shoulds_failed: count(CaseVerdict::Fail, Some(Severity::Should)),
            not_supported: count(CaseVerdict::NotSupported, None),
            not_configured: count(CaseVerdict::NotConfigured, None),
            not_run: count(CaseVerdict::NotRun, None),
        }
    }
}

/// The findings about one tracker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The tracker URL, as the user wrote it.
    pub url: String,
    /// The address under test; `None` if the name does not resolve.
    pub address: Option<SocketAddr>,
    /// The reason, if no case was run.
    pub unreachable: Option<String>,
    /// The case since which the tracker has not answered, if it stopped.
    pub silent_since: Option<String>,
    /// The findings, counted.
    pub summary: Summary,
    /// The results of all cases, in the order in which they ran.
    pub findings: Vec<Finding>,
}

impl Run {
    /// Returns the findings about a tracker that was reached.
    pub fn done(url: &str, address: SocketAddr, findings: Vec<Finding>) -> Self {
        let summary = Summary::of(&findings);
        let silent_since =
            findings.iter().find(|finding| finding.tracker_stopped).map(|finding| finding.id.clone());
        Self {
            url: url.to_owned(),
            address: Some(address),
            unreachable: None,
            silent_since,
            summary,
            findings,
        }
    }

    /// Returns the run of a tracker that was not reached, and why.
    pub fn unreachable(url: &str, address: Option<SocketAddr>, reason: String) -> Self {
        Self {
            url: url.to_owned(),
            address,
            unreachable: Some(reason),
            silent_since: None,
            summary: Summary::default(),
            findings: Vec::new(),
        }
    }

    /// Returns whether the tracker answered from the first case to the last, and no rule of weight "must" is broken.
    pub fn is_conforming(&self) -> bool {
        self.unreachable.is_none() && self.silent_since.is_none() && self.summary.musts_failed == 0
    }
}

/// The findings about several trackers, as they are written to JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// See [`SCHEMA`].
    pub schema: String,
    /// The program that wrote the report, with its version.
    pub program: String,
    /// The seed of the info hashes; the same seed repeats them.
    pub seed: u64,
    /// Whether every tracker answered from the first case to the last, and no rule of weight "must" is broken.
    pub is_conforming: bool,
    /// The findings about each tracker.
    pub runs: Vec<Run>,
}

impl Report {
    /// Returns the report of a program on these runs.
    pub fn new(program: String, seed: u64, runs: Vec<Run>) -> Self {
        let is_conforming = runs.iter().all(Run::is_conforming);
        Self { schema: SCHEMA.to_owned(), program, seed, is_conforming, runs }
    }
}
