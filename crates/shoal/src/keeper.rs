//! The keeper: a thread that answers nobody and has the kernel back the store's memory ahead of need, by huge pages.
//!
//! A first touch of memory may take the kernel some milliseconds, for which no request should wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use shoal_store::Store;

/// How often it looks. A huge page, of which one is ready ahead, holds fifty thousand torrents.
const PERIOD: Duration = Duration::from_millis(20);

/// The thread, which ends when this is dropped.
pub(crate) struct Keeper {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the kernel has no thread to give.
    pub(crate) fn start(store: Arc<Store>) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let thread = thread::Builder::new().name("keeper".to_owned()).spawn(move || {
            while !stop.load(Ordering::Acquire) {
                store.make_ready();
                thread::park_timeout(PERIOD);
            }
        })?;
        Ok(Self { stopping, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot panic; and if it did, that is no reason to panic while all else ends.
            let _ended = thread.join();
        }
    }
}
