//! The faulty lines of a list.
//!
//! Correct lines count despite faulty ones beside them. A list with many faulty lines is another kind of text, or
//! damaged, so a new version of a list may only have a few ([`Faults::refusal`]).

use core::fmt;

/// Maximum number of faulty lines that are named.
pub const NAMED_MAX: usize = 5;

/// A new version of a list is refused if more than one in this number of lines is faulty.
const LINES_PER_FAULT_MIN: u64 = 100;

/// A new version of a list with faulty lines is refused if it has less than this fraction of the previous entries.
const SHRINKAGE_MAX: u64 = 10;

/// The lines of a list, or the items of a document, that have content, and the faulty ones among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The number of lines with content, the faulty ones included. Comments have none.
    pub lines: u64,
    /// The number of faulty lines.
    pub faulty: u64,
    /// The first faulty lines, up to [`NAMED_MAX`].
    pub named: Vec<LineFault>,
}

/// A faulty line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFault {
    /// The number of the line, from 1.
    pub line: u64,
    /// The fault, in words for the operator.
    pub fault: String,
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

impl Faults {
    /// Counts a line with content.
    pub const fn count(&mut self) {
        self.lines += 1;
    }

    /// Counts a faulty line.
    pub fn add(&mut self, line: u64, fault: impl fmt::Display) {
        self.lines += 1;
        self.faulty += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(LineFault { line, fault: fault.to_string() });
        }
    }

    /// Returns why a new version of a list is refused as a whole, if it is. It has `entries` entries, and the previous
    /// version had `before`.
    pub fn refusal(&self, entries: u64, before: u64) -> Option<String> {
        let Self { lines, faulty, .. } = self;
        if self.faulty.saturating_mul(LINES_PER_FAULT_MIN) > self.lines {
            Some(format!("{faulty} of {lines} lines are faulty, which is more than 1 %"))
        } else if self.faulty > 0 && entries.saturating_mul(SHRINKAGE_MAX) < before {
            Some(format!("it has faulty lines, and {entries} entries where it had {before}"))
        } else {
            None
        }
    }
}

impl fmt::Display for Faults {
    /// Writes the first faulty line and the number of the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named.first().map_or(Ok(()), |first| first.fmt(f))?;
        match self.faulty {
            0 | 1 => Ok(()),
            faulty => write!(f, " (and {} more faulty lines)", faulty - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(lines: u64, faulty: u64) -> Faults {
        let mut faults = Faults { lines: lines - faulty, ..Faults::default() };
        (0..faulty).for_each(|line| faults.add(line + 1, "bad"));
        faults
    }

    #[test]
    fn a_version_with_many_faults_or_few_entries_is_refused() {
        for (lines, faulty, before, is_refused) in [
            (400_565, 47, 400_000, false),
            (100, 1, 100, false),
            (199, 2, 100, true),
            (10, 1, 10, true),
            (1000, 1, 9990, false),
            (1000, 1, 10_000, true),
            (1, 0, 1_000_000, false),
            (1, 1, 0, true),
        ] {
            let faults = faults(lines, faulty);
            let refusal = faults.refusal(lines - faulty, before);
            assert_eq!(refusal.is_some(), is_refused, "{lines} {faulty} {before} {refusal:?}");
        }
    }

    #[test]
    fn the_first_lines_are_named() {
        let faults = faults(9, 7);
        assert_eq!((faults.named.len(), faults.named[4].line), (NAMED_MAX, 5));
        assert_eq!(faults.to_string(), "line 1: bad (and 6 more faulty lines)");
    }
}
