//! The operations of the process for the control listener, and the parts of the process that may be absent.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use shoal_config::Differences;
use shoal_engine::counter::Counters;
use shoal_runtime::counters::Saved;
use shoal_xdp::program::Counts;

/// A result that takes long.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The operations of the process.
pub trait Operations: Send + Sync {
    /// Reads the configuration, the certificates and the lists again. May block. The error says why everything stays as
    /// it was.
    fn reload(&self) -> Result<Differences, String>;

    /// Checks values that all nodes of a cluster are to share. The error is the key, the value, and what would be
    /// accepted.
    fn check_values(&self, values: &[(String, String)]) -> Result<(), String>;

    /// Writes a snapshot while the tracker serves, if it has a place.
    fn save(&self) -> Option<Pending<Result<Saved, String>>>;

    /// Hands over to the installed program.
    fn upgrade(&self) -> Pending<Result<Handed, UpgradeError>>;
}

/// A tracker that was handed over.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Handed {
    /// The new process.
    pub pid: u32,
    /// The time for which no request was answered, in milliseconds.
    pub gap_ms: u64,
    /// Whether the new process continues in the same memory. Otherwise it got a snapshot.
    pub in_memory: bool,
}

/// Why there is no hand-over.
#[derive(Debug)]
pub struct UpgradeError {
    /// Whether the process is in a state that forbids a hand-over.
    pub is_conflict: bool,
    /// The reason.
    pub reason: String,
}

/// The figures of the XDP data path.
pub trait DataPathFigures: Debug + Send + Sync {
    /// Returns the requests that the programs have answered or dropped.
    fn requests(&self) -> &Counters;

    /// Returns the work of each interface's program.
    fn interfaces(&self) -> Vec<InterfaceStats>;
}

/// The work of the program of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceStats {
    /// The name of the interface.
    pub name: String,
    /// `native` or `generic`; `None` if the program is no longer attached.
    pub mode: Option<&'static str>,
    /// The packets, by what the program did with them.
    pub counts: Counts,
}

/// The build of the program.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version of the release.
    pub release: &'static str,
    /// The commit, or "unknown".
    pub commit: &'static str,
    /// The build profile.
    pub profile: &'static str,
}
