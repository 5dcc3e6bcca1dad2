//! The sockets of the workers: opened in the same way for every back end, and described to other threads.
//!
//! This module owns the choice of socket options and the groups of sockets that share a port. It does not receive or
//! send.

mod address;
mod bind;
mod connect;
mod error;
pub(crate) mod options;
mod pktinfo;
mod probe;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub(crate) use address::{NAME_BYTES, NAME_LEN, Name, decode_source, encode};
pub use bind::{BufferShortfall, SocketSettings};
pub use connect::{ClientSettings, ConnectError};
pub use error::BindError;
pub(crate) use error::explain;
pub(crate) use pktinfo::{CONTROL_BYTES, Control, turn_around};
pub use probe::{SocketMemory, SocketProbe};

use crate::inherited::{InheritedSockets, fits, places};
use crate::{Counters, FamilyCounters, SegmentedSender, Waker};

/// Maximum number of sockets of one worker.
pub const SOCKETS_MAX: usize = 64;

/// The descriptors and counters of one worker: a socket for each address, and the descriptor that ends its wait. A
/// socket closes with its last copy.
#[derive(Clone, Debug)]
pub struct Sockets {
    pub(crate) bound: Vec<BoundSocket>,
    pub(crate) waker: Waker,
    pub(crate) counters: Arc<Counters>,
}

#[derive(Clone, Debug)]
pub(crate) struct BoundSocket {
    pub(crate) socket: Arc<OwnedFd>,
    /// The address that it is bound to, with the actual port.
    pub(crate) local: SocketAddr,
    shortfalls: Vec<BufferShortfall>,
    /// Whether this process was given the socket.
    is_inherited: bool,
}

impl Sockets {
    /// Binds the sockets of all workers: for each address one socket per worker, among which the kernel distributes the
    /// sources (`SO_REUSEPORT`). The first socket of an address is bound alone, so that a port in use, even by another
    /// copy of this program, is an error and not a silent division of the traffic. Fails if an address cannot be bound,
    /// or if there are more than [`SOCKETS_MAX`].
    pub fn bind(settings: &[SocketSettings], workers: NonZeroUsize) -> Result<Vec<Self>, BindError> {
        Self::bind_or_inherit(settings, workers, &InheritedSockets::default())
    }

    /// Like [`bind`](Self::bind), but uses the given sockets with fitting addresses.
    pub fn bind_or_inherit(
        settings: &[SocketSettings],
        workers: NonZeroUsize,
        inherited: &InheritedSockets,
    ) -> Result<Vec<Self>, BindError> {
        if settings.len() > SOCKETS_MAX {
            return Err(BindError::TooMany(settings.len()));
        }
        let mut sets: Vec<_> = (0..workers.get()).map(|_| Self::new()).collect::<Result<_, _>>()?;
        for wanted in settings {
            for (set, socket) in sets.iter_mut().zip(bind::bind_group(wanted, workers, inherited)?) {
                set.bound.push(socket);
            }
        }
        Ok(sets)
    }

    /// Binds the sockets of one address for another process, one for each worker. The other process uses them as
    /// [`InheritedSockets`]. Fails as [`bind`](Self::bind) does.
    pub fn bind_for_others(
        wanted: &SocketSettings,
        workers: NonZeroUsize,
    ) -> Result<Vec<OwnedFd>, BindError> {
        let group = bind::bind_group(wanted, workers, &InheritedSockets::default())?;
        let own = |bound: BoundSocket| Arc::into_inner(bound.socket).expect("each was opened just now");
        Ok(group.into_iter().map(own).collect())
    }

    /// Returns the sockets of running workers for other addresses. Sockets of remaining addresses are the same, and new
    /// ones come from the `given` sockets. The wakers and counters come from `workers`. Fails as [`bind`](Self::bind)
    /// does.
    pub fn change(
        workers: &[Self],
        settings: &[SocketSettings],
        given: &InheritedSockets,
    ) -> Result<Vec<Self>, BindError> {
        if settings.len() > SOCKETS_MAX {
            return Err(BindError::TooMany(settings.len()));
        }
        let Some(count) = NonZeroUsize::new(workers.len()) else { return Ok(Vec::new()) };
        let mut changed: Vec<_> = workers.iter().map(Self::without_addresses).collect();
        for (wanted, place) in settings.iter().zip(Self::places(workers, settings)) {
            let group = match place {
                Some(place) => workers.iter().map(|worker| worker.bound[place].clone()).collect(),
                None => bind::own_group(bind::bind_group(wanted, count, given)?),
            };
            for (worker, socket) in changed.iter_mut().zip(group) {
                worker.bound.push(socket);
            }
        }
        Ok(changed)
    }

