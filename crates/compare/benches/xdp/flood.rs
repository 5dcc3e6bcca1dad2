//! Floods of connects from spoofed addresses, against Shoal with its XDP data path.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use shoal_compare::cpu_assignment::CpuAssignment;
use shoal_compare::network::{Network, NetworkKind, VethPair};
use shoal_compare::process::{Process, Program, TAIL_LINES_MAX};
use shoal_load::udp::{Discard, Flood, FloodReport};
use shoal_load::{Mix, Pace, Plan, Popularity, Population, Report, Sources, Stop, Watch, udp};
use shoal_net::Backend;

const PORT: u16 = 6969;
const NETWORK: (Ipv4Addr, u32) = (Ipv4Addr::new(198, 19, 0, 0), 16);
const DURATION: Duration = Duration::from_secs(5);

/// The time of a flood before and after the one that is measured.
const MARGIN: Duration = Duration::from_millis(500);

/// The queue of a veth holds 256 frames. The honest clients need some of them, as the flood must not fill the wire.
const WINDOW: u32 = 128;

/// Honest announces per second.
const HONEST_RATE: f64 = 2000.0;

pub(crate) struct Floods {
    /// Connects from spoofed addresses that were answered per second.
    pub(crate) answered_per_s: f64,
    /// Honest announces meanwhile, and those of them without a good reply.
    pub(crate) honest: u64,
    pub(crate) unanswered: u64,
    /// The flood from a network that the tracker denies.
    pub(crate) denied: Dropped,
    /// The same flood, dropped by a program that does nothing else.
    pub(crate) floor: Dropped,
}

/// The figures of a flood whose datagrams were dropped.
pub(crate) struct Dropped {
    /// Datagrams that came per second.
    pub(crate) per_s: f64,
    /// The share of time in which the tracker's core was busy.
    pub(crate) busy: f64,
    /// Its time for each datagram.
    pub(crate) ns: f64,
}

