//! Changes of the lists of torrents, by `shoal access` and by the control listener.
//!
//! They change the files that the configuration names. A running tracker sees every change of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use shoal_access::torrents::{Details, Entry};
use shoal_base::InfoHash;
use shoal_config::{Config, ListSource};

use super::audit::{Audit, Author, Change};
use super::shared::{BY_BYTES_MAX, SOURCE, SharedEntries, SharedError, SharedTorrent};
use super::{edit, file};
use crate::failure::Failure;

/// A list of torrents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ListName)]
pub enum Which {
    /// The torrents that are refused, `access.torrents_deny`.
    Deny,
    /// The torrents that are served, `access.torrents_allow`.
    Allow,
}

/// The fields of a new entry, as options of commands. Their comments are the texts of `--help`.
#[derive(Clone, Debug, Default, Args)]
pub struct NewDetails {
    /// Why; clients show it to their users
    #[arg(long)]
    pub reason: Option<String>,

    /// A reference for your records, such as the number of a case
    #[arg(long)]
    pub reference: Option<String>,

    /// The date of the entry; today by default
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub date: Option<String>,
}

/// A change that was made but not recorded yet.
pub struct Changed {
    /// The file.
    pub path: PathBuf,
    /// The torrents that were added or removed.
    pub info_hashes: Vec<InfoHash>,
    details: NewDetails,
    audit: Audit,
}

impl Which {
    /// Returns the name in texts and paths.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }

    /// Returns whether a shared entry of the list has an effect at this tracker: without a list of served torrents, all
    /// are served.
    pub fn takes_shared(self, config: &Config) -> bool {
        self == Self::Deny || !self.sources(config).is_empty()
    }

    /// Returns whether the list has a file that can be changed.
    pub fn has_file(self, config: &Config) -> bool {
        self.sources(config).iter().any(|source| matches!(source, ListSource::Path(path) if !path.is_dir()))
    }

    fn sources(self, config: &Config) -> &[ListSource] {
        match self {
            Self::Deny => &config.access.torrents_deny,
            Self::Allow => &config.access.torrents_allow,
        }
    }
}

