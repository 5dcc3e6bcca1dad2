//! Large files, which are read without the lock of the lists, so that no change of another source waits for them.
//!
//! One thread at a time reads a source. Its reading counts if the source is still configured and was not read again
//! meanwhile. A change of the file during the reading shows at the next look, which the thread requests.
//!
//! Files of more than 8 MiB and compressed files are large. A thread with little weight reads them ([`background`]).
//! Only SIGHUP, `shoal access reload` and the start wait for such a file, with the lock. The threads that fetch URLs
//! also parse their contents. The thread that watches parses directories of .torrent files and additions, with the
//! usual weight.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use super::changes::SourceChange;
use super::entries::{Build, Entries};
use super::fetches::{Fetched, UrlReading};
use super::watch::apply_changes;
use super::{Lists, Publisher, lock};
use crate::background;
use crate::panics::caught;

/// Names one reading of a source. Each is different from all others.
pub(super) type ReadingId = Arc<()>;

/// A large file that is to be read.
#[derive(Clone, Debug)]
pub struct LargeFile {
    /// The name of the list.
    pub(super) list: &'static str,
    pub(super) reading: ReadingId,
    path: PathBuf,
    read: fn(&Path, &Build) -> Fetched,
}

impl LargeFile {
    pub(super) fn new<E: Entries>(list: &'static str, path: PathBuf, reading: ReadingId) -> Self {
        Self { list, reading, path, read: |path, build| E::wrap(read::<E>(path, build)) }
    }

    /// Reads the file, which may take many seconds.
    pub fn read(&self, build: &Build) -> Fetched {
        background::run(|| (self.read)(&self.path, build))
    }

    /// Starts a thread that reads the file and applies it.
    pub(super) fn start(self, lists: &Arc<Mutex<Lists>>, publisher: &Arc<Publisher>) {
        let (file, own) = (self.clone(), (Arc::clone(lists), Arc::clone(publisher)));
        let thread = thread::Builder::new().name("large-list".to_owned());
        if thread.spawn(move || file.apply(&own.0, &own.1)).is_err() {
            // Late is better than never.
            self.apply(lists, publisher);
        }
    }

    fn apply(&self, lists: &Mutex<Lists>, publisher: &Publisher) {
        let build = lock(lists).build.clone();
        let read = self.read(&build);
        let changes = apply_changes(lists, publisher, |lists| lists.take_large(self, read));
        lock(lists).watch();
        // The comparison of two large tables takes long as well.
        background::run(|| changes.iter().for_each(|change: &SourceChange| change.log(&build.key)));
    }
}

fn read<E: Entries>(path: &Path, build: &Build) -> UrlReading<E> {
    caught(|| E::read_whole(path, build).map(Some).map_err(|error| error.to_string()))
}
