//! The choice of a stream back end: by name, or by what works on this host.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use super::{EpollIo, StreamIo, StreamLimits, StreamListeners, StreamService};
use crate::backend::{UnknownBackend, Unsupported};

/// A kind of stream back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamBackend {
    /// `epoll`.
    Epoll,
}

/// A stream back end of either kind.
pub enum AnyStreamIo<S: StreamService> {
    /// `epoll`.
    Epoll(Box<EpollIo<S>>),
}

/// The stream back end that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamChoice {
    /// Which one.
    pub backend: StreamBackend,
    /// The one that would have been preferred, if it worked.
    pub passed_over: Option<Unsupported>,
}

impl StreamBackend {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 1] = [Self::Epoll];

    /// The first back end of [`StreamBackend::ALL`] that works on this host.
    #[must_use]
    pub const fn choose() -> StreamChoice {
        StreamChoice { backend: Self::Epoll, passed_over: None }
    }

    /// Finds out whether it works on this host.
    ///
    /// # Errors
    /// The reason why it does not work.
    pub const fn probe(self) -> Result<(), Unsupported> {
        match self {
            Self::Epoll => Ok(()),
        }
    }

    /// Opens a back end of this kind on the listeners of a worker, on the thread of the worker.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn open<S: StreamService>(
        self,
        listeners: StreamListeners,
        limits: StreamLimits,
    ) -> io::Result<AnyStreamIo<S>> {
        match self {
            Self::Epoll => Ok(AnyStreamIo::Epoll(Box::new(EpollIo::open(listeners, limits)?))),
        }
    }
}

impl<S: StreamService> StreamIo<S> for AnyStreamIo<S> {
    fn turn(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        match self {
            Self::Epoll(io) => io.turn(now_ms, service),
        }
    }

    fn retire(&mut self, now_ms: u64, service: &mut S) -> io::Result<()> {
        match self {
            Self::Epoll(io) => io.retire(now_ms, service),
        }
    }

    fn connections(&self) -> usize {
        match self {
            Self::Epoll(io) => io.connections(),
        }
    }

    fn readiness(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Epoll(io) => io.readiness(),
        }
    }
}

impl fmt::Display for StreamBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Epoll => "epoll",
        })
    }
}

impl FromStr for StreamBackend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let named = Self::ALL.into_iter().find(|backend| backend.to_string() == name);
        named.ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}
