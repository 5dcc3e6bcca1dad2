//! `shoal-lab echo`.

mod bundled;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shoal_load::udp::Echo as Service;
use shoal_net::{Backend, DatagramIo, SocketSettings, Sockets};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::output;

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
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::ALL[0])]
    io: Backend,

    /// Threads, each with sockets of its own
    #[arg(long, value_name = "N", default_value = "1")]
    workers: NonZeroUsize,

    /// Bytes of an announce reply, 20 to 1452, rounded down to whole peers
    #[arg(long, value_name = "BYTES", default_value = "200",
        value_parser = clap::value_parser!(u16).range(20..=1452))]
    announce_reply_bytes: u16,

    /// Send the replies of a batch that go to the same socket in one system call. No tracker could do that, whose
    /// clients are many; it takes so much work off the echo that a load generator finds its own limit
    #[arg(long)]
    bundle: bool,
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
        let settings = |addr: &SocketAddr| SocketSettings {
            addr: *addr,
            recv_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: BUFFER_BYTES,
        };
        let settings: Vec<_> = self.listen.iter().map(settings).collect();
        ensure!(!self.bundle || settings.len() == 1, "--bundle takes one --listen address");
        let sockets = Sockets::bind(&settings, self.workers)?;
        let listening =
            sockets.first().map(|first| first.local_addrs().map(|addr| addr.to_string()).collect());
        let listening: Vec<String> = listening.unwrap_or_default();
        output::tell(&format!("echo listens on UDP {} by {}", listening.join(", "), self.io));
        let v4 = self.listen.iter().all(SocketAddr::is_ipv4);
        let service = Service::new(self.announce_reply_bytes.into(), if v4 { 6 } else { 18 });
        thread::scope(|scope| {
            let serve = |sockets| {
                let stop = &stop;
                let (io, bundle) = (self.io, self.bundle);
                scope.spawn(move || {
                    if bundle {
                        let bundled = bundled::Bundled::new(service, &sockets);
                        serve(io, sockets, bundled, stop)
                    } else {
                        serve(io, sockets, service, stop)
                    }
                })
            };
            let workers: Vec<_> = sockets.into_iter().map(serve).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })?;
        Ok(ExitCode::SUCCESS)
    }
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
