//! `shoal access`: changes and examines the lists of torrents.
//!
//! The commands work on the files that the configuration names. A running tracker watches these files, so a change
//! applies at once, and the commands work as well while no tracker runs. Only `reload` needs one.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde_json::json;
use shoal_access::HashKey;
use shoal_access::torrents::{Details, Entry};
use shoal_config::{Config, ListSource};
use shoal_types::InfoHash;

use super::audit::Author;
use super::edit;
use super::entries::{Entries, Reading};
use super::fetches::UrlContent;
use super::operations::{self, Changed, NewDetails, open_lines, parse_torrents};
use super::torrents::Torrents;
use crate::control_client::{ControlClient, Endpoint};
use crate::failure::Failure;
use crate::{config_file, log};

/// The exit code of a `check` that finds a torrent refused, and of a `remove` that finds nothing to remove.
const NEGATIVE: u8 = 3;

/// The exit code of a command whose result may not be that of a running tracker, because a source has lines that cannot
/// be read.
const FAULTY: u8 = 4;

/// Maximum number of lines of a source that a warning names.
const FAULTS_NAMED_MAX: usize = 10;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Add torrents to a list
    ///
    /// A tracker that runs applies it at once. The name of the user stands behind the entry and in the log, which goes to
    /// standard error, and in access.audit_file if the configuration names one. Exit code 4 if the file has lines that
    /// cannot be read: the torrents were added, but a running tracker keeps the entries that it had.
    Add(Add),
    /// Remove torrents from a list
    ///
    /// Exit code 3 if the file has none of them, and 4 if it has lines that cannot be read.
    Remove(Remove),
    /// Print the entries of the lists
    List(List),
    /// Tell whether torrents are served, or check all lists for lines that cannot be read
    ///
    /// Exit code 3 if one of the torrents is not served, and 4 if a list has lines that cannot be read, so that a
    /// running tracker may decide otherwise. Without a torrent, exit code 2 if a list has faults.
    Check(Check),
    /// Make the running tracker read all lists again, through its control listener, and print what it has then
    ///
    /// Changes apply without this command. Exit code 3 if a source cannot be read; it keeps its entries.
    Reload(Reload),
}

/// The list to change.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The list of refused torrents, access.torrents_deny
    #[arg(long)]
    deny: bool,

    /// The list of served torrents, access.torrents_allow
    #[arg(long)]
    allow: bool,
}

/// The file to change.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The configuration file of the tracker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The file of the list to change, if not its first one
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Print an object for each torrent
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    #[command(flatten)]
    which: Which,

    /// Info hashes (40 or 64 hexadecimal digits, or base32) or magnet links
    #[arg(value_name = "TORRENT", required = true)]
    torrents: Vec<String>,

    #[command(flatten)]
    details: NewDetails,

    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    which: Which,

    /// Info hashes or magnet links
    #[arg(value_name = "TORRENT", required = true)]
    torrents: Vec<String>,

    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print the list of refused torrents only
    #[arg(long, conflicts_with = "allow")]
    deny: bool,

    /// Print the list of served torrents only
    #[arg(long)]
    allow: bool,

    /// Print an object for each entry
    #[arg(long)]
    json: bool,

    /// The configuration file of the tracker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Info hashes or magnet links; without any, all lists are checked for faults
    #[arg(value_name = "TORRENT")]
    torrents: Vec<String>,

    /// Print an object for each torrent
    #[arg(long)]
    json: bool,

    /// The configuration file of the tracker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    /// Print what the tracker replies, as JSON
    #[arg(long)]
    json: bool,

    /// The configuration file of the tracker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The output of a command, and its exit code.
pub(crate) struct Outcome {
    pub(crate) text: String,
    pub(crate) code: ExitCode,
    /// The lines that a tracker cannot read, and what follows.
    pub(crate) warning: Option<String>,
}

impl Outcome {
    const fn new(text: String, code: ExitCode) -> Self {
        Self { text, code, warning: None }
    }

