//! Attacks on the UDP protocol.

use std::net::UdpSocket;

use anyhow::Result;
use shoal_wire::udp::Reply;

use crate::measure::count;
use crate::siege::address::{honest_v4, hostile_v4, hostile_v6};
use crate::siege::attack::{Attack, Layer, Limits, Setting};
use crate::siege::context::Context;
use crate::siege::udp::{Announce, Flow, announce_all, connect_packet, leecher, scrape_packet, send_all};

/// The promise about unverified addresses.
const NO_AMPLIFICATION: &str = "no reply to an unverified address is larger than the request";

/// Each worker on its processor receives the datagrams that this processor has received.
const STEERED: &[Setting] = &[("workers.pin", "true"), ("workers.steer", "true")];

const ANSWERED: &str = "honest clients are answered";

const fn datagrams(
    name: &'static str,
    tries: &'static str,
    promise: &'static str,
    run: fn(&Context<'_>) -> Result<()>,
) -> Attack {
    Attack { limits: Limits::SWARMS_STAY, ..Layer::Datagrams.attack(name, tries, promise, run) }
}

pub(super) const ATTACKS: &[Attack] = &[
    datagrams(
        "forged-sources",
        "announces and scrapes with wrong connection ids, as from forged addresses",
        NO_AMPLIFICATION,
        forged_sources,
    ),
    datagrams(
        "connect-flood",
        "connects from thousands of addresses and ports",
        NO_AMPLIFICATION,
        connect_flood,
    ),
    datagrams("garbage", "random bytes of every length", NO_AMPLIFICATION, garbage),
    datagrams(
        "scrape-flood",
        "scrapes of 74 torrents without a pause, from a verified address",
        ANSWERED,
        scrape_flood,
    ),
    Attack {
        settings: &[
            ("limits.udp_requests_per_s", "50"),
            ("limits.http_requests_per_s", "50"),
            ("limits.webtorrent_requests_per_s", "50"),
            ("limits.burst_s", "2"),
        ],
        ..datagrams(
            "limited-flood",
            "announces without a pause, each address far beyond its limit",
            "sources beyond their limits are refused, and others served",
            limited_flood,
        )
    },
    datagrams(
        "scrapes-and-announces",
        "bursts of long scrapes with announces behind them, which fill the batches of a worker",
        "every announce is answered",
        scrapes_and_announces,
    ),
    Attack {
        settings: STEERED,
        ..datagrams(
            "steered-flood",
            "connects from thousands of ports on processors of the attacker's choice, with `workers.steer`",
            ANSWERED,
            connect_flood,
        )
    },
    datagrams(
        "connection-id-guessing",
        "announces with guessed connection ids, to register peers at other addresses",
        "no guess is accepted",
        guessing,
    ),
    datagrams(
        "stolen-connection-id",
        "announces from one address with the connection id of another",
        "the id is not accepted from another address",
        stolen_id,
    ),
    datagrams(
        "truncated-and-oversized",
        "requests truncated at every byte, and requests with up to 60 KB of trailing bytes",
        ANSWERED,
        truncated,
    ),
    datagrams(
        "option-chains",
        "announces with thousands of BEP 41 options, or with options of a wrong length",
        ANSWERED,
        options,
    ),
];

/// Sends datagrams from many sockets without waiting, and counts the replies.
struct Flood {
    sockets: Vec<UdpSocket>,
    sent: u64,
    sent_bytes: u64,
    received_bytes: u64,
    received: u64,
}

impl Flood {
    fn open(context: &Context<'_>, sockets: u32) -> Result<Self> {
        let open = |number: u32| {
            let source = if number.is_multiple_of(4) { hostile_v6(number) } else { hostile_v4(number) };
            let socket = UdpSocket::bind((source, 0))?;
            socket.connect(context.tracker.udp(source))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let sockets: Vec<UdpSocket> = (0..sockets).map(open).collect::<Result<_>>()?;
        Ok(Self { sockets, sent: 0, sent_bytes: 0, received_bytes: 0, received: 0 })
    }

    /// Sends what `make` returns, from each socket in round, until the end of the window.
    fn run(&mut self, context: &Context<'_>, mut make: impl FnMut() -> Vec<u8>) {
        while !context.is_window_over() {
            for index in 0..self.sockets.len() {
                let packet = make();
                if self.sockets[index].send(&packet).is_ok() {
                    self.sent += 1;
                    self.sent_bytes += count(packet.len());
                }
            }
            self.drain();
        }
        context.sleep_ms(100);
        self.drain();
        context.spend(self.sent, self.sent_bytes);
    }

    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        for socket in &self.sockets {
            while let Ok(length) = socket.recv(&mut buffer) {
                self.received += 1;
                self.received_bytes += count(length);
            }
        }
    }

    fn check_amplification(&self, context: &Context<'_>) {
        let found = format!("{} bytes back for {} bytes", self.received_bytes, self.sent_bytes);
        context.check("bytes sent back", self.received_bytes <= self.sent_bytes, found);
    }
}

fn forged_sources(context: &Context<'_>) -> Result<()> {
    let mut flood = Flood::open(context, 64)?;
    let hashes = [[3; 20]; 74];
    flood.run(context, || match fastrand::bool() {
        true => Announce { numwant: 200, ..leecher([3; 20], 9000) }.packet(fastrand::u64(..), 1),
        false => scrape_packet(fastrand::u64(..), 2, &hashes),
    });
    context.check(
        "replies to wrong ids",
        flood.received == 0,
        format!("{} of {}", flood.received, flood.sent),
    );
    Ok(())
}

fn connect_flood(context: &Context<'_>) -> Result<()> {
    let mut flood = Flood::open(context, context.pick(500, 4000))?;
    flood.run(context, connect_packet);
    flood.check_amplification(context);
    Ok(())
}

fn garbage(context: &Context<'_>) -> Result<()> {
    let mut flood = Flood::open(context, 32)?;
    flood.run(context, || {
        let mut packet = vec![0; fastrand::usize(..1500)];
        fastrand::fill(&mut packet);
        // Half of them have a valid action, so that they are decoded further.
        if packet.len() > 12 && fastrand::bool() {
            packet[8..12].copy_from_slice(&fastrand::u32(..5).to_be_bytes());
        }
        packet
    });
    flood.check_amplification(context);
    Ok(())
}

fn scrape_flood(context: &Context<'_>) -> Result<()> {
    let client = context.udp(hostile_v4(1))?;
    let hashes: Vec<[u8; 20]> = (0..74).map(|byte| [byte; 20]).collect();
    let packet = scrape_packet(client.connection_id(), 2, &hashes);
    while !context.is_window_over() {
        let packets = (0..1024).map(|_| packet.clone());
        context.spend_flow(send_all(&client, packets, || context.is_window_over(), |_| {}));
    }
    Ok(())
}

fn limited_flood(context: &Context<'_>) -> Result<()> {
    let address =
        |number: u32| if number.is_multiple_of(4) { hostile_v6(number) } else { hostile_v4(number) };
    let mut clients: Vec<_> =
        (0..context.pick(32, 1000)).map(|number| context.udp(address(number))).collect::<Result<_>>()?;
    let mut flow = Flow::default();
    while !context.is_window_over() {
        for client in &mut clients {
            let peers = (1..=512).map(|port| leecher([7; 20], port));
            flow.add(announce_all(client, peers, || context.is_window_over(), |_| {}));
        }
    }
    context.spend_flow(flow);
    let found = format!("{} of {} replies", flow.errors, flow.answered);
    context.check("most announces are refused", flow.errors * 2 > flow.answered, found);
    Ok(())
}

/// Sends bursts that the tracker receives as a batch of 64: some scrapes of random lengths, and announces for the rest.
fn scrapes_and_announces(context: &Context<'_>) -> Result<()> {
    let client = context.udp(hostile_v4(1))?;
    let hashes: Vec<[u8; 20]> = (0..74).map(|byte| [byte; 20]).collect();
    let (id, mut announces, mut answered) = (client.connection_id(), 0, 0);
    for _ in context.rounds() {
        let scrapes = fastrand::usize(1..32);
        announces += count(64 - scrapes);
        let packets = (0..64).map(|index| {
            if index < scrapes {
                scrape_packet(id, 2, &hashes[..fastrand::usize(30..=hashes.len())])
            } else {
                leecher([6; 20], fastrand::u16(1..)).packet(id, 1)
            }
        });
        let look = |reply: Reply<'_>| answered += u64::from(matches!(reply, Reply::Announce { .. }));
        context.spend_flow(send_all(&client, packets, || false, look));
    }
    let found = format!("{answered} of {announces}");
    context.check("announces that are answered", answered * 100 >= announces * 99, found);
    Ok(())
}

fn guessing(context: &Context<'_>) -> Result<()> {
    let mut flood = Flood::open(context, 16)?;
    // Ids near a valid id of another address are the best guesses.
    let near = context.udp(hostile_v4(100))?.connection_id();
    let mut step = 0;
    flood.run(context, || {
        step += 1;
        leecher([4; 20], 9001).packet(if fastrand::bool() { near ^ step } else { fastrand::u64(..) }, 1)
    });
    let members = context.udp(honest_v4(9))?.scrape(&[[4; 20]])?[0].members();
    context.check("guesses accepted", members == 0, format!("{members} of {}", flood.sent));
    Ok(())
}

fn stolen_id(context: &Context<'_>) -> Result<()> {
    let id = context.udp(hostile_v4(100))?.connection_id();
    let mut flood = Flood::open(context, 16)?;
    flood.run(context, || leecher([5; 20], 9001).packet(id, 1));
    let members = context.udp(honest_v4(9))?.scrape(&[[5; 20]])?[0].members();
    context.check("peers registered", members == 0, format!("{members} after {}", flood.sent));
    Ok(())
}

fn truncated(context: &Context<'_>) -> Result<()> {
    let client = context.udp(hostile_v4(1))?;
    let whole = [
        connect_packet(),
        leecher([6; 20], 9002).packet(client.connection_id(), 1),
        scrape_packet(client.connection_id(), 2, &[[6; 20]; 74]),
    ];
    let lengths = |packet: &Vec<u8>| (0..packet.len()).chain((packet.len()..60_000).step_by(997)).collect();
    let packets = whole.iter().flat_map(|packet| {
        let lengths: Vec<usize> = lengths(packet);
        lengths.into_iter().map(|length| {
            let mut packet = packet.clone();
            packet.resize(length, 0xff);
            packet
        })
    });
    // Most of these get no reply, so the windows time out, and the time limit applies.
    context.spend_flow(send_all(&client, packets, || context.is_over(), |_| {}));
    Ok(())
}

fn options(context: &Context<'_>) -> Result<()> {
    let client = context.udp(hostile_v4(1))?;
    let announce = leecher([6; 20], 9003).packet(client.connection_id(), 1);
    // BEP 41: 1 is no operation, 2 is URL data with a length.
    let chains: [Vec<u8>; 4] = [
        vec![1; 1300],
        [2, 255].repeat(600),
        [vec![2, 255], vec![b'/'; 255]].concat().repeat(5),
        (0..=255).chain(0..=255).collect(),
    ];
    let mut answered = 0;
    while !context.is_window_over() {
        let packets = chains.iter().cycle().take(512).map(|chain| [announce.as_slice(), chain].concat());
        let look = |reply: Reply<'_>| answered += u64::from(matches!(reply, Reply::Announce { .. }));
        context.spend_flow(send_all(&client, packets, || context.is_window_over(), look));
    }
    context.check("announces with options are served", answered > 0, format!("{answered} replies"));
    Ok(())
}
