//! The eBPF program against its model in Rust: the same verdict, the same counter and the same bytes for any frame.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod frames;

use std::net::{IpAddr, SocketAddr};

use common::{
    GATEWAY, NEVER_NS, SIZES, UNIX_S, XDP_DROP, XDP_PASS, XDP_REDIRECT, XDP_TX, add_socket, ids, network,
    settings,
};
use frames::Frames;
use shoal_engine::connection_id::{ConnectionIds, slot_at};
use shoal_testkit::network::ip;
use shoal_wire::udp::ConnectionId;
use shoal_xdp::frame::model::{Model, Source, Verdict};
use shoal_xdp::interface::{Interface, Segment, Vlan};
use shoal_xdp::program::{Counted, Maps, Network, NetworkRule, Program, Rate, Settings};

/// Issues ids, and has no limits.
struct Unlimited(ConnectionIds);

impl Source for Unlimited {
    fn next_hop(&mut self, _from: IpAddr, to: IpAddr) -> Option<(u32, [u8; 6])> {
        next_hop(to)
    }

    fn connection_id(&mut self, ip: IpAddr) -> u64 {
        self.0.issue(ip, UNIX_S).0
    }

    fn admits(&mut self, _ip: IpAddr, _is_connect: bool, _request: &[u8]) -> bool {
        true
    }
}

/// Permits no connects and no verified requests.
struct Strict(ConnectionIds);

impl Source for Strict {
    fn next_hop(&mut self, _from: IpAddr, to: IpAddr) -> Option<(u32, [u8; 6])> {
        next_hop(to)
    }

    fn connection_id(&mut self, ip: IpAddr) -> u64 {
        unreachable!("{ip} is not exempt")
    }

    fn admits(&mut self, ip: IpAddr, is_connect: bool, request: &[u8]) -> bool {
        let id = u64::from_be_bytes(*request.first_chunk().unwrap());
        !is_connect && !self.0.accepts(ConnectionId(id), ip, UNIX_S)
    }
}

/// Adds to the network of this thread what [`next_hop`] returns: a neighbour, a network that cannot be reached, and one of a VLAN.
fn add_routes() {
    for line in [
        "neigh add 100.64.0.3 lladdr 02:00:00:00:00:03 dev server",
        "route add 192.0.2.77 via 100.64.0.3",
        "route add unreachable 10.0.0.0/8",
        "addr add 100.65.0.1/24 dev client",
        "addr add fd01::1/64 dev client nodad",
        "neigh add 100.65.0.2 lladdr 02:00:00:00:00:02 dev client",
        "neigh add fd01::2 lladdr 02:00:00:00:00:02 dev client",
        "route add 203.0.114.0/24 via 100.65.0.2",
        "route add 2001:db8:bae::/48 via fd01::2",
    ] {
        ip(line);
    }
}

/// The interface that stands for one of a VLAN.
fn vlan_index() -> u32 {
    Interface::find("client").unwrap().index
}

fn next_hop(to: IpAddr) -> Option<(u32, [u8; 6])> {
    let of = |network: &str, bits| contains(network.parse().unwrap(), bits, to);
    if of("192.0.2.77", 32) {
        return Some((network().interface_index, [2, 0, 0, 0, 0, 3]));
    }
    if of("203.0.114.0", 24) || of("2001:db8:bae::", 48) {
        return Some((vlan_index(), GATEWAY));
    }
    (!of("10.0.0.0", 8) && !of("fe80::", 10)).then(|| (network().interface_index, GATEWAY))
}

fn contains(network: IpAddr, bits: u32, ip: IpAddr) -> bool {
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => (u32::from(network) ^ u32::from(ip)) >> (32 - bits) == 0,
        (IpAddr::V6(network), IpAddr::V6(ip)) => (u128::from(network) ^ u128::from(ip)) >> (128 - bits) == 0,
        _ => false,
    }
}

fn rule_for(ip: &str, bits: u8, denied: bool) -> Network {
    Network { ip: ip.parse().unwrap(), bits, rule: NetworkRule { denied, exempt: false } }
}

/// Returns a model with the endpoints and networks that the frames are about.
fn model() -> Model {
    Model {
        endpoints: frames::ENDPOINTS.map(|address| address.parse().unwrap()).into(),
        networks: vec![
            rule_for("203.0.113.0", 24, true),
            rule_for("203.0.113.7", 32, false),
            rule_for("2001:db8:bad::", 48, true),
            rule_for("2001:db8:bad:9::", 64, false),
        ],
        answers: true,
        segments: vec![
            network(),
            Segment {
                vlan: Some(Vlan { protocol: 0x8100, number: 5 }),
                interface_index: vlan_index(),
                ..network()
            },
        ],
        ..Model::default()
    }
}

