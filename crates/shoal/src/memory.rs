//! How much memory the swarms may take, from the configuration or from what the machine has.

use std::fs;
use std::path::Path;

use shoal_config::{Auto, ByteSize};

/// The ceiling where nothing can be learnt about the machine.
const FALLBACK: ByteSize = ByteSize::gib(1);

/// The memory ceiling of the store and why it is what it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ceiling {
    pub(crate) bytes: u64,
    pub(crate) reason: String,
}

/// The ceiling that the operator set, or half of what `root` (the root directory, in production) says there is.
/// Half leaves room for socket buffers and the rest of the machine.
pub(crate) fn ceiling(memory_max: Auto<ByteSize>, root: &Path) -> Ceiling {
    if let Auto::Set(size) = memory_max {
        return Ceiling { bytes: size.0, reason: "store.memory_max".to_owned() };
    }
    let limits = [
        machine_bytes(root).map(|bytes| (bytes, "the memory of this machine")),
        cgroup_bytes(root).map(|bytes| (bytes, "the memory limit of the cgroup")),
    ];
    match limits.into_iter().flatten().min() {
        Some((bytes, whose)) => Ceiling { bytes: bytes / 2, reason: format!("half of {whose}") },
        None => Ceiling { bytes: FALLBACK.0, reason: "/proc/meminfo cannot be read".to_owned() },
    }
}

/// How the kernel grants huge pages: "always", "madvise" or "never". `None` where it does not know them.
pub(crate) fn huge_pages(root: &Path) -> Option<String> {
    let modes = fs::read_to_string(root.join("sys/kernel/mm/transparent_hugepage/enabled")).ok()?;
    let (_, rest) = modes.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of the control groups that this process is in, over both versions of cgroups.
fn cgroup_bytes(root: &Path) -> Option<u64> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    // Each line is "hierarchy:controllers:path" (cgroups(7), "/proc/pid/cgroup").
    let limits = memberships.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            "" => lowest_limit(&root.join("sys/fs/cgroup"), path, "memory.max"),
            "memory" => lowest_limit(&root.join("sys/fs/cgroup/memory"), path, "memory.limit_in_bytes"),
            _ => None,
        }
    });
    limits.min()
}

/// The smallest limit on the way from the group up to the root of its hierarchy: each limits those below.
fn lowest_limit(hierarchy: &Path, group: &str, file: &str) -> Option<u64> {
    let group = hierarchy.join(group.trim_start_matches('/'));
    let levels = group.ancestors().take_while(|level| level.starts_with(hierarchy));
    // "max" stands for no limit, and does not parse.
    levels.filter_map(|level| fs::read_to_string(level.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine made of these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       2097152 kB\nMemFree:  17 kB\n");

    #[test]
    fn the_operator_decides_first() {
        let root = machine(&[MEMINFO]);
        assert_eq!(ceiling(Auto::Set(ByteSize::mib(7)), root.path()).bytes, 7 << 20);
    }

    #[test]
    fn half_of_the_machine_is_the_default() {
        let root = machine(&[MEMINFO]);
        let expected = Ceiling { bytes: 1 << 30, reason: "half of the memory of this machine".to_owned() };
        assert_eq!(ceiling(Auto::Auto, root.path()), expected);
    }

    #[test]
    fn the_lowest_limit_of_the_cgroups_counts() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/system.slice/shoal.service\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "268435456\n"),
            ("sys/fs/cgroup/system.slice/shoal.service/memory.max", "max\n"),
        ]);
        let expected =
            Ceiling { bytes: 128 << 20, reason: "half of the memory limit of the cgroup".to_owned() };
        assert_eq!(ceiling(Auto::Auto, root.path()), expected);
    }

    #[test]
    fn cgroups_of_version_1_count_too() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "104857600\n"),
        ]);
        assert_eq!(ceiling(Auto::Auto, root.path()).bytes, 50 << 20);
    }

    #[test]
    fn a_machine_that_tells_nothing_gets_the_fallback() {
        assert_eq!(ceiling(Auto::Auto, machine(&[]).path()).bytes, FALLBACK.0);
    }

    #[test]
    fn huge_pages_are_read_from_the_chosen_word() {
        let root = machine(&[("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")]);
        assert_eq!(huge_pages(root.path()).as_deref(), Some("madvise"));
        assert_eq!(huge_pages(machine(&[]).path()), None);
    }
}
