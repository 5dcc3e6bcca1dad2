//! The report: a table for the terminal, JSON, and a Markdown table for the documentation.

use std::fmt::Write as _;

use anyhow::Context as _;
use comfy_table::{Cell, CellAlignment, Color, Table, presets};
use serde::Serialize;

use crate::measure::as_f64;
use crate::siege::attack::{Attack, Mode};
use crate::siege::matrix::{matrix_markdown, promises_markdown};
use crate::siege::run::Outcome;

/// The name and version of the JSON.
const SCHEMA: &str = "shoal-siege/1";

/// The outcome of a siege.
#[derive(Debug, Serialize)]
pub struct Report {
    schema: &'static str,
    #[serde(rename = "form")]
    mode: &'static str,
    held: bool,
    attacks: Vec<Outcome>,
    not_run: Vec<NotRun>,
}

/// An attack that could not be run.
#[derive(Debug, Serialize)]
struct NotRun {
    id: String,
    reason: String,
}

impl Report {
    /// Returns an empty report.
    pub fn new(mode: Mode) -> Self {
        let mode = match mode {
            Mode::Short => "short",
            Mode::Full => "full",
        };
        Self { schema: SCHEMA, mode, held: true, attacks: Vec::new(), not_run: Vec::new() }
    }

    /// Adds the outcome of an attack.
    pub fn add(&mut self, outcome: Outcome) {
        self.held &= outcome.has_held();
        self.attacks.push(outcome);
    }

    /// Adds an attack that could not be run.
    pub fn add_not_run(&mut self, attack: &Attack, reason: &anyhow::Error) {
        self.held = false;
        self.not_run.push(NotRun { id: attack.id(), reason: format!("{reason:#}") });
    }

    /// Returns the exit code: 0 if the tracker held against every attack, 1 if one got through, 2 if one could not be run.
    pub fn exit_code(&self) -> u8 {
        if self.attacks.iter().any(|outcome| !outcome.has_held()) {
            1
        } else if self.not_run.is_empty() {
            0
        } else {
            2
        }
    }

    /// Returns the report as JSON.
    ///
    /// # Errors
    /// Returns an error if serialization fails, which would be a bug.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Returns the report as a table for the terminal.
    pub fn text(&self, is_coloured: bool) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(HEADS);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_cell_alignment(if index < 2 { CellAlignment::Left } else { CellAlignment::Right });
        }
        for outcome in &self.attacks {
            let cells = row(outcome).into_iter().map(Cell::new);
            let colour = if outcome.has_held() { Color::Green } else { Color::Red };
            let colour = |(index, cell): (usize, Cell)| {
                if is_coloured && index == 1 { cell.fg(colour) } else { cell }
            };
            table.add_row(cells.enumerate().map(colour));
        }
        let mut text = format!("{table}\n");
        for outcome in self.attacks.iter().filter(|outcome| !outcome.has_held()) {
            let _ = writeln!(text, "\n{} got through: {}", outcome.id, outcome.tries);
            outcome.breaches.iter().for_each(|breach| _ = writeln!(text, "  {breach}"));
        }
        for not_run in &self.not_run {
            let _ = writeln!(text, "\n{} could not be run: {}", not_run.id, not_run.reason);
        }
        let held = self.attacks.iter().filter(|outcome| outcome.has_held()).count();
        let _ = writeln!(
            text,
            "\nthe tracker held against {held} of {} attacks",
            self.attacks.len() + self.not_run.len()
        );
        text
    }

    /// Returns the report as a Markdown table.
    pub fn markdown(&self) -> String {
        let mut text = format!("| {} |\n|---|---|{}\n", HEADS.join(" | "), "---:|".repeat(HEADS.len() - 2));
        for outcome in &self.attacks {
            let _ = writeln!(text, "| {} |", row(outcome).join(" | "));
        }
        text
    }

    /// Returns `page` with its generated parts replaced: the attacks by promise, and their results against the tracker of this
    /// version.
    ///
    /// # Errors
    /// Returns an error if the page lacks a mark.
    pub fn page(&self, page: &str, version: &str) -> anyhow::Result<String> {
        replace_between(&with_matrix(page)?, RESULTS_MARK, &self.results_markdown(version))
    }

    /// Returns the results as a table with a line for each group of attacks, and the attacks that got through.
    fn results_markdown(&self, version: &str) -> String {
        let held = self.attacks.iter().filter(|outcome| outcome.has_held()).count();
        let all = self.attacks.len() + self.not_run.len();
        let mut text = format!(
            "\nOf {all} attacks on `{version}` in {} mode, the tracker held against {held}.\n\n{RESULT_HEAD}",
            self.mode
        );
        for group in self.attacks.chunk_by(|one, next| group_of(one) == group_of(next)) {
            let held = group.iter().filter(|outcome| outcome.has_held()).count();
            let share = group.iter().map(|outcome| outcome.measured.share()).fold(1.0, f64::min);
            let peak = group.iter().map(|outcome| outcome.measured.resident_peak_bytes).max();
            let _ = writeln!(
                text,
                "| `{}/` | {} | {held} | {:.1} | {:.0} |",
                group_of(&group[0]),
                group.len(),
                share * 100.0,
                as_f64(peak.unwrap_or_default()) / f64::from(1 << 20)
            );
        }
        for outcome in self.attacks.iter().filter(|outcome| !outcome.has_held()) {
            let _ = writeln!(text, "\n`{}` got through: {}.", outcome.id, outcome.tries);
        }
        text
    }
}

