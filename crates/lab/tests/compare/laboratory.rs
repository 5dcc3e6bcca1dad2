//! Runs the program under test in its own folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_shoal-lab");

/// Few peers, one round, short loops, on any processors.
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

/// A folder in which `shoal-lab` runs.
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

    /// Returns a `shoal-lab compare` command without the tools of the user.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.path()).arg("compare").args(["--tools", "tools"]);
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a tiny comparison. Returns its output, its folder and its result.
    pub(crate) fn compare(&self, arguments: &str) -> (Output, PathBuf, Value) {
        let output = self.tiny(arguments).output().unwrap();
        let folder = self.only_result(&output);
        let result = read(&folder);
        (output, folder, result)
    }

    /// Returns the command of a tiny comparison. `arguments` override its options.
    pub(crate) fn tiny(&self, arguments: &str) -> Command {
        let is_given = |setting: &&str| arguments.contains(setting.split(' ').next().unwrap_or_default());
        let settings: Vec<&str> = TINY.into_iter().filter(|setting| !is_given(setting)).collect();
        self.command(&format!("{} {arguments}", settings.join(" ")))
    }

    pub(crate) fn only_result(&self, output: &Output) -> PathBuf {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let runs =
            fs::read_dir(self.path().join("bench-runs")).unwrap_or_else(|_| panic!("no result; {stderr}"));
        let folders: Vec<PathBuf> = runs.map(|run| run.unwrap().path()).collect();
        let [folder] = &folders[..] else { panic!("{} results; {stderr}", folders.len()) };
        folder.clone()
    }

    /// Writes a description whose program is a shell script. `LAB` in the script stands for `shoal-lab`.
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

/// Returns whether any process has `text` in its command line.
pub(crate) fn is_running(text: &str) -> bool {
    fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit())
            && String::from_utf8_lossy(&command).contains(text)
    })
}