/// Adds torrents to the list that all nodes of a cluster share.
pub fn add_shared(
    config: &Config,
    (shared, which): (&dyn SharedEntries, Which),
    wanted: &[InfoHash],
    details: &NewDetails,
    author: Author,
) -> Result<Changed, SharedFailure> {
    let by = author.to_string();
    let path = PathBuf::from(SOURCE);
    let audit = begin_audit(config, Change::Added, which, &path, author)?;
    let details = NewDetails {
        date: Some(details.date.as_deref().unwrap_or(audit.today()).to_owned()),
        ..details.clone()
    };
    let trimmed = |text: &Option<String>| {
        let text = text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    let torrent = SharedTorrent {
        date: details.date.clone(),
        reference: trimmed(&details.reference),
        reason: trimmed(&details.reason),
        by: by.chars().filter(|c| !c.is_control()).take(BY_BYTES_MAX / 4).collect(),
    };
    let mut torrents = Vec::with_capacity(wanted.len());
    for info_hash in wanted {
        // The same texts as in a file are accepted.
        line(info_hash, &details)?;
        torrents.push((*info_hash, torrent.clone()));
    }
    let info_hashes = shared.add(which, &torrents)?;
    Ok(Changed { path, info_hashes, details, audit })
}

/// Removes torrents from the list that all nodes of a cluster share.
pub fn remove_shared(
    config: &Config,
    (shared, which): (&dyn SharedEntries, Which),
    wanted: &[InfoHash],
    author: Author,
) -> Result<Changed, SharedFailure> {
    let path = PathBuf::from(SOURCE);
    let audit = begin_audit(config, Change::Removed, which, &path, author)?;
    let info_hashes = shared.remove(which, wanted)?;
    Ok(Changed { path, info_hashes, details: NewDetails::default(), audit })
}

/// Why a shared list was not changed.
pub enum SharedFailure {
    /// The request cannot be made.
    Refused(Failure),
    /// The entries cannot be changed.
    Shared(SharedError),
}

impl From<Failure> for SharedFailure {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl From<SharedError> for SharedFailure {
    fn from(error: SharedError) -> Self {
        Self::Shared(error)
    }
}

impl Changed {
    /// Records the change, in the log and in the audit file.
    pub fn record(&self) -> Result<(), Failure> {
        let trimmed = |text: &'_ Option<String>| text.as_deref().map(str::trim).map(str::to_owned);
        let (reference, reason) = (trimmed(&self.details.reference), trimmed(&self.details.reason));
        let given = |text: &'_ str| !text.is_empty();
        let details = Details {
            date: self.details.date.as_deref(),
            reference: reference.as_deref().filter(|text| given(text)),
            reason: reason.as_deref().filter(|text| given(text)),
        };
        let recorded = self.audit.record(self.info_hashes.iter().map(|info_hash| (*info_hash, details)));
        Ok(recorded.context("the list was changed, but access.audit_file cannot be written")?)
    }
}

/// Adds torrents to a file of a list: the first one, or the named one.
pub fn add(
    config: &Config,
    (which, file): (Which, Option<&Path>),
    wanted: &[InfoHash],
    details: &NewDetails,
    author: Author,
) -> Result<Changed, Failure> {
    let path = target(config, which, file)?;
    let audit = begin_audit(config, Change::Added, which, &path, author)?;
    let details = NewDetails {
        date: Some(details.date.as_deref().unwrap_or(audit.today()).to_owned()),
        ..details.clone()
    };
    let lines: Result<BTreeMap<_, _>, Failure> = wanted
        .iter()
        .map(|info_hash| Ok((*info_hash, format!("{} # {}\n", line(info_hash, &details)?, audit.comment()))))
        .collect();
    if path.exists() && open_lines(&ListSource::Path(path.clone()))?.is_none() {
        let shown = path.display();
        return Err(Failure::Configuration(format!("{shown} is no list of lines, so none can be added")));
    }
    let info_hashes =
        edit::add(&path, &lines?).with_context(|| format!("{} cannot be changed", path.display()))?;
    Ok(Changed { path, info_hashes, details, audit })
}

/// Removes torrents from a file of a list.
pub fn remove(
    config: &Config,
    (which, file): (Which, Option<&Path>),
    wanted: &[InfoHash],
    author: Author,
) -> Result<Changed, Failure> {
    let path = target(config, which, file)?;
    let audit = begin_audit(config, Change::Removed, which, &path, author)?;
    let info_hashes =
        edit::remove(&path, wanted).with_context(|| format!("{} cannot be changed", path.display()))?;
    Ok(Changed { path, info_hashes, details: NewDetails::default(), audit })
}

/// Returns the torrents in texts, each once.
pub fn parse_torrents(texts: &[String]) -> Result<Vec<InfoHash>, Failure> {
    let mut info_hashes = Vec::new();
    for text in texts {
        match Entry::parse(text) {
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

fn begin_audit(
    config: &Config,
    change: Change,
    which: Which,
    path: &Path,
    author: Author,
) -> Result<Audit, Failure> {
    let audit_file = config.access.audit_file.as_deref();
    let audit = Audit::begin(change, which.name(), path, author, audit_file);
    let shown = audit_file.unwrap_or(Path::new("")).display();
    Ok(audit
        .with_context(|| format!("access.audit_file {shown} cannot be written, so nothing was changed"))?)
}

/// Returns the line of a new entry, which is checked by reading it back.
fn line(info_hash: &InfoHash, details: &NewDetails) -> Result<String, Failure> {
    let refuse = |text: String| Err(Failure::Configuration(text));
    let (reason, reference) =
        (details.reason.as_deref().map(str::trim), details.reference.as_deref().map(str::trim));
    let date = details.date.as_deref().unwrap_or_default();
    let mut line = format!("{info_hash:?} {date}");
    reference.into_iter().for_each(|reference| line.push_str(&format!(" [{reference}]")));
    reason.into_iter().for_each(|reason| line.push_str(&format!(" {reason}")));
    if line.contains('\n') {
        return refuse("a reason and a reference are one line each".to_owned());
    }
    let entry = match Entry::parse(&line) {
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
             with [ or an info hash, and a # after a space begins a comment"
                .to_owned(),
        );
    }
    Ok(line)
}

/// Returns the file to change, which must be one of the list.
fn target(config: &Config, which: Which, file: Option<&Path>) -> Result<PathBuf, Failure> {
    // A removal would otherwise replace the link and not the file.
    let resolve = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let files = which.sources(config).iter().filter_map(|source| match source {
        ListSource::Path(path) if !path.is_dir() => Some(&**path),
        _ => None,
    });
    let files: Vec<_> = files.collect();
    let name = which.name();
    let Some(first) = files.first() else {
        return Err(Failure::Configuration(format!(
            "access.torrents_{name} names no file to change; add one to the configuration and pass it by --config"
        )));
    };
    let path = resolve(file.unwrap_or(first));
    if files.iter().any(|file| resolve(file) == path) {
        return Ok(path);
    }
    let shown: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    Err(Failure::Configuration(format!(
        "{} is no file of access.torrents_{name}, so the tracker does not read it; its files: {}",
        path.display(),
        shown.join(", ")
    )))
}

/// Opens a source if it is a file of lines.
pub fn open_lines(source: &ListSource) -> anyhow::Result<Option<File>> {
    let ListSource::Path(path) = source else { return Ok(None) };
    if path.is_dir() {
        return Ok(None);
    }
    let file = shoal_base::file::open(path).with_context(|| format!("{source} cannot be read"))?;
    let is_lines = file::is_lines(&file).with_context(|| format!("{source} cannot be read"))?;
    Ok(is_lines.then_some(file))
}
