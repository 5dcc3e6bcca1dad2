//! The state of a tracker on disk: a small file system that can be full, and files that can be damaged.
//!
//! The file system is a tmpfs in a mount namespace of this program, so that it disappears with it. To fill it, its limit
//! becomes what it holds: no memory is taken.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::siege::namespace;

/// The environment variable that marks this program inside its namespace. Its value identifies the outer namespace.
const OUTSIDE: &str = "CHAOS_OUTSIDE";

/// The file that identifies the mount namespace of this process.
const NAMESPACE: &str = "/proc/self/ns/mnt";

/// The limit of the file system while it is not full, as tmpfs(5) has it.
const SIZE: &str = "size=50%";

/// A file system for the state of a tracker.
#[derive(Debug)]
pub(crate) struct StateDisk(PathBuf);

/// Runs this program again in a mount namespace of its own, with the same arguments, if it is not there yet. Without
/// root, a user namespace is created as well.
///
/// # Errors
/// Returns an error if that is impossible.
pub(crate) fn enter_namespace() -> Result<()> {
    if namespace::is_inside_of(NAMESPACE, OUTSIDE)? {
        return Ok(());
    }
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let program = env::current_exe().context("cannot locate this program")?;
    command.args(["--mount", "--propagation", "private", "--"]).arg(program).args(env::args_os().skip(1));
    // It returns only if it fails.
    Err(command.env(OUTSIDE, namespace::own(NAMESPACE)?).exec())
        .context("cannot run unshare (package util-linux)")
}

impl StateDisk {
    /// Mounts it on a new directory.
    pub(crate) fn mount(directory: &Path) -> Result<Self> {
        fs::create_dir(directory).context("the directory of the state")?;
        mount([
            OsStr::new("-t"),
            "tmpfs".as_ref(),
            "-o".as_ref(),
            SIZE.as_ref(),
            "tmpfs".as_ref(),
            directory.as_ref(),
        ])?;
        Ok(Self(directory.to_owned()))
    }

    /// Leaves no room.
    pub(crate) fn fill(&self) -> Result<()> {
        let size = rustix::fs::statvfs(&self.0)?;
        let used_bytes = (size.f_blocks - size.f_bfree) * size.f_frsize;
        // A size of 0 would mean no limit.
        self.resize(&format!("size={}", used_bytes.max(size.f_frsize)))
    }

    /// Makes room again.
    pub(crate) fn free(&self) -> Result<()> {
        self.resize(SIZE)
    }

    fn resize(&self, size: &str) -> Result<()> {
        mount([OsStr::new("-o"), format!("remount,{size}").as_ref(), self.0.as_ref()])
    }
}

impl Drop for StateDisk {
    fn drop(&mut self) {
        // The namespace takes it along otherwise.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount<const N: usize>(arguments: [&OsStr; N]) -> Result<()> {
    let output =
        Command::new("mount").args(arguments).output().context("cannot run mount (package mount)")?;
    ensure!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Returns the largest file of a directory and its size, if there is one.
pub(crate) fn largest_file(directory: &Path) -> Option<(PathBuf, u64)> {
    let files = fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let sizes = files.filter_map(|file| {
        let data = file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((file.path(), data.len()))
    });
    sizes.max_by_key(|(_, size)| *size).filter(|(_, size)| *size > 0)
}

/// Changes the byte in the middle of a file.
pub(crate) fn change_a_byte(file: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(file)?;
    let middle = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle)?;
    file.write_all_at(&[!byte[0]], middle)
}

/// Cuts off the last quarter of a file.
pub(crate) fn truncate(file: &Path) -> io::Result<()> {
    let file = File::options().write(true).open(file)?;
    file.set_len(file.metadata()?.len() / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_file_is_damaged_in_the_middle_or_cut() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(largest_file(directory.path()), None);
        fs::write(directory.path().join("lock"), "").unwrap();
        assert_eq!(largest_file(directory.path()), None, "an empty file cannot be damaged");
        fs::write(directory.path().join("keys"), "ab").unwrap();
        let swarms = directory.path().join("swarms");
        fs::write(&swarms, "abcdefgh").unwrap();
        assert_eq!(largest_file(directory.path()), Some((swarms.clone(), 8)));
        change_a_byte(&swarms).unwrap();
        assert_eq!(fs::read(&swarms).unwrap(), [b"abcd", &[!b'e'][..], b"fgh"].concat());
        truncate(&swarms).unwrap();
        assert_eq!(fs::read(&swarms).unwrap().len(), 6);
    }
}
