//! Installs everything that the tests need and that is missing, on Debian, Ubuntu and their derivatives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use shoal_testkit::tools::{
    self, GO_REQUIREMENT, NODE_REQUIREMENTS, PEBBLE, PYTHON_REQUIREMENTS, SERVICES, Service, TOOLS, Tool,
};

use crate::bpf;
use crate::shell::{self, cargo, command, output, root, title};

/// The developer tools from PyPI, as a requirements file of `pip`.
const DEVELOPER_TOOLS: &str = include_str!("../tools.txt");

/// Counts the instructions of `cargo xtask bench instructions`.
const VALGRIND: Tool = Tool { program: "valgrind", package: "valgrind" };

/// Rates the unit, and runs it in namespaces of a test. Without the package systemd-sysv it does not become the system's init.
const SYSTEMD: Tool = Tool { program: "systemd-analyze", package: "systemd" };

/// Run by the page for public trackers.
const CURL: Tool = Tool { program: "curl", package: "curl" };
const LOGROTATE: Tool = Tool { program: "logrotate", package: "logrotate" };

/// Build the XDP program.
const CLANG: Tool = Tool { program: bpf::COMPILER, package: "clang-14" };
const LLVM: Tool = Tool { program: bpf::OBJCOPY, package: "llvm-14" };

pub(crate) fn run() -> Result<()> {
    title("set-up");
    install_packages()?;
    SERVICES.iter().try_for_each(unpack_service)?;
    add_component("rustfmt", "fmt")?;
    add_component("clippy", "clippy")?;
    create_python_environment()?;
    create_node_environment()?;
    build_pebble()?;
    eprintln!("everything that the tests need is installed");
    Ok(())
}

/// Builds and installs a subcommand of cargo, unless it is installed.
pub(crate) fn cargo_tool(name: &str) -> Result<()> {
    if tools::find(name).is_some() {
        return Ok(());
    }
    eprintln!("{name} is missing; cargo builds it now, which takes some minutes");
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
        "missing: {list} (names of Debian packages). There is no apt-get here; install them in another way"
    );
    eprintln!("installing Debian packages: {list}");
    shell::run(&mut apt_get(&["update", "--quiet"]))?;
    shell::run(apt_get(&["install", "--yes", "--quiet", "--no-install-recommends"]).args(&missing))?;
    let still_missing = missing_packages();
    ensure!(still_missing.is_empty(), "still missing after installation: {}", still_missing.join(" "));
    Ok(())
}

/// Unpacks the packages of a service. To install them would start the service.
fn unpack_service(service: &Service) -> Result<()> {
    if service.path().is_ok() {
        return Ok(());
    }
    let directory = service.directory()?;
    eprintln!("unpacking Debian packages to {}: {}", directory.display(), service.packages.join(" "));
    let download = directory.join("download");
    fs::create_dir_all(&download).with_context(|| format!("cannot create {}", download.display()))?;
    // As root, apt would switch to a user of its own, which cannot write to this directory.
    let mut fetch = command("apt-get", &["--quiet", "--option", "APT::Sandbox::User=root", "download"]);
    shell::run(fetch.args(service.packages).current_dir(&download))?;
    for package in fs::read_dir(&download).with_context(|| format!("cannot read {}", download.display()))? {
        shell::run(command("dpkg-deb", &["--extract"]).arg(package?.path()).arg(&directory))?;
    }
    service.check()
}

fn missing_packages() -> Vec<&'static str> {
    let missing = TOOLS
        .iter()
        .chain([&VALGRIND, &SYSTEMD, &CURL, &LOGROTATE, &CLANG, &LLVM])
        .filter(|tool| tools::find(tool.program).is_none());
    let mut packages: Vec<&str> = missing.map(|tool| tool.package).collect();
    // Debian's python3 needs this package to create environments.
    if output(&mut command("python3", &["-c", "import ensurepip, venv"])).is_err() {
        packages.push("python3-venv");
    }
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Returns the command `apt-get`, run through `sudo` unless the user is root.
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

/// Creates the Python environment, unless it was created from the same requirements.
fn create_python_environment() -> Result<()> {
    let environment = tools::python_environment()?;
    let stamp = environment.join("requirements.txt");
    let requirements = [PYTHON_REQUIREMENTS, DEVELOPER_TOOLS].concat();
    if fs::read_to_string(&stamp).is_ok_and(|created_from| created_from == requirements) {
        return Ok(());
    }
    eprintln!("creating a Python environment in {}", environment.display());
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

/// Installs the developer tools from PyPI, unless they are installed, and returns the path of one of them. Their
/// directory is not on the `PATH`, since it contains another `python3`.
pub(crate) fn tool(name: &str) -> Result<PathBuf> {
    create_python_environment()?;
    Ok(tools::python_environment()?.join("bin").join(name))
}

/// Installs the npm packages, unless they were installed from the same requirements.
fn create_node_environment() -> Result<()> {
    let environment = tools::node_environment()?;
    // npm writes this file last, so it exists only in a complete environment.
    let stamp = environment.join("node_modules/.package-lock.json");
    let is_current = |(name, text): &(&str, &str)| {
        fs::read_to_string(environment.join(name)).is_ok_and(|created_from| created_from == *text)
    };
    if stamp.is_file() && NODE_REQUIREMENTS.iter().all(is_current) {
        return Ok(());
    }
    eprintln!("installing npm packages in {}", environment.display());
    fs::create_dir_all(&environment).with_context(|| format!("cannot create {}", environment.display()))?;
    for (name, text) in NODE_REQUIREMENTS {
        let file = environment.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    // No package may run scripts here, or fetch files that no checksum of the lock file covers.
    let mut npm = command("npm", &["ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"]);
    shell::run(npm.args(["--loglevel", "error"]).current_dir(&environment))
}

/// Builds the certificate authority of the tests, in some 15 seconds, unless it was built. Debian's Go is too old for it, so
/// where there is no newer one, PyPI has one.
fn build_pebble() -> Result<()> {
    let directory = tools::pebble_directory()?;
    let (module, version, programs) = PEBBLE;
    let stamp = directory.join(version);
    if stamp.is_file() {
        return Ok(());
    }
    eprintln!("building Pebble {version} in {}", directory.display());
    let packages = programs.map(|program| format!("{module}/{program}@{version}"));
    let install = |go: &Path| {
        let mut install = Command::new(go);
        install
            .arg("install")
            .args(&packages)
            .env("GOBIN", &directory)
            .env("GOFLAGS", "-mod=mod -modcacherw");
        shell::run(install.env("GOPATH", directory.join("modules")))
    };
    let is_built = tools::find("go").is_some_and(|go| install(&go).is_ok());
    if !is_built {
        shell::run(Command::new(tools::python()?).args(["-m", "pip", "install", "--quiet", GO_REQUIREMENT]))?;
        let script = "import go, pathlib; print(pathlib.Path(go.__file__).parent / 'bin' / 'go')";
        let go = output(Command::new(tools::python()?).args(["-c", script]))?;
        install(Path::new(go.trim()))?;
    }
    // Only the programs are of use from now on.
    fs::remove_dir_all(directory.join("modules")).context("cannot remove the modules of Pebble")?;
    fs::write(&stamp, "").with_context(|| format!("cannot write {}", stamp.display()))
}
