//! A machine of its own for a test: systemd as process 1 in namespaces, with the unit or the Debian package that the project ships.
//! It sees the programs of this host, has its own network, and ends with the test. Needs the rights of root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::unistd::Uid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::{TempDir, TempPath};

use crate::kit::harness::{LOOK_EVERY, eventually};

/// Moves to a control group of its own in the namespace of mounts, and continues in a namespace that begins there. Arguments: the
/// directory of the machine, the control group, the next script, and the program.
const BEGIN: &str = r#"
set -e
mount --make-rprivate /
mkdir "$1/groups"
mount -t cgroup2 none "$1/groups"
mkdir "$1/groups/$2"
echo $$ > "$1/groups/$2/cgroup.procs"
umount "$1/groups"
exec unshare --cgroup -- sh -c "$3" sh "$1" "$4"
"#;

/// Makes the root of the machine and starts systemd there, with no units but those of the test: those of this host would change it.
/// Arguments: the directory of the machine, which has `etc` and `var`, and the program. Without a program, `etc` and `var` are those
/// of this host as well, so that packages can be installed. Changes of the machine go with it.
const BOOT: &str = r#"
set -e
mkdir "$1/root" "$1/changes"
mount -t tmpfs none "$1/root"
mount -t tmpfs none "$1/changes"
cd "$1/root"
mkdir dev etc old proc root run sys tmp usr var
share() {
    mkdir "$1/changes/$2" "$1/changes/$2.work"
    mount -t overlay -o "lowerdir=/$2,upperdir=$1/changes/$2,workdir=$1/changes/$2.work" none "$2"
}
share "$1" usr
for directory in bin sbin lib lib32 lib64; do
    if [ -h /$directory ]; then cp -P /$directory .
    elif [ -d /$directory ]; then mkdir $directory; mount --rbind /$directory $directory
    fi
done
mount -t tmpfs none lib/systemd/system
mount -t tmpfs none lib/systemd/system-generators
if [ -n "$2" ]; then
    touch usr/bin/shoal
    mount --bind "$2" usr/bin/shoal
    mount --bind "$1/etc" etc
    mount --bind "$1/var" var
else
    share "$1" etc
    share "$1" var
    mount -t tmpfs none etc/systemd/system
    cp -R "$1/etc" .
    # In a container it forbids packages to start services.
    rm -f usr/sbin/policy-rc.d
    # It would index all manual pages of this host for seconds, after each installation.
    ln -sf true usr/bin/mandb
fi
mount -t proc none proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro none sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs none run
mount -t tmpfs none tmp
mount -t tmpfs none dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
touch dev/console
ln -s pts/ptmx dev/ptmx
read -r pid rest < /proc/self/stat
pivot_root . old
cd /
umount -l old
# Thus the credentials of a service, which another process mounts, arrive in its namespace. systemd leaves this to the manager of
# the container.
mount --make-rshared /
echo "$pid"
exec /lib/systemd/systemd --system --unit=machine.target --log-target=null --show-status=no
"#;

/// Removes the control groups of a machine. Arguments: its directory, and the control group.
const END: &str = r#"
mount --make-rprivate /
mount -t cgroup2 none "$1/groups" && find "$1/groups/$2" -depth -type d -exec rmdir {} +
"#;

/// The targets that services depend on, without anything of their own.
const TARGETS: [&str; 7] =
    ["machine", "sysinit", "basic", "sockets", "shutdown", "network-online", "multi-user"];

/// The units of this host for the journal.
const UNITS: [&str; 3] =
    ["systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket"];

/// The additions to the unit: where its log goes, and that it is not started while a test holds it.
const ADDITIONS: &str = "\
[Service]
StandardOutput=append:/var/log/output
StandardError=append:/var/log/output
ExecStartPre=/bin/sh -c 'while [ -e /etc/hold ]; do sleep 0.02; done'
";

/// Where the tracker serves, within the machine.
const CONFIGURATION: &str = r#"
udp.listen = ["127.0.0.1:6969"]
http.listen = ["127.0.0.1:6969", "unix:/run/shoal/http proxy-protocol"]
proxy.trusted = ["unix"]
control.listen = "127.0.0.1:6970"
workers.count = 2
store.memory_max = "64MiB"
state.path = "/var/lib/shoal"
"#;

/// The address of a machine in which packages are installed. Public trackers refuse peers with private addresses.
pub(super) const PUBLIC: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 1);

/// Where the programs of this host are.
const PATH: &str = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A running machine.
pub(super) struct Machine {
    init: Child,
    /// The process id of systemd, on this host.
    pid: u32,
    directory: TempDir,
}

impl Machine {
    /// Boots a machine with the unit and these additions to it. The calling thread is in its network from then on.
    pub(super) fn boot(additions: &str) -> Self {
        let (directory, units) = begin();
        fs::create_dir_all(units.join("shoal.service.d")).unwrap();
        fs::create_dir_all(directory.path().join("etc/shoal")).unwrap();
        fs::create_dir_all(directory.path().join("var/log")).unwrap();
        symlink("../run", directory.path().join("var/run")).unwrap();
        let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/shoal.service");
        fs::copy(unit, units.join("shoal.service")).unwrap();
        fs::write(units.join("shoal.service.d/test.conf"), format!("{ADDITIONS}{additions}")).unwrap();
        for (file, text) in [
            ("machine-id", "0123456789abcdef0123456789abcdef\n"),
            ("passwd", "root:x:0:0:root:/root:/bin/sh\nshoal:x:997:997::/nonexistent:/usr/sbin/nologin\n"),
            ("group", "root:x:0:\nshoal:x:997:\n"),
            ("shoal/shoal.toml", CONFIGURATION),
        ] {
            fs::write(directory.path().join("etc").join(file), text).unwrap();
        }
        // As docs/systemd.md installs it.
        let configuration = directory.path().join("etc/shoal/shoal.toml");
        chown(&configuration, Some(0), Some(997)).unwrap();
        fs::set_permissions(&configuration, fs::Permissions::from_mode(0o640)).unwrap();
        Self::start(directory, env!("CARGO_BIN_EXE_shoal"))
    }