pub(crate) fn measure(shoal: &Path) -> Floods {
    let network = Network::new(NetworkKind::Veth).unwrap();
    let assignment = CpuAssignment { cores: 1, tracker: vec![0], load: vec![1] };
    network.assign(&assignment).unwrap();
    let mut processor = CpuSet::new();
    processor.set(1);
    sched_setaffinity(None, &processor).unwrap();
    let open = start(shoal, &network, Rules::Open);
    let (honest, flood) = beside_honest_clients(&network);
    drop(open);
    let denying = start(shoal, &network, Rules::Deny);
    let denied = dropped_flood(&network);
    drop(denying);
    let behind_sockets = start(shoal, &network, Rules::Sockets);
    let attach = || Discard::attach(network.tracker_interface(), &flood_of(None, DURATION));
    let discard = network.on_tracker_side(attach).unwrap().unwrap();
    let floor = dropped_flood(&network);
    drop((discard, behind_sockets));
    #[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
    let float = |count: u64| count as f64;
    Floods {
        answered_per_s: float(flood.replies) / flood.elapsed.as_secs_f64(),
        honest: honest.requests.total() + honest.unsent,
        unanswered: honest.requests.total() + honest.unsent - honest.responses.total(),
        denied: denied.per_datagram(),
        floor: floor.per_datagram(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// It answers all clients at the driver hook.
    Open,
    /// It denies the network of the flood everything, there.
    Deny,
    /// It answers behind sockets.
    Sockets,
}

/// The part that has happened on the tracker's side up to a moment, or between two moments.
struct Work {
    elapsed_s: f64,
    frames: u64,
    busy_s: f64,
}

impl Work {
    fn now(network: &Network, began: Instant) -> Self {
        Self { elapsed_s: began.elapsed().as_secs_f64(), frames: received(network), busy_s: busy_s() }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            elapsed_s: self.elapsed_s - before.elapsed_s,
            frames: self.frames - before.frames,
            busy_s: self.busy_s - before.busy_s,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
    fn per_datagram(&self) -> Dropped {
        let frames = self.frames.max(1) as f64;
        Dropped {
            per_s: frames / self.elapsed_s,
            busy: self.busy_s / self.elapsed_s,
            ns: self.busy_s * 1e9 / frames,
        }
    }
}

/// Floods the tracker from a network whose datagrams are dropped. Returns the work meanwhile, without the beginning and the end.
fn dropped_flood(network: &Network) -> Work {
    thread::scope(|scope| {
        let flood = scope.spawn(|| flood_from(network, None, MARGIN + DURATION + MARGIN));
        thread::sleep(MARGIN);
        let began = Instant::now();
        let before = Work::now(network, began);
        thread::sleep(DURATION);
        let work = Work::now(network, began).since(&before);
        flood.join().unwrap();
        work
    })
}

struct Tracker {
    _process: Process,
    _folder: tempfile::TempDir,
}

fn target() -> SocketAddr {
    (VethPair::TRACKER, PORT).into()
}

fn start(shoal: &Path, network: &Network, rules: Rules) -> Tracker {
    let folder = tempfile::tempdir().unwrap();
    let (list, file) = (folder.path().join("denied"), folder.path().join("shoal.toml"));
    fs::write(&list, format!("{}/{}\n", NETWORK.0, NETWORK.1)).unwrap();
    let denied = match rules {
        Rules::Deny => format!("networks_deny = [{:?}]", list.display().to_string()),
        Rules::Open | Rules::Sockets => String::new(),
    };
    let data_path = match rules {
        Rules::Sockets => String::new(),
        Rules::Open | Rules::Deny => format!("[udp.xdp]\ninterfaces = [{:?}]\n", network.tracker_interface()),
    };
    let settings = format!(
        "[udp]\nlisten = [\"{}\"]\nio = \"mmsg\"\n{data_path}[http]\nlisten = []\n\
         [announce]\npeers_per_address_max = 0\n[limits]\nudp_requests_per_s = 0\n[workers]\ncount = 1\n[control]\nlisten = \"\"\n\
         [log]\nlevel = \"warn\"\n[access]\n{denied}\n",
        target()
    );
    fs::write(&file, settings).unwrap();
    let program = Program {
        file: shoal.to_owned(),
        arguments: vec!["--config".to_owned(), file.display().to_string()],
        environment: Vec::new(),
        folder: folder.path().to_owned(),
        processors: vec![0],
    };
    let mut process = network.on_tracker_side(|| program.start()).unwrap().unwrap();
    // Each session asks for connection ids first, and fails while the tracker starts.
    let is_ready = || udp::open(&honest_plan()).is_ok();
    while !is_ready() {
        assert!(process.ended().unwrap().is_none(), "{:?}", process.log_tail(TAIL_LINES_MAX));
        thread::sleep(Duration::from_millis(100));
    }
    Tracker { _process: process, _folder: folder }
}

/// Floods the tracker while clients announce through sockets.
fn beside_honest_clients(network: &Network) -> (Report, FloodReport) {
    let mut session = udp::open(&honest_plan()).unwrap();
    let (never, mut ignore) = (AtomicBool::new(false), |_: &shoal_load::Progress| {});
    assert_eq!(session.fill(&mut Watch { cancel: &never, progress: &mut ignore }).failure, None);
    thread::scope(|scope| {
        let flood = scope.spawn(|| flood_from(network, Some(WINDOW), DURATION));
        let stop = Stop { after: Some(DURATION), requests: None };
        let mut watch = Watch { cancel: &never, progress: &mut ignore };
        let report = session.run(Pace::Open { rate: HONEST_RATE }, stop, &mut watch);
        (report, flood.join().unwrap())
    })
}

fn flood_from(network: &Network, window: Option<u32>, duration: Duration) -> FloodReport {
    network.hook().unwrap().flood(&flood_of(window, duration)).unwrap()
}

fn flood_of(window: Option<u32>, duration: Duration) -> Flood {
    let (source, prefix_bits) = NETWORK;
    Flood { target: target(), network: source, prefix_bits, window, duration }
}

fn honest_plan() -> Plan {
    let sockets = NonZeroUsize::new(16).unwrap();
    Plan {
        target: target(),
        population: Population {
            torrents: 1000,
            peers: 20_000,
            popularity: Popularity::Uniform,
            seeder_share: 0.5,
            announces_per_life: 0,
            vanish_share: 0.0,
        },
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        numwant: 30,
        scrape_hashes_max: 10,
        sources: Sources {
            first: VethPair::FIRST_SOURCE.into(),
            addresses: sockets,
            sockets_per_worker: sockets,
        },
        workers: vec![Some(1)],
        seed: 1,
        io: Backend::Mmsg,
        timeout: Duration::from_secs(1),
        own_address_is_wrong: true,
    }
}

fn received(network: &Network) -> u64 {
    let interface = format!("{}:", network.tracker_interface());
    let table = network.on_tracker_side(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&interface)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn busy_s() -> f64 {
    let statistics = fs::read_to_string("/proc/stat").unwrap();
    let line = statistics.lines().find_map(|line| line.strip_prefix("cpu0 ")).unwrap();
    // User, nice, system, idle, waiting for I/O, interrupts, soft interrupts.
    let ticks: Vec<f64> = line.split_whitespace().take(7).map(|word| word.parse().unwrap()).collect();
    #[expect(clippy::cast_precision_loss, reason = "it is about a hundred")]
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    (ticks.iter().sum::<f64>() - ticks[3] - ticks[4]) / ticks_per_s
}
