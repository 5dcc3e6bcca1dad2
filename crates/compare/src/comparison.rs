//! Runs a comparison: all runs in turn, with the result written after each.
//!
//! Every tracker runs once on every number of cores before any runs again. Each round begins with a different tracker,
//! so that drift of the machine affects all alike. Ceilings come last, because their replies are as long as a
//! tracker's.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::certificate::Certificate;
use crate::configuration;
use crate::cpu_assignment::CpuAssignment;
use crate::description::{Description, Protocol};
use crate::installation::Installation;
use crate::machine;
use crate::network::Network;
use crate::plan::{ComparisonEvent, ComparisonPlan, Contender, Interrupt, Observer};
use crate::result::{Cell, Comparison, Machine, Round, SCHEMA_VERSION, Tracker};
use crate::run::Run;

pub const RESULTS: &str = "results.json";

const CONFIGURATIONS: &str = "configurations";

/// Bytes of an announce reply without peers, and of each peer (BEP 15).
const REPLY_HEAD_BYTES: usize = 20;
const PEER_BYTES: usize = 6;

/// Runs the comparison. The result is written after every run, in case a run crashes the machine, and is partial until
/// the caller passes the returned one to [`save`]. Failures of trackers are part of it; an error means that nothing
/// could be written.
pub fn run(plan: &ComparisonPlan, interrupt: &Interrupt, observer: &mut Observer<'_>) -> Result<Comparison> {
    // All trackers and rounds share the certificate, because the kind of key determines the cost of a handshake.
    let has_tls = matches!(plan.load.transport.protocol(), Protocol::Https | Protocol::Wss);
    let certificate = has_tls.then(Certificate::new).transpose().context("cannot create a certificate")?;
    let certificate = certificate.as_ref();
    let mut comparison = prepare(plan, certificate)?;
    let network = Network::new(plan.load.network)?;
    announce(plan, &comparison, observer);
    save(&comparison, &plan.folder)?;
    let mut announce_reply_bytes =
        REPLY_HEAD_BYTES + PEER_BYTES * usize::try_from(plan.load.numwant).unwrap_or(50);
    let mut number = 0;
    for round in 1..=plan.rounds {
        for (index, assignment) in plan.assignments.iter().enumerate() {
            for (contender, installation) in in_turn(&plan.contenders, round - 1) {
                if interrupt.is_requested() {
                    return Ok(comparison);
                }
                number += 1;
                let description = &contender.description;
                observer(&ComparisonEvent::RunStarted {
                    run: number,
                    round,
                    tracker: &description.title,
                    cores: assignment.cores,
                    processors: &assignment.tracker,
                });
                let (load, port) = (&plan.load, plan.port);
                let run = Run {
                    description,
                    installation,
                    assignment,
                    load,
                    certificate,
                    port,
                    network: &network,
                    announce_reply_bytes,
                    interrupt,
                };
                let outcome = run.run(round, observer);
                observer(&ComparisonEvent::RunEnded(&outcome));
                announce_reply_bytes = reply_bytes(description, &outcome).unwrap_or(announce_reply_bytes);
                let cores = plan.assignments[index].cores;
                let is_cell = |cell: &&mut Cell| cell.tracker == description.name && cell.cores == cores;
                let cell = comparison.cells.iter_mut().find(is_cell);
                cell.expect("every installed tracker has a cell for every number of cores")
                    .rounds
                    .push(outcome);
                if let Err(error) = save(&comparison, &plan.folder) {
                    observer(&ComparisonEvent::SaveFailed(&format!("{error:#}")));
                }
            }
        }
    }
    // The last run may have been cut short.
    comparison.partial = interrupt.is_immediate();
    Ok(comparison)
}

