//! Installs rival trackers from package registries into a folder of `shoal-lab`.
//!
//! Nothing is installed into the system and no service is started: crates are built below the folder, and Debian
//! packages are unpacked there. A failure affects one tool only.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::installation::{missing_libraries, on_path};

/// The release of aquatic for which the descriptions were written.
const AQUATIC: &str = "0.9.0";

/// The last series whose server runs without a native WebRTC library, which npm would download from elsewhere or build.
const BITTORRENT_TRACKER: &str = "bittorrent-tracker@10";

#[derive(Clone, Copy, Debug)]
pub struct InstallableTool {
    pub name: &'static str,
    pub source: ToolSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSource {
    Crate {
        package: &'static str,
        features: &'static str,
        root: &'static str,
    },
    Debian {
        package: &'static str,
        /// Its program, as a path below the root of the package.
        program: &'static str,
    },
    Npm {
        /// Its name, which is also that of its program.
        package: &'static str,
        /// The name with the version.
        release: &'static str,
    },
}

pub const TOOLS: &[InstallableTool] = &[
    InstallableTool {
        name: "opentracker",
        source: ToolSource::Debian { package: "opentracker", program: "usr/bin/opentracker" },
    },
    InstallableTool {
        name: "hitch",
        source: ToolSource::Debian { package: "hitch", program: "usr/sbin/hitch" },
    },
    InstallableTool {
        name: "bittorrent-tracker",
        source: ToolSource::Npm { package: "bittorrent-tracker", release: BITTORRENT_TRACKER },
    },
    aquatic("aquatic_udp", "aquatic_udp", "", ""),
    aquatic("aquatic_udp-io_uring", "aquatic_udp", "io-uring", "uring"),
    aquatic("aquatic_udp_load_test", "aquatic_udp_load_test", "", ""),
    aquatic("aquatic_http", "aquatic_http", "", ""),
    aquatic("aquatic_http_load_test", "aquatic_http_load_test", "", ""),
    aquatic("aquatic_ws", "aquatic_ws", "", ""),
    aquatic("aquatic_ws_load_test", "aquatic_ws_load_test", "", ""),
];

const fn aquatic(
    name: &'static str,
    package: &'static str,
    features: &'static str,
    root: &'static str,
) -> InstallableTool {
    InstallableTool { name, source: ToolSource::Crate { package, features, root } }
}

/// Returns the default folder of the tools, in the user's cache.
pub fn default_folder() -> Result<PathBuf> {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(of("HOME")?.join(".cache")));
    let cache = cache.context("there is no HOME: name the folder with --tools")?;
    Ok(cache.join("shoal-lab/tools"))
}

impl InstallableTool {
    pub fn plan(&self) -> String {
        match self.source {
            ToolSource::Crate { package, features: "", .. } => {
                format!("build {package} {AQUATIC} from crates.io")
            }
            ToolSource::Crate { package, features, .. } => {
                format!("build {package} {AQUATIC} from crates.io, with {features}")
            }
            ToolSource::Debian { package, .. } => format!("unpack the Debian package {package}"),
            ToolSource::Npm { release, .. } => format!("install {release} from npm"),
        }
    }

    pub fn install(&self, tools: &Path) -> Result<()> {
        fs::create_dir_all(tools).with_context(|| format!("cannot create {}", tools.display()))?;
        match self.source {
            ToolSource::Crate { package, features, root } => build(package, features, root, tools),
            ToolSource::Debian { package, program } => unpack(package, program, tools),
            ToolSource::Npm { package, release } => from_npm(package, release, &tools.join("npm")),
        }
    }
}

/// Installs an npm package without its scripts. They only build parts for browsers, which are not needed.
fn from_npm(package: &str, release: &str, folder: &Path) -> Result<()> {
    let npm = on_path(OsStr::new("npm")).context("there is no npm: install Node.js")?;
    let mut command = Command::new(npm);
    command.args(["install", "--no-fund", "--no-audit", "--omit=dev", "--ignore-scripts", "--prefix"]);
    finish(command.arg(folder).arg(release))?;
    let modules = folder.join("node_modules");
    let about = fs::read_to_string(modules.join(package).join("package.json"))?;
    let about: serde_json::Value = serde_json::from_str(&about)?;
    note_version(&modules.join(".bin").join(package), about["version"].as_str().unwrap_or("unknown"))
}