    /// Boots a machine in which packages can be installed, with a journal and a public address. The calling thread is in its network
    /// from then on.
    pub(super) fn boot_without_shoal() -> Self {
        let (directory, units) = begin();
        for unit in UNITS {
            fs::copy(Path::new("/lib/systemd/system").join(unit), units.join(unit)).unwrap();
        }
        let machine = Self::start(directory, "");
        machine.systemctl(&["start", "systemd-journald"]);
        machine.run("ip", &["address", "add", &format!("{PUBLIC}/32"), "dev", "lo"]);
        machine
    }

    fn start(directory: TempDir, program: &str) -> Self {
        let group = group(directory.path());
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--mount", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--"]);
        unshare.args(["sh", "-c", BEGIN, "sh"]).arg(directory.path()).args([&*group, BOOT]);
        unshare.arg(program).env_clear().env("PATH", PATH).env("container", "test");
        let mut init = unshare.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(init.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = line.trim().parse().expect("the machine has a root; above is what failed");
        let machine = Self { init, pid, directory };
        eventually("systemd answers", || {
            let asked = machine.command("systemctl", &["is-active", "machine.target"]).output().unwrap();
            asked.status.success().then_some(())
        });
        let network = fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), Some(LinkNameSpaceType::Network))
            .unwrap();
        machine
    }

    /// A command that runs in the machine, for a bounded time.
    pub(super) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        self.command_within("30", program, arguments)
    }

    /// A command that runs in the machine for this number of seconds at most.
    pub(super) fn command_within(&self, seconds: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.enter();
        command.args(["timeout", seconds, program]).args(arguments).stdin(Stdio::null());
        command
    }

    /// A shell in the machine, in this directory.
    pub(super) fn shell(&self, directory: &str) -> Command {
        let mut command = self.enter();
        command.args(["sh", "-c", "cd \"$0\" && exec bash", directory]);
        command
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.pid.to_string(),
            "--mount",
            "--pid",
            "--net",
            "--ipc",
            "--uts",
            "--cgroup",
        ]);
        command.arg("--").env_clear().env("PATH", PATH);
        command
    }

    /// Runs a command in the machine, which must succeed. Returns its output.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{program} {arguments:?}: {out}{error}");
        out.trim().to_owned()
    }

    pub(super) fn systemctl(&self, arguments: &[&str]) -> String {
        self.run("systemctl", arguments)
    }

    /// Returns a property of the service.
    pub(super) fn show(&self, property: &str) -> String {
        self.systemctl(&["show", "shoal", "--value", "--property", property])
    }

    /// Waits until systemd says this of the service.
    pub(super) fn wait_for(&self, property: &str, value: &str) {
        eventually(&format!("{property} = {value}"), || (self.show(property) == value).then_some(()));
    }

    /// Waits until the log of the service has this text the given number of times.
    pub(super) fn wait_for_log(&self, text: &str, times: usize) {
        eventually(text, || (self.log().matches(text).count() >= times).then_some(()));
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path("/var/log/output")).unwrap_or_else(|_| {
            let journal =
                self.command("journalctl", &["--no-pager", "--output=cat", "--unit=shoal"]).output();
            journal.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
        })
    }

    /// A file of `/etc` in the machine.
    pub(super) fn etc(&self, file: &str) -> PathBuf {
        self.path("/etc").join(file)
    }

    /// A file in the machine, as a path of this host.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{file}", self.pid))
    }

    /// Holds the start of the service, just before a process of the tracker would run, until the file is dropped.
    pub(super) fn hold_starts(&self) -> TempPath {
        let file = self.etc("hold");
        fs::write(&file, "").unwrap();
        TempPath::try_from_path(file).unwrap()
    }

    /// Changes the configuration of the tracker.
    pub(super) fn configure(&self, from: &str, to: &str) {
        let file = self.etc("shoal/shoal.toml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(file, text.replace(from, to)).unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if thread::panicking() {
            let status = self.command("systemctl", &["status", "shoal", "--no-pager", "--lines=0"]).output();
            let status = status.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            eprintln!("{}\nthe log of the service:\n{}", status.unwrap_or_default(), self.log());
        }
        // Without process 1, the kernel ends all others of the machine.
        let _ = self.init.kill();
        let _ = self.init.wait();
        let group = group(self.directory.path());
        let end = || {
            let mut unshare = Command::new("unshare");
            unshare.args(["--mount", "--", "sh", "-c", END, "sh"]).arg(self.directory.path()).arg(&group);
            unshare.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        // The groups are busy until the last process has gone.
        for _ in 0..400 {
            if end() {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Makes the directory of a machine with the targets. Returns it and the directory of the units.
fn begin() -> (TempDir, PathBuf) {
    assert!(Uid::effective().is_root(), "systemd needs the rights of root; run the tests as root");
    let directory = tempfile::tempdir().unwrap();
    let units = directory.path().join("etc/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::create_dir(directory.path().join("var")).unwrap();
    for target in TARGETS {
        let text = format!("[Unit]\nDescription={target}\n");
        fs::write(units.join(format!("{target}.target")), text).unwrap();
    }
    (directory, units)
}

/// Returns the name of the control group of a machine, below that of this process.
fn group(directory: &Path) -> String {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    format!("{own}/shoal-test{name}").trim_start_matches('/').to_owned()
}
