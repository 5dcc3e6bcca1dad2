//! A tracker's process: pinned to its processors, with its output kept and its end guaranteed.
//!
//! It leads a process group, so that a Ctrl-C at the terminal does not reach it, and its child processes end with it. A
//! process that leaves the group, such as a daemon, is found by an environment variable and ends as well. If `shoal-lab`
//! itself is killed (SIGKILL), the kernel kills the tracker: `setpriv` of util-linux requests that. The processes that a
//! tracker started keep running, because they do not inherit the request.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::installation::on_path;
use crate::machine;
use crate::topology::{allowed, keep_on};

const POLL: Duration = Duration::from_millis(20);

/// Most lines of output in an error message, most characters of each, and most bytes that are read for them.
const TAIL_LINES_MAX: usize = 12;
const TAIL_LINE_CHARS_MAX: usize = 300;
const TAIL_BYTES_MAX: u64 = 16 * 1024;

/// An environment variable with the folder of the run, which identifies the processes that a tracker started. Its name
/// does not begin with SHOAL, because Shoal refuses unknown variables with that prefix.
const RUN_VARIABLE: &str = "TRACKER_LAB_RUN";

/// How often processes that left the group are searched for. Each may have started another one in the meantime.
const STRAY_SEARCHES_MAX: usize = 5;

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path.
    pub file: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Environment variables in addition to `PATH` and `HOME`.
    pub environment: Vec<(String, String)>,
    /// Its working directory, which also gets its output.
    pub folder: PathBuf,
    /// The processors that it may use.
    pub processors: Vec<usize>,
}

/// A running program, and the programs that were added to its group. They are killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    added: Vec<Child>,
    output: PathBuf,
    /// The environment entry of all processes that it started.
    run_entry: Vec<u8>,
}

impl Program {
    /// Starts it as the leader of a process group.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start(&self) -> io::Result<Process> {
        let output = self.folder.join("output.log");
        let child = self.spawn(&output, 0)?;
        let run_entry = [RUN_VARIABLE.as_bytes(), b"=", self.folder.as_os_str().as_bytes()].concat();
        Ok(Process { child, added: Vec::new(), output, run_entry })
    }

    /// Starts it in a process group. Group 0 is a new one.
    fn spawn(&self, output: &Path, group: i32) -> io::Result<Child> {
        // All programs of a group append to the same file, so that none overwrites the output of another.
        let file = File::options().append(true).create(true).open(output)?;
        let mut command = self.command();
        command.args(&self.arguments).current_dir(&self.folder).process_group(group);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).env_clear();
        command.envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env(RUN_VARIABLE, &self.folder);
        // A child inherits the processors of the thread that starts it. It has to be this thread: the kernel kills the
        // child when the thread that started it ends, not when the process does (prctl(2), PR_SET_PDEATHSIG).
        let own_processors = allowed()?;
        keep_on(&self.processors)?;
        let child = command.spawn();
        keep_on(&own_processors)?;
        child
    }

    /// Returns the command without arguments. Without `setpriv`, the program may outlive `shoal-lab`.
    fn command(&self) -> Command {
        let Some(setpriv) = on_path(OsStr::new("setpriv")) else { return Command::new(&self.file) };
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.file);
        command
    }
}

impl Process {
    /// Returns the number of its process group, which is its process id.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.child.id()
    }

    /// Kills what is left of the group, and starts the program again, as the leader of another one.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start_again(&mut self, program: &Program) -> io::Result<()> {
        self.kill();
        self.child = program.spawn(&self.output, 0)?;
        self.added.clear();
        Ok(())
    }

    /// Returns the running processes of its group, lowest number first. A process that has handed over to another one and
    /// ended is not among them.
    #[must_use]
    pub fn members(&mut self) -> Vec<Pid> {
        // Children that have ended are zombies until they are waited for. Neither kind counts.
        let _ = self.ended();
        let group = self.group();
        let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let running = processes.filter_map(|process| {
            let pid = Pid::from_raw(process.file_name().to_str()?.parse().ok()?)?;
            is_running_in(&fs::read_to_string(process.path().join("stat")).ok()?, group).then_some(pid)
        });
        let mut members: Vec<Pid> = running.collect();
        members.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        members
    }

    /// Starts another program in its group, with the same output.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn add(&mut self, program: &Program) -> io::Result<()> {
        let group = i32::try_from(self.group()).map_err(io::Error::other)?;
        self.added.push(program.spawn(&self.output, group)?);
        Ok(())
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
        let began = machine::now();
        let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        while iter::once(&mut self.child).chain(&mut self.added).any(runs) {
            if machine::now().duration_since(began) >= patience() {
                self.kill();
                return true;
            }
            thread::sleep(POLL);
        }
        self.kill();
        false
    }

    /// Returns the last lines of its output, without empty lines and control characters.
    #[must_use]
    pub fn log_tail(&self) -> Vec<String> {
        let bytes = self.output_end().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let plain = |line: &str| -> String {
            let plain = line.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c });
            plain.take(TAIL_LINE_CHARS_MAX).collect()
        };
        let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES_MAX)..].to_vec()
    }

    /// Returns the last bytes of the output, which may be large.
    fn output_end(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.output)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a signal to its group.
    pub fn signal(&self, signal: Signal) {
        // The call fails if the group is already empty.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Kills the whole group, and every process that left it.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        for child in iter::once(&mut self.child).chain(&mut self.added) {
            let _ = child.wait();
        }
        for _ in 0..STRAY_SEARCHES_MAX {
            let strays = processes_with(&self.run_entry);
            if strays.is_empty() {
                return;
            }
            // A process may have ended in the meantime.
            strays.into_iter().for_each(|stray| _ = kill_process(stray, Signal::KILL));
            thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns whether the process with this `stat` of proc_pid_stat(5) belongs to a group and has not ended.
fn is_running_in(stat: &str, group: u32) -> bool {
    // The name of the program, in parentheses, may contain anything. Its state, parent and group follow.
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u32>().ok();
    // The first thread of a process is a zombie as soon as it ends, while the others still have the sockets.
    let has_ended =
        matches!(fields.first(), Some(&("Z" | "X"))) && number(17).is_none_or(|threads| threads <= 1);
    !has_ended && number(2) == Some(group)
}

/// Returns the processes whose environment contains `entry`.
fn processes_with(entry: &[u8]) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let found = processes.filter_map(|process| {
        let pid = Pid::from_raw(process.file_name().to_str()?.parse().ok()?)?;
        // The environment of another user's process cannot be read, and that of a zombie is empty.
        let environment = fs::read(process.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|variable| variable == entry).then_some(pid)
    });
    found.collect()
}

