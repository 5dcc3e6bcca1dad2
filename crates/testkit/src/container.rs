//! The image of a container: built by `buildah` from the Dockerfile that the project ships, and unpacked for `runc`.
//!
//! The release and the tests build the image by the same code. Only the program differs: that of a test needs its
//! libraries beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tools::{self, BUILDAH};

/// The file from which the image is built, below the root of the repository.
pub const DOCKERFILE: &str = "packaging/container/Dockerfile";

/// The certificate authorities that a tracker trusts, on Debian and in the image.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Builds the image of this program as an archive in the format of OCI. All files have the same time, in seconds since
/// 1970, so that the same program makes the same bytes. The image has this name.
///
/// # Errors
/// Returns an error if a tool is missing or fails.
pub fn build(program: &Path, unix_s: u64, name: &str, archive: &Path) -> Result<()> {
    build_both(program, None, unix_s, name, archive, None)
}

/// Builds the image as [`build`] does, with the licences of the libraries in the program, and also as an archive in the older
/// format of Docker: for `docker load` of any version, and with the health check, which the format of OCI cannot express.
///
/// # Errors
/// Returns an error if a tool is missing or fails.
pub fn build_both(
    program: &Path,
    licences: Option<&str>,
    unix_s: u64,
    name: &str,
    oci: &Path,
    docker: Option<&Path>,
) -> Result<()> {
    let work = tempfile::tempdir().context("cannot create a directory for the image")?;
    let stage = stage(program, licences, &work)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = buildah(&work)?;
    build.args(["bud", "--isolation", "chroot", "--format", "docker", "--quiet", "--tag", "shoal"]);
    build.args(["--timestamp", &unix_s.to_string(), "--build-context"]);
    // It takes the place of the stage that compiles.
    build.arg(format!("program={}", stage.display()));
    run(build.arg("--file").arg(root.join(DOCKERFILE)).arg(&stage))?;
    let layout = work.path().join("oci");
    // The archives of buildah contain the time, and a random name of a host.
    run(buildah(&work)?.args(["push", "--quiet", "shoal", &format!("oci:{}:{name}", layout.display())]))?;
    pack(&layout, oci, unix_s)?;
    let Some(docker) = docker else { return Ok(()) };
    let inspected = run(buildah(&work)?.args(["inspect", "--type", "image", "shoal"]))?;
    let inspected: Value =
        serde_json::from_slice(&inspected.stdout).context("buildah's output is not JSON")?;
    let health = &inspected["Docker"]["config"]["Healthcheck"];
    ensure!(health.is_object(), "the image has no health check: {inspected}");
    let converted = work.path().join("docker");
    convert(&layout, health, name, &converted)?;
    pack(&converted, docker, unix_s)
}

/// Packs all files of a directory. They have this time, in seconds since 1970, and belong to root, so that the same files
/// make the same bytes.
///
/// # Errors
/// Returns an error if `tar` fails.
pub fn pack(directory: &Path, archive: &Path, unix_s: u64) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"]);
    // The modes of the folders are otherwise those of the umask.
    tar.args(["--mode=a+rX,go-w", &format!("--mtime=@{unix_s}")]).arg("--file").arg(archive);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        names.push(entry?.file_name());
    }
    names.sort_unstable();
    run(tar.arg("--directory").arg(directory).args(names)).map(drop)
}

/// Writes an image in the format of OCI to a directory in the older format of Docker, with this health check.
fn convert(layout: &Path, health: &Value, name: &str, directory: &Path) -> Result<()> {
    fs::create_dir(directory)?;
    let (manifest, mut config) = read_image(layout)?;
    config["config"]["Healthcheck"] = health.clone();
    fs::write(directory.join("config.json"), config.to_string())?;
    let mut layers = Vec::new();
    for (number, layer) in
        manifest["layers"].as_array().context("the image has no layers")?.iter().enumerate()
    {
        let file = format!("layer-{number}.tar");
        let unpacked =
            run(Command::new("gzip").args(["--decompress", "--stdout"]).arg(blob(layout, layer)?))?;
        fs::write(directory.join(&file), unpacked.stdout)?;
        layers.push(file);
    }
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": layers}]);
    fs::write(directory.join("manifest.json"), manifest.to_string()).context("cannot write the manifest")
}

/// Reads the manifest and the configuration of an image in the format of OCI.
fn read_image(layout: &Path) -> Result<(Value, Value)> {
    let manifest = read(&blob(layout, &read(&layout.join("index.json"))?["manifests"][0])?)?;
    let config = read(&blob(layout, &manifest["config"])?)?;
    Ok((manifest, config))
}

/// Returns the file that a descriptor of OCI names.
fn blob(layout: &Path, descriptor: &Value) -> Result<PathBuf> {
    let digest = descriptor["digest"].as_str().context("a digest is missing")?;
    Ok(layout.join("blobs").join(digest.replace(':', "/")))
}

/// Unpacks the image of an archive in the OCI format into `root`, and returns its configuration: user, environment and
/// entry point.
///
/// # Errors
/// Returns an error if the archive is incomplete.
pub fn unpack(archive: &Path, root: &Path) -> Result<Value> {
    let work = tempfile::tempdir().context("cannot create a directory for the archive")?;
    run(Command::new("tar").arg("--directory").arg(work.path()).arg("--extract").arg("--file").arg(archive))?;
    let (manifest, mut config) = read_image(work.path())?;
    fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    for layer in manifest["layers"].as_array().context("the image has no layers")? {
        let mut tar = Command::new("tar");
        tar.arg("--directory").arg(root).args(["--extract", "--gzip"]);
        tar.args(["--same-owner", "--preserve-permissions", "--file"]);
        run(tar.arg(blob(work.path(), layer)?))?;
    }
    Ok(config["config"].take())
}

/// Makes the files that the first stage of the Dockerfile makes, from a program that exists.
fn stage(program: &Path, licences: Option<&str>, work: &TempDir) -> Result<PathBuf> {
    let stage = work.path().join("stage");
    let files = stage.join("files");
    fs::create_dir_all(stage.join("state"))?;
    let mut copied = vec![(program.to_owned(), files.join("usr/local/bin/shoal"), 0o755)];
    copied.push((AUTHORITIES.into(), below(&files, Path::new(AUTHORITIES)), 0o644));
    if let Some(licences) = licences {
        let file = work.path().join("licences");
        fs::write(&file, licences).with_context(|| format!("cannot write {}", file.display()))?;
        copied.push((file, files.join("usr/share/doc/shoal/THIRD-PARTY-LICENCES"), 0o644));
    }
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
