//! The state of the control plane that a new process takes over from the old one.
//!
//! It passes between two versions of the program, so fields are only ever added, and a missing one has its default.

use serde::{Deserialize, Serialize};

use crate::Sources;
use crate::last_day::Mark;
use crate::pause::{PausedPart, paused};
use shoal_runtime::lists::bans::Ban;

/// The state of the control plane that the new process continues with.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Carried {
    /// The paused parts, those that a restart would not keep as well.
    pub paused: Vec<PausedPart>,
    /// The counts of the last day.
    pub last_day: Vec<Mark>,
    /// The bans that the file may lack, or that were set after the new process had read it.
    pub bans: Vec<Ban>,
}

impl Carried {
    /// Returns the present state, with the bans since a moment.
    pub fn of(sources: &Sources, bans_since_unix_s: u64) -> Self {
        let last_day = sources.last_day.lock().carried(&sources.day_counts());
        let bans = sources.list_control.bans_since(bans_since_unix_s);
        Self { paused: paused(&sources.live.latest().policy), last_day, bans }
    }
}
