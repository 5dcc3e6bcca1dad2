//! This process: its exit code for a wrong command line, cancellation by Ctrl-C and SIGTERM, and its limit on open files.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::terminal;

/// The exit code for an invalid or impossible command line.
pub(crate) const USAGE: u8 = 2;

/// Runs `action` with a valid value of the command line. Otherwise prints the error and returns [`USAGE`].
pub(crate) fn or_usage<T>(value: Result<T>, action: impl FnOnce(T) -> Result<ExitCode>) -> Result<ExitCode> {
    match value {
        Ok(value) => action(value),
        Err(error) => {
            terminal::note(&format!("shoal-lab: {error:#}"));
            Ok(ExitCode::from(USAGE))
        }
    }
}

/// The user's request to stop. The first signal sets a flag, the second ends the program at once.
#[derive(Debug)]
pub(crate) struct Cancellation(Arc<AtomicBool>);

/// The exit code that shells show for a program that Ctrl-C ended.
const EXIT_CODE: i32 = 130;

impl Cancellation {
    /// Starts to listen for signals.
    pub(crate) fn on_signals() -> Result<Self> {
        let requested = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the second signal has to find the flag that the first one has set.
            let second =
                signal_hook::flag::register_conditional_shutdown(signal, EXIT_CODE, Arc::clone(&requested));
            second.context("cannot wait for signals")?;
            signal_hook::flag::register(signal, Arc::clone(&requested)).context("cannot wait for signals")?;
        }
        Ok(Self(requested))
    }

    /// Returns the flag, which is set when the user has asked to stop.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

/// Raises the limit on open files, which trackers inherit, as far as the host allows, and returns it.
pub(crate) fn raise_open_files_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // If this fails, the limit remains as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.or(current).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_host_allows() {
        let raised = raise_open_files_limit();
        assert_eq!(raised, getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX));
    }
}
