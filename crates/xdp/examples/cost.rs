//! Prints what the eBPF program costs for one frame, in nanoseconds: `cargo run --release -p shoal-xdp --example cost`.
//!
//! The kernel runs the program on one frame in memory (`BPF_PROG_TEST_RUN`), without a driver. A frame that is answered is no
//! request afterwards, so these are run one by one, and the time that the kernel needs to take the time is subtracted.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use shoal_testkit::network::enter_behind;
use shoal_xdp::frame::Head;
use shoal_xdp::interface::Segment;
use shoal_xdp::program::{Ids, Maps, Network, NetworkRule, Program, Rate, Settings, Sizes};
use shoal_xdp::route::permit_lookups;

type Failure = Box<dyn std::error::Error>;

const TRACKER: [&str; 2] = ["198.51.100.1:6969", "[2001:db8::1]:6969"];
const CONNECT: [u8; 16] = [0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, 1, 2, 3, 4];
const ANNOUNCE: [u8; 98] = {
    let mut request = [7; 98];
    (request[8], request[9], request[10], request[11]) = (0, 0, 0, 1);
    request
};

fn main() -> Result<(), Failure> {
    let sizes = Sizes { queues: 1, networks_max: 200_000, sources_max: 1 << 20, endpoints_max: 16 };
    let (program, mut maps) = Program::load(&sizes)?;
    let endpoints = [TRACKER[0].parse()?, TRACKER[1].parse()?];
    maps.set_endpoints(&endpoints)?;
    let socket = add_socket(&mut maps)?;
    let interface_index = enter_behind("02:00:00:00:00:02");
    permit_lookups()?;
    maps.set_segments(&[Segment { vlan: None, interface_index, mac: [2, 0, 0, 0, 0, 1] }])?;
    let (v4, v6) = ("192.0.2.1:6881", "[2001:db8:7::1]:6881");
    let none = program.run(&[0; 64], 1_000_000)?.duration;
    println!("{:<44} {:>6} ns", "another protocol", none.as_nanos());
    print(&program, "UDP for another program", &frame(v4, "198.51.100.1:53", &CONNECT)?, 1_000_000)?;
    let ids = Ids { keyed: [1, 2, 3, 4], former: None, valid_ns: 180_000_000_000 };
    let mut settings =
        Settings { ids: Some(ids), bucket_key: [5, 6], is_native: true, ..Settings::default() };
    maps.set_settings(&settings);
    maps.set_slot(1, 1 << 62);
    print_answered(&program, "")?;
    print(&program, "announce v4 to the socket", &frame(v4, TRACKER[0], &ANNOUNCE)?, 1_000_000)?;
    print(&program, "announce v6 to the socket", &frame(v6, TRACKER[1], &ANNOUNCE)?, 1_000_000)?;
    settings.connects = Some(Rate::new(u32::MAX, u32::MAX));
    maps.set_settings(&settings);
    print_answered(&program, ", limited")?;
    print_flood(&program)?;
    settings.connects = Some(Rate::new(1, 1));
    maps.set_settings(&settings);
    print(&program, "connect v4 over the limit", &frame(v4, TRACKER[0], &CONNECT)?, 1_000_000)?;
    print(&program, "connect v6 over the limit", &frame(v6, TRACKER[1], &CONNECT)?, 1_000_000)?;
    settings.connects = None;
    maps.set_settings(&settings);
    for count in [1, 100, 100_000] {
        maps.set_networks(&networks(count)?, NetworkRule::default())?;
        let name = format!("denied v4, {count} networks");
        print(&program, &name, &frame("203.0.113.1:6881", TRACKER[0], &CONNECT)?, 1_000_000)?;
        let name = format!("denied v6, {count} networks");
        print(&program, &name, &frame("[2001:db8:bad::1]:6881", TRACKER[1], &CONNECT)?, 1_000_000)?;
        print_answered(&program, &format!(", {count} networks"))?;
    }
    drop(socket);
    println!("{:?}", maps.counts()?);
    Ok(())
}

