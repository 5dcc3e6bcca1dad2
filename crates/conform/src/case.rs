//! A case: one rule, its source, and the function that checks it.

use serde::{Deserialize, Serialize};

use crate::answers::ANSWERS;
use crate::context::Context;

/// The weight of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The specification requires it, or clients break without it.
    Must,
    /// The specification recommends it, or good trackers do it for a good reason.
    Should,
}

impl Severity {
    /// Returns the word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
        }
    }
}

/// The outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseVerdict {
    /// The tracker keeps the rule.
    Pass,
    /// The tracker breaks the rule.
    Fail,
    /// The rule cannot be checked from here; the finding says why.
    NotSupported,
    /// The rule is one that an operator sets, and the user has not named it; the finding says how.
    NotConfigured,
    /// The tracker had stopped answering before the case.
    NotRun,
}

impl CaseVerdict {
    /// Returns the word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotSupported => "not supported",
            Self::NotConfigured => "not configured",
            Self::NotRun => "not run",
        }
    }
}

/// One rule, with the function that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name, in lower case with hyphens. It begins with the protocol.
    pub id: &'static str,
    /// The weight of the rule.
    pub severity: Severity,
    /// The document and section, or the practice, that the rule comes from.
    pub source: &'static str,
    /// The rule in one sentence.
    pub rule: &'static str,
    /// Whether the case waits for a minute or more.
    pub is_slow: bool,
    /// The number of info hashes that the case uses, in each address family.
    pub info_hashes: usize,
    /// Whether the info hashes together contain every value of a byte.
    pub(crate) has_every_byte: bool,
    pub(crate) check: fn(&Context<'_>) -> Checked,
}

impl Case {
    pub(crate) const fn must(
        id: &'static str,
        source: &'static str,
        rule: &'static str,
        check: fn(&Context<'_>) -> Checked,
    ) -> Self {
        Self {
            id,
            severity: Severity::Must,
            source,
            rule,
            is_slow: false,
            info_hashes: 1,
            has_every_byte: false,
            check,
        }
    }

    pub(crate) const fn should(
        id: &'static str,
        source: &'static str,
        rule: &'static str,
        check: fn(&Context<'_>) -> Checked,
    ) -> Self {
        Self { severity: Severity::Should, ..Self::must(id, source, rule, check) }
    }

    /// Returns the trackers that break the rule and why it is one all the same, if two or more are known to break it.
    pub fn answer(&self) -> Option<(&'static str, &'static str)> {
        ANSWERS.iter().find_map(|answer| {
            let trackers = answer.cases.get(self.id)?;
            Some((trackers.as_str(), answer.text.as_str()))
        })
    }

    pub(crate) const fn with_info_hashes(self, info_hashes: usize) -> Self {
        Self { info_hashes, ..self }
    }

    /// Sets the number of info hashes to as many as it takes to contain every value of a byte.
    pub(crate) const fn with_every_byte(self) -> Self {
        Self { info_hashes: 256_usize.div_ceil(20), has_every_byte: true, ..self }
    }

    /// Marks the case as one that waits for a minute or more.
    pub(crate) const fn slow(self) -> Self {
        Self { is_slow: true, ..self }
    }
}

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unmet {
    /// The rule is broken.
    Fail { expected: String, seen: String },
    /// The rule cannot be checked, for this reason.
    NotSupported(String),
    /// The user has not named the rule; the text says how.
    NotConfigured(String),
}

/// The result of a step of a case; an error ends the case.
pub(crate) type Checked<T = ()> = Result<T, Unmet>;

pub(crate) fn ensure(holds: bool, expected: impl Into<String>, seen: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err(Unmet::Fail { expected: expected.into(), seen: seen.into() }) }
}
