//! Watches the sources of lists, and reads changed ones again.
//!
//! The kernel reports changes in the directories of all sources (inotify). A notice only triggers a look: the inode,
//! size and times of a source show whether it has changed. So any way of replacing a file works: in place, by renaming
//! another one over it, by a link, or by removing its directory and making a new one. The thread also looks every half
//! minute without a notice, for file systems that send none.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use rustix::io::Errno;

use super::changes::SourceChange;
use super::control::apply;
use super::fetches::Fetches;
use super::{Changes, ListCounters, Lists, Publisher, lock};
use crate::clock;

/// Time after which the sources are examined without a notice.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Pause after a notice. Programs often make several changes at once.
const SETTLE_TIME: Duration = Duration::from_millis(2);

/// Maximum time of that pause.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(2);

/// The changes that may affect a source. Writing counts when the file is closed: until then it may be half written.
const CHANGES: inotify::WatchFlags = inotify::WatchFlags::CLOSE_WRITE
    .union(inotify::WatchFlags::ATTRIB)
    .union(inotify::WatchFlags::CREATE)
    .union(inotify::WatchFlags::DELETE)
    .union(inotify::WatchFlags::MOVED_FROM)
    .union(inotify::WatchFlags::MOVED_TO)
    .union(inotify::WatchFlags::DELETE_SELF)
    .union(inotify::WatchFlags::MOVE_SELF)
    .union(inotify::WatchFlags::ONLYDIR);

/// Makes the thread look at the sources, and at the directories to watch.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn ring(&self) {
        // It fails only if the counter is full, and then the thread looks anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Starts the thread, which runs as long as the program.
pub fn watch(lists: &Arc<Mutex<Lists>>, publisher: &Arc<Publisher>) -> io::Result<()> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let notices = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    lock(lists).bell = Some(Bell(bell.try_clone()?));
    let bell = Bell(bell);
    let (lists, publisher) = (Arc::clone(lists), Arc::clone(publisher));
    let counters = lock(&lists).counters();
    let watcher = Watcher { notices, bell, watched: BTreeSet::new(), counters };
    thread::Builder::new().name("lists".to_owned()).spawn(move || watcher.run(&lists, &publisher))?;
    Ok(())
}

struct Watcher {
    notices: OwnedFd,
    bell: Bell,
    watched: BTreeSet<PathBuf>,
    counters: Arc<ListCounters>,
}

impl Watcher {
    fn run(mut self, lists: &Arc<Mutex<Lists>>, publisher: &Arc<Publisher>) {
        loop {
            let begin_ms = clock::monotonic_ms();
            let counters = Arc::clone(&self.counters);
            counters.heartbeat.during(begin_ms, || {
                // The directories are watched before the sources are examined, so that no change is missed.
                self.watch(lock(lists).directories());
                self.look_again_if_others(&lock(lists).directories());
                follow_files(lists, publisher);
                Fetches::start(lists, publisher);
            });
            self.wait(Duration::from_millis(clock::monotonic_ms().saturating_sub(begin_ms)));
        }
    }

    /// Watches these directories. Tries a missing one again at the next look.
    fn watch(&mut self, directories: BTreeSet<PathBuf>) {
        for directory in &directories {
            match inotify::add_watch(&self.notices, directory, CHANGES) {
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) if !self.watched.contains(directory) => tracing::warn!(
                    directory = %directory.display(),
                    %error,
                    "changes of lists in this directory are noticed within half a minute only"
                ),
                Err(_) => {}
            }
        }
        self.watched = directories;
    }

    /// Does not wait before the next look if the directories to watch are others by now. A directory that was made after the
    /// list of them and before the watch over its parent is neither watched nor noticed.
    fn look_again_if_others(&self, directories: &BTreeSet<PathBuf>) {
        if self.watched != *directories {
            self.bell.ring();
        }
    }

    /// Waits for a notice, the bell, or the next look. After a notice, it pauses for as long as the last look took: in
    /// a large directory that changes constantly, the thread is busy for at most half of the time.
    fn wait(&self, look_time: Duration) {
        let mut sources =
            [PollFd::new(&self.notices, PollFlags::IN), PollFd::new(&self.bell.0, PollFlags::IN)];
        // An interruption by a signal is as good as a notice.
        let _ = poll(&mut sources, Some(&LOOK_EVERY));
        thread::sleep(look_time.clamp(SETTLE_TIME, SETTLE_TIME_MAX));
        drain(self.notices.as_fd());
        drain(self.bell.0.as_fd());
    }
}

/// Reads everything that has arrived. Its content does not matter.
fn drain(from: impl AsFd) {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    while let Ok((read, _)) = rustix::io::read(&from, &mut buffer)
        && !read.is_empty()
    {}
}

/// Reads the files that have changed, and applies them. Large ones are read in the background.
pub(super) fn follow_files(lists: &Arc<Mutex<Lists>>, publisher: &Arc<Publisher>) {
    let mut large = Vec::new();
    let changes = apply_changes(lists, publisher, |lists| lists.read_files(false, &mut large));
    let key = lock(lists).build.key;
    changes.iter().for_each(|change| change.log(&key));
    large.into_iter().for_each(|file| file.start(lists, publisher));
}

/// Locks the lists, lets `read` change them, and publishes the new rules. Returns the changes to log, which the caller
/// does without the lock.
pub(super) fn apply_changes(
    lists: &Mutex<Lists>,
    publisher: &Publisher,
    read: impl FnOnce(&mut Lists) -> Changes,
) -> Vec<SourceChange> {
    let mut lists = lock(lists);
    let changes = read(&mut lists);
    if changes.torrents || changes.networks || changes.earned {
        let mut access = publisher.live.latest().policy.access().cloned().unwrap_or_default();
        lists.apply(changes, &mut access);
        apply(publisher, access);
    }
    lists.take_changes()
}

/// Adds the directories that show a change of `path`: its own directory, and the directory of a link's target, or the
/// nearest existing one.
pub(super) fn add_parents(path: &Path, directories: &mut BTreeSet<PathBuf>) {
    let resolved = path.canonicalize().ok();
    for path in [Some(path), resolved.as_deref()].into_iter().flatten() {
        let parent =
            path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        let existing = parent.and_then(|parent| parent.ancestors().find(|ancestor| ancestor.is_dir()));
        directories.extend(existing.map(Path::to_owned));
    }
}
