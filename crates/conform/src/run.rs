//! Runs cases against a tracker, one after another.

use crate::case::{Case, CaseVerdict};
use crate::context::{Context, Scheme, Target};
use crate::http;
use crate::report::Finding;
use crate::udp;
use crate::webtorrent;

/// The number of times that a request is sent before it counts as unanswered, since datagrams get lost.
pub(crate) const TRIES: u32 = 3;

/// The number of cases with unanswered requests after which each request is sent only once. By then the cause is not
/// packet loss but the tracker, and waiting three times in each case would take minutes.
const SILENT_CASES_MAX: u32 = 5;

/// Checks that the target is a tracker, in a few seconds at most. Returns the reason if it is not.
pub fn probe(target: &Target) -> Result<(), String> {
    match target.scheme {
        Scheme::Udp => udp::probe(target),
        Scheme::Http | Scheme::Https => http::probe(target),
        Scheme::Ws | Scheme::Wss => webtorrent::probe(target),
    }
}

/// Runs the cases and reports each. If the tracker stops answering during a case, the cases after it are not run.
pub fn run(cases: &[&Case], target: &Target, mut on_finding: impl FnMut(&Finding)) -> Vec<Finding> {
    let mut findings = Vec::with_capacity(cases.len());
    let mut silent_since: Option<&str> = None;
    let mut silent_cases = 0;
    for (index, case) in cases.iter().enumerate() {
        let finding = match silent_since {
            Some(silent_since) => Finding::not_run(case, silent_since),
            None => {
                let tries = if silent_cases < SILENT_CASES_MAX { TRIES } else { 1 };
                let context = Context::new(target, case, tries);
                let checked = (case.check)(&context);
                silent_cases += u32::from(context.unanswered.get() > 0);
                let mut finding = Finding::new(case, checked, context.trace.into_inner().into_entries());
                // A case can pass although it ends the tracker. The next one then fails, but after the last one none does.
                let is_suspicious = finding.verdict == CaseVerdict::Fail || index + 1 == cases.len();
                finding.tracker_stopped = is_suspicious && probe(target).is_err();
                finding
            }
        };
        if finding.tracker_stopped {
            silent_since = Some(case.id);
        }
        on_finding(&finding);
        findings.push(finding);
    }
    findings
}
