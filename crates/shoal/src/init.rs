//! Process 1 of a container.
//!
//! A container ends with its process 1, and an upgrade ends the process that has handed over. So a tracker that is
//! started as process 1 only starts the tracker, in a second process, and is its service manager: it passes signals on
//! to the main process, waits for processes whose parent has ended, and ends with the main process and its exit status.
//! The main process names its successor as it does to systemd ([`ServiceManager`]).
//!
//! A container on the network of its host shares the names of abstract sockets with it, so anyone can send a message. A
//! successor must therefore be a child of a child of the main process: its broker has started it.

use std::env;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, kill_process, test_kill_process, wait};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::service_manager::ServiceManager;

/// A message longer than this names no process.
const MESSAGE_MAX: usize = 4096;

/// A pause between two looks at whether the main process exists.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The exit code of a main process whose own is not known.
const FAILED: u8 = 1;

/// Returns whether this process is the first of a container.
pub(crate) fn is_needed() -> bool {
    getpid().is_init()
}

/// Runs this program in a second process until the tracker ends, whichever process serves by then. Fails if the program
/// cannot be started.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::take().context("cannot handle signals")?;
        // The container itself may be a service.
        let manager = ServiceManager::connect();
        let (messages, address) = socket().context("cannot receive messages of the tracker")?;
        let mut main = start(&address).context("cannot start the tracker")?;
        // A process that a message named, and that did not descend from the main process then.
        let mut refused = None;
        loop {
            let mut message = [0; MESSAGE_MAX];
            tokio::select! {
                kind = signals.next() => {
                    if kind != SignalKind::child() {
                        send(main, kind);
                    } else if let Some(code) = reap(main) {
                        // The message about the successor may still be unread, and its parents may have ended.
                        while let Ok(length) = messages.try_recv(&mut message) {
                            refused = main_pid(&message[..length]).or(refused);
                        }
                        match refused.take().filter(|named| is_orphan(*named)) {
                            Some(named) => main = named,
                            None => return Ok(ExitCode::from(code)),
                        }
                    }
                }
                length = messages.recv(&mut message) => {
                    let message = &message[..length?];
                    match main_pid(message) {
                        Some(named) => {
                            main = follow(main, named);
                            refused = (main != named).then_some(named);
                        }
                        None => manager.forward(message),
                    }
                }
                // While the broker of the old process lives, it is the parent that waits for the new one.
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if test_kill_process(main).is_err() {
                        return Ok(ExitCode::from(FAILED));
                    }
                }
            }
        }
    })
}

/// Passes a signal on. The end of the process may not be known yet.
fn send(main: Pid, kind: SignalKind) {
    if let Some(signal) = rustix::process::Signal::from_named_raw(kind.as_raw_value()) {
        let _ = kill_process(main, signal);
    }
}

/// Returns the main process after a message that names one. It can be a successor, or the predecessor again: an upgrade
/// can fail late.
fn follow(main: Pid, named: Pid) -> Pid {
    let is_successor = parent(named).and_then(parent) == Some(main);
    let is_predecessor = parent(main).and_then(parent) == Some(named);
    if is_successor || is_predecessor { named } else { main }
}

/// Returns whether a process descends from the main process that has just ended: all orphans of a container do. Its parent
/// is this process, or a broker that has lost its parent.
fn is_orphan(process: Pid) -> bool {
    let parent_of = parent(process);
    [parent_of, parent_of.and_then(parent)].contains(&Some(getpid()))
}

/// Opens the socket for the messages, and returns its name as `NOTIFY_SOCKET` has it. The file system may be read-only.
fn socket() -> io::Result<(tokio::net::UnixDatagram, String)> {
    let name = format!("shoal-{:032x}", fastrand::u128(..));
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    socket.set_nonblocking(true)?;
    Ok((tokio::net::UnixDatagram::from_std(socket)?, format!("@{name}")))
}

/// Starts this program with the same arguments. It leads a process group of its own, as a terminal would otherwise send
/// it signals that arrive a second time from here.
fn start(address: &str) -> anyhow::Result<Pid> {
    let mut arguments = env::args_os();
    let mut tracker = Command::new(env::current_exe()?);
    // An upgrade starts the program at the path by which this one was started.
    tracker.arg0(arguments.next().unwrap_or_default()).args(arguments);
    let child = tracker.env("NOTIFY_SOCKET", address).process_group(0).spawn()?;
    Ok(Pid::from_child(&child))
}

/// Waits for all processes that have ended, and returns the exit code of the main process if it is one of them.
fn reap(main: Pid) -> Option<u8> {
    let mut code = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == main {
            code = Some(exit_code(status));
        }
    }
    code
}

/// Returns the exit code that shells show for this status.
fn exit_code(status: WaitStatus) -> u8 {
    let of_signal = || status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or_else(of_signal).and_then(|code| code.try_into().ok()).unwrap_or(FAILED)
}

/// Returns the process that a message names (`MAINPID=` of sd_notify(3)).
fn main_pid(message: &[u8]) -> Option<Pid> {
    let text = str::from_utf8(message).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("MAINPID="))?;
    Pid::from_raw(number.parse().ok()?)
}

/// Returns the parent of a process, from the fourth field of proc_pid_stat(5). The second one may contain spaces.
fn parent(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1;
    Pid::from_raw(fields.split_ascii_whitespace().nth(1)?.parse().ok()?)
}

/// All signals that a tracker handles, and those of children that have ended.
struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
    user_defined1: Signal,
    user_defined2: Signal,
    child: Signal,
}

impl Signals {
    fn take() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            user_defined1: signal(SignalKind::user_defined1())?,
            user_defined2: signal(SignalKind::user_defined2())?,
            child: signal(SignalKind::child())?,
        })
    }

    /// Waits for the next signal.
    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.hangup.recv() => SignalKind::hangup(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.user_defined1.recv() => SignalKind::user_defined1(),
            _ = self.user_defined2.recv() => SignalKind::user_defined2(),
            _ = self.child.recv() => SignalKind::child(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    #[test]
    fn a_message_names_the_main_process_among_other_things() {
        assert_eq!(main_pid(b"READY=1\nMAINPID=17\nSTATUS=serving"), Pid::from_raw(17));
        for other in [&b"READY=1"[..], b"MAINPID=", b"MAINPID=x", b"STATUS=MAINPID=17", b"\xff"] {
            assert_eq!(main_pid(other), None);
        }
    }

    #[test]
    fn the_parent_of_a_process_is_found() {
        assert_eq!(parent(getpid()), rustix::process::getppid());
    }

    #[test]
    fn a_child_and_a_grandchild_of_process_1_are_orphans() {
        // The shell starts `sleep` as its child, and says its process id.
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; wait"]).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        io::BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let grandchild = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        assert!(is_orphan(Pid::from_child(&shell)) && is_orphan(grandchild));
        assert!(!is_orphan(getpid()));
        kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert!(!is_orphan(grandchild));
    }
}
