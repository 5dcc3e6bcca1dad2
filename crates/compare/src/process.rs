//! A tracker's process: pinned to its processors, its errors kept, its end made sure of.
//!
//! It is the leader of a process group, so that a Ctrl-C at the terminal does not reach it, and whatever it starts
//! ends with it. Who leaves the group, as a daemon does, is known by a variable of the environment and ends, too. If the
//! laboratory itself is killed (SIGKILL), the kernel kills the tracker: `setpriv` of util-linux asks for that. What a
//! tracker has started is not included, since the kernel does not pass the request on.

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

use crate::clock;
use crate::find::on_path;
use crate::topology::{allowed, keep_on};

const POLL: Duration = Duration::from_millis(20);

/// Most lines of its output that are told when it fails, most characters of each, and how much is read for them.
const TAIL_LINES_MAX: usize = 12;
const TAIL_LINE_CHARS_MAX: usize = 300;
const TAIL_BYTES_MAX: u64 = 16 * 1024;

/// By this variable, which holds the folder of the run, processes are known that a tracker started. It does not begin
/// with SHOAL, because Shoal refuses variables of its own that it does not know.
const MARK: &str = "TRACKER_LAB_RUN";

/// How often those who left the group are looked for: each may have started another one meanwhile.
const STRAY_HUNTS_MAX: usize = 5;

/// A program that is about to be started.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is.
    pub file: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables besides `PATH` and `HOME`.
    pub environment: Vec<(String, String)>,
    /// Where it works, and where its output goes.
    pub folder: PathBuf,
    /// The processors that it may use.
    pub processors: Vec<usize>,
}

/// A running program, and what was started beside it in its group. It ends when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    beside: Vec<Child>,
    output: PathBuf,
    /// What the environment of everybody holds that it started.
    mark: Vec<u8>,
}

impl Program {
    /// Starts it, as the leader of a group.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(&self) -> io::Result<Process> {
        let output = self.folder.join("output.log");
        let child = self.spawn(&output, 0)?;
        let mark = [MARK.as_bytes(), b"=", self.folder.as_os_str().as_bytes()].concat();
        Ok(Process { child, beside: Vec::new(), output, mark })
    }

    /// Starts it in a process group: 0 is one of its own.
    fn spawn(&self, output: &Path, group: i32) -> io::Result<Child> {
        // Whoever shares it appends to it, so that nobody overwrites what another one said.
        let file = File::options().append(true).create(true).open(output)?;
        let mut command = self.command();
        command.args(&self.arguments).current_dir(&self.folder).process_group(group);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).env_clear();
        command.envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env(MARK, &self.folder);
        // A child inherits the processors of the thread that starts it. It has to be this thread: the kernel kills the
        // child when the thread ends that started it, not when the process does (prctl(2), PR_SET_PDEATHSIG).
        let own_processors = allowed()?;
        keep_on(&self.processors)?;
        let child = command.spawn();
        keep_on(&own_processors)?;
        child
    }

    /// Returns the command without arguments. Where there is no `setpriv`, the program may outlive the laboratory.
    fn command(&self) -> Command {
        let Some(setpriv) = on_path(OsStr::new("setpriv")) else { return Command::new(&self.file) };
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.file);
        command
    }
}

