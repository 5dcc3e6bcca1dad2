//! Ctrl-C and SIGTERM: the first ends what runs with what was measured, the second ends the program at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether the user has asked for an end.
#[derive(Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// What shells show for a program that Ctrl-C ended.
const EXIT_CODE: i32 = 130;

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the second signal finds the flag that the first has set.
            let second =
                signal_hook::flag::register_conditional_shutdown(signal, EXIT_CODE, Arc::clone(&asked));
            second.context("cannot wait for signals")?;
            signal_hook::flag::register(signal, Arc::clone(&asked)).context("cannot wait for signals")?;
        }
        Ok(Self(asked))
    }

    /// Set once the user has asked.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}
