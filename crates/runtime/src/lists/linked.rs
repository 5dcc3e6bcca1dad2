//! The .torrent files that a feed links, of which only the info hashes are stored.
//!
//! A file that was read once is not fetched again while the feed links it: its hashes lie beside the copy of the feed,
//! as lines of hashes and a link.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use shoal_access::budget::Share;
use shoal_access::fetch::{Content, Limits};
use shoal_access::torrents::{Entry, LINK_BYTES_MAX, Links, info_hashes};
use shoal_base::InfoHash;

use super::entries::Build;
use crate::clock;

/// Maximum size of a linked file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum size of the file with the hashes: two of each link.
const KNOWN_BYTES_MAX: u64 = 2000 * (LINK_BYTES_MAX as u64 + 64);

/// The memory of a link, without its text.
const LINK_BYTES: u64 = 200;

/// The linked files of one content.
#[derive(Debug)]
pub(super) struct Linked {
    path: PathBuf,
    known: BTreeMap<String, Vec<InfoHash>>,
    share: Share,
    is_loaded: bool,
    is_missing_some: bool,
}

impl Linked {
    /// Creates the links of a content, empty at first. Their hashes lie at `path`.
    pub(super) fn new(path: PathBuf) -> Self {
        let share = Share::default();
        Self { path, known: BTreeMap::new(), share, is_loaded: false, is_missing_some: false }
    }

    /// Returns whether the hashes of some links are unknown.
    pub(super) const fn is_missing_some(&self) -> bool {
        self.is_missing_some
    }

    /// Returns the hashes of all links, and fetches new ones. The time limit holds for all of them together. Without
    /// limits, none is fetched.
    pub(super) fn resolve(
        &mut self,
        links: &Links,
        build: &Build,
        limits: Option<Limits>,
        content: &Content<'_>,
        faults: &mut Vec<String>,
    ) -> io::Result<Vec<InfoHash>> {
        if links.urls.is_empty() && !self.is_loaded {
            return Ok(Vec::new());
        }
        let mut share = Share::of(&build.budget);
        share.need(links.urls.iter().map(|link| LINK_BYTES + link.len() as u64).sum());
        share.check().map_err(io::Error::other)?;
        let mut old = self.load();
        self.share = share;
        let (mut missing, mut first_fault) = (0, None);
        let begin_ms = clock::monotonic_ms();
        for link in &links.urls {
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
        missing += links.more;
        self.is_missing_some = missing > 0;
        if limits.is_some() && missing > 0 {
            let reason = first_fault.unwrap_or_else(|| format!("there are more than {}", links.urls.len()));
            let all = links.urls.len() as u64 + links.more;
            faults.push(format!("{missing} of {all} linked torrents cannot be read: {reason}"));
        }
        if limits.is_some()
            && let Err(error) = self.save()
        {
            faults.push(format!("the hashes of linked torrents cannot be kept: {error}"));
        }
        Ok(self.known.values().flatten().copied().collect())
    }

    /// Returns what was known until now.
    fn load(&mut self) -> BTreeMap<String, Vec<InfoHash>> {
        if std::mem::replace(&mut self.is_loaded, true) {
            return std::mem::take(&mut self.known);
        }
        // Unreadable parts are fetched again.
        let mut known = BTreeMap::<_, Vec<_>>::new();
        let Ok(file) = shoal_base::file::open(&self.path) else { return known };
        for line in BufReader::new(file.take(KNOWN_BYTES_MAX)).lines().map_while(Result::ok) {
            if let Some((hash, link)) = line.split_once(' ')
                && let Ok(Some(entry)) = Entry::parse(hash)
            {
                known.entry(link.to_owned()).or_default().extend(entry.info_hashes);
            }
        }
        known
    }

    fn save(&self) -> io::Result<()> {
        let new = self.path.with_added_extension("new");
        // Links may contain secrets, as URLs may.
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let mut file = io::BufWriter::new(file);
        for (link, info_hashes) in &self.known {
            info_hashes.iter().try_for_each(|info_hash| writeln!(file, "{info_hash:?} {link}"))?;
        }
        file.into_inner()?;
        fs::rename(new, &self.path)
    }
}

/// Fetches a linked file, in the remaining time.
fn fetch(content: &Content<'_>, link: &str, begin_ms: u64, limits: Limits) -> Result<Vec<InfoHash>, String> {
    let spent = std::time::Duration::from_millis(clock::monotonic_ms().saturating_sub(begin_ms));
    let time_max = limits.time_max.saturating_sub(spent);
    if time_max.is_zero() {
        return Err("the time for all of them is over".to_owned());
    }
    let limits = Limits { bytes_max: limits.bytes_max.min(FILE_BYTES_MAX), time_max };
    let read = content.fetch_link(link, limits, |body| info_hashes(body));
    read.map_err(|error| error.to_string())?.map(|hashes| hashes.to_vec()).map_err(|error| error.to_string())
}
