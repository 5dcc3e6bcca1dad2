//! The processors of the machine, and which of them are hyperthreads of one core.
//!
//! The kernel's directory is an argument, so that tests can invent machines. Only processors that this process may use
//! count.

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const DIRECTORY: &str = "/sys/devices/system/cpu";

/// The processors of a machine, grouped by core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The hyperthreads of each core, lowest first. Cores are in the order of their lowest hyperthread.
    cores: Vec<Vec<usize>>,
}

impl Topology {
    /// Reads the topology of this machine, as far as this process may use it.
    pub fn of_this_machine() -> io::Result<Self> {
        Ok(Self::read(Path::new(DIRECTORY), &allowed()?))
    }

    /// Reads the topology of `allowed` from `directory`. A processor with unknown siblings counts as a core of its own.
    pub fn read(directory: &Path, allowed: &[usize]) -> Self {
        let mut processors = allowed.to_vec();
        processors.sort_unstable();
        processors.dedup();
        let mut cores: Vec<Vec<usize>> = Vec::new();
        for &processor in &processors {
            if cores.iter().any(|core| core.contains(&processor)) {
                continue;
            }
            let file = directory.join(format!("cpu{processor}/topology/thread_siblings_list"));
            let siblings = fs::read_to_string(file).ok().and_then(|text| parse_list(text.trim()));
            let mut core = siblings.unwrap_or_default();
            core.retain(|sibling| processors.binary_search(sibling).is_ok() && *sibling != processor);
            core.insert(0, processor);
            core.sort_unstable();
            cores.push(core);
        }
        Self { cores }
    }

    /// Returns every processor, lowest first.
    pub fn processors(&self) -> Vec<usize> {
        let mut processors: Vec<usize> = self.cores.iter().flatten().copied().collect();
        processors.sort_unstable();
        processors
    }

    pub fn cores(&self) -> &[Vec<usize>] {
        &self.cores
    }

    /// Returns whether a core has more than one hyperthread that this process may use.
    pub fn has_hyperthreads(&self) -> bool {
        self.cores.iter().any(|core| core.len() > 1)
    }

    /// Returns whether two processors are hyperthreads of one core.
    pub fn share_a_core(&self, one: usize, other: usize) -> bool {
        self.cores.iter().any(|core| core.contains(&one) && core.contains(&other))
    }
}

/// Returns the processors that the calling thread may use.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

/// Pins the calling thread, and every process that it starts later. The kernel refuses if none may be used.
pub fn keep_on(processors: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    Ok(sched_setaffinity(None, &set)?)
}

/// Pins a thread of another process. Some programs choose the processors of their threads, whatever they inherit.
pub(crate) fn pin_thread(thread: Pid, processors: &[usize]) -> io::Result<()> {
    let affinity = sched_getaffinity(Some(thread))?;
    let strays = (0..CpuSet::MAX_CPU).any(|other| affinity.is_set(other) && !processors.contains(&other));
    if strays {
        let mut set = CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        sched_setaffinity(Some(thread), &set)?;
    }
    Ok(())
}

/// Parses a list in the kernel's format: `0-3,8,10-11`.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut processors = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        processors.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the directory of a machine whose cores have these hyperthreads.
    fn machine(cores: &[&[usize]]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for core in cores {
            let list: Vec<String> = core.iter().map(ToString::to_string).collect();
            for processor in *core {
                let topology = directory.path().join(format!("cpu{processor}/topology"));
                fs::create_dir_all(&topology).unwrap();
                fs::write(topology.join("thread_siblings_list"), format!("{}\n", list.join(","))).unwrap();
            }
        }
        directory
    }

    #[test]
    fn siblings_are_one_core() {
        let directory = machine(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]);
        let topology = Topology::read(directory.path(), &(0..8).collect::<Vec<_>>());
        assert_eq!(topology.cores(), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(topology.processors(), (0..8).collect::<Vec<_>>());
        assert!(topology.share_a_core(1, 5) && !topology.share_a_core(1, 2));
    }

    #[test]
    fn only_allowed_processors_count() {
        let directory = machine(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]);
        let topology = Topology::read(directory.path(), &[1, 5, 6]);
        assert_eq!(topology.cores(), [vec![1, 5], vec![6]]);
    }

    #[test]
    fn without_siblings_every_processor_is_a_core() {
        let directory = tempfile::tempdir().unwrap();
        let topology = Topology::read(directory.path(), &[0, 1]);
        assert_eq!(topology.cores(), [[0], [1]]);
        assert!(!topology.has_hyperthreads());
    }

    #[test]
    fn a_stray_thread_is_pinned_again() {
        let all = allowed().unwrap();
        let one = &all[all.len() - 1..];
        let back = std::thread::spawn({
            let one = one.to_vec();
            move || {
                let this = rustix::thread::gettid();
                pin_thread(this, &one).unwrap();
                allowed().unwrap()
            }
        });
        assert_eq!(back.join().unwrap(), one);
        assert!(pin_thread(Pid::INIT, &[]).is_err(), "the set of processors is empty");
    }

    #[test]
    fn lists_have_ranges() {
        assert_eq!(parse_list("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list("0-x"), None);
    }
}