    /// Gives sockets the buffers of these settings, one for each socket. Fails if the kernel refuses.
    pub fn resize(&mut self, settings: &[SocketSettings]) -> Result<(), BindError> {
        self.bound.iter_mut().zip(settings).try_for_each(|(bound, wanted)| bind::resize(bound, wanted))
    }

    /// Returns the settings of the sockets that [`change`](Self::change) needs.
    pub fn missing<'s>(
        workers: &[Self],
        settings: &'s [SocketSettings],
    ) -> impl Iterator<Item = &'s SocketSettings> {
        let places = Self::places(workers, settings);
        settings.iter().zip(places).filter(|(_, place)| place.is_none()).map(|(wanted, _)| wanted)
    }

    fn places(workers: &[Self], settings: &[SocketSettings]) -> Vec<Option<usize>> {
        let locals: Vec<_> = workers.first().map(Self::local_addrs).into_iter().flatten().collect();
        places(&locals, settings, |local, wanted| fits(*local, wanted.addr))
    }

    /// Makes the kernel give each datagram to the worker on the processor that received it: worker `i` of `workers`, as
    /// returned by [`bind`](Self::bind), runs on the `i`th of `processors`. Datagrams of other processors are
    /// distributed as before, as are all datagrams if there are more workers than processors. Fails if the kernel
    /// refuses.
    pub fn steer(workers: &[Self], processors: &[usize]) -> Result<(), BindError> {
        let (Some(first), Some(processors)) = (workers.first(), processors.get(..workers.len())) else {
            return Ok(());
        };
        for bound in &first.bound {
            options::steer_by_processor(&bound.socket, processors)
                .map_err(BindError::at(bound.local, "SO_ATTACH_REUSEPORT_CBPF"))?;
        }
        Ok(())
    }

    /// Opens the sockets of one client worker: one from each local address, all connected to the same server. The
    /// kernel drops datagrams from other addresses. Fails if a socket cannot be opened, or if there are more than
    /// [`SOCKETS_MAX`].
    pub fn connect(settings: &ClientSettings<'_>) -> Result<Self, ConnectError> {
        if settings.locals.len() > SOCKETS_MAX {
            return Err(ConnectError::TooMany(settings.locals.len()));
        }
        let mut sockets = Self::new().map_err(|error| ConnectError::Waker(error.to_string()))?;
        for local in settings.locals {
            sockets.bound.push(connect::open(*local, settings)?);
        }
        Ok(sockets)
    }

    /// Returns the sockets of all addresses.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.bound.iter().map(|socket| socket.socket.as_fd())
    }

    /// Returns a sender that sends several datagrams in one call from these sockets.
    pub fn segmented_sender(&self) -> SegmentedSender {
        SegmentedSender::new(self.bound.iter().map(|socket| Arc::clone(&socket.socket)).collect())
    }

    /// Returns the waker of the worker that owns these sockets.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns the counters of the worker.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Returns the addresses that the sockets are bound to, in the order of the settings.
    pub fn local_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.bound.iter().map(|socket| socket.local)
    }

    /// Returns the sockets that this process has bound itself.
    pub fn own_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.bound.iter().filter(|socket| !socket.is_inherited).map(|socket| socket.socket.as_fd())
    }

    /// Returns a probe for each socket, through which other threads see what the kernel drops.
    pub fn probes(&self) -> impl Iterator<Item = SocketProbe> {
        self.bound.iter().map(|socket| SocketProbe::new(&socket.socket, socket.local))
    }

    /// Returns the buffers that the kernel made smaller than configured.
    pub fn shortfalls(&self) -> impl Iterator<Item = &BufferShortfall> {
        self.bound.iter().flat_map(|socket| &socket.shortfalls)
    }

    fn without_addresses(&self) -> Self {
        Self { bound: Vec::new(), waker: self.waker(), counters: self.counters() }
    }

    fn new() -> Result<Self, BindError> {
        let waker = Waker::new().map_err(BindError::Waker)?;
        Ok(Self { bound: Vec::new(), waker, counters: Arc::default() })
    }

    pub(crate) fn family(&self, index: usize) -> &FamilyCounters {
        self.counters.family(&self.bound[index].local)
    }
}
