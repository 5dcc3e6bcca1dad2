//! Work of the control plane that takes seconds, on the processors of the workers.
//!
//! A thread that computes for seconds makes a worker on its processor wait for the end of its time slice, some
//! milliseconds, whenever a request arrives. A background thread has short slices and a tenth of a worker's weight: its
//! work ends even if the workers are always busy. Large and compressed files of lists are read here, and compared with
//! their earlier contents.
#![allow(unsafe_code, reason = "a system call that no library wraps")]

use std::panic::resume_unwind;
use std::thread;

use rustix::process::getpriority_process;

/// The nice value, which gives the thread about a tenth of the weight of a worker.
const NICE: i32 = 10;

/// The time slice in nanoseconds: the shortest that the kernel grants. Before Linux 6.12 it has no effect.
const SLICE_NS: u64 = 100_000;

/// The argument of `sched_setattr`: `struct sched_attr` in linux/sched/types.h, first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// `SCHED_ATTR_SIZE_VER0` in linux/sched/types.h.
const ATTRIBUTES_BYTES: u32 = 48;

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_BYTES as usize);

/// Runs `work` in the background, and returns its result. Runs it in this thread if no other can be started.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let mut result = None;
    thread::scope(|scope| {
        let (work, result) = (&mut work, &mut result);
        let body = move || {
            step_back();
            *result = work.take().map(|work| work());
        };
        if let Ok(thread) = thread::Builder::new().name("background".to_owned()).spawn_scoped(scope, body)
            && let Err(panic) = thread.join()
        {
            resume_unwind(panic);
        }
    });
    result.unwrap_or_else(|| work.take().expect("a thread that started leaves a result")())
}

/// Gives way to the workers from now on. A thread cannot take this back without privileges.
pub fn step_back() {
    let attributes = Attributes {
        size: ATTRIBUTES_BYTES,
        policy: libc::SCHED_OTHER.cast_unsigned(),
        flags: 0,
        // The whole process may have a larger nice value.
        nice: getpriority_process(None).unwrap_or(0).max(NICE),
        priority: 0,
        runtime_ns: SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the kernel reads `size` bytes of a structure that outlives the call. 0 is the calling thread.
    // If a sandbox forbids the call, the work only has the usual priority.
    let _refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_with_another_priority_and_may_borrow() {
        let text = String::from("a list");
        let own = nice();
        let (length, in_background) = run(|| (text.len(), nice()));
        assert_eq!((length, in_background), (6, NICE.max(own)));
        assert_eq!(nice(), own, "the calling thread keeps its priority");
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn a_panic_reaches_the_caller() {
        run(|| panic!("on purpose"));
    }

    /// Returns the nice value of this thread.
    fn nice() -> i32 {
        getpriority_process(None).unwrap()
    }
}