/// Builds a crate without its lock file, because aquatic 0.9.0 no longer compiles with it.
fn build(package: &str, features: &str, root: &str, tools: &Path) -> Result<()> {
    let cargo = env::var_os("CARGO").map(PathBuf::from).or_else(|| on_path(OsStr::new("cargo")));
    let mut command = Command::new(cargo.context("there is no cargo: install Rust")?);
    command.args(["install", package, "--version", AQUATIC, "--features", features]);
    command.arg("--root").arg(tools.join(root));
    // All crates share a build folder, so that common dependencies are built once.
    command.env("CARGO_TARGET_DIR", tools.join("build"));
    finish(&mut command)
}

fn unpack(package: &str, program: &str, tools: &Path) -> Result<()> {
    for needed in ["apt-get", "dpkg-deb"] {
        let is_found = on_path(OsStr::new(needed)).is_some();
        ensure!(is_found, "there is no {needed}: this is for Debian and its derivatives");
    }
    let folder = tools.join("debian");
    let download = tempfile::Builder::new().prefix("download-").tempdir_in(tools)?;
    // As root, apt-get would download as another user, who may not write here.
    let sandbox = "APT::Sandbox::User=root";
    let arguments = ["--quiet", "-o", sandbox, "download", package];
    finish(Command::new("apt-get").args(arguments).current_dir(download.path()))?;
    let archive = fs::read_dir(download.path())?.filter_map(Result::ok).map(|entry| entry.path());
    let Some(archive) = archive.into_iter().find(|path| path.extension() == Some(OsStr::new("deb"))) else {
        bail!("apt-get downloaded nothing");
    };
    finish(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&folder))?;
    let program = folder.join(program);
    ensure!(program.is_file(), "the package has no {}", program.display());
    // No package manager checks that the libraries of an unpacked program are installed.
    let missing = missing_libraries(&program);
    if !missing.is_empty() {
        // It would be found, but cannot start.
        fs::remove_file(&program)?;
        let (missing, packages) = (missing.join(", "), absent_dependencies(&archive)?.join(" "));
        bail!("it cannot start without {missing}: apt-get install {packages}");
    }
    // The name is PACKAGE_VERSION_ARCHITECTURE.deb. The unpacked program may not print its version.
    let name = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let version = name.split('_').nth(1).unwrap_or("unknown").replace("%3a", ":");
    note_version(&program, &version)
}

/// Returns the packages that a Debian package depends on and that are not installed.
fn absent_dependencies(archive: &Path) -> Result<Vec<String>> {
    let output = Command::new("dpkg-deb").arg("--field").arg(archive).arg("Depends").output()?;
    let depends = String::from_utf8_lossy(&output.stdout).into_owned();
    // "libc6 (>= 2.34), libowfat0 (>= 0.30-2~), adduser | useradd". The first alternative is the usual one.
    let names = depends.split(',').filter_map(|depend| depend.split_whitespace().next());
    let is_installed = |name: &str| {
        let status =
            Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", name]).output();
        status.is_ok_and(|output| output.stdout == b"installed")
    };
    Ok(names.filter(|name| !is_installed(name)).map(str::to_owned).collect())
}

/// Writes the version to the file in which [`crate::installation`] looks for it.
fn note_version(program: &Path, version: &str) -> Result<()> {
    let mut beside = program.as_os_str().to_owned();
    beside.push(".version");
    Ok(fs::write(beside, format!("{version}\n"))?)
}

/// Runs a command. Its standard output goes to our standard error, because our standard output may be JSON.
fn finish(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    let line = format!("{name} {}", arguments.join(" "));
    eprintln!("$ {line}");
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    let status = status.with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "failed: {line} ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::{Description, Protocol};

    /// Every installed tool is found by a description, and the other way round.
    #[test]
    fn descriptions_look_where_tools_are_installed() {
        let looked_for: Vec<String> = Description::built_in()
            .unwrap()
            .into_iter()
            .flat_map(|description| {
                let front = |protocol| description.clone().over(protocol).front;
                let fronts = [Protocol::Https, Protocol::Wss].into_iter().filter_map(front);
                let of_proxies: Vec<_> = fronts.flat_map(|front| front.find.tools).collect();
                description.find.tools.into_iter().chain(of_proxies)
            })
            .collect();
        for tool in TOOLS {
            let installed = match tool.source {
                ToolSource::Crate { package, root: "", .. } => format!("bin/{package}"),
                ToolSource::Crate { package, root, .. } => format!("{root}/bin/{package}"),
                ToolSource::Debian { program, .. } => format!("debian/{program}"),
                ToolSource::Npm { .. } => format!("npm/node_modules/.bin/{}", tool.name),
            };
            let expected = !tool.name.ends_with("load_test");
            assert_eq!(looked_for.contains(&installed), expected, "{installed}");
        }
    }
}
