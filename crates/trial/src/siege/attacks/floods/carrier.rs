//! The customers of a carrier that has one IPv4 address for all of them.
//!
//! All 5,000 announce within seconds, which takes them three minutes if each has 20 torrents and an interval of half an hour.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use shoal_testkit::client::udp::Refused;
use shoal_wire::websocket::handshake::Unaccepted;

use crate::measure;
use crate::siege::address::CARRIER_V4;
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, announce_target, get_and_close};
use crate::siege::udp::{Announce, leecher, random_hash};
use crate::siege::websocket::{WebSocket, announce, random_id};

/// Pairs of clients. Both of a pair have the same torrent and use the same protocol.
const PAIRS: u16 = 2500;

const THREADS: usize = 4;

/// The first port of a client. Each has its own.
const PORT_MIN: u16 = 10_000;

const SOURCE: IpAddr = IpAddr::V4(CARRIER_V4);

/// The announces over a protocol, and their fate.
#[derive(Default)]
struct Counts {
    sent: u64,
    refused: u64,
    failed: u64,
    failure: Option<String>,
}

const PROTOCOLS: [&str; 3] = ["UDP", "HTTP", "WSS"];

pub(super) fn announce_all(context: &Context<'_>) -> Result<()> {
    let all = thread::scope(|scope| {
        let run = |number| scope.spawn(move || announce_some(context, number));
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect::<Vec<_>>()
    });
    for (index, protocol) in PROTOCOLS.into_iter().enumerate() {
        let (mut sum, mut failures) = (Counts::default(), Vec::new());
        for counts in &all {
            let Counts { sent, refused, failed, failure } = &counts[index];
            sum.sent += sent;
            sum.refused += refused;
            sum.failed += failed;
            failures.extend(failure.clone());
        }
        let first = failures.first().map_or(String::new(), |failure| format!(" ({failure})"));
        let Counts { sent, refused, failed, .. } = sum;
        context.check(
            format!("refused over {protocol}"),
            refused == 0,
            format!("{refused} of {sent}{first}"),
        );
        let is_served = sent > 0 && failed * 100 <= sent;
        context.check(format!("not served over {protocol}"), is_served, format!("{failed} of {sent}{first}"));
        context.spend(sent, 0);
    }
    Ok(())
}

/// Announces the pairs of one thread. WebSockets stay open until all have announced.
fn announce_some(context: &Context<'_>, thread: usize) -> [Counts; 3] {
    let (mut counts, mut sockets) = (<[Counts; 3]>::default(), Vec::new());
    let (began, time) = (measure::now(), context.pick(Duration::ZERO, Duration::from_secs(20)));
    for pair in (0..PAIRS).skip(thread).step_by(THREADS) {
        measure::sleep_until(began + time.mul_f64(f64::from(pair) / f64::from(PAIRS)));
        // Of ten clients seven use UDP, two HTTP, and one WebTorrent.
        let index = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2][usize::from(pair / 4) % 10];
        let (hash, room) = (random_hash(), random_id());
        let ports = [PORT_MIN + pair * 2, PORT_MIN + pair * 2 + 1];
        for (port, other) in [(ports[0], None), (ports[1], Some(ports[0]))] {
            let result = match index {
                0 => over_udp(context, hash, port, other),
                1 => over_http(context, hash, port, other),
                _ => over_wss(context, &room).map(|socket| sockets.push(socket)),
            };
            counts[index].record(result);
        }
    }
    counts
}

impl Counts {
    fn record(&mut self, result: Result<()>) {
        self.sent += 1;
        let Err(error) = result else { return };
        if error.is::<Refused>() || matches!(error.downcast_ref(), Some(Unaccepted::Status(_))) {
            self.refused += 1;
        } else {
            self.failed += 1;
        }
        self.failure.get_or_insert_with(|| format!("{error:#}"));
    }
}

/// Returns an error if the peer at this port is not one of `ports`.
fn ensure_found(ports: impl IntoIterator<Item = u16>, other: Option<u16>) -> Result<()> {
    let Some(other) = other else { return Ok(()) };
    ensure!(ports.into_iter().any(|port| port == other), "the other client is not in the reply");
    Ok(())
}

fn over_udp(context: &Context<'_>, hash: [u8; 20], port: u16, other: Option<u16>) -> Result<()> {
    let client = context.udp(SOURCE)?;
    let peer_id = random_hash();
    let reply = client.announce(&Announce { peer_id, numwant: 50, ..leecher(hash, port) })?;
    ensure_found(reply.peers.iter().map(|peer| peer.port()), other)
}

fn over_http(context: &Context<'_>, hash: [u8; 20], port: u16, other: Option<u16>) -> Result<()> {
    let mut client = HttpClient::open(SOURCE, context.http(SOURCE), None, TIMEOUT)?;
    let response = client.request(&get_and_close(&announce_target(&hash, port, 50)))?;
    if let Some(reason) = response.refusal() {
        bail!(Refused(reason));
    }
    ensure_found(response.peers()?.iter().map(|peer| peer.port()), other)
}

fn over_wss(context: &Context<'_>, info_hash: &str) -> Result<WebSocket> {
    let target = context.tracker.tls(SOURCE);
    let mut socket = WebSocket::open(SOURCE, target, Some(context.tls), TIMEOUT)?;
    socket.send(&announce(info_hash, &random_id(), &[]))?;
    let reason = |message: &Value| message["failure reason"].as_str().map(|text| Err(text.to_owned()));
    let reply = |message: &Value| message["interval"].is_u64().then_some(Ok(())).or_else(|| reason(message));
    match socket.wait_for(measure::now() + TIMEOUT, reply)? {
        Ok(()) => Ok(socket),
        Err(reason) => bail!(Refused(reason)),
    }
}
