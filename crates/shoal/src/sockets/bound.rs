//! The sockets of a tracker, which are bound before it gives up its privileges.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::Context;
use shoal_config::{Auto, Config, HttpConfig, Listen, UdpConfig};
use shoal_net::stream::{ListenAddress, StreamListeners};
use shoal_net::{Backend, Choice, InheritedSockets, Sockets};
use tokio::net::TcpListener;

use crate::settings;
use crate::sockets::activation::{HANDED, LOCAL};
use crate::sockets::host;
use crate::worker::pool;
use crate::worker::processors;
use crate::xdp::{DataPath, HandedDataPath};
use shoal_control as control;
use shoal_control::LocalSocket;
use shoal_runtime::{advice, descriptors};

pub(crate) struct Bound {
    /// The configuration, without the address families that this host lacks.
    pub(crate) config: Config,
    pub(crate) backend: Backend,
    pub(crate) processors: Vec<usize>,
    pub(crate) sockets: Vec<Sockets>,
    pub(crate) listeners: Vec<StreamListeners>,
    pub(crate) control: Option<ControlSockets>,
    /// Maximum number of connections of all workers together.
    pub(crate) connections_max: u64,
    pub(crate) data_path: DataPath,
    /// Whether all addresses of the tracker itself are private.
    pub(crate) is_host_private: bool,
}

impl Bound {
    /// Binds every address that the configuration names, except where this process was given sockets.
    pub(crate) async fn open(
        config: &Config,
        inherited: &InheritedSockets,
        handed: HandedDataPath,
    ) -> anyhow::Result<Self> {
        let mut config = config.clone();
        let backend = choose_backend(&config)?;
        let sockets = bind(&config, inherited)?;
        let processors = if config.workers.pin { processors::allowed()? } else { Vec::new() };
        if config.workers.steer {
            steer(&sockets, &processors)?;
        }
        let listeners = listen(&mut config, inherited)?;
        let control = match config.control.listen {
            Some(address) => Some(ControlSockets::open(address, inherited).await?),
            None => None,
        };
        let connections_max = connections_max(&config, settings::workers(&config), &sockets, &listeners);
        let data_path = DataPath::open(&config, handed)?;
        let is_host_private = host::is_private(listening(&sockets, &listeners));
        Ok(Self {
            config,
            backend,
            processors,
            sockets,
            listeners,
            control,
            connections_max,
            data_path,
            is_host_private,
        })
    }
}

impl Bound {
    /// Returns new descriptors of the sockets that this process has bound itself. A service manager keeps them, so
    /// that requests wait in them during a restart, also after a crash.
    pub(crate) fn to_keep(&self, given: &InheritedSockets) -> io::Result<Vec<OwnedFd>> {
        let udp = self.sockets.iter().flat_map(Sockets::own_descriptors);
        let streams = self.listeners.iter().flat_map(StreamListeners::own_descriptors);
        let is_given = self
            .config
            .control
            .listen
            .is_some_and(|address| given.listener(&ListenAddress::Tcp(address)).is_some());
        let control = self.control.iter().filter(|_| !is_given).map(|control| control.tcp.as_fd());
        udp.chain(streams).chain(control).map(|socket| socket.try_clone_to_owned()).collect()
    }
}

/// Returns the back end that the operator selected, or else the best one that works.
fn choose_backend(config: &Config) -> anyhow::Result<Backend> {
    let (backend, reason) = match settings::backend(config) {
        Some(backend) => {
            backend.probe().map_err(advice::backend)?;
            (backend, "udp.io selects it".to_owned())
        }
        None => {
            let Choice { backend, passed_over } = Backend::choose();
            let fastest = "it is the fastest that works here".to_owned();
            (backend, passed_over.map_or(fastest, |other| other.to_string()))
        }
    };
    tracing::info!(io = %backend, reason, "datagram back end");
    Ok(backend)
}

#[derive(Debug)]
pub(crate) struct ControlSockets {
    pub(crate) tcp: TcpListener,
    /// For root and this process's user, on this host.
    pub(crate) local: Option<LocalSocket>,
}

impl ControlSockets {
    async fn open(address: SocketAddr, inherited: &InheritedSockets) -> anyhow::Result<Self> {
        let tcp = listen_for_operators(address, inherited).await?;
        let listener = tcp.local_addr().context("cannot use the socket for control.listen")?;
        Ok(Self { local: LocalSocket::open(listener, inherited), tcp })
    }

    pub(crate) fn descriptors(&self) -> io::Result<Vec<(&'static str, OwnedFd)>> {
        let mut all = vec![("control", self.tcp.as_fd().try_clone_to_owned()?)];
        if let Some(local) = &self.local {
            all.push((LOCAL, local.descriptor()?));
        }
        Ok(all)
    }
}

async fn listen_for_operators(
    address: SocketAddr,
    inherited: &InheritedSockets,
) -> anyhow::Result<TcpListener> {
    let Some(socket) = inherited.listener(&ListenAddress::Tcp(address)) else {
        return control::bind(address).await;
    };
    let socket = socket.try_clone().context("cannot use the socket for control.listen")?;
    TcpListener::from_std(socket.into()).context("cannot use the socket for control.listen")
}

