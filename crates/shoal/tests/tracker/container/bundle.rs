//! A container as runc starts it, with the restrictions of Docker or podman.

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use shoal_testkit::container;
use shoal_testkit::tools::{self, RUNC};
use tempfile::TempDir;

use crate::kit::harness::Tracker;

/// The system calls that the default profile of Docker permits a container without capabilities
/// (https://docs.docker.com/engine/security/seccomp/).
const DOCKER: &str = include_str!("seccomp.json");

/// The profile of podman, which comes with `buildah`.
const PODMAN: &str = "/usr/share/containers/seccomp.json";

/// Where the state is in the container, and its user.
const VOLUME: &str = "/var/lib/shoal";
const USER: u32 = 65_532;

/// The settings of every container. It shares the network of the test.
const SETTINGS: [(&str, &str); 4] = [
    ("SHOAL_UDP_LISTEN", "127.0.0.1:0"),
    ("SHOAL_HTTP_LISTEN", "127.0.0.1:0"),
    ("SHOAL_STORE_MEMORY_MAX", "64MiB"),
    ("SHOAL_LOG_FORMAT", "json"),
];

/// An unpacked image.
pub(super) struct Image {
    directory: TempDir,
    config: Value,
}

impl Image {
    pub(super) fn build() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let archive = env::var_os("TEST_SHOAL_IMAGE").map_or_else(
            || {
                let archive = directory.path().join("image");
                let program = Path::new(env!("CARGO_BIN_EXE_shoal"));
                container::build(program, 0, "shoal:test", &archive).unwrap();
                archive
            },
            PathBuf::from,
        );
        let config = container::unpack(&archive, &directory.path().join("root")).unwrap();
        Self { directory, config }
    }
}

/// The system calls that a container may make.
#[derive(Clone, Copy)]
pub(super) enum Profile {
    Docker,
    Podman,
}

impl Profile {
    fn seccomp(self) -> Value {
        match self {
            Self::Docker => serde_json::from_str(DOCKER).unwrap(),
            Self::Podman => {
                without_capabilities(&serde_json::from_slice(&fs::read(PODMAN).unwrap()).unwrap())
            }
        }
    }
}

/// Returns what a profile permits on this machine without capabilities: rules that need one are left out.
fn without_capabilities(profile: &Value) -> Value {
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let applies = |rule: &&Value| {
        let architectures = rule["includes"]["arches"].as_array();
        rule["includes"]["caps"].as_array().is_none_or(Vec::is_empty)
            && architectures.is_none_or(|all| all.is_empty() || all.contains(&architecture.into()))
    };
    let rule = |rule: &Value| {
        let mut rule = rule.clone();
        rule.as_object_mut().unwrap().retain(|key, value| {
            ["names", "action", "args", "errnoRet"].contains(&key.as_str()) && !value.is_null()
        });
        rule
    };
    let rules: Vec<Value> =
        profile["syscalls"].as_array().unwrap().iter().filter(applies).map(rule).collect();
    json!({
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "syscalls": rules,
    })
}

/// A container that can be started. Ends with it.
pub(super) struct Bundle {
    directory: TempDir,
    config: Value,
}

impl Bundle {
    pub(super) fn new(image: &Image, profile: Profile) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        chown(&state, Some(USER), Some(USER)).unwrap();
        let root = image.directory.path().join("root");
        let config = config(&image.config, &root, profile);
        let bundle = Self { directory, config };
        let bundle = bundle.mount(VOLUME, &state, "rw");
        SETTINGS.into_iter().fold(bundle, |bundle, (name, value)| bundle.set(name, value))
    }

    /// Sets a variable of the environment.
    pub(super) fn set(mut self, name: &str, value: &str) -> Self {
        self.config["process"]["env"].as_array_mut().unwrap().push(format!("{name}={value}").into());
        self
    }

    /// Mounts a file with this text, read-only. The image need not have it.
    pub(super) fn file(self, path: &str, text: &str) -> Self {
        let file = self.directory.path().join(path.replace('/', "-"));
        fs::write(&file, text).unwrap();
        self.mount(path, &file, "ro")
    }

    fn mount(mut self, path: &str, source: &Path, mode: &str) -> Self {
        let mount = json!({"destination": path, "type": "bind", "source": source, "options": ["bind", mode]});
        self.config["mounts"].as_array_mut().unwrap().push(mount);
        self
    }

    /// Leaves out the volume.
    pub(super) fn without_volume(mut self) -> Self {
        self.config["mounts"].as_array_mut().unwrap().retain(|mount| mount["destination"] != VOLUME);
        self
    }

    /// Starts the container, and waits until its tracker is ready.
    pub(super) fn start(&self) -> Tracker {
        Tracker::start_in_container(&mut self.command())
    }

    /// Runs the container to its end, and returns its exit code and its output.
    pub(super) fn fail(&self) -> (Option<i32>, String) {
        let output = self.command().output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// Runs a command in the container, which must succeed.
    pub(super) fn run(&self, command: &[&str]) {
        let output = self.runc(&["exec", self.name()]).args(command).output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    }

    /// Returns its process 1, as this host numbers it.
    pub(super) fn pid(&self) -> u64 {
        let output = self.runc(&["state", self.name()]).output().unwrap();
        let state: Value = serde_json::from_slice(&output.stdout).unwrap();
        state["pid"].as_u64().unwrap()
    }

    /// Returns a command that runs the container. It ends with the container, and passes signals on to process 1.
    fn command(&self) -> Command {
        self.delete();
        fs::write(self.directory.path().join("config.json"), self.config.to_string()).unwrap();
        let mut command = self.runc(&["run", "--bundle"]);
        command.arg(self.directory.path()).arg(self.name());
        command
    }

    fn runc(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(tools::program(RUNC.program).unwrap());
        command.arg("--root").arg(self.directory.path().join("runc")).args(arguments);
        command
    }

    fn name(&self) -> &str {
        self.directory.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.')
    }

    /// Deletes the container of an earlier run, if there is one.
    fn delete(&self) {
        let _ = self.runc(&["delete", "--force", self.name()]).output();
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Returns the configuration of a container (https://github.com/opencontainers/runtime-spec/blob/main/config.md).
fn config(image: &Value, root: &Path, profile: Profile) -> Value {
    let namespaces: Vec<Value> =
        ["pid", "ipc", "uts", "mount"].iter().map(|kind| json!({"type": kind})).collect();
    let ids: Vec<u32> = image["User"].as_str().unwrap().split(':').map(|id| id.parse().unwrap()).collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": ids[0], "gid": ids[1]},
            "args": image["Entrypoint"],
            "env": image["Env"],
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": {"bounding": [], "effective": [], "permitted": [], "inheritable": []},
        },
        "root": {"path": root, "readonly": true},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "noexec", "nodev"]},
        ],
        "linux": {
            "namespaces": namespaces,
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            "seccomp": profile.seccomp(),
        },
    })
}
