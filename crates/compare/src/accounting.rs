//! The cost of processes: the kernel's account of CPU time, the busy share of processors, and resident memory.
//!
//! Reading `/proc` takes about a millisecond on the processors of the load, so it happens at most a few times a second.
//!
//! CPU time covers the process alone, by the scheduler's exact account if the kernel provides it. Samples (`sampling`)
//! divide it into user and system time, or else the kernel's ticks.

pub(crate) mod sampling;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use rustix::process::Pid;

use self::sampling::{PERIOD_NS, Sampler};
use crate::machine;
use crate::result::{CpuTime, Usage};

/// The usual clock ticks per second (`CONFIG_HZ`), which the kernel does not tell, for the error of the division.
const TICKS_PER_S: f64 = 250.0;

/// The counters of a process group and of the machine's processors at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    when: Instant,
    user_ticks: u64,
    system_ticks: u64,
    /// Nanoseconds on a processor, per thread.
    threads: BTreeMap<u32, u64>,
    /// Nanoseconds in which a thread was ready to run and waited for a processor, per thread.
    waits: BTreeMap<u32, u64>,
    /// Samples in user mode, if the group is sampled.
    user_samples: Option<u64>,
    processors: BTreeMap<usize, Ticks>,
}

/// The counters of a processor, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    steal: u64,
    total: u64,
}

impl Snapshot {
    /// Reads the counters of the process group `group`, which `sampler` may sample, and of `processors`.
    pub(crate) fn take(group: u32, sampler: Option<&Sampler>, processors: &[usize]) -> io::Result<Self> {
        let (mut threads, mut waits) = (BTreeMap::new(), BTreeMap::new());
        let (mut user_ticks, mut system_ticks) = (0, 0);
        let members = members(group)?;
        if members.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
        }
        for member in members {
            user_ticks += member.user_ticks;
            system_ticks += member.system_ticks;
            for (thread, [run_ns, wait_ns]) in thread_times(member.pid) {
                threads.insert(thread, run_ns);
                waits.insert(thread, wait_ns);
            }
        }
        let mut ticks = processor_ticks(&fs::read_to_string("/proc/stat")?);
        ticks.retain(|processor, _| processors.contains(processor));
        let user_samples = sampler.map(Sampler::user_samples);
        let when = machine::now();
        Ok(Self { when, user_ticks, system_ticks, threads, waits, user_samples, processors: ticks })
    }

    pub(crate) fn until(&self, later: &Self) -> Usage {
        let ticks_per_s = as_f64(rustix::param::clock_ticks_per_second());
        let seconds = |ticks: u64| as_f64(ticks) / ticks_per_s;
        let busy = self.processors.iter().filter_map(|(processor, before)| {
            let after = later.processors.get(processor)?;
            let total = after.total.saturating_sub(before.total).max(1);
            let idle = after.idle.saturating_sub(before.idle);
            let steal = after.steal.saturating_sub(before.steal);
            Some((*processor, total, total.saturating_sub(idle + steal), steal))
        });
        let busy: Vec<(usize, u64, u64, u64)> = busy.collect();
        let total: u64 = busy.iter().map(|(_, total, ..)| total).sum();
        let steal: u64 = busy.iter().map(|(.., steal)| steal).sum();
        let mut cpu = CpuTime {
            elapsed_s: later.when.duration_since(self.when).as_secs_f64(),
            user_s: seconds(later.user_ticks.saturating_sub(self.user_ticks)),
            system_s: seconds(later.system_ticks.saturating_sub(self.system_ticks)),
            exact_s: self.exact_s(later),
            sampled_user_s: self.sampled_user_s(later),
            user_error_s: None,
        };
        cpu.user_error_s = user_error_s(&cpu);
        Usage {
            cpu,
            processors: busy
                .iter()
                .map(|(processor, total, busy, _)| (*processor, as_f64(*busy) / as_f64(*total)))
                .collect(),
            steal: as_f64(steal) / as_f64(total.max(1)),
            at_work: None,
            ready_share: None,
            spinners: 0,
            receive_s: None,
        }
    }

    /// Returns the share of the time, 0 to 1, in which the group kept `processors` busy, or had enough threads that ran
    /// or waited for a processor. A thread that waits has work, even if another program has the processor.
    pub(crate) fn ready_share(&self, later: &Self, processors: usize) -> Option<f64> {
        let elapsed_ns = later.when.duration_since(self.when).as_secs_f64() * 1e9;
        let since = |before: &BTreeMap<u32, u64>, after: &BTreeMap<u32, u64>, thread| {
            after
                .get(thread)
                .zip(before.get(thread))
                .map_or(0, |(after, before)| after.saturating_sub(*before))
        };
        let run = |thread| since(&self.threads, &later.threads, thread);
        let mut ready: Vec<u64> = self
            .threads
            .keys()
            .map(|thread| run(thread) + since(&self.waits, &later.waits, thread))
            .collect();
        ready.sort_unstable();
        let busiest_ns: u64 = ready.iter().rev().take(processors).sum();
        let run_ns: u64 = self.threads.keys().map(run).sum();
        let available_ns = elapsed_ns * as_f64(u64::try_from(processors).ok()?);
        (available_ns > 0.0).then(|| (as_f64(busiest_ns.max(run_ns)) / available_ns).min(1.0))
    }

    /// Returns the exact CPU time, unless a thread has ended, since the kernel keeps no account of ended threads.
    fn exact_s(&self, later: &Self) -> Option<f64> {
        let all_run = self.threads.keys().all(|thread| later.threads.contains_key(thread));
        if self.threads.is_empty() || !all_run {
            return None;
        }
        let sum = |threads: &BTreeMap<u32, u64>| threads.values().sum::<u64>();
        Some(as_f64(sum(&later.threads).saturating_sub(sum(&self.threads))) / 1e9)
    }

    /// Returns the CPU time in user mode by samples, unless a thread has begun that is not sampled.
    fn sampled_user_s(&self, later: &Self) -> Option<f64> {
        let samples = later.user_samples?.saturating_sub(self.user_samples?);
        let all_sampled = later.threads.keys().all(|thread| self.threads.contains_key(thread));
        all_sampled.then(|| as_f64(samples * PERIOD_NS) / 1e9)
    }
}

