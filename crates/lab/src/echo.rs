//! `shoal-lab echo`.

mod bundled;
mod http;
mod stream;
mod ws;
mod xdp;

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shoal_base::transport::datagram::DatagramService;
use shoal_load::udp::Echo as UdpEcho;
use shoal_net::stream::{ListenAddress, StreamListeners};
use shoal_net::{Backend, DatagramIo, SocketSettings, Sockets, XdpIo};
use shoal_session::tls::{CertificateFiles, Server, self_signed};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::load::args::positive;
use crate::terminal;
use http::HttpEcho;
use stream::{EchoProtocol, EchoService};
use ws::WsEcho;
use xdp::DriverEcho;

/// Answer like a tracker that does nothing: the limit that kernel and back end set.
///
/// Replies have the format and size of a tracker's replies. No tracker can beat it on the same machine with the same
/// back end, so the difference is the cost of the tracker itself.
///
/// It answers every request, with more bytes than it received: do not expose it to the internet. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub(crate) struct EchoArgs {
    /// The addresses to listen on, separated by commas
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6969", value_delimiter = ',')]
    listen: Vec<SocketAddr>,

    /// The back end for datagrams: mmsg or uring
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::ALL[0], conflicts_with = "connections")]
    io: Backend,

    /// Also answer past the kernel's socket path at this network interface, which has one queue: connects by the XDP program
    /// of Shoal, and the rest by an AF_XDP socket
    #[arg(long, value_name = "INTERFACE", conflicts_with = "connections")]
    xdp: Option<String>,

    /// Threads, each with its own sockets
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    workers: NonZeroUsize,

    /// Bytes of an announce reply, 20 to 1452, rounded down to whole peers; over HTTP, bytes of the body
    #[arg(long, value_name = "BYTES", default_value = "200",
        value_parser = clap::value_parser!(u16).range(20..=1452))]
    announce_reply_bytes: u16,

    /// Send the replies of a batch to the same socket in one system call. No tracker can do that, because its clients
    /// have many sockets; it relieves the echo so much that a load generator reaches its own limit
    #[arg(long, conflicts_with = "connections")]
    bundle: bool,

    /// Serve HTTP instead of UDP: each request gets the same announce reply
    #[arg(long, group = "connections")]
    http: bool,

    /// Serve WebSockets instead of UDP: each text or binary message is returned unchanged
    #[arg(long, group = "connections")]
    ws: bool,

    /// Use TLS
    #[arg(long, requires = "connections")]
    tls: bool,

    /// The certificate, in PEM [default: a new one for localhost]
    #[arg(long, value_name = "FILE", requires = "tls", requires = "key")]
    certificate: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

/// The requested size of socket buffers, like that of a tracker. The kernel may grant less.
const BUFFER_BYTES: usize = 4 << 20;

/// How long a signal may have to wait.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);

impl EchoArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot wait for signals")?;
        }
        if self.ws {
            self.run_stream("WS", WsEcho, &stop)?
        } else if self.http {
            self.run_stream("HTTP", HttpEcho::new(self.announce_reply_bytes.into()), &stop)?
        } else {
            self.run_udp(&stop)?
        }
        Ok(ExitCode::SUCCESS)
    }

    fn run_udp(&self, stop: &AtomicBool) -> Result<()> {
        let io = self.io;
        let settings = |addr: &SocketAddr| SocketSettings {
            addr: *addr,
            recv_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: BUFFER_BYTES,
        };
        let settings: Vec<_> = self.listen.iter().map(settings).collect();
        ensure!(!self.bundle || settings.len() == 1, "--bundle takes one --listen address");
        let mut sockets = Sockets::bind(&settings, self.workers)?;
        let listening = sockets.first().map(|first| first.local_addrs().map(|addr| addr.to_string()));
        note_listening("UDP", listening.into_iter().flatten(), io);
        let v4 = self.listen.iter().all(SocketAddr::is_ipv4);
        let service = UdpEcho::new(self.announce_reply_bytes.into(), if v4 { 6 } else { 18 });
        if let Some(interface) = &self.xdp {
            ensure!(sockets.len() == 1, "--xdp serves one queue, by one of the --workers");
            let (_attached, queue) = DriverEcho::attach(interface, &self.listen)?;
            let sockets = sockets.pop().context("there is one")?;
            return serve_by(XdpIo::open(sockets, vec![queue])?, service, stop);
        }
        on_threads(sockets, |sockets| {
            if self.bundle {
                let bundled = bundled::BundledEcho::new(service, &sockets);
                serve(io, sockets, bundled, stop)
            } else {
                serve(io, sockets, service, stop)
            }
        })
    }

    fn run_stream<P>(&self, protocol_name: &str, protocol: P, stop: &AtomicBool) -> Result<()>
    where
        P: EchoProtocol + Clone + Sync,
    {
        let tls = if self.tls { Some(self.tls_server()?) } else { None };
        let addresses: Vec<_> = self.listen.iter().copied().map(ListenAddress::Tcp).collect();
        let listeners = StreamListeners::bind(&addresses, self.workers)?;
        let listening = listeners.first().map(|first| first.local_addresses().map(ListenAddress::to_string));
        let secure = if self.tls { "S" } else { "" };
        note_listening(&format!("{protocol_name}{secure}"), listening.into_iter().flatten(), "epoll");
        let service = EchoService::new(protocol, tls);
        on_threads(listeners, |listeners| stream::serve(listeners, service.clone(), stop))
    }

    fn tls_server(&self) -> Result<Server> {
        if let Some(chain) = &self.certificate {
            return Ok(Server::load(&[CertificateFiles { chain: chain.clone(), key: self.key.clone() }])?);
        }
        let made = self_signed(&["localhost".to_owned()])?;
        let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
        let file = folder.path().join("certificate.pem");
        // One file may contain the certificate and its key.
        fs::write(&file, made.certificate_pem + &made.key_pem).context("cannot write a certificate")?;
        Ok(Server::load(&[CertificateFiles { chain: file, key: None }])?)
    }
}

fn note_listening(protocol: &str, listening: impl Iterator<Item = String>, io: impl std::fmt::Display) {
    let listening: Vec<String> = listening.collect();
    terminal::note(&format!("echo listens on {protocol} {} by {io}", listening.join(", ")));
}

/// Serves each item on its own thread.
fn on_threads<S: Send>(all: Vec<S>, serve: impl Fn(S) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let serve = &serve;
        let workers: Vec<_> = all.into_iter().map(|one| scope.spawn(move || serve(one))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

fn serve(io: Backend, sockets: Sockets, service: impl DatagramService, stop: &AtomicBool) -> Result<()> {
    let io = io.open(sockets).with_context(|| format!("cannot open the back end {io}"))?;
    serve_by(io, service, stop)
}

fn serve_by(mut io: impl DatagramIo, mut service: impl DatagramService, stop: &AtomicBool) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        io.poll(POLL_TIMEOUT, &mut service).context("the sockets failed")?;
    }
    Ok(())
}
