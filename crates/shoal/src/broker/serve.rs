//! The broker's process, which answers requests.
//!
//! It trusts the tracker with its two services only. A request that makes no sense ends the broker, and so does the
//! end of the connection.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Signal as KillSignal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use shoal_net::stream::{ListenAddress, StreamListeners};
use shoal_net::{SocketSettings, Sockets};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::message::{self, Answer, Request};
use super::{TAKE_OVER, directory_of};
use crate::privileges;
use shoal_runtime::{advice, descriptors};

/// Maximum number of programs that run at a time.
const PROGRAMS_MAX: usize = 4;

/// Variables that a service manager sets for a single process.
const FOR_ONE_PROCESS: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"];

struct Services {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// The directories that may contain Unix sockets, with links resolved.
    directories: Vec<PathBuf>,
    running: Vec<Program>,
}

/// A started program, in a process group of its own.
struct Program {
    child: Child,
    /// Readable when the program has ended.
    handle: OwnedFd,
    /// Carries the exit status to the tracker, and one byte from the tracker: whether the program serves. `None` once
    /// the tracker has closed it.
    tracker: Option<UnixStream>,
    /// Whether the program serves in place of the tracker. Otherwise it ends when the tracker gives it up.
    serves: bool,
}

/// The command line of the broker.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The directories in which Unix sockets may be
    #[arg(long = "directory")]
    directories: Vec<PathBuf>,
    /// The program to start
    program: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Serves the tracker at the other end of standard input until that end closes. Fails if this process cannot serve.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { directories, program, arguments } = arguments;
    // The environment may contain secrets.
    privileges::permit_dumps(false)?;
    descriptors::raise();
    // The runtime only handles signals.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let _handled = handle_stop_signals().context("cannot handle signals")?;
    let directories = directories.iter().filter_map(|directory| directory.canonicalize().ok()).collect();
    Services { program, arguments, directories, running: Vec::new() }.serve(io::stdin().as_fd())
}

/// Handles the signals that stop or instruct a tracker, without effect: they are meant for the tracker, and the
/// broker must outlive it. Ignoring them would not do, because programs inherit ignored signals.
fn handle_stop_signals() -> io::Result<Vec<Signal>> {
    let kinds = [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ];
    kinds.into_iter().map(signal).collect()
}

