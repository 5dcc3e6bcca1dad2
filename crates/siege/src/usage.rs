//! Processor time and resident memory of the tracker's process, by the kernel's account.

use std::fs;
use std::path::Path;

/// Returns nanoseconds on a processor, of all threads that still run (proc_pid_schedstat, first field).
pub(crate) fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
    let tasks = tasks.into_iter().flatten().filter_map(Result::ok);
    let times = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
}

/// Returns resident bytes (proc_pid_status(5), `VmRSS`), or 0 for a process that has ended.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    parse_resident(&status).unwrap_or(0)
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::parse_resident;

    #[test]
    fn resident_memory_is_read_in_kib() {
        assert_eq!(parse_resident("VmHWM:\t  9 kB\nVmRSS:\t    5136 kB\n"), Some(5136 * 1024));
        assert_eq!(parse_resident("Name:\tshoal\n"), None);
    }
}