/// Describes an exit status.
#[must_use]
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(folder: &tempfile::TempDir, script: &str) -> Process {
        let program = Program {
            file: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("COLOUR".into(), "red".into())],
            folder: folder.path().to_owned(),
            processors: allowed().unwrap()[..1].to_vec(),
        };
        program.start().unwrap()
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
    fn it_runs_pinned_in_a_clean_environment() {
        let folder = tempfile::tempdir().unwrap();
        let script = "env | grep -c -e CARGO; echo $COLOUR; grep Cpus_allowed_list /proc/self/status; exit 3";
        let mut process = shell(&folder, script);
        assert_eq!(describe_exit(wait(&mut process)), "ended with exit code 3");
        let first = allowed().unwrap()[0];
        assert_eq!(process.log_tail(), ["0", "red", &format!("Cpus_allowed_list: {first}")]);
    }

    #[test]
    fn it_is_killed_where_it_does_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
        while process.log_tail().is_empty() {
            thread::sleep(POLL);
        }
        assert!(process.stop(Signal::TERM, || Duration::from_millis(200)));
        assert_eq!(describe_exit(wait(&mut process)), "was killed by signal 9");
    }

    #[test]
    fn child_processes_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "sleep 600 & echo $!; wait");
        while process.log_tail().is_empty() {
            thread::sleep(POLL);
        }
        assert!(!process.stop(Signal::TERM, || Duration::from_secs(5)));
        wait_until_gone(&process.log_tail()[0]);
    }

    #[test]
    fn an_added_program_joins_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "echo leader; exec sleep 600");
        let group = process.group();
        let other = Program {
            file: "/bin/sh".into(),
            arguments: vec!["-c".into(), "cut -d' ' -f5 /proc/$$/stat; sleep 0.2; exit 7".into()],
            environment: vec![],
            folder: folder.path().to_owned(),
            processors: allowed().unwrap()[..1].to_vec(),
        };
        process.add(&other).unwrap();
        assert_eq!(
            describe_exit(wait(&mut process)),
            "ended with exit code 7",
            "any end is the end of the group"
        );
        let mut lines = process.log_tail();
        lines.sort();
        assert_eq!(lines, [group.to_string(), "leader".into()]);
        assert!(!process.stop(Signal::TERM, || Duration::from_secs(5)));
    }

    #[test]
    fn a_program_that_is_started_again_survives_the_end_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "exec sleep 600");
        let first = process.members();
        let program = Program {
            file: "/bin/sh".into(),
            arguments: vec!["-c".into(), "exec sleep 600".into()],
            environment: vec![],
            folder: folder.path().to_owned(),
            processors: allowed().unwrap()[..1].to_vec(),
        };
        process.start_again(&program).unwrap();
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
        let child: i32 = process.log_tail()[0].parse().unwrap();
        assert_ne!(leader.as_raw_nonzero().get(), child);
        assert_eq!(process.members(), [Pid::from_raw(child).unwrap()], "the leader has ended");
        process.signal(Signal::KILL);
        while !process.members().is_empty() {
            thread::sleep(POLL);
        }
        assert!(is_running_in("7 (a) Z 1 9) S 1 9 9 0", 9) && !is_running_in("7 (a) Z 1 9 9 0", 9));
        let zombie = |threads: u32| format!("7 (a) Z 1 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5");
        assert!(is_running_in(&zombie(2), 9) && !is_running_in(&zombie(1), 9));
    }

    #[test]
    fn a_daemon_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "setsid sh -c 'echo $$; exec sleep 600' & exit 0");
        while process.log_tail().is_empty() {
            thread::sleep(POLL);
        }
        wait(&mut process);
        let daemon = process.log_tail()[0].clone();
        assert!(Path::new("/proc").join(&daemon).exists(), "it should outlive its parent");
        drop(process);
        wait_until_gone(&daemon);
    }

    fn wait_until_gone(pid: &str) {
        let gone = || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        };
        let deadline = machine::now() + Duration::from_secs(5);
        while !gone() {
            assert!(machine::now() < deadline, "{pid} still runs");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn the_log_tail_is_short_and_printable() {
        let folder = tempfile::tempdir().unwrap();
        let script = "head -c 3000000 /dev/zero | tr '\\0' x; printf '\\n\\033[31mred\\007\\n\\nlast\\n'";
        let mut process = shell(&folder, script);
        wait(&mut process);
        let tail = process.log_tail();
        assert_eq!(tail[1..], [" [31mred ", "last"]);
        assert_eq!(tail[0].len(), TAIL_LINE_CHARS_MAX);
    }
}
