//! What a comparison found out, as it is written to `results.json`.
//!
//! Raw values of every round are kept; medians are made by whoever shows them.

use serde::{Deserialize, Serialize};
use shoal_load::Report;

/// The version of the schema of [`Comparison`]. It rises when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// A whole comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What is compared, in a line.
    pub title: String,
    /// When it began, RFC 3339.
    pub began: String,
    /// The command line.
    pub command: Vec<String>,
    /// The commit of the project that the laboratory was built from.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// The load, in words and as a table of settings: name and value.
    pub load: Vec<(String, String)>,
    /// How the processors were divided, by name (`subsequent`, `split-pairs`, …).
    pub cpu_mode: String,
    /// How many rounds were asked for.
    pub rounds: usize,
    /// Every tracker that was asked for, the absent ones included, in the order of presentation.
    pub trackers: Vec<Tracker>,
    /// One for each tracker that was there, and number of cores.
    pub cells: Vec<Cell>,
    /// Whether it was ended early, so that rounds are missing.
    pub partial: bool,
}

/// The machine of a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Logical processors.
    pub processors: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// The hypervisor, if it is known that there is one.
    pub virtualised: Option<String>,
}

/// A tracker, or the ceiling `echo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tracker {
    /// The name by which `--trackers` chooses it, such as `aquatic_udp-io_uring`.
    pub name: String,
    /// How it is called in tables and plots.
    pub title: String,
    /// Its version, as far as it tells.
    pub version: Option<String>,
    /// Whether it is no tracker but the limit that the kernel and the back end set.
    pub is_ceiling: bool,
    /// Why it could not take part; such a tracker has no cells.
    pub absent: Option<String>,
    /// The configuration that it ran with on the fewest cores, as text.
    pub configuration: String,
    /// What the reader should know of this tracker under this load.
    pub notes: Vec<String>,
}

/// One tracker on one number of cores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// [`Tracker::name`].
    pub tracker: String,
    /// How many cores (or hyperthreads, by the CPU mode) it had.
    pub cores: usize,
    /// The processors of the tracker.
    pub tracker_cpus: Vec<usize>,
    /// The processors of the load.
    pub load_cpus: Vec<usize>,
    /// In the order in which they ran.
    pub rounds: Vec<Round>,
}

/// One run of one tracker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    /// Which round, from 1.
    pub round: usize,
    /// When the tracker was started, RFC 3339.
    pub began: String,
    /// What went wrong, if something did; then what was measured before is kept, and this round counts in no median.
    pub failure: Option<String>,
    /// The fill.
    pub fill: Option<Report>,
    /// The closed loop: as much as the tracker answers.
    pub load: Option<Report>,
    /// The open loop: latency at a fixed rate.
    pub latency: Option<Report>,
    /// What the tracker's process used while the closed loop ran.
    pub usage: Option<Usage>,
    /// Resident bytes before the fill.
    pub resident_before_bytes: Option<u64>,
    /// Resident bytes after the fill.
    pub resident_filled_bytes: Option<u64>,
    /// Resident bytes after the closed loop.
    #[serde(default)]
    pub resident_loaded_bytes: Option<u64>,
    /// Connections that did nothing, where these were measured in place of a load.
    #[serde(default)]
    pub idle: Option<IdleConnections>,
    /// What was measured a second time beside connections that are never read, where there are such.
    #[serde(default)]
    pub deaf: Option<BesideDeaf>,
}

/// What a tracker did beside connections that announce once and are never read again. How many there were, and how many
/// of them it closed, is in the reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BesideDeaf {
    /// The fill.
    pub fill: Option<Report>,
    /// The closed loop.
    pub load: Option<Report>,
    /// The open loop.
    pub latency: Option<Report>,
    /// Resident bytes when all was over.
    pub resident_bytes: Option<u64>,
}

/// What connections cost that did nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdleConnections {
    /// How many were asked for.
    pub wanted: usize,
    /// How many were open when memory was read.
    pub open: usize,
    /// Why there were not more, if the tracker or this host refused one.
    pub failure: Option<String>,
    /// Resident bytes of the tracker before the first.
    pub resident_before_bytes: u64,
    /// Resident bytes of the tracker with all of them open.
    pub resident_open_bytes: u64,
    /// The same on the way, with fewer of them.
    #[serde(default)]
    pub steps: Vec<IdleStep>,
}

/// Memory with some of the connections open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdleStep {
    /// How many.
    pub open: usize,
    /// Resident bytes of the tracker.
    pub resident_bytes: u64,
}

/// CPU time that a process used during a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds of wall-clock time that the load lasted.
    pub elapsed_s: f64,
    /// CPU time of the process in user mode.
    pub user_s: f64,
    /// CPU time of the process in the kernel.
    pub system_s: f64,
    /// CPU time of the process by the scheduler's exact account, user and system together.
    pub exact_s: Option<f64>,
    /// Busy share of each processor that tracker or load had, whoever kept it busy: processor, share 0 to 1.
    pub processors: Vec<(usize, f64)>,
    /// Share of the time that the hypervisor took away, 0 to 1.
    pub steal: f64,
    /// CPU time of the process up to the last look at it while requests were still being sent.
    #[serde(default)]
    pub at_work: Option<CpuTime>,
}

/// CPU time that a process used in some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Seconds of wall-clock time.
    pub elapsed_s: f64,
    /// In user mode.
    pub user_s: f64,
    /// In the kernel.
    pub system_s: f64,
    /// By the scheduler's exact account, user and system together.
    pub exact_s: Option<f64>,
}

/// All replies that the tracker sent while it was measured: what its CPU time was spent on, good or not. Those that were
/// tolerated are among the good ones.
#[must_use]
pub fn replies(load: &Report) -> u64 {
    load.responses.total() + load.wrong.total() + load.errors + load.late
}

/// CPU time, and on how many replies it was spent; of WebTorrent, on how many messages of whatever kind. How many of
/// these came is known up to the end of the run, and so the wait for the last of them does not count.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
pub fn spent(load: &Report, usage: &Usage) -> (CpuTime, f64) {
    match (&load.relays, usage.at_work) {
        (None, _) => (usage.cpu_time(), replies(load) as f64),
        (Some(relays), None) => (usage.cpu_time(), relays.messages as f64),
        (Some(relays), Some(at_work)) => (at_work, relays.messages_per_s * at_work.elapsed_s),
    }
}

impl CpuTime {
    /// All of it, by the exact account if there is one.
    #[must_use]
    pub fn whole_s(&self) -> f64 {
        self.exact_s.unwrap_or(self.user_s + self.system_s)
    }
}

impl Usage {
    /// Below this share of its processors' time a tracker was not at its limit: it waited for work, or others ran there.
    pub const SATURATED_SHARE: f64 = 0.9;

    /// How much of the time of so many processors the process used, 0 to 1.
    #[must_use]
    pub fn share_of(&self, processors: usize) -> Option<f64> {
        let available_s = self.elapsed_s * f64::from(u32::try_from(processors).ok()?);
        (available_s > 0.0).then(|| self.cpu_s() / available_s)
    }

    /// CPU time of the process in all, by the exact account if there is one.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.cpu_time().whole_s()
    }

    /// CPU time of the process.
    #[must_use]
    pub fn cpu_time(&self) -> CpuTime {
        let Self { elapsed_s, user_s, system_s, exact_s, .. } = *self;
        CpuTime { elapsed_s, user_s, system_s, exact_s }
    }
}
