//! The result of a comparison, as written to `results.json`.
//!
//! It contains the raw values of every round. Medians are computed by the code that shows them.

use serde::{Deserialize, Serialize};
use shoal_load::Report;

/// The schema version of [`Comparison`]. It increases when the meaning of a field changes or a field is removed.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub schema_version: u32,
    pub title: String,
    /// The start time, RFC 3339.
    pub began: String,
    pub command: Vec<String>,
    /// The commit of the project that `shoal-lab` was built from.
    pub commit: String,
    pub machine: Machine,
    pub load: Vec<(String, String)>,
    /// The name of the CPU mode (`subsequent`, `split-pairs`, …).
    pub cpu_mode: String,
    /// The planned number of rounds.
    pub rounds: usize,
    /// Every requested tracker, including absent ones, in the order of presentation.
    pub trackers: Vec<Tracker>,
    /// One cell for each installed tracker and number of cores.
    pub cells: Vec<Cell>,
    /// Whether it was interrupted, so that rounds are missing.
    pub partial: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    pub virtualised: Option<String>,
}

/// A tracker, or the ceiling `echo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tracker {
    /// The name by which `--trackers` chooses it, such as `aquatic_udp-io_uring`.
    pub name: String,
    pub title: String,
    pub version: Option<String>,
    /// Whether it is the ceiling instead of a tracker: the limit that kernel and back end set.
    pub is_ceiling: bool,
    /// Why it could not take part. An absent tracker has no cells.
    pub absent: Option<String>,
    /// Its configuration on the fewest cores, as text.
    pub configuration: String,
    pub notes: Vec<String>,
}

/// One tracker on one number of cores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// [`Tracker::name`].
    pub tracker: String,
    /// The number of cores (or hyperthreads, depending on the CPU mode).
    pub cores: usize,
    pub tracker_cpus: Vec<usize>,
    pub load_cpus: Vec<usize>,
    /// The rounds, in the order in which they ran.
    pub rounds: Vec<Round>,
}

/// One run of one tracker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// The number of the round, from 1.
    pub round: usize,
    /// The start time of the tracker, RFC 3339.
    pub began: String,
    /// Why the run failed, if it did. Earlier measurements are kept, but the round is not part of any median.
    pub failure: Option<String>,
    pub fill: Option<Report>,
    /// The closed loop: as many replies as the tracker can send.
    pub load: Option<Report>,
    /// The open loop: latency at a fixed rate.
    pub latency: Option<Report>,
    /// The CPU time of the tracker's processes during the closed loop.
    pub usage: Option<Usage>,
    /// The same during the open loop, in which the tracker waits for work most of the time.
    #[serde(default)]
    pub latency_usage: Option<Usage>,
    pub resident_before_bytes: Option<u64>,
    pub resident_filled_bytes: Option<u64>,
    #[serde(default)]
    pub resident_loaded_bytes: Option<u64>,
    /// The idle connections, if these were measured instead of a load.
    #[serde(default)]
    pub idle: Option<IdleConnections>,
    /// The second measurement, with slow readers, if there are any. Earlier versions called it `deaf`.
    #[serde(default, alias = "deaf")]
    pub slow_readers: Option<SlowReaderRound>,
}

/// How a tracker treats connections that announce once and never read again, and serves the others meanwhile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SlowReaderRound {
    pub fill: Option<Report>,
    pub load: Option<Report>,
    pub latency: Option<Report>,
    /// Resident bytes at the end.
    pub resident_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdleConnections {
    pub wanted: usize,
    /// The number that was open when memory was read.
    pub open: usize,
    /// Why there were not more, if the tracker or this host refused one.
    pub failure: Option<String>,
    pub resident_before_bytes: u64,
    pub resident_open_bytes: u64,
    /// The same with fewer connections.
    #[serde(default)]
    pub steps: Vec<IdleStep>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdleStep {
    pub open: usize,
    pub resident_bytes: u64,
}

/// CPU time of the tracker's processes during a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time, and how long the load lasted.
    #[serde(flatten)]
    pub cpu: CpuTime,
    /// Busy share of each processor of tracker and load, by any program: processor, share 0 to 1.
    pub processors: Vec<(usize, f64)>,
    /// Share of the time that the hypervisor took away, 0 to 1.
    pub steal: f64,
    /// CPU time up to the last sample before the load stopped sending requests.
    #[serde(default)]
    pub at_work: Option<CpuTime>,
    /// Share of the time in which the tracker had work for all of its processors: its threads ran or waited for them.
    #[serde(default)]
    pub ready_share: Option<f64>,
    /// Threads of `shoal-lab` that spun on each processor of the tracker, to divide its time.
    #[serde(default)]
    pub spinners: usize,
    /// CPU time of the kernel's threads that do the receive work of the tracker's interface, on the tracker's processors, by
    /// the scheduler's exact account; none if there are no such threads. It is part of the cost of a reply, but not of the
    /// CPU time of the tracker's processes. A program of the tracker at the driver hook runs in it.
    #[serde(default)]
    pub receive_s: Option<f64>,
}

