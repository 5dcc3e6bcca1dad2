//! Shoal's position relative to the best rival and to the ceiling on the same number of cores, as ratios of medians.

use super::figure::Figure;
use super::round::Marks;
use super::row::Row;

pub(super) struct Ratio<'a> {
    /// Shoal's median divided by the other's.
    pub(super) value: f64,
    /// The error of the ratio, if that of both medians is known.
    pub(super) error: Option<f64>,
    pub(super) other: &'a Row<'a>,
    pub(super) marks: Marks,
}

impl Ratio<'_> {
    /// Removes the marks, for figures that are measured before the load and cannot be disturbed by it.
    fn unmarked(self) -> Self {
        Self { marks: Marks::default(), ..self }
    }

    /// Adds the error of a ratio of user parts.
    fn of_user_part(self, row: &Row<'_>) -> Self {
        let share = |row: &Row<'_>| {
            let measured = row.measured()?;
            Some(measured.of(Figure::UserErrorUs)?.median / measured.of(Figure::UserUs)?.median)
        };
        let error = share(row).zip(share(self.other)).map(|(own, other)| self.value * own.hypot(other));
        Self { error, ..self }
    }
}

/// One of Shoal's rows and its ratios. A ratio is missing if there is no other row, or a figure is missing.
pub(super) struct Ranking<'a> {
    pub(super) row: &'a Row<'a>,
    /// User part of the CPU time of a reply, to the least of the rivals.
    pub(super) user: Option<Ratio<'a>>,
    /// CPU time of a reply, to the least of the rivals.
    pub(super) whole: Option<Ratio<'a>>,
    /// Resident memory, to the least of the rivals.
    pub(super) memory: Option<Ratio<'a>>,
    /// Memory that the fill added, to the least of the rivals.
    pub(super) filled_memory: Option<Ratio<'a>>,
    /// Responses a second, to the most of the rivals.
    pub(super) rival_throughput: Option<Ratio<'a>>,
    /// Responses a second, to those of the ceiling with the same back end.
    pub(super) ceiling_throughput: Option<Ratio<'a>>,
}

pub(super) fn rankings<'a>(rows: &'a [Row<'a>]) -> Vec<Ranking<'a>> {
    let ranking = |row: &'a Row<'a>| {
        let others: Vec<&Row<'_>> = rows.iter().filter(|other| other.cores() == row.cores()).collect();
        let rivals: Vec<&Row<'_>> = others.iter().copied().filter(|other| other.is_rival()).collect();
        // The two are called `shoal-BACKEND` and `echo-BACKEND`.
        let backend = row.tracker.name.strip_prefix("shoal");
        let is_ceiling = |other: &&Row<'_>| {
            let is_same_backend = backend.is_some() && other.tracker.name.strip_prefix("echo") == backend;
            other.tracker.is_ceiling && is_same_backend
        };
        let ceilings: Vec<&Row<'_>> = others.iter().copied().filter(is_ceiling).collect();
        Ranking {
            row,
            user: least(row, &rivals, Figure::UserUs).map(|ratio| ratio.of_user_part(row)),
            whole: least(row, &rivals, Figure::WholeUs),
            memory: least(row, &rivals, Figure::ResidentMb).map(Ratio::unmarked),
            filled_memory: least(row, &rivals, Figure::FilledMb).map(Ratio::unmarked),
            rival_throughput: most(row, &rivals, Figure::ResponsesPerS),
            ceiling_throughput: most(row, &ceilings, Figure::ResponsesPerS),
        }
    };
    shoal_rows(rows).map(ranking).collect()
}

/// One of Shoal's rows and one rival on the same cores.
pub(super) struct Pairing<'a> {
    pub(super) row: &'a Row<'a>,
    pub(super) rival: &'a Row<'a>,
    pub(super) whole: Option<Ratio<'a>>,
    pub(super) user: Option<Ratio<'a>>,
    pub(super) throughput: Option<Ratio<'a>>,
}

/// Returns the pairing of each of Shoal's rows with each rival that was measured on the same cores.
pub(super) fn pairings<'a>(rows: &'a [Row<'a>]) -> Vec<Pairing<'a>> {
    let pairing = |row: &'a Row<'a>, rival: &'a Row<'a>| Pairing {
        row,
        rival,
        whole: least(row, &[rival], Figure::WholeUs),
        user: least(row, &[rival], Figure::UserUs).map(|ratio| ratio.of_user_part(row)),
        throughput: most(row, &[rival], Figure::ResponsesPerS),
    };
    let of_row = |row: &'a Row<'a>| {
        let rivals = rows.iter().filter(|other| other.is_rival() && other.measured().is_some());
        rivals.filter(|rival| rival.cores() == row.cores()).map(move |rival| pairing(row, rival))
    };
    shoal_rows(rows).flat_map(of_row).collect()
}

fn shoal_rows<'a>(rows: &'a [Row<'a>]) -> impl Iterator<Item = &'a Row<'a>> {
    rows.iter().filter(|row| row.is_shoal() && row.measured().is_some())
}

fn least<'a>(row: &Row<'a>, others: &[&'a Row<'a>], figure: Figure) -> Option<Ratio<'a>> {
    known(others, figure).min_by(|a, b| a.1.total_cmp(&b.1)).and_then(|best| ratio(row, best, figure))
}

fn most<'a>(row: &Row<'a>, others: &[&'a Row<'a>], figure: Figure) -> Option<Ratio<'a>> {
    known(others, figure).max_by(|a, b| a.1.total_cmp(&b.1)).and_then(|best| ratio(row, best, figure))
}

fn known<'a>(others: &[&'a Row<'a>], figure: Figure) -> impl Iterator<Item = (&'a Row<'a>, f64)> {
    let known = others.iter().filter_map(move |other| Some((*other, other.measured()?.of(figure)?.median)));
    // There is no ratio to zero, or to a tracker that shrank during the fill.
    known.filter(|(_, median)| *median > 0.0)
}

fn ratio<'a>(row: &Row<'_>, (other, median): (&'a Row<'a>, f64), figure: Figure) -> Option<Ratio<'a>> {
    let (own, others) = (row.measured()?, other.measured()?);
    let marks = own.marks.union(others.marks);
    Some(Ratio { value: own.of(figure)?.median / median, error: None, other, marks })
}
