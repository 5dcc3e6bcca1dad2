//! The memory of the machine by its system files, below a root directory that tests can choose.

use std::fs;
use std::path::Path;

/// Returns how the kernel grants huge pages: "always", "madvise" or "never". Returns `None` if the kernel does not
/// support them.
pub fn huge_pages(root: &Path) -> Option<String> {
    let modes = fs::read_to_string(root.join("sys/kernel/mm/transparent_hugepage/enabled")).ok()?;
    let (_, rest) = modes.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

/// Returns the memory of the machine.
pub fn memory_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the smallest limit of the control groups of a process ("self", or a number), in both versions of cgroups.
pub fn cgroup_bytes(root: &Path, process: &str) -> Option<u64> {
    let memberships = fs::read_to_string(root.join(format!("proc/{process}/cgroup"))).ok()?;
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

/// Returns the smallest limit from the group up to the root of its hierarchy. Each group limits all groups below it.
fn lowest_limit(hierarchy: &Path, group: &str, file: &str) -> Option<u64> {
    let group = hierarchy.join(group.trim_start_matches('/'));
    let levels = group.ancestors().take_while(|level| level.starts_with(hierarchy));
    // "max" means no limit, and does not parse.
    levels.filter_map(|level| fs::read_to_string(level.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_read_from_the_chosen_word() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(huge_pages(root.path()), None);
        let folder = root.path().join("sys/kernel/mm/transparent_hugepage");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("enabled"), "always [madvise] never\n").unwrap();
        assert_eq!(huge_pages(root.path()).as_deref(), Some("madvise"));
    }
}