/// Creates the result before the first run: partial, with a cell for each installed tracker.
fn prepare(plan: &ComparisonPlan, certificate: Option<&Certificate>) -> Result<Comparison> {
    let trackers: Result<Vec<Tracker>> =
        plan.contenders.iter().map(|contender| tracker(plan, contender)).collect();
    let comparison = Comparison {
        schema_version: SCHEMA_VERSION,
        title: plan.title.clone(),
        began: machine::timestamp(),
        command: plan.command.clone(),
        commit: machine::commit(),
        machine: Machine::this(),
        load: settings(plan, certificate),
        cpu_mode: plan.cpu_mode.to_string(),
        rounds: plan.rounds,
        trackers: trackers?,
        cells: cells(plan),
        partial: true,
    };
    let configurations = plan.folder.join(CONFIGURATIONS);
    fs::create_dir_all(&configurations)
        .with_context(|| format!("cannot create {}", configurations.display()))?;
    for tracker in comparison.trackers.iter().filter(|tracker| tracker.absent.is_none()) {
        let file = configurations.join(format!("{}.txt", tracker.name));
        fs::write(&file, &tracker.configuration)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(comparison)
}

fn settings(plan: &ComparisonPlan, certificate: Option<&Certificate>) -> Vec<(String, String)> {
    let kind = |_| ("certificate".to_owned(), "ECDSA P-256, self-signed, the same for all".to_owned());
    let warnings = plan.warnings.iter().map(|warning| ("note".to_owned(), warning.clone()));
    plan.load.settings().into_iter().chain(certificate.map(kind)).chain(warnings).collect()
}

fn cells(plan: &ComparisonPlan) -> Vec<Cell> {
    let installed = plan.contenders.iter().filter(|contender| contender.installation.is_ok());
    let cell = |contender: &Contender, assignment: &CpuAssignment| Cell {
        tracker: contender.description.name.clone(),
        cores: assignment.cores,
        tracker_cpus: assignment.tracker.clone(),
        load_cpus: assignment.load.clone(),
        rounds: Vec::new(),
    };
    installed
        .flat_map(|contender| plan.assignments.iter().map(move |assignment| cell(contender, assignment)))
        .collect()
}

fn tracker(plan: &ComparisonPlan, contender: &Contender) -> Result<Tracker> {
    let description = &contender.description;
    let mut notes = description.notes.clone();
    let installation = contender.installation.as_ref();
    notes.extend(installation.map(|installation| installation.warnings.clone()).unwrap_or_default());
    let configuration =
        installation.ok().map(|installation| shown_configuration(plan, description, installation));
    Ok(Tracker {
        name: description.name.clone(),
        title: description.title.clone(),
        version: installation.ok().and_then(|installation| installation.version.clone()),
        is_ceiling: description.ceiling,
        absent: installation.err().cloned(),
        configuration: configuration.transpose()?.unwrap_or_default(),
        notes,
    })
}

/// Returns the configuration on the fewest cores. `FOLDER` and `BYTES` stand for values that differ in each run, and so
/// does port 6969 unless the plan has a port.
fn shown_configuration(
    plan: &ComparisonPlan,
    description: &Description,
    installation: &Installation,
) -> Result<String> {
    let fewest = plan.assignments.iter().min_by_key(|assignment| assignment.cores);
    let workers = fewest.map_or(1, |assignment| assignment.tracker.len());
    let values_at = |port: u16| {
        let address = ([127, 0, 0, 1], port).into();
        let mut values = configuration::values(address, workers, "FOLDER", &plan.load, 0, "INTERFACE");
        values.set("announce_reply_bytes", "BYTES");
        values
    };
    let port = plan.port.unwrap_or(6969);
    let name = |program: &Path| program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let program = name(&installation.program);
    let Some(front) = &installation.front else {
        return Ok(configuration::in_full(description, &program, &values_at(port), None)?);
    };
    let backend_port = port.wrapping_add(1);
    let mut front_values = values_at(port);
    front_values.set("backend_port", backend_port);
    let front = name(front);
    let front = Some((front.as_str(), &front_values));
    Ok(configuration::in_full(description, &program, &values_at(backend_port), front)?)
}

fn announce(plan: &ComparisonPlan, comparison: &Comparison, observer: &mut Observer<'_>) {
    let runs = comparison.cells.len() * plan.rounds;
    observer(&ComparisonEvent::Started { runs, folder: &plan.folder });
    for contender in &plan.contenders {
        let name = &contender.description.name;
        match &contender.installation {
            Err(reason) => observer(&ComparisonEvent::Absent { tracker: name, reason }),
            Ok(installation) => {
                for warning in &installation.warnings {
                    observer(&ComparisonEvent::Warning(&format!("{name}: {warning}")));
                }
            }
        }
    }
    plan.warnings.iter().for_each(|warning| observer(&ComparisonEvent::Warning(warning)));
}

/// Returns the installed contenders in the order of round `turn`: first the trackers, each round beginning with the
/// next one, then the ceilings.
fn in_turn(contenders: &[Contender], turn: usize) -> Vec<(&Contender, &Installation)> {
    let installed =
        contenders.iter().filter_map(|contender| Some((contender, contender.installation.as_ref().ok()?)));
    let (ceilings, mut trackers): (Vec<_>, Vec<_>) =
        installed.partition(|(contender, _)| contender.description.ceiling);
    if !trackers.is_empty() {
        let first = turn % trackers.len();
        trackers.rotate_left(first);
    }
    trackers.extend(ceilings);
    trackers
}

/// Returns the length of Shoal's announce replies in a run. The echo imitates them, since it is the ceiling.
fn reply_bytes(description: &Description, outcome: &Round) -> Option<usize> {
    let load = outcome.load.as_ref()?;
    let imitated = description.name.starts_with("shoal") && load.responses.announce > 0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the size of a datagram, and replies over HTTP are not longer"
    )]
    let bytes = load.announce_reply_bytes.round().clamp(20.0, 1400.0) as usize;
    imitated.then_some(bytes)
}

