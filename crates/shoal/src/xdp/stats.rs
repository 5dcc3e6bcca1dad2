//! The figures of the data path for other threads: the counts of its programs, and whether these are attached.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shoal_engine::counter::Counters;
use shoal_xdp::program::Counters as ProgramCounters;

use shoal_control::operations::{DataPathFigures, InterfaceStats};

use super::Attachment;
use super::handed::mode_name;

/// The figures of the data path, which are read while the tracker runs.
#[derive(Debug)]
pub(crate) struct DataPathStats {
    pub(super) interfaces: Vec<Arc<Shared>>,
    /// The requests that the programs have answered or dropped, up to the thread's last count.
    pub(super) requests: Arc<Counters>,
}

/// The part of an interface that other threads see. Updates of the lists do not block their reads.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) counters: ProgramCounters,
    pub(super) hook: Mutex<Hook>,
}

#[derive(Debug)]
pub(super) struct Hook {
    /// `None` once the program is detached for good.
    pub(super) link: Option<Attachment>,
    /// Whether the interface has the program of this process.
    pub(super) is_attached: bool,
}

impl DataPathFigures for DataPathStats {
    fn requests(&self) -> &Counters {
        &self.requests
    }

    fn interfaces(&self) -> Vec<InterfaceStats> {
        self.interfaces.iter().map(|shared| shared.stats()).collect()
    }
}

impl Shared {
    pub(super) fn hook(&self) -> MutexGuard<'_, Hook> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> InterfaceStats {
        let hook = self.hook();
        let link = hook.link.as_ref().filter(|_| hook.is_attached);
        let mode = link.map(|link| mode_name(link.mode()));
        // An array of the kernel can always be read.
        let counts = self.counters.read().unwrap_or_default();
        InterfaceStats { name: self.name.clone(), mode, counts }
    }
}
