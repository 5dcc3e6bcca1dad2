//! Announces over connections: the promises about peers, tested over HTTP, HTTPS, WS and WSS and both families.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use shoal_testkit::client::tls::{self, Tls};

use crate::measure::{self, count, ratio};
use crate::siege::address::{honest_v4, honest_v6, hostile_v4, hostile_v6};
use crate::siege::attack::Setting;
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, Response, announce_target, get};
use crate::siege::udp::{is_hostile, random_hash};
use crate::siege::websocket::{WebSocket, announce, random_id};

/// The port of forged peers.
const FORGED_PORT: u16 = 7450;

/// Addresses that belong to neither side.
const FORGED: [&str; 2] = ["8.8.8.8", "2001:4860:4860::8888"];

/// The limit on the WebSockets of an address, and on the torrents of a source.
const SOCKETS_MAX: u32 = 16;
const TORRENTS_MAX: usize = 1000;

pub(super) const FEW_SOCKETS: &[Setting] = &[("webtorrent.connections_per_source_max", "16")];

pub(super) const FEW_TORRENTS: &[Setting] =
    &[("limits.torrents_per_source_max", "1000"), ("limits.refuse_excess", "true")];

/// The number of requests that are sent before their responses are read.
const PIPELINED: usize = 32;

/// The size of the swarm that is poisoned, and the number of replies that are examined.
const HONEST: u32 = 50;
const REPLIES: usize = 150;

/// The maximum share of hostile peers in replies.
const SHARE_MAX: f64 = 0.05;

/// The sources of an attack, one for each family, with and without TLS.
pub(super) fn sources(number: u32) -> [(IpAddr, bool); 4] {
    let (v4, v6) = (hostile_v4(number), hostile_v6(number));
    [(v4, false), (v4, true), (v6, false), (v6, true)]
}

pub(super) fn open(context: &Context<'_>, source: IpAddr, is_tls: bool) -> Result<HttpClient> {
    let (target, tls) = endpoint(context, source, is_tls);
    HttpClient::open(source, target, tls, TIMEOUT)
}

pub(super) fn endpoint<'c>(
    context: &'c Context<'_>,
    source: IpAddr,
    is_tls: bool,
) -> (SocketAddr, Option<&'c Tls>) {
    if is_tls { (context.tracker.tls(source), Some(context.tls)) } else { (context.http(source), None) }
}

pub(super) fn path(source: IpAddr, is_tls: bool) -> String {
    format!(
        "{} over {}",
        if is_tls { "TLS" } else { "plain" },
        if source.is_ipv4() { "IPv4" } else { "IPv6" }
    )
}

/// Names other addresses in parameters and header fields, as a proxy that is not trusted.
pub(super) fn forged_addresses(context: &Context<'_>) -> Result<()> {
    for (source, is_tls) in sources(1) {
        let hash = random_hash();
        for address in FORGED {
            let fields = [
                format!("X-Forwarded-For: {address}"),
                format!("X-Real-IP: {address}"),
                format!("CF-Connecting-IP: {address}"),
                format!("Forwarded: for=\"[{address}]\""),
            ];
            let target = announce_target(&hash, FORGED_PORT, 50);
            let parameters = ["ip", "ipv4", "ipv6"].map(|name| format!("{target}&{name}={address}"));
            let requests = fields
                .iter()
                .map(|field| {
                    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\n{field}\r\n\r\n").into_bytes()
                })
                .chain(parameters.iter().map(|target| get(target)))
                .chain([[b"PROXY TCP4 8.8.8.8 192.0.2.1 4000 80\r\n".as_slice(), &get(&target)].concat()]);
            for request in requests {
                context.spend(1, count(request.len()));
                // The last one is no HTTP, so its connection is closed.
                let _ = open(context, source, is_tls)?.request(&request);
            }
        }
        let client = context.udp(source)?;
        let members = client.scrape(&[hash])?[0].members();
        let found = format!("{members}, expected 1");
        context.check(format!("peers registered, {}", path(source, is_tls)), members == 1, found);
        for honest in [honest_v4(60), honest_v6(60)] {
            let mut client = open(context, honest, is_tls)?;
            let peers = client.request(&get(&announce_target(&hash, 7451, 50)))?.peers()?;
            for forged in FORGED {
                let is_handed_out = peers.contains(&SocketAddr::new(forged.parse()?, FORGED_PORT));
                let found = if is_handed_out { "handed out" } else { "not handed out" };
                context.check(format!("a forged peer, {}", path(source, is_tls)), !is_handed_out, found);
            }
        }
        named_sockets(context, source, is_tls)?;
    }
    Ok(())
}

/// Opens more WebSockets than an address may have, each in the name of another client.
fn named_sockets(context: &Context<'_>, source: IpAddr, is_tls: bool) -> Result<()> {
    let mut sockets = Vec::new();
    for number in 1..=2 * SOCKETS_MAX {
        let (target, tls) = endpoint(context, source, is_tls);
        let field = format!("X-Forwarded-For: 192.0.2.{number}\r\n");
        context.spend(1, count(field.len()));
        let stream = tls::open(source, target, tls, TIMEOUT)?;
        sockets.extend(WebSocket::over_with(stream, "/announce", &field).ok());
    }
    let alive = sockets.iter_mut().filter_map(|socket| is_alive(socket).then_some(())).count();
    let found = format!("{alive} at a limit of {SOCKETS_MAX}");
    context.check(
        format!("WebSockets of one address in the names of others, {}", path(source, is_tls)),
        count(alive) <= u64::from(SOCKETS_MAX) && alive > 0,
        found,
    );
    Ok(())
}

