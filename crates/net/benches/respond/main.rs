//! The cost of the stream I/O alone: a request of 300 bytes in and a reply of 350 out over loopback TCP, like an HTTP
//! announce, on persistent connections and on one for each request.
//!
//! The server has core 0 and the load core 1. It waits as a worker of the tracker does, in the datagram back end that
//! watches the connections. The cases alternate by rounds, and the medians are compared. The result is the CPU time of
//! the server's thread for each response, user and system apart. Responses per second are meaningful only if the server
//! is the bottleneck (`busy` near 100 %) and nothing else runs.
//!
//! `cargo bench -p shoal-net --bench respond -- [--rounds N] [--seconds S] [--connections N] [--case
//! keep-alive|close]`; in a test run, one very short round.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../common/kernel.rs"]
mod kernel;
mod load;
mod responder;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kernel::{CpuTime, pin};
use load::Load;
use responder::Responder;
use shoal_net::stream::{ListenAddress, SourceLimits, StreamIo, StreamLimits, StreamListeners};
use shoal_net::{Backend, DatagramIo, Echo, Sockets};

const SERVER_CORE: usize = 0;
const LOAD_CORE: usize = 1;

/// Limits that this benchmark does not reach.
const LIMITS: StreamLimits = StreamLimits {
    connections_max: 100_000,
    per_source: SourceLimits { http_max: 100_000, websockets_max: 100_000 },
    idle_ms_max: u64::MAX,
    request_ms_max: u64::MAX,
    send_ms_max: u64::MAX,
    answer_ms_max: u64::MAX,
    silent_ms_max: 60_000,
};

/// Whether connections are persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    KeepAlive,
    Close,
}

/// The result of one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    responses_per_second: f64,
    user_ns: f64,
    system_ns: f64,
    server_busy: f64,
    load_busy: f64,
}

/// The options of the command line.
struct Plan {
    rounds: usize,
    seconds: f64,
    connections: usize,
    cases: Vec<Case>,
}

fn main() {
    let plan = Plan::from_arguments();
    let mut results = vec![Vec::new(); plan.cases.len()];
    for _ in 0..plan.rounds {
        for (case, results) in plan.cases.iter().zip(&mut results) {
            results.push(run(*case, &plan));
        }
    }
    println!(
        "CPU time of the server's thread for each response, medians (minimum to maximum) of {} rounds, \
         {} connections at a time",
        plan.rounds, plan.connections
    );
    for (case, rounds) in plan.cases.iter().zip(&results) {
        let column = |name, value: fn(&Round) -> f64| format!("{name} {}", spread(rounds, value));
        println!(
            "{:10} {}  {}  {}  {}  {}",
            case.name(),
            column("user ns", |round| round.user_ns),
            column("system ns", |round| round.system_ns),
            column("responses/s", |round| round.responses_per_second),
            column("busy %", |round| 100.0 * round.server_busy),
            column("load busy %", |round| 100.0 * round.load_busy),
        );
    }
}

impl Case {
    const ALL: [Self; 2] = [Self::KeepAlive, Self::Close];

    const fn name(self) -> &'static str {
        match self {
            Self::KeepAlive => "keep-alive",
            Self::Close => "close",
        }
    }
}

impl Plan {
    /// `cargo bench` passes `--bench`, a test run does not.
    fn from_arguments() -> Self {
        let arguments: Vec<_> = std::env::args().collect();
        let value = |name| arguments.iter().skip_while(|argument| *argument != name).nth(1);
        let tiny = !arguments.iter().any(|argument| argument == "--bench");
        let (rounds, seconds, connections) = if tiny { (1, 0.02, 8) } else { (9, 2.0, 64) };
        let only_case = value("--case");
        let cases = Case::ALL.into_iter().filter(|case| only_case.is_none_or(|name| name == case.name()));
        Self {
            rounds: value("--rounds").map_or(rounds, |rounds| rounds.parse().unwrap()),
            seconds: value("--seconds").map_or(seconds, |seconds| seconds.parse().unwrap()),
            connections: value("--connections").map_or(connections, |count| count.parse().unwrap()),
            cases: cases.collect(),
        }
    }
}

fn run(case: Case, plan: &Plan) -> Round {
    let address = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let listeners = StreamListeners::bind(&[address], NonZeroUsize::MIN).unwrap().remove(0);
    let Some(&ListenAddress::Tcp(addr)) = listeners.local_addresses().next() else { unreachable!() };
    let sockets = Sockets::bind(&[], NonZeroUsize::MIN).unwrap().remove(0);
    let waker = sockets.waker();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let load = move || {
            pin(LOAD_CORE);
            Load::new(addr, case == Case::KeepAlive, plan.connections).run(stop)
        };
        let load = named("load").spawn_scoped(scope, load).unwrap();
        let server = move || {
            pin(SERVER_CORE);
            let mut streams = StreamIo::open(listeners, LIMITS).unwrap();
            let mut datagrams = Backend::Mmsg.open(sockets).unwrap();
            datagrams.watch(Some(streams.readiness())).unwrap();
            let mut service = Responder { keeps_alive: case == Case::KeepAlive, responses: 0 };
            let before = CpuTime::of_this_thread();
            let mut busy = false;
            while !stop.load(Ordering::Relaxed) {
                let timeout = Duration::from_millis(if busy { 0 } else { 100 });
                datagrams.poll(timeout, &mut Echo::default()).unwrap();
                busy = streams.poll(0, &mut service).unwrap() > 0;
            }
            (CpuTime::of_this_thread() - before, service.responses)
        };
        let server = named("server").spawn_scoped(scope, server).unwrap();
        thread::sleep(Duration::from_secs_f64(plan.seconds));
        stop.store(true, Ordering::Relaxed);
        waker.wake();
        let ((server, responses), load) = (server.join().unwrap(), load.join().unwrap());
        let each = |time: Duration| time.as_secs_f64() * 1e9 / responses as f64;
        Round {
            responses_per_second: responses as f64 / plan.seconds,
            user_ns: each(server.user),
            system_ns: each(server.system),
            server_busy: (server.user + server.system).as_secs_f64() / plan.seconds,
            load_busy: (load.user + load.system).as_secs_f64() / plan.seconds,
        }
    })
}

/// Median, minimum and maximum.
fn spread(rounds: &[Round], value: fn(&Round) -> f64) -> String {
    let mut values: Vec<_> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    format!("{:.0} ({:.0} to {:.0})", values[values.len() / 2], values[0], values[values.len() - 1])
}
