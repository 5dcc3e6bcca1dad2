//! The broker: the helper of a tracker that has given up its privileges.
//!
//! A tracker in its sandbox can neither bind a socket nor start a program, and a started program would inherit the
//! sandbox. So the tracker first starts the broker: a second process of the same program, without threads, keys or
//! files, connected by a pair of sockets. The broker has two services. It binds sockets for the workers, with the
//! code of the tracker's start. It starts the installed program, which may have replaced the running one. The broker
//! ends with the tracker. A program that it has started lives on if it already serves. The broker kills any other
//! when the tracker gives it up or ends, and neither program can prevent that.
//!
//! This module is the tracker's side. `message` has the protocol, and `serve` is the other side.
//!
//! An attacker that controls the tracker can use the broker for these two services only: to bind sockets at free
//! addresses and in the directories of its Unix sockets, and to start the installed program.

mod message;
mod serve;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use shoal_config::Config;
use shoal_net::SocketSettings;
use shoal_net::stream::ListenAddress;

use message::{Answer, Request};

use crate::settings;

pub(crate) use serve::{Arguments, run};

/// The hidden command that makes the program a broker.
pub(crate) const COMMAND: &str = "broker";

/// The hidden argument that makes a program take over from a running tracker, by the connection with this number.
pub(crate) const TAKE_OVER: &str = "--take-over";

/// Maximum time to wait for an answer. Binding takes microseconds, and starting a program as long as reading it takes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// The connection to the broker, or the reason for its absence.
#[derive(Debug)]
pub(crate) struct Broker(Mutex<Result<OwnedFd, String>>);

/// A program that the broker has started. The broker kills it when this is dropped, unless the program serves.
#[derive(Debug)]
pub(crate) struct StartedProgram {
    pub(crate) pid: u32,
    /// Carries the exit status from the broker, and tells the broker whether the program serves.
    broker: UnixStream,
}

impl Broker {
    /// Starts the broker. To be called before privileges are given up, and before any descriptor is open that
    /// programs would inherit. If the broker does not start, the tracker serves as usual, and the log names what it
    /// lacks.
    pub(crate) fn spawn(config: &Config) -> Self {
        let socket = spawn(config).map_err(|error| error.to_string());
        if let Err(error) = &socket {
            tracing::warn!(
                error,
                "no broker: a reload can add no listener, and the tracker cannot start another program"
            );
        }
        Self(Mutex::new(socket))
    }

    /// Binds the sockets of one address, one for each worker. The call blocks until the broker answers. The error is
    /// the reason, with advice.
    pub(crate) fn bind_datagrams(
        &self,
        settings: &SocketSettings,
        workers: NonZeroUsize,
    ) -> Result<Vec<OwnedFd>, String> {
        let &SocketSettings { addr, recv_buffer_bytes, send_buffer_bytes } = settings;
        self.bind(&Request::BindDatagrams { addr, recv_buffer_bytes, send_buffer_bytes, workers })
    }

    /// Opens the listeners of one address: one for each worker, or a single one for a Unix socket. Blocks as
    /// [`bind_datagrams`](Self::bind_datagrams) does. The error is the reason, with advice.
    pub(crate) fn bind_listeners(
        &self,
        address: &ListenAddress,
        workers: NonZeroUsize,
    ) -> Result<Vec<OwnedFd>, String> {
        self.bind(&match address.clone() {
            ListenAddress::Tcp(addr) => Request::BindTcp { addr, workers },
            ListenAddress::Unix(path) => Request::BindUnix { path },
        })
    }

    /// Starts the installed program with this process's arguments and environment, and passes it the connection. Blocks
    /// as [`bind_datagrams`](Self::bind_datagrams) does. The error says why the program cannot be started.
    pub(crate) fn start(&self, connection: OwnedFd) -> Result<StartedProgram, String> {
        match self.ask(&Request::Start, Some(connection))? {
            (Answer::Started { pid }, mut descriptors) => {
                let broker = descriptors.pop().ok_or("the broker has sent no connection")?;
                Ok(StartedProgram { pid, broker: broker.into() })
            }
            (Answer::Refused { reason }, _) => Err(reason),
            (Answer::Bound { .. }, _) => Err(self.give_up("it confuses its answers")),
        }
    }

