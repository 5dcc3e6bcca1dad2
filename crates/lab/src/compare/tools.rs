//! What `compare` does besides comparing: lists trackers, prints descriptions, installs rivals.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use comfy_table::{Table, presets};
use serde::Serialize;
use shoal_compare::description::SHIPPED;
use shoal_compare::install::{TOOLS, Tool};
use shoal_compare::order::Contender;

use crate::output;

/// How tables look on a terminal.
pub(super) const STYLE: comfy_table::TableStyle = presets::UTF8_BORDERS_ONLY;

/// Of `--list --json`.
#[derive(Serialize)]
struct Listed<'l> {
    name: &'l str,
    program: Option<&'l Path>,
    version: Option<&'l str>,
    absent: Option<&'l str>,
    doubts: &'l [String],
}

/// Says of every tracker whether it is there.
pub(super) fn list(contenders: &[Contender], json: bool) -> Result<ExitCode> {
    if json {
        let listed: Vec<Listed<'_>> = contenders.iter().map(listed).collect();
        output::print(&(serde_json::to_string_pretty(&listed)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(STYLE).set_header(["tracker", "version", "program, or why it is absent"]);
    for contender in contenders {
        let entry = listed(contender);
        let program = entry.program.map(|program| program.display().to_string());
        let place = program.unwrap_or_else(|| format!("absent: {}", entry.absent.unwrap_or_default()));
        let place = entry.doubts.iter().fold(place, |place, doubt| format!("{place}\n({doubt})"));
        table.add_row([entry.name, entry.version.unwrap_or("-"), &place]);
    }
    output::print(&format!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn listed(contender: &Contender) -> Listed<'_> {
    let found = contender.found.as_ref();
    Listed {
        name: &contender.description.name,
        program: found.ok().map(|found| found.program.as_path()),
        version: found.ok().and_then(|found| found.version.as_deref()),
        absent: found.err().map(String::as_str),
        doubts: found.map(|found| &found.doubts[..]).unwrap_or_default(),
    }
}

/// The text of a shipped description.
pub(super) fn description(name: &str) -> Result<&'static str> {
    let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
    let names = SHIPPED.map(|(name, _)| name).join(", ");
    Ok(shipped.with_context(|| format!("there is no description {name:?}: use {names}"))?.1)
}

/// Prints a description.
pub(super) fn print_description(text: &str) -> Result<ExitCode> {
    output::print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The tools of these names; all if there are none.
pub(super) fn chosen(names: &[String]) -> Result<Vec<Tool>> {
    let known = TOOLS.map(|tool| tool.name);
    for name in names {
        ensure!(
            known.contains(&name.as_str()),
            "--install: there is no tool {name:?}: use {}",
            known.join(", ")
        );
    }
    let is_chosen = |tool: &Tool| names.is_empty() || names.iter().any(|name| name == tool.name);
    Ok(TOOLS.into_iter().filter(is_chosen).collect())
}

/// Brings rivals that registries have, and tells at the end what could not be had.
pub(super) fn install(chosen: &[Tool], folder: &Path) -> Result<ExitCode> {
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
        "\n{} of {} are there now, in {}",
        chosen.len() - failures.len(),
        chosen.len(),
        folder.display()
    );
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("Could not be had:\n{}", failures.join("\n"));
    Ok(ExitCode::FAILURE)
}
