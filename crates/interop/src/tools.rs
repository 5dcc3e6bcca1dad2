//! What the tests need on the machine, and where to find it.

mod service;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail, ensure};

pub use service::{HITCH, NGINX, NGINX_STREAM, OPENTRACKER, SERVICES, Service, TRANSMISSION};

/// A program and the Debian or Ubuntu package that brings it.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Name on the `PATH`.
    pub program: &'static str,
    /// Name for `apt-get install`.
    pub package: &'static str,
}

/// Every program that the tests of this crate run.
pub const TOOLS: [Tool; 11] = [
    Tool { program: "ip", package: "iproute2" },
    Tool { program: "unshare", package: "util-linux" },
    Tool { program: "nsenter", package: "util-linux" },
    Tool { program: "setpriv", package: "util-linux" },
    Tool { program: "python3", package: "python3-venv" },
    // The libraries of the daemon. The package of the daemon itself would start a service: see `service`.
    Tool { program: "transmission-remote", package: "transmission-cli" },
    Tool { program: "aria2c", package: "aria2" },
    Tool { program: "rtorrent", package: "rtorrent" },
    Tool { program: "chromium", package: "chromium" },
    Tool { program: "node", package: "nodejs" },
    Tool { program: "npm", package: "npm" },
];

/// The PyPI packages that the tests need, as `pip` reads them.
pub const PYTHON_REQUIREMENTS: &str = include_str!("../requirements.txt");

/// The npm packages that the tests need, and the exact versions of all that these need, as `npm ci` reads them: names
/// of files, and what is in them.
pub const NODE_REQUIREMENTS: [(&str, &str); 2] = [
    ("package.json", include_str!("../package.json")),
    ("package-lock.json", include_str!("../package-lock.json")),
];

/// Where `program` is.
///
/// # Errors
/// Where it is missing, with the command that installs it.
pub fn program(program: &str) -> Result<PathBuf> {
    find(program).with_context(|| format!("{program} is missing; `cargo xtask setup` installs it"))
}

/// Where `program` is, if it is anywhere.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // On Debian a user's own PATH lacks the directories where `ip` lives.
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let is_there = |directory: PathBuf| Some(directory.join(program)).filter(|file| file.is_file());
    directories.into_iter().find_map(is_there)
}

/// The directory of the Python environment with [`PYTHON_REQUIREMENTS`].
///
/// # Errors
/// Where cargo does not tell its target directory.
pub fn python_environment() -> Result<PathBuf> {
    Ok(target_directory()?.join("python"))
}

/// The Python interpreter of [`python_environment`].
///
/// # Errors
/// Where the environment is missing, with the command that makes it.
pub fn python() -> Result<PathBuf> {
    let python = python_environment()?.join("bin/python");
    ensure!(python.is_file(), "{} is missing; `cargo xtask setup` makes it", python.display());
    Ok(python)
}

/// The directory where [`NODE_REQUIREMENTS`] are installed.
///
/// # Errors
/// Where cargo does not tell its target directory.
pub fn node_environment() -> Result<PathBuf> {
    Ok(target_directory()?.join("node"))
}

/// A file of an npm package, or its directory, by its path below `node_modules`.
///
/// # Errors
/// Where it is missing, with the command that installs it.
pub fn node_module(path: &str) -> Result<PathBuf> {
    let module = node_environment()?.join("node_modules").join(path);
    ensure!(module.exists(), "{} is missing; `cargo xtask setup` installs it", module.display());
    Ok(module)
}

/// A command that runs opentracker, unpacked or installed.
///
/// # Errors
/// Where it is missing, with the command that unpacks it.
pub fn opentracker() -> Result<Command> {
    OPENTRACKER.command()
}

/// The tracker: what `TEST_SHOAL_BINARY` names, or else built now, once, in the profile of the tests.
///
/// # Errors
/// Where it does not build.
pub fn shoal() -> Result<&'static Path> {
    static SHOAL: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&SHOAL, || env::var_os("TEST_SHOAL_BINARY").map_or_else(build_shoal, |path| Ok(path.into())))
}

/// A path that is found out once a process, because cargo takes its time. An error stays as well.
fn once(
    cell: &'static OnceLock<Result<PathBuf, String>>,
    find_out: impl FnOnce() -> Result<PathBuf>,
) -> Result<&'static Path> {
    let found = cell.get_or_init(|| find_out().map_err(|error| format!("{error:#}")));
    found.as_deref().map_err(|error| anyhow!("{error}"))
}

fn build_shoal() -> Result<PathBuf> {
    let mut cargo = Command::new(cargo());
    cargo.args(["build", "--quiet", "--package", "shoal", "--bin", "shoal", "--message-format", "json"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let messages = json_lines(&mut cargo)?;
    let executable = messages.iter().find_map(|message| message["executable"].as_str());
    Ok(executable.context("cargo did not say where it put shoal")?.into())
}

/// Where cargo builds, and the tests keep what they need.
///
/// # Errors
/// Where cargo does not tell.
pub fn target_directory() -> Result<&'static Path> {
    static DIRECTORY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&DIRECTORY, ask_for_target_directory)
}

fn ask_for_target_directory() -> Result<PathBuf> {
    let mut cargo = Command::new(cargo());
    let metadata = json_lines(cargo.args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let directory = metadata.first().and_then(|metadata| metadata["target_directory"].as_str());
    Ok(directory.context("cargo did not say where its target directory is")?.into())
}

/// Cargo says in the environment by which path it was called itself.
fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| "cargo".into(), Into::into)
}

fn json_lines(command: &mut Command) -> Result<Vec<serde_json::Value>> {
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).context("cargo's output is not JSON")).collect()
}
