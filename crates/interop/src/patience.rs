//! Waiting for what other processes do, within bounds.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(100);

/// Asks `probe` again and again until it has an answer.
///
/// # Errors
/// At once where `probe` fails; after `limit` where it never had an answer, naming `what` was waited for.
pub fn wait_for<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = now() + limit;
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        if now() >= deadline {
            bail!("waited {} s in vain: {what}", limit.as_secs());
        }
        thread::sleep(PAUSE);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clients run in real time, and so does our patience with them"
)]
fn now() -> Instant {
    Instant::now()
}
