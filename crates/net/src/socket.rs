//! The sockets of the workers: opened the same way for every back end, and described to whoever watches them.
//!
//! Owns the choice of socket options and the group of sockets that share a port. Does not receive or send.

mod address;
mod bind;
mod connect;
mod error;
pub(crate) mod options;
mod pktinfo;
mod probe;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(crate) use address::{NAME_BYTES, NAME_LEN, Name, decode_source, encode};
pub use bind::{BufferShortfall, SocketSettings};
pub use connect::{ClientSettings, ConnectError};
pub use error::BindError;
pub(crate) use error::explain;
pub(crate) use pktinfo::{CONTROL_BYTES, Control, turn_around};
pub use probe::{SocketMemory, SocketProbe};

use crate::{Bundler, Counters, FamilyCounters, Waker};

/// Most sockets of one worker.
pub const SOCKETS_MAX: usize = 64;

/// What one worker needs of the outside world: a socket for each address, what wakes it, and where it counts.
#[derive(Debug)]
pub struct Sockets {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) waker: Waker,
    /// Whatever else ends a turn when it becomes readable.
    pub(crate) watched: Option<OwnedFd>,
    pub(crate) counters: Arc<Counters>,
}

/// One bound socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: Arc<OwnedFd>,
    /// Where it is bound; the port is the real one where 0 was asked for.
    pub(crate) local: SocketAddr,
    shortfalls: Vec<BufferShortfall>,
}

impl Sockets {
    /// Binds the sockets of all workers: for each address one socket a worker, among which the kernel spreads the
    /// sources (`SO_REUSEPORT`). The first to bind an address does so alone, so that a port that anyone else uses,
    /// even another copy of this program, is an error and not a silent division of the traffic.
    ///
    /// # Errors
    /// Where an address cannot be bound, or there are more than [`SOCKETS_MAX`] of them.
    pub fn bind(settings: &[SocketSettings], workers: NonZeroUsize) -> Result<Vec<Self>, BindError> {
        if settings.len() > SOCKETS_MAX {
            return Err(BindError::TooMany(settings.len()));
        }
        let mut sets: Vec<_> = (0..workers.get()).map(|_| Self::new()).collect::<Result<_, _>>()?;
        for wanted in settings {
            for (set, listener) in sets.iter_mut().zip(bind::bind_group(wanted, workers)?) {
                set.listeners.push(listener);
            }
        }
        Ok(sets)
    }

    /// Opens the sockets of one worker that asks rather than answers: one from each local address, all connected to
    /// the same server. What comes from elsewhere, the kernel keeps away.
    ///
    /// # Errors
    /// Where a socket cannot be had, or there are more than [`SOCKETS_MAX`] of them.
    pub fn connect(settings: &ClientSettings<'_>) -> Result<Self, ConnectError> {
        if settings.locals.len() > SOCKETS_MAX {
            return Err(ConnectError::TooMany(settings.locals.len()));
        }
        let mut sockets = Self::new().map_err(|error| ConnectError::Waker(error.to_string()))?;
        for local in settings.locals {
            sockets.listeners.push(connect::open(*local, settings)?);
        }
        Ok(sockets)
    }

    /// What sends in bundles from these sockets.
    #[must_use]
    pub fn bundler(&self) -> Bundler {
        Bundler::new(self.listeners.iter().map(|listener| Arc::clone(&listener.socket)).collect())
    }

    /// Has a turn end as well when `descriptor` is readable, so that a worker can wait for both in one place.
    pub fn watch(&mut self, descriptor: OwnedFd) {
        self.watched = Some(descriptor);
    }

    /// Wakes the worker that these sockets belong to.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// What the worker counts.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Where the sockets are bound, in the order of the settings.
    pub fn local_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|listener| listener.local)
    }

    /// One probe for each socket, through which other threads see what the kernel drops.
    pub fn probes(&self) -> impl Iterator<Item = SocketProbe> {
        self.listeners.iter().map(|listener| SocketProbe::new(&listener.socket, listener.local))
    }

    /// Buffers that the kernel made smaller than the settings ask for.
    pub fn shortfalls(&self) -> impl Iterator<Item = &BufferShortfall> {
        self.listeners.iter().flat_map(|listener| &listener.shortfalls)
    }

    fn new() -> Result<Self, BindError> {
        let waker = Waker::new().map_err(BindError::Waker)?;
        Ok(Self { listeners: Vec::new(), waker, watched: None, counters: Arc::default() })
    }

    /// The counts of the family of socket `index`.
    pub(crate) fn family(&self, index: usize) -> &FamilyCounters {
        self.counters.family(&self.listeners[index].local)
    }
}
