//! Fetches the URLs of lists at an interval, on a few separate threads.
//!
//! The threads start when there is a URL, and run as long as the program. Each takes the next due URL, fetches and
//! reads its content, and only then locks the lists. So a slow server delays neither files nor other URLs, unless
//! `THREADS_MAX` servers are slow at once; each fetch has a time limit. A parser that panics has a bug, and its content
//! counts as a fault of the source: the list keeps its entries, and the thread continues.

use std::io::BufRead;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use shoal_access::fetch::{Content, FetchError, Limits, Remote};
use shoal_access::torrents::Links;
use shoal_config::{FetchConfig, SourceUrl};

use super::entries::{Body, Build, Entries, Reading};
use super::linked::Linked;
use super::list::Place;
use super::networks::Networks;
use super::owners::Owners;
use super::torrents::Torrents;
use super::watch::apply_changes;
use super::{Lists, Publisher, lock};
use crate::clock;
use crate::panics::caught;

const THREADS_MAX: usize = 4;

/// Time until the next attempt after a failure. It doubles with each further one, up to the interval.
const RETRY_MS: u64 = 30_000;

/// The result of a fetch: the entries, or nothing if the caller has them already.
pub(super) type UrlReading<E> = Result<Option<Reading<E>>, String>;

/// A fetched content.
pub enum Fetched {
    /// A list of torrents.
    Torrents(UrlReading<Torrents>),
    /// A list of networks.
    Networks(UrlReading<Networks>),
    /// A table of the owners of networks.
    Owners(UrlReading<Owners>),
}

#[derive(Debug, Default)]
pub(super) struct Fetches {
    state: Mutex<State>,
    /// Wakes the threads.
    has_due: Condvar,
}

#[derive(Debug, Default)]
struct State {
    tasks: Vec<Task>,
    config: FetchConfig,
    threads: usize,
}

/// A URL of a list.
#[derive(Debug)]
struct Task {
    list: &'static str,
    url: SourceUrl,
    /// Absent while a thread fetches it.
    content: Option<Box<UrlContent>>,
    fetch: fn(&mut UrlContent, Limits, &Build) -> Fetched,
    /// When the next fetch is due, on the monotonic clock.
    due_ms: u64,
    /// Whether to fetch it again at once after the fetch in progress.
    is_requested: bool,
    /// The number of failures in a row.
    failures: u32,
    /// Whether the configuration in the current reading has named it.
    is_configured: bool,
}

/// A task that a thread works on.
struct Job {
    list: &'static str,
    url: SourceUrl,
    content: Box<UrlContent>,
    fetch: fn(&mut UrlContent, Limits, &Build) -> Fetched,
    limits: Limits,
}

/// The content of a URL.
#[derive(Debug)]
pub struct UrlContent {
    remote: Remote,
    linked: Linked,
    /// The number of entries of the last accepted copy.
    entries: usize,
}

impl Fetches {
    /// Adopts settings. All URLs that [`add`](Self::add) names from now on are fetched.
    pub(super) fn configure(&self, config: &FetchConfig) {
        let mut state = self.lock();
        if state.config.folder != config.folder {
            // The copies are elsewhere now.
            state.tasks.clear();
        }
        state.config = config.clone();
        state.tasks.iter_mut().for_each(|task| task.is_configured = false);
    }

    /// Adds a URL, unless it is known already. Before the first fetch, calls `read_copy` with the maximum size of a
    /// content.
    pub(super) fn add<E: Entries>(
        &self,
        list: &'static str,
        url: &SourceUrl,
        read_copy: impl FnOnce(&mut UrlContent, u64),
    ) {
        let mut state = self.lock();
        if let Some(task) = state.tasks.iter_mut().find(|task| task.list == list && task.url == *url) {
            task.is_configured = true;
            return;
        }
        let Some(folder) = state.config.folder.clone() else { return };
        let bytes_max = state.config.size_max.0;
        drop(state);
        let mut content = Box::new(UrlContent::new(url, &folder, list));
        read_copy(&mut content, bytes_max);
        self.lock().tasks.push(Task {
            list,
            url: url.clone(),
            content: Some(content),
            // After a panic, at most the conditions of the next request to the server are wrong.
            fetch: |content, limits, build| E::wrap(caught(|| content.fetch::<E>(limits, build))),
            due_ms: 0,
            is_requested: false,
            failures: 0,
            is_configured: true,
        });
    }

