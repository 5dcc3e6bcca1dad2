//! Runs cases against a tracker, one after another.

use crate::case::{Case, CaseVerdict, ensure};
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

/// Runs the cases and reports each. If the tracker stops answering, the remaining cases fail at once.
pub fn run(cases: &[&Case], target: &Target, mut on_finding: impl FnMut(&Finding)) -> Vec<Finding> {
    let mut findings = Vec::with_capacity(cases.len());
    let mut silent_since: Option<&str> = None;
    let mut silent_cases = 0;
    for case in cases {
        let finding = match silent_since {
            Some(last) => {
                let seen = format!("the tracker has not answered any request since the case {last}");
                Finding::new(case, ensure(false, "a tracker that answers", seen), Vec::new())
            }
            None => {
                let tries = if silent_cases < SILENT_CASES_MAX { TRIES } else { 1 };
                let context = Context::new(target, case, tries);
                let checked = (case.check)(&context);
                silent_cases += u32::from(context.unanswered.get() > 0);
                Finding::new(case, checked, context.trace.into_inner().into_entries())
            }
        };
        if finding.verdict == CaseVerdict::Fail && silent_since.is_none() && probe(target).is_err() {
            silent_since = Some(case.id);
        }
        on_finding(&finding);
        findings.push(finding);
    }
    findings
}
