//! Stops a single thread of a tracker from outside, as a debugger does. To its threads and to the tests that is a
//! worker that hangs, and the tracker needs no back door for it.

use std::fs;

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::kit::harness::Tracker;

/// The setting with which an ordinary user may trace a tracker.
pub(crate) const TRACEABLE: (&str, &str) = ("SHOAL_PROCESS_CORE_DUMPS", "true");

/// A stopped thread. Runs on after drop. Must be dropped on the thread that made it (`ptrace(2)`).
pub(crate) struct Frozen {
    thread: Pid,
}

/// Stops the thread of this name.
pub(crate) fn freeze(tracker: &Tracker, name: &str) -> Frozen {
    let thread = find(tracker.pid(), name);
    ptrace::seize(thread, Options::empty()).expect("a parent may trace its child");
    ptrace::interrupt(thread).expect("it is traced");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it is traced");
    Frozen { thread }
}

impl Frozen {
    /// Waits until the thread has died with its process. The kernel keeps the process until its tracer has seen that.
    pub(crate) fn bury(self) {
        waitpid(self.thread, Some(WaitPidFlag::__WALL)).expect("it is traced");
        std::mem::forget(self);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // It fails where the process has died, and then there is nothing to let go of.
        let _ = ptrace::detach(self.thread, None);
    }
}

fn find(process: Pid, name: &str) -> Pid {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let mut threads = threads.map(|thread| thread.expect("a thread").path());
    let path = threads
        .find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|found| found.trim_end() == name))
        .unwrap_or_else(|| panic!("there is no thread {name}"));
    let number = path.file_name().and_then(|number| number.to_str()).and_then(|number| number.parse().ok());
    Pid::from_raw(number.expect("threads are named by number"))
}