fn add_socket(maps: &mut Maps) -> Result<std::os::fd::OwnedFd, Failure> {
    let socket = socket(AddressFamily::XDP, SocketType::RAW, None)?;
    sockopt::set_xdp_rx_ring_size(&socket, 64)?;
    maps.set_socket(0, Some(socket.as_fd()))?;
    maps.backlog(0).ok_or("there is a queue")?.set_frames_max(u64::MAX);
    Ok(socket)
}

fn frame(source: &str, destination: &str, payload: &[u8]) -> Result<Vec<u8>, Failure> {
    let (source, destination): (SocketAddr, SocketAddr) = (source.parse()?, destination.parse()?);
    let macs = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let head = Head { destination_mac: macs.0, source_mac: macs.1, tag: None, source, destination };
    let mut frame = vec![0; head.bytes()];
    frame.extend(payload);
    head.write(&mut frame, head.bytes(), payload.len())?;
    Ok(frame)
}

/// Returns a network of each family to deny, and more.
fn networks(count: u32) -> Result<Vec<Network>, Failure> {
    let rule = NetworkRule { denied: true, exempt: false };
    let mut networks = vec![
        Network { ip: "203.0.113.0".parse()?, bits: 24, rule },
        Network { ip: "2001:db8:bad::".parse()?, bits: 48, rule },
    ];
    let mut rng = fastrand::Rng::with_seed(1);
    networks.extend((1..count).map(|_| Network {
        ip: rng.u32(1 << 30..1 << 31).to_be_bytes().into(),
        bits: 24,
        rule,
    }));
    networks.extend((1..count).map(|_| Network {
        ip: (rng.u128(..) >> 3).to_be_bytes().into(),
        bits: 48,
        rule,
    }));
    Ok(networks)
}

fn print(program: &Program, name: &str, frame: &[u8], repeat: u32) -> Result<(), Failure> {
    let rounds = (0..5).map(|_| program.run(frame, repeat)).collect::<Result<Vec<_>, _>>()?;
    let mut durations: Vec<_> = rounds.iter().map(|ran| ran.duration).collect();
    durations.sort_unstable();
    println!("{name:<44} {:>6} ns, verdict {}", durations[2].as_nanos(), rounds[0].verdict);
    Ok(())
}

fn print_answered(program: &Program, what: &str) -> Result<(), Failure> {
    let median = |frame: &[u8]| -> Result<(u128, u32), Failure> {
        let rounds = (0..20_000).map(|_| program.run(frame, 1)).collect::<Result<Vec<_>, _>>()?;
        let mut durations: Vec<_> = rounds.iter().map(|ran| ran.duration.as_nanos()).collect();
        durations.sort_unstable();
        Ok((durations[durations.len() / 2], rounds[0].verdict))
    };
    let (empty, _) = median(&[0; 64])?;
    for (name, source, tracker) in
        [("v4", "192.0.2.1:6881", TRACKER[0]), ("v6", "[2001:db8:7::1]:6881", TRACKER[1])]
    {
        let (ns, verdict) = median(&frame(source, tracker, &CONNECT)?)?;
        let name = format!("connect {name}{what}");
        println!(
            "{name:<44} {:>6} ns, verdict {verdict} ({ns} with the {empty} of an empty run)",
            ns.saturating_sub(empty)
        );
    }
    Ok(())
}

/// Prints the cost of requests that each come from another source: its buckets are in no cache.
fn print_flood(program: &Program) -> Result<(), Failure> {
    let mut rng = fastrand::Rng::with_seed(2);
    for (name, tracker) in [("v4", TRACKER[0]), ("v6", TRACKER[1])] {
        let mut durations = Vec::new();
        for _ in 0..20_000 {
            let source = match name {
                "v4" => SocketAddr::from((rng.u32(1 << 24..100 << 24).to_be_bytes(), 6881)),
                _ => SocketAddr::from(((rng.u128(..) >> 2).to_be_bytes(), 6881)),
            };
            durations
                .push(program.run(&frame(&source.to_string(), tracker, &CONNECT)?, 1)?.duration.as_nanos());
        }
        durations.sort_unstable();
        let name = format!("connect {name}, limited, of random sources");
        println!("{name:<44} {:>6} ns with an empty run", durations[durations.len() / 2]);
    }
    Ok(())
}
