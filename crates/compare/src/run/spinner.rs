//! Threads that take a share of the tracker's processors, so that a load that needs more time than the tracker can keep
//! it busy.
//!
//! Over connections, the kernel does much the same work on both ends, and opening a connection costs the client about
//! twice as much as the server. One processor of load then cannot fill one processor of tracker. With one spinning
//! thread the tracker gets half of its processor, and requests wait for it during the other half. The CPU time of a reply
//! is then that of a tracker whose queue is always full. It does not include the spinning threads, which touch no memory
//! and so leave the caches to the tracker.
//!
//! They have the priority of the tracker. They need no privilege, which a limit by the kernel (`cpu.max`, a real-time
//! class) would, and it is visible whether the tracker always had work: `Usage::ready_share`.
//!
//! The report marks rounds in which the tracker had work for less than 98 % of the time as generator-bound.

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
