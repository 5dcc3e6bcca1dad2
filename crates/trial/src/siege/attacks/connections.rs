//! Attacks on connections: slots, slow clients, descriptors, PROXY headers.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::net::sockopt::set_socket_linger;
use shoal_testkit::client::tls::Tls;
use shoal_testkit::client::{tcp, tcp_with_small_window};

use super::holding::{Holding, Reading};
use crate::measure;
use crate::measure::count;
use crate::siege::address::{
    honest_v4, honest_v6, hostile, hostile_block_v4, hostile_site_v6, hostile_v4, hostile_v6, proxy,
};
use crate::siege::attack::{Attack, Layer, Limits, Setting};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, announce_target, get, get_and_close};
use crate::siege::udp::{announce_all, leecher};
use crate::siege::websocket::{WebSocket, announce, random_id, upgrade};

/// A small number of slots, half of them for each of the two workers.
const FEW_SLOTS: &[Setting] = &[("http.connections_max", "200")];

/// The larger number of slots in full mode.
const THOUSAND_SLOTS: &[Setting] = &[("http.connections_max", "1000")];

/// As many slots as the sources of a flood have connections, and more.
const FOUR_HUNDRED_SLOTS: &[Setting] = &[("http.connections_max", "400")];

/// The number of connections that a flood opens in a second, and the number of the last ones that it keeps open.
const FLOOD_PER_S: u32 = 700;
const FLOOD_KEPT: usize = 2000;

/// The number of clients that connect together.
const CROWD: u32 = 64;

/// Connections with bursts, the requests of a burst, and the least number of bursts.
const BURST_CONNECTIONS: u32 = 1000;
const BURST: usize = 8;
const BURSTS_MIN: u32 = 4;

/// A pause after a burst, and the bytes that the tracker forgets in each millisecond of it. A connection that has moved 8 KiB
/// more lately waits for quiet ones.
const FORGETTING_MS: u64 = 250;
const FORGOTTEN_BYTES_PER_MS: u64 = 32;

/// The number of honest WebSockets that wait for offers during a flood.
const WAITING_SOCKETS: u32 = 20;

/// Slots without a limit per source.
const FEW_SLOTS_FOR_ALL: &[Setting] =
    &[("http.connections_max", "200"), ("http.connections_per_source_max", "100000")];
const THOUSAND_SLOTS_FOR_ALL: &[Setting] =
    &[("http.connections_max", "1000"), ("http.connections_per_source_max", "100000")];

const SIXTEEN_PER_SOURCE: &[Setting] = &[("http.connections_per_source_max", "16")];

const ONE_FULL_SCRAPE: &[Setting] =
    &[("http.full_scrape", "true"), ("http.full_scrape_timeout_s", "2"), ("http.send_timeout_s", "5")];

const SERVED: &str = "honest clients are answered, and no honest WebSocket is evicted";

/// Encodes a complete request.
fn request() -> Vec<u8> {
    get(&announce_target(&[2; 20], 7100, 10))
}

