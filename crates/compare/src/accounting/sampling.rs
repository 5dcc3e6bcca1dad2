//! Samples how much of the CPU time of threads is spent in user mode.
//!
//! The kernel divides CPU time by its clock tick, a few hundred times a second: too coarse for a user part of a tenth.
//! An event of its CPU clock (perf_event_open(2)) fires thousands of times a second while its thread runs. User time is
//! the number of samples in user mode, times the period.
//!
//! Samples need no space: the ring buffer is mapped read-only, so the kernel overwrites it, and only its position is
//! read.
#![allow(unsafe_code, reason = "neither the system call nor the shared memory has a safe interface")]

use std::fs;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::Pid;

/// Nanoseconds of CPU time between two samples. A prime number does not fall into step with anything periodic.
pub(crate) const PERIOD_NS: u64 = 249_989;

#[derive(Debug)]
pub(crate) struct Sampler(Vec<Event>);

#[derive(Debug)]
struct Event {
    _descriptor: OwnedFd,
    /// The kernel's page of the ring buffer, and a page of samples.
    ring: NonNull<u8>,
    ring_bytes: usize,
}

// SAFETY: the mapping has one owner, and the kernel writes to it atomically, whichever thread reads.
unsafe impl Send for Event {}

/// `struct perf_event_attr` in its first version (linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == PERF_ATTR_SIZE_VER0);

// linux/perf_event.h
const PERF_ATTR_SIZE_VER0: usize = 64;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const DATA_HEAD_OFFSET: usize = 1024;

/// A sample consists of its header, since nothing else is requested.
const SAMPLE_BYTES: u64 = 8;

impl Sampler {
    pub(crate) fn start(threads: &[Pid]) -> io::Result<Self> {
        // The kernel lowers this limit by itself if samples take too long. Beyond it, it would drop samples.
        let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate")?;
        let limit_per_s: u64 = limit.trim().parse().map_err(io::Error::other)?;
        if limit_per_s < 2 * 1_000_000_000 / PERIOD_NS {
            return Err(io::Error::other(format!("the kernel permits {limit_per_s} samples a second")));
        }
        threads.iter().map(|thread| Event::open(*thread)).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the number of samples in user mode so far.
    pub(crate) fn user_samples(&self) -> u64 {
        self.0.iter().map(Event::samples).sum()
    }
}

impl Event {
    /// Opens the event of a thread, which begins to count at once.
    fn open(thread: Pid) -> io::Result<Self> {
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: u32::try_from(PERF_ATTR_SIZE_VER0).map_err(io::Error::other)?,
            config: PERF_COUNT_SW_CPU_CLOCK,
            sample_period: PERIOD_NS,
            flags: EXCLUDE_KERNEL | EXCLUDE_HV,
            ..Attributes::default()
        };
        let (any_processor, no_group) = (-1, -1);
        // SAFETY: the attributes have the size that they state, and the kernel only reads them.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                ptr::from_ref(&attributes),
                thread.as_raw_nonzero().get(),
                any_processor,
                no_group,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        let descriptor = i32::try_from(descriptor).ok().filter(|descriptor| *descriptor >= 0);
        let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let ring_bytes = 2 * rustix::param::page_size();
        // SAFETY: the kernel chooses where it maps the ring, and nothing refers to that range yet.
        let ring =
            unsafe { mmap(ptr::null_mut(), ring_bytes, ProtFlags::READ, MapFlags::SHARED, &descriptor, 0)? };
        let ring = NonNull::new(ring.cast()).ok_or_else(|| io::Error::other("mapped to address 0"))?;
        Ok(Self { _descriptor: descriptor, ring, ring_bytes })
    }

    fn samples(&self) -> u64 {
        // SAFETY: the position lies inside the first page of the mapping.
        let head = unsafe { self.ring.add(DATA_HEAD_OFFSET) }.cast::<u64>();
        // SAFETY: it is aligned, is mapped as long as `self` lives, and the kernel writes it with single stores. A relaxed load
        // does not write to the page, which is read-only.
        let head = unsafe { AtomicU64::from_ptr(head.as_ptr()) };
        head.load(Ordering::Relaxed) / SAMPLE_BYTES
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `open`, and only `samples` refers to it.
        let _ = unsafe { munmap(self.ring.as_ptr().cast(), self.ring_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_count_the_user_time_of_a_thread() {
        let this = rustix::thread::gettid();
        let Ok(sampler) = Sampler::start(&[this]) else { return };
        let begin = crate::machine::now();
        // Neither an upper nor a lower bound of the time would hold on a busy machine.
        while sampler.user_samples() == 0 {
            assert!(
                crate::machine::now().duration_since(begin).as_secs() < 30,
                "a thread in user mode is sampled"
            );
        }
        assert!(Sampler::start(&[Pid::from_raw(i32::MAX).unwrap()]).is_err());
    }
}
