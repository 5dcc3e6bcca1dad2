//! The part of a description for `shoal-lab chaos`: one process that serves UDP, and HTTP if it can, and the ways to
//! disturb it.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde::Deserialize;

use super::{ConfigFile, Description, Protocol};

/// How a tracker serves all of its protocols at once, and what it survives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChaosOptions {
    /// The protocols that the process serves at once, on one address. UDP is mandatory.
    pub protocols: Vec<Protocol>,
    /// Replaces [`super::StartOptions::arguments`].
    pub arguments: Option<Vec<String>>,
    /// Added to [`super::StartOptions::environment`].
    pub environment: BTreeMap<String, String>,
    /// Added to [`Description::files`].
    pub files: Vec<ConfigFile>,
    /// The directory of its state, below its folder. Without it, the tracker has no state on disk.
    pub state: Option<String>,
    /// Whether the load is a closed loop at the driver hook of a pair of virtual interfaces, and the metrics of Shoal have to account
    /// for every request.
    pub full_load: bool,
    /// The signal that makes it hand over to a new process.
    pub upgrade_signal: Option<UpgradeSignal>,
    /// Arguments with which its program makes the running process hand over, instead of a signal.
    pub upgrade: Option<Vec<String>>,
    /// Arguments with which its program makes the running process write its state, and waits until that is done.
    pub snapshot: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum UpgradeSignal {
    #[serde(rename = "USR2")]
    Usr2,
    #[serde(rename = "HUP")]
    Hup,
}

impl ChaosOptions {
    /// Returns its texts that may contain placeholders, each with its key.
    pub(super) fn templates(&self) -> impl Iterator<Item = (String, &str)> {
        let lists =
            [("arguments", &self.arguments), ("upgrade", &self.upgrade), ("snapshot", &self.snapshot)];
        let lists = lists.into_iter().flat_map(|(key, list)| {
            list.iter().flatten().map(move |text| (format!("chaos.{key}"), text.as_str()))
        });
        let variables = self.environment.iter();
        let variables = variables.map(|(name, text)| (format!("chaos.environment.{name}"), text.as_str()));
        lists.chain(variables)
    }
}

impl UpgradeSignal {
    pub fn signal(self) -> Signal {
        match self {
            Self::Usr2 => Signal::USR2,
            Self::Hup => Signal::HUP,
        }
    }
}

impl Description {
    /// Applies the differences for `shoal-lab chaos`, if the description has them.
    pub fn for_chaos(mut self) -> Option<(Self, ChaosOptions)> {
        let mut chaos = self.chaos.take()?;
        self.start.arguments = chaos.arguments.take().unwrap_or(self.start.arguments);
        self.start.environment.append(&mut chaos.environment);
        self.files.append(&mut chaos.files);
        Some((self, chaos))
    }
}
