//! All runs of a comparison, in turn, and the result as it grows.
//!
//! Rounds are interleaved: every tracker runs once on every number of cores before any runs a second time, and each
//! round begins with another one, so that what drifts on the machine meets all alike. Ceilings come last in a round,
//! because their replies are as long as those that a tracker gave.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::certificate::Certificate;
use crate::clock;
use crate::configuration;
use crate::description::{Description, Protocol};
use crate::division::Division;
use crate::find::Found;
use crate::machine;
use crate::order::{Contender, Event, Interrupt, Observer, Order};
use crate::result::{Cell, Comparison, Machine, Round, SCHEMA_VERSION, Tracker};
use crate::run::Run;

/// The file with the raw result.
pub const RESULTS: &str = "results.json";

/// The folder with the configurations as used.
const CONFIGURATIONS: &str = "configurations";

/// Bytes of an announce reply without peers, and of each peer (BEP 15).
const REPLY_HEAD_BYTES: usize = 20;
const PEER_BYTES: usize = 6;

/// Makes the comparison. The result is written after every run, so that nothing is lost if the next one brings the
/// machine down; there it is partial, until whoever asked writes what this returns by [`save`].
///
/// # Errors
/// Where results cannot be written even before the first run. What goes wrong with a tracker is in the result.
pub fn make(order: &Order, interrupt: &Interrupt, observer: &mut Observer<'_>) -> Result<Comparison> {
    let certificate = certificate(order)?;
    let mut comparison = prepare(order, certificate.as_ref())?;
    tell_beforehand(order, &comparison, observer);
    save(&comparison, &order.folder)?;
    let mut announce_reply_bytes =
        REPLY_HEAD_BYTES + PEER_BYTES * usize::try_from(order.load.numwant).unwrap_or(50);
    let mut number = 0;
    for round in 1..=order.rounds {
        for (index, division) in order.divisions.iter().enumerate() {
            for (contender, found) in in_turn(&order.contenders, round - 1) {
                if interrupt.leaves() {
                    return Ok(comparison);
                }
                number += 1;
                let description = &contender.description;
                observer(&Event::Run {
                    run: number,
                    round,
                    tracker: &description.title,
                    cores: division.cores,
                    processors: division.tracker.len(),
                });
                let (load, port, certificate) = (&order.load, order.port, certificate.as_ref());
                let run = Run {
                    description,
                    found,
                    division,
                    load,
                    certificate,
                    port,
                    announce_reply_bytes,
                    interrupt,
                };
                let outcome = run.run(round, observer);
                observer(&Event::Ended(&outcome));
                announce_reply_bytes = reply_bytes(description, &outcome).unwrap_or(announce_reply_bytes);
                add(&mut comparison, order, index, description, outcome);
                if let Err(error) = save(&comparison, &order.folder) {
                    observer(&Event::NotWritten(&format!("{error:#}")));
                }
            }
        }
    }
    // The last run may have been cut short.
    comparison.partial = interrupt.is_at_once();
    Ok(comparison)
}

/// The same for every tracker and round, since the kind of key decides what a handshake costs.
fn certificate(order: &Order) -> Result<Option<Certificate>> {
    let has_tls = matches!(order.load.transport.protocol(), Protocol::Https | Protocol::Wss);
    has_tls.then(Certificate::new).transpose().context("cannot make a certificate")
}

