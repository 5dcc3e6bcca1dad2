//! The report as JUnit XML, which CI services read.

use quick_junit::{NonSuccessKind, SerializeError, TestCase, TestCaseStatus, TestSuite};

use crate::case::{CaseVerdict, Severity};
use crate::report::{Finding, Report, Run};
use crate::trace::{Direction, TraceEntry};

/// Converts the report to JUnit XML. A broken "must" is a failure. A broken "should" is a skipped test whose message
/// says so, because it does not fail the command either. A tracker that is unreachable or stops answering is an error.
pub fn junit(report: &Report) -> Result<String, SerializeError> {
    let mut xml = quick_junit::Report::new("conformance");
    for run in &report.runs {
        xml.add_test_suite(suite(run));
    }
    xml.to_string()
}

fn suite(run: &Run) -> TestSuite {
    let address = run.address.map_or_else(|| "no address".to_owned(), |address| address.to_string());
    let mut suite = TestSuite::new(format!("{} ({address})", run.url));
    if let Some(reason) = &run.unreachable {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(reason.as_str());
        suite.add_test_case(TestCase::new("reachable", status));
    }
    suite.add_test_cases(run.findings.iter().map(test_case));
    if let Some(case) = &run.silent_since {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(format!("the tracker has not answered since {case}"));
        suite.add_test_case(TestCase::new("answers-to-the-end", status));
    }
    suite
}

fn test_case(finding: &Finding) -> TestCase {
    let message = format!("expected: {}; seen: {}", finding.expected, finding.seen);
    let status = match (finding.verdict, finding.severity) {
        (CaseVerdict::Pass, _) => TestCaseStatus::success(),
        (CaseVerdict::Fail, Severity::Must) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let line = |entry: &TraceEntry| {
                let direction = match entry.direction {
                    Direction::Sent => "sent",
                    Direction::Seen => "seen",
                };
                format!("{direction}: {} [{}]", entry.text, entry.hex)
            };
            let exchange: Vec<String> = finding.exchange.iter().map(line).collect();
            status.set_type("must").set_message(message).set_description(exchange.join("\n"));
            status
        }
        (CaseVerdict::Fail, Severity::Should) => skipped(format!("a broken \"should\": {message}")),
        (verdict @ (CaseVerdict::NotSupported | CaseVerdict::NotConfigured | CaseVerdict::NotRun), _) => {
            skipped(format!("{}: {}", verdict.as_str(), finding.seen))
        }
    };
    let mut test_case = TestCase::new(finding.id.as_str(), status);
    test_case.set_classname(finding.source.as_str());
    test_case
}

fn skipped(message: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(message);
    status
}
