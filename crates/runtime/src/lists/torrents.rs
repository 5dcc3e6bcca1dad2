//! Lists of torrents: files, directories of .torrent files, and fetched contents.
//!
//! Sources of up to 65,536 torrents share a table, which is rebuilt when one of them changes. Each larger source has
//! its own table. Lines that are appended to a file go to the shared table, so that `shoal access add` does not read
//! millions of lines again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shoal_access::budget::Share;
use shoal_access::faults::Faults;
use shoal_access::text::Text;
use shoal_access::torrents::{
    FEED_READING_BYTES, Format, Links, ListReader, TorrentLists, TorrentTable, info_hashes, read_feed,
    read_json,
};
use shoal_base::InfoHash;
use shoal_config::ListSource;

use super::changes::SourceChange;
use super::directory::{Directory, with_subdirectories};
use super::entries::{Body, Build, Entries, Reading};
use super::fetches::{Fetched, UrlReading};
use super::file::{self, ReadPart};
use super::list::List;
use super::operations::Which;
use super::shared::SharedLists;

/// Maximum size of a file, compressed as well as decompressed. A hundred million torrents with short reasons fit.
const FILE_BYTES_MAX: u64 = 16 << 30;

/// Sources with at most this many torrents share a table, which is rebuilt if one of them changes. A larger one has its
/// own, and each table costs every announce a look-up.
pub(super) const SHARED_TORRENTS_MAX: usize = 1 << 16;

/// Maximum size of an addition to a file that is read by itself. Its torrents fit in a shared table.
const ADDITION_BYTES_MAX: u64 = 1 << 20;

/// The torrents of one source.
#[derive(Debug, Default)]
pub struct Torrents {
    table: Option<Arc<TorrentTable>>,
    /// The torrents that were appended to the file since, or that links have led to.
    added: Option<Arc<TorrentTable>>,
    /// The part of the file that these two have, and its faulty lines, if lines can be added to the file.
    part: Option<(ReadPart, Faults)>,
    /// Its files, if it is a directory.
    directory: Directory,
}

impl Torrents {
    fn of(table: TorrentTable) -> Self {
        Self { table: Some(Arc::new(table)), ..Self::default() }
    }

    /// Returns the tables with all torrents.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TorrentTable>> {
        self.table.iter().chain(&self.added).filter(|table| !table.is_empty())
    }

    /// Reads only the addition to the end of a file, if nothing else has changed.
    fn read_addition(&self, file: &File, build: &Build) -> io::Result<Option<Reading<Self>>> {
        let Some((part, lines)) = &self.part else { return Ok(None) };
        let Some(addition) = part.addition(file, ADDITION_BYTES_MAX)? else { return Ok(None) };
        let mut reader = ListReader::after(part.lines, lines.clone(), build.table());
        reader.read(&addition);
        let ended = reader.lines();
        let (new, faults) = reader.finish(&build.key).map_err(io::Error::other)?;
        if faults.faulty > lines.faulty {
            // Whether the present file counts depends on all of it.
            return Ok(None);
        }
        let mut added = build.table();
        for table in self.added.iter().map(|table| &**table).chain([&new]) {
            added.add_all(table).map_err(io::Error::other)?;
        }
        if added.len() > SHARED_TORRENTS_MAX {
            return Ok(None);
        }
        added.check().map_err(io::Error::other)?;
        let part = ReadPart::of(file, part.bytes_with(&addition), ended)?.map(|part| (part, faults.clone()));
        let added = Some(Arc::new(added.build(&build.key)));
        let entries = Self { table: self.table.clone(), added, part, directory: Directory::default() };
        Ok(Some(Reading::new(entries, faults, None)))
    }
}

