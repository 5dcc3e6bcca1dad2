//! `shoal access`: changes and examines the lists of torrents.
//!
//! The commands work on the files that the configuration names. A running tracker watches these files, so a change
//! applies at once, and the commands work as well while no tracker runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde_json::json;
use shoal_access::HashKey;
use shoal_access::torrents::Entry;
use shoal_config::{Config, ListSource};
use shoal_types::InfoHash;

use super::directory::Directory;
use super::edit;
use crate::failure::Failure;
use crate::{clock, config_file, log};

/// The exit code of a `check` that finds a torrent refused, and of a `remove` that finds nothing to remove.
const NEGATIVE: u8 = 3;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Add torrents to a list
    Add(Add),
    /// Remove torrents from a list
    Remove(Remove),
    /// Print the entries of the lists
    List(List),
    /// Tell whether torrents are served, or check all lists for lines that cannot be read
    Check(Check),
    /// Make a running tracker read all lists again
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

    /// The file to change, if it is not the first one of the list
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    #[command(flatten)]
    which: Which,

    /// Info hashes (40 or 64 hexadecimal digits, or base32) or magnet links
    #[arg(value_name = "TORRENT", required = true)]
    torrents: Vec<String>,

    /// Why; clients show it to their users
    #[arg(long)]
    reason: Option<String>,

    /// A reference for your records, such as the number of a case
    #[arg(long)]
    reference: Option<String>,

    /// The date of the entry; today by default
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,

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
    /// The configuration file of the tracker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The output of a command, and its exit code.
pub(crate) struct Outcome {
    pub(crate) text: String,
    pub(crate) code: ExitCode,
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
    let path = target(&config, &add.which, &add.target)?;
    let wanted = parse_torrents(&add.torrents)?;
    let present = if path.exists() { hashes_in(&path, &wanted)? } else { Vec::new() };
    let new: Vec<_> = wanted.iter().filter(|info_hash| !present.contains(info_hash)).copied().collect();
    let (who, now) = (Who::current(), Now::read());
    let date = add.date.as_deref().unwrap_or(&now.date);
    let mut lines = String::new();
    for info_hash in &new {
        let line = line(info_hash, date, add)?;
        lines.push_str(&format!("{line} # by {who} at {}\n", now.time));
    }
    if !lines.is_empty() {
        edit::append(&path, &lines).with_context(|| format!("{} cannot be changed", path.display()))?;
    }
    let log = log::begin(&config.log);
    let mut text = String::new();
    for info_hash in &wanted {
        let is_new = new.contains(info_hash);
        if is_new {
            audit(
                "added",
                add.which.name(),
                info_hash,
                &path,
                &who,
                add.reason.as_deref(),
                add.reference.as_deref(),
            );
        }
        let verb = if is_new { "added to" } else { "is already in" };
        text.push_str(&format!("{info_hash:?} {verb} {}\n", path.display()));
    }
    drop(log);
    Ok(Outcome { text, code: ExitCode::SUCCESS })
}

/// Returns the line of a new entry, which is checked by reading it back.
fn line(info_hash: &InfoHash, date: &str, add: &Add) -> Result<String, Failure> {
    let refuse = |text: String| Err(Failure::Configuration(text));
    let (reason, reference) = (add.reason.as_deref().map(str::trim), add.reference.as_deref().map(str::trim));
    let mut line = format!("{info_hash:?} {date}");
    reference.into_iter().for_each(|reference| line.push_str(&format!(" [{reference}]")));
    reason.into_iter().for_each(|reason| line.push_str(&format!(" {reason}")));
    if line.contains('\n') {
        return refuse("a reason and a reference are one line each".to_owned());
    }
    let entry = match Entry::parse(line.as_bytes()) {
        Ok(Some(entry)) => entry,
        Ok(None) => return refuse("the entry is empty".to_owned()),
        Err(error) => return refuse(error.to_string()),
    };
    if entry.date != Some(date) {
        return refuse(format!("{date:?} is no date such as 2026-01-31"));
    }
    let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    if entry.reference.map(str::to_owned) != given(reference)
        || entry.reason.map(str::to_owned) != given(reason)
    {
        return refuse(
            "the list would not be read back as it was written: a reference must not contain ], a reason must not begin \
             with [, and a # after a space begins a comment"
                .to_owned(),
        );
    }
    Ok(line)
}