const fn connections(
    name: &'static str,
    tries: &'static str,
    settings: &'static [Setting],
    run: fn(&Context<'_>) -> Result<()>,
) -> Attack {
    Attack { settings, ..Layer::Connections.attack(name, tries, SERVED, run) }
}

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        settings_full: THOUSAND_SLOTS,
        ..connections(
            "slots-by-a-byte",
            "ten addresses hold every slot with a whole request and one byte of the next",
            FEW_SLOTS,
            slots_by_a_byte,
        )
    },
    Attack {
        settings_full: THOUSAND_SLOTS_FOR_ALL,
        ..connections(
            "slots-without-a-limit",
            "the same without an effective http.connections_per_source_max",
            FEW_SLOTS_FOR_ALL,
            slots_by_a_byte,
        )
    },
    Attack {
        settings_full: THOUSAND_SLOTS_FOR_ALL,
        ..connections(
            "idle-hoarding",
            "ten addresses hold every slot with idle connections",
            FEW_SLOTS_FOR_ALL,
            |context| hold(context, &request(), b"", Reading::Everything),
        )
    },
    Attack {
        settings_full: THOUSAND_SLOTS_FOR_ALL,
        ..connections(
            "slowloris",
            "ten addresses hold every slot with heads that arrive byte by byte",
            FEW_SLOTS_FOR_ALL,
            |context| hold(context, b"GET /announce HTTP/1.1\r\nX: ", b"slowloris", Reading::Everything),
        )
    },
    Attack {
        settings_full: THOUSAND_SLOTS_FOR_ALL,
        ..connections(
            "slow-readers",
            "ten addresses hold every slot with responses that they do not read",
            FEW_SLOTS_FOR_ALL,
            slow_readers,
        )
    },
    Attack {
        settings_full: THOUSAND_SLOTS_FOR_ALL,
        ..connections("silent", "ten addresses connect and send nothing", FEW_SLOTS_FOR_ALL, |context| {
            hold(context, b"", b"", Reading::Everything)
        })
    },
    Attack {
        settings_full: THOUSAND_SLOTS,
        ..connections(
            "many-networks-of-one-prefix",
            "one IPv6 /48 holds every slot from hundreds of /64 networks",
            FEW_SLOTS,
            many_networks,
        )
    },
    connections(
        "half-requests-of-one-allocation",
        "700 half requests a second from 300 IPv6 /48 networks of one /39",
        FOUR_HUNDRED_SLOTS,
        |context| flood_with(context, HALF_REQUEST, |number| hostile_site_v6(number % 300)),
    ),
    connections(
        "half-requests-of-200-addresses",
        "700 half requests a second from 200 IPv4 addresses",
        FOUR_HUNDRED_SLOTS,
        |context| flood_with(context, HALF_REQUEST, |number| hostile_v4(number % 200)),
    ),
    connections(
        "half-requests-of-many-networks",
        "the same from 300 IPv4 addresses, each in a /24 of its own",
        FOUR_HUNDRED_SLOTS,
        |context| flood_with(context, HALF_REQUEST, |number| hostile_block_v4(number % 300)),
    ),
    connections(
        "sockets-that-never-announce",
        "700 WebSockets a second from 300 IPv4 addresses, each in a /24 of its own, that announce nothing",
        FOUR_HUNDRED_SLOTS,
        |context| {
            flood_with(context, &upgrade("dGhlIHNhbXBsZSBub25jZQ=="), |number| hostile_block_v4(number % 300))
        },
    ),
    connections(
        "connect-and-reset",
        "connections that are reset right after a request, without a pause",
        &[],
        connect_and_reset,
    ),
    connections(
        "connect-and-close",
        "crowds of clients with a connection for each request, without a pause; over TLS, one handshake after another",
        &[],
        connect_and_close,
    ),
    connections(
        "bursts-with-pauses",
        "1,000 connections send bursts at once, plain and over TLS, each too small to count as busy, and pause until it is forgotten",
        &[],
        bursts_with_pauses,
    ),
    Attack {
        open_files_max: Some(200),
        ..connections(
            "descriptors",
            "more connections than the process may have open files",
            &[("http.connections_per_source_max", "100000")],
            |context| hold(context, &request(), b"", Reading::Everything),
        )
    },
    Attack {
        settings_full: THOUSAND_SLOTS_FOR_ALL,
        ..connections(
            "half-proxy-headers",
            "the connections of a trusted proxy hold half of the slots with half a PROXY header",
            FEW_SLOTS_FOR_ALL,
            half_proxy_headers,
        )
    },
    Attack {
        settings_full: THOUSAND_SLOTS_FOR_ALL,
        ..connections(
            "slots-behind-a-proxy",
            "ten clients named in PROXY headers hold every slot with half a request",
            FEW_SLOTS_FOR_ALL,
            slots_behind_a_proxy,
        )
    },
    Attack {
        promise: "the named client holds no more connections than http.connections_per_source_max",
        ..connections(
            "one-client-behind-a-proxy",
            "one client named in PROXY headers opens 300 connections at a limit of 16",
            SIXTEEN_PER_SOURCE,
            one_named_client,
        )
    },
    Attack {
        promise: "another client gets a full scrape within a few seconds",
        limits: Limits::SWARMS_STAY,
        ..connections(
            "full-scrape-tricklers",
            "slow readers hold every slot for full scrapes",
            ONE_FULL_SCRAPE,
            tricklers,
        )
    },
];

