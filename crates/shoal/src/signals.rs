//! The signals by which an operator stops the tracker, or has it read files again.

use core::fmt;
use std::io;

use tokio::signal::unix::{self, SignalKind};

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

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        self.0.recv().await;
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
