//! The choice of a back end: by name, or by what works on this host.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;
use shoal_base::transport::datagram::DatagramService;

use crate::ring::Ring;
use crate::stream::Readiness;
use crate::{DatagramIo, Echo, MmsgIo, SocketSettings, Sockets, UringIo, UringSettings, XdpIo, XdpQueue};

/// A kind of back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring.
    Uring,
    /// `recvmmsg` and `sendmmsg`.
    Mmsg,
}

/// A back end of any kind. The kind is checked once per poll round.
#[derive(Debug)]
pub enum AnyIo {
    /// io_uring.
    Uring(Box<UringIo>),
    /// `recvmmsg` and `sendmmsg`.
    Mmsg(Box<MmsgIo>),
    /// AF_XDP, with `recvmmsg` and `sendmmsg` in addition.
    Xdp(Box<XdpIo>),
}

/// A back end that its worker has yet to open.
#[derive(Debug)]
pub struct PreparedIo {
    sockets: Sockets,
    /// The ring, if it is io_uring.
    ring: Option<Ring>,
    queues: Vec<XdpQueue>,
}

/// The error that no back end has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no back end {name:?}: use \"mmsg\" or \"uring\"")]
pub struct UnknownBackend {
    /// The name.
    pub name: String,
}

/// The error that a back end does not work on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the back end {backend} does not work here: {reason}")]
pub struct Unsupported {
    /// The back end.
    pub backend: Backend,
    /// The reason, for the operator.
    pub reason: String,
}

/// The chosen back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The back end.
    pub backend: Backend,
    /// The preferred one, if it does not work.
    pub passed_over: Option<Unsupported>,
}

impl Backend {
    /// All back ends, the preferred one first. The order was measured (`cargo bench -p shoal-net`): with a core at its
    /// limit, `mmsg` takes 4 to 7 % less CPU time per response, over loopback and over veth, and the same below the
    /// limit. io_uring saves few system calls when each carries 64 datagrams, and its requests, completions and armed
    /// polls cost the kernel more than the headers of `recvmmsg` and `sendmmsg`.
    pub const ALL: [Self; 2] = [Self::Mmsg, Self::Uring];

    /// Returns the first back end of [`Backend::ALL`] that works on this host.
    pub fn choose() -> Choice {
        let [preferred, fallback] = Self::ALL;
        match preferred.probe() {
            Ok(()) => Choice { backend: preferred, passed_over: None },
            Err(unsupported) => Choice { backend: fallback, passed_over: Some(unsupported) },
        }
    }

    /// Returns its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Mmsg => "mmsg",
        }
    }

    /// Checks whether it works on this host: opens one, and sends a datagram through it and back. The error is the
    /// reason why it does not work.
    pub fn probe(self) -> Result<(), Unsupported> {
        if self == Self::Mmsg {
            // Every kernel has these system calls. Their errors have other causes.
            return Ok(());
        }
        // The probe runs on its own thread: when the kernel dismantles a closed ring, it interrupts any blocking call
        // of the ring's former thread.
        let probe = std::thread::Builder::new().spawn(move || echo_once(self));
        let outcome = probe.and_then(|thread| thread.join().expect("no back end panics over one datagram"));
        outcome.map_err(|error| Unsupported { backend: self, reason: explain(&error) })
    }

    /// Opens a back end of this kind on the sockets of a worker. Must be called on the worker's thread. Fails if the
    /// kernel refuses, which [`Backend::probe`] shows in advance.
    pub fn open(self, sockets: Sockets) -> io::Result<AnyIo> {
        self.prepare(sockets)?.open()
    }

    /// Prepares a back end of this kind, on any thread: does everything that the sandbox of a worker forbids. Fails as
    /// [`open`](Self::open) does.
    pub fn prepare(self, sockets: Sockets) -> io::Result<PreparedIo> {
        let ring = match self {
            Self::Uring => Some(UringIo::create_ring(&sockets, &UringSettings::default())?),
            Self::Mmsg => None,
        };
        Ok(PreparedIo { sockets, ring, queues: Vec::new() })
    }
}

impl PreparedIo {
    /// Adds AF_XDP sockets. `recvmmsg` and `sendmmsg` then always serve the ordinary sockets.
    #[must_use]
    pub fn with_xdp(mut self, queues: Vec<XdpQueue>) -> Self {
        self.queues.extend(queues);
        self
    }

