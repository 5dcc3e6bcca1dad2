//! The generator at the driver hook, over a pair of virtual Ethernet interfaces between two network namespaces.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use shoal_compare::network::{Network, NetworkKind, VethPair};
use shoal_conform::{Target, Timing, random_seed};
use shoal_load::{Kinds, Mix, Pace, Plan, Popularity, Population, Report, Sources, Stop, Watch, udp};
use shoal_net::Backend;

use crate::kit::conformance::assert_kept;
use crate::kit::harness::{Tracker, eventually};

const REQUESTS: u64 = 30_000;
const SHORT_RUNS: u64 = 300;

fn plan(tracker: &Tracker) -> Plan {
    Plan {
        target: tracker.udp[0],
        population: Population {
            torrents: 100,
            peers: 2000,
            popularity: Popularity::Uniform,
            seeder_share: 0.5,
            announces_per_life: 8,
            vanish_share: 0.25,
        },
        mix: Mix { connect: 2, announce: 2, scrape: 1 },
        numwant: 30,
        scrape_hashes_max: 10,
        sources: Sources {
            first: VethPair::FIRST_SOURCE.into(),
            addresses: NonZeroUsize::new(8).unwrap(),
            sockets_per_worker: NonZeroUsize::new(8).unwrap(),
        },
        workers: vec![None],
        seed: 1,
        io: Backend::Mmsg,
        timeout: Duration::from_secs(30),
        own_address_is_wrong: true,
    }
}

/// Returns how many replies without an error the tracker has counted.
fn counted(tracker: &Tracker) -> Kinds {
    let of = |kind: &str| {
        let labels = ["protocol=\"udp\"", "family=\"v4\"", &*format!("kind=\"{kind}\""), "outcome=\"ok\""];
        tracker.metric("shoal_replies_total", &labels)
    };
    Kinds { connect: of("connect"), announce: of("announce"), scrape: of("scrape") }
}

fn assert_flawless(report: &Report) {
    assert_eq!(report.failure, None);
    assert_eq!(report.responses, report.requests, "{report:?}");
    assert_eq!((report.lost, report.errors, report.wrong.total()), (0, 0, 0), "{report:?}");
}

/// Starts a tracker on its side of the network.
fn start(network: &Network) -> Tracker {
    let listen = format!("{}:0", network.tracker_ip());
    let settings = [
        ("SHOAL_UDP_LISTEN", &*listen),
        ("SHOAL_HTTP_LISTEN", ""),
        ("SHOAL_CONTROL_LISTEN", &*listen),
        ("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0"),
    ];
    network.on_tracker_side(|| Tracker::start(&settings)).unwrap()
}

#[test]
fn the_generator_at_the_driver_hook_counts_what_the_tracker_counts() {
    let network = Network::new(NetworkKind::Veth).unwrap();
    let tracker = start(&network);
    let (never, mut ignore) = (AtomicBool::new(false), |_: &shoal_load::Progress| {});
    let mut session = udp::open_at_driver(&plan(&tracker), network.hook().unwrap()).unwrap();
    assert_flawless(&session.fill(&mut Watch { cancel: &never, progress: &mut ignore }));
    for window in [1, 64] {
        let before = counted(&tracker);
        let stop = Stop { after: None, requests: Some(REQUESTS) };
        let mut watch = Watch { cancel: &never, progress: &mut ignore };
        let report = session.run(Pace::Closed { window }, stop, &mut watch);
        assert_flawless(&report);
        assert_eq!(report.requests.total(), REQUESTS);
        let after = counted(&tracker);
        let Kinds { connect, announce, scrape } = report.responses;
        assert_eq!(connect, after.connect - before.connect);
        assert_eq!(announce, after.announce - before.announce);
        assert_eq!(scrape, after.scrape - before.scrape);
        assert!(announce > REQUESTS / 4 && scrape > REQUESTS / 10, "{report:?}");
        assert!(report.peers_per_announce > 1.0 && report.latency.p50_us > 0.0, "{report:?}");
    }
    // The last reply of a short run comes at any time of a round of the generator.
    for requests in 1..=SHORT_RUNS {
        let stop = Stop { after: None, requests: Some(requests) };
        let mut watch = Watch { cancel: &never, progress: &mut ignore };
        assert_flawless(&session.run(Pace::Closed { window: 8 }, stop, &mut watch));
    }
}

#[test]
fn every_rule_is_kept_over_virtual_interfaces() {
    let network = Network::new(NetworkKind::Veth).unwrap();
    let listen = format!("{}:0,[{}]:0", VethPair::TRACKER, VethPair::TRACKER_V6);
    let settings = [("SHOAL_UDP_LISTEN", &*listen), ("SHOAL_HTTP_LISTEN", "")];
    let tracker = network.on_tracker_side(|| Tracker::start(&settings)).unwrap();
    let first = u32::from(VethPair::FIRST_SOURCE);
    let sources_v4 = [first, first + 1].map(|ip| IpAddr::from(Ipv4Addr::from(ip)));
    let [v4, v6] = tracker.udp[..] else { panic!("{:?}", tracker.udp) };
    for (address, other, sources) in [(v4, v6, sources_v4), (v6, v4, VethPair::LOAD_V6.map(IpAddr::from))] {
        let mut target = Target::new(address, random_seed());
        (target.other_family, target.sources) = (Some(other), sources.to_vec());
        // The tracker is on this host, but a busy machine is no fault of it.
        target.timing = Timing::towards(&(Ipv4Addr::LOCALHOST, 1).into());
        target.timing.reply = Duration::from_secs(5);
        assert_kept(shoal_conform::udp::cases(), &target, &[]);
    }
}

#[test]
fn a_flood_comes_from_many_addresses_and_ends() {
    let network = Network::new(NetworkKind::Veth).unwrap();
    let tracker = start(&network);
    let hook = network.hook().unwrap();
    let flood = udp::Flood {
        target: tracker.udp[0],
        network: [198, 19, 0, 0].into(),
        prefix_bits: 16,
        window: Some(32),
        duration: Duration::from_millis(300),
    };
    let report = hook.flood(&flood).unwrap();
    assert!(report.replies > 0 && report.replies <= report.sent, "{report:?}");
    // The flood asks once through a socket.
    let connects = || counted(&tracker).connect;
    eventually("all replies are counted", || (connects() > report.replies).then_some(()));
    assert!(connects() <= report.sent + 1, "{report:?}");
    // Honest clients are served as before.
    let (never, mut ignore) = (AtomicBool::new(false), |_: &shoal_load::Progress| {});
    let mut session = udp::open_at_driver(&plan(&tracker), hook).unwrap();
    let stop = Stop { after: None, requests: Some(1000) };
    let mut watch = Watch { cancel: &never, progress: &mut ignore };
    assert_flawless(&session.run(Pace::Closed { window: 8 }, stop, &mut watch));
}
