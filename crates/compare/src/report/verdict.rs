//! The result in a sentence for each number of cores, which opens the report.

use super::figure::Figure;
use super::number;
use super::ranking::{self, Ranking, Ratio};
use super::round::Marks;
use super::row::Row;
use super::tables;
use super::unit::UnitLabels;

/// Returns the sentences: one for each number of cores, about the best of Shoal's rows against its rivals.
pub(super) fn verdict(rows: &[Row<'_>]) -> String {
    if tables::is_idle(rows) {
        return idle(rows);
    }
    let labels = UnitLabels::of(rows);
    let rankings = ranking::rankings(rows);
    let mut sentences: Vec<String> = Vec::new();
    for cores in super::row::core_counts(rows) {
        let of_cores = rankings.iter().filter(|ranking| ranking.row.cores() == Some(cores));
        // On several back ends, the fastest one stands for Shoal.
        let best = of_cores.max_by(|a, b| rate(a.row).total_cmp(&rate(b.row)));
        let on = if cores == 1 { "On one core".to_owned() } else { format!("On {cores} cores") };
        let sentence = match best {
            Some(best) => Some(against_rivals(best, &on, labels)),
            None => fastest(rows, cores, &on, labels),
        };
        sentences.extend(sentence);
    }
    if sentences.is_empty() {
        return "Nothing was measured: no round of any tracker counts.".into();
    }
    let marks = rows.iter().filter_map(Row::measured).fold(Marks::default(), |all, row| all.union(row.marks));
    if marks != Marks::default() {
        sentences
            .push(format!("Read figures with {} with care; the meaning is below the table.", marks.signs()));
    }
    sentences.join(" ")
}

fn rate(row: &Row<'_>) -> f64 {
    row.measured().and_then(|medians| medians.of(Figure::ResponsesPerS)).map_or(0.0, |spread| spread.median)
}

fn against_rivals(best: &Ranking<'_>, on: &str, labels: UnitLabels) -> String {
    let title = &best.row.tracker.title;
    let marks = best.row.measured().map(|measured| measured.marks).unwrap_or_default();
    let mut sentence = format!(
        "{on}, {title} sent {}{} {} a second",
        number::whole(rate(best.row)),
        marks.signs(),
        labels.many
    );
    let Some(rival) = &best.rival_throughput else {
        return sentence + "; no other tracker was measured.";
    };
    let times = |ratio: &Ratio<'_>| format!("{:.2}{}", ratio.value, ratio.marks.signs());
    sentence += &format!(
        ", {} times as many as {}, the fastest of the others",
        times(rival),
        rival.other.tracker.title
    );
    let less =
        [(&best.whole, format!("CPU time for each {}", labels.one)), (&best.memory, "memory".to_owned())];
    for (ratio, what) in less {
        if let Some(ratio) = ratio {
            sentence += &format!(
                "; it took {} times the {what} of {}, which took the least of them",
                times(ratio),
                ratio.other.tracker.title
            );
        }
    }
    sentence + "."
}

/// Returns the sentence of a comparison without Shoal.
fn fastest(rows: &[Row<'_>], cores: usize, on: &str, labels: UnitLabels) -> Option<String> {
    let measured = rows.iter().filter(|row| row.is_rival() && row.cores() == Some(cores) && rate(row) > 0.0);
    let fastest = measured.max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let marks = fastest.measured()?.marks.signs();
    let (title, rate) = (&fastest.tracker.title, number::whole(rate(fastest)));
    Some(format!("{on}, {title} was the fastest tracker, with {rate}{marks} {} a second.", labels.many))
}

fn idle(rows: &[Row<'_>]) -> String {
    let each = |row: &&Row<'_>| {
        let spread = row.measured().and_then(|medians| medians.of(Figure::IdleKib));
        spread.map_or(f64::INFINITY, |spread| spread.median)
    };
    let least = |is_wanted: fn(&Row<'_>) -> bool| {
        let wanted = rows.iter().filter(|row| is_wanted(row) && each(row).is_finite());
        wanted.min_by(|a, b| each(a).total_cmp(&each(b)))
    };
    let takes = |row: &Row<'_>| format!("{} KiB in {}", number::hundredths(each(&row)), row.tracker.title);
    match (least(|row| row.is_shoal()), least(|row| row.is_rival())) {
        (Some(shoal), Some(rival)) => {
            let of = each(&shoal) / each(&rival);
            format!(
                "An idle connection takes {}, {of:.2} times as much as {}, the least of the others.",
                takes(shoal),
                takes(rival)
            )
        }
        (Some(only), None) | (None, Some(only)) => format!("An idle connection takes {}.", takes(only)),
        (None, None) => "Nothing was measured: no round of any tracker counts.".into(),
    }
}
