//! The service manager (systemd). It is told the state of the tracker (sd_notify(3)), and keeps descriptors for the
//! tracker's next process.
//!
//! A message is a datagram of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names. The tracker connects the
//! socket before the sandbox puts it out of reach. Without the variable, nothing is sent. systemd listens to the main
//! process only, so a process that takes over must first become that.
//!
//! A task of the control plane feeds the watchdog whenever every worker has finished a poll round since the last
//! time. So a hanging worker counts as a failure, and so does a hanging control plane. The manager then ends the
//! tracker and starts it anew.
//!
//! The name of a kept socket follows from the socket itself, so that each process that has the socket can make the
//! manager close it.
//!
//! The manager keeps all sockets that the tracker has bound. A process that takes over reports its sockets only once
//! it is the main process. Until then it gives none up, because the old process may have to go on with them.

pub(crate) mod frozen_swarms;
pub(crate) mod status;

use std::env;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, getsockname, sockopt};

use crate::ancillary;
use shoal_runtime::clock;
use shoal_runtime::heartbeat::Heartbeat;

/// The manager may take this long to accept a message. While it is slower, messages are lost.
const SEND_TIME_MAX: Duration = Duration::from_secs(1);

/// Checks of the workers in the time within which the manager expects a message.
const CHECKS_PER_PERIOD: u32 = 3;

/// The state of a healthy tracker.
pub(crate) const SERVING: &str = "serving";

/// The beginning of the names of descriptors that the manager keeps.
pub(crate) const STORED: &str = "stored-";

/// The connection to the manager, if there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceManager(Option<Arc<Connection>>);

#[derive(Debug)]
struct Connection {
    socket: UnixDatagram,
    /// The failure of the last reload, if it failed.
    fault: Mutex<Option<String>>,
}

/// The difference between the sockets that the manager keeps and those that it should keep.
#[derive(Debug, Default)]
pub(crate) struct SocketChanges {
    /// Sockets that the manager does not have.
    pub(crate) new: Vec<OwnedFd>,
    /// The names of sockets that the tracker no longer uses.
    pub(crate) unused: Vec<String>,
}

