//! Where the program of a description is on this machine, and which version it has.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::clock;
use crate::description::{Description, Find, Protocol, Version};

/// How long a program may take to tell its version.
const VERSION_PATIENCE: Duration = Duration::from_secs(10);
const VERSION_POLL: Duration = Duration::from_millis(10);

/// Digits of a hash that are shown.
const HASH_DIGITS: usize = 12;

/// Most of what a program may print of its version.
const VERSION_BYTES_MAX: u64 = 4096;

/// A program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub program: PathBuf,
    /// What it says of its version, the first line.
    pub version: Option<String>,
    /// What there is to say against this version.
    pub doubts: Vec<String>,
    /// The program of what stands before it, where there is something.
    pub front: Option<PathBuf>,
}

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// Where `--install` puts tools.
    pub tools: PathBuf,
    /// The program of the laboratory itself.
    pub this_program: PathBuf,
    /// Programs that the user named, by the name of the description.
    pub chosen: Vec<(String, PathBuf)>,
}

impl Places {
    /// Finds the programs of `description`, as it is over `protocol`, and asks their versions.
    ///
    /// # Errors
    /// Why it cannot take part, as a sentence.
    pub fn find(&self, description: &Description, protocol: Protocol) -> Result<Found, String> {
        if !description.protocols.contains(&protocol) {
            let names: Vec<&str> = description.protocols.iter().map(|protocol| protocol.name()).collect();
            let names = names.join(" and ");
            return Err(format!("it is described for {names}, and this load is {}", protocol.name()));
        }
        let mut found = self.one(&description.find, &description.version, Some(&description.name))?;
        if let Some(front) = &description.front {
            let of_front = self.one(&front.find, &front.version, None);
            let of_front = of_front.map_err(|reason| format!("what stands before it: {reason}"))?;
            let versions = [found.version, of_front.version];
            let versions: Vec<String> = versions.into_iter().flatten().collect();
            found.version = (!versions.is_empty()).then(|| versions.join(", "));
            found.doubts.extend(of_front.doubts);
            found.front = Some(of_front.program);
        }
        Ok(found)
    }

    /// One program. The user may have named it by the name of the description.
    fn one(&self, find: &Find, version: &Version, name: Option<&str>) -> Result<Found, String> {
        let program = self.program(find, name)?;
        let said = self.version(version, &program);
        let doubts = doubts(version, said.as_deref());
        Ok(Found { program, version: said, doubts, front: None })
    }

    fn program(&self, find: &Find, name: Option<&str>) -> Result<PathBuf, String> {
        if let Some((_, program)) = self.chosen.iter().find(|(chosen, _)| Some(chosen.as_str()) == name) {
            let usable = is_program(program).then(|| program.clone());
            return usable.ok_or_else(|| format!("--program: {} is no program", program.display()));
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

    /// Returns what lies beside the program in a file `NAME.version`, where `--install` knew; or what the program prints;
    /// or the version of its Debian package; or, of a program that tells nothing, the beginning of its hash.
    fn version(&self, version: &Version, program: &Path) -> Option<String> {
        let mut beside = program.as_os_str().to_owned();
        beside.push(".version");
        if let Ok(text) = fs::read_to_string(beside) {
            return first_line(&text);
        }
        if !version.arguments.is_empty() {
            return ask(program, &version.arguments);
        }
        let of_package = version.package.as_deref().and_then(|package| version_of_package(package, program));
        of_package.or_else(|| version.package.as_ref().and_then(|_| hash(program)))
    }
}

impl Protocol {
    /// How people call it.
    #[must_use]
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

/// The program of this name on the `PATH`.
#[must_use]
pub fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // On Debian a user's own PATH lacks the directories where daemons live.
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let program = directories.map(|directory: PathBuf| directory.join(name)).find(|file| is_program(file))?;
    // The PATH may hold relative directories, and programs are started from another one.
    std::path::absolute(program).ok()
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// What there is to say against a version.
fn doubts(expected: &Version, version: Option<&str>) -> Vec<String> {
    let mut doubts = Vec::new();
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
                doubts.push(format!("version {version}, but described for {written_for}: {hint}"));
            }
            let doubtful = expected.doubtful.iter().filter(|words| version.contains(words.as_str()));
            doubts.extend(
                doubtful.map(|words| format!("it is a {words}: its figures say little of a release")),
            );
        }
        None if !expected.written_for.is_empty() => {
            doubts.push(format!("it does not tell its version; it is described for {written_for}"));
        }
        None => {}
    }
    doubts
}

/// Returns the version of a Debian package, if `program` is one of its files.
fn version_of_package(package: &str, program: &Path) -> Option<String> {
    let program = fs::canonicalize(program).ok()?;
    let arguments = ["--search".to_owned(), program.to_str()?.to_owned()];
    // "PACKAGE: FILE", or "PACKAGE:ARCHITECTURE: FILE".
    let owner = ask(Path::new("dpkg-query"), &arguments)?;
    let is_owner = owner.split(':').next() == Some(package) && owner.ends_with(&arguments[1]);
    let show = ["--show", "--showformat=${Version}", package].map(str::to_owned);
    if is_owner { ask(Path::new("dpkg-query"), &show) } else { None }
}

/// Returns the beginning of the SHA-256 of a program, which tells two builds apart.
fn hash(program: &Path) -> Option<String> {
    let line = ask(Path::new("sha256sum"), &["--binary".to_owned(), program.to_str()?.to_owned()])?;
    Some(format!("unknown (sha256 {}…)", line.trim_start_matches('\\').get(..HASH_DIGITS)?))
}

