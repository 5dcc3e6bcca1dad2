//! The Debian package of the tracker: gathers its files in a folder, and lets cargo-deb make the package from `packaging/debian`.
//!
//! The release and the tests make it by the same code. The manual pages and the completions come from the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tools;

/// The folder with the packaging of all systems.
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

/// The configuration that `shoal config --for public` prints.
const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/src/uses/public.toml");

/// The files for Prometheus and Grafana.
const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../monitoring");

/// Those that are installed, in `/usr/share/shoal`.
const MONITORING_FILES: [&str; 3] = ["alerts.yml", "grafana-dashboard.json", "prometheus.yml"];

/// A package to make.
#[derive(Clone, Copy, Debug)]
pub struct Package<'a> {
    /// The program `shoal`, as it is installed.
    pub program: &'a Path,
    /// The example `manual` of the crate of the program.
    pub manual: &'a Path,
    /// The licences of the libraries in the program.
    pub licences: &'a str,
    /// The version of the program.
    pub version: &'a str,
    /// The time of all files, in seconds since 1970.
    pub time_s: u64,
    /// Whether it is for people: compressed well, which takes long. Otherwise the program also loses its symbols, because a test has
    /// that of a debug build.
    pub for_release: bool,
}

impl Package<'_> {
    /// Makes the package in a directory. Returns its path.
    ///
    /// # Errors
    /// Returns an error if a program fails or a file cannot be written.
    pub fn make(&self, directory: &Path) -> Result<PathBuf> {
        let folder = tempfile::tempdir().context("cannot create a folder")?;
        self.gather(folder.path())?;
        let version = self.debian_version();
        let package = directory.join(format!("shoal_{version}_{}.deb", architecture()?));
        let mut cargo_deb = Command::new(tools::cargo_deb()?);
        cargo_deb.args(["--no-build", "--no-strip", "--deb-version", &version, "--output"]).arg(&package);
        if !self.for_release {
            run(Command::new("strip").arg(folder.path().join("shoal")))?;
            cargo_deb.args(["--fast", "--compress-type", "gz"]);
        }
        run(cargo_deb.current_dir(folder.path()).env("SOURCE_DATE_EPOCH", self.time_s.to_string()))?;
        ensure!(package.is_file(), "cargo-deb did not make {}", package.display());
        Ok(package)
    }

    /// Puts all files of the package into a folder, under the names of `package.toml`.
    fn gather(&self, folder: &Path) -> Result<()> {
        let packaging = Path::new(PACKAGING);
        for entry in fs::read_dir(packaging.join("debian")).context("cannot read packaging/debian")? {
            let entry = entry.context("cannot read packaging/debian")?;
            copy(&entry.path(), &folder.join(entry.file_name()))?;
        }
        let manifest = folder.join("Cargo.toml");
        fs::rename(folder.join("package.toml"), &manifest).context("cannot rename package.toml")?;
        copy(&packaging.join("systemd/shoal.service"), &folder.join("shoal.service"))?;
        copy(Path::new(CONFIGURATION), &folder.join("shoal.toml"))?;
        copy(self.program, &folder.join("shoal"))?;
        fs::create_dir(folder.join("monitoring")).context("cannot create a folder")?;
        for file in MONITORING_FILES {
            copy(&Path::new(MONITORING).join(file), &folder.join("monitoring").join(file))?;
        }
        run(Command::new(self.manual).arg(folder))?;
        write(&folder.join("THIRD-PARTY-LICENCES"), self.licences)?;
        write(&folder.join("changelog"), &self.changelog()?)
    }

    /// Returns the history of the package, as Debian wants it.
    fn changelog(&self) -> Result<String> {
        let mut date = Command::new("date");
        let date = output(date.args(["--utc", "--rfc-email", "--date", &format!("@{}", self.time_s)]))?;
        Ok(format!(
            "shoal ({}) stable; urgency=medium\n\n  * Version {} of Shoal, whose changes are in its CHANGELOG.md.\n\n \
             -- The Shoal authors <maintainers@shoal.invalid>  {}\n",
            self.debian_version(),
            self.version,
            date.trim()
        ))
    }

    /// Returns the version of the package. Debian sorts `0.2.0~rc.1-1` before `0.2.0-1`, and `0.2.0-rc.1-1` after it.
    fn debian_version(&self) -> String {
        format!("{}-1", self.version.replacen('-', "~", 1))
    }
}

/// Checks a package by the rules of Debian. `packaging/debian/lintian-overrides` has the exceptions.
///
/// # Errors
/// Returns an error with what lintian finds, or if it is not installed, since it brings a hundred packages of Perl.
pub fn lint(package: &Path) -> Result<()> {
    let lintian =
        tools::find("lintian").context("lintian is missing; `apt-get install lintian` installs it")?;
    let mut lintian = Command::new(lintian);
    lintian.args(["--allow-root", "--fail-on", "error,warning", "--"]).arg(package);
    let output = lintian.output().context("cannot run lintian")?;
    ensure!(output.status.success(), "lintian finds:\n{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

fn architecture() -> Result<String> {
    let name = output(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(name.trim().to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::copy(from, to);
    copied.map(drop).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed ({}): {error}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_before_a_release_is_older_than_the_release() {
        let version = |version| {
            let none = Path::new("");
            let package =
                Package { program: none, manual: none, licences: "", version, time_s: 0, for_release: false };
            package.debian_version()
        };
        assert_eq!([version("0.2.0"), version("0.2.0-rc.1")], ["0.2.0-1", "0.2.0~rc.1-1"]);
    }
}
