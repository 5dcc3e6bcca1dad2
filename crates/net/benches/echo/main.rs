//! The cost of a back end alone: an echo of 98 bytes in and 200 bytes out over loopback, like an announce.
//!
//! The server has core 0 and the load core 1, with 256 requests in flight. The back ends alternate by rounds, and the
//! medians are compared. The result is the CPU time of the server's thread for each response, user and system apart.
//! Responses per second are meaningful only if the server is the bottleneck (`busy` near 100 %) and nothing else runs.
//!
//! `cargo bench -p shoal-net -- [--rounds N] [--seconds S] [--only BACKEND]`; in a test run, one very short round.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../common/kernel.rs"]
mod kernel;
mod load;

use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kernel::{CpuTime, pin};
use load::Load;
use shoal_net::{Backend, DatagramIo, Echo, SocketSettings, Sockets};

const REPLY_BYTES: usize = 200;
const SERVER_CORE: usize = 0;
const LOAD_CORE: usize = 1;
const BUFFER_BYTES: usize = 4 << 20;

/// The result of one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    responses_per_second: f64,
    user_ns: f64,
    system_ns: f64,
    batch: f64,
    server_busy: f64,
    load_busy: f64,
}

/// The options of the command line.
struct Plan {
    rounds: usize,
    seconds: f64,
    backends: Vec<Backend>,
}

fn main() {
    let Plan { rounds, seconds, backends } = Plan::from_arguments();
    let mut results = vec![Vec::new(); backends.len()];
    for _ in 0..rounds {
        for (backend, results) in backends.iter().zip(&mut results) {
            results.push(run(*backend, seconds));
        }
    }
    println!(
        "CPU time of the server's thread for each response, medians (minimum to maximum) of {rounds} rounds"
    );
    for (backend, rounds) in backends.iter().zip(&results) {
        let column = |name, value: fn(&Round) -> f64| format!("{name} {}", spread(rounds, value));
        println!(
            "{backend:6} {}  {}  {}  {}  {}  {}",
            column("user ns", |round| round.user_ns),
            column("system ns", |round| round.system_ns),
            column("responses/s", |round| round.responses_per_second),
            column("batch", |round| round.batch),
            column("busy %", |round| 100.0 * round.server_busy),
            column("load busy %", |round| 100.0 * round.load_busy),
        );
    }
}

impl Plan {
    /// `cargo bench` passes `--bench`, a test run does not.
    fn from_arguments() -> Self {
        let arguments: Vec<_> = std::env::args().collect();
        let value = |name| arguments.iter().skip_while(|argument| *argument != name).nth(1);
        let tiny = !arguments.iter().any(|argument| argument == "--bench");
        let (rounds, seconds) = if tiny { (1, 0.02) } else { (9, 2.0) };
        let only = value("--only");
        let works = |backend: &Backend| {
            let probed = backend.probe().map_err(|unsupported| eprintln!("{unsupported}"));
            only.is_none_or(|only| only == backend.name()) && probed.is_ok()
        };
        Self {
            rounds: value("--rounds").map_or(rounds, |rounds| rounds.parse().unwrap()),
            seconds: value("--seconds").map_or(seconds, |seconds| seconds.parse().unwrap()),
            backends: Backend::ALL.into_iter().filter(works).collect(),
        }
    }
}

fn run(backend: Backend, seconds: f64) -> Round {
    // The wildcard, as a tracker listens by default: the local address comes with each datagram.
    let wildcard = (Ipv4Addr::UNSPECIFIED, 0).into();
    let settings =
        SocketSettings { addr: wildcard, recv_buffer_bytes: BUFFER_BYTES, send_buffer_bytes: BUFFER_BYTES };
    let sockets = Sockets::bind(&[settings], NonZeroUsize::MIN).unwrap().remove(0);
    let port = sockets.local_addrs().next().unwrap().port();
    let (counters, waker) = (sockets.counters(), sockets.waker());
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let load = move || {
            pin(LOAD_CORE);
            Load::connect((Ipv4Addr::LOCALHOST, port).into()).run(stop)
        };
        let load = named("load").spawn_scoped(scope, load).unwrap();
        let server = move || {
            pin(SERVER_CORE);
            let mut io = backend.open(sockets).unwrap();
            let mut service = Echo { reply_bytes: Some(REPLY_BYTES) };
            let before = CpuTime::of_this_thread();
            while !stop.load(Ordering::Relaxed) {
                io.poll(Duration::from_millis(100), &mut service).unwrap();
            }
            CpuTime::of_this_thread() - before
        };
        let server = named("server").spawn_scoped(scope, server).unwrap();
        thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        waker.wake();
        let (server, load) = (server.join().unwrap(), load.join().unwrap());
        let (responses, batches) = (counters.v4.sent.read(), counters.batches.read());
        let each = |time: Duration| time.as_secs_f64() * 1e9 / responses as f64;
        Round {
            responses_per_second: responses as f64 / seconds,
            user_ns: each(server.user),
            system_ns: each(server.system),
            batch: counters.v4.received.read() as f64 / batches as f64,
            server_busy: (server.user + server.system).as_secs_f64() / seconds,
            load_busy: (load.user + load.system).as_secs_f64() / seconds,
        }
    })
}

/// Median, minimum and maximum.
fn spread(rounds: &[Round], value: fn(&Round) -> f64) -> String {
    let mut values: Vec<_> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    format!("{:.0} ({:.0} to {:.0})", values[values.len() / 2], values[0], values[values.len() - 1])
}
