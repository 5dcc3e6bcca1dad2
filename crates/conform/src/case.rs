//! A case: one rule, where it stands, and the function that checks it.

use serde::{Deserialize, Serialize};

use crate::context::Context;

/// How much a rule weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The text of the protocol demands it, or clients break without it.
    Must,
    /// The text recommends it, or a good tracker does it for good reasons.
    Should,
}

impl Severity {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
        }
    }
}

/// What came of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The tracker keeps the rule.
    Pass,
    /// The tracker breaks the rule.
    Fail,
    /// Nobody can tell from here; the finding says why.
    NotSupported,
}

impl Verdict {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotSupported => "not supported",
        }
    }
}

/// A rule that can be checked.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name, in lower case with hyphens. Begins with the protocol.
    pub id: &'static str,
    /// How much it weighs.
    pub severity: Severity,
    /// The document and section, or the practice, that it comes from.
    pub source: &'static str,
    /// The rule, in one sentence.
    pub rule: &'static str,
    /// Whether it waits for a minute or more.
    pub is_slow: bool,
    /// How many info hashes of its own it uses, in each family.
    pub info_hashes: usize,
    /// Whether its info hashes have, all together, every value that a byte can have.
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
            info_hashes: 0,
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

    /// The same case, which uses this many info hashes.
    pub(crate) const fn with_info_hashes(self, info_hashes: usize) -> Self {
        Self { info_hashes, ..self }
    }

    /// The same case, which uses as many info hashes as together have every value of a byte.
    pub(crate) const fn with_every_byte(self) -> Self {
        Self { info_hashes: 256_usize.div_ceil(20), has_every_byte: true, ..self }
    }

    /// The same case, which takes long.
    pub(crate) const fn slowly(self) -> Self {
        Self { is_slow: true, ..self }
    }
}

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unmet {
    /// The rule is broken.
    Fail { expected: String, seen: String },
    /// It cannot be checked, for this reason.
    NotSupported(String),
}

/// What a step of a case gives, unless it ends the case.
pub(crate) type Checked<T = ()> = Result<T, Unmet>;

/// Ends the case as failed unless `holds`.
pub(crate) fn ensure(holds: bool, expected: impl Into<String>, seen: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err(Unmet::Fail { expected: expected.into(), seen: seen.into() }) }
}
