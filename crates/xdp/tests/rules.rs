//! The rules that depend on time, on earlier frames or on user space: limits, connection ids, slots, and backlogs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::{IpAddr, SocketAddr};
use std::thread;

use common::{
    GATEWAY, NEVER_NS, SIZES, UNIX_S, XDP_DROP, XDP_PASS, XDP_REDIRECT, XDP_TX, add_socket, ids, network,
    settings,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use rustix::time::{ClockId, clock_gettime};
use shoal_engine::connection_id::{ConnectionIds, ConnectionKey, slot_at};
use shoal_testkit::network::ip;
use shoal_xdp::frame::Head;
use shoal_xdp::interface::{Segment, Vlan};
use shoal_xdp::program::{
    Backlog, Counted, Counters, Ids, LoadError, Maps, Network, NetworkRule, Program, Rate, Settings, Sizes,
};

const TRACKER_V4: &str = "198.51.100.1:6969";
const TRACKER_V6: &str = "[2001:db8::69]:6969";

const SLOT_S: u64 = 120;
const NS_PER_S: u64 = 1_000_000_000;

/// A token comes back long after the test.
const SLOW: u64 = 1 << 50;

fn load() -> (Program, Maps) {
    let (program, mut maps) = Program::load(&SIZES).unwrap();
    maps.set_endpoints(&[TRACKER_V4, TRACKER_V6].map(|address| address.parse().unwrap())).unwrap();
    maps.set_settings(&settings(&ids()));
    maps.set_slot(slot_at(UNIX_S).0, NEVER_NS);
    maps.set_segments(&[network()]).unwrap();
    (program, maps)
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * NS_PER_S + u64::try_from(now.tv_nsec).unwrap()
}

/// Returns the verdict about a datagram to the tracker, and the frame as it is afterwards.
fn run(program: &Program, source: &str, payload: &[u8]) -> (u32, Vec<u8>) {
    run_from(program, GATEWAY, None, source, payload)
}

/// Does the same with a frame of this MAC address and tag.
fn run_from(
    program: &Program,
    source_mac: [u8; 6],
    tag: Option<[u8; 4]>,
    source: &str,
    payload: &[u8],
) -> (u32, Vec<u8>) {
    let source: IpAddr = source.parse().unwrap();
    let tracker: SocketAddr = if source.is_ipv4() { TRACKER_V4 } else { TRACKER_V6 }.parse().unwrap();
    let head = Head {
        destination_mac: [2, 0, 0, 0, 0, 1],
        source_mac,
        tag,
        source: SocketAddr::new(source, 6881),
        destination: tracker,
    };
    let mut frame = vec![0; head.bytes()];
    frame.extend(payload);
    head.write(&mut frame, head.bytes(), payload.len()).unwrap();
    let ran = program.run(&frame, 1).unwrap();
    (ran.verdict, ran.frame)
}

const CONNECT: [u8; 16] = [0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, 1, 2, 3, 4];

/// Returns the id of a reply, if there was one.
fn connect(program: &Program, source: &str) -> Option<u64> {
    let (verdict, frame) = run(program, source, &CONNECT);
    (verdict == XDP_TX).then(|| u64::from_be_bytes(*frame.last_chunk().unwrap()))
}

/// Returns the verdict about an announce with an id.
fn announce(program: &Program, source: &str, id: u64) -> u32 {
    let mut request = [7; 98];
    request[..8].copy_from_slice(&id.to_be_bytes());
    request[8..12].copy_from_slice(&[0, 0, 0, 1]);
    run(program, source, &request).0
}

#[test]
fn an_address_that_is_gone_is_not_answered_though_the_others_do_not_fit() {
    let (program, mut maps) = load();
    assert!(connect(&program, "192.0.2.1").is_some());
    let many: Vec<SocketAddr> =
        (0..=u16::MAX).map(|port| SocketAddr::from(([203, 0, 113, 1], port))).collect();
    assert!(maps.set_endpoints(&many).is_err());
    assert_eq!(run(&program, "192.0.2.1", &CONNECT).0, XDP_PASS);
}

fn taken(program: &Program, source: &str) -> usize {
    (0..100).filter(|_| connect(program, source).is_some()).count()
}

fn slow(burst: u64) -> Rate {
    Rate { token_ns: SLOW, full_ns: burst * SLOW }
}

/// One thread loads the program, another tells it what to do, and others serve its queues.
#[test]
fn parts_are_sent_to_other_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<(Program, Maps, Backlog, Counters)>();
}

