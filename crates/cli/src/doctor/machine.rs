//! The sources of the doctor: the system files below a root, and the questions that only the kernel or a program answers.
//!
//! Tests give it a made-up tree and made-up answers.

use std::io;
use std::net::{Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use shoal_net::{Backend, Unsupported};
use shoal_xdp::interface::{Interface, InterfaceError};

/// Runs a program with arguments, and returns what it prints.
type Run = Box<dyn Fn(&str, &[&str]) -> io::Result<String>>;

pub(super) struct Machine {
    root: PathBuf,
    /// Whether this user sees everything.
    pub(super) is_root: bool,
    pub(super) now_unix_s: u64,
    pub(super) run: Run,
    pub(super) interface: fn(&str) -> Result<Interface, InterfaceError>,
    pub(super) is_synchronised: fn() -> io::Result<bool>,
    pub(super) has_ipv6: fn() -> bool,
    pub(super) probe: fn(Backend) -> Result<(), Unsupported>,
}

impl Machine {
    /// Returns this machine.
    pub(super) fn this() -> Self {
        Self {
            root: PathBuf::from("/"),
            is_root: geteuid().is_root(),
            now_unix_s: shoal_runtime::clock::unix_s(),
            run: Box::new(|program, arguments| {
                let output = std::process::Command::new(program).args(arguments).output()?;
                if !output.status.success() {
                    return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
                }
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }),
            interface: Interface::find,
            is_synchronised: super::clock::is_synchronised,
            // Only a socket tells: in some containers, the files of the kernel look as if there were IPv6.
            has_ipv6: || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok(),
            probe: Backend::probe,
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the content of a file such as `proc/self/limits`, if this user may read it.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.root.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// Returns the first number of a parameter of the kernel such as `net.core.rmem_max`.
    pub(super) fn sysctl(&self, name: &str) -> Option<u64> {
        self.text(&format!("proc/sys/{}", name.replace('.', "/")))?.split_whitespace().next()?.parse().ok()
    }

    /// Returns the version of the kernel.
    pub(super) fn kernel(&self) -> Option<(u32, u32)> {
        let release = self.text("proc/sys/kernel/osrelease")?;
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// Returns whether this process has a capability, by its number in `linux/capability.h`.
    pub(super) fn has_capability(&self, number: u32) -> Option<bool> {
        let status = self.text("proc/self/status")?;
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        Some(u64::from_str_radix(effective.trim(), 16).ok()? >> number & 1 == 1)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A made-up machine, which is removed with it.
    pub(in super::super) struct MadeUp {
        pub(in super::super) machine: Machine,
        pub(in super::super) folder: tempfile::TempDir,
    }

    /// Returns a machine with these files, whose programs are missing and whose questions have no answers.
    pub(in super::super) fn made_up(files: &[(&str, &str)]) -> MadeUp {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine {
            root: folder.path().to_owned(),
            is_root: true,
            now_unix_s: 1_800_000_000,
            run: Box::new(|_, _| Err(io::ErrorKind::NotFound.into())),
            interface: |name| Err(InterfaceError::NotFound { name: name.to_owned() }),
            is_synchronised: || Ok(true),
            has_ipv6: || true,
            probe: |_| Ok(()),
        };
        let made = MadeUp { machine, folder };
        files.iter().for_each(|(path, text)| made.write(path, text));
        made
    }

    impl MadeUp {
        pub(in super::super) fn write(&self, path: &str, text: &str) {
            let path = self.folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        /// Adds a process that has a socket.
        pub(in super::super) fn add_process(&self, number: u32, name: &str, inode: u64) {
            self.write(&format!("proc/{number}/comm"), name);
            let folder = self.folder.path().join(format!("proc/{number}/fd"));
            std::fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(format!("socket:[{inode}]"), folder.join("3")).unwrap();
        }
    }

    /// Returns the configuration of these variables.
    pub(in super::super) fn config(variables: &[(&str, &str)]) -> shoal_config::Config {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        shoal_config::read(None, variables).unwrap()
    }

    #[test]
    fn files_are_read_below_the_root() {
        let made = made_up(&[
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("proc/sys/kernel/osrelease", "6.12.0-rc1-amd64"),
            ("proc/self/status", "Name:\tshoal\nCapEff:\t0000000000000400\n"),
        ]);
        let machine = made.machine;
        assert_eq!(
            (machine.sysctl("net.core.rmem_max"), machine.sysctl("net.core.wmem_max")),
            (Some(212_992), None)
        );
        assert_eq!(machine.kernel(), Some((6, 12)));
        assert_eq!((machine.has_capability(10), machine.has_capability(12)), (Some(true), Some(false)));
    }
}