/// Returns one and a half times the number of slots.
fn more_than_slots(context: &Context<'_>) -> u32 {
    context.pick(300, 1500)
}

fn hold(context: &Context<'_>, opening: &[u8], trickle: &[u8], reading: Reading) -> Result<()> {
    let target = context.http(hostile_v4(1));
    let connections = more_than_slots(context);
    let sources = (1..=10).map(hostile_v4).collect();
    Holding { target, sources, connections, opening, trickle, reading }.run(context);
    Ok(())
}

fn slots_by_a_byte(context: &Context<'_>) -> Result<()> {
    let opening = [request(), b"G".to_vec()].concat();
    hold(context, &opening, b"", Reading::Everything)
}

fn slow_readers(context: &Context<'_>) -> Result<()> {
    let client = context.udp(hostile_v4(200))?;
    let peers = (1..=300).map(|port| leecher([2; 20], port));
    context.spend_flow(announce_all(&client, peers, || context.is_over(), |_| {}));
    let opening = get(&announce_target(&[2; 20], 7100, 200).replace("compact=1", "compact=0")).repeat(60);
    hold(context, &opening, b"", Reading::Nothing)
}

fn many_networks(context: &Context<'_>) -> Result<()> {
    let sources: Vec<IpAddr> = (0..context.pick(100, 500)).map(hostile_v6).collect();
    let target = context.http(sources[0]);
    let opening = [request(), b"G".to_vec()].concat();
    let connections = more_than_slots(context);
    Holding { target, sources, connections, opening: &opening, trickle: b"", reading: Reading::Everything }
        .run(context);
    Ok(())
}

/// The beginning of a request.
const HALF_REQUEST: &[u8] = b"GET /announce HTTP/1.1\r\nX: ";

/// Opens connections at a steady rate and leaves them open, while honest WebSockets wait for offers, over plain HTTP and
/// over TLS. Every second connection of IPv6 sources is half a TLS record.
fn flood_with(context: &Context<'_>, opening: &[u8], source: impl Fn(u32) -> IpAddr) -> Result<()> {
    let mut waiting = Vec::new();
    for number in 0..WAITING_SOCKETS {
        let is_tls = !number.is_multiple_of(2);
        let source = if is_tls { honest_v6(400 + number) } else { honest_v4(400 + number) };
        let target = if is_tls { context.tracker.tls(source) } else { context.http(source) };
        let mut socket = WebSocket::open(source, target, is_tls.then_some(context.tls), TIMEOUT)?;
        let (hash, peer_id) = (random_id(), random_id());
        socket.send(&announce(&hash, &peer_id, &[]))?;
        socket.wait_for(measure::now() + TIMEOUT, |message| message["interval"].as_u64())?;
        waiting.push((socket, hash, peer_id));
    }
    let mut open = VecDeque::new();
    let began = measure::now();
    for number in context.rounds() {
        measure::sleep_until(began + Duration::from_secs(1) * number / FLOOD_PER_S);
        let source = source(number);
        let is_tls = source.is_ipv6() && number.is_multiple_of(2);
        let target = if is_tls { context.tracker.tls(source) } else { context.http(source) };
        let Ok(mut stream) = tcp(source, target, Duration::from_millis(300)) else { continue };
        let opening = if is_tls { b"\x16\x03\x01\x02\x00" } else { opening };
        let _ = stream.write_all(opening);
        context.spend(1, count(opening.len()));
        open.push_back(stream);
        if open.len() > FLOOD_KEPT {
            open.pop_front();
        }
    }
    let mut lost = 0;
    for (socket, hash, peer_id) in &mut waiting {
        let answered = socket
            .send(&announce(hash, peer_id, &[]))
            .and_then(|()| socket.wait_for(measure::now() + TIMEOUT, |message| message["interval"].as_u64()));
        lost += u32::from(answered.is_err());
    }
    context.check("waiting WebSockets", lost == 0, format!("{lost} of {WAITING_SOCKETS} lost"));
    Ok(())
}