/// The tracker drops its privileges after it has attached the program.
#[test]
fn maps_are_changed_without_privileges() {
    let (program, mut maps) = load();
    let unprivileged = || {
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
            .unwrap();
        assert!(matches!(Program::load(&SIZES), Err(LoadError::NotPermitted)));
        maps.set_endpoints(&["198.51.100.1:6969".parse().unwrap()]).unwrap();
        let rule = NetworkRule { denied: true, exempt: false };
        let network = Network { ip: "203.0.113.0".parse().unwrap(), bits: 24, rule };
        maps.set_networks(&[network], NetworkRule::default()).unwrap();
        maps.set_settings(&settings(&ids()));
        maps.set_slot(7, NEVER_NS);
        maps.set_socket(0, None).unwrap();
        maps.counts().unwrap();
    };
    thread::scope(|scope| scope.spawn(unprivileged).join().unwrap());
    assert!(connect(&program, "192.0.2.1").is_some() && connect(&program, "203.0.113.1").is_none());
}

/// The same ids as in the tests of the engine.
#[test]
fn ids_are_those_of_the_engine() {
    let (program, _maps) = load();
    assert_eq!(connect(&program, "192.0.2.1"), Some(0x4776_ca12_515a_054a));
    assert_eq!(connect(&program, "2001:db8::1"), Some(0x84ba_fe80_1718_634a));
}

#[test]
fn hashes_are_those_of_siphash() {
    let (program, mut maps) = load();
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let ids = ConnectionIds::new(&ConnectionKey::new(rng.u128(..).to_le_bytes()));
        let unix_s = rng.u64(..1 << 40);
        maps.set_settings(&settings(&ids));
        maps.set_slot(slot_at(unix_s).0, NEVER_NS);
        let v4 = IpAddr::from(rng.u32(1 << 24..100 << 24).to_be_bytes());
        let v6 = IpAddr::from((rng.u128(..) >> 2).to_be_bytes());
        for ip in [v4, v6] {
            assert_eq!(connect(&program, &ip.to_string()), Some(ids.issue(ip, unix_s).0), "{ip} {unix_s}");
        }
    }
}

#[test]
fn without_ids_or_a_slot_user_space_answers() {
    let (program, mut maps) = load();
    let _socket = add_socket(&mut maps);
    maps.set_settings(&Settings::default());
    assert_eq!(run(&program, "192.0.2.1", &CONNECT).0, XDP_REDIRECT);
    maps.set_settings(&settings(&ids()));
    assert_eq!(run(&program, "192.0.2.1", &CONNECT).0, XDP_TX);
    let now_ns = monotonic_ns();
    let (slot, _) = slot_at(UNIX_S);
    let id_of = |slot: u64| ids().issue("192.0.2.1".parse().unwrap(), slot * SLOT_S).0;
    maps.set_slot(slot, now_ns + 100 * NS_PER_S);
    assert_eq!(connect(&program, "192.0.2.1"), Some(id_of(slot)));
    maps.set_slot(slot, now_ns - NS_PER_S);
    assert_eq!(connect(&program, "192.0.2.1"), Some(id_of(slot + 1)), "the slot has ended");
    assert_eq!(maps.counts().unwrap().of(Counted::Stale), 0);
    // A machine that has just started cannot tell: the clock began with it.
    if let Some(end_ns) = now_ns.checked_sub((SLOT_S + 1) * NS_PER_S) {
        maps.set_slot(slot, end_ns);
        assert_eq!(run(&program, "192.0.2.1", &CONNECT).0, XDP_REDIRECT, "so has the next one");
        assert_eq!(maps.counts().unwrap().of(Counted::Stale), 1);
    }
}

#[test]
fn a_source_gets_its_burst_and_no_more() {
    let (program, mut maps) = load();
    maps.set_settings(&Settings { connects: Some(slow(5)), ..settings(&ids()) });
    for source in ["192.0.2.1", "192.0.2.2", "2001:db8:7:1::1"] {
        assert_eq!(taken(&program, source), 5, "{source}");
    }
    assert_eq!(taken(&program, "2001:db8:7:1::2"), 0, "the same /64");
    assert_eq!(run(&program, "192.0.2.1", &CONNECT).0, XDP_DROP);
    assert_eq!(maps.counts().unwrap().by_path()["rate_limited"], 95 * 3 + 100 + 1);
}

