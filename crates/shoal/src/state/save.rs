//! Writes snapshots: in the background at an interval, on request, and when the tracker stops.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use shoal_store::snapshot_file::{Header, Summary, Writer};
use shoal_store::{Export, Store};
use tokio::sync::oneshot;

use super::tickets::TicketFile;
use crate::version;
use shoal_runtime::counters::{Saved, SnapshotCounters};
use shoal_runtime::state_directory::{StateDirectory, replace};
use shoal_runtime::{background, clock};

/// The kernel writes a snapshot to the disk in pieces of this size, so that the page cache holds few unwritten bytes.
const SYNC_BYTES: u64 = 16 << 20;

/// The thread pauses after this much work in nanoseconds, for a quarter of the time. So it takes at most four fifths
/// of a processor.
const WORK_NS: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) struct SnapshotWriter {
    pub(crate) store: Arc<Store>,
    /// The number that identifies the store's keys, see `StateKeys::id`.
    pub(crate) keys: u64,
    pub(crate) timeout_s: u32,
}

pub(crate) struct Content {
    pub(crate) directory: StateDirectory,
    pub(crate) writer: SnapshotWriter,
}

/// The thread that writes snapshots.
pub(crate) struct Saver {
    requests: SyncSender<Request>,
    thread: JoinHandle<()>,
}

/// A request for a snapshot. The sender carries the outcome.
enum Request {
    /// Written while the tracker serves.
    Now(oneshot::Sender<Result<Saved, String>>),
    /// The last snapshot, written as fast as possible.
    Last(oneshot::Sender<Result<Saved, String>>),
}

/// Maximum number of waiting requests. They share one snapshot.
const REQUESTS_MAX: usize = 16;

impl Saver {
    /// Starts the thread, which writes a snapshot every `interval`, if one is set.
    pub(crate) fn start(
        content: Content,
        mut tickets: Option<TicketFile>,
        interval: Option<Duration>,
        counters: Arc<SnapshotCounters>,
    ) -> io::Result<Self> {
        let (requests, receiver) = sync_channel(REQUESTS_MAX);
        let body = move || {
            background::step_back();
            run(&content, tickets.as_mut(), interval, &counters, &receiver);
        };
        let thread = thread::Builder::new().name("snapshot".to_owned()).spawn(body)?;
        Ok(Self { requests, thread })
    }

    pub(crate) fn requester(&self) -> Requester {
        Requester { requests: self.requests.clone() }
    }

    /// Writes the last snapshot, and ends the thread.
    pub(crate) async fn finish(self) -> Result<Saved, String> {
        let (sender, outcome) = oneshot::channel();
        let requests = self.requests;
        // A snapshot in progress comes first.
        let sent = tokio::task::spawn_blocking(move || requests.send(Request::Last(sender)).is_ok()).await;
        let saved = match sent {
            Ok(true) => outcome.await.unwrap_or_else(|_| Err(GONE.to_owned())),
            _ => Err(GONE.to_owned()),
        };
        let _ = self.thread.join();
        saved
    }
}

const GONE: &str = "the thread that writes snapshots has ended";

#[derive(Clone, Debug)]
pub(crate) struct Requester {
    requests: SyncSender<Request>,
}

impl Requester {
    pub(crate) async fn save(&self) -> Result<Saved, String> {
        let (sender, outcome) = oneshot::channel();
        self.requests
            .try_send(Request::Now(sender))
            .map_err(|_| "too many requests wait for a snapshot".to_owned())?;
        outcome.await.unwrap_or_else(|_| Err(GONE.to_owned()))
    }
}

