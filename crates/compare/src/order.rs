//! What is asked of a comparison, and how whoever asked follows and ends it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use shoal_load::Progress;

use crate::description::{Description, Protocol};
use crate::division::{CpuMode, Division};
use crate::find::{Found, Places};
use crate::load::Load;
use crate::result::Round;

/// A comparison to be made.
#[derive(Clone, Debug)]
pub struct Order {
    /// What is compared, in a line.
    pub title: String,
    /// The command line.
    pub command: Vec<String>,
    /// The load.
    pub load: Load,
    /// How processors are taken.
    pub cpu_mode: CpuMode,
    /// Tracker and load on each number of cores.
    pub divisions: Vec<Division>,
    /// What the reader should know of the divisions.
    pub doubts: Vec<String>,
    /// How often everything is measured.
    pub rounds: usize,
    /// Who takes part, in the order of presentation.
    pub contenders: Vec<Contender>,
    /// The port of every tracker; each gets a free one if this is none.
    pub port: Option<u16>,
    /// Where results go: a folder that exists.
    pub folder: PathBuf,
}

/// A tracker that was asked for.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What it is.
    pub description: Description,
    /// Where it is, or why it cannot take part.
    pub found: Result<Found, String>,
}

impl Contender {
    /// Looks for the programs of `description`, as it is over `protocol`.
    #[must_use]
    pub fn look_for(description: Description, protocol: Protocol, places: &Places) -> Self {
        let description = description.over(protocol);
        let found = places.find(&description, protocol);
        Self { description, found }
    }
}

/// By this a comparison is ended before its time.
#[derive(Debug, Default)]
pub struct Interrupt {
    /// End after the present run.
    leave: AtomicBool,
    /// End at once.
    cancel: AtomicBool,
}

impl Interrupt {
    /// Asks to end after the present run; asked a second time, at once. Says which.
    pub fn ask(&self) -> Asked {
        if self.leave.swap(true, Ordering::SeqCst) {
            self.cancel.store(true, Ordering::SeqCst);
            return Asked::AtOnce;
        }
        Asked::AfterThisRun
    }

    /// Asks to end at once.
    pub fn ask_at_once(&self) {
        self.leave.store(true, Ordering::SeqCst);
        self.cancel.store(true, Ordering::SeqCst);
    }

    /// Whether no further run should begin.
    #[must_use]
    pub fn leaves(&self) -> bool {
        self.leave.load(Ordering::SeqCst)
    }

    /// Whether the present run should end.
    #[must_use]
    pub fn is_at_once(&self) -> bool {
        self.cancel.load(Ordering::SeqCst)
    }
}

/// What an [`Interrupt`] was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The present run goes on to its end.
    AfterThisRun,
    /// It ends now.
    AtOnce,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The tracker starts.
    Starting,
    /// The generator makes its peers.
    Preparing,
    /// Every peer announces itself.
    Filling,
    /// The closed loop.
    Loading,
    /// The open loop.
    Timing,
    /// Connections are opened and left alone.
    Idling,
    /// The tracker ends.
    Stopping,
}

/// What happens in a comparison, for whoever watches.
#[derive(Debug)]
pub enum Event<'e> {
    /// It begins, with so many runs before it.
    Began {
        /// How many.
        runs: usize,
        /// Where the results will be.
        folder: &'e Path,
    },
    /// A tracker cannot take part.
    Absent {
        /// Its name.
        tracker: &'e str,
        /// Why.
        reason: &'e str,
    },
    /// Something that the reader of the result should know.
    Doubt(&'e str),
    /// A run begins.
    Run {
        /// Which, from 1.
        run: usize,
        /// Of the round, from 1.
        round: usize,
        /// Of this tracker.
        tracker: &'e str,
        /// On so many cores.
        cores: usize,
        /// Which are so many processors.
        processors: usize,
    },
    /// The run is now at this.
    Phase(Phase),
    /// The load goes on.
    Progress(&'e Progress),
    /// The run ended.
    Ended(&'e Round),
    /// Results could not be written just now; the comparison goes on.
    NotWritten(&'e str),
}

/// Whoever watches.
pub type Observer<'o> = dyn FnMut(&Event<'_>) + 'o;