#[test]
fn networks_of_v6_get_a_multiple() {
    let (program, mut maps) = load();
    maps.set_settings(&Settings { connects: Some(slow(5)), ..settings(&ids()) });
    let of_56 = |fifth: u32| {
        (0..20).map(|low| taken(&program, &format!("2001:db8:7:{:x}::1", fifth << 8 | low))).sum::<usize>()
    };
    assert_eq!(of_56(1), 10, "a /56 is two sources");
    assert_eq!((2..20).map(of_56).sum::<usize>(), 30, "a /48 is eight");
    assert_eq!(taken(&program, "2001:db8:8::1"), 5);
}

#[test]
fn tokens_come_back() {
    let (program, mut maps) = load();
    // Each millisecond.
    let rate = Rate { token_ns: 1_000_000, full_ns: 2_000_000 };
    maps.set_settings(&Settings { connects: Some(rate), ..settings(&ids()) });
    while connect(&program, "192.0.2.1").is_some() {}
    while connect(&program, "192.0.2.1").is_none() {}
}

#[test]
fn an_exempt_network_has_no_limits() {
    let (program, mut maps) = load();
    maps.set_settings(&Settings { connects: Some(slow(1)), requests: Some(slow(1)), ..settings(&ids()) });
    let rule = NetworkRule { denied: false, exempt: true };
    let network = Network { ip: "192.0.2.0".parse().unwrap(), bits: 24, rule };
    maps.set_networks(&[network], NetworkRule::default()).unwrap();
    let id = connect(&program, "192.0.2.1").unwrap();
    assert_eq!((taken(&program, "192.0.2.1"), taken(&program, "192.0.3.1")), (100, 1));
    assert_eq!([0; 3].map(|_| announce(&program, "192.0.2.1", id)), [XDP_PASS; 3]);
    maps.set_networks(&[], rule).unwrap();
    assert_eq!((taken(&program, "192.0.2.1"), taken(&program, "192.0.3.1")), (100, 100));
}

#[test]
fn only_a_verified_request_takes_a_token() {
    let (program, mut maps) = load();
    let _socket = add_socket(&mut maps);
    let id = connect(&program, "192.0.2.1").unwrap();
    assert_eq!([0; 9].map(|_| announce(&program, "192.0.2.1", id)), [XDP_REDIRECT; 9], "there is no limit");
    maps.set_settings(&Settings { requests: Some(slow(2)), ..settings(&ids()) });
    assert_eq!([0; 9].map(|_| announce(&program, "192.0.2.1", id ^ 1 << 40)), [XDP_REDIRECT; 9], "forged");
    let expected = [XDP_REDIRECT, XDP_REDIRECT, XDP_DROP, XDP_DROP];
    assert_eq!([0; 4].map(|_| announce(&program, "192.0.2.1", id)), expected);
    let id = connect(&program, "2001:db8:7::1").expect("connects have no limit");
    assert_eq!([0; 4].map(|_| announce(&program, "2001:db8:7::1", id)), expected);
    let (verdict, _) = run(&program, "192.0.2.1", &[9; 98]);
    assert_eq!(verdict, XDP_REDIRECT, "another action");
}

/// Returns whether the program takes the id for one that the tracker accepts. Only then it drops the request.
fn accepts(program: &Program, source: &str, id: u64) -> bool {
    announce(program, source, id) == XDP_DROP
}