    fn bind(&self, request: &Request) -> Result<Vec<OwnedFd>, String> {
        match self.ask(request, None)? {
            (Answer::Bound { .. }, descriptors) => Ok(descriptors),
            (Answer::Refused { reason }, _) => Err(reason),
            (Answer::Started { .. }, _) => Err(self.give_up("it confuses its answers")),
        }
    }

    /// Sends a request, and waits for the answer and its descriptors.
    fn ask(&self, request: &Request, descriptor: Option<OwnedFd>) -> Result<(Answer, Vec<OwnedFd>), String> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = match &*connection {
            Ok(socket) => socket.as_fd(),
            Err(reason) => return Err(format!("the broker does not run: {reason}")),
        };
        let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
        let answer =
            message::send(socket, request, &descriptors).and_then(|()| message::receive_answer(socket));
        answer.map_err(|error| {
            // A late answer would be taken for the answer to the next request.
            let reason = format!("it does not answer: {error}");
            *connection = Err(reason.clone());
            format!("the broker does not run: {reason}")
        })
    }

    /// Closes the connection, which ends the broker.
    fn give_up(&self, reason: &str) -> String {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Err(reason.to_owned());
        format!("the broker does not run: {reason}")
    }
}

impl StartedProgram {
    /// Tells the broker whether the program serves in place of this process.
    pub(crate) fn set_serves(&self, serves: bool) {
        // Without a broker, nothing kills it.
        let _ = (&self.broker).write_all(&[u8::from(serves)]);
    }

    /// Returns the exit status if the program ends within this time.
    pub(crate) fn exit_status(&self, time_max: Duration) -> Option<ExitStatus> {
        self.broker.set_read_timeout(Some(time_max)).ok()?;
        let mut status = [0; size_of::<i32>()];
        (&self.broker).read_exact(&mut status).ok()?;
        Some(ExitStatus::from_raw(i32::from_be_bytes(status)))
    }
}

fn spawn(config: &Config) -> io::Result<OwnedFd> {
    let program = installed_program()?;
    let flags = SocketFlags::CLOEXEC;
    let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&own, timeout, Some(ANSWER_TIME_MAX))?;
    }
    // The installed program may be another version.
    let mut broker = Command::new("/proc/self/exe");
    broker.arg(COMMAND);
    for address in settings::listen_addresses(config) {
        if let ListenAddress::Unix(path) = address {
            broker.arg("--directory").arg(directory_of(&path));
        }
    }
    broker.arg(program).args(arguments(env::args_os().skip(1)));
    // Not waited for: the broker ends when this process does.
    broker.stdin(Stdio::from(other)).spawn()?;
    Ok(own)
}

fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the arguments without those meant for this process alone.
fn arguments(mut all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = Vec::new();
    while let Some(argument) = all.next() {
        if argument == TAKE_OVER {
            all.next();
        } else {
            arguments.push(argument);
        }
    }
    arguments
}

/// Returns the path by which the running program was started, so that a link can point to another version. Otherwise
/// returns the path of its file.
fn installed_program() -> io::Result<PathBuf> {
    let file = without_deletion(env::current_exe()?);
    let started_as = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let directories = match started_as.components().count() {
        1 => env::var_os("PATH").unwrap_or_default(),
        _ => ".".into(),
    };
    let mut candidates = env::split_paths(&directories).map(|directory| directory.join(&started_as));
    let same = candidates.find(|path| fs::canonicalize(path).is_ok_and(|path| path == file));
    same.map_or(Ok(file), std::path::absolute)
}

/// Returns the path of a program without the mark by which the kernel shows that its file was replaced
/// (`proc_pid_exe(5)`).
fn without_deletion(file: PathBuf) -> PathBuf {
    let before = file.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    match before {
        Some(before) if !file.exists() => Path::new(before).to_owned(),
        _ => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_does_not_inherit_the_connection_of_this_one() {
        let all = ["--config", "file", TAKE_OVER, "9", "--other"].map(OsString::from);
        assert_eq!(arguments(all.into_iter()), ["--config", "file", "--other"]);
    }

    #[test]
    fn a_replaced_program_is_found_at_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join("shoal (deleted)");
        assert_eq!(without_deletion(odd.clone()), directory.path().join("shoal"));
        fs::write(&odd, "").unwrap();
        assert_eq!(without_deletion(odd.clone()), odd);
    }
}