/// CPU time of the tracker's processes during a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Seconds of wall-clock time.
    pub elapsed_s: f64,
    /// In user mode, by the kernel's clock ticks.
    pub user_s: f64,
    /// In the kernel, by its clock ticks.
    pub system_s: f64,
    /// Both, by the scheduler's exact account.
    pub exact_s: Option<f64>,
    /// In user mode, by samples. Missing if the kernel permits none, or if a thread began during the load.
    #[serde(default)]
    pub sampled_user_s: Option<f64>,
    /// The error of the user part: nineteen of twenty measurements of the same time are no further away.
    #[serde(default)]
    pub user_error_s: Option<f64>,
}

/// Returns the number of replies, good or not, that the tracker spent CPU time on. Tolerated ones count as good.
pub fn replies(load: &Report) -> u64 {
    load.responses.total() + load.wrong.total() + load.errors + load.late
}

/// Returns the CPU time and the number of replies it was spent on; with WebTorrent, the number of messages of any kind.
/// The number of messages is known up to the end of the load, so the wait for the last ones does not count.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
pub fn spent(load: &Report, usage: &Usage) -> (CpuTime, f64) {
    match (&load.relays, usage.at_work) {
        (None, _) => (usage.cpu, replies(load) as f64),
        (Some(relays), None) => (usage.cpu, relays.messages as f64),
        (Some(relays), Some(at_work)) => (at_work, relays.messages_per_s * at_work.elapsed_s),
    }
}

impl CpuTime {
    /// Returns all CPU time, by the exact account if there is one.
    pub fn whole_s(&self) -> f64 {
        self.exact_s.unwrap_or(self.user_s + self.system_s)
    }

    /// Returns the CPU time in user mode: by samples if there are any, or else as the ticks divide all CPU time.
    pub fn user_part_s(&self) -> f64 {
        let (whole_s, counted_s) = (self.whole_s(), self.user_s + self.system_s);
        match self.sampled_user_s {
            Some(sampled_s) => sampled_s.min(whole_s),
            None if counted_s > 0.0 => whole_s * self.user_s / counted_s,
            None => 0.0,
        }
    }
}

impl Usage {
    /// Below this share of the time, a tracker was not saturated: it waited for work, and the round is generator-bound.
    pub const SATURATED_SHARE: f64 = 0.98;

    /// Returns the share of the time in which a tracker on these processors had work for all of them, 0 to 1. If the
    /// kernel's receive threads are there too, that is the time in which the processors were busy.
    pub fn saturation(&self, processors: &[usize]) -> Option<f64> {
        if self.receive_s.is_some() {
            self.busy_share_of(processors)
        } else {
            self.busy_share(processors.len())
        }
    }

    /// Returns the share of the time in which a tracker with this number of processors had work, 0 to 1. Earlier
    /// results only tell how long it ran.
    pub fn busy_share(&self, processors: usize) -> Option<f64> {
        self.ready_share.or_else(|| self.share_of(processors))
    }

    /// Returns the share of the time in which these processors were busy with any program or the kernel, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "there are a few processors")]
    pub fn busy_share_of(&self, processors: &[usize]) -> Option<f64> {
        let shares = self.processors.iter().filter(|(processor, _)| processors.contains(processor));
        let shares: Vec<f64> = shares.map(|(_, share)| *share).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    }

    /// Returns the busy microseconds of these processors, those of other programs included, for each reply of the load.
    #[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
    pub fn core_us(&self, load: &Report, processors: &[usize]) -> Option<f64> {
        let busy_s = self.busy_share_of(processors)? * processors.len() as f64 * self.cpu.elapsed_s;
        let replies = replies(load) as f64;
        (replies > 0.0).then(|| busy_s * 1e6 / replies)
    }

    /// Returns the share of the time of this number of processors that the tracker used, 0 to 1.
    pub fn share_of(&self, processors: usize) -> Option<f64> {
        let available_s = self.cpu.elapsed_s * f64::from(u32::try_from(processors).ok()?);
        (available_s > 0.0).then(|| self.cpu.whole_s() / available_s)
    }
}
