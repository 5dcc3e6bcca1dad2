//! Where a tracker's program is on this machine, and which version it has. `install` puts it there.

pub mod install;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::description::{Description, ProgramSearch, Protocol, VersionQuery};
use crate::machine;

const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
const VERSION_POLL: Duration = Duration::from_millis(10);

/// Digits of a hash in a version.
const HASH_DIGITS: usize = 12;

const VERSION_BYTES_MAX: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub program: PathBuf,
    /// The first line of its version output.
    pub version: Option<String>,
    pub warnings: Vec<String>,
    pub front: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct SearchPaths {
    /// The folder of `--install`.
    pub tools: PathBuf,
    pub this_program: PathBuf,
    /// The programs that the user named, by the name of the description.
    pub chosen: Vec<(String, PathBuf)>,
}

impl SearchPaths {
    /// Finds the programs of `description` for `protocol` and their versions, or says why it cannot take part.
    pub fn find(&self, description: &Description, protocol: Protocol) -> Result<Installation, String> {
        if !description.protocols.contains(&protocol) {
            let names: Vec<&str> = description.protocols.iter().map(|protocol| protocol.name()).collect();
            let names = names.join(" and ");
            return Err(format!("it is described for {names}, and this load is {}", protocol.name()));
        }
        let mut found = self.one(&description.find, &description.version, Some(&description.name))?;
        if let Some(front) = &description.front {
            let proxy = self.one(&front.find, &front.version, None);
            let proxy = proxy.map_err(|reason| format!("its front proxy: {reason}"))?;
            let versions = [found.version, proxy.version];
            let versions: Vec<String> = versions.into_iter().flatten().collect();
            found.version = (!versions.is_empty()).then(|| versions.join(", "));
            found.warnings.extend(proxy.warnings);
            found.front = Some(proxy.program);
        }
        Ok(found)
    }

    /// Finds one program. `name` is the name under which the user may have named another path.
    fn one(
        &self,
        find: &ProgramSearch,
        version: &VersionQuery,
        name: Option<&str>,
    ) -> Result<Installation, String> {
        let program = self.program(find, name)?;
        let missing = missing_libraries(&program);
        if !missing.is_empty() {
            return Err(format!("{} cannot start without {}", program.display(), missing.join(", ")));
        }
        let printed = self.version(version, &program);
        let warnings = version_warnings(version, printed.as_deref());
        Ok(Installation { program, version: printed, warnings, front: None })
    }

    fn program(&self, find: &ProgramSearch, name: Option<&str>) -> Result<PathBuf, String> {
        if let Some((_, program)) = self.chosen.iter().find(|(chosen, _)| Some(chosen.as_str()) == name) {
            let usable = is_program(program).then(|| program.clone());
            return usable.ok_or_else(|| format!("--program: {} is not a program", program.display()));
        }
        if find.this_program {
            return Ok(self.this_program.clone());
        }
        let beside = self.this_program.parent().unwrap_or(Path::new("."));
        let beside = find.beside.iter().map(|name| beside.join(name));
        let tools = find.tools.iter().map(|path| self.tools.join(path));
        let mut candidates = beside.chain(tools);
        if let Some(program) = candidates.find(|candidate| is_program(candidate)) {
            return Ok(program);
        }
        if let Some(program) = find.path.iter().find_map(|name| on_path(OsStr::new(name))) {
            return Ok(program);
        }
        let advice = find.advice.as_deref().map(|advice| format!(". {advice}"));
        Err(format!("not installed{}", advice.unwrap_or_default()))
    }

    /// Returns the version that `--install` noted in `NAME.version` beside the program, or that the program prints, or
    /// that of its Debian package, or else the beginning of its SHA-256.
    fn version(&self, version: &VersionQuery, program: &Path) -> Option<String> {
        let mut beside = program.as_os_str().to_owned();
        beside.push(".version");
        if let Ok(text) = fs::read_to_string(beside) {
            return first_line(&text);
        }
        if !version.arguments.is_empty() {
            return ask(program, &version.arguments);
        }
        package_version(version.package.as_deref()?, program).or_else(|| {
            let line = ask(Path::new("sha256sum"), &["--binary".to_owned(), program.to_str()?.to_owned()])?;
            Some(format!("unknown (sha256 {}…)", line.trim_start_matches('\\').get(..HASH_DIGITS)?))
        })
    }
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Ws => "WebTorrent (WS)",
            Self::Wss => "WebTorrent (WSS)",
        }
    }
}

pub fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // On Debian, the PATH of a user lacks the directories of daemons.
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let program = directories.map(|directory: PathBuf| directory.join(name)).find(|file| is_program(file))?;
    // The PATH may contain relative directories, but programs are started from another directory.
    std::path::absolute(program).ok()
}

