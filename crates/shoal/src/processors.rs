//! The processors that this process may use.

use std::io;
use std::num::NonZero;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How many workers make full use of what the process may use: affinity mask and cgroup quota count.
pub(crate) fn count() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The numbers of the processors in the affinity mask of this thread.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

/// Keeps the calling thread on one processor.
pub(crate) fn pin(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}
