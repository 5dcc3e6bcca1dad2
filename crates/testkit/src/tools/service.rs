//! Programs whose Debian packages are unpacked instead of installed, because installing them starts a service.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{find, target_directory};

/// A program that is unpacked instead of installed.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The name of the program in Debian.
    pub program: &'static str,
    /// The packages that contain it and its less common libraries.
    pub packages: &'static [&'static str],
    /// The modules that the tests load into it, as paths below the root.
    modules: &'static [&'static str],
    /// The directory below cargo's target directory into which it is unpacked.
    directory: &'static str,
    /// An argument with which it prints something and exits, and a part of that output.
    smoke_test: (&'static str, &'static str),
}

/// The daemon of Transmission, a client.
pub const TRANSMISSION: Service = Service {
    program: "transmission-daemon",
    packages: &["transmission-daemon"],
    modules: &[],
    directory: "transmission",
    smoke_test: ("--version", "transmission-daemon"),
};

/// Another tracker, with which the conformance suite is tested.
pub const OPENTRACKER: Service = Service {
    program: "opentracker",
    packages: &["opentracker", "libowfat0"],
    modules: &[],
    directory: "opentracker",
    // It has no option that does nothing: this one prints the help and exits with an error.
    smoke_test: ("-h", "Usage"),
};

/// A reverse proxy for HTTP and TLS that can also forward bytes.
pub const NGINX: Service = Service {
    program: "nginx",
    packages: &["nginx", "libnginx-mod-stream"],
    modules: &[NGINX_STREAM],
    directory: "nginx",
    smoke_test: ("-v", "nginx version"),
};

/// A proxy that terminates TLS and forwards the bytes.
pub const HITCH: Service = Service {
    program: "hitch",
    packages: &["hitch", "libev4"],
    modules: &[],
    directory: "hitch",
    smoke_test: ("--version", "hitch"),
};

/// A server that scrapes metrics. Its package also contains promtool.
pub const PROMETHEUS: Service = Service {
    program: "prometheus",
    packages: &["prometheus"],
    modules: &["usr/bin/promtool"],
    directory: "prometheus",
    smoke_test: ("--version", "prometheus"),
};

/// All services.
pub const SERVICES: [Service; 5] = [TRANSMISSION, OPENTRACKER, NGINX, HITCH, PROMETHEUS];

/// The module of nginx that forwards bytes.
pub const NGINX_STREAM: &str = "usr/lib/nginx/modules/ngx_stream_module.so";

/// The directories of programs in Debian's packages.
const PROGRAM_DIRECTORIES: [&str; 2] = ["usr/bin", "usr/sbin"];

impl Service {
    /// Returns the directory into which it is unpacked.
    ///
    /// # Errors
    /// Returns an error if cargo does not report its target directory.
    pub fn directory(&self) -> Result<PathBuf> {
        Ok(target_directory()?.join(self.directory))
    }

    /// Returns the path of the program, unpacked or installed.
    ///
    /// # Errors
    /// Returns an error, with the command that unpacks it, if it is missing.
    pub fn path(&self) -> Result<PathBuf> {
        Ok(self.find()?.program)
    }

    /// Returns a file of its packages, given by its path below the root.
    ///
    /// # Errors
    /// Returns an error if the program is missing.
    pub fn module(&self, path: &str) -> Result<PathBuf> {
        Ok(self.find()?.root.join(path))
    }

    /// Returns a command that runs it.
    ///
    /// # Errors
    /// Returns an error if it is missing.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.path()?);
        self.set_library_path(&mut command)?;
        Ok(command)
    }

    /// Makes a command use the libraries that were unpacked with the program.
    ///
    /// # Errors
    /// Returns an error if the program is missing.
    pub fn set_library_path(&self, command: &mut Command) -> Result<()> {
        let root = self.find()?.root;
        if root != Path::new("/") {
            // Debian is moving libraries from one of the parents to the other, and has directories per architecture in
            // both.
            let parents = [root.join("lib"), root.join("usr/lib")];
            let children = parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
            let children: Vec<PathBuf> =
                children.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
            command.env("LD_LIBRARY_PATH", env::join_paths(parents.into_iter().chain(children))?);
        }
        Ok(())
    }

    /// Checks that the program starts.
    ///
    /// # Errors
    /// Returns an error if it does not.
    pub fn check(&self) -> Result<()> {
        let (argument, expected) = self.smoke_test;
        let output = self.command()?.arg(argument).output();
        let output = output.with_context(|| format!("{} does not start", self.program))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        ensure!(text.contains(expected), "{} does not start: {}", self.program, text.trim());
        Ok(())
    }

    fn find(&self) -> Result<FoundService> {
        let unpacked = self.directory()?;
        let mut programs = PROGRAM_DIRECTORIES.iter().map(|path| unpacked.join(path).join(self.program));
        let program = programs.find(|program| program.is_file());
        let unpacked = program.map(|program| FoundService { root: unpacked, program });
        let installed = || find(self.program).map(|program| FoundService { root: "/".into(), program });
        let is_whole =
            |found: &FoundService| self.modules.iter().all(|module| found.root.join(module).is_file());
        let found = unpacked.filter(is_whole).or_else(|| installed().filter(is_whole));
        found.with_context(|| format!("{} is missing; `cargo xtask setup` unpacks it", self.program))
    }
}

#[derive(Debug)]
struct FoundService {
    /// The root of the file tree of its packages.
    root: PathBuf,
    program: PathBuf,
}
