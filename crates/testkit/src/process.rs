//! The launcher: a tracker or another program as a process, whose output is kept and whose end is guaranteed.
//!
//! The program leads a process group, so that a Ctrl-C at the terminal does not reach it, and its child processes end with it. A
//! process that leaves the group, such as a daemon, is found by an environment variable and ends as well. If this process
//! itself is killed (SIGKILL), the kernel kills the programs that were started through [`command`]. The processes that such a
//! program started keep running, because they do not inherit the request.

use std::collections::HashSet;
use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::tools;

const POLL: Duration = Duration::from_millis(20);

/// Most characters of a line of output in a message, and most bytes that are read for its lines.
const TAIL_LINE_CHARS_MAX: usize = 300;
const TAIL_BYTES_MAX: u64 = 16 * 1024;

/// Lines of output in the report on a failure.
const REPORT_LINES: usize = 60;

/// An environment variable with the log of the program, which identifies the processes that it started. Its name
/// does not begin with SHOAL, because Shoal refuses unknown variables with that prefix.
const RUN_VARIABLE: &str = "TRACKER_LAB_RUN";

/// How often processes that left the group are searched for. Each may have started another one in the meantime.
const STRAY_SEARCHES_MAX: usize = 5;

/// A running program, and the programs that were added to its group. They are killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    added: Vec<Child>,
    /// The group that it leads, and those of processes that have left that. None if it is in the group of this process.
    groups: Mutex<HashSet<Pid>>,
    /// The file with the output of all of them.
    log: PathBuf,
}