/// The program and the engine accept the same ids at the same time.
#[test]
fn ids_are_accepted_as_in_the_engine() {
    let (program, mut maps) = load();
    let mut rng = fastrand::Rng::with_seed(2);
    let none = Rate { token_ns: SLOW, full_ns: 0 };
    for _ in 0..2000 {
        let (former, key) = (ConnectionKey::new([1; 16]), ConnectionKey::new([2; 16]));
        let mut ids = ConnectionIds::new(&former);
        let replaced_s = UNIX_S + rng.u64(..1000);
        ids.replace_key(&key, replaced_s);
        // The middle of a second: the clock goes on during the test.
        let unix_s = replaced_s + rng.u64(..5000);
        let start_ns = monotonic_ns() - NS_PER_S / 2;
        let monotonic_at = |at_s: u64| start_ns.saturating_add(at_s.saturating_sub(unix_s) * NS_PER_S);
        let shared = ids.share();
        let shared_former = shared.former.map(|(keyed, until_s)| (keyed, monotonic_at(until_s)));
        let told = Ids { keyed: shared.keyed, former: shared_former, valid_ns: shared.valid_s * NS_PER_S };
        maps.set_settings(&Settings { ids: Some(told), requests: Some(none), ..settings(&ids) });
        let (slot, end_s) = slot_at(unix_s);
        maps.set_slot(slot, monotonic_at(end_s));
        let issued_s = (unix_s + 300).saturating_sub(rng.u64(..6000));
        let other = ConnectionIds::new(if rng.bool() { &former } else { &key });
        let ip: IpAddr = if rng.bool() { "192.0.2.1" } else { "2001:db8:7::1" }.parse().unwrap();
        let id = other.issue(ip, issued_s);
        let accepted = accepts(&program, &ip.to_string(), id.0);
        assert_eq!(accepted, ids.accepts(id, ip, unix_s), "{issued_s} at {unix_s}");
    }
}

#[test]
fn no_more_frames_are_on_their_way_than_the_socket_has_room_for() {
    [false, true].into_iter().for_each(assert_backlog_is_kept);
}

fn assert_backlog_is_kept(is_native: bool) {
    let (program, mut maps) = load();
    maps.set_settings(&Settings { is_native, ..settings(&ids()) });
    let send =
        |count: usize| (0..count).filter(|_| announce(&program, "192.0.2.1", 1) == XDP_REDIRECT).count();
    assert_eq!(send(5), 0, "there is no socket");
    let backlog = maps.backlog(0).unwrap();
    backlog.set_frames_max(10);
    assert_eq!((send(5), backlog.redirected()), (0, 0), "there is none yet");
    let _socket = add_socket(&mut maps);
    backlog.set_frames_max(10);
    assert_eq!((send(25), backlog.redirected()), (10, 10));
    backlog.publish(4);
    assert_eq!((send(25), backlog.redirected()), (4, 14));
    let counts = maps.counts().unwrap();
    assert_eq!(
        (counts.of(Counted::Redirected), counts.of(Counted::BacklogFull), counts.of(Counted::NoSocket)),
        (14, 15 + 21, 10)
    );
    maps.set_socket(0, None).unwrap();
    maps.set_socket(0, None).unwrap();
    backlog.publish(14);
    assert_eq!(send(5), 0);
    assert!(maps.backlog(3).is_some() && maps.backlog(4).is_none());
    assert!(maps.set_socket(4, None).is_err());
}

#[test]
fn endpoints_and_networks_are_replaced() {
    let (program, mut maps) = load();
    let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
    assert!(connect(&program, "192.0.2.1").is_some() && connect(&program, "2001:db8:7::1").is_some());
    maps.set_endpoints(&[address("198.51.100.1:80"), address(TRACKER_V6)]).unwrap();
    assert!(connect(&program, "192.0.2.1").is_none() && connect(&program, "2001:db8:7::1").is_some());
    maps.set_endpoints(&[address(TRACKER_V4)]).unwrap();
    assert!(connect(&program, "192.0.2.1").is_some() && connect(&program, "2001:db8:7::1").is_none());
    let network = |ip: &str, bits, denied| Network {
        ip: ip.parse().unwrap(),
        bits,
        rule: NetworkRule { denied, exempt: false },
    };
    let denied = NetworkRule { denied: true, exempt: false };
    for (networks, otherwise, expected) in [
        (vec![network("192.0.2.77", 24, true)], NetworkRule::default(), [false, true]),
        (vec![network("192.0.2.1", 32, false), network("192.0.2.0", 24, true)], denied, [true, false]),
        (
            vec![network("192.0.0.0", 8, true), network("192.0.2.0", 24, false)],
            NetworkRule::default(),
            [true, false],
        ),
        (vec![network("0.0.0.0", 0, true)], NetworkRule::default(), [false, false]),
        (vec![network("::", 0, true)], NetworkRule::default(), [true, true]),
        (vec![], denied, [false, false]),
        (vec![], NetworkRule::default(), [true, true]),
    ] {
        maps.set_networks(&networks, otherwise).unwrap();
        let served = ["192.0.2.1", "192.0.99.1"].map(|source| connect(&program, source).is_some());
        assert_eq!(served, expected, "{networks:?} {otherwise:?}");
    }
}