/// Returns the shared libraries of a program that this machine lacks. A script has none.
pub(crate) fn missing_libraries(program: &Path) -> Vec<String> {
    // Without ldd, a program shows it when it starts.
    let Ok(output) = Command::new("ldd").arg(program).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    let missing = text.lines().filter(|line| line.contains("=> not found"));
    missing.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn version_warnings(expected: &VersionQuery, version: Option<&str>) -> Vec<String> {
    let mut warnings = Vec::new();
    let known = |version: &str| {
        let mut words = version.split(|c: char| c.is_whitespace() || "(),".contains(c));
        words.any(|word| {
            let word = word.trim_start_matches('v');
            expected.written_for.iter().any(|prefix| word.starts_with(prefix.as_str()))
        })
    };
    let written_for = expected.written_for.join(", ");
    match version {
        Some(version) => {
            if !expected.written_for.is_empty() && !known(version) {
                let hint = "settings may mean something else";
                warnings.push(format!("version {version}, but described for {written_for}: {hint}"));
            }
            let doubtful = expected.doubtful.iter().filter(|words| version.contains(words.as_str()));
            warnings.extend(
                doubtful.map(|words| format!("it is a {words}: its figures say little about a release")),
            );
        }
        None if !expected.written_for.is_empty() => {
            warnings.push(format!("it does not print its version; it is described for {written_for}"));
        }
        None => {}
    }
    warnings
}

/// Returns the version of a Debian package, if `program` is one of its files.
fn package_version(package: &str, program: &Path) -> Option<String> {
    let program = fs::canonicalize(program).ok()?;
    let arguments = ["--search".to_owned(), program.to_str()?.to_owned()];
    // "PACKAGE: FILE", or "PACKAGE:ARCHITECTURE: FILE".
    let owner = ask(Path::new("dpkg-query"), &arguments)?;
    let is_owner = owner.split(':').next() == Some(package) && owner.ends_with(&arguments[1]);
    let show = ["--show", "--showformat=${Version}", package].map(str::to_owned);
    if is_owner { ask(Path::new("dpkg-query"), &show) } else { None }
}

/// Returns the first line that `program` prints in time. A pipe would stay open until its children exit, so it is a
/// file.
fn ask(program: &Path, arguments: &[String]) -> Option<String> {
    let mut output = tempfile::tempfile().ok()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone().ok()?).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let deadline = machine::now() + VERSION_TIMEOUT;
    let in_time = loop {
        match child.try_wait() {
            Ok(Some(_)) => break true,
            Ok(None) if machine::now() < deadline => thread::sleep(VERSION_POLL),
            _ => break false,
        }
    };
    if !in_time {
        // Both calls fail if the program has exited in the meantime.
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    let mut text = Vec::new();
    output.rewind().ok()?;
    output.take(VERSION_BYTES_MAX).read_to_end(&mut text).ok()?;
    first_line(&String::from_utf8_lossy(&text))
}

fn first_line(text: &str) -> Option<String> {
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(find: &str) -> Description {
        let head =
            "name = \"mine\"\ntitle = \"Mine\"\nprotocols = [\"udp\"]\n[version]\narguments = [\"-V\"]\n";
        Description::parse(&format!("{head}written_for = [\"1.2.\"]\n[find]\n{find}\n")).unwrap()
    }

    fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
        let file = directory.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        file
    }

    fn search_paths(directory: &Path) -> SearchPaths {
        let this_program = directory.join("here/shoal-lab");
        SearchPaths { tools: directory.join("tools"), this_program, chosen: Vec::new() }
    }

    #[test]
    fn it_is_found_beside_or_among_the_tools() {
        let directory = tempfile::tempdir().unwrap();
        let tool = script(directory.path(), "tools/bin/mine", "echo mine 1.2.3");
        let find = "beside = [\"mine\"]\ntools = [\"bin/mine\"]";
        let found = search_paths(directory.path()).find(&description(find), Protocol::Udp).unwrap();
        assert_eq!(
            found,
            Installation { program: tool, version: Some("mine 1.2.3".into()), warnings: vec![], front: None }
        );
        let near = script(directory.path(), "here/mine", "echo");
        assert_eq!(
            search_paths(directory.path()).find(&description(find), Protocol::Udp).unwrap().program,
            near
        );
    }

    #[test]
    fn another_version_gives_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), "tools/mine", "echo; echo v1.20.0");
        let found =
            search_paths(directory.path()).find(&description("tools = [\"mine\"]"), Protocol::Udp).unwrap();
        assert!(found.warnings[0].contains("v1.20.0, but described for 1.2."), "{:?}", found.warnings);
        fs::write(directory.path().join("tools/mine.version"), "1.2.9-3\n").unwrap();
        let found =
            search_paths(directory.path()).find(&description("tools = [\"mine\"]"), Protocol::Udp).unwrap();
        assert_eq!((found.version.as_deref(), found.warnings.len()), (Some("1.2.9-3"), 0));
    }

    /// The `opentracker` on the `PATH` may have been built from source while Debian's package is installed.
    #[test]
    fn a_package_gives_the_version_of_its_own_files_only() {
        let directory = tempfile::tempdir().unwrap();
        let described = |path: &str| {
            let text = format!(
                "name = \"mine\"\ntitle = \"Mine\"\nprotocols = [\"udp\"]\n[version]\npackage = \"dpkg\"\n\
                 written_for = [\"1.\"]\n[find]\npath = [\"{path}\"]\ntools = [\"mine\"]\n"
            );
            search_paths(directory.path()).find(&Description::parse(&text).unwrap(), Protocol::Udp).unwrap()
        };
        // A machine without dpkg has no packages.
        if on_path(OsStr::new("dpkg-query")).is_some() {
            let of_package = described("dpkg-query");
            assert!(of_package.version.unwrap().starts_with("1."), "{:?}", of_package.program);
            assert_eq!(of_package.warnings, [""; 0]);
        }
        script(directory.path(), "tools/mine", "echo");
        let built = described("dpkg-query");
        let version = built.version.unwrap();
        assert!(version.starts_with("unknown (sha256 "), "{version}");
        assert!(built.warnings[0].contains("but described for 1."), "{:?}", built.warnings);
    }

    #[test]
    fn a_program_that_leaves_a_child_behind_has_a_version() {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), "tools/mine", "sleep 5 & echo mine 1.2.3");
        let began = machine::now();
        let found =
            search_paths(directory.path()).find(&description("tools = [\"mine\"]"), Protocol::Udp).unwrap();
        assert_eq!(found.version.as_deref(), Some("mine 1.2.3"));
        assert!(machine::now().duration_since(began) < Duration::from_secs(4));
    }

    #[test]
    fn a_missing_program_is_reported_with_advice() {
        let directory = tempfile::tempdir().unwrap();
        let missing = description("path = [\"no-such-program-anywhere\"]\nadvice = \"Write it.\"");
        let reason = search_paths(directory.path()).find(&missing, Protocol::Udp).unwrap_err();
        assert_eq!(reason, "not installed. Write it.");
        let mut chosen = search_paths(directory.path());
        chosen.chosen.push(("mine".into(), "/no/such".into()));
        assert!(chosen.find(&missing, Protocol::Udp).unwrap_err().contains("/no/such"));
    }

    /// `--install` unpacks Debian packages without their dependencies.
    #[test]
    fn a_program_without_its_libraries_is_absent() {
        let directory = tempfile::tempdir().unwrap();
        let tool = script(directory.path(), "tools/mine", "");
        let mut program = fs::read(on_path(OsStr::new("true")).unwrap()).unwrap();
        let name = program.windows(9).position(|bytes| bytes == b"libc.so.6").unwrap();
        program[name..name + 9].copy_from_slice(b"lib0.so.6");
        fs::write(tool, program).unwrap();
        let mine = description("tools = [\"mine\"]");
        let reason = search_paths(directory.path()).find(&mine, Protocol::Udp).unwrap_err();
        assert!(reason.ends_with("tools/mine cannot start without lib0.so.6"), "{reason}");
    }

    #[test]
    fn other_protocols_are_refused() {
        let mut other = description("path = [\"sh\"]");
        other.protocols = vec![Protocol::Ws];
        let directory = tempfile::tempdir().unwrap();
        let reason = search_paths(directory.path()).find(&other, Protocol::Https).unwrap_err();
        assert_eq!(reason, "it is described for WebTorrent (WS), and this load is HTTPS");
    }

    #[test]
    fn the_front_proxy_must_be_installed_too() {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), "tools/mine", "echo mine 1.2.3");
        let front = "tools = [\"mine\"]\n[front]\narguments = []\nversion = { arguments = [\"-V\"] }\n\
                     [front.find]\ntools = [\"proxy\"]";
        let reason = search_paths(directory.path()).find(&description(front), Protocol::Udp).unwrap_err();
        assert_eq!(reason, "its front proxy: not installed");
        let proxy = script(directory.path(), "tools/proxy", "echo proxy 7");
        let found = search_paths(directory.path()).find(&description(front), Protocol::Udp).unwrap();
        assert_eq!(found.front, Some(proxy));
        assert_eq!(found.version.as_deref(), Some("mine 1.2.3, proxy 7"));
    }
}
