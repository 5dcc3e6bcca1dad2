//! The report of a test run, which nextest writes as JUnit XML.

use std::cmp::Reverse;
use std::fmt;
use std::io::BufRead;
use std::time::Duration;

use anyhow::{Context, Result};
use quick_junit::TestCaseStatus;

pub(crate) struct Report {
    pub(crate) counts: Counts,
    /// The messages of tests that they, or parts of them, were skipped.
    pub(crate) skipped: Vec<String>,
    /// The tests that failed at first and passed when they were repeated.
    pub(crate) flaky: Vec<String>,
    /// All tests, the slowest first.
    tests: Vec<Test>,
}

/// The number of tests that passed, and of those that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Test {
    name: String,
    duration: Duration,
}

pub(crate) fn read(xml: impl BufRead) -> Result<Report> {
    let report = quick_junit::Report::deserialize(xml).context("the report of the tests is malformed")?;
    let cases =
        report.test_suites.iter().flat_map(|suite| suite.test_cases.iter().map(move |case| (suite, case)));
    let (mut counts, mut skipped, mut flaky, mut tests) =
        (Counts::default(), Vec::new(), Vec::new(), Vec::new());
    for (suite, case) in cases {
        let name = format!("{} {}", suite.name.as_str(), case.name.as_str());
        match &case.status {
            TestCaseStatus::Success { flaky_runs } => {
                counts.passed += 1;
                if !flaky_runs.is_empty() {
                    flaky.push(format!("{name} (passed on attempt {})", flaky_runs.len() + 1));
                }
            }
            TestCaseStatus::NonSuccess { .. } => counts.failed += 1,
            TestCaseStatus::Skipped { .. } => skipped.push(name.clone()),
        }
        // A test reports in its output that it, or a part of it, was skipped.
        let outputs = [&case.system_out, &case.system_err].into_iter().flatten();
        let lines = outputs.flat_map(|output| output.as_str().lines());
        let is_skip = |line: &&str| line.to_ascii_lowercase().starts_with("skipped");
        skipped.extend(lines.filter(is_skip).map(str::to_owned));
        let duration = case.time.unwrap_or_default();
        tests.push(Test { name, duration });
    }
    tests.sort_by_key(|test| Reverse(test.duration));
    Ok(Report { counts, skipped, flaky, tests })
}

impl Report {
    pub(crate) fn slowest(&self, count: usize) -> impl Iterator<Item = &Test> {
        self.tests.iter().take(count)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.1} s  {}", self.duration.as_secs_f64(), self.name)
    }
}

/// Writes a line that tools can find in the output of CI.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="0" time="9.5">
    <testsuite name="shoal-net::streams" tests="3" disabled="0" errors="0" failures="1">
        <testcase name="quick" classname="shoal-net::streams" time="0.250">
            <system-out>running 1 test
skipped: no io_uring
</system-out>
        </testcase>
        <testcase name="hangs" classname="shoal-net::streams" time="180.020">
            <failure type="test timeout"/>
        </testcase>
        <testcase name="slow" classname="shoal-net::streams" time="9.100">
            <flakyFailure timestamp="2026-01-01T00:00:00.000+00:00" time="8.500" message="too late" type="test failure"/>
            <system-err>nothing was skipped
</system-err>
        </testcase>
    </testsuite>
</testsuites>
"#;

    #[test]
    fn tests_are_counted_and_the_slowest_come_first() {
        let report = read(XML.as_bytes()).unwrap();
        assert_eq!(report.counts.to_string(), "2 passed, 1 failed");
        let slowest: Vec<String> = report.slowest(2).map(ToString::to_string).collect();
        assert_eq!(slowest, ["   180.0 s  shoal-net::streams hangs", "     9.1 s  shoal-net::streams slow"]);
        assert_eq!(report.skipped, ["skipped: no io_uring"]);
        assert_eq!(report.flaky, ["shoal-net::streams slow (passed on attempt 2)"]);
    }
}
