//! The program under test, and what it leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_shoal-lab");

/// Few peers, one round, short loops, and everything on whatever processors there are.
const TINY: [&str; 11] = [
    "--torrents 50",
    "--peers 200",
    "--rounds 1",
    "--duration 300ms",
    "--latency-duration 200ms",
    "--latency-rate 500",
    "--window 8",
    "--sockets 2",
    "--timeout 300ms",
    "--load-cores 1",
    "--allow-overlap",
];

/// A place to run the laboratory in.
pub(crate) struct Laboratory {
    folder: TempDir,
}

impl Laboratory {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `shoal-lab compare`, with no tools of this machine's user.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.path()).arg("compare").args(["--tools", "tools"]);
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A tiny comparison. Its folder and its result.
    pub(crate) fn compare(&self, arguments: &str) -> (Output, PathBuf, Value) {
        let output = self.tiny(arguments).output().unwrap();
        let folder = self.only_result(&output);
        let result = read(&folder);
        (output, folder, result)
    }

    /// A tiny comparison that is yet to be run, except for what `arguments` want otherwise.
    pub(crate) fn tiny(&self, arguments: &str) -> Command {
        let is_said = |setting: &&str| arguments.contains(setting.split(' ').next().unwrap_or_default());
        let settings: Vec<&str> = TINY.into_iter().filter(|setting| !is_said(setting)).collect();
        self.command(&format!("{} {arguments}", settings.join(" ")))
    }

    pub(crate) fn only_result(&self, output: &Output) -> PathBuf {
        let said = String::from_utf8_lossy(&output.stderr);
        let runs =
            fs::read_dir(self.path().join("bench-runs")).unwrap_or_else(|_| panic!("no result; {said}"));
        let folders: Vec<PathBuf> = runs.map(|run| run.unwrap().path()).collect();
        let [folder] = &folders[..] else { panic!("{} results; {said}", folders.len()) };
        folder.clone()
    }

    /// A description in a file: a shell script that is a tracker, or is not. `LAB` in it is the laboratory.
    pub(crate) fn describe(&self, name: &str, script: &str, more: &str) -> String {
        let script = script.replace("LAB", PROGRAM);
        let text = format!(
            "name = \"{name}\"\ntitle = \"The {name}\"\nprotocols = [\"udp\", \"http\", \"https\", \"ws\", \"wss\"]\n[find]\npath = [\"sh\"]\n\
             [start]\narguments = [\"-c\", '''{script}''']\n{more}\n"
        );
        fs::write(self.path().join(format!("{name}.toml")), text).unwrap();
        format!("--tracker-file {name}.toml")
    }
}

pub(crate) fn read(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("results.json")).unwrap()).unwrap()
}

/// The only round of a tracker.
pub(crate) fn round<'v>(result: &'v Value, tracker: &str) -> &'v Value {
    let cells = result["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["tracker"] == tracker);
    let rounds =
        cell.unwrap_or_else(|| panic!("no cell of {tracker} in {result:#}"))["rounds"].as_array().unwrap();
    let [round] = &rounds[..] else { panic!("{} rounds of {tracker}", rounds.len()) };
    round
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether any process has `text` in its command line.
pub(crate) fn is_running(text: &str) -> bool {
    fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit())
            && String::from_utf8_lossy(&command).contains(text)
    })
}
