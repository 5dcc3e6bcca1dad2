//! Reads a snapshot into the store, before the tracker serves.
//!
//! Serving meanwhile would answer sooner, but with few peers, and clients would not return for half an hour.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread;

use shoal_access::torrents::TorrentLists;
use shoal_base::InfoHash;
use shoal_store::snapshot_file::{Block, Event, Header, Reader, Refused, Summary};
use shoal_store::{Ages, Restored, Store, SwarmPart, SwarmSet};

use shoal_runtime::clock;

/// Number of parts that go to the store in one call.
const BATCH: usize = 1024;

/// The conditions under which swarms are read.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The number that identifies this store's keys, see `StateKeys::id`.
    pub(crate) keys: u64,
    /// The lists that decide which torrents may have swarms.
    pub(crate) torrents: Option<&'a TorrentLists>,
    pub(crate) timeout_s: u32,
    pub(crate) threads: NonZeroUsize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loaded {
    /// When the snapshot began, in seconds since 1970.
    pub(crate) begun_unix_s: u64,
    pub(crate) restored: Restored,
    /// Swarms that were left out because the lists forbid their torrents.
    pub(crate) forbidden: u64,
    /// Swarms that were left out because other keys hide their torrents.
    pub(crate) of_other_keys: u64,
    pub(crate) damaged_bytes: u64,
    /// Whether the end of the file is missing.
    pub(crate) is_truncated: bool,
    /// The contents that the file should have.
    pub(crate) summary: Option<Summary>,
}

impl Loaded {
    fn add(&mut self, other: &Self) {
        self.restored += other.restored;
        self.forbidden += other.forbidden;
        self.of_other_keys += other.of_other_keys;
        self.damaged_bytes += other.damaged_bytes;
        self.is_truncated |= other.is_truncated;
        self.summary = self.summary.or(other.summary);
    }
}

/// Reads a snapshot into a store, by several threads. Fails if the file cannot be read at all. A damaged file yields
/// its intact blocks.
pub(crate) fn load(store: &Store, file: File, source: &Source<'_>) -> Result<Loaded, Refused> {
    let reader = Reader::new(file)?;
    let header = reader.header().clone();
    for (set, swarms) in SwarmSet::ALL.into_iter().zip(header.swarms) {
        store.reserve(set, swarms);
    }
    let loading = Loading { store, source, header: &header, reader: Mutex::new(reader) };
    let mut loaded = Loaded { begun_unix_s: header.begun_unix_s, ..Loaded::default() };
    let parts = thread::scope(|scope| {
        let others: Vec<_> = (1..source.threads.get()).map(|_| scope.spawn(|| loading.load())).collect();
        let mut parts = vec![loading.load()];
        parts.extend(others.into_iter().filter_map(|thread| thread.join().ok()));
        parts
    });
    for part in parts {
        loaded.add(&part?);
    }
    Ok(loaded)
}

struct Loading<'a> {
    store: &'a Store,
    source: &'a Source<'a>,
    header: &'a Header,
    reader: Mutex<Reader<File>>,
}

impl Loading<'_> {
    fn load(&self) -> io::Result<Loaded> {
        let (mut loaded, mut block) = (Loaded::default(), Block::default());
        loop {
            let event = self.reader.lock().unwrap_or_else(PoisonError::into_inner).next(&mut block)?;
            match event {
                Some(Event::Block) => self.take(&block, &mut loaded),
                Some(Event::Damage(bytes)) => loaded.damaged_bytes += bytes,
                Some(Event::End(summary)) => loaded.summary = Some(summary),
                Some(Event::Truncated) => loaded.is_truncated = true,
                None => return Ok(loaded),
            }
        }
    }

    fn take(&self, block: &Block, loaded: &mut Loaded) {
        let Some(set) = block.set() else { return };
        // A clock that went back counts as stopped.
        let elapsed_s = clock::unix_s().saturating_sub(block.at_unix_s);
        let elapsed_s = u32::try_from(elapsed_s).unwrap_or(u32::MAX);
        let ages = Ages::new(self.header.timeout_s, self.source.timeout_s, elapsed_s);
        let now_s = clock::now().monotonic_s;
        let mut batch = Vec::with_capacity(BATCH);
        let mut parts = block.parts();
        loop {
            batch.clear();
            let parts = parts.by_ref().map_while(Result::ok);
            batch.extend(parts.filter_map(|part| self.admit(set, part, loaded)).take(BATCH));
            if batch.is_empty() {
                return;
            }
            loaded.restored += self.store.restore(set, &batch, &ages, now_s);
        }
    }

    /// Returns the part if it may return, and counts it otherwise.
    fn admit<'p>(&self, set: SwarmSet, part: SwarmPart<'p>, loaded: &mut Loaded) -> Option<SwarmPart<'p>> {
        let is_public = matches!(set, SwarmSet::V4 | SwarmSet::V6);
        if !is_public && self.header.keys != self.source.keys {
            loaded.of_other_keys += 1;
            return None;
        }
        if self.source.torrents.is_some_and(|torrents| !self.permits(torrents, &part.id, is_public)) {
            loaded.forbidden += 1;
            return None;
        }
        Some(part)
    }

    /// Returns whether the torrent of a part is served.
    fn permits(&self, torrents: &TorrentLists, id: &InfoHash, is_public: bool) -> bool {
        let is_served = |info_hash: &InfoHash| torrents.check(info_hash).is_ok();
        if is_public {
            return is_served(id);
        }
        // One candidate is the torrent, and no list contains the others.
        let candidates = self.store.unmask(id);
        match torrents.allow() {
            Some(_) => candidates.iter().any(is_served),
            None => candidates.iter().all(is_served),
        }
    }
}
