//! What is told of a tracker: findings, and their sum.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::case::{Case, Severity, Verdict};
use crate::trace::Event;

/// The name and version of the JSON that [`Report`] becomes. The version goes up when a reader of the old one could
/// misunderstand the new one.
pub const SCHEMA: &str = "shoal-lab-conform/1";

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of the case.
    pub id: String,
    /// How much the rule weighs.
    pub severity: Severity,
    /// Where the rule comes from.
    pub source: String,
    /// The rule.
    pub rule: String,
    /// What came of it.
    pub verdict: Verdict,
    /// What should have been seen: the rule itself, unless it failed at a certain point.
    pub expected: String,
    /// What was seen instead, or why it could not be checked. Empty if it passed.
    pub seen: String,
    /// The latest of what was sent and seen.
    pub exchange: Vec<Event>,
}

impl Finding {
    pub(crate) fn passed(case: &Case) -> Self {
        Self::new(case, Verdict::Pass, case.rule, "")
    }

    pub(crate) fn failed(case: &Case, expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::new(case, Verdict::Fail, expected, seen)
    }

    pub(crate) fn not_supported(case: &Case, reason: impl Into<String>) -> Self {
        Self::new(case, Verdict::NotSupported, case.rule, reason)
    }

    fn new(case: &Case, verdict: Verdict, expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self {
            id: case.id.to_owned(),
            severity: case.severity,
            source: case.source.to_owned(),
            rule: case.rule.to_owned(),
            verdict,
            expected: expected.into(),
            seen: seen.into(),
            exchange: Vec::new(),
        }
    }
}

/// How many findings of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Rules that are kept.
    pub passed: usize,
    /// Rules of weight "must" that are broken.
    pub musts_failed: usize,
    /// Rules of weight "should" that are broken.
    pub shoulds_failed: usize,
    /// Rules that nobody could check.
    pub not_supported: usize,
}

impl Summary {
    /// Counts.
    #[must_use]
    pub fn of(findings: &[Finding]) -> Self {
        let count = |verdict, severity: Option<Severity>| {
            let counts = |finding: &&Finding| {
                finding.verdict == verdict && severity.is_none_or(|severity| severity == finding.severity)
            };
            findings.iter().filter(counts).count()
        };
        Self {
            passed: count(Verdict::Pass, None),
            musts_failed: count(Verdict::Fail, Some(Severity::Must)),
            shoulds_failed: count(Verdict::Fail, Some(Severity::Should)),
            not_supported: count(Verdict::NotSupported, None),
        }
    }
}

/// The suite against one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The tracker, as the user named it.
    pub url: String,
    /// The address that was asked; none where the name has none.
    pub address: Option<SocketAddr>,
    /// Why no case was run, if none was.
    pub unreachable: Option<String>,
    /// The sum of the findings.
    pub summary: Summary,
    /// What came of each case.
    pub findings: Vec<Finding>,
}

impl Run {
    /// The suite as it was run.
    #[must_use]
    pub fn done(url: &str, address: SocketAddr, findings: Vec<Finding>) -> Self {
        let summary = Summary::of(&findings);
        Self { url: url.to_owned(), address: Some(address), unreachable: None, summary, findings }
    }

    /// The suite as it could not be run.
    #[must_use]
    pub fn unreachable(url: &str, address: Option<SocketAddr>, reason: String) -> Self {
        let summary = Summary::default();
        Self { url: url.to_owned(), address, unreachable: Some(reason), summary, findings: Vec::new() }
    }

    /// Whether the tracker was there and no rule of weight "must" is broken.
    #[must_use]
    pub fn is_conforming(&self) -> bool {
        self.unreachable.is_none() && self.summary.musts_failed == 0
    }
}

/// Everything that a command found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program that found it out, with its version.
    pub program: String,
    /// What the info hashes derive from; the same seed repeats them.
    pub seed: u64,
    /// Whether every tracker was there and no rule of weight "must" is broken.
    pub is_conforming: bool,
    /// One for each address.
    pub runs: Vec<Run>,
}

impl Report {
    /// Puts runs together.
    #[must_use]
    pub fn new(program: String, seed: u64, runs: Vec<Run>) -> Self {
        let is_conforming = runs.iter().all(Run::is_conforming);
        Self { schema: SCHEMA.to_owned(), program, seed, is_conforming, runs }
    }
}