/// Writes the raw result. The file is replaced atomically.
pub fn save(comparison: &Comparison, folder: &Path) -> Result<()> {
    let file = folder.join(RESULTS);
    let partial = folder.join(".results.json.part");
    let text = serde_json::to_string_pretty(comparison).context("the result does not fit JSON")?;
    fs::write(&partial, text + "\n").with_context(|| format!("cannot write {}", partial.display()))?;
    fs::rename(&partial, &file).with_context(|| format!("cannot write {}", file.display()))
}

pub fn load(folder: &Path) -> Result<Comparison> {
    let file = folder.join(RESULTS);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let comparison: Comparison = serde_json::from_str(&text)
        .with_context(|| format!("{} is not the result of a comparison", file.display()))?;
    let version = comparison.schema_version;
    anyhow::ensure!(
        version == SCHEMA_VERSION,
        "{}: schema {version}, but this version reads {SCHEMA_VERSION}",
        file.display()
    );
    Ok(comparison)
}

/// Creates a new folder for results below `parent`, named after the time and `name`.
pub fn new_folder(parent: &Path, name: &str) -> Result<std::path::PathBuf> {
    let stem = format!("{}-{name}", machine::folder_stamp());
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let names = std::iter::once(stem.clone()).chain((2..100).map(|number| format!("{stem}-{number}")));
    for folder in names.map(|name| parent.join(name)) {
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot create {}", folder.display())),
        }
    }
    anyhow::bail!("{} has a hundred results of this minute", parent.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(name: &str, ceiling: bool, is_installed: bool) -> Contender {
        let text = format!(
            "name = \"{name}\"\ntitle = \"{name}\"\nprotocols = [\"udp\"]\nceiling = {ceiling}\n[find]\npath = [\"x\"]\n"
        );
        let installation =
            Installation { program: "/x".into(), version: None, warnings: Vec::new(), front: None };
        Contender {
            description: Description::parse(&text).unwrap(),
            installation: if is_installed { Ok(installation) } else { Err("not installed".into()) },
        }
    }

    #[test]
    fn rounds_begin_with_another_tracker_and_end_with_the_ceilings() {
        let all = [
            contender("echo", true, true),
            contender("a", false, true),
            contender("gone", false, false),
            contender("b", false, true),
            contender("c", false, true),
        ];
        let names = |turn| -> Vec<&str> {
            in_turn(&all, turn)
                .into_iter()
                .map(|(contender, _)| contender.description.name.as_str())
                .collect()
        };
        assert_eq!(names(0), ["a", "b", "c", "echo"]);
        assert_eq!(names(1), ["b", "c", "a", "echo"]);
        assert_eq!(names(3), names(0));
        assert!(in_turn(&all[2..3], 1).is_empty());
    }

    #[test]
    fn folders_of_one_minute_are_numbered() {
        let parent = tempfile::tempdir().unwrap();
        let [one, two] = [(); 2].map(|()| new_folder(&parent.path().join("bench-runs"), "x").unwrap());
        assert!(one != two && one.is_dir() && two.is_dir());
        assert!(one.file_name().unwrap().to_str().unwrap().ends_with("-x"), "{one:?}");
    }
}