impl Process {
    /// The number of its process group, which is that of the process.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.child.id()
    }

    /// Starts another program that belongs to it: in its group, with its output.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn add(&mut self, program: &Program) -> io::Result<()> {
        let group = i32::try_from(self.group()).map_err(io::Error::other)?;
        self.beside.push(program.spawn(&self.output, group)?);
        Ok(())
    }

    /// How it ended, if it has; or how one of those beside it did.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut all = iter::once(&mut self.child).chain(&mut self.beside);
        all.find_map(|child| child.try_wait().transpose()).transpose()
    }

    fn is_there(&mut self) -> bool {
        let mut all = iter::once(&mut self.child).chain(&mut self.beside);
        all.any(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Asks it to end by `signal`, and kills it where it has not after `patience`, which may become less meanwhile. Says
    /// whether it had to be killed.
    pub fn stop(&mut self, signal: Signal, patience: impl Fn() -> Duration) -> bool {
        self.signal(signal);
        let began = clock::now();
        while self.is_there() {
            if clock::now().duration_since(began) >= patience() {
                self.kill();
                return true;
            }
            thread::sleep(POLL);
        }
        self.kill();
        false
    }

    /// The last lines of its output, without empty ones, and without what would make a terminal do something.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        let bytes = end_of(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let plain = |line: &str| -> String {
            let plain = line.trim_end().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
            plain.take(TAIL_LINE_CHARS_MAX).collect()
        };
        let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES_MAX)..].to_vec()
    }

    fn signal(&self, signal: Signal) {
        // Nobody may be left in the group, and then there is nobody to tell.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Ends the whole group at once, and whoever left it.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        for child in iter::once(&mut self.child).chain(&mut self.beside) {
            let _ = child.wait();
        }
        for _ in 0..STRAY_HUNTS_MAX {
            let strays = marked(&self.mark);
            if strays.is_empty() {
                return;
            }
            // One may have ended just now.
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

/// The last bytes of a file, which may be large.
fn end_of(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The processes whose environment holds `mark`.
fn marked(mark: &[u8]) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let marked = processes.filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        // That of others cannot be read, and that of the dead is empty.
        let environment = fs::read(entry.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|variable| variable == mark).then_some(pid)
    });
    marked.collect()
}

/// An exit status in words.
#[must_use]
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
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
        assert_eq!(in_words(wait(&mut process)), "ended with exit code 3");
        let first = allowed().unwrap()[0];
        assert_eq!(process.tail(), ["0", "red", &format!("Cpus_allowed_list: {first}")]);
    }

    #[test]
    fn it_is_killed_where_it_does_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
        while process.tail().is_empty() {
            thread::sleep(POLL);
        }
        assert!(process.stop(Signal::TERM, || Duration::from_millis(200)));
        assert_eq!(in_words(wait(&mut process)), "was ended by signal 9");
    }

    #[test]
    fn what_it_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "sleep 600 & echo $!; wait");
        while process.tail().is_empty() {
            thread::sleep(POLL);
        }
        assert!(!process.stop(Signal::TERM, || Duration::from_secs(5)));
        wait_until_gone(&process.tail()[0]);
    }

    #[test]
    fn what_is_beside_it_is_one_of_its_group() {
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
        assert_eq!(in_words(wait(&mut process)), "ended with exit code 7", "its end is an end of all");
        let mut said = process.tail();
        said.sort();
        assert_eq!(said, [group.to_string(), "leader".into()]);
        assert!(!process.stop(Signal::TERM, || Duration::from_secs(5)));
    }

    #[test]
    fn a_daemon_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell(&folder, "setsid sh -c 'echo $$; exec sleep 600' & exit 0");
        while process.tail().is_empty() {
            thread::sleep(POLL);
        }
        wait(&mut process);
        let daemon = process.tail()[0].clone();
        assert!(Path::new("/proc").join(&daemon).exists(), "it should outlive its parent");
        drop(process);
        wait_until_gone(&daemon);
    }

    fn wait_until_gone(pid: &str) {
        let gone = || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.is_empty() || status.contains("State:\tZ")
        };
        let patience = clock::now() + Duration::from_secs(5);
        while !gone() {
            assert!(clock::now() < patience, "{pid} is still there");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn what_it_says_is_cut_to_what_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let script = "head -c 3000000 /dev/zero | tr '\\0' x; printf '\\n\\033[31mred\\007\\n\\nlast\\n'";
        let mut process = shell(&folder, script);
        wait(&mut process);
        let tail = process.tail();
        assert_eq!(tail[1..], [" [31mred ", "last"]);
        assert_eq!(tail[0].len(), TAIL_LINE_CHARS_MAX);
    }
}