fn run_remove(remove: &Remove) -> Result<Outcome, Failure> {
    let config = config_file::read(remove.target.config.as_deref())?;
    let path = target(&config, &remove.which, &remove.target)?;
    let wanted = parse_torrents(&remove.torrents)?;
    let removed =
        edit::remove(&path, &wanted).with_context(|| format!("{} cannot be changed", path.display()))?;
    let who = Who::current();
    let log = log::begin(&config.log);
    let mut text = String::new();
    for info_hash in &wanted {
        let was_present = removed.contains(info_hash);
        if was_present {
            audit("removed", remove.which.name(), info_hash, &path, &who, None, None);
        }
        let verb = if was_present { "removed from" } else { "is not in" };
        text.push_str(&format!("{info_hash:?} {verb} {}\n", path.display()));
    }
    drop(log);
    let code = if removed.is_empty() { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS };
    Ok(Outcome { text, code })
}

fn run_list(list: &List) -> Result<Outcome, Failure> {
    let config = config_file::read(list.config.as_deref())?;
    let mut text = String::new();
    for (name, path) in sources(&config) {
        if (list.deny && name != "deny") || (list.allow && name != "allow") {
            continue;
        }
        for_each_entry(path, |entry| {
            if !list.json {
                return text.push_str(&format!("{name} {entry}\n"));
            }
            for info_hash in &entry.info_hashes {
                let object = json!({
                    "list": name, "info_hash": format!("{info_hash:?}"), "date": entry.date,
                    "reference": entry.reference, "reason": entry.reason, "source": path.display().to_string(),
                });
                text.push_str(&format!("{object}\n"));
            }
        })?;
    }
    Ok(Outcome { text, code: ExitCode::SUCCESS })
}

/// Where a torrent was found.
#[derive(Default)]
struct Found {
    is_allowed: bool,
    /// The first source of the deny list that has it.
    denied_by: Option<PathBuf>,
    /// The reason there.
    reason: Option<String>,
}

fn run_check(check: &Check) -> Result<Outcome, Failure> {
    let config = config_file::read(check.config.as_deref())?;
    let wanted = parse_torrents(&check.torrents)?;
    let mut found: Vec<Found> = wanted.iter().map(|_| Found::default()).collect();
    for (name, path) in sources(&config) {
        for_each_entry(path, |entry| {
            for (info_hash, found) in wanted.iter().zip(&mut found) {
                if !entry.info_hashes.contains(info_hash) {
                    continue;
                }
                if name == "allow" {
                    found.is_allowed = true;
                } else if found.denied_by.is_none() {
                    found.denied_by = Some(path.to_owned());
                    found.reason = entry.reason.map(str::to_owned);
                }
            }
        })?;
    }
    let serves_all = config.access.torrents_allow.is_empty();
    let (mut text, mut is_any_refused) = (String::new(), false);
    for (info_hash, found) in wanted.iter().zip(&found) {
        let reason = found.reason.as_deref();
        let (verdict, shown) = match &found.denied_by {
            Some(path) => {
                ("denied", format!("denied by {}: {}", path.display(), reason.unwrap_or("no reason given")))
            }
            None if serves_all || found.is_allowed => ("served", "served".to_owned()),
            None => ("not_allowed", "refused: it is on no allow list".to_owned()),
        };
        is_any_refused |= verdict != "served";
        if check.json {
            let source = found.denied_by.as_ref().map(|path| path.display().to_string());
            let info_hash = format!("{info_hash:?}");
            let object =
                json!({"info_hash": info_hash, "verdict": verdict, "source": source, "reason": reason});
            text.push_str(&format!("{object}\n"));
        } else {
            text.push_str(&format!("{info_hash:?} {shown}\n"));
        }
    }
    let code = if is_any_refused { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS };
    Ok(Outcome { text, code })
}

