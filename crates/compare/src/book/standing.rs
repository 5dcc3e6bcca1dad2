//! How Shoal stands to the best rival and to the ceiling, on the same number of cores: ratios of medians.

use super::round::Marks;
use super::row::{Measured, Row};
use super::spread::Spread;

/// What Shoal is held against.
pub(super) struct Against<'a> {
    /// Shoal's median divided by the other's.
    pub(super) ratio: f64,
    /// The other.
    pub(super) other: &'a Row<'a>,
    /// What applies to any of the two.
    pub(super) marks: Marks,
}

impl Against<'_> {
    /// What is measured before the load cannot be disturbed by it.
    fn unmarked(self) -> Self {
        Self { marks: Marks::default(), ..self }
    }
}

/// One of Shoal's rows and what it is held against; nothing where there is nobody, or a figure is missing.
pub(super) struct Standing<'a> {
    /// Shoal's row.
    pub(super) row: &'a Row<'a>,
    /// User part of the CPU time of a reply against the least of the rivals.
    pub(super) user: Option<Against<'a>>,
    /// The whole CPU time of a reply against the least of the rivals.
    pub(super) whole: Option<Against<'a>>,
    /// Resident memory against the least of the rivals.
    pub(super) memory: Option<Against<'a>>,
    /// What the fill added to it, against the least that it added to a rival.
    pub(super) filled_memory: Option<Against<'a>>,
    /// Responses a second against the most of the rivals.
    pub(super) rival_throughput: Option<Against<'a>>,
    /// Responses a second against the responder that does nothing, on the same back end.
    pub(super) ceiling_throughput: Option<Against<'a>>,
}

/// The standing of each row of Shoal that was measured.
pub(super) fn standings<'a>(rows: &'a [Row<'a>]) -> Vec<Standing<'a>> {
    rows.iter()
        .filter(|row| row.is_shoal() && row.measured().is_some())
        .map(|row| standing(row, rows))
        .collect()
}

/// One of Shoal's rows and one rival on the same cores.
pub(super) struct Duel<'a> {
    /// Shoal's row.
    pub(super) row: &'a Row<'a>,
    /// The rival's.
    pub(super) rival: &'a Row<'a>,
    /// The whole CPU time of a reply.
    pub(super) whole: Option<Against<'a>>,
    /// User part of the CPU time of a reply.
    pub(super) user: Option<Against<'a>>,
    /// Responses a second.
    pub(super) throughput: Option<Against<'a>>,
}

/// Each row of Shoal against each rival that was measured on the same cores.
pub(super) fn duels<'a>(rows: &'a [Row<'a>]) -> Vec<Duel<'a>> {
    let own = rows.iter().filter(|row| row.is_shoal() && row.measured().is_some());
    own.flat_map(|row| {
        let rivals = rows.iter().filter(|other| other.is_rival() && other.measured().is_some());
        rivals.filter(|rival| rival.cores() == row.cores()).map(|rival| duel(row, rival))
    })
    .collect()
}

fn duel<'a>(row: &'a Row<'a>, rival: &'a Row<'a>) -> Duel<'a> {
    let alone = [rival];
    Duel {
        row,
        rival,
        whole: least(row, &alone, |measured| measured.whole_us),
        user: least(row, &alone, |measured| measured.user_us),
        throughput: most(row, &alone, |measured| measured.responses_per_s),
    }
}

fn standing<'a>(row: &'a Row<'a>, rows: &'a [Row<'a>]) -> Standing<'a> {
    let others: Vec<&Row<'_>> = rows.iter().filter(|other| other.cores() == row.cores()).collect();
    let rivals: Vec<&Row<'_>> = others.iter().copied().filter(|other| other.is_rival()).collect();
    let ceilings: Vec<&Row<'_>> = others.iter().copied().filter(|other| is_ceiling_of(row, other)).collect();
    Standing {
        row,
        user: least(row, &rivals, |measured| measured.user_us),
        whole: least(row, &rivals, |measured| measured.whole_us),
        memory: least(row, &rivals, |measured| measured.resident_mb).map(Against::unmarked),
        filled_memory: least(row, &rivals, |measured| measured.filled_mb).map(Against::unmarked),
        rival_throughput: most(row, &rivals, |measured| measured.responses_per_s),
        ceiling_throughput: most(row, &ceilings, |measured| measured.responses_per_s),
    }
}

/// The two are called `shoal-BACKEND` and `echo-BACKEND`.
fn is_ceiling_of(row: &Row<'_>, other: &Row<'_>) -> bool {
    let own = row.tracker.name.strip_prefix("shoal");
    other.tracker.is_ceiling && own.is_some() && other.tracker.name.strip_prefix("echo") == own
}

type Figure = fn(&Measured) -> Option<Spread>;

fn least<'a>(row: &Row<'a>, others: &[&'a Row<'a>], figure: Figure) -> Option<Against<'a>> {
    known(others, figure).min_by(|a, b| a.1.total_cmp(&b.1)).and_then(|best| against(row, best, figure))
}

fn most<'a>(row: &Row<'a>, others: &[&'a Row<'a>], figure: Figure) -> Option<Against<'a>> {
    known(others, figure).max_by(|a, b| a.1.total_cmp(&b.1)).and_then(|best| against(row, best, figure))
}

fn known<'a>(others: &[&'a Row<'a>], figure: Figure) -> impl Iterator<Item = (&'a Row<'a>, f64)> {
    let known = others.iter().filter_map(move |other| Some((*other, figure(other.measured()?)?.median)));
    // Nothing can be held against zero, or against a tracker that shrank while it was filled.
    known.filter(|(_, median)| *median > 0.0)
}

fn against<'a>(row: &Row<'_>, (other, value): (&'a Row<'a>, f64), figure: Figure) -> Option<Against<'a>> {
    let (own, others) = (row.measured()?, other.measured()?);
    Some(Against { ratio: figure(own)?.median / value, other, marks: own.marks.or(others.marks) })
}