impl Entries for Torrents {
    fn read(&mut self, path: &Path, build: &Build) -> io::Result<Option<Reading<Self>>> {
        if path.is_dir() {
            let (table, faults) = self.directory.read(path, build)?;
            let directory = std::mem::take(&mut self.directory);
            let entries = Self { directory, ..Self::of(table) };
            // Each of its files is a separate source.
            return Ok(Some(Reading { entries, lines: Faults::default(), is_whole: true, faults }));
        }
        let file = shoal_base::file::open(path)?;
        if let Some(reading) = self.read_addition(&file, build)? {
            return Ok(Some(reading));
        }
        if file::is_large(&file)? { Ok(None) } else { read_file(&file, build).map(Some) }
    }

    fn read_whole(path: &Path, build: &Build) -> io::Result<Reading<Self>> {
        read_file(&shoal_base::file::open(path)?, build)
    }

    fn wrap(reading: UrlReading<Self>) -> Fetched {
        Fetched::Torrents(reading)
    }

    fn parse(body: Body<'_>, build: &Build, links: &mut Links) -> io::Result<Reading<Self>> {
        read_text(body, build, links).map(|read| read.reading)
    }

    fn add_linked(&mut self, info_hashes: &[InfoHash], build: &Build) -> io::Result<()> {
        let mut added = build.table();
        info_hashes.iter().try_for_each(|hash| added.add(*hash, None)).map_err(io::Error::other)?;
        added.check().map_err(io::Error::other)?;
        self.added = Some(Arc::new(added.build(&build.key)));
        Ok(())
    }

    fn len(&self) -> usize {
        self.tables().map(|table| table.len()).sum()
    }

    fn change(list: &'static str, location: &ListSource, old: &Self, new: &Self) -> Option<SourceChange> {
        // An addition leaves the table of the file unchanged.
        let is_same = matches!((&old.table, &new.table), (Some(old), Some(new)) if Arc::ptr_eq(old, new));
        let tables = |torrents: &Self| -> Vec<_> {
            torrents
                .tables()
                .skip(usize::from(is_same && torrents.table.as_ref().is_some_and(|table| !table.is_empty())))
                .cloned()
                .collect()
        };
        Some(SourceChange::new(list, location, tables(old), tables(new)))
    }

    fn forget(&mut self) {
        self.part = None;
    }

    fn has_changed(&self, directory: &Path) -> bool {
        self.directory.has_changed(directory)
    }

    fn directories(directory: &Path) -> BTreeSet<PathBuf> {
        with_subdirectories(directory)
    }
}

fn read_file(file: &File, build: &Build) -> io::Result<Reading<Torrents>> {
    let mut reader = file::reader(file, FILE_BYTES_MAX);
    let body = Body { text: &mut reader, media_type: None, bytes_max: FILE_BYTES_MAX };
    let mut read = read_text(body, build, &mut Links::default())?;
    if let Some(lines) = read.lines {
        let part = ReadPart::of(file, reader.get_ref().bytes(), lines)?;
        read.reading.entries.part = part.map(|part| (part, read.reading.lines.clone()));
    }
    Ok(read.reading)
}

struct TextRead {
    reading: Reading<Torrents>,
    /// The number of its lines, if it is a list of plain lines.
    lines: Option<u64>,
}

fn read_text(body: Body<'_>, build: &Build, links: &mut Links) -> io::Result<TextRead> {
    let mut text = Text::new(body.text, body.bytes_max)?;
    let format = Format::of(text.begin(), body.media_type);
    if format != Format::Lines {
        return Ok(TextRead { reading: read_document(format, text, build, links)?, lines: None });
    }
    let mut reader = ListReader::new(build.table());
    text.for_each_piece(|piece| reader.read(piece))?;
    let lines = text.is_plain().then(|| reader.lines());
    let (table, faults) = reader.finish(&build.key).map_err(io::Error::other)?;
    Ok(TextRead { reading: Reading::new(Torrents::of(table), faults, None), lines })
}