/// Loads the program and tells it what the model knows.
fn load(model: &Model) -> (Program, Maps) {
    let (program, mut maps) = Program::load(&SIZES).unwrap();
    let endpoints: Vec<SocketAddr> = model.endpoints.iter().copied().collect();
    maps.set_endpoints(&endpoints).unwrap();
    maps.set_networks(&model.networks, model.otherwise).unwrap();
    maps.set_segments(&model.segments).unwrap();
    if model.answers {
        maps.set_settings(&settings(&ids()));
        maps.set_slot(slot_at(UNIX_S).0, NEVER_NS);
    }
    (program, maps)
}

/// Asserts that both do the same with a frame. Returns what it was counted as.
fn compare(
    program: &Program,
    maps: &Maps,
    model: &Model,
    frame: &[u8],
    source: &mut impl Source,
) -> Option<Counted> {
    let verdict = model.verdict(frame, source);
    let (number, counted, bytes) = match &verdict {
        Verdict::Pass(counted) => (XDP_PASS, *counted, frame),
        Verdict::Drop(counted) => (XDP_DROP, Some(*counted), frame),
        Verdict::Transmit(counted, reply) => (XDP_TX, Some(*counted), &reply[..]),
        Verdict::Redirect => (XDP_REDIRECT, Some(Counted::Redirected), frame),
    };
    let mut expected = maps.counts().unwrap();
    let ran = program.run(frame, 1).unwrap();
    if let Some(counted) = counted {
        expected.0[counted as usize] += 1;
    }
    assert_eq!(ran.verdict, number, "{verdict:?} {frame:02x?}");
    assert_eq!(maps.counts().unwrap(), expected, "{verdict:?} {frame:02x?}");
    assert_eq!(ran.frame, bytes, "{verdict:?} {frame:02x?}");
    counted
}

#[test]
fn the_program_does_what_the_model_does() {
    network();
    add_routes();
    for (seed, has_socket, answers) in [(1, false, true), (2, true, true), (3, true, false)] {
        let model = Model { has_socket, answers, ..model() };
        let (program, mut maps) = load(&model);
        let _socket = has_socket.then(|| add_socket(&mut maps));
        let (mut frames, mut source) = (Frames::new(seed), Unlimited(ids()));
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            let frame = frames.next();
            *seen.entry(compare(&program, &maps, &model, &frame, &mut source)).or_insert(0) += 1;
        }
        println!("{seen:?}");
        for counted in [
            None,
            Some(if answers { Counted::ConnectsV4 } else { Counted::Denied }),
            Some(if answers { Counted::ConnectsV6 } else { Counted::Denied }),
            Some(Counted::Denied),
            Some(Counted::Unanswerable),
            Some(if has_socket { Counted::Redirected } else { Counted::NoSocket }),
            Some(Counted::Malformed),
            Some(Counted::BadChecksum),
            Some(Counted::Fragments),
            Some(Counted::ExtensionHeaders),
            Some(Counted::TooLong),
            Some(Counted::OtherVlan),
            Some(Counted::NoRouteBack),
        ] {
            assert!(seen.get(&counted) > Some(&20), "{counted:?} was hardly tested: {seen:?}");
        }
    }
}

#[test]
fn an_allow_list_denies_all_others() {
    network();
    add_routes();
    let networks = vec![rule_for("192.0.2.0", 24, false), rule_for("2001:db8:7::", 48, false)];
    let otherwise = NetworkRule { denied: true, exempt: false };
    let model = Model { networks, otherwise, ..model() };
    let (program, maps) = load(&model);
    let (mut frames, mut source) = (Frames::new(4), Unlimited(ids()));
    for _ in 0..2000 {
        let frame = frames.next();
        compare(&program, &maps, &model, &frame, &mut source);
    }
}

#[test]
fn limits_are_those_of_the_model() {
    network();
    add_routes();
    let model = Model { has_socket: true, ..model() };
    let (program, mut maps) = load(&model);
    let _socket = add_socket(&mut maps);
    let none = Some(Rate { token_ns: 1 << 50, full_ns: 0 });
    maps.set_settings(&Settings { connects: none, requests: none, ..settings(&ids()) });
    let (mut frames, mut source) = (Frames::new(5), Strict(ids()));
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..40_000 {
        let frame = frames.next();
        *seen.entry(compare(&program, &maps, &model, &frame, &mut source)).or_insert(0) += 1;
    }
    for limited in
        [0, 1, 2].into_iter().flat_map(|action| [false, true].map(|v6| Counted::limited(action, v6)))
    {
        assert!(seen.get(&Some(limited)) > Some(&20), "{limited:?} was hardly tested: {seen:?}");
    }
}
