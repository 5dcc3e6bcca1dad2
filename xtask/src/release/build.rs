//! The programs of a release: static, stripped, and the same in whichever folder they are built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use shoal_testkit::tools;

use super::tree::Tree;
use crate::shell::{command, output, root, run, title};

/// The programs. Each is built by itself, so that it is not built with features that only another one needs.
pub(super) const PROGRAMS: [&str; 2] = ["shoal", "shoal-lab"];

/// A program that needs no library, with small relocations. Without a C library to ask, random numbers come from the kernel.
const FLAGS: [&str; 3] = [
    "-Ctarget-feature=+crt-static",
    "--cfg=getrandom_backend=\"linux_getrandom\"",
    "-Clink-arg=-Wl,-z,pack-relative-relocs",
];

/// Leaves out the variant of AES-GCM for AVX-512, which is 0.7 MB of unrolled code. Messages of a tracker are short, and
/// gain nothing by it.
const C_FLAG: &str = "-DMY_ASSEMBLER_IS_TOO_OLD_FOR_512AVX";

/// Where and for which machine programs are built.
pub(super) struct Target {
    /// The target of the compiler, such as `x86_64-unknown-linux-gnu`.
    pub(super) tuple: String,
    /// Where cargo builds.
    folder: PathBuf,
    commit_s: u64,
}

impl Target {
    /// Builds for this machine.
    pub(super) fn of_host(tree: &Tree) -> Result<Self> {
        let tuple = output(&mut command("rustc", &["--print", "host-tuple"]))?.trim().to_owned();
        let folder = tools::target_directory()?.to_owned();
        Ok(Self { tuple, folder, commit_s: tree.commit_s })
    }

    /// Returns the name of the machine in the names of files, such as `x86_64-linux`.
    pub(super) fn name(&self) -> String {
        format!("{}-linux", self.tuple.split('-').next().unwrap_or_default())
    }

    /// Returns the file of a program.
    pub(super) fn program(&self, program: &str) -> PathBuf {
        self.folder.join(&self.tuple).join("dist").join(program)
    }

    /// Builds all programs.
    pub(super) fn build(&self) -> Result<()> {
        title("programs");
        PROGRAMS.iter().try_for_each(|program| run(&mut self.command(program)?))
    }

    fn command(&self, program: &str) -> Result<Command> {
        let prefixes = self.prefixes()?;
        let mut flags = FLAGS.map(str::to_owned).to_vec();
        flags.extend(prefixes.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")));
        let mut c_flags = vec![C_FLAG.to_owned()];
        c_flags.extend(prefixes.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")));
        // With a target given, the flags do not apply to build scripts and procedural macros.
        let mut build = command("cargo", &["build", "--locked", "--profile", "dist", "--package", program]);
        build.args(["--target", &self.tuple]);
        build.env("CARGO_TARGET_DIR", &self.folder).env("CARGO_INCREMENTAL", "0");
        build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        build.env(format!("CFLAGS_{}", self.tuple.replace('-', "_")), c_flags.join(" "));
        build.env("SOURCE_DATE_EPOCH", self.commit_s.to_string()).env_remove("RUSTFLAGS");
        Ok(build)
    }

    /// Returns the paths that programs must not contain, and what stands for them. The last one that applies counts.
    fn prefixes(&self) -> Result<[(String, &'static str); 3]> {
        let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
        let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
        let cargo = cargo.context("neither CARGO_HOME nor HOME is set")?;
        let shown = |path: &Path| path.display().to_string();
        Ok([(shown(root()), "/shoal"), (shown(&self.folder), "/target"), (shown(&cargo), "/cargo")])
    }
}

/// Builds the program that writes the manual pages and the completions, and returns its path.
pub(super) fn manual() -> Result<PathBuf> {
    run(&mut command("cargo", &["build", "--locked", "--quiet", "--workspace", "--example", "manual"]))?;
    Ok(tools::target_directory()?.join("debug/examples/manual"))
}

/// Checks that the oldest Rust that the manifests name builds the programs. `rustup` installs it if need be.
pub(super) fn check_oldest_rust(tree: &Tree) -> Result<()> {
    let version = tree.rust_version.as_str();
    title(&format!("Rust {version}"));
    run(&mut command(
        "rustup",
        &["toolchain", "install", version, "--profile", "minimal", "--no-self-update"],
    ))?;
    let folder = tools::target_directory()?.join("oldest-rust");
    let mut check = command("rustup", &["run", version, "cargo", "check", "--locked"]);
    check.args(PROGRAMS.iter().flat_map(|program| ["--package", program]));
    run(check.env("CARGO_TARGET_DIR", folder))
}
