//! Frames of a network card: the parser, the headers of replies, and the eBPF program against its model.
//!
//! The first byte of an input tells which checksums are made right, for a fuzzer cannot calculate them. The rest is a frame.

use std::net::IpAddr;

use shoal_engine::connection_id::{ConnectionIds, ConnectionKey, slot_at};
use shoal_testkit::network::enter_behind;
use shoal_xdp::frame::model::{Model, Source, Verdict};
use shoal_xdp::frame::{Checksum, Datagram, Head, parse};
use shoal_xdp::interface::Segment;
use shoal_xdp::program::{Ids, LoadError, Network, NetworkRule, Program, Settings, Sizes};
use shoal_xdp::route::permit_lookups;

/// The longest frame that the kernel takes for a test run.
const FRAME_BYTES_MAX: usize = 3000;
const FRAME_BYTES_MIN: usize = 14;

const UNIX_S: u64 = 1_700_000_000;

/// The interface of a new network namespace, behind which all networks are, and the MAC address of the gateway there.
const INTERFACE_INDEX: u32 = 3;
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Bits of the first byte.
const FIX_IPV4: u8 = 1;
const FIX_UDP: u8 = 2;

struct Unlimited(ConnectionIds);

impl Source for Unlimited {
    fn next_hop(&mut self, _from: IpAddr, to: IpAddr) -> Option<(u32, [u8; 6])> {
        // The kernel looks up no way to a link-local address.
        let is_link_local = matches!(to, IpAddr::V6(ip) if ip.is_unicast_link_local());
        (!is_link_local).then_some((INTERFACE_INDEX, GATEWAY))
    }

    fn connection_id(&mut self, ip: IpAddr) -> u64 {
        self.0.issue(ip, UNIX_S).0
    }

    fn admits(&mut self, _ip: IpAddr, _is_connect: bool, _request: &[u8]) -> bool {
        true
    }
}

/// Parses the input as a frame, answers it, and compares the eBPF program with its model if the kernel permits that.
pub fn xdp_frame(input: &[u8]) {
    let Some((settings, frame)) = input.split_first() else { return };
    if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&frame.len()) {
        let _ = parse(frame);
        return;
    }
    let mut frame = frame.to_vec();
    fix_checksums(&mut frame, *settings);
    if let Ok(datagram) = parse(&frame) {
        check_datagram(&frame, &datagram);
    }
    let (model, ids) = (model(), ids());
    let verdict = model.verdict(&frame, &mut Unlimited(ids.clone()));
    if let Verdict::Transmit(_, reply) = &verdict {
        let datagram = parse(reply).expect("a reply is a datagram");
        assert_eq!(datagram.checksum(reply), Checksum::Valid);
        // Nothing follows but padding.
        assert!(datagram.payload.end == reply.len() || reply.len() <= 60);
        assert!(reply.len() <= frame.len());
    }
    with_program(|program| {
        let ran = program.run(&frame, 1).expect("the kernel runs the program on any frame");
        let (number, bytes) = match &verdict {
            Verdict::Drop(_) => (1, &frame),
            Verdict::Pass(_) => (2, &frame),
            Verdict::Transmit(_, reply) => (3, reply),
            Verdict::Redirect => (4, &frame),
        };
        assert_eq!((ran.verdict, &ran.frame), (number, bytes), "{verdict:?}");
    });
}

/// Writes a reply with the same payload, and reads it back.
fn check_datagram(frame: &[u8], datagram: &Datagram) {
    let payload = &frame[datagram.payload.clone()];
    let head = Head::of_reply(frame, datagram).expect("its headers are in the frame");
    let mut out = vec![0xaa; 100];
    out.extend(payload);
    let start = head.write(&mut out, 100, payload.len()).expect("there is room");
    let reply = &out[start..];
    let read = parse(reply);
    if datagram.destination.ip().is_loopback() {
        return;
    }
    let read = read.expect("it is a datagram");
    assert_eq!((read.source, read.destination), (datagram.destination, datagram.source));
    assert_eq!((&reply[read.payload.clone()], read.ip_offset), (payload, datagram.ip_offset));
    assert_eq!(read.checksum(reply), Checksum::Valid);
    assert!(!read.has_options());
    assert_eq!(reply[12..read.ip_offset], frame[12..datagram.ip_offset]);
    let _ = datagram.checksum(frame);
}

fn ids() -> ConnectionIds {
    ConnectionIds::new(&ConnectionKey::new([7; 16]))
}

fn model() -> Model {
    let rule = NetworkRule { denied: true, exempt: false };
    let network = |ip: IpAddr, bits| Network { ip, bits, rule };
    Model {
        endpoints: [([198, 51, 100, 1], 6969).into(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 6969).into()]
            .into(),
        networks: vec![
            network([203, 0, 113, 0].into(), 24),
            network([0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 0].into(), 48),
        ],
        answers: true,
        segments: vec![Segment { vlan: None, interface_index: INTERFACE_INDEX, mac: [2, 0, 0, 0, 0, 1] }],
        ..Model::default()
    }
}

/// Returns the program with the rules of the model, and moves this thread into a network with its routes. Without the permission to load
/// it, only the model is tested.
fn with_program(test: impl FnOnce(&Program)) {
    thread_local! {
        static PROGRAM: Option<Program> = load();
    }
    PROGRAM.with(|program| program.as_ref().map(test));
}

fn load() -> Option<Program> {
    let (sizes, model) = (Sizes { queues: 1, networks_max: 8, sources_max: 1, endpoints_max: 8 }, model());
    let (program, mut maps) = match Program::load(&sizes) {
        Err(LoadError::NotPermitted) => return None,
        loaded => loaded.expect("the program is right"),
    };
    assert_eq!(enter_behind("02:00:00:00:00:02"), INTERFACE_INDEX);
    permit_lookups().expect("the network is that of this thread");
    let keyed = ids().share().keyed;
    let ids = Ids { keyed, former: None, valid_ns: 1 };
    maps.set_settings(&Settings { ids: Some(ids), ..Settings::default() });
    maps.set_slot(slot_at(UNIX_S).0, u64::MAX);
    maps.set_segments(&model.segments).expect("there is room");
    maps.set_endpoints(&Vec::from_iter(model.endpoints)).expect("there is room");
    maps.set_networks(&model.networks, model.otherwise).expect("there is room");
    Some(program)
}

/// Makes checksums right, in a frame without tags or with one.
fn fix_checksums(frame: &mut [u8], which: u8) {
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let (udp, addresses) = match frame.get(ip) {
        Some(first) if first >> 4 == 4 => (ip + usize::from(first & 0xf) * 4, ip + 12..ip + 20),
        Some(first) if first >> 4 == 6 => (ip + 40, ip + 8..ip + 40),
        _ => return,
    };
    if frame.len() < udp + 8 || udp < ip + 20 {
        return;
    }
    if which & FIX_IPV4 != 0 && frame[ip] >> 4 == 4 {
        frame[ip + 10..ip + 12].fill(0);
        let sum = !sum(0, &frame[ip..udp]);
        frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let bytes = u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]);
    let Some(datagram) = frame.get(udp..udp + usize::from(bytes)) else { return };
    if which & FIX_UDP != 0 && datagram.len() >= 8 {
        let pseudo = u32::from(sum(0, &frame[addresses])) + 17 + u32::from(bytes);
        let field = u32::from(u16::from_be_bytes([datagram[6], datagram[7]]));
        // The present checksum is taken out again.
        let sum = !sum(pseudo + (0xffff - field), datagram);
        frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the ones' complement sum of words of 16 bits.
fn sum(start: u32, bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}