    /// Forgets the URLs of a list, whose copies are to be read again.
    pub(super) fn forget(&self, list: &str) {
        self.lock().tasks.retain(|task| task.list != list);
    }

    /// Forgets the URLs that the configuration no longer names, and lets all others be fetched.
    pub(super) fn end_configuration(&self) {
        let mut state = self.lock();
        state.tasks.retain(|task| task.is_configured);
        state.request_all();
        self.has_due.notify_all();
    }

    /// Starts as many threads as there are URLs, but at most [`THREADS_MAX`].
    pub(super) fn start(lists: &Arc<Mutex<Lists>>, publisher: &Arc<Publisher>) {
        let (fetches, build) = {
            let lists = lock(lists);
            (Arc::clone(&lists.fetches), lists.build.clone())
        };
        let mut state = fetches.lock();
        while state.threads < state.tasks.len().min(THREADS_MAX) {
            let (lists, publisher, fetches, build) =
                (Arc::clone(lists), Arc::clone(publisher), Arc::clone(&fetches), build.clone());
            let thread = thread::Builder::new().name("fetch".to_owned());
            if let Err(error) = thread.spawn(move || fetches.serve(&lists, &publisher, &build)) {
                tracing::error!(%error, "a thread that fetches lists cannot be started");
                return;
            }
            state.threads += 1;
        }
    }

    fn serve(&self, lists: &Mutex<Lists>, publisher: &Publisher, build: &Build) {
        loop {
            let mut job = self.next();
            let fetched = (job.fetch)(&mut job.content, job.limits, build);
            let has_failed = match &fetched {
                Fetched::Torrents(reading) => is_failure(reading),
                Fetched::Networks(reading) => is_failure(reading),
                Fetched::Owners(reading) => is_failure(reading),
            };
            let place = Place::Url(&job.url);
            let changes = apply_changes(lists, publisher, |lists| lists.take_read(job.list, place, fetched));
            changes.iter().for_each(|change| change.log(&build.key));
            self.finish(job, has_failed);
        }
    }