/// The first line that `program` prints, if it ends in time. It prints into a file, since a pipe would stay open for as
/// long as anybody lives whom it has started.
fn ask(program: &Path, arguments: &[String]) -> Option<String> {
    let mut output = tempfile::tempfile().ok()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone().ok()?).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let deadline = clock::now() + VERSION_PATIENCE;
    let in_time = loop {
        match child.try_wait() {
            Ok(Some(_)) => break true,
            Ok(None) if clock::now() < deadline => thread::sleep(VERSION_POLL),
            _ => break false,
        }
    };
    if !in_time {
        // It may have ended just now, and then there is nobody to kill.
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

    fn places(directory: &Path) -> Places {
        let this_program = directory.join("here/shoal-lab");
        Places { tools: directory.join("tools"), this_program, chosen: Vec::new() }
    }

    #[test]
    fn it_is_found_beside_or_among_the_tools() {
        let directory = tempfile::tempdir().unwrap();
        let tool = script(directory.path(), "tools/bin/mine", "echo mine 1.2.3");
        let find = "beside = [\"mine\"]\ntools = [\"bin/mine\"]";
        let found = places(directory.path()).find(&description(find), Protocol::Udp).unwrap();
        assert_eq!(
            found,
            Found { program: tool, version: Some("mine 1.2.3".into()), doubts: vec![], front: None }
        );
        let near = script(directory.path(), "here/mine", "echo");
        assert_eq!(places(directory.path()).find(&description(find), Protocol::Udp).unwrap().program, near);
    }

    #[test]
    fn another_version_is_told() {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), "tools/mine", "echo; echo v1.20.0");
        let found = places(directory.path()).find(&description("tools = [\"mine\"]"), Protocol::Udp).unwrap();
        assert!(found.doubts[0].contains("v1.20.0, but described for 1.2."), "{:?}", found.doubts);
        fs::write(directory.path().join("tools/mine.version"), "1.2.9-3\n").unwrap();
        let found = places(directory.path()).find(&description("tools = [\"mine\"]"), Protocol::Udp).unwrap();
        assert_eq!((found.version.as_deref(), found.doubts.len()), (Some("1.2.9-3"), 0));
    }

    /// The `opentracker` on the `PATH` may have been built from source while Debian's package is installed.
    #[test]
    fn a_package_tells_the_version_of_its_own_files_only() {
        let directory = tempfile::tempdir().unwrap();
        let described = |path: &str| {
            let text = format!(
                "name = \"mine\"\ntitle = \"Mine\"\nprotocols = [\"udp\"]\n[version]\npackage = \"dpkg\"\n\
                 written_for = [\"1.\"]\n[find]\npath = [\"{path}\"]\ntools = [\"mine\"]\n"
            );
            places(directory.path()).find(&Description::parse(&text).unwrap(), Protocol::Udp).unwrap()
        };
        // A machine without dpkg knows no packages.
        if on_path(OsStr::new("dpkg-query")).is_some() {
            let of_package = described("dpkg-query");
            assert!(of_package.version.unwrap().starts_with("1."), "{:?}", of_package.program);
            assert_eq!(of_package.doubts, [""; 0]);
        }
        script(directory.path(), "tools/mine", "echo");
        let built = described("dpkg-query");
        let version = built.version.unwrap();
        assert!(version.starts_with("unknown (sha256 "), "{version}");
        assert!(built.doubts[0].contains("but described for 1."), "{:?}", built.doubts);
    }

    #[test]
    fn a_program_that_leaves_somebody_behind_tells_its_version() {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), "tools/mine", "sleep 5 & echo mine 1.2.3");
        let began = clock::now();
        let found = places(directory.path()).find(&description("tools = [\"mine\"]"), Protocol::Udp).unwrap();
        assert_eq!(found.version.as_deref(), Some("mine 1.2.3"));
        assert!(clock::now().duration_since(began) < Duration::from_secs(4));
    }

    #[test]
    fn what_is_not_there_is_told_with_advice() {
        let directory = tempfile::tempdir().unwrap();
        let missing = description("path = [\"no-such-program-anywhere\"]\nadvice = \"Write it.\"");
        let told = places(directory.path()).find(&missing, Protocol::Udp).unwrap_err();
        assert_eq!(told, "not installed. Write it.");
        let mut chosen = places(directory.path());
        chosen.chosen.push(("mine".into(), "/no/such".into()));
        assert!(chosen.find(&missing, Protocol::Udp).unwrap_err().contains("/no/such"));
    }

    #[test]
    fn other_protocols_are_told() {
        let mut other = description("path = [\"sh\"]");
        other.protocols = vec![Protocol::Ws];
        let directory = tempfile::tempdir().unwrap();
        let told = places(directory.path()).find(&other, Protocol::Https).unwrap_err();
        assert_eq!(told, "it is described for WebTorrent (WS), and this load is HTTPS");
    }

    #[test]
    fn what_stands_before_it_must_be_there_too() {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), "tools/mine", "echo mine 1.2.3");
        let front = "tools = [\"mine\"]\n[front]\narguments = []\nversion = { arguments = [\"-V\"] }\n\
                     [front.find]\ntools = [\"wall\"]";
        let told = places(directory.path()).find(&description(front), Protocol::Udp).unwrap_err();
        assert_eq!(told, "what stands before it: not installed");
        let wall = script(directory.path(), "tools/wall", "echo wall 7");
        let found = places(directory.path()).find(&description(front), Protocol::Udp).unwrap();
        assert_eq!(found.front, Some(wall));
        assert_eq!(found.version.as_deref(), Some("mine 1.2.3, wall 7"));
    }
}