    /// Returns the outcome if the sources have these faults.
    fn with_faults(self, faults: &[String]) -> Self {
        if faults.is_empty() {
            return self;
        }
        let faults = faults.join("\n  ");
        let warning = format!(
            "a running tracker keeps the entries that it had of a source until all lines can be read:\n  {faults}"
        );
        Self { code: ExitCode::from(FAULTY), warning: Some(warning), ..self }
    }
}

/// Executes a command.
pub(crate) fn run(action: &Action) -> Result<Outcome, Failure> {
    match action {
        Action::Add(add) => run_add(add),
        Action::Remove(remove) => run_remove(remove),
        Action::List(list) => run_list(list),
        Action::Check(check) if check.torrents.is_empty() => run_check_of_lists(check),
        Action::Check(check) => run_check(check),
        Action::Reload(reload) => run_reload(reload),
    }
}

fn run_add(add: &Add) -> Result<Outcome, Failure> {
    let config = config_file::read(add.target.config.as_deref())?;
    let wanted = parse_torrents(&add.torrents)?;
    let (which, file) = (add.which.list(), add.target.file.as_deref());
    let changed = operations::add(&config, (which, file), &wanted, &add.details, Author::user())?;
    log::begin_for_command(&config.log);
    changed.record()?;
    let text = add.target.tell(which, &changed, &wanted, ["added", "present"], |was_added| {
        if was_added { "added to" } else { "is already in" }
    });
    Ok(Outcome::new(text, ExitCode::SUCCESS).with_faults(&faults_of(changed.path, &config)?))
}

fn run_remove(remove: &Remove) -> Result<Outcome, Failure> {
    let config = config_file::read(remove.target.config.as_deref())?;
    let wanted = parse_torrents(&remove.torrents)?;
    let (which, file) = (remove.which.list(), remove.target.file.as_deref());
    let changed = operations::remove(&config, (which, file), &wanted, Author::user())?;
    log::begin_for_command(&config.log);
    changed.record()?;
    let text = remove.target.tell(which, &changed, &wanted, ["removed", "absent"], |was_removed| {
        if was_removed { "removed from" } else { "is not in" }
    });
    let code = if changed.info_hashes.is_empty() { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS };
    Ok(Outcome::new(text, code).with_faults(&faults_of(changed.path, &config)?))
}

fn run_list(list: &List) -> Result<Outcome, Failure> {
    let config = config_file::read(list.config.as_deref())?;
    let mut text = String::new();
    for (name, source) in sources(&config) {
        if (list.deny && name != "deny") || (list.allow && name != "allow") {
            continue;
        }
        for_each_entry(source, &config, |entry| {
            if !list.json {
                return text.push_str(&format!("{name} {entry}\n"));
            }
            for info_hash in &entry.info_hashes {
                let object = json!({
                    "list": name, "info_hash": format!("{info_hash:?}"), "date": entry.date,
                    "reference": entry.reference, "reason": entry.reason, "source": source.to_string(),
                });
                text.push_str(&format!("{object}\n"));
            }
        })?;
    }
    Ok(Outcome::new(text, ExitCode::SUCCESS))
}

/// Where a torrent was found.
#[derive(Default)]
struct Found {
    is_allowed: bool,
    /// The first source of the deny list that has it.
    denied_by: Option<String>,
    /// The reason there.
    reason: Option<String>,
}