/// Returns a command of a program that does not outlive this process, and has no setting of Shoal in its environment. Without
/// `setpriv`, it may outlive this process.
#[must_use]
pub fn command(program: &Path) -> Command {
    let mut command = match tools::find("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    remove_settings(&mut command);
    command
}

/// Removes the settings of Shoal from the environment of a command.
pub fn remove_settings(command: &mut Command) -> &mut Command {
    let inherited = env::vars_os().map(|(name, _)| name);
    for name in inherited.filter(|name| name.as_encoded_bytes().starts_with(b"SHOAL_")) {
        command.env_remove(name);
    }
    command
}

impl Process {
    /// Starts a program as the leader of a process group, and sends all its output to a file.
    ///
    /// The kernel kills what was started through [`command`] when the calling thread ends, not when the process does (prctl(2),
    /// `PR_SET_PDEATHSIG`).
    ///
    /// # Errors
    /// Returns an error if the log cannot be created or the program cannot be started.
    pub fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        let child = spawn(&mut command, log, 0)?;
        let groups = Mutex::new(HashSet::from([Pid::from_child(&child)]));
        Ok(Self { child, added: Vec::new(), groups, log: log.to_owned() })
    }

    /// Starts a program in the process group of this process, with which a test that takes too long is killed, and sends only its
    /// errors to a file. Its standard input and output are those of the command.
    ///
    /// # Errors
    /// Returns an error if the log cannot be created or the program cannot be started.
    pub fn start_with_stdio(command: &mut Command, log: &Path) -> io::Result<Self> {
        let child = command.stderr(open(log)?).env(RUN_VARIABLE, log).spawn()?;
        Ok(Self { child, added: Vec::new(), groups: Mutex::default(), log: log.to_owned() })
    }

    /// Kills what is left of the group, and starts a program as the leader of another one.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start_again(&mut self, mut command: Command) -> io::Result<()> {
        self.kill();
        self.child = spawn(&mut command, &self.log, 0)?;
        self.groups = Mutex::new(HashSet::from([self.pid()]));
        self.added.clear();
        Ok(())
    }

    /// Starts another program in its group, with the same output.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn add(&mut self, mut command: Command) -> io::Result<()> {
        let group = i32::try_from(self.group()).map_err(io::Error::other)?;
        self.added.push(spawn(&mut command, &self.log, group)?);
        Ok(())
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns the number of its process group, which is its process id.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.child.id()
    }

    /// Returns the name of the program: that of its log.
    #[must_use]
    pub fn name(&self) -> String {
        self.log.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the running processes of its group, and those that have left it, lowest number first. A process that has handed over
    /// to another one and ended is not among them.
    #[must_use]
    pub fn members(&self) -> Vec<Pid> {
        let variable = self.variable();
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        // A program that leads no group is in the group of this process. A process that has entered a PID namespace may be in a
        // group from outside of it, which has the number 0 here and no other members (pid_namespaces(7)).
        let own_group = running_group(&fs::read_to_string("/proc/self/stat").unwrap_or_default());
        let mut members = processes(|folder| {
            let group = running_group(&fs::read_to_string(folder.join("stat")).unwrap_or_default());
            let Some(group) = group else { return false };
            // A process that is killed loses its environment first, and its sockets later. So its group is kept.
            groups.contains(&group)
                || has_variable(folder, &variable) && Some(group) != own_group && groups.insert(group)
        });
        members.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        members
    }

    /// Returns the exit status of the first program of the group that has ended, if one has.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut all = iter::once(&mut self.child).chain(&mut self.added);
        all.find_map(|child| child.try_wait().transpose()).transpose()
    }

    /// Asks the group to exit by `signal`, and kills it after `patience`, which may become shorter in the meantime.
    /// Returns whether it had to be killed.
    pub fn stop(&mut self, signal: Signal, patience: impl Fn() -> Duration) -> bool {
        self.signal(signal);
        let began = now();
        let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        while iter::once(&mut self.child).chain(&mut self.added).any(runs) {
            if now().duration_since(began) >= patience() {
                self.kill();
                return true;
            }
            thread::sleep(POLL);
        }
        self.kill();
        false
    }

    /// Sends `signal` to the program and waits until it has ended.
    ///
    /// # Errors
    /// Returns an error if it had already ended, or still runs after `limit`.
    pub fn quit(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        let name = self.name();
        if let Some(status) = self.ended()? {
            bail!("{name} should still be running, but ended: {status}");
        }
        kill_process(self.pid(), signal).with_context(|| format!("cannot signal {name}"))?;
        wait_for(&format!("{name} should quit"), limit, || Ok(self.ended()?))
    }

    /// Returns everything that it has put out so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log_from(0)
    }

    /// Returns what it has put out since its output had this many bytes.
    #[must_use]
    pub fn log_from(&self, start: u64) -> String {
        String::from_utf8_lossy(&self.output_from(|_| start, u64::MAX).unwrap_or_default()).into_owned()
    }

    /// Returns the last lines of its output, at most `lines_max`, without empty lines and control characters.
    #[must_use]
    pub fn log_tail(&self, lines_max: usize) -> Vec<String> {
        let end = self.output_from(|length| length.saturating_sub(TAIL_BYTES_MAX), TAIL_BYTES_MAX);
        let bytes = end.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let plain = |line: &str| -> String {
            let plain = line.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c });
            plain.take(TAIL_LINE_CHARS_MAX).collect()
        };
        let lines = text.split(['\n', '\r']).map(plain).filter(|line| !line.is_empty());
        let lines: Vec<String> = lines.collect();
        lines[lines.len().saturating_sub(lines_max)..].to_vec()
    }

    /// Returns the end of its output, with its name as the heading.
    #[must_use]
    pub fn report(&self) -> String {
        format!("--- {}\n{}\n", self.name(), self.log_tail(REPORT_LINES).join("\n"))
    }

    /// Returns at most `bytes_max` of the output from a place on, which `start` chooses by the length.
    fn output_from(&self, start: impl FnOnce(u64) -> u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(start(file.metadata()?.len())))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a signal to its group, if it leads one, and to the groups of processes that have left it.
    pub fn signal(&self, signal: Signal) {
        // Each call fails if the process has ended, or the group is already empty.
        // This finds the other groups.
        let _ = self.members();
        for group in self.groups.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = kill_process_group(*group, signal);
        }
    }

    /// Kills the whole group, and every process that left it.
    fn kill(&mut self) {
        // This does nothing to a program that has been waited for, whose number another process may have.
        let _ = self.child.kill();
        self.signal(Signal::KILL);
        for child in iter::once(&mut self.child).chain(&mut self.added) {
            let _ = child.wait();
        }
        let variable = self.variable();
        for _ in 0..STRAY_SEARCHES_MAX {
            let strays = processes(|folder| has_variable(folder, &variable));
            if strays.is_empty() {
                return;
            }
            // A process may have ended in the meantime.
            strays.into_iter().for_each(|stray| _ = kill_process(stray, Signal::KILL));
            thread::sleep(POLL);
        }
    }

    /// Returns the environment variable of the processes that it started.
    fn variable(&self) -> Vec<u8> {
        [RUN_VARIABLE.as_bytes(), b"=", self.log.as_os_str().as_bytes()].concat()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the resident memory of a process in bytes (proc_pid_status(5), `VmRSS`), or `None` after its end.
#[must_use]
pub fn resident_bytes(pid: Pid) -> Option<u64> {
    memory_bytes(&status(pid)?, "VmRSS:")
}

/// Returns the most that the resident memory of a process has ever been (`VmHWM`), or `None` after its end.
#[must_use]
pub fn resident_peak_bytes(pid: Pid) -> Option<u64> {
    memory_bytes(&status(pid)?, "VmHWM:")
}

/// Returns the processor time so far, in nanoseconds, of all threads of a process that still run (the kernel's documentation
/// "sched-stats", first field).
#[must_use]
pub fn cpu_ns(pid: Pid) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let times = tasks.into_iter().flatten().filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
}

