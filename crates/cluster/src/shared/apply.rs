//! The thread that applies changes of the shared state at this node, and writes the copy.
//!
//! Changes that come while it works are applied together afterwards. It then rests for as long as it has worked, so a
//! flood of changes costs at most half of a processor.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use shoal_config::Config;

use super::copy::{self, CopyFile};
use super::{Contents, Fill, Parts, SharedState, copy_file};
use shoal_runtime::clock;
use shoal_runtime::lists::ListControl;
use shoal_runtime::periodic::PeriodicThread;

/// How often the thread looks for a due copy without a notice.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Minimum and maximum time of rest after work.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_secs(1);

/// Minimum time between two copies.
const COPY_EVERY_MS: u64 = 1000;

/// The place where the shared values of the configuration take effect.
pub trait ApplyValues: Send + Sync {
    /// Replaces the shared values of the configuration. The error says why everything stays as it was.
    fn apply(&self, values: Vec<(String, String)>) -> Result<(), String>;
}

/// The parts of the tracker that the shared state changes.
pub struct Targets {
    /// The lists.
    pub lists: ListControl,
    /// The configuration.
    pub reloader: Arc<dyn ApplyValues>,
}

/// The thread, which ends when this is dropped.
pub struct SharedThread(PeriodicThread);

impl SharedThread {
    pub(crate) fn start(
        state: &Arc<SharedState>,
        targets: Targets,
        config: &Config,
    ) -> std::io::Result<Self> {
        let file = copy_file(config).map(|path| CopyFile { path, has_keys: config.state.keys });
        let mut applier = Applier { state: Arc::clone(state), targets, file, is_due: false, copied_ms: 0 };
        let thread = PeriodicThread::start("shared", LOOK_EVERY, move || applier.run())?;
        // The slot was empty before.
        let _is_first = state.applier.set(thread.thread());
        state.wake_applier();
        Ok(Self(thread))
    }

    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        self.0.failure().await
    }
}

struct Applier {
    state: Arc<SharedState>,
    targets: Targets,
    file: Option<CopyFile>,
    /// Whether the copy is older than the state.
    is_due: bool,
    copied_ms: u64,
}

impl Applier {
    fn run(&mut self) {
        let begin_ms = clock::monotonic_ms();
        let (parts, contents) = self.state.take_waiting();
        self.is_due |= parts.is_any();
        if parts.torrents || parts.bans {
            let key = self.targets.lists.key();
            let tables = parts.torrents.then(|| copy::tables(&contents, &key));
            self.targets.lists.share(tables, parts.bans.then(|| copy::bans(&contents)));
            tracing::info!(
                torrents = contents.torrents_len(),
                bans = contents.bans.len(),
                "the lists of the cluster have changed"
            );
        }
        if parts.config {
            self.apply_values(&contents);
        }
        self.state.applied.send_replace(contents.revision);
        // The copy is made of other contents.
        drop(contents);
        if self.is_due && begin_ms >= self.copied_ms + COPY_EVERY_MS {
            self.copied_ms = begin_ms;
            self.copy();
        }
        if parts.is_any() {
            let worked = Duration::from_millis(clock::monotonic_ms().saturating_sub(begin_ms));
            thread::sleep(worked.clamp(REST_MIN, REST_MAX));
        }
    }

    /// Applies the values of the configuration, except those unknown to this version.
    fn apply_values(&self, contents: &Contents) {
        let values = contents.config.iter().filter(|(key, _)| shoal_config::is_shared(key));
        let values = values.map(|(key, value)| (key.clone(), value.value.clone()));
        // The log and the statistics show the outcome.
        let fault = self.targets.reloader.apply(values.collect()).err();
        self.state.lock().values_fault = fault;
    }

    fn copy(&mut self) {
        self.is_due = false;
        let Some(file) = &self.file else { return };
        let Some((contents, fill)) = self.state.known() else { return };
        if let Err(error) = file.write(&contents, &fill) {
            tracing::error!(
                file = %file.path.display(), %error,
                "the copy of the shared state cannot be written; a restart while NATS is away knows an older one"
            );
        }
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        if self.is_due {
            self.copy();
        }
    }
}

impl SharedState {
    /// Returns the parts that wait to be applied, and the contents.
    fn take_waiting(&self) -> (Parts, Contents) {
        let mut inner = self.lock();
        let parts = core::mem::take(&mut inner.waiting);
        // Contents are copied only if they are needed.
        let contents =
            if parts.is_any() { inner.contents.clone() } else { Contents::at(inner.contents.revision) };
        (parts, contents)
    }

    /// Returns the contents and their bucket, once there was a bucket.
    fn known(&self) -> Option<(Contents, Fill)> {
        let inner = self.lock();
        inner.fill.created.is_some().then(|| (inner.contents.clone(), inner.fill.clone()))
    }
}
