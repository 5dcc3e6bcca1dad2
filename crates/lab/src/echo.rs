//! `shoal-lab echo`.

mod bundled;
mod http;
mod stream;
mod ws;

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
use shoal_load::udp::Echo as Service;
use shoal_net::stream::{ListenAddress, StreamListeners};
use shoal_net::{Backend, DatagramIo, SocketSettings, Sockets};
use shoal_tls::{CertificateFiles, Server, self_signed};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::output;
use http::HttpEcho;
use stream::{Conversation, Spoken};
use ws::WsEcho;

/// Answer like a tracker that does nothing: the limit that kernel and back end set.
///
/// Replies have the form and size of a tracker's. No tracker can beat it on the same machine with the same back end, so
/// what a tracker falls short of it is what the tracker itself costs.
///
/// It answers everybody, with more bytes than were sent: do not let it be reached from the internet. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub(crate) struct Echo {
    /// Where to listen; with several addresses, separated by commas, on all of them
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6969", value_delimiter = ',')]
    listen: Vec<SocketAddr>,

    /// What moves the datagrams: mmsg or uring
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::ALL[0], conflicts_with = "connections")]
    io: Backend,

    /// Threads, each with sockets of its own
    #[arg(long, value_name = "N", default_value = "1")]
    workers: NonZeroUsize,

    /// Bytes of an announce reply, 20 to 1452, rounded down to whole peers; over HTTP those of its body
    #[arg(long, value_name = "BYTES", default_value = "200",
        value_parser = clap::value_parser!(u16).range(20..=1452))]
    announce_reply_bytes: u16,

    /// Send the replies of a batch that go to the same socket in one system call. No tracker could do that, whose
    /// clients are many; it takes so much work off the echo that a load generator finds its own limit
    #[arg(long, conflicts_with = "connections")]
    bundle: bool,

    /// Answer over HTTP instead of UDP, each request with the same announce reply
    #[arg(long, group = "connections")]
    http: bool,

    /// Answer over WebSocket instead of UDP: each message of text or bytes goes back as it came
    #[arg(long, group = "connections")]
    ws: bool,

    /// By TLS
    #[arg(long, requires = "connections")]
    tls: bool,

    /// The certificate, in PEM [default: one for localhost that is made for this run]
    #[arg(long, value_name = "FILE", requires = "tls", requires = "key")]
    certificate: Option<PathBuf>,

    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

/// As a tracker asks for; the kernel may grant less.
const BUFFER_BYTES: usize = 4 << 20;

/// How long a signal may wait.
const TURN: Duration = Duration::from_millis(100);

impl Echo {
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
        let sockets = Sockets::bind(&settings, self.workers)?;
        let listening = sockets.first().map(|first| first.local_addrs().map(|addr| addr.to_string()));
        say("UDP", listening.into_iter().flatten(), io);
        let v4 = self.listen.iter().all(SocketAddr::is_ipv4);
        let service = Service::new(self.announce_reply_bytes.into(), if v4 { 6 } else { 18 });
        on_threads(sockets, |sockets| {
            if self.bundle {
                let bundled = bundled::Bundled::new(service, &sockets);
                serve(io, sockets, bundled, stop)
            } else {
                serve(io, sockets, service, stop)
            }
        })
    }

    fn run_stream<C>(&self, protocol: &str, conversation: C, stop: &AtomicBool) -> Result<()>
    where
        C: Conversation + Clone + Sync,
    {
        let tls = if self.tls { Some(self.tls_server()?) } else { None };
        let addresses: Vec<_> = self.listen.iter().copied().map(ListenAddress::Tcp).collect();
        let listeners = StreamListeners::bind(&addresses, self.workers)?;
        let listening = listeners.first().map(|first| first.local_addresses().map(ListenAddress::to_string));
        let secure = if self.tls { "S" } else { "" };
        say(&format!("{protocol}{secure}"), listening.into_iter().flatten(), "epoll");
        let spoken = Spoken::new(conversation, tls);
        on_threads(listeners, |listeners| stream::serve(listeners, spoken.clone(), stop))
    }

    fn tls_server(&self) -> Result<Server> {
        if let Some(chain) = &self.certificate {
            return Ok(Server::load(&[CertificateFiles { chain: chain.clone(), key: self.key.clone() }])?);
        }
        let made = self_signed(&["localhost".to_owned()])?;
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let file = folder.path().join("certificate.pem");
        // The certificate and its key may lie in one file.
        fs::write(&file, made.certificate_pem + &made.key_pem).context("cannot write a certificate")?;
        Ok(Server::load(&[CertificateFiles { chain: file, key: None }])?)
    }
}

fn say(protocol: &str, listening: impl Iterator<Item = String>, io: impl std::fmt::Display) {
    let listening: Vec<String> = listening.collect();
    output::tell(&format!("echo listens on {protocol} {} by {io}", listening.join(", ")));
}

/// Serves each of these on a thread of its own.
fn on_threads<S: Send>(all: Vec<S>, serve: impl Fn(S) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let serve = &serve;
        let workers: Vec<_> = all.into_iter().map(|one| scope.spawn(move || serve(one))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

fn serve(
    io: Backend,
    sockets: Sockets,
    mut service: impl shoal_net::Service,
    stop: &AtomicBool,
) -> Result<()> {
    let mut io = io.open(sockets).with_context(|| format!("cannot open the back end {io}"))?;
    while !stop.load(Ordering::Relaxed) {
        io.turn(TURN, &mut service).context("the sockets failed")?;
    }
    Ok(())
}
