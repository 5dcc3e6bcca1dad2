//! The state of the control plane that a new process takes over from the old one.
//!
//! It passes between two versions of the program, so fields are only ever added, and a missing one has its default.

use serde::{Deserialize, Serialize};

use crate::Sources;
use crate::last_day::Mark;
use crate::pause::{PausedPart, paused};
use shoal_runtime::lists::bans::CarriedBans;

/// The state of the control plane that the new process continues with.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Carried {
    /// The paused parts, those that a restart would not keep as well.
    pub paused: Vec<PausedPart>,
    /// The counts of the last day.
    pub last_day: Vec<Mark>,
    /// All bans.
    pub bans: Option<CarriedBans>,
}

impl Carried {
    /// Returns the present state, with bans that were [handed](shoal_runtime::lists::ListControl::hand_bans).
    pub fn of(sources: &Sources, bans: Option<CarriedBans>) -> Self {
        let last_day = sources.last_day.lock().carried(&sources.day_counts());
        Self { paused: paused(&sources.live.latest().policy), last_day, bans }
    }
}