/// Opens the listeners of all workers. Removes a family from `config` that this host lacks, if only the default
/// serves it.
fn listen(config: &mut Config, inherited: &InheritedSockets) -> anyhow::Result<Vec<StreamListeners>> {
    let by_default = config.http.listen == HttpConfig::default().listen;
    loop {
        let (addresses, workers) = (settings::listen_addresses(config), settings::workers(config));
        let error = match StreamListeners::bind_or_inherit(&addresses, workers, inherited) {
            Ok(listeners) => return Ok(listeners),
            Err(error) => error,
        };
        let ListenAddress::Tcp(missing) = error.address else { return Err(advice::listen(&error)) };
        let missing = Listen::tcp(missing);
        if !by_default || !error.is_family_missing() || !config.http.listen.contains(&missing) {
            return Err(advice::listen(&error));
        }
        tracing::warn!(%error, "serving only the other address family; set http.listen to avoid this warning");
        config.http.listen.retain(|listen| *listen != missing);
    }
}

/// Returns the maximum number of connections of all workers together.
pub(crate) fn connections_max(
    config: &Config,
    workers: NonZeroUsize,
    sockets: &[Sockets],
    listeners: &[StreamListeners],
) -> u64 {
    let limit = descriptors::raise();
    let of_a_worker = sockets.first().map_or(0, |sockets| sockets.local_addrs().count())
        + listeners.first().map_or(0, |listeners| listeners.local_addresses().count());
    let possible = descriptors::for_connections(limit, workers.get(), of_a_worker);
    let wanted = match config.http.connections_max {
        Auto::Auto => possible,
        Auto::Set(wanted) => u64::from(wanted),
    };
    if wanted > possible {
        tracing::warn!(
            wanted,
            possible,
            open_files_limit = limit,
            "the limit on open files is too low for http.connections_max: the limit allows fewer, and beyond it the \
             oldest idle connection is closed; {}",
            advice::RAISE_OPEN_FILES
        );
    }
    // With more connections, health, metrics and certificates would lack descriptors.
    let connections_max = wanted.min(possible);
    tracing::info!(connections_max, open_files_limit = limit, "connections");
    connections_max
}

fn bind(config: &Config, inherited: &InheritedSockets) -> anyhow::Result<Vec<Sockets>> {
    let by_default = config.udp.listen == UdpConfig::default().listen;
    let wanted = settings::sockets(config);
    let sockets = pool::bind(&wanted, settings::workers(config), by_default, inherited);
    let sockets = sockets.map_err(advice::bind)?;
    let receive_buffer = config.udp.receive_buffer;
    tracing::info!(udp = addresses(&sockets), workers = sockets.len(), %receive_buffer, "sockets");
    advice::warn_of_shortfalls(sockets.iter().flat_map(Sockets::shortfalls));
    Ok(sockets)
}

/// Returns new descriptors of all sockets, named after their keys. The first `plain` listeners are those without TLS.
pub(crate) fn descriptors(
    sockets: &[Sockets],
    listeners: &[StreamListeners],
    plain: usize,
    control: &[(&'static str, OwnedFd)],
) -> io::Result<Vec<(String, OwnedFd)>> {
    let udp = sockets.iter().flat_map(Sockets::descriptors).map(|socket| ("udp", socket));
    let kinds = |number| if number < plain { "http" } else { "tls" };
    let tcp = listeners.iter().flat_map(|listeners| listeners.descriptors().enumerate());
    let tcp = tcp.map(|(number, socket)| (kinds(number), socket));
    let control = control.iter().map(|(kind, listener)| (*kind, listener.as_fd()));
    let mut seen = Vec::new();
    // Workers may share a socket.
    let mut is_new = |socket: BorrowedFd<'_>| {
        let inode = rustix::fs::fstat(socket).map(|socket| socket.st_ino);
        let is_new = !seen.contains(&inode);
        seen.push(inode);
        is_new
    };
    let all = udp.chain(tcp).chain(control).filter(|(_, socket)| is_new(*socket));
    all.map(|(kind, socket)| Ok((format!("{HANDED}{kind}"), socket.try_clone_to_owned()?))).collect()
}

/// Steers datagrams to the worker on the processor that receives them.
fn steer(sockets: &[Sockets], processors: &[usize]) -> anyhow::Result<()> {
    if sockets.len() > processors.len() {
        tracing::warn!(
            workers = sockets.len(),
            processors = processors.len(),
            "workers.steer has no effect: it needs a processor for each worker"
        );
    }
    Ok(Sockets::steer(sockets, processors)?)
}

/// Returns the addresses of all workers' listeners: the first `plain` ones without TLS, then the others with TLS.
pub(crate) fn listen_addresses(listeners: &[StreamListeners], plain: usize) -> (String, String) {
    let addresses = listeners.first().map(StreamListeners::local_addresses).into_iter().flatten();
    let shown: Vec<String> = addresses.map(ToString::to_string).collect();
    let (http, tls) = shown.split_at(plain.min(shown.len()));
    (http.join(", "), tls.join(", "))
}

/// Returns the addresses at which clients are served.
fn listening(sockets: &[Sockets], listeners: &[StreamListeners]) -> impl Iterator<Item = IpAddr> {
    let udp = sockets.first().map(Sockets::local_addrs).into_iter().flatten().map(|address| address.ip());
    let tcp = listeners.first().map(StreamListeners::local_addresses).into_iter().flatten();
    udp.chain(tcp.filter_map(|address| match address {
        ListenAddress::Tcp(address) => Some(address.ip()),
        ListenAddress::Unix(_) => None,
    }))
}

pub(crate) fn addresses(sockets: &[Sockets]) -> String {
    let addresses = sockets.first().map(Sockets::local_addrs).into_iter().flatten();
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(", ")
}
