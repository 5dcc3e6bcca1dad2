//! Programs whose Debian packages are unpacked rather than installed, since to install them is to start a service.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{find, target_directory};

/// Such a program.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The program, as Debian calls it.
    pub program: &'static str,
    /// The packages that bring it, and those of its libraries that are rare.
    pub packages: &'static [&'static str],
    /// The modules that the tests load into it, as paths below the root.
    modules: &'static [&'static str],
    /// The directory of cargo's target directory to which it is unpacked.
    directory: &'static str,
    /// An argument on which it prints something and ends, and a word of what it prints.
    greeting: (&'static str, &'static str),
}

/// Transmission's daemon, a client.
pub const TRANSMISSION: Service = Service {
    program: "transmission-daemon",
    packages: &["transmission-daemon"],
    modules: &[],
    directory: "transmission",
    greeting: ("--version", "transmission-daemon"),
};

/// A tracker of others, by which the conformance suite is tested.
pub const OPENTRACKER: Service = Service {
    program: "opentracker",
    packages: &["opentracker", "libowfat0"],
    modules: &[],
    directory: "opentracker",
    // It has no option that does nothing: this one prints the help and ends with an error.
    greeting: ("-h", "Usage"),
};

/// A reverse proxy that speaks HTTP and TLS, and can pass bytes on as well.
pub const NGINX: Service = Service {
    program: "nginx",
    packages: &["nginx", "libnginx-mod-stream"],
    modules: &[NGINX_STREAM],
    directory: "nginx",
    greeting: ("-v", "nginx version"),
};

/// A proxy that takes TLS off and passes bytes on.
pub const HITCH: Service = Service {
    program: "hitch",
    packages: &["hitch", "libev4"],
    modules: &[],
    directory: "hitch",
    greeting: ("--version", "hitch"),
};

/// All of them.
pub const SERVICES: [Service; 4] = [TRANSMISSION, OPENTRACKER, NGINX, HITCH];

/// The module of nginx that passes bytes on.
pub const NGINX_STREAM: &str = "usr/lib/nginx/modules/ngx_stream_module.so";

/// Where Debian's packages put programs.
const PROGRAM_DIRECTORIES: [&str; 2] = ["usr/bin", "usr/sbin"];

impl Service {
    /// Where it is unpacked, if it is.
    ///
    /// # Errors
    /// Where cargo does not tell its target directory.
    pub fn directory(&self) -> Result<PathBuf> {
        Ok(target_directory()?.join(self.directory))
    }

    /// The program, unpacked or installed.
    ///
    /// # Errors
    /// Where it is missing, with the command that unpacks it.
    pub fn path(&self) -> Result<PathBuf> {
        Ok(self.find()?.program)
    }

    /// A file of its packages, by its path below the root.
    ///
    /// # Errors
    /// Where the program is missing.
    pub fn module(&self, path: &str) -> Result<PathBuf> {
        Ok(self.find()?.root.join(path))
    }

    /// A command that runs it.
    ///
    /// # Errors
    /// Where it is missing.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.path()?);
        self.lend_libraries(&mut command)?;
        Ok(command)
    }

    /// Lets a command find the libraries that were unpacked with the program.
    ///
    /// # Errors
    /// Where the program is missing.
    pub fn lend_libraries(&self, command: &mut Command) -> Result<()> {
        let root = self.find()?.root;
        if root != Path::new("/") {
            command.env("LD_LIBRARY_PATH", env::join_paths(library_directories(&root))?);
        }
        Ok(())
    }

    /// Makes sure that it starts.
    ///
    /// # Errors
    /// Where it does not.
    pub fn check(&self) -> Result<()> {
        let (argument, expected) = self.greeting;
        let output = self.command()?.arg(argument).output();
        let output = output.with_context(|| format!("{} does not start", self.program))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        ensure!(text.contains(expected), "{} does not start: {}", self.program, text.trim());
        Ok(())
    }

    fn find(&self) -> Result<Found> {
        let unpacked = self.directory()?;
        let mut programs = PROGRAM_DIRECTORIES.iter().map(|path| unpacked.join(path).join(self.program));
        let program = programs.find(|program| program.is_file());
        let unpacked = program.map(|program| Found { root: unpacked, program });
        let installed = || find(self.program).map(|program| Found { root: "/".into(), program });
        let is_whole = |found: &Found| self.modules.iter().all(|module| found.root.join(module).is_file());
        let found = unpacked.filter(is_whole).or_else(|| installed().filter(is_whole));
        found.with_context(|| format!("{} is missing; `cargo xtask setup` unpacks it", self.program))
    }
}

#[derive(Debug)]
struct Found {
    /// Where the tree of its packages begins.
    root: PathBuf,
    program: PathBuf,
}

/// Debian is moving its libraries from the one directory to the other, and has directories of architectures in both.
fn library_directories(root: &Path) -> Vec<PathBuf> {
    let parents = [root.join("lib"), root.join("usr/lib")];
    let children = parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    let children: Vec<PathBuf> = children.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    parents.into_iter().chain(children).collect()
}
