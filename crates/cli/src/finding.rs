//! The findings of `shoal health` and `shoal doctor`, as text for people and as JSON for scripts.

use core::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;
use shoal_runtime::printable;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// All is well.
    Ok,
    /// The tracker serves, and something could be better, or could not be seen.
    Advice,
    /// Clients are not served as the configuration says, or will not be for long.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// The subject, in one word.
    pub(crate) subject: &'static str,
    /// The observation, in one line.
    pub(crate) found: String,
    /// The remedy, in one line: a command if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
}

/// All findings, in the order in which they are shown.
#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    /// Whether there is no problem.
    healthy: bool,
    findings: Vec<Finding>,
}

impl Finding {
    pub(crate) fn ok(subject: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Ok, subject, found: found.into(), action: None }
    }

    pub(crate) fn advice(subject: &'static str, found: impl Into<String>, action: impl Into<String>) -> Self {
        Self { level: Level::Advice, subject, found: found.into(), action: Some(action.into()) }
    }

    pub(crate) fn problem(
        subject: &'static str,
        found: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self { level: Level::Problem, subject, found: found.into(), action: Some(action.into()) }
    }
}

impl Findings {
    pub(crate) fn new(findings: Vec<Finding>) -> Self {
        Self { healthy: findings.iter().all(|finding| finding.level < Level::Problem), findings }
    }

    /// Returns the exit code: 0 without problems, and 1 with any.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Returns the findings as JSON, or as lines for people, the action of each below it.
    pub(crate) fn shown(&self, as_json: bool) -> String {
        if as_json {
            return printable::json(&serde_json::json!(self).to_string()) + "\n";
        }
        let mut text = String::new();
        for Finding { level, subject, found, action } in &self.findings {
            let level = match level {
                Level::Ok => "ok",
                Level::Advice => "advice",
                Level::Problem => "PROBLEM",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{level:<8} {subject}: {}", printable::line(found));
            if let Some(action) = action {
                let _ = writeln!(text, "{:8} -> {}", "", printable::line(action));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_problem_is_not_healthy() {
        let (ok, advice) = (Finding::ok("a", "fine"), Finding::advice("b", "slow\u{1b}", "hurry"));
        let fine = Findings::new(vec![ok.clone(), advice.clone()]);
        assert_eq!(fine.exit_code(), ExitCode::SUCCESS);
        assert_eq!(fine.shown(false), "ok       a: fine\nadvice   b: slow?\n         -> hurry\n");
        let ill = Findings::new(vec![ok, advice, Finding::problem("c", "gone", "look")]);
        assert_eq!(ill.exit_code(), ExitCode::FAILURE);
        let json: serde_json::Value = serde_json::from_str(&ill.shown(true)).unwrap();
        assert_eq!((&json["healthy"], &json["findings"][2]["level"]), (&false.into(), &"problem".into()));
        assert!(json["findings"][0].get("action").is_none());
    }
}
