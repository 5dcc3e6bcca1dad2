//! The sockets of running workers, and how a reload changes them.
//!
//! This module owns the descriptors of all workers from the start on. A sandboxed tracker cannot bind, so the broker
//! binds new sockets before anything changes: if that fails, the reload is refused. Each worker adopts its sockets
//! together with the other values of the same reload ([`shoal_runtime::live::Live`]), because the settings of
//! connections refer to listeners by number.
//!
//! A worker changes its sockets between two poll rounds. It answers the requests that wait in the sockets it gives
//! up, and opens a back end on the new set. Remaining sockets are not reopened, so requests wait in them meanwhile. A
//! worker may not set up rings, so the control plane creates them with their restrictions, and the worker enables
//! them (`shoal_net::Backend::prepare`).

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use shoal_config::{Config, Listen, UdpConfig};
use shoal_net::stream::{ListenAddress, StreamListeners};
use shoal_net::{Backend, InheritedSockets, SocketProbe, SocketSettings, Sockets};
use shoal_session::{ListenerProtocols, SessionSettings};

use crate::broker::Broker;
use crate::service_manager::{SocketChanges, socket_name};
use crate::settings;
use crate::sockets::bound::{self, Bound, ControlSockets};
use shoal_runtime::advice;
use shoal_runtime::live::{Endpoints, WorkerEndpoints};

pub(crate) struct Listening {
    backend: Backend,
    /// The processors of the workers, if datagrams are steered to them.
    steered: Vec<usize>,
    sockets: Vec<Sockets>,
    listeners: Vec<StreamListeners>,
    /// The sockets of the control listener with their kinds.
    control: Vec<(&'static str, OwnedFd)>,
    /// `http.listen` without the address families that this host lacks.
    http: Vec<Listen>,
    /// The descriptors of the XDP data path, with their names.
    data_path: Vec<(String, OwnedFd)>,
}

/// A prepared change, not yet adopted.
pub(crate) struct Change {
    sockets: Vec<Sockets>,
    settings: Vec<SocketSettings>,
    listeners: Vec<StreamListeners>,
    http: Vec<Listen>,
    pub(crate) endpoints: Arc<Endpoints>,
}

/// Returns whether the sockets of `config` and `running` differ.
pub(crate) fn is_change(running: &Config, config: &Config) -> bool {
    fn parts(Config { udp, http, tls, .. }: &Config) -> impl PartialEq {
        let UdpConfig { listen, receive_buffer, .. } = udp.clone();
        (listen, receive_buffer, http.listen.clone(), http.connections_max, tls.listen.clone())
    }
    parts(running) != parts(config)
}

impl Change {
    /// Returns the protocols of all listeners, in their order.
    pub(crate) fn listener_protocols(&self, config: &Config) -> Vec<ListenerProtocols> {
        let mut config = config.clone();
        config.http.listen.clone_from(&self.http);
        SessionSettings::of(&config).listeners
    }
}

impl Listening {
    /// Duplicates all descriptors. Fails if the kernel has no more descriptors.
    pub(crate) fn new(bound: &Bound) -> io::Result<Self> {
        let Bound { config, backend, processors, sockets, listeners, control, data_path, .. } = bound;
        let control = control.as_ref().map(ControlSockets::descriptors).transpose()?.unwrap_or_default();
        Ok(Self {
            backend: *backend,
            steered: if config.workers.steer { processors.clone() } else { Vec::new() },
            sockets: sockets.clone(),
            listeners: listeners.clone(),
            control,
            http: config.http.listen.clone(),
            data_path: data_path.descriptors()?,
        })
    }

    /// Returns the sockets that workers and metrics see at the start.
    pub(crate) fn endpoints(&self, connections_max: u64) -> Endpoints {
        Endpoints { connections_max, probes: probes(&self.sockets), new: Vec::new() }
    }

    pub(crate) fn descriptors(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let plain = self.http.len();
        let mut all = bound::descriptors(&self.sockets, &self.listeners, plain, &self.control)?;
        for (name, descriptor) in &self.data_path {
            all.push((name.clone(), descriptor.try_clone()?));
        }
        Ok(all)
    }

    /// Closes all sockets in this process, for another process that uses them.
    pub(crate) fn leave(&mut self) {
        self.listeners.iter().for_each(StreamListeners::leave_files);
        self.close();
    }

    /// Closes these copies, and leaves the sockets to the workers.
    pub(crate) fn close(&mut self) {
        self.sockets.clear();
        self.listeners.clear();
        self.control.clear();
        self.data_path.clear();
    }