/// Opens connections from many addresses without a pause, and resets each.
fn connect_and_reset(context: &Context<'_>) -> Result<()> {
    for number in context.rounds() {
        let source = hostile_v4(number % 200);
        if let Ok(mut stream) = tcp(source, context.http(source), TIMEOUT) {
            context.spend(1, count(request().len()));
            let _ = stream.write_all(&request());
            // Closing the connection sends a reset.
            let _ = set_socket_linger(&stream, Some(Duration::ZERO));
        }
    }
    Ok(())
}

fn connect_and_close(context: &Context<'_>) -> Result<()> {
    let request = get_and_close(&announce_target(&[2; 20], 7100, 10));
    plain_and_over_tls(context, |tls, name| {
        let mut served = Served::default();
        for number in context.rounds() {
            let mut crowd = open_crowd(context, number * CROWD..(number + 1) * CROWD, tls);
            served.add(exchange(context, &mut crowd, &request, 1));
        }
        context.check(format!("{name} connections"), served.responses > 0, format!("{served:?}"));
    });
    Ok(())
}

fn bursts_with_pauses(context: &Context<'_>) -> Result<()> {
    let burst = request().repeat(BURST);
    plain_and_over_tls(context, |tls, name| {
        let mut crowd = open_crowd(context, 0..BURST_CONNECTIONS / 2, tls);
        // A handshake is not part of a burst.
        let opened = exchange(context, &mut crowd, &request(), 1);
        context.sleep_ms(FORGETTING_MS);
        let (mut served, mut rounds) = (Served::default(), 0);
        while !context.is_over() && (rounds < BURSTS_MIN || !context.is_window_over()) {
            served.add(exchange(context, &mut crowd, &burst, BURST));
            context.sleep_ms(FORGETTING_MS);
            rounds += 1;
        }
        let bursts = u64::from(rounds) * u64::from(BURST_CONNECTIONS / 2);
        let is_served =
            opened.responses == u64::from(BURST_CONNECTIONS / 2) && served.responses == bursts * count(BURST);
        context.check(
            format!("{name} bursts"),
            is_served,
            format!("{opened:?}, {served:?} of {bursts} bursts"),
        );
        let largest = (burst.len() + served.burst_bytes_max).try_into().unwrap_or(u64::MAX);
        context.check(
            format!("bytes of a {name} burst"),
            largest < FORGOTTEN_BYTES_PER_MS * FORGETTING_MS,
            largest.to_string(),
        );
    });
    Ok(())
}

/// Attacks in two threads, one of which uses TLS.
fn plain_and_over_tls<'t>(context: &'t Context<'_>, attack: impl Fn(Option<&'t Tls>, &str) + Sync) {
    thread::scope(|scope| {
        for (tls, name) in [(None, "plain"), (Some(context.tls), "TLS")] {
            let attack = &attack;
            scope.spawn(move || attack(tls, name));
        }
    });
}

/// Opens connections from many addresses of both families.
fn open_crowd(context: &Context<'_>, numbers: Range<u32>, tls: Option<&Tls>) -> Vec<HttpClient> {
    let open = |number| {
        let source = hostile(number % 400);
        let target = if tls.is_some() { context.tracker.tls(source) } else { context.http(source) };
        HttpClient::open(source, target, tls, TIMEOUT).ok()
    };
    numbers.filter_map(open).collect()
}

/// The good responses to a crowd.
#[derive(Debug, Default)]
struct Served {
    responses: u64,
    /// The bytes of the responses to the largest burst, without TLS.
    burst_bytes_max: usize,
}

impl Served {
    fn add(&mut self, other: Self) {
        self.responses += other.responses;
        self.burst_bytes_max = self.burst_bytes_max.max(other.burst_bytes_max);
    }
}

/// Sends on all connections, and then receives so many responses on each. A connection that fails leaves the crowd.
fn exchange(context: &Context<'_>, crowd: &mut Vec<HttpClient>, requests: &[u8], responses: usize) -> Served {
    let mut served = Served::default();
    crowd.retain_mut(|client| {
        let is_sent = !context.is_over() && client.send(requests).is_ok();
        if is_sent {
            context.spend(count(responses), count(requests.len()));
        }
        is_sent
    });
    crowd.retain_mut(|client| {
        let mut bytes = 0;
        for _ in 0..responses {
            let response = if context.is_over() { None } else { client.receive().ok().flatten() };
            let Some(response) = response.filter(|response| response.status == 200) else { return false };
            served.responses += 1;
            bytes += response.head.len() + response.body.len();
        }
        served.burst_bytes_max = served.burst_bytes_max.max(bytes);
        true
    });
    served
}