impl ServiceManager {
    /// Connects to the manager that the environment names. If that fails, the log says so, and nothing is sent.
    pub(crate) fn connect() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self(None);
        };
        let connect = || {
            let address = match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
                _ => SocketAddr::from_pathname(&name)?,
            };
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            // A hanging manager holds the control plane up no longer than this.
            socket.set_write_timeout(Some(SEND_TIME_MAX))?;
            io::Result::Ok(socket)
        };
        match connect() {
            Ok(socket) => Self(Some(Arc::new(Connection { socket, fault: Mutex::default() }))),
            Err(error) => {
                tracing::warn!(socket = %name.display(), %error, "the service manager of NOTIFY_SOCKET cannot be told anything");
                Self(None)
            }
        }
    }

    /// Returns whether there is a manager to tell.
    pub(crate) const fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Reports that the tracker serves.
    pub(crate) fn ready(&self) {
        self.send(&format!("READY=1\nSTATUS={SERVING}"));
    }

    /// Reports that a reload begins.
    pub(crate) fn reloading(&self) {
        // systemd compares the time with the time of its own request (sd_notify(3), "RELOADING=1").
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock::precise_ns() / 1000));
    }

    /// Reports that a reload has ended. The status shows a failure until the next reload.
    pub(crate) fn reloaded(&self, outcome: Result<(), &str>) {
        let Some(connection) = &self.0 else { return };
        let fault = outcome.err().map(|error| format!("the configuration stays as it was: {error}"));
        *connection.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        self.send(&format!("READY=1\nSTATUS={}", self.with_fault(SERVING)));
    }

    /// Sets the status text, for people.
    pub(crate) fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", line(status)));
    }

    /// Returns a status with the failure of the last reload, if it failed.
    pub(crate) fn with_fault(&self, status: &str) -> String {
        let fault = self.0.as_ref().map(|connection| connection.fault.lock());
        match fault.map(|fault| fault.unwrap_or_else(PoisonError::into_inner)).as_deref() {
            Some(Some(fault)) => line(&format!("{status}; {fault}")),
            _ => status.to_owned(),
        }
    }

    /// Reports another process as the main process of the tracker.
    pub(crate) fn main_pid(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    /// Reports that the tracker ends.
    pub(crate) fn stopping(&self, reason: &str) {
        self.send(&format!("STOPPING=1\nSTATUS=stopping: {}", line(reason)));
    }

    /// Returns whether the manager keeps descriptors for the next process. It announces this by `FDSTORE` (systemd
    /// 254; or set it in the unit).
    pub(crate) fn keeps_descriptors(&self) -> bool {
        let count = || env::var("FDSTORE").ok()?.parse::<u64>().ok();
        self.0.is_some() && count().is_some_and(|count| count > 0)
    }

    /// Gives the manager a descriptor, which it passes to the next process under this name. Returns whether it was
    /// sent. Nothing is sent if the manager keeps no descriptors.
    pub(crate) fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> bool {
        let Some(connection) = self.0.as_ref().filter(|_| self.keeps_descriptors()) else { return false };
        let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        match ancillary::send(&connection.socket, text.as_bytes(), &[descriptor]) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(name, %error, "the service manager does not keep a descriptor");
                false
            }
        }
    }

    /// Makes the manager close the descriptor with this name.
    pub(crate) fn discard(&self, name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    /// Changes the sockets that the manager keeps. A discarded socket closes once this process closes it too.
    pub(crate) fn change_sockets(&self, changes: &SocketChanges) {
        if !self.keeps_descriptors() {
            return;
        }
        changes.unused.iter().for_each(|name| self.discard(name));
        let mut stored = Vec::new();
        for socket in &changes.new {
            let Some(name) = socket_name(socket.as_fd()) else { continue };
            // Workers may share a socket.
            if stored.contains(&name) {
                continue;
            }
            if !self.store(&name, socket.as_fd()) {
                // Each further message might take as long to fail.
                return;
            }
            stored.push(name);
        }
    }

    fn send(&self, text: &str) {
        let Some(connection) = &self.0 else { return };
        if let Err(error) = connection.socket.send(text.as_bytes()) {
            tracing::debug!(%error, text, "the service manager was not told");
        }
    }

    /// Passes on a message of another process.
    pub(crate) fn forward(&self, message: &[u8]) {
        if let Some(connection) = &self.0 {
            let _ = connection.socket.send(message);
        }
    }

    /// Feeds the watchdog while all workers respond, if the manager expects it.
    pub(crate) async fn feed_watchdog(self, workers: Vec<Arc<Heartbeat>>) {
        let Some(period) = self.0.as_ref().and_then(|_| watchdog_period()) else { return };
        tracing::info!(
            period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX),
            "watchdog of the service manager"
        );
        let mut asked: Vec<u64> = workers.iter().map(|worker| worker.ask()).collect();
        let mut stuck = None;
        loop {
            tokio::time::sleep(period / CHECKS_PER_PERIOD).await;
            let silent =
                workers.iter().zip(&asked).position(|(worker, asked)| worker.answered.read() < *asked);
            if let Some(worker) = silent.filter(|_| stuck != silent) {
                tracing::error!(
                    worker,
                    "a worker does not respond; the watchdog of the service manager is not fed"
                );
            }
            stuck = silent;
            if silent.is_none() {
                self.send("WATCHDOG=1");
                asked = workers.iter().map(|worker| worker.ask()).collect();
            }
        }
    }
}

/// Returns the name under which the manager keeps a socket: its kind and its number, which no other open socket of
/// the host has.
pub(crate) fn socket_name(socket: BorrowedFd<'_>) -> Option<String> {
    let kind = match (sockopt::socket_type(socket).ok()?, getsockname(socket).ok()?.address_family()) {
        (_, AddressFamily::UNIX) => "unix",
        (SocketType::DGRAM, _) => "udp",
        _ => "tcp",
    };
    let number = rustix::fs::fstat(socket).ok()?.st_ino;
    Some(format!("{STORED}{kind}-{number}"))
}

/// Returns the time within which the manager expects a message from this process, if it does.
fn watchdog_period() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
    let period = Duration::from_micros(number("WATCHDOG_USEC")?);
    (!is_other && !period.is_zero()).then_some(period)
}

fn line(text: &str) -> String {
    text.replace('\n', " ")
}
