//! Threads that take a share of the tracker's processors, so that a load that needs more time than the tracker can keep
//! it busy.
//!
//! Over connections, the client does as much work as the server, and twice as much to open one. One processor of load
//! then cannot fill one of the tracker. Next to a spinning thread, the tracker gets half of its processor, and requests
//! queue meanwhile. Its CPU time per reply is then that of a saturated tracker. The spinning threads do not count, and
//! touch no memory, so the caches belong to the tracker.
//!
//! They have the tracker's priority. A limit by the kernel (`cpu.max`, a real-time class) would need privileges, and
//! hide whether the tracker always had work (`Usage::ready_share`). Rounds with work for less than 98 % of the time are
//! marked as generator-bound.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::topology::keep_on;

/// Threads that spin until they are dropped.
#[derive(Debug, Default)]
pub(crate) struct Spinners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Spinners {
    /// Starts this number of threads on each of `processors`.
    pub(crate) fn start(processors: &[usize], of_each: usize) -> io::Result<Self> {
        let mut spinners = Self::default();
        for processor in processors.iter().flat_map(|processor| std::iter::repeat_n(*processor, of_each)) {
            let stop = Arc::clone(&spinners.stop);
            let spin = move || {
                keep_on(&[processor])?;
                while !stop.load(Ordering::Relaxed) {}
                Ok(())
            };
            spinners.threads.push(thread::Builder::new().name("spinner".to_owned()).spawn(spin)?);
        }
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that could not be pinned has ended; the share of the time in which the tracker had work shows it.
            let _ = thread.join();
        }
    }
}