fn status(pid: Pid) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// Parses an amount of memory from the text of `/proc/PID/status`.
fn memory_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns the group of the process with this `stat` of proc_pid_stat(5), unless it has ended.
fn running_group(stat: &str) -> Option<Pid> {
    // The name of the program, in parentheses, may contain anything. Its state, parent and group follow.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<i32>().ok();
    // The first thread of a process is a zombie as soon as it ends, while the others still have the sockets.
    let has_ended =
        matches!(fields.first(), Some(&("Z" | "X"))) && number(17).is_none_or(|threads| threads <= 1);
    // A process that is being removed shows the group -1.
    let group = number(2).filter(|group| *group > 0 && !has_ended)?;
    Pid::from_raw(group)
}

/// Returns the processes for whose folder in `/proc` something is true.
fn processes(mut is_wanted: impl FnMut(&Path) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let wanted = entries.filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        is_wanted(&entry.path()).then_some(pid)
    });
    wanted.collect()
}

/// Returns whether the environment of the process with this folder has a variable.
fn has_variable(folder: &Path, variable: &[u8]) -> bool {
    // The environment of another user's process cannot be read, and that of a zombie is empty.
    let environment = fs::read(folder.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable)
}

/// Starts a program in a process group. Group 0 is a new one.
fn spawn(command: &mut Command, log: &Path, group: i32) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(open(log)?).stderr(open(log)?);
    command.env(RUN_VARIABLE, log).process_group(group).spawn()
}

/// Opens a log. All programs of a group append to it, so that none overwrites the output of another.
fn open(log: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(log)
}

/// Calls `probe` repeatedly until it returns a value.
///
/// # Errors
/// Returns the first error of `probe`, or an error that names `what` if there is no value after `limit`.
pub fn wait_for<T>(what: &str, limit: Duration, probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    wait_for_every(POLL, what, limit, probe)
}

/// Does the same, with a pause of this length between two calls.
///
/// # Errors
/// Returns the same errors.
pub fn wait_for_every<T>(
    pause: Duration,
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = now() + limit;
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        if now() >= deadline {
            bail!("timed out after {} s: {what}", limit.as_secs());
        }
        thread::sleep(pause);
    }
}