/// Checks every line of every list.
fn run_check_of_lists(check: &Check) -> Result<Outcome, Failure> {
    let config = config_file::read(check.config.as_deref())?;
    let (mut text, mut faults) = (String::new(), String::new());
    for (name, path) in sources(&config) {
        let shown = path.display();
        if path.is_dir() {
            let (torrents, faulty) = read_directory(path)?;
            let entries = torrents.len();
            text.push_str(&format!(
                "{name} {shown}: {entries} torrents, {} files that cannot be read\n",
                faulty.len()
            ));
            faulty.iter().for_each(|fault| faults.push_str(&format!("{fault}\n")));
            continue;
        }
        let file = match open(path) {
            Ok(file) => file,
            Err(error) => {
                faults.push_str(&format!("{error:#}\n"));
                continue;
            }
        };
        let (mut entries, mut faulty) = (0, 0);
        let read = edit::for_each_line(&file, |number, line| match Entry::parse(without_end(number, line)) {
            Ok(entry) => entries += u64::from(entry.is_some()),
            Err(error) => {
                faulty += 1;
                if faulty <= 10 {
                    faults.push_str(&format!("{shown}: line {number}: {error}\n"));
                }
            }
        });
        read.with_context(|| format!("{shown} cannot be read"))?;
        text.push_str(&format!("{name} {shown}: {entries} entries, {faulty} lines that cannot be read\n"));
    }
    if faults.is_empty() {
        Ok(Outcome { text, code: ExitCode::SUCCESS })
    } else {
        Err(Failure::Configuration(faults))
    }
}

fn run_reload(reload: &Reload) -> Result<Outcome, Failure> {
    let config = config_file::read(reload.config.as_deref())?;
    let mut text = String::new();
    for (_, path) in sources(&config) {
        let file = open(path)?;
        file.set_modified(UNIX_EPOCH + Duration::from_secs(clock::unix_s()))
            .with_context(|| format!("the time of {} cannot be changed", path.display()))?;
        text.push_str(&format!("{} will be read again\n", path.display()));
    }
    Ok(Outcome { text, code: ExitCode::SUCCESS })
}

impl Which {
    const fn name(&self) -> &'static str {
        if self.deny { "deny" } else { "allow" }
    }
}

/// Returns the file to change.
fn target(config: &Config, which: &Which, target: &Target) -> Result<PathBuf, Failure> {
    let list = if which.deny { &config.access.torrents_deny } else { &config.access.torrents_allow };
    let paths = list.iter().map(|ListSource::Path(path)| path.clone());
    let first = paths.into_iter().find(|path| !path.is_dir());
    let path = target.file.clone().or(first).ok_or_else(|| {
        Failure::Configuration(format!(
            "access.torrents_{} names no file to change; add one to the configuration and pass it by --config",
            which.name()
        ))
    })?;
    // A removal would otherwise replace the link and not the file.
    Ok(path.canonicalize().unwrap_or(path))
}

/// Returns every file of every list with the name of the list.
fn sources(config: &Config) -> impl Iterator<Item = (&'static str, &Path)> {
    let allow = config.access.torrents_allow.iter().map(|source| ("allow", source));
    let all = allow.chain(config.access.torrents_deny.iter().map(|source| ("deny", source)));
    all.map(|(name, ListSource::Path(path))| (name, &**path))
}

