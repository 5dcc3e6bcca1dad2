//! `shoal access`: changes and examines the lists of torrents.
//!
//! The commands work on the files in the configuration. A running tracker watches these files, so a change applies at
//! once, and the commands also work while no tracker runs. Only `reload` needs one, and so does a `check` without a
//! configuration, which asks it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde_json::json;
use shoal_access::HashKey;
use shoal_access::budget::Budget;
use shoal_access::faults::Faults;
use shoal_access::torrents::{Details, Entry, LineError};
use shoal_base::InfoHash;
use shoal_config::{Config, ListSource};

use crate::client::{ClientError, ControlClient, Endpoint};
use shoal_runtime::config_file;
use shoal_runtime::failure::Failure;
use shoal_runtime::lists::audit::Author;
use shoal_runtime::lists::edit;
use shoal_runtime::lists::entries::{Build, Entries, Reading};
use shoal_runtime::lists::fetches::UrlContent;
use shoal_runtime::lists::networks::Networks;
use shoal_runtime::lists::operations::{self, Changed, NewDetails, open_lines, parse_torrents};
use shoal_runtime::lists::owners::Owners;
use shoal_runtime::lists::torrents::Torrents;

/// The exit code if lists have faults, like for a faulty configuration.
const UNREADABLE: u8 = 2;

/// The exit code of a `check` that finds a refused torrent, and of a `remove` that finds nothing to remove.
const NEGATIVE: u8 = 3;

/// The exit code of a command whose result may differ from a running tracker's, because a source has unreadable lines.
const FAULTY: u8 = 4;

