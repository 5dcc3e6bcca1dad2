//! The events: the ways to disturb a tracker.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::Serialize;
use shoal_compare::description::ChaosOptions;

/// A way to disturb a tracker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// It is stopped for a while (SIGSTOP) and continued (SIGCONT).
    #[default]
    Pause,
    /// It writes its state.
    Snapshot,
    /// Its disk is full while it writes its state.
    DiskFull,
    /// It reads its configuration again several times (SIGHUP), each time with other networks and limits, which do not concern the
    /// load.
    Reload,
    /// It reads a configuration with a limit that the load exceeds, one that denies a source of the load, and one with neither.
    Deny,
    /// Its network interface goes down and up.
    Down,
    /// It hands over to a new process.
    Upgrade,
    /// It is asked to exit (SIGTERM), and started again when it has.
    Restart,
    /// It is killed (SIGKILL) and started again.
    Kill,
    /// It is stopped, a byte of its state is changed, and it is started again.
    Damage,
    /// It is stopped, the last quarter of its state is cut off, and it is started again.
    Truncate,
}

impl EventKind {
    /// All events with their names, in the order of a run. Those that damage the state come last.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Pause, "pause"),
        (Self::Snapshot, "snapshot"),
        (Self::DiskFull, "disk-full"),
        (Self::Reload, "reload"),
        (Self::Deny, "deny"),
        (Self::Down, "down"),
        (Self::Upgrade, "upgrade"),
        (Self::Restart, "restart"),
        (Self::Kill, "kill"),
        (Self::Damage, "damage"),
        (Self::Truncate, "truncate"),
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(event, _)| *event == self).map_or("", |(_, name)| *name)
    }

    /// Returns the key that a description lacks for this event, if it lacks one.
    pub fn missing_key(self, options: &ChaosOptions) -> Option<&'static str> {
        let (is_there, key) = match self {
            Self::Pause | Self::Restart | Self::Kill => (true, ""),
            Self::Reload | Self::Deny | Self::Down => (options.full_load, "chaos.full_load"),
            Self::Snapshot => (options.snapshot.is_some(), "chaos.snapshot"),
            Self::DiskFull if options.state.is_some() => (options.snapshot.is_some(), "chaos.snapshot"),
            Self::DiskFull | Self::Damage | Self::Truncate => (options.state.is_some(), "chaos.state"),
            Self::Upgrade => {
                (options.upgrade.is_some() || options.upgrade_signal.is_some(), "chaos.upgrade_signal")
            }
        };
        (!is_there).then_some(key)
    }

    /// Returns the events that a tracker of this description supports.
    pub fn supported(options: &ChaosOptions) -> Vec<Self> {
        Self::ALL
            .into_iter()
            .map(|(event, _)| event)
            .filter(|event| event.missing_key(options).is_none())
            .collect()
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for EventKind {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|(_, known)| *known == name);
        let names = Self::ALL.map(|(_, name)| name).join(", ");
        Ok(found.with_context(|| format!("there is no event {name:?}: use {names}"))?.0)
    }
}
