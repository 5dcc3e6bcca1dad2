//! A network namespace for the duration of a test.
#![allow(unsafe_code, reason = "unshare changes what the thread sees")]

use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs `test` on a thread with its own network, in which the loopback is up. The threads that it starts share that
/// network. A test that finds out that it cannot run here returns `None`.
pub(crate) fn in_namespace(test: impl FnOnce() -> Option<()> + Send) {
    let isolated = || {
        // SAFETY: the flag changes the network of this thread only; descriptors stay shared.
        if let Err(errno) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            return skip(&format!("no network namespace can be created here: {errno}"));
        }
        if configure("ip link set lo up").and_then(|()| test()).is_none() {
            skip("the network namespace could not be set up");
        }
    };
    std::thread::scope(|scope| scope.spawn(isolated).join()).unwrap();
}

/// Skips the test on a developer's machine. In CI a test that cannot run is a failure, because it would
/// otherwise go unnoticed.
fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{reason}; in CI (CI is set) this is a failure");
    eprintln!("skipped: {reason}");
}

/// Runs a command of network administration. Returns `None` if it does not work here.
pub(crate) fn configure(command: &str) -> Option<()> {
    run(command).map(drop)
}

/// Does the same, and returns its output.
pub(crate) fn run(command: &str) -> Option<String> {
    let mut arguments = command.split(' ');
    let output = Command::new(arguments.next().unwrap()).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Some(String::from_utf8(output.stdout).unwrap()),
        failed => {
            eprintln!("{command}: {failed:?}");
            None
        }
    }
}