    /// Opens the back end, on the thread of its worker. Fails as [`Backend::open`] does.
    pub fn open(self) -> io::Result<AnyIo> {
        let Self { sockets, ring, queues } = self;
        if !queues.is_empty() {
            return Ok(AnyIo::Xdp(Box::new(XdpIo::open(sockets, queues)?)));
        }
        Ok(match ring {
            Some(ring) => {
                AnyIo::Uring(Box::new(UringIo::with_ring(ring, sockets, &UringSettings::default())?))
            }
            None => AnyIo::Mmsg(Box::new(MmsgIo::open(sockets)?)),
        })
    }
}

impl AnyIo {
    /// Takes the AF_XDP sockets, for the back end that replaces this one ([`PreparedIo::with_xdp`]).
    pub fn take_xdp(&mut self) -> Vec<XdpQueue> {
        match self {
            Self::Xdp(io) => io.take_queues(),
            Self::Uring(_) | Self::Mmsg(_) => Vec::new(),
        }
    }
}

impl DatagramIo for AnyIo {
    fn poll(&mut self, timeout: Duration, service: &mut impl DatagramService) -> io::Result<usize> {
        match self {
            Self::Uring(io) => io.poll(timeout, service),
            Self::Mmsg(io) => io.poll(timeout, service),
            Self::Xdp(io) => io.poll(timeout, service),
        }
    }

    fn coalesce(&mut self, time: Duration) -> io::Result<()> {
        match self {
            Self::Uring(io) => io.coalesce(time),
            Self::Mmsg(io) => io.coalesce(time),
            Self::Xdp(io) => io.coalesce(time),
        }
    }

    fn watch(&mut self, readiness: Option<Readiness>) -> io::Result<()> {
        match self {
            Self::Uring(io) => io.watch(readiness),
            Self::Mmsg(io) => io.watch(readiness),
            Self::Xdp(io) => io.watch(readiness),
        }
    }

    fn pause(&mut self, service: &mut impl DatagramService) -> io::Result<()> {
        match self {
            Self::Uring(io) => io.pause(service),
            Self::Mmsg(io) => io.pause(service),
            Self::Xdp(io) => io.pause(service),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let named = Self::ALL.into_iter().find(|backend| backend.to_string() == name);
        named.ok_or_else(|| UnknownBackend { name: name.to_owned() })
    }
}

/// Maximum time for the datagram of a probe, there and back within this host.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

fn echo_once(backend: Backend) -> io::Result<()> {
    let bind = |ip| {
        let addr = SocketAddr::new(ip, 0);
        let settings = SocketSettings { addr, recv_buffer_bytes: 4096, send_buffer_bytes: 4096 };
        Sockets::bind(&[settings], NonZeroUsize::MIN)
    };
    // The host may lack one family.
    let bound = bind(Ipv4Addr::LOCALHOST.into()).or_else(|_| bind(Ipv6Addr::LOCALHOST.into()));
    let sockets = bound.map_err(io::Error::other)?.into_iter().next().expect("one worker was asked for");
    let server = sockets.local_addrs().next().expect("one address was asked for");
    let client = UdpSocket::bind(SocketAddr::new(server.ip(), 0))?;
    client.set_read_timeout(Some(PROBE_TIMEOUT))?;
    let mut io = backend.open(sockets)?;
    client.send_to(b"ping", server)?;
    io.poll(PROBE_TIMEOUT, &mut Echo::default())?;
    client.recv(&mut [0; 4]).map(drop)
}

fn explain(error: &io::Error) -> String {
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return "a datagram to this host itself was not answered".to_owned();
    }
    match Errno::from_io_error(error) {
        Some(Errno::NOSYS) => "this kernel has no io_uring".to_owned(),
        Some(Errno::PERM | Errno::ACCESS) => {
            "io_uring is forbidden, by the sysctl kernel.io_uring_disabled or \
             by the rules of a container"
                .to_owned()
        }
        Some(Errno::INVAL) => "this kernel is too old: io_uring needs Linux 6.0".to_owned(),
        Some(Errno::NOMEM) => "there is not enough memory that may be locked (ulimit -l)".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        let error = "epoll".parse::<Backend>().unwrap_err();
        assert_eq!(error.to_string(), r#"there is no back end "epoll": use "mmsg" or "uring""#);
    }

    #[test]
    fn the_portable_back_end_always_works() {
        assert_eq!(Backend::Mmsg.probe(), Ok(()));
    }

    #[test]
    fn a_reason_names_what_to_change() {
        let forbidden = Unsupported { backend: Backend::Uring, reason: explain(&Errno::PERM.into()) };
        assert!(forbidden.to_string().contains("kernel.io_uring_disabled"), "{forbidden}");
        assert!(explain(&io::ErrorKind::WouldBlock.into()).contains("not answered"));
    }
}