impl Services {
    /// Serves the tracker at the other end of `socket` until that end closes.
    fn serve(&mut self, socket: BorrowedFd<'_>) -> anyhow::Result<()> {
        loop {
            let programs = self.running.iter().map(|program| program.handle.as_fd());
            let trackers =
                self.running.iter().filter_map(|program| program.tracker.as_ref().map(AsFd::as_fd));
            let mut descriptors: Vec<_> = std::iter::once(socket)
                .chain(programs)
                .chain(trackers)
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            match poll(&mut descriptors, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let is_ready = !descriptors[0].revents().is_empty();
            self.running.iter_mut().for_each(Program::follow);
            self.collect_ended();
            if is_ready {
                let Some((request, given)) = message::receive(socket)? else {
                    self.kill_all();
                    return Ok(());
                };
                self.answer(request, given, socket)?;
            }
        }
    }

    fn answer(
        &mut self,
        request: Request,
        given: Vec<OwnedFd>,
        socket: BorrowedFd<'_>,
    ) -> anyhow::Result<()> {
        let outcome = match request {
            Request::BindDatagrams { addr, recv_buffer_bytes, send_buffer_bytes, workers } => {
                let settings = SocketSettings { addr, recv_buffer_bytes, send_buffer_bytes };
                Sockets::bind_for_others(&settings, workers).map(bound).map_err(advice::bind)
            }
            Request::BindTcp { addr, workers } => {
                let sockets = StreamListeners::bind_for_others(&ListenAddress::Tcp(addr), workers);
                sockets.map(bound).map_err(|error| advice::listen(&error))
            }
            Request::BindUnix { path } => self.bind_unix(path),
            Request::Start => self.start(given),
        };
        let (answer, descriptors) =
            outcome.unwrap_or_else(|error| (Answer::Refused { reason: format!("{error:#}") }, Vec::new()));
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        Ok(message::send(socket, &answer, &descriptors)?)
    }

    /// Listens on a Unix socket, in one of the directories that were given at the start.
    fn bind_unix(&self, path: PathBuf) -> anyhow::Result<(Answer, Vec<OwnedFd>)> {
        let directory = directory_of(&path).canonicalize();
        let directory = directory.with_context(|| format!("cannot listen on unix:{}", path.display()))?;
        anyhow::ensure!(
            self.directories.contains(&directory),
            "cannot listen on unix:{}: only the directories of the Unix sockets at start are permitted; restart the tracker",
            path.display()
        );
        let sockets = StreamListeners::bind_for_others(&ListenAddress::Unix(path), NonZeroUsize::MIN);
        sockets.map(bound).map_err(|error| advice::listen(&error))
    }

    fn start(&mut self, given: Vec<OwnedFd>) -> anyhow::Result<(Answer, Vec<OwnedFd>)> {
        let connection = given.into_iter().next().context("there is no connection to pass on")?;
        anyhow::ensure!(
            self.running.len() < PROGRAMS_MAX,
            "{PROGRAMS_MAX} programs that were started still run"
        );
        let (own, exit) = UnixStream::pair().context("there is no connection for the exit status")?;
        own.set_nonblocking(true)?;
        // The program inherits only this descriptor and its output.
        fcntl_setfd(&connection, FdFlags::empty())?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(TAKE_OVER).arg(connection.as_raw_fd().to_string());
        for name in FOR_ONE_PROCESS {
            command.env_remove(name);
        }
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let child = child.with_context(|| format!("cannot start {}", self.program.display()))?;
        let pid = child.id();
        let handle = Pid::from_raw(pid.cast_signed()).context("a program has a positive number")?;
        let handle = pidfd_open(handle, PidfdFlags::empty()).context("cannot wait for a program")?;
        self.running.push(Program { child, handle, tracker: Some(own), serves: false });
        Ok((Answer::Started { pid }, vec![exit.into()]))
    }

    /// Tells the tracker the exit status of programs that have ended.
    fn collect_ended(&mut self) {
        self.running.retain_mut(|program| {
            if !program.has_ended() {
                return true;
            }
            if !program.serves {
                // The program may have started others, which hold its connection. Its group keeps its number until
                // the program is waited for.
                program.kill();
            }
            if let (Ok(status), Some(tracker)) = (program.child.wait(), &mut program.tracker) {
                // The tracker may have closed its end.
                let _ = tracker.write_all(&status.into_raw().to_be_bytes());
            }
            false
        });
    }

    /// Kills all programs that do not serve, when the tracker has ended.
    fn kill_all(&mut self) {
        for program in &mut self.running {
            program.follow();
            if !program.serves {
                program.kill();
            }
        }
    }
}

impl Program {
    /// Reads from the tracker whether a program serves. Kills a program that does not serve when the tracker gives it
    /// up.
    fn follow(&mut self) {
        let Some(tracker) = &mut self.tracker else { return };
        let mut notes = [0; 8];
        loop {
            match tracker.read(&mut notes) {
                Ok(0) => break,
                Ok(length) => self.serves = notes[length - 1] != 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.tracker = None;
        if !self.serves {
            self.kill();
        }
    }

    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::PidFd(self.handle.as_fd()), options), Ok(None))
    }

    /// Kills the program and the processes that it has started, even stopped ones.
    fn kill(&self) {
        // No process may remain in the group.
        let _ = kill_process_group(Pid::from_child(&self.child), KillSignal::KILL);
    }
}

fn bound(sockets: Vec<OwnedFd>) -> (Answer, Vec<OwnedFd>) {
    (Answer::Bound { sockets: sockets.len() }, sockets)
}
