//! What `compare` does besides comparing: lists trackers, prints descriptions, installs rivals.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use comfy_table::{Table, presets};
use serde::Serialize;
use shoal_compare::description::SHIPPED;
use shoal_compare::install::TOOLS;
use shoal_compare::order::Contender;

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
    let mut out = io::stdout().lock();
    if json {
        let listed: Vec<Listed<'_>> = contenders.iter().map(listed).collect();
        serde_json::to_writer_pretty(&mut out, &listed)?;
        writeln!(out)?;
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
    writeln!(out, "{table}")?;
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

/// Prints a shipped description.
pub(super) fn print_description(name: &str) -> Result<ExitCode> {
    let names = SHIPPED.map(|(name, _)| name).join(", ");
    let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
    ensure!(shipped.is_some(), "there is no description {name:?}: use {names}");
    if let Some((_, text)) = shipped {
        write!(io::stdout().lock(), "{text}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Brings the rivals that registries have, all or those named, and tells at the end what could not be had.
pub(super) fn install(names: &[String], folder: &Path) -> Result<ExitCode> {
    let known = TOOLS.map(|tool| tool.name);
    for name in names {
        ensure!(
            known.contains(&name.as_str()),
            "--install: there is no tool {name:?}: use {}",
            known.join(", ")
        );
    }
    let folder = std::path::absolute(folder)?;
    let chosen: Vec<_> =
        TOOLS.iter().filter(|tool| names.is_empty() || names.iter().any(|name| name == tool.name)).collect();
    eprintln!("Into {}:", folder.display());
    chosen.iter().for_each(|tool| eprintln!("  {}: {}", tool.name, tool.plan()));
    let mut failures = Vec::new();
    for tool in &chosen {
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
