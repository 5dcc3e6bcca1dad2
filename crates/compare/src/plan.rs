//! The plan of a comparison, and how the caller observes and interrupts it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use shoal_load::Progress;

use crate::cpu_assignment::{CpuAssignment, CpuMode};
use crate::description::{Description, Protocol};
use crate::installation::{Installation, SearchPaths};
use crate::load::LoadSpec;
use crate::result::Round;

#[derive(Clone, Debug)]
pub struct ComparisonPlan {
    pub title: String,
    pub command: Vec<String>,
    pub load: LoadSpec,
    pub cpu_mode: CpuMode,
    /// The processors of tracker and load for each number of cores.
    pub assignments: Vec<CpuAssignment>,
    pub warnings: Vec<String>,
    pub rounds: usize,
    pub contenders: Vec<Contender>,
    /// The port of every tracker. If there is none, each run uses a free one.
    pub port: Option<u16>,
    /// The folder of the result, which has to exist.
    pub folder: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Contender {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopTime {
    AfterThisRun,
    AtOnce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
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
    Stopping,
}

#[derive(Debug)]
pub enum ComparisonEvent<'e> {
    Started {
        runs: usize,
        folder: &'e Path,
    },
    Absent {
        tracker: &'e str,
        reason: &'e str,
    },
    Warning(&'e str),
    RunStarted {
        /// Its number, from 1.
        run: usize,
        /// Its round, from 1.
        round: usize,
        tracker: &'e str,
        cores: usize,
        processors: &'e [usize],
    },
    Phase(Phase),
    Progress(&'e Progress),
    RunEnded(&'e Round),
    /// Results could not be written; the comparison goes on.
    SaveFailed(&'e str),
}

pub type Observer<'o> = dyn FnMut(&ComparisonEvent<'_>) + 'o;