/// A source that no list names is not dropped before those that an allow list names are known.
#[test]
fn an_allow_list_that_does_not_fit_changes_nothing() {
    let (program, mut maps) = load();
    let denied = NetworkRule { denied: true, exempt: false };
    let network = |number: u32| {
        let ip = (0x0a00_0000 | number << 8).to_be_bytes().into();
        Network { ip, bits: 24, rule: NetworkRule::default() }
    };
    let networks: Vec<Network> = (0..=SIZES.networks_max).map(network).collect();
    maps.set_networks(&networks, denied).unwrap_err();
    assert!(connect(&program, "192.0.2.1").is_some() && connect(&program, "10.0.0.1").is_some());
    maps.set_networks(&networks[1..], denied).unwrap();
    let served =
        ["192.0.2.1", "10.0.0.1", "10.0.1.1", "10.3.232.1"].map(|ip| connect(&program, ip).is_some());
    assert_eq!(served, [false, false, true, true]);
    // Another rule for a network that is there already.
    maps.set_networks(&[Network { rule: denied, ..networks[1] }], NetworkRule::default()).unwrap();
    assert!(connect(&program, "10.0.1.1").is_none() && connect(&program, "10.0.2.1").is_some());
}

/// A frame for another host arrives where the interface is promiscuous.
#[test]
fn the_kernel_gets_what_it_would_not_deliver() {
    let (program, mut maps) = load();
    let _socket = add_socket(&mut maps);
    for (mac, expected) in [([2, 0, 0, 0, 0, 1], XDP_TX), ([2, 0, 0, 0, 0, 3], XDP_PASS)] {
        maps.set_segments(&[Segment { mac, ..network() }]).unwrap();
        assert_eq!(run(&program, "192.0.2.1", &CONNECT).0, expected, "{mac:?}");
    }
    maps.set_segments(&[network()]).unwrap();
    for own in ["198.51.100.1", "2001:db8::69"] {
        assert_eq!(run(&program, own, &CONNECT).0, XDP_PASS, "{own}");
        assert_eq!(announce(&program, own, 1), XDP_PASS, "{own}");
    }
    assert_eq!(maps.counts().unwrap().of(Counted::Malformed), 5);
}

/// The way back is that of the kernel's routes and neighbours, as they are now.
#[test]
fn a_frame_is_taken_only_if_the_reply_would_go_back_to_where_it_came_from() {
    const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 0, 9];
    let (program, maps) = load();
    let taken = |mac, source| run_from(&program, mac, None, source, &CONNECT).0 == XDP_TX;
    // Of the network of the interface, and of others: on it, without an entry, by a gateway, by none, on the link.
    ip("neigh add 100.64.0.9 lladdr 02:00:00:00:00:09 dev server");
    ip("neigh add fd00::9 lladdr 02:00:00:00:00:09 dev server");
    ip("route add unreachable 10.0.0.0/8");
    ip("route add unreachable 2001:db8:dead::/48");
    ip("route add 172.16.0.0/12 dev client");
    let sources = [
        ("100.64.0.9", [false, true]),
        ("100.64.0.10", [false, false]),
        ("100.64.0.255", [false, false]),
        ("8.8.8.8", [true, false]),
        ("240.0.0.1", [true, false]),
        ("10.1.2.3", [false, false]),
        ("172.16.0.1", [false, false]),
        ("fd00::9", [false, true]),
        ("fd00::a", [false, false]),
        ("2001:db8:7::1", [true, false]),
        ("2001:db8:dead::1", [false, false]),
        ("fe80::1", [false, false]),
    ];
    for (source, expected) in sources {
        assert_eq!([GATEWAY, NEIGHBOUR].map(|mac| taken(mac, source)), expected, "{source}");
        // The answer of the kernel is retained for those that have a way back alone.
        assert_eq!(
            [NEIGHBOUR, GATEWAY].map(|mac| taken(mac, source)),
            [expected[1], expected[0]],
            "{source}"
        );
    }
    let passed = sources.iter().flat_map(|(_, expected)| expected).filter(|taken| !**taken).count() as u64;
    assert_eq!(maps.counts().unwrap().of(Counted::NoRouteBack), 2 * passed);
    let (verdict, _) = run_from(&program, NEIGHBOUR, None, "8.8.8.8", &[7; 98]);
    assert_eq!(
        (verdict, maps.counts().unwrap().of(Counted::NoRouteBack)),
        (XDP_PASS, 2 * passed + 1),
        "an announce"
    );
}

