//! A thread that serves no requests and does something periodically.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use anyhow::anyhow;
use tokio::sync::oneshot;

use crate::panics;

/// The thread, which ends when this is dropped.
pub struct PeriodicThread {
    name: &'static str,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Receives the text of a panic of the thread.
    panicked: oneshot::Receiver<String>,
}

impl PeriodicThread {
    /// Starts a thread that calls `work` and then waits for `pause`, until the end. Fails if the kernel provides no
    /// more threads.
    pub fn start(
        name: &'static str,
        pause: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let (sender, panicked) = oneshot::channel();
        let body = move || {
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                while !stop.load(Ordering::Acquire) {
                    work();
                    thread::park_timeout(pause);
                }
            }));
            if let Err(panic) = outcome {
                // Without a receiver, the tracker is stopping.
                let _ = sender.send(panics::text(&*panic).to_owned());
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Self { name, stopping, thread: Some(thread), panicked })
    }

    /// Returns the thread, so that others can end its pause.
    pub fn thread(&self) -> Thread {
        self.thread.as_ref().map_or_else(thread::current, |thread| thread.thread().clone())
    }

    /// Waits until the thread fails, and returns the reason.
    pub async fn failure(&mut self) -> anyhow::Error {
        match (&mut self.panicked).await {
            Ok(text) => anyhow!("it panicked: {text}").context(format!("the thread {} failed", self.name)),
            // The thread ended because it was told to.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for PeriodicThread {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread was caught there.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_thread_is_reported_with_its_text() {
        let mut rounds = 0;
        let mut thread = PeriodicThread::start("test", Duration::from_millis(1), move || {
            rounds += 1;
            assert!(rounds < 3, "round {rounds}");
        })
        .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let failure = runtime.block_on(thread.failure());
        assert_eq!(format!("{failure:#}"), "the thread test failed: it panicked: round 3");
    }
}