fn run_check(check: &Check) -> Result<Outcome, Failure> {
    let config = config_file::read(check.config.as_deref())?;
    let wanted = parse_torrents(&check.torrents)?;
    let mut found: Vec<Found> = wanted.iter().map(|_| Found::default()).collect();
    let mut faults = Vec::new();
    for (name, source) in sources(&config) {
        faults.extend(for_each_entry(source, &config, |entry| {
            for (info_hash, found) in wanted.iter().zip(&mut found) {
                if !entry.info_hashes.contains(info_hash) {
                    continue;
                }
                if name == "allow" {
                    found.is_allowed = true;
                } else if found.denied_by.is_none() {
                    found.denied_by = Some(source.to_string());
                    found.reason = entry.reason.map(str::to_owned);
                }
            }
        })?);
    }
    let serves_all = config.access.torrents_allow.is_empty();
    let (mut text, mut is_any_refused) = (String::new(), false);
    for (info_hash, found) in wanted.iter().zip(&found) {
        let reason = found.reason.as_deref();
        let (verdict, shown) = match &found.denied_by {
            Some(source) => {
                ("denied", format!("denied by {source}: {}", reason.unwrap_or("no reason given")))
            }
            None if serves_all || found.is_allowed => ("served", "served".to_owned()),
            None => ("not_allowed", "refused: it is on no allow list".to_owned()),
        };
        is_any_refused |= verdict != "served";
        if check.json {
            let source = &found.denied_by;
            let info_hash = format!("{info_hash:?}");
            let object =
                json!({"info_hash": info_hash, "verdict": verdict, "source": source, "reason": reason});
            text.push_str(&format!("{object}\n"));
        } else {
            text.push_str(&format!("{info_hash:?} {shown}\n"));
        }
    }
    let code = if is_any_refused { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS };
    Ok(Outcome::new(text, code).with_faults(&faults))
}

/// Checks every line of every list.
fn run_check_of_lists(check: &Check) -> Result<Outcome, Failure> {
    let config = config_file::read(check.config.as_deref())?;
    let (mut text, mut faults) = (String::new(), String::new());
    for (name, source) in sources(&config) {
        let shown = source;
        let file = match open_lines(source) {
            Ok(Some(file)) => file,
            Ok(None) => {
                match read_whole(source, &config) {
                    Ok(Reading { entries, faults: of_source, .. }) => {
                        let faulty = of_source.len();
                        text.push_str(&format!(
                            "{name} {shown}: {} torrents, {faulty} faults\n",
                            entries.len()
                        ));
                        faults.extend(of_source.iter().map(|fault| format!("{shown}: {fault}\n")));
                    }
                    Err(fault) => faults.push_str(&format!("{fault:#}\n")),
                }
                continue;
            }
            Err(error) => {
                faults.push_str(&format!("{error:#}\n"));
                continue;
            }
        };
        let (mut entries, mut faulty) = (0, 0);
        let read =
            edit::for_each_line(&file, |number, line| match Entry::parse(edit::without_end(number, line)) {
                Ok(entry) => entries += u64::from(entry.is_some()),
                Err(error) => {
                    faulty += 1;
                    if faulty <= FAULTS_NAMED_MAX {
                        faults.push_str(&format!("{shown}: line {number}: {error}\n"));
                    }
                }
            });
        read.with_context(|| format!("{shown} cannot be read"))?;
        text.push_str(&format!("{name} {shown}: {entries} entries, {faulty} lines that cannot be read\n"));
    }
    if faults.is_empty() {
        Ok(Outcome::new(text, ExitCode::SUCCESS))
    } else {
        Err(Failure::Configuration(faults))
    }
}

fn run_reload(reload: &Reload) -> Result<Outcome, Failure> {
    let config = config_file::read(reload.config.as_deref())?;
    let client = ControlClient::new(&Endpoint::of(&config)?)?;
    let told = client.request("POST", "/access/reload", Some(&json!({})))?;
    let (mut text, mut has_faults) = (String::new(), false);
    for source in told["sources"].as_array().into_iter().flatten() {
        let shown = |key: &str| source[key].as_str().unwrap_or_default().to_owned();
        let (list, name, entries) = (shown("list"), shown("source"), &source["entries"]);
        let fault = source["fault"].as_str().map_or_else(String::new, |fault| format!("; fault: {fault}"));
        has_faults |= !fault.is_empty();
        text.push_str(&format!("{list} {name}: {entries} entries{fault}\n"));
    }
    if text.is_empty() {
        text.push_str("the tracker has no lists\n");
    }
    if reload.json {
        text = format!("{told}\n");
    }
    let code = if has_faults { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS };
    Ok(Outcome::new(text, code))
}

