//! The common parts of the back ends' tests: a server on a thread, and clients that never wait forever.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod stream;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use shoal_base::transport::datagram::DatagramService;
use shoal_net::{
    AnyIo, Backend, BindError, Counters, DatagramIo, SocketSettings, Sockets, TaskRun, UringIo,
    UringSettings, Waker,
};

/// Longer than anything takes here, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A back end as the tests open it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Mmsg,
    Uring(TaskRun),
}

/// Makes a module of tests for each kind of back end out of functions that take a [`Kind`].
#[macro_export]
macro_rules! over_every_back_end {
    ($($test:ident),+ $(,)?) => {
        over_every_back_end!(@module mmsg, $crate::common::Kind::Mmsg, $($test),+);
        over_every_back_end!(
            @module uring, $crate::common::Kind::Uring(shoal_net::TaskRun::Deferred), $($test),+);
        over_every_back_end!(
            @module uring_cooperative, $crate::common::Kind::Uring(shoal_net::TaskRun::Cooperative), $($test),+);
    };
    (@module $module:ident, $kind:expr, $($test:ident),+) => {
        mod $module {
            $(#[test]
            fn $test() {
                let kind = $kind;
                if kind.works() {
                    super::$test(kind);
                }
            })+
        }
    };
}

impl Kind {
    /// Returns whether the back end works on this host. One that does not must refuse to open.
    pub(crate) fn works(self) -> bool {
        let backend = match self {
            Self::Mmsg => Backend::Mmsg,
            Self::Uring(_) => Backend::Uring,
        };
        let Err(unsupported) = backend.probe() else { return true };
        let opened = self.try_open(bind_one(&["127.0.0.1:0"]));
        assert!(opened.is_err(), "{unsupported}, but it opens");
        false
    }

    pub(crate) fn open(self, sockets: Sockets) -> AnyIo {
        self.try_open(sockets).unwrap()
    }

    fn try_open(self, sockets: Sockets) -> io::Result<AnyIo> {
        match self {
            Self::Mmsg => Backend::Mmsg.open(sockets),
            Self::Uring(task_run) => {
                let settings = UringSettings { task_run, ..UringSettings::default() };
                Ok(AnyIo::Uring(Box::new(UringIo::open(sockets, &settings)?)))
            }
        }
    }
}

/// Binds the sockets of `workers` workers, each on all of `addrs`.
pub(crate) fn bind(addrs: &[&str], workers: usize) -> Result<Vec<Sockets>, BindError> {
    let settings: Vec<_> = addrs.iter().map(|addr| settings(addr.parse().unwrap())).collect();
    Sockets::bind(&settings, NonZeroUsize::new(workers).unwrap())
}

/// Binds the sockets of a single worker.
pub(crate) fn bind_one(addrs: &[&str]) -> Sockets {
    bind(addrs, 1).unwrap().remove(0)
}

pub(crate) fn settings(addr: SocketAddr) -> SocketSettings {
    SocketSettings { addr, recv_buffer_bytes: 1 << 20, send_buffer_bytes: 1 << 20 }
}

/// A worker: a back end on its own thread, until it is dropped.
pub(crate) struct Server {
    pub(crate) addrs: Vec<SocketAddr>,
    pub(crate) counters: Arc<Counters>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(kind: Kind, addrs: &[&str], service: impl DatagramService + Send + 'static) -> Self {
        Self::run(bind_one(addrs), move |sockets| kind.open(sockets), service)
    }

    pub(crate) fn run<Io: DatagramIo>(
        sockets: Sockets,
        open: impl FnOnce(Sockets) -> Io + Send + 'static,
        mut service: impl DatagramService + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (addrs, counters, waker) = (sockets.local_addrs().collect(), sockets.counters(), sockets.waker());
        let asked_to_stop = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut io = open(sockets);
            while !asked_to_stop.load(Ordering::Relaxed) {
                io.poll(PATIENCE, &mut service).unwrap();
            }
            io.drain(&mut service, || true).unwrap();
        });
        Self { addrs, counters, waker, stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server has panicked");
    }
}

/// Connects a client that receives only from `server`, with any local address.
pub(crate) fn connect(server: SocketAddr) -> UdpSocket {
    let local = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    connect_from(local, server)
}

/// Connects a client from a given address.
pub(crate) fn connect_from(local: &str, server: SocketAddr) -> UdpSocket {
    let client = UdpSocket::bind(local).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect(server).unwrap();
    client
}

/// Sends a request and waits for its reply.
pub(crate) fn ask(client: &UdpSocket, request: &[u8]) -> Vec<u8> {
    client.send(request).unwrap();
    receive(client)
}

/// Waits for a reply.
pub(crate) fn receive(client: &UdpSocket) -> Vec<u8> {
    let mut reply = vec![0; 4096];
    let length = client.recv(&mut reply).expect("a reply");
    reply.truncate(length);
    reply
}