/// Returns twice the standard deviation of the user part: each sample or tick is in user mode by a chance of its own.
fn user_error_s(time: &CpuTime) -> Option<f64> {
    let (whole_s, user_s) = (time.whole_s(), time.user_part_s());
    let period_s = if time.sampled_user_s.is_some() { as_f64(PERIOD_NS) / 1e9 } else { 1.0 / TICKS_PER_S };
    (whole_s > 0.0).then(|| 2.0 * (user_s * (1.0 - user_s / whole_s) * period_s).sqrt())
}

/// Returns the resident bytes of all processes of a group.
pub(crate) fn resident_bytes(group: u32) -> io::Result<u64> {
    let resident = |member: Member| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/statm", member.pid)).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
    };
    let bytes = members(group)?.into_iter().filter_map(resident).sum();
    if bytes == 0 { Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended")) } else { Ok(bytes) }
}

pub(crate) fn threads(group: u32) -> io::Result<Vec<Pid>> {
    let threads = members(group)?.into_iter().flat_map(|member| thread_times(member.pid));
    Ok(threads.filter_map(|(thread, _)| Pid::from_raw(i32::try_from(thread).ok()?)).collect())
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    pid: u32,
    group: u32,
    user_ticks: u64,
    system_ticks: u64,
}

fn members(group: u32) -> io::Result<Vec<Member>> {
    let entries = fs::read_dir("/proc")?.filter_map(Result::ok);
    let stats = entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        Member::parse(&fs::read_to_string(entry.path().join("stat")).ok()?)
    });
    Ok(stats.filter(|member| member.group == group).collect())
}

impl Member {
    /// Parses `/proc/PID/stat` (proc_pid_stat(5)). The name is in parentheses and may contain anything. Numbers follow
    /// it: the third is the group, and the twelfth and thirteenth are ticks.
    fn parse(stat: &str) -> Option<Self> {
        let pid = stat.split(' ').next()?.parse().ok()?;
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let group = fields.get(2)?.parse().ok()?;
        Some(Self { pid, group, user_ticks: number(11)?, system_ticks: number(12)? })
    }
}

/// Returns the nanoseconds that each thread was on a processor, and that it waited for one, as counted by the scheduler.
fn thread_times(pid: u32) -> Vec<(u32, [u64; 2])> {
    let tasks = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
    let tasks = tasks.into_iter().flatten().filter_map(Result::ok);
    let times = tasks.filter_map(|task| {
        let thread = task.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut times = text.split(' ').map_while(|time| time.parse().ok());
        Some((thread, [times.next()?, times.next()?]))
    });
    times.collect()
}