    /// Binds the addresses that `config` lists and `running` does not. The error says which address cannot be bound,
    /// and why.
    pub(crate) fn prepare(
        &self,
        broker: &Broker,
        running: &Config,
        config: &Config,
    ) -> Result<Change, String> {
        let mut config = config.clone();
        if config.http.listen == running.http.listen {
            config.http.listen.clone_from(&self.http);
        }
        if config.udp.listen == running.udp.listen {
            // The kernel may have chosen ports, and this host may lack a family.
            config.udp.listen =
                self.sockets.first().map_or(Vec::new(), |first| first.local_addrs().collect());
        }
        let settings = settings::sockets(&config);
        let sockets = self.change_sockets(broker, &settings)?;
        let listeners = self.change_listeners(broker, &settings::listen_addresses(&config))?;
        let workers = settings::workers(&config);
        let connections_max = bound::connections_max(&config, workers, &sockets, &listeners);
        let limits = settings::stream_limits(&config, connections_max);
        let prepare = |(sockets, listeners): (&Sockets, &StreamListeners)| {
            let datagrams = self.backend.prepare(sockets.clone())?;
            Ok(Mutex::new(Some(WorkerEndpoints { datagrams, listeners: listeners.clone(), limits })))
        };
        let new = sockets.iter().zip(&listeners).map(prepare).collect::<io::Result<_>>();
        let new = new.map_err(|error| format!("udp.io: a back end cannot be opened: {error}"))?;
        let endpoints = Arc::new(Endpoints { connections_max, probes: probes(&sockets), new });
        Ok(Change { sockets, settings, listeners, http: config.http.listen, endpoints })
    }

    /// Adopts a change. The workers are about to adopt it as well. Returns the sockets that have changed.
    pub(crate) fn commit(&mut self, change: Change) -> SocketChanges {
        let changes = self.difference(&change);
        let Change { mut sockets, settings, listeners, http, .. } = change;
        // Remaining sockets had other options. The kernel accepted them once, so it does so again.
        if let Err(error) = sockets.iter_mut().try_for_each(|sockets| sockets.resize(&settings)) {
            tracing::warn!(%error, "the buffers of sockets stay as they were");
        }
        advice::warn_of_shortfalls(sockets.iter().flat_map(Sockets::shortfalls));
        (self.sockets, self.listeners, self.http) = (sockets, listeners, http);
        let plain = self.http.len();
        let (http, tls) = bound::listen_addresses(&self.listeners, plain);
        tracing::info!(udp = bound::addresses(&self.sockets), http, tls, "listening");
        changes
    }

    fn difference(&self, change: &Change) -> SocketChanges {
        let (old, new) = (named(&self.sockets, &self.listeners), named(&change.sockets, &change.listeners));
        let is_in = |all: &[(String, BorrowedFd<'_>)], name: &str| all.iter().any(|(other, _)| other == name);
        let added = new.iter().filter(|(name, _)| !is_in(&old, name));
        SocketChanges {
            // The next process binds a socket again that cannot be copied.
            new: added.filter_map(|(_, socket)| socket.try_clone_to_owned().ok()).collect(),
            unused: old.iter().map(|(name, _)| name).filter(|name| !is_in(&new, name)).cloned().collect(),
        }
    }

    fn change_sockets(&self, broker: &Broker, wanted: &[SocketSettings]) -> Result<Vec<Sockets>, String> {
        let mut given = InheritedSockets::default();
        for settings in Sockets::missing(&self.sockets, wanted) {
            let bound = broker.bind_datagrams(settings, self.workers())?;
            adopt(&mut given, bound)?;
        }
        let changed = Sockets::change(&self.sockets, wanted, &given);
        let changed = changed.map_err(|error| format!("{:#}", advice::bind(error)))?;
        let steered = Sockets::steer(&changed, &self.steered);
        steered.map_err(|error| format!("{:#}", advice::bind(error)))?;
        Ok(changed)
    }

    fn change_listeners(
        &self,
        broker: &Broker,
        wanted: &[ListenAddress],
    ) -> Result<Vec<StreamListeners>, String> {
        let mut given = InheritedSockets::default();
        for address in StreamListeners::missing(&self.listeners, wanted) {
            let bound = broker.bind_listeners(address, self.workers())?;
            adopt(&mut given, bound)?;
        }
        let changed = StreamListeners::change(&self.listeners, wanted, &given);
        changed.map_err(|error| format!("{:#}", advice::listen(&error)))
    }

    fn workers(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.sockets.len()).unwrap_or(NonZeroUsize::MIN)
    }
}

/// Returns all sockets with the names under which a service manager keeps them.
fn named<'s>(sockets: &'s [Sockets], listeners: &'s [StreamListeners]) -> Vec<(String, BorrowedFd<'s>)> {
    let streams = listeners.iter().flat_map(StreamListeners::descriptors);
    let all = sockets.iter().flat_map(Sockets::descriptors).chain(streams);
    all.filter_map(|socket| Some((socket_name(socket)?, socket))).collect()
}

fn probes(sockets: &[Sockets]) -> Vec<Vec<SocketProbe>> {
    sockets.iter().map(|sockets| sockets.probes().collect()).collect()
}

fn adopt(given: &mut InheritedSockets, bound: Vec<OwnedFd>) -> Result<(), String> {
    bound.into_iter().try_for_each(|socket| {
        given.add(String::new(), socket).map_err(|error| format!("a new socket cannot be used: {error}"))
    })
}