fn parse_torrents(texts: &[String]) -> Result<Vec<InfoHash>, Failure> {
    let mut info_hashes = Vec::new();
    for text in texts {
        match Entry::parse(text.as_bytes()) {
            Ok(Some(entry)) if !text.trim().contains(char::is_whitespace) => {
                info_hashes.extend(entry.info_hashes)
            }
            Ok(_) => return Err(Failure::Configuration(format!("{text:?} is no single torrent"))),
            Err(error) => return Err(Failure::Configuration(format!("{text:?}: {error}"))),
        }
    }
    info_hashes.sort_unstable();
    info_hashes.dedup();
    Ok(info_hashes)
}

/// Returns which of the torrents a file has.
fn hashes_in(path: &Path, wanted: &[InfoHash]) -> Result<Vec<InfoHash>, Failure> {
    let mut present = Vec::new();
    for_each_entry(path, |entry| {
        present.extend(entry.info_hashes.iter().filter(|info_hash| wanted.contains(info_hash)));
    })?;
    Ok(present)
}

/// Calls `each` with every entry of a file. Lines that cannot be read are skipped; `check` reports them.
fn for_each_entry(path: &Path, mut each: impl FnMut(&Entry<'_>)) -> Result<(), Failure> {
    if path.is_dir() {
        for info_hash in read_directory(path)?.0 {
            let info_hashes = [info_hash].into_iter().collect();
            each(&Entry { info_hashes, date: None, reference: None, reason: None });
        }
        return Ok(());
    }
    let file = open(path)?;
    let read = edit::for_each_line(&file, |number, line| {
        if let Ok(Some(entry)) = Entry::parse(without_end(number, line)) {
            each(&entry);
        }
    });
    Ok(read.with_context(|| format!("{} cannot be read", path.display()))?)
}

/// Returns the torrents of a directory, and why some of its files cannot be read.
fn read_directory(path: &Path) -> Result<(Vec<InfoHash>, Vec<String>), Failure> {
    // The tables of a command are not looked up.
    let read = Directory::default().read(path, &HashKey::new([0; 4]));
    let (table, faults) = read.with_context(|| format!("{} cannot be read", path.display()))?;
    Ok((table.iter().map(|(info_hash, _)| *info_hash).collect(), faults))
}

/// Removes the end of a line, and from the first one the mark with which some editors begin a file.
fn without_end(number: u64, line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line }
}

fn open(path: &Path) -> anyhow::Result<File> {
    let shown = path.display();
    let metadata = fs::metadata(path).with_context(|| format!("{shown} cannot be read"))?;
    if !(metadata.is_file() || metadata.is_dir()) {
        return Err(anyhow!("{shown} is not a regular file"));
    }
    File::open(path).with_context(|| format!("{shown} cannot be read"))
}

/// Writes the line of the log that tells who has changed what.
fn audit(
    change: &str,
    list: &str,
    info_hash: &InfoHash,
    path: &Path,
    who: &Who,
    reason: Option<&str>,
    reference: Option<&str>,
) {
    tracing::info!(
        change,
        list,
        info_hash = format!("{info_hash:?}"),
        source = %path.display(),
        by = %who,
        reason = reason.unwrap_or_default(),
        reference = reference.unwrap_or_default(),
        "a list was changed"
    );
}

/// The user that executes the command.
struct Who {
    name: Option<String>,
    uid: u32,
}

impl Who {
    fn current() -> Self {
        let uid = rustix::process::getuid().as_raw();
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, id) = (fields.next()?, fields.nth(1)?);
            (id.parse() == Ok(uid) && name.chars().all(|c| c.is_ascii_graphic())).then(|| name.to_owned())
        });
        Self { name, uid }
    }
}

impl core::fmt::Display for Who {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {})", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

/// The date and the time, in UTC.
struct Now {
    date: String,
    time: String,
}

impl Now {
    fn read() -> Self {
        let unix_s = clock::unix_s();
        let (year, month, day) = shoal_wire::http::date::year_month_day(unix_s / 86_400);
        let date = format!("{year:04}-{month:02}-{day:02}");
        let second = unix_s % 86_400;
        let time = format!("{date}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
        Self { date, time }
    }
}