/// The lines before the generated parts of a page. Each part ends at the next line with [`END_MARK`].
const PROMISES_MARK: &str =
    "<!-- promises; generated by `SHOAL_BLESS=1 cargo test -p shoal-trial --test page` -->\n";
const MATRIX_MARK: &str =
    "<!-- attacks; generated by `SHOAL_BLESS=1 cargo test -p shoal-trial --test page` -->\n";
const RESULTS_MARK: &str =
    "<!-- results; generated by `cargo xtask siege --short --page docs/siege.md` -->\n";
const END_MARK: &str = "\n<!-- end -->\n";

const RESULT_HEAD: &str =
    "| Attacks | Number | Held | Honest %, least | Peak MiB, most |\n|---|---:|---:|---:|---:|\n";

/// Returns the group of an attack, which its id begins with.
fn group_of(outcome: &Outcome) -> &str {
    outcome.id.split_once('/').map_or(outcome.id.as_str(), |(group, _)| group)
}

/// Returns docs/security.md with its list of promises as they are.
///
/// # Errors
/// Returns an error if the page lacks the mark.
pub fn with_promises(page: &str) -> anyhow::Result<String> {
    replace_between(page, PROMISES_MARK, &promises_markdown())
}

/// Returns docs/siege.md with its table of attacks by promise as they are.
///
/// # Errors
/// Returns an error if the page lacks the mark.
pub fn with_matrix(page: &str) -> anyhow::Result<String> {
    replace_between(page, MATRIX_MARK, &matrix_markdown())
}

/// Replaces what is between a mark and the end of its part.
fn replace_between(page: &str, mark: &str, part: &str) -> anyhow::Result<String> {
    let (head, rest) = page.split_once(mark).with_context(|| format!("the page lacks the line {mark}"))?;
    let (_, tail) =
        rest.split_once(END_MARK).with_context(|| format!("the page lacks an end after {mark}"))?;
    Ok([head, mark, part, END_MARK, tail].concat())
}

/// Returns a list of the attacks and promises.
pub fn list(attacks: &[&Attack]) -> String {
    let mut text = String::new();
    for attack in attacks {
        let _ =
            writeln!(text, "{}\n    tries: {}\n    promise: {}", attack.id(), attack.tries, attack.promise);
    }
    let _ = writeln!(text, "{} attacks", attacks.len());
    text
}

const HEADS: [&str; 11] = [
    "attack",
    "verdict",
    "honest %",
    "p50 ms",
    "p99 ms",
    "MiB before",
    "peak",
    "after",
    "CPU ms",
    "µs/message (µs/byte)",
    "recovery ms",
];

fn row(outcome: &Outcome) -> [String; HEADS.len()] {
    let measured = &outcome.measured;
    let mib = |bytes: u64| format!("{:.0}", as_f64(bytes) / f64::from(1 << 20));
    let (per_message, per_byte) =
        (measured.cpu_us_per(measured.hostile_messages), measured.cpu_us_per(measured.hostile_bytes));
    [
        outcome.id.clone(),
        if outcome.has_held() { "held" } else { "GOT THROUGH" }.to_owned(),
        format!("{:.1}", measured.share() * 100.0),
        format!("{:.1}", measured.p50_ms()),
        format!("{:.1}", measured.p99_ms()),
        mib(measured.resident_before_bytes),
        mib(measured.resident_peak_bytes),
        mib(measured.resident_after_bytes),
        format!("{:.0}", measured.cpu_ms),
        format!("{per_message:.1} ({per_byte:.3})"),
        measured.recovery_ms.map_or("never".to_owned(), |ms| format!("{ms:.0}")),
    ]
}
