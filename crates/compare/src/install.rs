//! Brings the rivals that package registries have into a folder of the laboratory's own.
//!
//! Nothing is installed into the system and no service is started: crates are built below the folder, Debian packages
//! unpacked there. A failure ends one tool, not the others.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::find::on_path;

/// The release of aquatic that the descriptions were written for.
const AQUATIC: &str = "0.9.0";

/// The last series whose server runs without a native WebRTC library, which npm would fetch from elsewhere or build.
const BITTORRENT_TRACKER: &str = "bittorrent-tracker@10";

/// Something to install.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// What `--only` calls it.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
}

/// Where a tool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A crate that is built below a folder, with features.
    Crate {
        /// Its name on crates.io.
        package: &'static str,
        /// Features besides the default ones.
        features: &'static str,
        /// The folder below the tools.
        root: &'static str,
    },
    /// A Debian package that is unpacked.
    Debian {
        /// Its name.
        package: &'static str,
        /// Its program, below the root of the package.
        program: &'static str,
    },
    /// An npm package.
    Npm {
        /// Its name, which its program has too.
        package: &'static str,
        /// The same with the wanted version.
        release: &'static str,
    },
}

/// Everything that registries have.
pub const TOOLS: [Tool; 10] = [
    Tool {
        name: "opentracker",
        source: Source::Debian { package: "opentracker", program: "usr/bin/opentracker" },
    },
    Tool { name: "hitch", source: Source::Debian { package: "hitch", program: "usr/sbin/hitch" } },
    Tool {
        name: "bittorrent-tracker",
        source: Source::Npm { package: "bittorrent-tracker", release: BITTORRENT_TRACKER },
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
) -> Tool {
    Tool { name, source: Source::Crate { package, features, root } }
}

/// Where tools go by default: the user's folder for what can be had again.
///
/// # Errors
/// Where neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn default_folder() -> Result<PathBuf> {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(of("HOME")?.join(".cache")));
    let cache = cache.context("there is no HOME: say by --tools where tools go")?;
    Ok(cache.join("shoal-lab/tools"))
}

impl Tool {
    /// What will be done, for people.
    #[must_use]
    pub fn plan(&self) -> String {
        match self.source {
            Source::Crate { package, features: "", .. } => {
                format!("build {package} {AQUATIC} from crates.io")
            }
            Source::Crate { package, features, .. } => {
                format!("build {package} {AQUATIC} from crates.io, with {features}")
            }
            Source::Debian { package, .. } => format!("unpack the Debian package {package}"),
            Source::Npm { release, .. } => format!("install {release} from npm"),
        }
    }

    /// Brings it below `tools`.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn install(&self, tools: &Path) -> Result<()> {
        fs::create_dir_all(tools).with_context(|| format!("cannot create {}", tools.display()))?;
        match self.source {
            Source::Crate { package, features, root } => build(package, features, root, tools),
            Source::Debian { package, program } => unpack(package, program, tools),
            Source::Npm { package, release } => from_npm(package, release, &tools.join("npm")),
        }
    }
}

/// Without scripts: what they build serves browsers only, and is not needed.
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

/// Without the versions that the crate was released with: with them aquatic 0.9.0 does not compile any more.
fn build(package: &str, features: &str, root: &str, tools: &Path) -> Result<()> {
    let cargo = env::var_os("CARGO").map(PathBuf::from).or_else(|| on_path(OsStr::new("cargo")));
    let mut command = Command::new(cargo.context("there is no cargo: install Rust")?);
    command.args(["install", package, "--version", AQUATIC, "--features", features]);
    command.arg("--root").arg(tools.join(root));
    // One place to build in, so that what crates have in common is built once.
    command.env("CARGO_TARGET_DIR", tools.join("build"));
    finish(&mut command)
}

fn unpack(package: &str, program: &str, tools: &Path) -> Result<()> {
    for needed in ["apt-get", "dpkg-deb"] {
        ensure!(
            on_path(OsStr::new(needed)).is_some(),
            "there is no {needed}: this is for Debian and its kin"
        );
    }
    let folder = tools.join("debian");
    let download = tempfile::Builder::new().prefix("download-").tempdir_in(tools)?;
    // As root it would fetch as another user, who may not write here.
    let sandbox = "APT::Sandbox::User=root";
    let arguments = ["--quiet", "-o", sandbox, "download", package];
    finish(Command::new("apt-get").args(arguments).current_dir(download.path()))?;
    let archive = fs::read_dir(download.path())?.filter_map(Result::ok).map(|entry| entry.path());
    let Some(archive) = archive.into_iter().find(|path| path.extension() == Some(OsStr::new("deb"))) else {
        bail!("apt-get downloaded nothing");
    };
    finish(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&folder))?;
    let program = folder.join(program);
    missing_libraries(&program)?;
    // The name is PACKAGE_VERSION_ARCHITECTURE.deb; the unpacked program may not tell its version itself.
    let name = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let version = name.split('_').nth(1).unwrap_or("unknown").replace("%3a", ":");
    note_version(&program, &version)
}

/// Leaves the version where [`crate::find`] looks for it.
fn note_version(program: &Path, version: &str) -> Result<()> {
    let mut beside = program.as_os_str().to_owned();
    beside.push(".version");
    Ok(fs::write(beside, format!("{version}\n"))?)
}

/// An unpacked program has no package manager that sees to its libraries.
fn missing_libraries(program: &Path) -> Result<()> {
    ensure!(program.is_file(), "the package has no {}", program.display());
    let Ok(output) = Command::new("ldd").arg(program).output() else { return Ok(()) };
    let text = String::from_utf8_lossy(&output.stdout);
    let missing = text.lines().filter(|line| line.contains("not found"));
    let missing: Vec<&str> = missing.filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(
        missing.is_empty(),
        "its libraries {} are missing: apt-get install the package",
        missing.join(", ")
    );
    Ok(())
}

/// Runs a command whose output goes where ours goes, but to standard error, since ours may be JSON.
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

    /// Whatever is installed is found by a description, and the other way round.
    #[test]
    fn descriptions_look_where_tools_are_put() {
        let looked_for: Vec<String> = Description::shipped()
            .unwrap()
            .into_iter()
            .flat_map(|description| {
                let front = |protocol| description.clone().over(protocol).front;
                let fronts = [Protocol::Https, Protocol::Wss].into_iter().filter_map(front);
                let of_fronts: Vec<_> = fronts.flat_map(|front| front.find.tools).collect();
                description.find.tools.into_iter().chain(of_fronts)
            })
            .collect();
        for tool in TOOLS {
            let put = match tool.source {
                Source::Crate { package, root: "", .. } => format!("bin/{package}"),
                Source::Crate { package, root, .. } => format!("{root}/bin/{package}"),
                Source::Debian { program, .. } => format!("debian/{program}"),
                Source::Npm { .. } => format!("npm/node_modules/.bin/{}", tool.name),
            };
            let expected = !tool.name.ends_with("load_test");
            assert_eq!(looked_for.contains(&put), expected, "{put}");
        }
    }
}
