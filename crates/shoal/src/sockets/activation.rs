//! The sockets that a service manager has bound for the tracker, or has kept since the last process
//! (sd_listen_fds(3)).
//!
//! Only the configuration says where the tracker listens: a passed socket replaces one that the tracker would bind to
//! the same address. The socket's name says which key lists the address. The names of sockets that the tracker asked
//! the manager to keep begin with [`STORED`]. Sockets whose address the configuration no longer lists are closed. The
//! manager may have kept the swarms as well.
#![allow(unsafe_code, reason = "descriptors are passed by number")]

use std::net::SocketAddr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::{env, fs};

use anyhow::Context;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{Shutdown, getsockname, shutdown};
use shoal_config::{Config, Listen};
use shoal_net::stream::ListenAddress;
use shoal_net::{InheritedSocket, InheritedSockets, SocketKind};

use crate::service_manager::frozen_swarms::FrozenSwarms;
use crate::service_manager::{STORED, ServiceManager, socket_name};
use crate::settings;
use shoal_control as control;
use shoal_runtime::failure::Failure;

/// The beginning of the names of the sockets that a running tracker hands over. The key follows.
pub(crate) const HANDED: &str = "handed-";

/// The name of the control socket for the users of this host, which has no key.
pub(crate) const LOCAL: &str = "local";

/// The first descriptor that is passed (sd_listen_fds(3), `SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// Maximum number of descriptors that are passed.
const COUNT_MAX: RawFd = 65_536;

/// Everything that was passed to this process.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) sockets: InheritedSockets,
    /// The names of sockets that the manager keeps and the running tracker uses, but this process does not.
    pub(crate) unused: Vec<String>,
    pub(crate) swarms: Option<FrozenSwarms>,
}

/// Takes the passed descriptors, and the sockets that a running tracker has `handed` over. To be called once, since the
/// process then owns them. Fails if the environment or a socket makes no sense, or if the configuration does not list
/// the socket.
pub(crate) fn take(
    config: &Config,
    manager: &ServiceManager,
    handed: Vec<(String, OwnedFd)>,
) -> Result<Given, Failure> {
    let mut inherited = InheritedSockets::default();
    let passed = passed().map_err(Failure::Configuration)?;
    let (swarms, passed): (Vec<_>, _) = passed.into_iter().partition(|(name, _)| FrozenSwarms::is_part(name));
    let swarms = FrozenSwarms::take(swarms, manager);
    for (name, descriptor) in passed.into_iter().chain(handed) {
        let add = |error| {
            Failure::Configuration(format!("LISTEN_FDS: the socket {name:?} cannot be used: {error}"))
        };
        inherited.add(name.clone(), descriptor).map_err(add)?;
    }
    let mut unused = inherited.extract(|socket| !is_listed(config, socket) || !is_reachable(socket));
    for socket in &unused {
        let InheritedSocket { name, kind, .. } = socket;
        if !name.starts_with(STORED) && !name.starts_with(HANDED) {
            return Err(Failure::Configuration(format!(
                "LISTEN_FDS: the socket {name:?} is bound to {kind}, which {} does not list; it must, or the unit of the \
                 socket must not",
                key(socket)
            )));
        }
    }
    let workers = settings::workers(config).get();
    let excess = inherited.extract_beyond(workers);
    if let Some(InheritedSocket { name, kind, .. }) =
        excess.iter().find(|socket| !socket.name.starts_with(STORED))
    {
        let fault = if name.starts_with(HANDED) {
            format!(
                "an upgrade cannot lower it to {workers}, because the running tracker has more workers; restart the tracker"
            )
        } else {
            format!(
                "there are more sockets {name:?} for {kind} than the {workers} workers; workers.count must be at least the \
                 number of sockets"
            )
        };
        return Err(Failure::Configuration(format!("workers.count: {fault}")));
    }
    unused.extend(excess);
    let mut names = Vec::new();
    for socket in unused {
        let InheritedSocket { name, kind, .. } = &socket;
        if name.starts_with(HANDED) {
            // The running tracker uses the socket until this process serves.
            names.extend(socket_name(socket.as_fd()));
            continue;
        }
        tracing::warn!(name, socket = %kind, "closed a socket of the last process, which the configuration does not need");
        // The manager closes the socket later. Until then, no client may wait in it. A UDP socket cannot be shut
        // down.
        let _ = shutdown(&socket, Shutdown::Both);
        manager.discard(name);
    }
    Ok(Given { sockets: inherited, unused: names, swarms })
}