/// Parses `/proc/stat`: user, nice, system, idle, iowait, irq, softirq and steal of each processor. The time of guests
/// is already part of user and nice.
fn processor_ticks(text: &str) -> BTreeMap<usize, Ticks> {
    let lines = text.lines().filter_map(|line| {
        // The line of the whole machine has no number after "cpu".
        let (processor, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
        let (processor, fields) = (processor.parse().ok()?, ticks.split_whitespace());
        let fields: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let [.., idle, waiting, _, _, steal] = fields[..] else { return None };
        Some((processor, Ticks { idle: idle + waiting, steal, total: fields.iter().sum() }))
    });
    lines.collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of ticks and nanoseconds stay far below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_hold_anything() {
        let stat = "42 (a (strange) name) S 1 40 40 0 -1 4194304 100 0 0 0 17 4 0 0 20 0 1 0 0 0 0";
        assert_eq!(Member::parse(stat), Some(Member { pid: 42, group: 40, user_ticks: 17, system_ticks: 4 }));
        assert_eq!(Member::parse("42 (short) S 1"), None);
    }

    #[test]
    fn processors_are_read_from_the_statistics() {
        let text =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 5 100 4 0 3 7 0 0\ncpu11 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        let ticks = processor_ticks(text);
        assert_eq!(ticks.keys().copied().collect::<Vec<_>>(), [0, 11]);
        assert_eq!(ticks[&0], Ticks { idle: 104, steal: 7, total: 130 });
    }

    #[test]
    fn usage_is_the_difference_of_two_snapshots() {
        let when = machine::now();
        let before = Snapshot {
            when,
            user_ticks: 100,
            system_ticks: 50,
            threads: BTreeMap::from([(1, 1_000_000_000)]),
            waits: BTreeMap::from([(1, 0)]),
            user_samples: Some(1000),
            processors: BTreeMap::from([(0, Ticks { idle: 0, steal: 0, total: 0 })]),
        };
        let mut after = before.clone();
        after.user_ticks = 300;
        after.threads = BTreeMap::from([(1, 2_500_000_000), (2, 500_000_000)]);
        after.user_samples = Some(5000);
        after.processors.insert(0, Ticks { idle: 20, steal: 10, total: 100 });
        let usage = before.until(&after);
        let ticks_per_s = as_f64(rustix::param::clock_ticks_per_second());
        assert_eq!((usage.cpu.user_s * ticks_per_s, usage.cpu.system_s), (200.0, 0.0));
        assert_eq!((usage.cpu.exact_s, usage.steal), (Some(2.0), 0.1));
        assert_eq!(usage.processors, [(0, 0.7)]);
        assert_eq!(usage.cpu.sampled_user_s, None, "thread 2 is not sampled");
        after.threads.remove(&2);
        let sampled_user_s = before.until(&after).cpu.sampled_user_s.unwrap();
        assert!((sampled_user_s - 1.0).abs() < 1e-3, "{sampled_user_s}");
        after.threads.remove(&1);
        assert_eq!(before.until(&after).cpu.exact_s, None);
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_has_work() {
        let when = machine::now();
        let (threads, waits) = (BTreeMap::from([(1, 0), (2, 0)]), BTreeMap::from([(1, 0), (2, 0)]));
        let before = Snapshot {
            when,
            user_ticks: 0,
            system_ticks: 0,
            threads,
            waits,
            user_samples: None,
            processors: BTreeMap::new(),
        };
        let share = |one: [u64; 2], two: [u64; 2], processors| {
            let mut after = before.clone();
            after.when += std::time::Duration::from_secs(1);
            for (thread, [run_ms, wait_ms]) in [(1, one), (2, two)] {
                after.threads.insert(thread, run_ms * 1_000_000);
                after.waits.insert(thread, wait_ms * 1_000_000);
            }
            before.ready_share(&after, processors).unwrap()
        };
        let is = |share: f64, expected: f64| assert!((share - expected).abs() < 1e-9, "{share} {expected}");
        is(share([300, 600], [10, 20], 1), 0.9);
        is(share([500, 400], [500, 500], 1), 1.0);
        // Two threads take turns on one processor, each of which often waits for the other.
        is(share([500, 0], [500, 100], 1), 1.0);
        is(share([900, 0], [300, 200], 2), 0.7);
    }

    #[test]
    fn the_error_falls_with_the_number_of_samples() {
        // 10 s, a tenth of which in user mode: 250 of 2,500 ticks, 4,000 of 40,000 samples.
        let ticks = CpuTime {
            elapsed_s: 10.0,
            user_s: 1.0,
            system_s: 9.0,
            exact_s: Some(10.0),
            sampled_user_s: None,
            user_error_s: None,
        };
        let samples = CpuTime { sampled_user_s: Some(1.0), ..ticks };
        let [by_ticks, by_samples] = [ticks, samples].map(|time| user_error_s(&time).unwrap());
        assert!(
            (by_ticks - 0.12).abs() < 1e-6 && (by_samples - 0.03).abs() < 1e-4,
            "{by_ticks} {by_samples}"
        );
    }

    #[test]
    fn the_group_contains_this_process() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get().unsigned_abs();
        let snapshot = Snapshot::take(group, None, &[0]).unwrap();
        assert!(!snapshot.threads.is_empty());
        assert!(resident_bytes(group).unwrap() > 100_000);
        assert!(Snapshot::take(u32::MAX, None, &[0]).is_err() && resident_bytes(u32::MAX).is_err());
    }
}