/// A reply to another address of the tracker may take another way, by the rules of the host.
#[test]
fn the_way_back_is_that_of_the_address_that_was_asked() {
    let (program, mut maps) = load();
    let other: SocketAddr = "198.51.100.7:6969".parse().unwrap();
    maps.set_endpoints(&[TRACKER_V4.parse().unwrap(), other]).unwrap();
    ip("rule add from 198.51.100.7 unreachable");
    let connect_to = |destination| {
        let (destination_mac, source) = ([2, 0, 0, 0, 0, 1], "192.0.2.1:6881".parse().unwrap());
        let head = Head { destination_mac, source_mac: GATEWAY, tag: None, source, destination };
        let mut frame = [vec![0; head.bytes()], CONNECT.to_vec()].concat();
        head.write(&mut frame, head.bytes(), CONNECT.len()).unwrap();
        program.run(&frame, 1).unwrap().verdict
    };
    assert_eq!([TRACKER_V4.parse().unwrap(), other].map(connect_to), [XDP_TX, XDP_PASS]);
}

#[test]
fn a_route_that_is_gone_is_noticed_within_seconds() {
    let (program, _maps) = load();
    assert!(connect(&program, "192.0.2.1").is_some() && connect(&program, "2001:db8:7::1").is_some());
    for gone in ["route del default", "-6 route del default"] {
        ip(gone);
    }
    for source in ["192.0.2.1", "2001:db8:7::1"] {
        while connect(&program, source).is_some() {}
    }
}

#[test]
fn tags_are_those_of_the_vlans_of_the_host() {
    let (program, mut maps) = load();
    let taken = |tag: [u8; 4]| {
        let (verdict, frame) = run_from(&program, GATEWAY, Some(tag), "192.0.2.1", &CONNECT);
        assert!(verdict == XDP_PASS || frame[12..16] == tag);
        verdict == XDP_TX
    };
    // A priority alone is no VLAN. The kernel has the rules for what a provider's tag without a number is.
    let tags = [[0x81, 0, 0xe0, 0], [0x88, 0xa8, 0, 0], [0x81, 0, 0x2f, 0xff], [0x88, 0xa8, 0, 5]];
    assert_eq!(tags.map(taken), [true, false, false, false]);
    let vlan = |protocol, number| Segment { vlan: Some(Vlan { protocol, number }), ..network() };
    maps.set_segments(&[vlan(0x8100, 4095), vlan(0x88a8, 5), vlan(0x8100, 0), vlan(0x9100, 5)]).unwrap();
    assert_eq!(tags.map(taken), [false, false, true, true], "no interface for frames without a tag");
    maps.set_segments(&[network(), vlan(0x8100, 5)]).unwrap();
    assert_eq!(tags.map(taken), [true, false, false, false]);
    assert_eq!((taken([0x81, 0, 0, 5]), maps.counts().unwrap().of(Counted::OtherVlan)), (true, 8));
    // The VLAN is a network of its own: its neighbours are no neighbours elsewhere.
    maps.set_segments(&[Segment { interface_index: 1, ..vlan(0x8100, 5) }]).unwrap();
    while taken([0x81, 0, 0, 5]) {}
}

