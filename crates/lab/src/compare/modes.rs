//! The modes of `compare` other than a comparison (list trackers, print descriptions, install rivals), and the result
//! as a table on the terminal.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use shoal_compare::description::BUILT_IN;
use shoal_compare::installation::install::{InstallableTool, TOOLS};
use shoal_compare::plan::Contender;
use shoal_compare::report::{self, Columns, Summary};
use shoal_compare::result::Comparison;

use crate::terminal::{self, COLUMNS, wrapped};

const STYLE: comfy_table::TableStyle = presets::UTF8_BORDERS_ONLY;

/// The number of text columns in the summary. The others are figures.
const TEXT_COLUMNS: usize = 1;

/// Returns the verdict, the main table, and the meaning of its signs. The other tables are in the report.
pub(super) fn summary(comparison: &Comparison, columns: Columns) -> String {
    let Summary { verdict, head, rows, notes } = report::summary(comparison, columns);
    let mut table = new_table(columns);
    table.set_header(head).add_rows(rows);
    for column in table.column_iter_mut().skip(TEXT_COLUMNS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut out = format!("{}\n{}\n{table}\n", wrapped(&comparison.title, 0), wrapped(&verdict, 0));
    for note in notes {
        out += &wrapped(&note, 2);
        out.push('\n');
    }
    if columns == Columns::Few {
        out += "--wide shows all figures with their ranges.\n";
    }
    out
}

/// Returns an empty table. With few columns, it fits a terminal.
fn new_table(columns: Columns) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    if columns == Columns::Few {
        let width = u16::try_from(COLUMNS).unwrap_or(u16::MAX);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table
}

/// An entry of `--list --json`.
#[derive(Serialize)]
struct ListEntry<'l> {
    name: &'l str,
    program: Option<&'l Path>,
    version: Option<&'l str>,
    absent: Option<&'l str>,
    warnings: &'l [String],
}

/// Lists every tracker, and whether it is installed. The paths of the programs take all columns.
pub(super) fn list(contenders: &[Contender], json: bool, columns: Columns) -> Result<ExitCode> {
    if json {
        let listed: Vec<ListEntry<'_>> = contenders.iter().map(entry).collect();
        terminal::print(&(serde_json::to_string_pretty(&listed)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = new_table(columns);
    let has_programs = columns == Columns::All;
    let head =
        ["tracker", "version, or why it is absent"].into_iter().chain(has_programs.then_some("program"));
    table.set_header(head);
    for contender in contenders {
        let entry = entry(contender);
        let version = match entry.absent {
            Some(reason) => format!("absent: {reason}"),
            None => entry.version.unwrap_or("unknown").to_owned(),
        };
        let version = entry.warnings.iter().fold(version, |text, warning| format!("{text}\n({warning})"));
        let program = entry.program.map(|program| program.display().to_string()).unwrap_or_default();
        table.add_row([entry.name.to_owned(), version].into_iter().chain(has_programs.then_some(program)));
    }
    let note = if has_programs { "" } else { "--wide shows the programs, too.\n" };
    terminal::print(&format!("{table}\n{note}"))?;
    Ok(ExitCode::SUCCESS)
}

fn entry(contender: &Contender) -> ListEntry<'_> {
    let installation = contender.installation.as_ref();
    ListEntry {
        name: &contender.description.name,
        program: installation.ok().map(|installation| installation.program.as_path()),
        version: installation.ok().and_then(|installation| installation.version.as_deref()),
        absent: installation.err().map(String::as_str),
        warnings: installation.map(|installation| &installation.warnings[..]).unwrap_or_default(),
    }
}

pub(super) fn description(name: &str) -> Result<&'static str> {
    let known = BUILT_IN.iter().find(|(known, _)| *known == name);
    let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    Ok(known.with_context(|| terminal::unknown("description", name, &names))?.1)
}

/// Returns the tools with these names, or all if there are no names.
pub(super) fn chosen(names: &[String]) -> Result<Vec<InstallableTool>> {
    let known: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
    for name in names {
        ensure!(known.contains(&name.as_str()), "--install: {}", terminal::unknown("tool", name, &known));
    }
    let is_chosen = |tool: &&InstallableTool| names.is_empty() || names.iter().any(|name| name == tool.name);
    Ok(TOOLS.iter().filter(is_chosen).copied().collect())
}

/// Installs rivals from registries, and reports failures at the end.
pub(super) fn install(chosen: &[InstallableTool], folder: &Path) -> Result<ExitCode> {
    let folder = std::path::absolute(folder)?;
    eprintln!("Into {}:", folder.display());
    chosen.iter().for_each(|tool| eprintln!("  {}: {}", tool.name, tool.plan()));
    let mut failures = Vec::new();
    for tool in chosen {
        eprintln!("\n{}: {}", tool.name, tool.plan());
        if let Err(error) = tool.install(&folder) {
            eprintln!("{}: {error:#}", tool.name);
            failures.push(format!("  {}: {error:#}", tool.name));
        }
    }
    eprintln!(
        "\n{} of {} are installed in {}",
        chosen.len() - failures.len(),
        chosen.len(),
        folder.display()
    );
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("Not installed:\n{}", failures.join("\n"));
    Ok(ExitCode::FAILURE)
}
