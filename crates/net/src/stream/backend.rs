//! The choice of a stream back end: by name, or by what works on this host.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shoal_wire::stream::{Handle, Next, Origin};

use super::uring::slots::SLOTS_MAX;
use super::{
    EpollIo, ListenAddress, SourceLimits, StreamIo, StreamLimits, StreamListeners, StreamService, UringIo,
    UringSettings,
};
use crate::backend::{UnknownBackend, Unsupported, explain};

/// A kind of stream back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamBackend {
    /// `epoll`.
    Epoll,
    /// io_uring.
    Uring,
}

/// A stream back end of either kind. It is asked which one once a turn.
#[derive(Debug)]
pub enum AnyStreamIo<S: StreamService> {
    /// `epoll`.
    Epoll(Box<EpollIo<S>>),
    /// io_uring.
    Uring(Box<UringIo<S>>),
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
    pub const ALL: [Self; 2] = [Self::Epoll, Self::Uring];

    /// The first back end of [`StreamBackend::ALL`] that works on this host.
    #[must_use]
    pub fn choose() -> StreamChoice {
        let [preferred, fallback] = Self::ALL;
        match preferred.probe() {
            Ok(()) => StreamChoice { backend: preferred, passed_over: None },
            Err(unsupported) => StreamChoice { backend: fallback, passed_over: Some(unsupported) },
        }
    }

    /// The name by which it is chosen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        }
    }

    /// Finds out whether it works on this host: opens one, and has a connection answered.
    ///
    /// # Errors
    /// The reason why it does not work.
    pub fn probe(self) -> Result<(), Unsupported> {
        if self == Self::Epoll {
            // Plain system calls of any kernel: whatever fails about them is not the back end's fault.
            return Ok(());
        }
        // On a thread of its own: see `crate::Backend::probe`.
        let probe = std::thread::Builder::new().spawn(move || echo_once(self));
        let outcome = probe.and_then(|thread| thread.join().expect("no back end panics over one connection"));
        outcome.map_err(|error| Unsupported { backend: self.name(), reason: explain(&error) })
    }

    /// How many connections `workers` of a process can hold together that may have `descriptors_max` descriptors, of which
    /// `descriptors_left` are not needed for anything else. That is where the kernel spreads them evenly.
    #[must_use]
    pub fn connections_possible(
        self,
        descriptors_max: u64,
        descriptors_left: u64,
        workers: NonZeroUsize,
    ) -> u64 {
        match self {
            Self::Epoll => descriptors_left,
            Self::Uring => {
                // Beside its descriptors, each ring has a table of files that may have as many slots again.
                let slots = u64::from(SLOTS_MAX).min(descriptors_max);
                slots.saturating_mul(workers.get() as u64).saturating_add(descriptors_left)
            }
        }
    }

    /// Opens a back end of this kind on the listeners of a worker, on the thread of the worker.
    ///
    /// # Errors
    /// Where the kernel refuses; [`StreamBackend::probe`] tells in advance.
    pub fn open<S: StreamService>(
        self,
        listeners: StreamListeners,
        limits: StreamLimits,
    ) -> io::Result<AnyStreamIo<S>> {
        match self {
            Self::Epoll => Ok(AnyStreamIo::Epoll(Box::new(EpollIo::open(listeners, limits)?))),
            Self::Uring => {
                let io = UringIo::open(listeners, limits, &UringSettings::default())?;
                Ok(AnyStreamIo::Uring(Box::new(io)))
            }
        }
    }
}

impl<S: StreamService> StreamIo<S> for AnyStreamIo<S> {
    fn turn(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        match self {
            Self::Epoll(io) => io.turn(now_ms, service),
            Self::Uring(io) => io.turn(now_ms, service),
        }
    }

    fn retire(&mut self, now_ms: u64, service: &mut S) -> io::Result<()> {
        match self {
            Self::Epoll(io) => io.retire(now_ms, service),
            Self::Uring(io) => io.retire(now_ms, service),
        }
    }

    fn finish(&mut self, now_ms: u64, service: &mut S) -> io::Result<usize> {
        match self {
            Self::Epoll(io) => io.finish(now_ms, service),
            Self::Uring(io) => io.finish(now_ms, service),
        }
    }

    fn trim(&mut self) {
        match self {
            Self::Epoll(io) => io.trim(),
            Self::Uring(io) => io.trim(),
        }
    }