#[test]
fn two_tags_are_left_to_the_kernel() {
    let (program, mut maps) = load();
    maps.set_segments(&[
        network(),
        Segment { vlan: Some(Vlan { protocol: 0x8100, number: 5 }), ..network() },
    ])
    .unwrap();
    let tag = Some([0x81, 0, 0, 5]);
    let head = |source_mac| Head {
        destination_mac: [2, 0, 0, 0, 0, 1],
        source_mac,
        tag,
        source: "192.0.2.1:6881".parse().unwrap(),
        destination: TRACKER_V4.parse().unwrap(),
    };
    let mut frame = [vec![0; head(GATEWAY).bytes()], CONNECT.to_vec()].concat();
    head(GATEWAY).write(&mut frame, head(GATEWAY).bytes(), CONNECT.len()).unwrap();
    for outer in [[0x81, 0, 0, 5], [0x88, 0xa8, 0, 5], [0x81, 0, 0, 0]] {
        let mut twice = frame.clone();
        twice.splice(12..12, outer);
        let ran = program.run(&twice, 1).unwrap();
        assert_eq!((ran.verdict, ran.frame), (XDP_PASS, twice));
    }
    assert_eq!(program.run(&frame, 1).unwrap().verdict, XDP_TX);
}

#[test]
fn a_reply_is_no_shorter_than_a_frame_of_ethernet() {
    let (program, _maps) = load();
    let bytes_of = |source: &str, bytes: usize| {
        let mut request = CONNECT.to_vec();
        request.resize(bytes, 7);
        run(&program, source, &request).1.len()
    };
    assert_eq!([16, 17, 18, 19, 400].map(|bytes| bytes_of("192.0.2.1", bytes)), [58, 59, 60, 60, 60]);
    assert_eq!([16, 17, 400].map(|bytes| bytes_of("2001:db8:7::1", bytes)), [78; 3]);
}

/// Each update is written over settings that no frame reads any more, and needs none if nothing changes.
#[test]
fn the_last_settings_count_after_any_number_of_updates() {
    let (program, mut maps) = load();
    for _ in 0..20 {
        maps.set_settings(&Settings::default());
        maps.set_settings(&Settings::default());
        assert_eq!(run(&program, "192.0.2.1", &CONNECT).0, XDP_PASS);
        maps.set_settings(&settings(&ids()));
        maps.set_settings(&settings(&ids()));
        assert_eq!(run(&program, "192.0.2.1", &CONNECT).0, XDP_TX);
    }
}

#[test]
fn requests_over_a_limit_are_counted_by_action_and_family() {
    let (program, mut maps) = load();
    let _socket = add_socket(&mut maps);
    let sources = ["192.0.2.1", "2001:db8:7::1"];
    let issued = sources.map(|source| connect(&program, source).unwrap());
    let none = Some(Rate { token_ns: SLOW, full_ns: 0 });
    maps.set_settings(&Settings { connects: none, requests: none, ..settings(&ids()) });
    for ((source, id), times) in sources.into_iter().zip(issued).zip([1_usize, 2]) {
        for _ in 0..times {
            assert_eq!(run(&program, source, &CONNECT).0, XDP_DROP);
        }
        for (action, times) in [(1, times + 2), (2, times + 4)] {
            let mut request = [0; 36];
            request[..8].copy_from_slice(&id.to_be_bytes());
            request[11] = action;
            for _ in 0..times {
                assert_eq!(run(&program, source, &request).0, XDP_DROP);
            }
        }
    }
    let counts = maps.counts().unwrap();
    let limited = |action| [false, true].map(|is_v6| counts.of(Counted::limited(action, is_v6)));
    assert_eq!([limited(0), limited(1), limited(2)], [[1, 2], [3, 4], [5, 6]]);
    assert_eq!(counts.by_path()["rate_limited"], 21);
}

#[test]
fn a_map_that_is_full_is_an_error() {
    let sizes = Sizes { queues: 1, networks_max: 2, sources_max: 1, endpoints_max: 1 };
    let (_program, mut maps) = Program::load(&sizes).unwrap();
    let endpoints: Vec<SocketAddr> = (1..=3).map(|last| SocketAddr::from(([192, 0, 2, last], 1))).collect();
    maps.set_endpoints(&endpoints[..1]).unwrap();
    let error = maps.set_endpoints(&endpoints).unwrap_err().to_string();
    assert!(error.contains("the endpoints"), "{error}");
    let rule = NetworkRule { denied: true, exempt: false };
    let networks: Vec<Network> =
        endpoints.iter().map(|endpoint| Network { ip: endpoint.ip(), bits: 32, rule }).collect();
    maps.set_networks(&networks[..2], rule).unwrap();
    let error = maps.set_networks(&networks, rule).unwrap_err().to_string();
    assert!(error.contains("the networks"), "{error}");
    maps.set_networks(&networks[1..], rule).unwrap();
}