/// The result before anything ran: partial, with a cell for each tracker that is there.
fn prepare(order: &Order, certificate: Option<&Certificate>) -> Result<Comparison> {
    let trackers: Result<Vec<Tracker>> =
        order.contenders.iter().map(|contender| tracker(order, contender)).collect();
    let comparison = Comparison {
        schema_version: SCHEMA_VERSION,
        title: order.title.clone(),
        began: clock::timestamp(),
        command: order.command.clone(),
        commit: machine::commit(),
        machine: Machine::this(),
        load: settings(order, certificate),
        cpu_mode: order.cpu_mode.to_string(),
        rounds: order.rounds,
        trackers: trackers?,
        cells: cells(order),
        partial: true,
    };
    let configurations = order.folder.join(CONFIGURATIONS);
    fs::create_dir_all(&configurations)
        .with_context(|| format!("cannot create {}", configurations.display()))?;
    for tracker in comparison.trackers.iter().filter(|tracker| tracker.absent.is_none()) {
        let file = configurations.join(format!("{}.txt", tracker.name));
        fs::write(&file, &tracker.configuration)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(comparison)
}

fn settings(order: &Order, certificate: Option<&Certificate>) -> Vec<(String, String)> {
    let kind = |_| ("certificate".to_owned(), "ECDSA P-256, signed by itself, the same for all".to_owned());
    let doubts = order.doubts.iter().map(|doubt| note(doubt));
    order.load.settings().into_iter().chain(certificate.map(kind)).chain(doubts).collect()
}

/// Something that the reader should know, among the settings.
fn note(doubt: &str) -> (String, String) {
    ("note".to_owned(), doubt.to_owned())
}

fn cells(order: &Order) -> Vec<Cell> {
    let present = order.contenders.iter().filter(|contender| contender.found.is_ok());
    let cell = |contender: &Contender, division: &Division| Cell {
        tracker: contender.description.name.clone(),
        cores: division.cores,
        tracker_cpus: division.tracker.clone(),
        load_cpus: division.load.clone(),
        rounds: Vec::new(),
    };
    present
        .flat_map(|contender| order.divisions.iter().map(move |division| cell(contender, division)))
        .collect()
}

fn tracker(order: &Order, contender: &Contender) -> Result<Tracker> {
    let description = &contender.description;
    let mut notes = description.notes.clone();
    let found = contender.found.as_ref();
    notes.extend(found.map(|found| found.doubts.clone()).unwrap_or_default());
    Ok(Tracker {
        name: description.name.clone(),
        title: description.title.clone(),
        version: found.ok().and_then(|found| found.version.clone()),
        is_ceiling: description.ceiling,
        absent: found.err().cloned(),
        configuration: found
            .ok()
            .map(|found| as_used(order, description, found))
            .transpose()?
            .unwrap_or_default(),
        notes,
    })
}

/// The configuration on the fewest cores, without what is different in each run: `FOLDER`, `BYTES`, and port 6969
/// unless one was asked for.
fn as_used(order: &Order, description: &Description, found: &Found) -> Result<String> {
    let fewest = order.divisions.iter().min_by_key(|division| division.cores);
    let workers = fewest.map_or(1, |division| division.tracker.len());
    let values_at = |port: u16| {
        let address = ([127, 0, 0, 1], port).into();
        let mut values = configuration::values(address, workers, "FOLDER", &order.load, 0);
        values.set("announce_reply_bytes", "BYTES");
        values
    };
    let port = order.port.unwrap_or(6969);
    let name = |program: &Path| program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let program = name(&found.program);
    let Some(front) = &found.front else {
        return Ok(configuration::in_full(description, &program, &values_at(port), None)?);
    };
    let backend_port = port.wrapping_add(1);
    let mut of_front = values_at(port);
    of_front.set("backend_port", backend_port);
    let front = Some((name(front), of_front));
    let front = front.as_ref().map(|(program, values)| (program.as_str(), values));
    Ok(configuration::in_full(description, &program, &values_at(backend_port), front)?)
}

fn tell_beforehand(order: &Order, comparison: &Comparison, observer: &mut Observer<'_>) {
    observer(&Event::Began { runs: comparison.cells.len() * order.rounds, folder: &order.folder });
    for contender in &order.contenders {
        let name = &contender.description.name;
        match &contender.found {
            Err(reason) => observer(&Event::Absent { tracker: name, reason }),
            Ok(found) => {
                found.doubts.iter().for_each(|doubt| observer(&Event::Doubt(&format!("{name}: {doubt}"))))
            }
        }
    }
    order.doubts.iter().for_each(|doubt| observer(&Event::Doubt(doubt)));
}

/// Who is there, in the order of this round: trackers, each round beginning with the next one, then ceilings.
fn in_turn(contenders: &[Contender], turn: usize) -> Vec<(&Contender, &Found)> {
    let present = contenders.iter().filter_map(|contender| Some((contender, contender.found.as_ref().ok()?)));
    let (ceilings, mut trackers): (Vec<_>, Vec<_>) =
        present.partition(|(contender, _)| contender.description.ceiling);
    if !trackers.is_empty() {
        let first = turn % trackers.len();
        trackers.rotate_left(first);
    }
    trackers.extend(ceilings);
    trackers
}

/// How long the announce replies of this run were, if it was one that an echo should imitate: Shoal's, since the echo
/// is the ceiling of its back ends.
fn reply_bytes(description: &Description, outcome: &Round) -> Option<usize> {
    let load = outcome.load.as_ref()?;
    let imitated = description.name.starts_with("shoal") && load.responses.announce > 0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what a datagram can hold, and a reply over HTTP is not longer"
    )]
    let bytes = load.announce_reply_bytes.round().clamp(20.0, 1400.0) as usize;
    imitated.then_some(bytes)
}

fn add(comparison: &mut Comparison, order: &Order, division: usize, of: &Description, outcome: Round) {
    let cores = order.divisions[division].cores;
    let cell = comparison.cells.iter_mut().find(|cell| cell.tracker == of.name && cell.cores == cores);
    cell.expect("every tracker that is there has a cell for every number of cores").rounds.push(outcome);
}

/// Writes the raw result. It is there as a whole or not at all.
///
/// # Errors
/// Where it cannot be written.
pub fn save(comparison: &Comparison, folder: &Path) -> Result<()> {
    let file = folder.join(RESULTS);
    let partial = folder.join(".results.json.part");
    let text = serde_json::to_string_pretty(comparison).context("the result does not fit JSON")?;
    fs::write(&partial, text + "\n").with_context(|| format!("cannot write {}", partial.display()))?;
    fs::rename(&partial, &file).with_context(|| format!("cannot write {}", file.display()))
}

/// Reads a raw result back.
///
/// # Errors
/// Where there is none, or it is of another schema.
pub fn load(folder: &Path) -> Result<Comparison> {
    let file = folder.join(RESULTS);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let comparison: Comparison = serde_json::from_str(&text)
        .with_context(|| format!("{} is no result of a comparison", file.display()))?;
    let version = comparison.schema_version;
    anyhow::ensure!(
        version == SCHEMA_VERSION,
        "{}: schema {version}, but this reads {SCHEMA_VERSION}",
        file.display()
    );
    Ok(comparison)
}

/// Makes a new folder for results below `parent`, named by the time and `name`.
///
/// # Errors
/// Where it cannot be made.
pub fn new_folder(parent: &Path, name: &str) -> Result<std::path::PathBuf> {
    let stem = format!("{}-{name}", clock::folder_stamp());
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

    fn contender(name: &str, ceiling: bool, is_there: bool) -> Contender {
        let text = format!(
            "name = \"{name}\"\ntitle = \"{name}\"\nprotocols = [\"udp\"]\nceiling = {ceiling}\n[find]\npath = [\"x\"]\n"
        );
        let found = Found { program: "/x".into(), version: None, doubts: Vec::new(), front: None };
        Contender {
            description: Description::parse(&text).unwrap(),
            found: if is_there { Ok(found) } else { Err("not installed".into()) },
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