fn half_proxy_headers(context: &Context<'_>) -> Result<()> {
    let sources = (1..=4).map(proxy).collect();
    let target = context.tracker.proxied();
    // A trusted proxy that holds all slots could equally well forward no client at all.
    let connections = more_than_slots(context) / 3;
    Holding {
        target,
        sources,
        connections,
        opening: b"PROXY TCP4 192.",
        trickle: b"",
        reading: Reading::Everything,
    }
    .run(context);
    Ok(())
}

/// Holds connections that a proxy opens for ten clients.
fn slots_behind_a_proxy(context: &Context<'_>) -> Result<()> {
    let (target, connections) = (context.tracker.proxied(), more_than_slots(context) / 10);
    thread::scope(|scope| {
        for number in 1..=10 {
            scope.spawn(move || {
                let opening = format!("PROXY TCP4 192.0.2.{number} 192.0.2.1 4000 80\r\nGET /ann");
                let (sources, opening) = (vec![proxy(number)], opening.as_bytes());
                Holding { target, sources, connections, opening, trickle: b"", reading: Reading::Everything }
                    .run(context);
            });
        }
    });
    Ok(())
}

/// Holds connections that a proxy opens for one client, and counts those that are served.
fn one_named_client(context: &Context<'_>) -> Result<()> {
    const LIMIT: u64 = 16;
    let mut served: Vec<HttpClient> = Vec::new();
    let header = b"PROXY TCP4 192.0.2.7 192.0.2.1 4000 80\r\n".as_slice();
    let request = [header, &request()].concat();
    for _ in 0..300 {
        let client = HttpClient::open(proxy(1), context.tracker.proxied(), None, TIMEOUT);
        let mut client = client.context("a trusted proxy cannot connect")?;
        context.spend(1, count(request.len()));
        if client.request(&request).is_ok_and(|response| response.status == 200) {
            served.push(client);
        }
    }
    let mut open = 0;
    for client in &mut served {
        let answered = client.request(&get("/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa"));
        open += u64::from(answered.is_ok_and(|response| response.status == 200));
    }
    context.check("connections of one named client", open <= LIMIT, format!("{open} at a limit of {LIMIT}"));
    Ok(())
}

/// Holds full scrapes of many torrents by reading slowly, and requests one from another client.
fn tricklers(context: &Context<'_>) -> Result<()> {
    let client = context.udp(hostile_v4(200))?;
    let torrents = context.pick(80_000, 300_000_u32);
    let peers = (0..torrents).map(|number| {
        let mut hash = [1; 20];
        hash[..4].copy_from_slice(&number.wrapping_mul(2_654_435_769).to_be_bytes());
        leecher(hash, 7200)
    });
    context.spend_flow(announce_all(&client, peers, || context.is_over(), |_| {}));
    let mut readers = Vec::new();
    for number in 1..=8 {
        let source = hostile_v4(number);
        let mut stream = tcp_with_small_window(source, context.http(source), TIMEOUT)?;
        stream.write_all(&get("/scrape"))?;
        stream.set_nonblocking(true)?;
        context.spend(1, 0);
        readers.push(stream);
    }
    let began = measure::now();
    let elapsed_s = || (measure::now() - began).as_secs_f64();
    let mut served = None;
    while served.is_none() && !context.is_over() && elapsed_s() < 8.0 {
        for reader in &mut readers {
            // Reading a few bytes in each round counts as progress.
            let _ = reader.read(&mut [0; 512]);
        }
        let client = HttpClient::open(honest_v4(10), context.http(honest_v4(10)), None, TIMEOUT);
        let response = client.and_then(|mut client| client.request(&get_and_close("/scrape")));
        served = response.ok().filter(|response| response.status == 200).map(|_| elapsed_s());
        context.sleep_ms(100);
    }
    let found = served.map_or("never".to_owned(), |after_s| format!("after {after_s:.1} s"));
    context.check("a full scrape of another client", served.is_some(), found);
    Ok(())
}
