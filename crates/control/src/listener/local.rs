//! The Unix socket of the control listener, by which root and the user of the tracker act on this host without a token.
//!
//! The kernel names the user at the other end (`SO_PEERCRED`), so the mode of the file is a second lock. The socket's
//! name contains the address and the port of the control listener, which no two trackers of a host share. A client
//! finds the socket without configuration, in the system's directory for sockets: `/run/shoal` of root and of the unit
//! for systemd, or the directory of the user's session. It is not in `state.path`, which many trackers lack, and a
//! client would have to be told of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::Context;
use rustix::process::geteuid;
use shoal_net::InheritedSockets;
use shoal_net::stream::{ListenAddress, StreamListeners};
use tokio::net::UnixListener;

/// The directory of root, and of the unit for systemd.
const SYSTEM_DIRECTORY: &str = "/run/shoal";

/// The modes of a directory that is created, and of the socket.
const DIRECTORY_MODE: u32 = 0o755;
const SOCKET_MODE: u32 = 0o600;

/// The number that the kernel shows of any user from outside of a user namespace (user_namespaces(7)).
const OVERFLOW_USER: u32 = 65_534;

/// The socket, which accepts connections.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

/// Returns the path of the socket of a tracker with this control listener, or `None` if the user of this process has no
/// directory for it.
pub fn path(listener: SocketAddr) -> Option<PathBuf> {
    let of_root = || geteuid().is_root().then(|| PathBuf::from(SYSTEM_DIRECTORY));
    of_service().or_else(of_root).or_else(of_session).map(|directory| directory.join(name(listener)))
}

/// Returns the paths where a client looks for the socket of a tracker with this control listener, in order.
pub fn candidates(listener: SocketAddr) -> impl Iterator<Item = PathBuf> {
    let directories = [of_service(), Some(PathBuf::from(SYSTEM_DIRECTORY)), of_session()];
    directories.into_iter().flatten().map(move |directory| directory.join(name(listener)))
}

/// Returns the name of the socket. A listener on all addresses is reached by the loopback address.
fn name(listener: SocketAddr) -> String {
    let listener = reachable(listener);
    format!("control-{}-{}", listener.ip(), listener.port())
}

/// Returns an address of this host for a listener on all addresses.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the directory that systemd made for the service (systemd.exec(5), `RuntimeDirectory=`).
fn of_service() -> Option<PathBuf> {
    variable("RUNTIME_DIRECTORY").and_then(|all| env::split_paths(&all).next())
}

fn of_session() -> Option<PathBuf> {
    variable("XDG_RUNTIME_DIR").map(|directory| Path::new(&directory).join("shoal"))
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

impl LocalSocket {
    /// Opens the socket of a tracker with this control listener, or takes over the running tracker's. Without it, the
    /// tracker serves as usual, and its operator needs a token.
    pub fn open(listener: SocketAddr, inherited: &InheritedSockets) -> Option<Self> {
        let Some(path) = path(listener) else {
            tracing::warn!(
                "no control socket, because XDG_RUNTIME_DIR is not set: `shoal ctl` and `shoal upgrade` need a token (control.tokens)"
            );
            return None;
        };
        let opened = open(&path, inherited);
        opened
            .map(|listener| Self { listener, path: path.clone() })
            .inspect_err(|error| {
                tracing::warn!(
                    socket = %path.display(),
                    error = format!("{error:#}"),
                    "no control socket: `shoal ctl` and `shoal upgrade` need a token (control.tokens)"
                );
            })
            .ok()
    }

    /// Lets this user connect, which the tracker changes to. Fails if the file is gone.
    pub fn give_to(&self, user: u32, group: u32) -> io::Result<()> {
        std::os::unix::fs::lchown(&self.path, Some(user), Some(group))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another descriptor of the socket.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Waits for a connection of root or of the user of this process, and returns it with the number of that user. Others are closed.
    pub(crate) async fn accept(&self) -> io::Result<(tokio::net::UnixStream, u32)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let user = stream.peer_cred()?.uid();
            if may_control(user, geteuid().as_raw()) {
                return Ok((stream, user));
            }
            tracing::debug!(user, "another user has connected to the control socket");
        }
    }

    /// Removes the file, when the tracker stops. If that is forbidden, the next tracker replaces it.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

const fn may_control(user: u32, own: u32) -> bool {
    user == 0 || (user == own && user != OVERFLOW_USER)
}

fn open(path: &Path, inherited: &InheritedSockets) -> anyhow::Result<UnixListener> {
    let address = ListenAddress::Unix(path.to_owned());
    if let Some(socket) = inherited.listener(&address) {
        return Ok(UnixListener::from_std(socket.try_clone()?.into())?);
    }
    if let Some(directory) = path.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory);
        made.with_context(|| format!("{} cannot be created", directory.display()))?;
    }
    let bound = StreamListeners::bind_for_others(&address, std::num::NonZeroUsize::MIN)?;
    let socket = bound.into_iter().next().context("nothing was bound")?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(UnixListener::from_std(socket.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_own_user_control_a_tracker() {
        assert!(may_control(0, 1000) && may_control(1000, 1000) && may_control(0, 0));
        assert!(!may_control(1001, 1000) && !may_control(1000, 0));
        assert!(!may_control(OVERFLOW_USER, OVERFLOW_USER), "any user of the host may seem to be this one");
    }

    #[test]
    fn a_socket_is_named_by_the_address_that_reaches_the_listener() {
        for (listen, expected) in [
            ("0.0.0.0:1", "control-127.0.0.1-1"),
            ("[::]:1", "control-::1-1"),
            ("192.0.2.1:1", "control-192.0.2.1-1"),
        ] {
            assert_eq!(name(listen.parse().unwrap()), expected);
        }
    }

    #[tokio::test]
    async fn a_socket_is_private_and_has_one_tracker() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/control-1");
        let none = InheritedSockets::default();
        let first = open(&path, &none).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        assert!(open(&path, &none).is_err());
        // A file that a killed tracker has left is replaced.
        drop(first);
        let socket = LocalSocket { listener: open(&path, &none).unwrap(), path: path.clone() };
        let (client, accepted) = tokio::join!(tokio::net::UnixStream::connect(&path), socket.accept());
        assert_eq!(accepted.unwrap().1, geteuid().as_raw());
        drop(client);
        socket.remove();
        assert!(!path.exists());
    }
}
