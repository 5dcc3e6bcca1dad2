//! The signals by which an operator stops the tracker, or has it read files again.

use core::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{self, SignalKind};

/// Longest time to read files before the log tells that something is wrong.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The signals that stop, from now on in our hands.
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

/// SIGHUP, by which files are read again. Without a terminal it means nothing else, and on one it would end programs
/// that do not know it.
pub(crate) struct Hangups(unix::Signal);

impl Hangups {
    /// Takes the signal over. To be called in a runtime.
    pub(crate) fn take() -> io::Result<Self> {
        unix::signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next one. Those that have come since the last one count as one.
    async fn next(&mut self) {
        self.0.recv().await;
    }

    /// Has `read` read the files again whenever the signal has come, for ever.
    pub(crate) async fn obey(mut self, read: impl Fn() + Send + Sync + 'static) {
        let read = Arc::new(read);
        loop {
            self.next().await;
            read_apart(Arc::clone(&read)).await;
        }
    }
}

/// Reads files on a thread of its own and waits for it, so that a file system that hangs stops neither other signals nor
/// the control listener, and only one reading is under way.
async fn read_apart(read: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut reading = tokio::task::spawn_blocking(move || read());
    if tokio::time::timeout(READ_TIME_MAX, &mut reading).await.is_err() {
        tracing::error!(
            "SIGHUP: the files have not been read within {} s; the tracker goes on with what it has",
            READ_TIME_MAX.as_secs()
        );
        // It may still succeed. A thread cannot be ended, and another one would wait for the same.
        let _ = reading.await;
    }
}

/// A signal that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM, from a service manager.
    Terminate,
    /// SIGINT, from the keyboard.
    Interrupt,
}

impl Signals {
    /// Takes the signals over. To be called in a runtime.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
        }
    }
}

impl Signal {
    /// The exit code that shells know for a process that this signal ended.
    pub(crate) fn exit_code(self) -> i32 {
        let kind = match self {
            Self::Terminate => SignalKind::terminate(),
            Self::Interrupt => SignalKind::interrupt(),
        };
        128 + kind.as_raw_value()
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A reading that does not end lets everything else of the runtime go on.
    #[test]
    fn a_reading_that_hangs_holds_up_nothing_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        runtime.block_on(async {
            let reading = read_apart(Arc::new(move || released.lock().unwrap().recv().unwrap()));
            tokio::pin!(reading);
            for _ in 0..10 {
                tokio::select! {
                    () = &mut reading => panic!("nothing has released it"),
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                }
            }
            release.send(()).unwrap();
            reading.await;
        });
    }
}