#[expect(clippy::disallowed_methods, reason = "the programs run in real time, and so do the timeouts")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = command(Path::new("/bin/sh"));
        command.args(["-c", script]);
        command
    }

    fn shell(folder: &tempfile::TempDir, script: &str) -> Process {
        Process::start(sh(script), &folder.path().join("output.log")).unwrap()
    }

    fn wait(process: &mut Process) -> ExitStatus {
        loop {
            if let Some(status) = process.ended().unwrap() {
                return status;
            }
            thread::sleep(POLL);
        }
    }

    #[test]
    fn resident_memory_is_parsed_in_kib() {
        let status = "VmHWM:\t  9 kB\nVmRSS:\t    5136 kB\n";
        assert_eq!(memory_bytes(status, "VmRSS:"), Some(5136 * 1024));
        assert_eq!(memory_bytes("Name:\tshoal\n", "VmRSS:"), None);
    }

    #[test]
    fn it_is_killed_where_it_does_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
        while process.log_tail(12).is_empty() {
            thread::sleep(POLL);
        }
        assert!(process.stop(Signal::TERM, || Duration::from_millis(200)));
        assert_eq!(wait(&mut process).signal(), Some(9));
    }

    #[test]
    fn child_processes_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "sleep 600 & echo $!; wait");
        while process.log_tail(12).is_empty() {
            thread::sleep(POLL);
        }
        assert!(!process.stop(Signal::TERM, || Duration::from_secs(5)));
        wait_until_gone(&process.log_tail(12)[0]);
    }

    #[test]
    fn an_added_program_joins_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "echo leader; exec sleep 600");
        let group = process.group();
        process.add(sh("cut -d' ' -f5 /proc/$$/stat; sleep 0.2; exit 7")).unwrap();
        assert_eq!(wait(&mut process).code(), Some(7), "any end is the end of the group");
        let mut lines = process.log_tail(12);
        lines.sort();
        assert_eq!(lines, [group.to_string(), "leader".into()]);
        assert!(!process.stop(Signal::TERM, || Duration::from_secs(5)));
    }

    #[test]
    fn a_program_that_is_started_again_survives_the_end_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "exec sleep 600");
        let first = process.members();
        process.start_again(sh("exec sleep 600")).unwrap();
        let second = process.members();
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_ne!(first, second);
    }

    #[test]
    fn members_are_the_processes_of_the_group_that_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "sleep 600 & echo $!; exit 0");
        let leader = Pid::from_child(&process.child);
        wait(&mut process);
        let child: i32 = process.log_tail(12)[0].parse().unwrap();
        assert_ne!(leader.as_raw_nonzero().get(), child);
        assert_eq!(process.members(), [Pid::from_raw(child).unwrap()], "the leader has ended");
        process.signal(Signal::KILL);
        while !process.members().is_empty() {
            thread::sleep(POLL);
        }
        let group = |stat: &str| running_group(stat).map(|group| group.as_raw_nonzero().get());
        assert_eq!((group("7 (a) Z 1 9) S 1 9 9 0"), group("7 (a) Z 1 9 9 0")), (Some(9), None));
        let zombie = |threads: u32| format!("7 (a) Z 1 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5");
        assert_eq!((group(&zombie(2)), group(&zombie(1))), (Some(9), None));
    }

    /// A process that enters a PID namespace keeps its group, which has no number there.
    #[test]
    fn members_are_found_from_a_group_outside_of_the_namespace() {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--pid", "--fork", "--mount-proc"]).arg(env::current_exe().unwrap());
        command.args(["--exact", "process::tests::members_are_the_processes_of_the_group_that_run"]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    }

    #[test]
    fn a_daemon_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "setsid sh -c 'echo $$; exec sleep 600' & exit 0");
        while process.log_tail(12).is_empty() {
            thread::sleep(POLL);
        }
        wait(&mut process);
        let daemon = process.log_tail(12)[0].clone();
        let pid = Pid::from_raw(daemon.parse().unwrap()).unwrap();
        assert_eq!(process.members(), [pid], "it should outlive its parent");
        drop(process);
        wait_until_gone(&daemon);
    }

    fn wait_until_gone(pid: &str) {
        let gone = || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        };
        let deadline = now() + Duration::from_secs(5);
        while !gone() {
            assert!(now() < deadline, "{pid} still runs");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn the_log_tail_is_short_and_printable() {
        let folder = tempfile::tempdir().unwrap();
        let script = "head -c 3000000 /dev/zero | tr '\\0' x; printf '\\n\\033[31mred\\007\\n\\nlast\\n'";
        let mut process = shell(&folder, script);
        wait(&mut process);
        let tail = process.log_tail(12);
        assert_eq!(tail[1..], [" [31mred ", "last"]);
        assert_eq!(tail[0].len(), TAIL_LINE_CHARS_MAX);
    }
}
