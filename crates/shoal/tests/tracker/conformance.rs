//! Rules of the public suite, asked of a running tracker.

use shoal_conform::{Case, CaseVerdict, Finding, Target, run};

/// Makes sure that a tracker keeps every rule, the "should" ones too, save those that cannot be asked of it:
/// `unsupported`, in alphabetical order. Slow ones are left out.
pub(crate) fn assert_kept(cases: Vec<&'static Case>, target: &Target, unsupported: &[&str]) {
    let cases: Vec<&Case> = cases.into_iter().filter(|case| !case.is_slow).collect();
    let findings = run(&cases, target, |_| {});
    assert_eq!(findings.len(), cases.len());
    let failed: Vec<&Finding> =
        findings.iter().filter(|finding| finding.verdict == CaseVerdict::Fail).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let found = findings.iter().filter(|finding| finding.verdict == CaseVerdict::NotSupported);
    let mut found: Vec<&str> = found.map(|finding| finding.id.as_str()).collect();
    found.sort_unstable();
    assert_eq!(found, unsupported);
}
