//! The image of a container: built by `buildah` from the Dockerfile that the project ships, and unpacked for `runc`.
//!
//! The release and the tests build the image by the same code. Only the program differs: that of a test needs its
//! libraries beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::tools::{self, BUILDAH};

/// The file from which the image is built, below the root of the repository.
pub const DOCKERFILE: &str = "packaging/container/Dockerfile";

/// The certificate authorities that a tracker trusts, on Debian and in the image.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Builds the image of this program. All its files have the same time, in seconds since 1970, so that the same program
/// makes the same image. Each target is a destination of `buildah push`, such as `oci-archive:FILE:NAME`.
///
/// # Errors
/// Returns an error if a tool is missing or fails.
pub fn build(program: &Path, unix_s: u64, targets: &[&str]) -> Result<()> {
    let work = tempfile::tempdir().context("cannot create a directory for the image")?;
    let stage = stage(program, &work)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = buildah(&work)?;
    build.args(["bud", "--isolation", "chroot", "--format", "docker", "--quiet", "--tag", "shoal"]);
    build.args(["--timestamp", &unix_s.to_string(), "--build-context"]);
    // It takes the place of the stage that compiles.
    build.arg(format!("program={}", stage.display()));
    run(build.arg("--file").arg(root.join(DOCKERFILE)).arg(&stage))?;
    for target in targets {
        run(buildah(&work)?.args(["push", "--quiet", "shoal", target]))?;
    }
    Ok(())
}

/// Unpacks the image of an archive in the OCI format into `root`, and returns its configuration: user, environment and
/// entry point.
///
/// # Errors
/// Returns an error if the archive is incomplete.
pub fn unpack(archive: &Path, root: &Path) -> Result<Value> {
    let work = tempfile::tempdir().context("cannot create a directory for the archive")?;
    run(Command::new("tar").arg("--directory").arg(work.path()).arg("--extract").arg("--file").arg(archive))?;
    let blob = |descriptor: &Value| -> Result<PathBuf> {
        let digest = descriptor["digest"].as_str().context("a digest is missing")?;
        Ok(work.path().join("blobs").join(digest.replace(':', "/")))
    };
    let manifest = read(&blob(&read(&work.path().join("index.json"))?["manifests"][0])?)?;
    fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    for layer in manifest["layers"].as_array().context("the image has no layers")? {
        let mut tar = Command::new("tar");
        tar.arg("--directory").arg(root).args([
            "--extract",
            "--gzip",
            "--same-owner",
            "--preserve-permissions",
        ]);
        run(tar.arg("--file").arg(blob(layer)?))?;
    }
    let mut config = read(&blob(&manifest["config"])?)?;
    Ok(config["config"].take())
}

/// Makes what the first stage of the Dockerfile makes, from a program that exists.
fn stage(program: &Path, work: &TempDir) -> Result<PathBuf> {
    let stage = work.path().join("stage");
    let files = stage.join("files");
    fs::create_dir_all(stage.join("state"))?;
    let mut copied = vec![(program.to_owned(), files.join("usr/local/bin/shoal"), 0o755)];
    copied.push((AUTHORITIES.into(), below(&files, Path::new(AUTHORITIES)), 0o644));
    for library in libraries(program)? {
        copied.push((library.clone(), below(&files, &library), 0o755));
    }
    for (from, to, mode) in copied {
        fs::create_dir_all(to.parent().unwrap_or(&files))?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
    }
    Ok(stage)
}

/// Returns the shared libraries of a program, and the program that loads them. A static program has none.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_ascii_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns a command of buildah, whose images are in this directory and disappear with it.
fn buildah(work: &TempDir) -> Result<Command> {
    let mut buildah = Command::new(tools::program(BUILDAH.program)?);
    buildah.args(["--storage-driver", "vfs", "--root"]).arg(work.path().join("images"));
    buildah.arg("--runroot").arg(work.path().join("run"));
    Ok(buildah)
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

fn read(file: &Path) -> Result<Value> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))
}