impl Target {
    /// Tells what has become of each torrent: the words for people, or the `verdicts` in JSON.
    fn tell(
        &self,
        which: operations::Which,
        changed: &Changed,
        wanted: &[InfoHash],
        verdicts: [&str; 2],
        words: fn(bool) -> &'static str,
    ) -> String {
        let line = |info_hash: &InfoHash| {
            let (is_changed, shown) =
                (changed.info_hashes.contains(info_hash), changed.path.display().to_string());
            let info_hash = format!("{info_hash:?}");
            if !self.json {
                return format!("{info_hash} {} {shown}\n", words(is_changed));
            }
            let verdict = verdicts[usize::from(!is_changed)];
            format!(
                "{}\n",
                json!({"info_hash": info_hash, "list": which.name(), "outcome": verdict, "source": shown})
            )
        };
        wanted.iter().map(line).collect()
    }
}

impl Which {
    const fn list(&self) -> operations::Which {
        if self.deny { operations::Which::Deny } else { operations::Which::Allow }
    }
}

/// Returns the lines of a file that was changed that a tracker cannot read.
fn faults_of(path: PathBuf, config: &Config) -> Result<Vec<String>, Failure> {
    for_each_entry(&ListSource::Path(path), config, |_| ())
}

/// Returns every source of every list with the name of the list.
fn sources(config: &Config) -> impl Iterator<Item = (&'static str, &ListSource)> {
    let allow = config.access.torrents_allow.iter().map(|source| ("allow", source));
    allow.chain(config.access.torrents_deny.iter().map(|source| ("deny", source)))
}

/// Calls `each` with every entry of a source. Of a URL, these are the entries of the last good copy. Returns the first
/// lines that cannot be read, because of which a tracker keeps the entries that it had.
fn for_each_entry(
    source: &ListSource,
    config: &Config,
    mut each: impl FnMut(&Entry<'_>),
) -> Result<Vec<String>, Failure> {
    if let Some(file) = open_lines(source)? {
        let mut faults = Vec::new();
        let read =
            edit::for_each_line(&file, |number, line| match Entry::parse(edit::without_end(number, line)) {
                Ok(Some(entry)) => each(&entry),
                Err(error) if faults.len() < FAULTS_NAMED_MAX => {
                    faults.push(format!("{source}: line {number}: {error}"));
                }
                Ok(None) | Err(_) => {}
            });
        read.with_context(|| format!("{source} cannot be read"))?;
        return Ok(faults);
    }
    let reading = read_whole(source, config)?;
    for (info_hash, Details { date, reference, reason }) in
        reading.entries.tables().flat_map(|table| table.iter())
    {
        each(&Entry { info_hashes: [*info_hash].into_iter().collect(), date, reference, reason });
    }
    // A directory is whole even if some of its files are not, because each of them counts by itself.
    let faults = if reading.is_whole { Vec::new() } else { reading.faults };
    Ok(faults.iter().map(|fault| format!("{source}: {fault}")).collect())
}

/// Reads a source of any format but lines.
fn read_whole(source: &ListSource, config: &Config) -> anyhow::Result<Reading<Torrents>> {
    // The tables of a command are not looked up.
    let key = HashKey::new([0; 4]);
    let url = match source {
        ListSource::Path(path) => {
            let read = Torrents::default().read(path, &key).transpose();
            let read = read.unwrap_or_else(|| Torrents::read_whole(path, &key));
            return read.with_context(|| format!("{source} cannot be read"));
        }
        ListSource::Url(url) => url,
    };
    let folder = config.fetch.folder.as_ref().context("fetch.folder names no folder")?;
    let is_deny = config.access.torrents_deny.contains(source);
    let list = if is_deny { "torrents_deny" } else { "torrents_allow" };
    let copy = UrlContent::new(url, folder, list).read_copy(config.fetch.size_max.0, &key);
    let copy = copy.map_err(|fault| anyhow!("{source}: {fault}"))?;
    copy.with_context(|| format!("{source} has not been fetched yet"))
}