/// Reads a document of any format but lines.
fn read_document(
    format: Format,
    mut text: Text<'_>,
    build: &Build,
    links: &mut Links,
) -> io::Result<Reading<Torrents>> {
    let (mut builder, mut faults) = (build.table(), Faults::default());
    let outcome = match format {
        Format::Json => read_json(&mut text, &mut builder, &mut faults).map_err(|error| error.to_string()),
        Format::Feed => {
            let mut share = Share::of(&build.budget);
            share.need(FEED_READING_BYTES);
            share.check().map_err(io::Error::other)?;
            read_feed(&mut text, &mut builder, links, &mut faults).map_err(|error| error.to_string())
        }
        Format::Metainfo | Format::Lines => match info_hashes(&mut text) {
            Ok(hashes) => hashes
                .iter()
                .try_for_each(|info_hash| builder.add(*info_hash, None))
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        },
    };
    builder.check().map_err(io::Error::other)?;
    Ok(Reading::new(Torrents::of(builder.build(&build.key)), faults, outcome.err()))
}

/// Returns the lists of both keys and the shared entries, or `None` if there are none and none is published.
pub(super) fn lists(
    allow: &List<Torrents>,
    deny: &List<Torrents>,
    shared: &SharedLists,
    is_published: bool,
    build: &Build,
) -> Option<TorrentLists> {
    let (shared_allow, shared_deny) = (shared.table(Which::Allow), shared.table(Which::Deny));
    if allow.is_empty() && deny.is_empty() && shared_deny.is_none() && !is_published {
        return None;
    }
    // Without its own allow list, a tracker serves all torrents, even if other nodes allow only some.
    let allow_tables = (!allow.is_empty()).then(|| tables(allow, shared_allow, build));
    Some(TorrentLists::new(build.key, allow_tables, tables(deny, shared_deny, build)))
}

/// Returns the tables of a list: each large one, and one for all others.
fn tables(
    list: &List<Torrents>,
    shared: Option<&Arc<TorrentTable>>,
    build: &Build,
) -> Vec<Arc<TorrentTable>> {
    let is_large = |table: &&Arc<TorrentTable>| table.len() > SHARED_TORRENTS_MAX;
    let all = || list.entries().flat_map(Torrents::tables).chain(shared);
    let mut tables: Vec<_> = all().filter(is_large).cloned().collect();
    let small: Vec<_> = all().filter(|table| !is_large(table)).collect();
    match &small[..] {
        [] => {}
        [one] => tables.push(Arc::clone(one)),
        several => {
            let mut shared = build.table();
            let is_full = several.iter().any(|table| shared.add_all(table).is_err());
            if is_full || shared.check().is_err() {
                // Together the details are too many, or one table of all has no memory.
                tables.extend(several.iter().map(|table| Arc::clone(table)));
            } else {
                tables.push(Arc::new(shared.build(&build.key)));
            }
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use shoal_access::HashKey;
    use shoal_access::budget::Budget;

    use super::*;

    #[test]
    fn a_compressed_content_has_the_limit_of_its_source() {
        let hash = "ab".repeat(20);
        let (lines, json) = (format!("{hash}\n").repeat(100), format!("[\"{hash}\"]{}", " ".repeat(5000)));
        for text in [lines, json] {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(text.as_bytes()).unwrap();
            let gzip = gzip.finish().unwrap();
            let read = |bytes_max| {
                let body = Body { text: &mut &gzip[..], media_type: None, bytes_max };
                let build = Build::new(HashKey::new([1, 2, 3, 4]), Budget::default());
                Torrents::parse(body, &build, &mut Links::default())
            };
            let bytes = text.len() as u64;
            assert_eq!(read(bytes).unwrap().entries.len(), 1);
            let fault = match read(bytes - 1) {
                Ok(reading) => reading.refusal(0).unwrap_or_default(),
                Err(error) => error.to_string(),
            };
            assert!(fault.ends_with(&format!("it has more than {} bytes", bytes - 1)), "{fault}");
        }
    }
}