    fn connections(&self) -> usize {
        match self {
            Self::Epoll(io) => io.connections(),
            Self::Uring(io) => io.connections(),
        }
    }

    fn readiness(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Epoll(io) => io.readiness(),
            Self::Uring(io) => io.readiness(),
        }
    }
}

impl fmt::Display for StreamBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StreamBackend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let named = Self::ALL.into_iter().find(|backend| backend.name() == name);
        named.ok_or_else(|| UnknownBackend { name: name.to_owned(), known: r#""epoll" or "uring""# })
    }
}

/// How long a step of the probe's connection may take, within this host, and how many turns it may take.
const PROBE_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const PROBE_TURNS_MAX: usize = 10;

const PROBE_LIMITS: StreamLimits = StreamLimits {
    connections_max: 1,
    per_source: SourceLimits { http_max: 1, websockets_max: 1 },
    idle_ms_max: u64::MAX,
    request_ms_max: u64::MAX,
    send_ms_max: u64::MAX,
    answer_ms_max: u64::MAX,
    silent_ms_max: 60_000,
};

/// Says once what it hears.
struct EchoOnce;

impl StreamService for EchoOnce {
    type Session = ();

    fn open(&mut self, _: &Origin, _: Handle) {}

    fn receive(&mut self, (): &mut (), input: &mut [u8], output: &mut Vec<u8>) -> Next {
        output.extend_from_slice(input);
        Next::Close
    }

    fn expire(&mut self, (): &mut (), _: &mut Vec<u8>) {}

    fn refuse(&mut self, _: &Origin, _: &mut Vec<u8>) {}

    fn close(&mut self, (): ()) {}

    fn is_limited(&self, _: &Origin) -> bool {
        false
    }
}

fn echo_once(backend: StreamBackend) -> io::Result<()> {
    let (listeners, server) = listen_on_loopback()?;
    let mut io = backend.open::<EchoOnce>(listeners, PROBE_LIMITS)?;
    let readiness = io.readiness()?;
    let mut client = TcpStream::connect(server)?;
    client.write_all(b"ping")?;
    client.set_nonblocking(true)?;
    for _ in 0..PROBE_TURNS_MAX {
        let mut descriptors = [PollFd::new(&readiness, PollFlags::IN)];
        match poll(&mut descriptors, Some(&PROBE_TIMEOUT)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => io.turn(0, &mut EchoOnce)?,
            Err(errno) => return Err(errno.into()),
        };
        if matches!(client.read(&mut [0; 4]), Ok(4)) {
            return Ok(());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// On a host that has but one family, this finds out which.
fn listen_on_loopback() -> io::Result<(StreamListeners, SocketAddr)> {
    let bind = |ip| StreamListeners::bind(&[ListenAddress::Tcp(SocketAddr::new(ip, 0))], NonZeroUsize::MIN);
    let bound = bind(Ipv4Addr::LOCALHOST.into()).or_else(|_| bind(Ipv6Addr::LOCALHOST.into()));
    let listeners = bound.map_err(io::Error::other)?.pop().expect("one worker was asked for");
    let Some(ListenAddress::Tcp(server)) = listeners.local_addresses().next() else {
        unreachable!("one TCP address was asked for")
    };
    let server = *server;
    Ok((listeners, server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for backend in StreamBackend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        let error = "mmsg".parse::<StreamBackend>().unwrap_err();
        assert_eq!(error.to_string(), r#"there is no back end "mmsg": use "epoll" or "uring""#);
    }

    #[test]
    fn a_ring_has_slots_beside_the_descriptors() {
        let two = NonZeroUsize::new(2).unwrap();
        assert_eq!(StreamBackend::Epoll.connections_possible(20_000, 19_000, two), 19_000);
        assert_eq!(StreamBackend::Uring.connections_possible(20_000, 19_000, two), 59_000);
        let slots = u64::from(SLOTS_MAX);
        assert_eq!(StreamBackend::Uring.connections_possible(u64::MAX, 19_000, two), 2 * slots + 19_000);
    }

    #[test]
    fn every_back_end_answers_its_probe() {
        for backend in StreamBackend::ALL {
            match echo_once(backend) {
                Ok(()) => {}
                // A host without io_uring says so, and nothing else goes wrong there.
                Err(error) if backend == StreamBackend::Uring => {
                    assert!(Errno::from_io_error(&error).is_some(), "{error}");
                }
                Err(error) => panic!("{backend}: {error}"),
            }
        }
    }
}