/// Returns the configuration with the ports of handed-over sockets, where it leaves the choice to the kernel.
pub(crate) fn with_ports_of(config: &Config, handed: &[(String, OwnedFd)]) -> Config {
    let mut config = config.clone();
    let choose = |key: &str, address: &mut SocketAddr| {
        let of_key = handed.iter().filter(|(name, _)| name.strip_prefix(HANDED) == Some(key));
        let mut locals =
            of_key.filter_map(|(_, socket)| SocketAddr::try_from(getsockname(socket).ok()?).ok());
        if address.port() == 0
            && let Some(local) = locals.find(|local| local.ip() == address.ip())
        {
            address.set_port(local.port());
        }
    };
    config.udp.listen.iter_mut().for_each(|address| choose("udp", address));
    config.control.listen.iter_mut().for_each(|address| choose("control", address));
    for (key, listen) in [("http", &mut config.http.listen), ("tls", &mut config.tls.listen)] {
        for listen in listen {
            if let ListenAddress::Tcp(address) = &mut listen.address {
                choose(key, address);
            }
        }
    }
    config
}

/// Takes the connection to the running tracker that this process replaces. To be called once, before any other
/// descriptor is opened. Fails if the descriptor is no socket.
pub(crate) fn take_connection(number: RawFd) -> Result<OwnedFd, Failure> {
    let file = fs::metadata(format!("/proc/self/fd/{number}"));
    if number < FIRST || !file.is_ok_and(|file| file.file_type().is_socket()) {
        return Err(Failure::Configuration(format!(
            "--take-over: descriptor {number} is not a socket; only a running tracker passes it"
        )));
    }
    let connection = own(number);
    // Programs that this process starts must not inherit the connection.
    fcntl_setfd(&connection, FdFlags::CLOEXEC).context("cannot use the connection to the running tracker")?;
    Ok(connection)
}

/// Returns the descriptors that were passed to this process, with their names.
fn passed() -> Result<Vec<(String, OwnedFd)>, String> {
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<RawFd>());
    let is_for_this = number("LISTEN_PID")
        .is_some_and(|pid| pid.is_ok_and(|pid| pid.cast_unsigned() == std::process::id()));
    let count = match number("LISTEN_FDS") {
        Some(Ok(count)) if is_for_this && (0..=COUNT_MAX).contains(&count) => count,
        Some(_) if is_for_this => {
            return Err(format!("LISTEN_FDS must be a number of descriptors, 0 to {COUNT_MAX}"));
        }
        _ => return Ok(Vec::new()),
    };
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(std::iter::repeat("unknown"));
    Ok(names.zip(FIRST..FIRST + count).map(|(name, descriptor)| (name.to_owned(), own(descriptor))).collect())
}

fn own(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the parent process has passed the descriptor to this one, and no other code of this process knows its
    // number: all descriptors opened here have higher numbers. `take` is called once.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Returns whether the key in the socket's name lists the socket's address.
fn is_listed(config: &Config, socket: &InheritedSocket) -> bool {
    let kind = &socket.kind;
    let lists = |listen: &[Listen]| listen.iter().any(|listen| kind.listens_at(&listen.address));
    let udp = || config.udp.listen.iter().any(|address| kind.receives_at(*address));
    let of_control =
        || config.control.listen.is_some_and(|address| kind.listens_at(&ListenAddress::Tcp(address)));
    match socket.name.strip_prefix(HANDED).unwrap_or(&socket.name) {
        "udp" => udp(),
        "http" => lists(&config.http.listen),
        "tls" => lists(&config.tls.listen),
        "control" => of_control(),
        LOCAL => is_local(config, kind),
        _ => udp() || lists(&config.http.listen) || lists(&config.tls.listen) || of_control(),
    }
}

/// Returns whether a socket is the control socket for the users of this host.
fn is_local(config: &Config, kind: &SocketKind) -> bool {
    let path = config.control.listen.and_then(control::local_path);
    path.is_some_and(|path| kind.listens_at(&ListenAddress::Unix(path)))
}

/// Returns whether clients can connect to a socket. The file of a Unix socket may be gone, if the manager has removed
/// its directory.
fn is_reachable(socket: &InheritedSocket) -> bool {
    match &socket.kind {
        SocketKind::Connections(ListenAddress::Unix(path)) if socket.name.starts_with(STORED) => {
            fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        }
        _ => true,
    }
}

/// Returns the key that should list the address of a socket.
fn key(socket: &InheritedSocket) -> &'static str {
    match (&*socket.name, &socket.kind) {
        ("http", _) => "http.listen",
        ("tls", _) => "tls.listen",
        ("control", _) => "control.listen",
        ("udp", _) | (_, SocketKind::Datagrams(_)) => "udp.listen",
        (_, SocketKind::Connections(_)) => "http.listen",
    }
}