/// Returns whether an announce on a socket is answered.
fn is_alive(socket: &mut WebSocket) -> bool {
    let deadline = measure::now() + TIMEOUT;
    socket.send(&announce(&random_id(), &random_id(), &[])).is_ok()
        && socket.wait_for(deadline, |message| message["interval"].as_u64()).is_ok()
}

/// Sends requests on a connection, several at a time, and returns the responses.
fn pipeline(
    context: &Context<'_>,
    client: &mut HttpClient,
    targets: impl Iterator<Item = String>,
    mut look: impl FnMut(&Response),
) -> Result<()> {
    let targets: Vec<String> = targets.collect();
    for targets in targets.chunks(PIPELINED) {
        let requests: Vec<u8> = targets.iter().flat_map(|target| get(target)).collect();
        context.spend(count(targets.len()), count(requests.len()));
        client.send(&requests)?;
        for _ in targets {
            look(&client.receive()?.context("closed without a response")?);
        }
    }
    Ok(())
}

/// Announces more torrents than a source may have.
pub(super) fn hold(context: &Context<'_>) -> Result<()> {
    for (number, (source, is_tls)) in (1..).zip(sources(0)) {
        // Each combination has a source of its own; hostile IPv6 sources share a /48, whose limit is higher.
        let source = if source.is_ipv4() { hostile_v4(number) } else { hostile_v6(number) };
        let mut client = open(context, source, is_tls)?;
        let torrents: Vec<[u8; 20]> = (0..TORRENTS_MAX * 3 / 2).map(|_| random_hash()).collect();
        let targets = torrents.iter().map(|hash| announce_target(hash, 7452, 0));
        pipeline(context, &mut client, targets, |_| {})?;
        let udp = context.udp(source)?;
        let members = |torrents: &[[u8; 20]]| -> Result<u32> {
            torrents.iter().map(|hash| Ok(udp.scrape(&[*hash])?[0].members())).sum()
        };
        let (within, beyond) = (members(&torrents[..50])?, members(&torrents[torrents.len() - 50..])?);
        let found = format!("{within} of 50 within the limit, {beyond} of 50 beyond it");
        let what = format!("torrents of a source, {}", path(source, is_tls));
        context.check(what, within == 50 && beyond == 0, found);
    }
    for source in [honest_v4(61), honest_v6(61)] {
        let mut client = open(context, source, false)?;
        let response = client.request(&get(&announce_target(&random_hash(), 7453, 0)))?;
        let is_served = !response.body.windows(14).any(|window| window == b"failure reason");
        let found = String::from_utf8_lossy(&response.body).into_owned();
        context.check("a new torrent of another client", response.status == 200 && is_served, found);
    }
    Ok(())
}

/// Joins a swarm of 50 honest peers from one address over HTTP, and from one /48 over HTTPS.
pub(super) fn poison(context: &Context<'_>) -> Result<()> {
    poison_from(context, honest_v4, &[hostile_v4(1)], false)?;
    let prefix: Vec<IpAddr> = (0..64).map(hostile_v6).collect();
    poison_from(context, honest_v6, &prefix, true)
}

fn poison_from(
    context: &Context<'_>,
    honest: fn(u32) -> IpAddr,
    hostile: &[IpAddr],
    is_tls: bool,
) -> Result<()> {
    let hash = random_hash();
    for number in 0..HONEST {
        let mut client = open(context, honest(400 + number), is_tls)?;
        client.request(&get(&announce_target(&hash, 8000, 0)))?;
    }
    let ports = context.pick(2048, 32_768) / u16::try_from(hostile.len())?;
    for &source in hostile {
        let mut client = open(context, source, is_tls)?;
        let targets = (1..=ports).map(|port| announce_target(&hash, port, 0));
        pipeline(context, &mut client, targets, |_| {})?;
    }
    let mut client = open(context, honest(399), is_tls)?;
    let (mut peers_seen, mut hostile_seen) = (0, 0);
    let targets = (0..REPLIES).map(|_| announce_target(&hash, 8001, 30));
    pipeline(context, &mut client, targets, |response| {
        let peers = response.peers().unwrap_or_default();
        peers_seen += count(peers.len());
        hostile_seen += count(peers.iter().filter(|peer| is_hostile(peer)).count());
    })?;
    ensure!(peers_seen > 0, "no peers in the replies of a swarm of {HONEST} honest peers");
    let share = ratio(hostile_seen, peers_seen);
    let found = format!("{:.1} % of {peers_seen}", share * 100.0);
    context.check(format!("hostile peers, {}", path(honest(0), is_tls)), share <= SHARE_MAX, found);
    Ok(())
}