fn run(
    content: &Content,
    mut tickets: Option<&mut TicketFile>,
    interval: Option<Duration>,
    counters: &SnapshotCounters,
    requests: &Receiver<Request>,
) {
    loop {
        if let Some(tickets) = &mut tickets {
            tickets.update();
        }
        let request = match interval {
            Some(interval) => requests.recv_timeout(interval),
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let (reply, is_last) = match request {
            Ok(Request::Now(reply)) => (Some(reply), false),
            Ok(Request::Last(reply)) => (Some(reply), true),
            Err(RecvTimeoutError::Timeout) => (None, false),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let saved = save(content, is_last, counters);
        if is_last && let Some(tickets) = &mut tickets {
            tickets.update();
        }
        if let Some(reply) = reply {
            let _ = reply.send(saved);
        }
        if is_last {
            return;
        }
    }
}

/// Writes a snapshot, and logs and counts the outcome.
fn save(content: &Content, is_last: bool, counters: &SnapshotCounters) -> Result<Saved, String> {
    let begin_ms = clock::monotonic_ms();
    let begun_unix_s = clock::unix_s();
    let file = content.directory.snapshot();
    let written = replace(&file, |new| content.writer.write(new, begun_unix_s, is_last));
    let duration_ms = clock::monotonic_ms() - begin_ms;
    match written {
        Ok((Summary { parts, peers, .. }, bytes)) => {
            let saved = Saved { begun_unix_s, duration_ms, bytes, swarms: parts, peers };
            counters.written.add(1);
            counters.last_unix_s.set(begun_unix_s);
            counters.last_bytes.set(bytes);
            tracing::info!(file = %file.display(), bytes, swarms = parts, peers, duration_ms, "snapshot");
            Ok(saved)
        }
        Err(error) => {
            counters.failed.add(1);
            let error = format!("{} cannot be written: {error}", file.display());
            tracing::error!(error, "no snapshot was written; the one before stays");
            Err(error)
        }
    }
}

impl SnapshotWriter {
    /// Writes a snapshot. The last one does not pause.
    pub(crate) fn write(
        &self,
        file: File,
        begun_unix_s: u64,
        is_last: bool,
    ) -> io::Result<(File, (Summary, u64))> {
        let Self { store, keys, timeout_s } = self;
        let header = Header {
            timeout_s: *timeout_s,
            begun_unix_s,
            keys: *keys,
            swarms: store.swarm_counts(),
            program: version::PROGRAM.to_owned(),
        };
        let mut writer = Writer::new(file, &header)?;
        let mut export = Export::default();
        let (mut synced, mut worked_ns) = (0, 0);
        while let Some(set) = export.set() {
            let begin_ns = clock::precise_ns();
            export.next(store, clock::now().monotonic_s, |part| writer.push(set, part));
            if writer.is_block_full() || export.set() != Some(set) {
                writer.end_block(clock::unix_s())?;
            }
            if writer.bytes() - synced > SYNC_BYTES {
                synced = writer.bytes();
                rustix::fs::fdatasync(writer.output())?;
            }
            if !is_last {
                // A kernel may let a worker on this processor wait for the next clock tick, some milliseconds. A
                // piece of work takes some ten microseconds.
                rustix::thread::sched_yield();
                worked_ns += clock::precise_ns() - begin_ns;
                if worked_ns >= WORK_NS {
                    thread::sleep(Duration::from_nanos(worked_ns / 4));
                    worked_ns = 0;
                }
            }
        }
        let (file, summary, bytes) = writer.finish(clock::unix_s())?;
        Ok((file, (summary, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::num::NonZeroUsize;
    use std::path::Path;

    use shoal_base::{Action, InfoHash, PeerV4};
    use shoal_store::snapshot_file::Refused;
    use shoal_store::{Announce, Settings, Store};

    use super::*;
    use crate::state::load::{self, Loaded, Source};

    fn store() -> Arc<Store> {
        let settings = Settings {
            memory_bytes_max: 8 << 20,
            peer_timeout_s: 1800,
            peers_per_source_max: 0,
            swarm_share_max: 0,
            holdings: None,
            hash_key: [1; 4],
        };
        Arc::new(Store::with_shards(&settings, 1).unwrap())
    }

    fn write_generation(file: &Path, peers: u8) -> io::Result<()> {
        let (directory, store) = (StateDirectory::open(file.parent().unwrap()).unwrap(), store());
        for peer in 0..peers {
            let announce = Announce { peer: PeerV4([peer; 6]), action: Action::Leech, peers_wanted: 0 };
            let (place, rng) = (store.v4.locate(&InfoHash([peer; 20])), &mut fastrand::Rng::with_seed(1));
            store.v4.announce(&place, &announce, clock::now().monotonic_s, rng, &mut []).unwrap();
        }
        let _lock = directory;
        let writer = SnapshotWriter { store, keys: 1, timeout_s: 1800 };
        replace(file, |new| writer.write(new, clock::unix_s(), true)).map(|_| ())
    }

    fn load(file: &Path) -> Result<Loaded, Refused> {
        let source = Source { keys: 1, torrents: None, timeout_s: 1800, threads: NonZeroUsize::MIN };
        load::load(&store(), File::open(file)?, &source)
    }

    fn peers(file: &Path) -> u64 {
        load(file).unwrap().restored.peers
    }

    /// The process or the machine may end after any part of a write.
    #[test]
    fn a_write_that_ends_at_any_byte_leaves_a_good_start() {
        let directory = tempfile::tempdir().unwrap();
        let [file, temporary] = ["swarms", "swarms.new"].map(|name| directory.path().join(name));
        write_generation(&file, 3).unwrap();
        let new = fs::read(&file).unwrap();
        write_generation(&file, 2).unwrap();
        let old = fs::read(&file).unwrap();
        for length in 0..=new.len() {
            fs::write(&temporary, &new[..length]).unwrap();
            assert_eq!(peers(&file), 2, "the old one, before the new one has its name: {length}");
        }
        fs::rename(&temporary, &file).unwrap();
        assert_eq!(peers(&file), 3);
        // A disk that loses what it said it had written.
        for length in 0..new.len() {
            fs::write(&file, &new[..length]).unwrap();
            match load(&file) {
                Ok(loaded) => {
                    assert!(loaded.is_truncated || loaded.damaged_bytes > 0, "{length}");
                    assert!(loaded.restored.peers <= 3);
                }
                Err(refused) => {
                    assert!(length < shoal_store::snapshot_file::HEADER_BYTES, "{length}: {refused}")
                }
            }
        }
        fs::write(&file, &old).unwrap();
        assert_eq!(peers(&file), 2);
    }

    #[test]
    fn a_step_that_fails_leaves_the_old_snapshot() {
        let directory = tempfile::tempdir().unwrap();
        let [file, temporary] = ["swarms", "swarms.new"].map(|name| directory.path().join(name));
        write_generation(&file, 2).unwrap();
        // The new file cannot be created.
        fs::create_dir(&temporary).unwrap();
        assert!(write_generation(&file, 3).is_err());
        assert_eq!(peers(&file), 2);
        fs::remove_dir(&temporary).unwrap();
        // A link to another place is removed, not followed.
        let elsewhere = directory.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &temporary).unwrap();
        write_generation(&file, 3).unwrap();
        assert_eq!(peers(&file), 3);
        assert!(!temporary.is_symlink() && !elsewhere.exists());
        // It cannot get its name.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(write_generation(&file, 3).is_err());
        assert!(!temporary.exists());
    }
}
