//! The plan of a comparison, and how the caller observes and interrupts it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use shoal_load::Progress;

use crate::cpu_assignment::{CpuAssignment, CpuMode};
use crate::description::{Description, Protocol};
use crate::installation::{Installation, SearchPaths};
use crate::load::LoadSpec;
use crate::result::Round;

/// The plan of a comparison.
#[derive(Clone, Debug)]
pub struct ComparisonPlan {
    /// The title of the result.
    pub title: String,
    /// The command line.
    pub command: Vec<String>,
    /// The load.
    pub load: LoadSpec,
    /// How processors are assigned.
    pub cpu_mode: CpuMode,
    /// The processors of tracker and load for each number of cores.
    pub assignments: Vec<CpuAssignment>,
    /// Warnings for readers of the result.
    pub warnings: Vec<String>,
    /// The number of rounds.
    pub rounds: usize,
    /// The contenders, in the order of presentation.
    pub contenders: Vec<Contender>,
    /// The port of every tracker. If there is none, each run uses a free one.
    pub port: Option<u16>,
    /// The folder of the result, which has to exist.
    pub folder: PathBuf,
}

/// A tracker that the user asked for.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its description.
    pub description: Description,
    /// Its installation, or why it cannot take part.
    pub installation: Result<Installation, String>,
}

impl Contender {
    /// Looks for the programs of `description` for `protocol`.
    pub fn look_for(description: Description, protocol: Protocol, search_paths: &SearchPaths) -> Self {
        let description = description.over(protocol);
        let installation = search_paths.find(&description, protocol);
        Self { description, installation }
    }
}

/// Interrupts a comparison.
#[derive(Debug, Default)]
pub struct Interrupt {
    /// Stop after the current run.
    requested: AtomicBool,
    /// Stop at once.
    immediate: AtomicBool,
}

impl Interrupt {
    /// Requests a stop after the current run. A second request stops at once. Returns when the comparison will stop.
    pub fn request(&self) -> StopTime {
        if self.requested.swap(true, Ordering::SeqCst) {
            self.immediate.store(true, Ordering::SeqCst);
            return StopTime::AtOnce;
        }
        StopTime::AfterThisRun
    }

    /// Requests a stop at once.
    pub fn request_at_once(&self) {
        self.requested.store(true, Ordering::SeqCst);
        self.immediate.store(true, Ordering::SeqCst);
    }

    /// Returns whether no further run should start.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// Returns whether the current run should stop.
    pub fn is_immediate(&self) -> bool {
        self.immediate.load(Ordering::SeqCst)
    }
}

/// When an interrupted comparison stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopTime {
    /// After the current run.
    AfterThisRun,
    /// In the middle of the current run.
    AtOnce,
}

/// The phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The tracker starts.
    Starting,
    /// The generator creates its peers.
    Preparing,
    /// Every peer announces itself.
    Filling,
    /// The closed loop.
    Loading,
    /// The open loop.
    Timing,
    /// Connections are opened and left idle.
    Idling,
    /// The tracker stops.
    Stopping,
}

/// An event of a comparison, for its observer.
#[derive(Debug)]
pub enum ComparisonEvent<'e> {
    /// The comparison has started.
    Started {
        /// The number of runs.
        runs: usize,
        /// The folder of the result.
        folder: &'e Path,
    },
    /// A tracker cannot take part.
    Absent {
        /// Its name.
        tracker: &'e str,
        /// The reason.
        reason: &'e str,
    },
    /// A warning for readers of the result.
    Warning(&'e str),
    /// A run has started.
    RunStarted {
        /// Its number, from 1.
        run: usize,
        /// Its round, from 1.
        round: usize,
        /// The tracker.
        tracker: &'e str,
        /// The number of cores.
        cores: usize,
        /// The processors of these cores.
        processors: &'e [usize],
    },
    /// The run has entered a phase.
    Phase(Phase),
    /// The load has made progress.
    Progress(&'e Progress),
    /// The run has ended.
    RunEnded(&'e Round),
    /// Results could not be written; the comparison goes on.
    SaveFailed(&'e str),
}

/// A function that observes a comparison.
pub type Observer<'o> = dyn FnMut(&ComparisonEvent<'_>) + 'o;