/// The commands of `shoal access`.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Add torrents to a list
    ///
    /// A tracker that runs applies it at once. The name of the user stands behind the entry, and in access.audit_file if the
    /// configuration names one. Exit code 4 if the file has faulty lines: the torrents were added, but if more than 1 % of the
    /// lines are faulty, a running tracker keeps the entries that it had.
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
    /// The configuration file of the tracker [default: /etc/shoal/shoal.toml, if there is one]
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
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Add {
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
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Remove {
    #[command(flatten)]
    which: Which,

    /// Info hashes or magnet links
    #[arg(value_name = "TORRENT", required = true)]
    torrents: Vec<String>,

    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct List {
    /// Print the list of refused torrents only
    #[arg(long, conflicts_with = "allow")]
    deny: bool,

    /// Print the list of served torrents only
    #[arg(long)]
    allow: bool,

    /// Print an object for each entry
    #[arg(long)]
    json: bool,

    /// The configuration file of the tracker [default: /etc/shoal/shoal.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Check {
    /// Info hashes or magnet links; without any, all lists are checked for faults
    #[arg(value_name = "TORRENT")]
    torrents: Vec<String>,

    /// Print an object for each torrent
    #[arg(long)]
    json: bool,

    /// The configuration file of the tracker; without it, the running tracker is asked
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Reload {
    /// Print what the tracker replies, as JSON
    #[arg(long)]
    json: bool,

    /// The configuration file of the tracker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The output of a command, and its exit code.
pub struct Outcome {
    /// The output.
    pub text: String,
    /// The exit code.
    pub code: ExitCode,
    /// The lines that a tracker cannot read, and the consequences.
    pub warning: Option<String>,
}

impl Outcome {
    const fn new(text: String, code: ExitCode) -> Self {
        Self { text, code, warning: None }
    }

    /// Adds the faults of sources to the outcome.
    fn with_faults(self, faults: &[String]) -> Self {
        if faults.is_empty() {
            return self;
        }
        let faults = faults.join("\n  ");
        let warning = format!(
            "a running tracker leaves faulty lines out, and if they are more than 1 % of a list, it keeps the entries that it \
             had:\n  {faults}"
        );
        Self { code: ExitCode::from(FAULTY), warning: Some(warning), ..self }
    }
}

/// Executes a command.
pub fn run(action: &Action) -> Result<Outcome, Failure> {
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
    let config = config_file::read_or_usual(add.target.config.as_deref())?;
    let wanted = parse_torrents(&add.torrents)?;
    let (which, file) = (add.which.list(), add.target.file.as_deref());
    let changed = operations::add(&config, (which, file), &wanted, &add.details, Author::user())?;
    changed.record()?;
    let text = add.target.tell(which, &changed, &wanted, ["added", "present"], |was_added| {
        if was_added { "added to" } else { "is already in" }
    });
    Ok(Outcome::new(text, ExitCode::SUCCESS).with_faults(&faults_of(changed.path, &config)?))
}

fn run_remove(remove: &Remove) -> Result<Outcome, Failure> {
    let config = config_file::read_or_usual(remove.target.config.as_deref())?;
    let wanted = parse_torrents(&remove.torrents)?;
    let (which, file) = (remove.which.list(), remove.target.file.as_deref());
    let changed = operations::remove(&config, (which, file), &wanted, Author::user())?;
    changed.record()?;
    let text = remove.target.tell(which, &changed, &wanted, ["removed", "absent"], |was_removed| {
        if was_removed { "removed from" } else { "is not in" }
    });
    let code = if changed.info_hashes.is_empty() { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS };
    Ok(Outcome::new(text, code).with_faults(&faults_of(changed.path, &config)?))
}

fn run_list(list: &List) -> Result<Outcome, Failure> {
    let config = config_file::read_or_usual(list.config.as_deref())?;
    let mut text = String::new();
    for (name, source) in sources(&config) {
        if (list.deny && name != "deny") || (list.allow && name != "allow") {
            continue;
        }
        for_each_entry((&format!("torrents_{name}"), source), &config, |entry| {
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
    /// The first source of the deny list that contains it.
    denied_by: Option<String>,
    /// The reason there.
    reason: Option<String>,
}

/// Which lists contain which torrents.
struct Findings {
    /// In the order of the torrents.
    found: Vec<Found>,
    /// Whether there is no allow list.
    serves_all: bool,
    faults: Vec<String>,
}

fn run_check(check: &Check) -> Result<Outcome, Failure> {
    let config = config_file::read(check.config.as_deref())?;
    let wanted = parse_torrents(&check.torrents)?;
    // Without a configuration there are no lists to look at, which proves nothing about the tracker's lists.
    let is_of_tracker = check.config.is_none() && sources(&config).next().is_none();
    let Findings { found, serves_all, faults } =
        if is_of_tracker { ask_tracker(&config, &wanted)? } else { look_up(&config, &wanted)? };
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

/// Asks the running tracker for the entries of torrents, and for the faults of its lists.
fn ask_tracker(config: &Config, wanted: &[InfoHash]) -> Result<Findings, Failure> {
    let client = ControlClient::new(&Endpoint::of(config)?)?;
    let told = client.get("/api/v1/lists").map_err(|error| match error {
        ClientError::Transport(fault) => Failure::Configuration(format!(
            "no list is configured here, and the running tracker does not tell: {fault}; --config FILE names its configuration"
        )),
        error => error.into(),
    })?;
    let entry = |list: &str, info_hash: &InfoHash| {
        let told = client.get(&format!("/api/v1/lists/{list}/torrents?info_hash={info_hash:?}"))?;
        Ok::<_, ClientError>(told["entries"].get(0).cloned())
    };
    let mut found = Vec::new();
    for info_hash in wanted {
        let (denied, allowed) = (entry("deny", info_hash)?, entry("allow", info_hash)?);
        let text = |key: &str| denied.as_ref().and_then(|entry| entry[key].as_str()).map(str::to_owned);
        found.push(Found {
            is_allowed: allowed.is_some(),
            denied_by: text("source"),
            reason: text("reason"),
        });
    }
    let lists = || told["sources"].as_array().into_iter().flatten();
    let faults = lists()
        .filter_map(|list| Some(format!("{}: {}", list["source"].as_str()?, list["fault"].as_str()?)))
        .collect();
    let serves_all = lists().all(|list| list["list"] != "access.torrents_allow");
    Ok(Findings { found, serves_all, faults })
}

/// Looks the torrents up in the lists of a configuration.
fn look_up(config: &Config, wanted: &[InfoHash]) -> Result<Findings, Failure> {
    let mut found: Vec<Found> = wanted.iter().map(|_| Found::default()).collect();
    let mut faults = Vec::new();
    for (name, source) in sources(config) {
        faults.extend(for_each_entry((&format!("torrents_{name}"), source), config, |entry| {
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
    Ok(Findings { found, serves_all: config.access.torrents_allow.is_empty(), faults })
}

/// The result of a check of all lists.
#[derive(Default)]
struct Checked {
    /// A line for each source.
    text: String,
    /// A line for each fault.
    faults: String,
}

impl Checked {
    /// Takes the outcome of a source of a list. `entries` is the word for its entries.
    fn take<E: Entries>(
        &mut self,
        (name, source, entries): (&str, &ListSource, &str),
        reading: anyhow::Result<Reading<E>>,
    ) {
        let reading = match reading {
            Ok(reading) => reading,
            Err(fault) => return self.faults.push_str(&format!("{fault:#}\n")),
        };
        let faults = reading.lines.faulty + reading.faults.len() as u64;
        let effect = match reading.lines.refusal(reading.entries.len() as u64, 0) {
            Some(refusal) => format!("; a tracker refuses it: {refusal}"),
            None if reading.lines.faulty > 0 => "; a tracker leaves the faulty lines out".to_owned(),
            None => String::new(),
        };
        let count = reading.entries.len();
        self.text.push_str(&format!("{name} {source}: {count} {entries}, {faults} faults{effect}\n"));
        faults_of_reading(source, &reading).for_each(|fault| self.faults.push_str(&(fault + "\n")));
    }
}

/// Checks every line of every list.
fn run_check_of_lists(check: &Check) -> Result<Outcome, Failure> {
    let config = config_file::read(check.config.as_deref())?;
    if check.config.is_none() && sources(&config).next().is_none() {
        return Err(Failure::Configuration(
            "no list is configured here; --config FILE names the configuration of the tracker".to_owned(),
        ));
    }
    let mut checked = Checked::default();
    for (name, source) in sources(&config) {
        let reading = read_whole::<Torrents>(&format!("torrents_{name}"), source, &config);
        checked.take((name, source, "torrents"), reading);
    }
    for (name, source) in network_sources(&config) {
        checked.take((name, source, "networks"), read_whole::<Networks>(name, source, &config));
    }
    for source in &config.access.geoip {
        checked.take(("geoip", source, "networks of rules"), read_whole::<Owners>("geoip", source, &config));
    }
    let Checked { text, faults } = checked;
    if faults.is_empty() {
        return Ok(Outcome::new(text, ExitCode::SUCCESS));
    }
    Ok(Outcome { text, code: ExitCode::from(UNREADABLE), warning: Some(faults.trim_end().to_owned()) })
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
        if let Some(faulty) = source["faulty_lines"].as_u64().filter(|faulty| *faulty > 0) {
            text.push_str(&format!("  {faulty} faulty lines, among them:\n"));
            for line in source["first_faulty_lines"].as_array().into_iter().flatten() {
                text.push_str(&format!("    {}\n", line.as_str().unwrap_or_default()));
            }
        }
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
    /// Reports the outcome for each torrent: the words for people, or the `verdicts` in JSON.
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

/// Returns the lines of a changed file that a tracker cannot read.
fn faults_of(path: PathBuf, config: &Config) -> Result<Vec<String>, Failure> {
    for_each_entry(("torrents_deny", &ListSource::Path(path)), config, |_| ())
}

/// Returns every source of the lists of torrents, with the name of the list.
fn sources(config: &Config) -> impl Iterator<Item = (&'static str, &ListSource)> {
    let allow = config.access.torrents_allow.iter().map(|source| ("allow", source));
    allow.chain(config.access.torrents_deny.iter().map(|source| ("deny", source)))
}

/// Returns every source of the lists of networks, with the name of the list.
fn network_sources(config: &Config) -> impl Iterator<Item = (&'static str, &ListSource)> {
    let allow = config.access.networks_allow.iter().map(|source| ("networks_allow", source));
    allow.chain(config.access.networks_deny.iter().map(|source| ("networks_deny", source)))
}

/// Calls `each` with every entry of a source; for a URL, of its last good copy. Returns the first unreadable lines,
/// because of which a tracker keeps its former entries.
fn for_each_entry(
    (name, source): (&str, &ListSource),
    config: &Config,
    mut each: impl FnMut(&Entry<'_>),
) -> Result<Vec<String>, Failure> {
    if let Some(file) = open_lines(source)? {
        let mut faults = Faults::default();
        let read = edit::for_each_line(&file, |line| {
            let is_named = || faults.named.last().is_some_and(|fault| fault.line == line.number);
            match line.text().as_deref().map_or(Err(LineError::LongLine), Entry::parse) {
                Ok(entry) => entry.iter().for_each(&mut each),
                Err(_) if is_named() => {}
                Err(error) => faults.add(line.number, error),
            }
            Ok(())
        });
        read.with_context(|| format!("{source} cannot be read"))?;
        return Ok(faults.named.iter().map(|fault| format!("{source}: {fault}")).collect());
    }
    let reading: Reading<Torrents> = read_whole(name, source, config)?;
    for (info_hash, Details { date, reference, reason }) in
        reading.entries.tables().flat_map(|table| table.iter())
    {
        each(&Entry { info_hashes: [*info_hash].into_iter().collect(), date, reference, reason });
    }
    // A directory is whole even if some of its files are not, because each file counts separately.
    Ok(if reading.is_whole { Vec::new() } else { faults_of_reading(source, &reading).collect() })
}

/// Returns everything of a source that a tracker cannot read.
fn faults_of_reading<E>(source: &ListSource, reading: &Reading<E>) -> impl Iterator<Item = String> {
    let (more, lines) = (reading.lines.faulty - reading.lines.named.len() as u64, &reading.lines.named);
    let more = (more > 0).then(|| format!("{more} more faulty lines"));
    let faults = lines.iter().map(ToString::to_string).chain(more).chain(reading.faults.iter().cloned());
    faults.map(move |fault| format!("{source}: {fault}"))
}

/// Reads a source of a list of the section `access` as a whole.
fn read_whole<E: Entries>(list: &str, source: &ListSource, config: &Config) -> anyhow::Result<Reading<E>> {
    // The command does not look anything up in its tables.
    let build = Build::new(HashKey::new([0; 4]), Budget::default()).for_rules(&config.access.rules);
    let url = match source {
        ListSource::Path(path) => {
            let read = E::default().read(path, &build).transpose();
            let read = read.unwrap_or_else(|| E::read_whole(path, &build));
            return read.with_context(|| format!("{source} cannot be read"));
        }
        ListSource::Url(url) => url,
    };
    let folder = config.fetch.folder.as_ref().context("fetch.folder names no folder")?;
    let copy = UrlContent::new(url, folder, list).read_copy(config.fetch.size_max.0, &build);
    let copy = copy.map_err(|fault| anyhow!("{source}: {fault}"))?;
    copy.with_context(|| format!("{source} has not been fetched yet"))
}
