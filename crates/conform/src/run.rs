//! Runs cases against a tracker, one after the other.

use thiserror::Error;

use crate::case::{Case, Unmet, Verdict};
use crate::context::{Context, Scheme, Target};
use crate::http;
use crate::report::Finding;
use crate::udp;
use crate::webtorrent;

/// Times that a request is sent before silence counts as the answer: datagrams get lost.
pub(crate) const TRIES: u32 = 3;

/// Cases that end in silence before each request is sent but once. Then it is no loss on the way but the habit of
/// the tracker, and waiting three times in each case would take minutes.
const SILENT_CASES_MAX: u32 = 5;

/// A tracker that cannot be tested, and why.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// Whether there is a tracker at all. Takes some seconds at most.
///
/// # Errors
/// With the reason, where there is none.
pub fn probe(target: &Target) -> Result<(), Unreachable> {
    let probed = match target.scheme {
        Scheme::Udp => udp::probe(target),
        Scheme::Http | Scheme::Https => http::probe(target),
        Scheme::Ws | Scheme::Wss => webtorrent::probe(target),
    };
    probed.map_err(Unreachable)
}

/// Runs the cases and tells of each by `on_finding`. Where the tracker falls silent for good, the cases that are left
/// fail at once rather than wait in vain.
pub fn run(cases: &[&Case], target: &Target, mut on_finding: impl FnMut(&Finding)) -> Vec<Finding> {
    let mut findings = Vec::with_capacity(cases.len());
    let mut silent_since: Option<&str> = None;
    let mut silent_cases = 0;
    for case in cases {
        let finding = match silent_since {
            Some(last) => Finding::failed(
                case,
                "a tracker that answers",
                format!("the tracker has not answered any request since the case {last}"),
            ),
            None => judge(case, target, &mut silent_cases),
        };
        if finding.verdict == Verdict::Fail && silent_since.is_none() && probe(target).is_err() {
            silent_since = Some(case.id);
        }
        on_finding(&finding);
        findings.push(finding);
    }
    findings
}

fn judge(case: &Case, target: &Target, silent_cases: &mut u32) -> Finding {
    let tries = if *silent_cases < SILENT_CASES_MAX { TRIES } else { 1 };
    let context = Context::new(target, case, tries);
    let checked = (case.check)(&context);
    *silent_cases += u32::from(context.silences.get() > 0);
    let events = context.trace.into_inner().into_events();
    let finding = match checked {
        Ok(()) => Finding::passed(case),
        Err(Unmet::Fail { expected, seen }) => Finding::failed(case, expected, seen),
        Err(Unmet::NotSupported(reason)) => Finding::not_supported(case, reason),
    };
    Finding { exchange: events, ..finding }
}