    /// Waits until a URL is due, and takes it.
    fn next(&self) -> Job {
        let mut state = self.lock();
        loop {
            let now_ms = clock::monotonic_ms();
            let limits = state.limits();
            let waiting = state.tasks.iter_mut().filter(|task| task.content.is_some());
            let Some(task) = waiting.min_by_key(|task| task.due_ms) else {
                state = self.has_due.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if task.due_ms <= now_ms
                && let Some(content) = task.content.take()
            {
                let (list, url, fetch) = (task.list, task.url.clone(), task.fetch);
                return Job { list, url, content, fetch, limits };
            }
            let wait = Duration::from_millis(task.due_ms - now_ms);
            state = self.has_due.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Puts a task back.
    fn finish(&self, job: Job, has_failed: bool) {
        let mut state = self.lock();
        let interval_ms = u64::from(state.config.interval_s) * 1000;
        let is_same =
            |task: &&mut Task| task.list == job.list && task.url == job.url && task.content.is_none();
        // It may no longer be configured.
        let Some(task) = state.tasks.iter_mut().find(is_same) else { return };
        task.failures = if has_failed { task.failures.saturating_add(1) } else { 0 };
        let wait_ms = match task.failures {
            0 => interval_ms,
            failures => interval_ms.min(RETRY_MS << (failures - 1).min(16)),
        };
        let wait_ms = if task.is_requested { 0 } else { fastrand::u64(wait_ms * 9 / 10..=wait_ms * 11 / 10) };
        task.due_ms = clock::monotonic_ms() + wait_ms;
        task.is_requested = false;
        task.content = Some(job.content);
        self.has_due.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn limits(&self) -> Limits {
        let FetchConfig { timeout_s, size_max, .. } = self.config;
        Limits { bytes_max: size_max.0, time_max: Duration::from_secs(timeout_s.into()) }
    }

    fn request_all(&mut self) {
        for task in &mut self.tasks {
            (task.due_ms, task.is_requested) = (0, task.content.is_none());
        }
    }
}

fn is_failure<E>(reading: &UrlReading<E>) -> bool {
    match reading {
        Ok(reading) => reading.as_ref().is_some_and(|reading| !reading.faults.is_empty()),
        Err(_) => true,
    }
}

impl UrlContent {
    /// Creates the content of a URL, which is not fetched yet.
    pub fn new(url: &SourceUrl, folder: &Path, list: &str) -> Self {
        let remote = Remote::new(url.uri().clone(), folder, list);
        let linked = Linked::new(remote.copy_path().with_added_extension("links"));
        Self { remote, linked, entries: 0 }
    }

    /// Reads the last good copy, if it exists. The targets of its links are known from earlier fetches, or not yet. A
    /// copy that is compressed itself may have `bytes_max` bytes after decompression.
    pub fn read_copy<E: Entries>(&mut self, bytes_max: u64, build: &Build) -> UrlReading<E> {
        let Self { remote, linked, entries } = self;
        let read_copy = || {
            let read = |content: &mut Content<'_>| {
                read::<E>(content, linked, (None, bytes_max), (build, *entries), &mut None)
            };
            remote.read_copy(read).map_err(|error| error.to_string())
        };
        let reading = caught(read_copy);
        self.accept(&reading);
        reading
    }

    /// Fetches the content, and the targets of its links.
    fn fetch<E: Entries>(&mut self, limits: Limits, build: &Build) -> UrlReading<E> {
        let Self { remote, linked, entries } = self;
        let (of, with) = (|limits: Limits| (Some(limits), limits.bytes_max), (build, *entries));
        let mut partial = None;
        let fetched =
            remote.fetch(limits, |content| read::<E>(content, linked, of(limits), with, &mut partial));
        let reading = match fetched {
            // Links that could not be fetched last time are tried again.
            Ok(None) if linked.is_missing_some() => remote
                .read_copy(|content| read::<E>(content, linked, of(limits), with, &mut None))
                .map_err(|error| error.to_string()),
            Err(FetchError::Refused(fault)) => {
                return partial.map_or(Err(fault), |reading| Ok(Some(reading)));
            }
            fetched => fetched.map_err(|error| error.to_string()),
        };
        self.accept(&reading);
        reading
    }

    fn accept<E: Entries>(&mut self, reading: &UrlReading<E>) {
        if let Ok(Some(reading)) = reading {
            self.entries = reading.entries.len();
        }
    }
}

/// Reads a content that may replace `before` entries. If a part of it cannot be read, it becomes `partial`, and the
/// content is refused. It may have `bytes_max` bytes after decompression. Without limits, links are not fetched.
fn read<E: Entries>(
    content: &mut Content<'_>,
    linked: &mut Linked,
    (limits, bytes_max): (Option<Limits>, u64),
    (build, before): (&Build, usize),
    partial: &mut Option<Reading<E>>,
) -> Result<Reading<E>, String> {
    let begin = content.body.fill_buf().map_err(|error| error.to_string())?;
    if begin.trim_ascii().is_empty() {
        // A server with a fault often sends nothing. An empty list can be one with a comment.
        return Err("the content is empty".to_owned());
    }
    let mut links = Links::default();
    let media_type = content.media_type.clone();
    let body = Body { text: &mut content.body, media_type: media_type.as_deref(), bytes_max };
    let mut reading = E::parse(body, build, &mut links).map_err(|error| error.to_string())?;
    if reading.is_whole {
        let linked = linked.resolve(&links, build, limits, &*content, &mut reading.faults);
        linked
            .and_then(|info_hashes| reading.entries.add_linked(&info_hashes, build))
            .map_err(|error| error.to_string())?;
    }
    if let Some(refusal) = reading.refusal(before) {
        (reading.is_whole, reading.faults) = (false, vec![refusal.clone()]);
        *partial = Some(reading);
        return Err(refusal);
    }
    Ok(reading)
}
