//! The .torrent files that a feed links, of which only the info hashes are kept.
//!
//! A file that has been read once is not fetched again while the feed links it: the hashes lie beside the copy of the
//! feed, in lines of hashes and a link.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use shoal_access::torrents::{Entry, info_hashes};
use shoal_fetch::{Content, Limits};
use shoal_types::InfoHash;

use crate::clock;

/// Maximum number of files that one content may link. Further links count as a fault.
const LINKS_MAX: usize = 1000;

/// Maximum size of a linked file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum size of the file with the hashes: those of all links, which are limited by the lines of feeds.
const KNOWN_BYTES_MAX: u64 = 32 << 20;

/// The linked files of one content.
#[derive(Debug)]
pub(super) struct Linked {
    path: PathBuf,
    known: BTreeMap<String, Vec<InfoHash>>,
    is_loaded: bool,
    is_missing_some: bool,
}

impl Linked {
    /// Creates the links of a content without any, whose hashes lie at `path`.
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, known: BTreeMap::new(), is_loaded: false, is_missing_some: false }
    }

    /// Returns whether the hashes of some links are not known.
    pub(super) const fn is_missing_some(&self) -> bool {
        self.is_missing_some
    }

    /// Returns the hashes of all links, and fetches those that are new. The time limit holds for all of them together.
    /// Without limits, none is fetched.
    pub(super) fn resolve(
        &mut self,
        links: &[String],
        limits: Option<Limits>,
        content: &Content<'_>,
        faults: &mut Vec<String>,
    ) -> Vec<InfoHash> {
        if links.is_empty() && !self.is_loaded {
            return Vec::new();
        }
        let mut old = self.load();
        let (mut missing, mut first_fault) = (0, None);
        let begin_ms = clock::monotonic_ms();
        for link in links.iter().take(LINKS_MAX) {
            if self.known.contains_key(link) {
                continue;
            }
            let found = match (old.remove(link), limits) {
                (Some(known), _) => Ok(known),
                (None, None) => Err("it has not been fetched yet".to_owned()),
                (None, Some(limits)) => fetch(content, link, begin_ms, limits),
            };
            match found {
                Ok(info_hashes) => {
                    self.known.insert(link.clone(), info_hashes);
                }
                Err(fault) => {
                    missing += 1;
                    first_fault.get_or_insert(fault);
                }
            }
        }
        missing += links.len().saturating_sub(LINKS_MAX);
        self.is_missing_some = missing > 0;
        if limits.is_some() && missing > 0 {
            let reason = first_fault.unwrap_or_else(|| format!("there are more than {LINKS_MAX}"));
            faults.push(format!("{missing} of {} linked torrents cannot be read: {reason}", links.len()));
        }
        if limits.is_some()
            && let Err(error) = self.save()
        {
            faults.push(format!("the hashes of linked torrents cannot be kept: {error}"));
        }
        self.known.values().flatten().copied().collect()
    }

    /// Returns what was known until now.
    fn load(&mut self) -> BTreeMap<String, Vec<InfoHash>> {
        if std::mem::replace(&mut self.is_loaded, true) {
            return std::mem::take(&mut self.known);
        }
        // Whatever cannot be read is fetched again.
        let read = || {
            let mut text = String::new();
            io::Read::read_to_string(
                &mut io::Read::take(File::open(&self.path)?, KNOWN_BYTES_MAX),
                &mut text,
            )?;
            io::Result::Ok(text)
        };
        let mut known = BTreeMap::<_, Vec<_>>::new();
        for (hash, link) in read().unwrap_or_default().lines().filter_map(|line| line.split_once(' ')) {
            if let Ok(Some(entry)) = Entry::parse(hash.as_bytes()) {
                known.entry(link.to_owned()).or_default().extend(entry.info_hashes);
            }
        }
        known
    }

    fn save(&self) -> io::Result<()> {
        let mut text = String::new();
        for (link, info_hashes) in &self.known {
            info_hashes.iter().for_each(|info_hash| text.push_str(&format!("{info_hash:?} {link}\n")));
        }
        let new = self.path.with_added_extension("new");
        // Links may contain secrets, as URLs may.
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(new, &self.path)
    }
}

/// Fetches a linked file, in the time that is left.
fn fetch(content: &Content<'_>, link: &str, begin_ms: u64, limits: Limits) -> Result<Vec<InfoHash>, String> {
    let spent = std::time::Duration::from_millis(clock::monotonic_ms().saturating_sub(begin_ms));
    let time_max = limits.time_max.saturating_sub(spent);
    if time_max.is_zero() {
        return Err("the time for all of them is over".to_owned());
    }
    let limits = Limits { bytes_max: limits.bytes_max.min(FILE_BYTES_MAX), time_max };
    let bytes = content.fetch_link(link, limits).map_err(|error| error.to_string())?;
    info_hashes(&bytes).map(|hashes| hashes.to_vec()).map_err(|error| error.to_string())
}
