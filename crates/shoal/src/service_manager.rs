//! The service manager (systemd), which is told how the tracker is doing (sd_notify(3)).
//!
//! A message is a datagram of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names. The socket is connected before
//! the sandbox, in which it would be out of reach. Without the variable, nothing is sent.
//!
//! The watchdog is fed from the heartbeats of the workers: by a task of the control plane, whenever every worker has
//! finished a poll round since the last time. So a worker that hangs is a failure, and so is a control plane that hangs; the
//! manager then ends the tracker and starts it anew.

use std::env;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use crate::heartbeat::Heartbeat;
use crate::{ancillary, clock};

/// The manager may take this long to accept a message. While it is slower, messages are lost.
const SEND_TIME_MAX: Duration = Duration::from_secs(1);

/// Checks of the workers in the time within which the manager expects a message.
const CHECKS_PER_PERIOD: u32 = 3;

/// The state of a tracker in which all is well.
pub(crate) const SERVING: &str = "serving";

/// The connection to the manager, if there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceManager(Option<Arc<UnixDatagram>>);

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
            // A manager that hangs holds the control plane up no longer than this.
            socket.set_write_timeout(Some(SEND_TIME_MAX))?;
            io::Result::Ok(socket)
        };
        match connect() {
            Ok(socket) => Self(Some(Arc::new(socket))),
            Err(error) => {
                tracing::warn!(socket = %name.display(), %error, "the service manager of NOTIFY_SOCKET cannot be told anything");
                Self(None)
            }
        }
    }

    /// Tells that the tracker serves, or that it has read its configuration again.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// Tells that the tracker reads its configuration again, from now until it is ready.
    pub(crate) fn reloading(&self) {
        // systemd compares the time with that of its own request (sd_notify(3), "RELOADING=1").
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock::precise_ns() / 1000));
    }

    /// Tells that another process is the main process of the tracker from now on.
    pub(crate) fn main_pid(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    /// Tells that the tracker ends.
    pub(crate) fn stopping(&self, reason: &str) {
        self.send(&format!("STOPPING=1\nSTATUS=stopping: {}", line(reason)));
    }

    /// Gives the manager a descriptor, which it passes to the next tracker under this name. Does nothing if the manager
    /// keeps none, which it tells by `FDSTORE` (systemd 254; or set it in the unit).
    pub(crate) fn store(&self, name: &str, descriptor: BorrowedFd<'_>) {
        let Some(socket) = self.0.as_ref().filter(|_| keeps_descriptors()) else { return };
        let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        let sent = ancillary::send(&**socket, text.as_bytes(), &[descriptor]);
        if sent.is_err() {
            tracing::warn!(name, ?sent, "the service manager does not keep a socket");
        }
    }

    /// Makes the manager close what it keeps under this name.
    pub(crate) fn discard(&self, name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    fn send(&self, text: &str) {
        let Some(socket) = &self.0 else { return };
        if let Err(error) = socket.send(text.as_bytes()) {
            tracing::debug!(%error, text, "the service manager was not told");
        }
    }

    /// Feeds the watchdog for as long as all workers respond, if the manager expects it.
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
            let silent = workers.iter().zip(&asked).position(|(worker, asked)| worker.answered() < *asked);
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

/// Returns the time within which the manager expects a message, if it does so of this process.
fn watchdog_period() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
    let period = Duration::from_micros(number("WATCHDOG_USEC")?);
    (!is_other && !period.is_zero()).then_some(period)
}

/// Returns whether the manager keeps descriptors for the next tracker.
fn keeps_descriptors() -> bool {
    env::var("FDSTORE").is_ok_and(|count| count.parse::<u64>().is_ok_and(|count| count > 0))
}

/// Returns a text as a single line.
fn line(text: &str) -> String {
    text.replace('\n', " ")
}
