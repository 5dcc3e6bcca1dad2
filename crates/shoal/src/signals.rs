//! The signals with which an operator stops the tracker or makes it read files again.

use core::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{self, SignalKind};

use crate::hand_over::HandOver;

/// Maximum time to read files before the log reports a problem.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The signals that stop the tracker. This process handles them from now on.
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

/// SIGHUP, which makes the tracker read files again. The signal also reports the loss of a terminal, and ends
/// programs that do not handle it.
pub(crate) struct Hangups(unix::Signal);

impl Hangups {
    fn take() -> io::Result<Self> {
        unix::signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next signal. All signals since the last one count as one.
    async fn next(&mut self) {
        self.0.recv().await;
    }

    /// Calls `read` after every signal, forever.
    pub(crate) async fn obey(mut self, read: impl Fn() + Send + Sync + 'static) {
        let read = Arc::new(read);
        loop {
            self.next().await;
            read_apart(Arc::clone(&read)).await;
        }
    }
}

/// SIGUSR1, which makes the tracker reopen the access log. Unhandled, the signal would end the tracker.
pub(crate) struct LogSignals(unix::Signal);

impl LogSignals {
    fn take() -> io::Result<Self> {
        unix::signal(SignalKind::user_defined1()).map(Self)
    }

    /// Calls `reopen` after every signal, forever.
    pub(crate) async fn obey(mut self, reopen: impl Fn()) {
        while self.0.recv().await.is_some() {
            reopen();
        }
    }
}

/// SIGUSR2, which makes the tracker hand over to a new process. Unhandled, the signal would end the tracker.
pub(crate) struct UpgradeSignals(unix::Signal);

impl UpgradeSignals {
    fn take() -> io::Result<Self> {
        unix::signal(SignalKind::user_defined2()).map(Self)
    }

    /// Hands over after every signal, until a hand-over succeeds.
    pub(crate) async fn obey(mut self, hand_over: Arc<HandOver>) {
        while self.0.recv().await.is_some() {
            // The outcome is in the log.
            let _ = hand_over.begin().await;
        }
    }
}

/// The signals by which an operator controls a running tracker.
pub(crate) struct OperatorSignals {
    pub(crate) hangups: Hangups,
    pub(crate) upgrade: UpgradeSignals,
    pub(crate) log: LogSignals,
}

impl OperatorSignals {
    /// Installs the handlers. To be called in a runtime.
    pub(crate) fn take() -> anyhow::Result<Self> {
        Ok(Self {
            hangups: Hangups::take().context("cannot handle SIGHUP")?,
            upgrade: UpgradeSignals::take().context("cannot handle SIGUSR2")?,
            log: LogSignals::take().context("cannot handle SIGUSR1")?,
        })
    }
}

/// Reads files on a separate thread and waits for it. So a hanging file system blocks neither other signals nor the
/// control listener. Only one read is in progress at a time.
async fn read_apart(read: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut reading = tokio::task::spawn_blocking(move || read());
    if tokio::time::timeout(READ_TIME_MAX, &mut reading).await.is_err() {
        tracing::error!(
            "SIGHUP: the files could not be read within {} s; the tracker continues with the old ones",
            READ_TIME_MAX.as_secs()
        );
        // The read may still succeed. A thread cannot be killed, and another thread would wait for the same files.
        let _ = reading.await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM, from a service manager.
    Terminate,
    /// SIGINT, from the keyboard.
    Interrupt,
}

impl Signals {
    /// Installs the handlers. To be called in a runtime.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
        }
    }
}

impl Signal {
    /// Returns the exit code that shells use for a process that this signal ended.
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

    /// A read that does not end leaves the rest of the runtime running.
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
