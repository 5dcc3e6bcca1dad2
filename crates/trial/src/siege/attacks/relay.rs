//! Attacks with messages that WebTorrent relays between clients.

mod swarm;

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use shoal_testkit::client::{is_timeout, tcp_with_small_window};

use crate::measure;
use crate::measure::count;
use crate::siege::address::{honest_v4, hostile_v4, hostile_v6};
use crate::siege::attack::{Attack, Layer, Setting};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::websocket::{WebSocket, announce, answer, random_id, text};

/// The size of a large SDP that is relayed.
const LARGE_SDP_BYTES: usize = 12 << 10;

/// The read rate of a peer that must never be disconnected: 10 Mbit/s.
const STEADY_BYTES_PER_S: usize = 1_250_000;

/// The interval at which a peer reads at that rate.
const READ_INTERVAL: Duration = Duration::from_millis(10);

/// The maximum wait for an expected message.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(8);

const FEW_PEERS: &[Setting] = &[("webtorrent.peers_max", "400")];

/// A hundred torrents on a connection.
const HUNDRED_TORRENTS: &[Setting] = &[("webtorrent.torrents_per_connection_max", "100")];

/// Less than the default, so that the burst is used up soon. Honest pairs offer less to a receiver than an eighth of it permits.
const LITTLE_RELAYED: &[Setting] = &[("webtorrent.relay_rate_max", "192KiB")];

/// The bytes a second that an address may have relayed with that, and the seconds of it that it may use at once.
const RELAYED_PER_S: u64 = 8 * (192 << 10);
const BURST_S: u64 = 8;

/// The offers that a browser gets of one address a second, and at once, with the default of `webtorrent.relay_rate_max`.
const OFFERS_PER_S: u64 = 16;
const OFFERS_BURST: u64 = 128;

const FEW_OFFERS: &str = "each browser gets at most 16 offers a second of one address, and 128 at once";

const OFFERS_ANSWERED: &str = "95 % of the offers of honest browsers are answered";

const PAIRS_SERVED: &str = "offers and answers of honest pairs arrive";

pub(super) const ATTACKS: &[Attack] = &[
    Layer::Relay.attack(
        "third-party-queue",
        "twelve sockets of one address fill the queue of a peer that reads 10 Mbit/s",
        "the peer stays connected, and its announces are answered",
        |context| third_party(context, &[hostile_v4(1)], STEADY_BYTES_PER_S),
    ),
    Layer::Relay.attack(
        "third-party-queue-slow",
        "the same against a peer that reads 1 Mbit/s, from four addresses",
        "the peer stays connected, and its announces are answered",
        |context| third_party(context, &[1, 2, 3, 4].map(hostile_v4), STEADY_BYTES_PER_S / 10),
    ),
    Layer::Relay.attack(
        "hot-target",
        "sixty sockets send all their offers to the only other peer of a swarm",
        PAIRS_SERVED,
        |context| flood(context, context.pick(20, 60), &[random_id()], 200),
    ),
    Layer::Relay.attack(
        "unsolicited-answers",
        "answers to offers that were never made, without a pause",
        PAIRS_SERVED,
        unsolicited,
    ),
    Layer::Relay.attack(
        "many-peers-on-one-socket",
        "one socket takes part in a swarm of 50 honest browsers with a thousand peer ids",
        OFFERS_ANSWERED,
        |context| swarm::flood(context, (1, 1000), swarm::apart, hostile_v4),
    ),
    Layer::Relay.attack(
        "many-sockets-of-one-address",
        "a thousand sockets of one address take part in a swarm of 50 honest browsers",
        OFFERS_ANSWERED,
        |context| swarm::flood(context, (context.pick(250, 1000), 1), swarm::apart, |_| hostile_v4(1)),
    ),
    Layer::Relay.attack(
        "many-sockets-beside-neighbours",
        "a thousand sockets of one address take part in a swarm of 50 honest browsers that all have another address",
        OFFERS_ANSWERED,
        |context| swarm::flood(context, (context.pick(250, 1000), 1), swarm::neighbours, |_| hostile_v4(1)),
    ),
    Layer::Relay.attack(
        "many-sockets-of-one-site",
        "a thousand sockets of one IPv6 /48, each in a /64 of its own, take part in a swarm of 50 honest browsers",
        OFFERS_ANSWERED,
        |context| swarm::flood(context, (context.pick(250, 1000), 1), swarm::apart, hostile_v6),
    ),
    Layer::Relay.attack(
        "peer-id-of-another",
        "hundreds of sockets announce the peer id of a client before it does, and stop it afterwards",
        "the client is served, and the answers to its offers reach it alone",
        swarm::namesakes,
    ),
    Attack {
        settings: HUNDRED_TORRENTS,
        ..Layer::Relay.attack(
            "member-of-thousands",
            "one connection announces thousands of torrents and leaves them all at once",
            "a connection is in no more torrents than webtorrent.torrents_per_connection_max",
            member_of_thousands,
        )
    },
    Layer::Relay.attack(
        "unanswered-offers",
        "tens of thousands of offers that are read but never answered",
        PAIRS_SERVED,
        |context| flood(context, 12, &[random_id(), random_id()], 64),
    ),
    Attack {
        settings: LITTLE_RELAYED,
        ..Layer::Relay.attack(
            "small-offers",
            "one address sends the smallest offers without a pause from thirty sockets",
            "no more is relayed than eight times webtorrent.relay_rate_max",
            small_offers,
        )
    },
    Layer::Relay.attack(
        "offer-flood-ten-browsers",
        "eight sockets of one address send offers to ten browsers without a pause",
        FEW_OFFERS,
        |context| flood_browsers(context, 10),
    ),
    Layer::Relay.attack(
        "offer-flood-two-browsers",
        "eight sockets of one address send offers to two browsers without a pause",
        FEW_OFFERS,
        |context| flood_browsers(context, 2),
    ),
    Attack {
        settings: FEW_PEERS,
        ..Layer::Relay.attack(
            "filling-peers",
            "one address uses all of webtorrent.peers_max",
            "another client can still announce a new torrent",
            filling,
        )
    },
];

/// Sends announces with ten offers from a socket and reads all input, until `is_over`. As a seeder (`left` is 0), it makes
/// offers only to leechers, and gets none of other seeders.
fn offer_without_pause(
    context: &Context<'_>,
    source: IpAddr,
    hash: &str,
    left: u64,
    bytes: usize,
    is_over: &AtomicBool,
) {
    let Ok(mut stream) = crate::siege::websocket::bare(source, context.http(source), TIMEOUT) else { return };
    let sdp = "s".repeat(bytes);
    let offers: Vec<(String, String)> = (0..10).map(|_| (random_id(), sdp.clone())).collect();
    let mut message = announce(hash, &random_id(), &offers);
    message["left"] = left.into();
    let message = text(message.to_string().as_bytes());
    let _ = stream.set_nonblocking(true);
    let (mut sent, mut buffer) = (0, vec![0; 256 << 10]);
    while !is_over.load(Ordering::Relaxed) {
        match stream.write(&message[sent..]) {
            Ok(length) => {
                context.spend(u64::from(sent + length == message.len()), count(length));
                sent = (sent + length) % message.len();
            }
            Err(error) if is_timeout(&error) => thread::sleep(Duration::from_millis(1)),
            Err(_) => return,
        }
        while matches!(stream.read(&mut buffer), Ok(length) if length > 0) {}
    }
}

/// Floods a swarm in which one peer reads at a steady rate and announces meanwhile.
fn third_party(context: &Context<'_>, sources: &[IpAddr], bytes_per_s: usize) -> Result<()> {
    let (hash, is_over) = (random_id(), AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        for number in 0..12 {
            let (source, hash, is_over) = (sources[number % sources.len()], &hash, &is_over);
            scope.spawn(move || offer_without_pause(context, source, hash, 1, LARGE_SDP_BYTES, is_over));
        }
        let outcome = read_steadily(context, &hash, bytes_per_s);
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    let found = outcome.as_ref().map_or_else(|error| format!("{error:#}"), |found| found.clone());
    context.check("a peer that reads steadily", outcome.is_ok(), found);
    Ok(())
}

/// Reads at this rate, announces once a second, and expects a reply to each announce.
fn read_steadily(context: &Context<'_>, hash: &str, bytes_per_s: usize) -> Result<String> {
    let source = honest_v4(20);
    let stream = tcp_with_small_window(source, context.http(source), TIMEOUT)?;
    let mut reader = stream.try_clone()?;
    let mut victim = WebSocket::over(stream)?;
    let (peer, began) = (random_id(), measure::now());
    let announce = text(announce(hash, &peer, &[]).to_string().as_bytes());
    victim.send_raw(&announce)?;
    let (mut read, mut replies, mut announces) = (0_u64, 0_u64, 1_u64);
    let mut buffer = vec![0; bytes_per_s / 100];
    reader.set_nonblocking(true)?;
    let mut tail = Vec::new();
    let (seconds, timeout) = context.pick((2, 4), (10, 10));
    for round in 0.. {
        let elapsed = measure::now() - began;
        let is_done = elapsed > Duration::from_secs(seconds) && replies == announces;
        if is_done || elapsed > Duration::from_secs(seconds + timeout) {
            break;
        }
        let next = measure::now() + READ_INTERVAL;
        match reader.read(&mut buffer) {
            Ok(0) => anyhow::bail!("closed after {read} bytes"),
            Ok(length) => {
                read += count(length);
                replies += count_replies(&mut tail, &buffer[..length]);
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error).with_context(|| format!("gone after {read} bytes")),
        }
        if round % 100 == 99 && elapsed <= Duration::from_secs(seconds) {
            reader.write_all(&announce).context("cannot announce any more")?;
            announces += 1;
        }
        measure::sleep_until(next);
    }
    anyhow::ensure!(replies == announces, "{replies} replies to {announces} announces, {read} bytes read");
    Ok(format!("{replies} replies to {announces} announces, {read} bytes read"))
}

/// Counts the announce replies in a stream of messages, since only they have an interval. `tail` keeps the end of the
/// previous piece.
fn count_replies(tail: &mut Vec<u8>, piece: &[u8]) -> u64 {
    occurrences(b"\"interval\":", tail, piece)
}

/// Counts the occurrences of a key in a stream of messages. `tail` keeps the end of the previous piece.
fn occurrences(key: &[u8], tail: &mut Vec<u8>, piece: &[u8]) -> u64 {
    tail.extend_from_slice(piece);
    let found = tail.windows(key.len()).filter(|window| *window == key).count();
    let keep = tail.len().min(key.len() - 1);
    tail.drain(..tail.len() - keep);
    count(found)
}

/// Makes small offers in these swarms from many sockets, until the end of the window.
fn flood(context: &Context<'_>, sockets: u32, hashes: &[String], bytes: usize) -> Result<()> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (number, hash) in (0..sockets).zip(hashes.iter().cycle()) {
            let is_over = &is_over;
            scope.spawn(move || offer_without_pause(context, hostile_v4(number), hash, 1, bytes, is_over));
        }
        context.wait_for_window();
        is_over.store(true, Ordering::Relaxed);
    });
    Ok(())
}

fn unsolicited(context: &Context<'_>) -> Result<()> {
    let (hash, peer, other) = (random_id(), random_id(), random_id());
    let mut target = WebSocket::open(hostile_v4(2), context.http(hostile_v4(2)), None, TIMEOUT)?;
    target.send(&announce(&hash, &other, &[]))?;
    let mut sender = WebSocket::open(hostile_v4(1), context.http(hostile_v4(1)), None, TIMEOUT)?;
    sender.send(&announce(&hash, &peer, &[]))?;
    while !context.is_window_over() {
        let mut answers = Vec::new();
        for _ in 0..100 {
            answers.extend(text(answer(&hash, &peer, &other, &random_id(), "v=0").to_string().as_bytes()));
        }
        context.spend(100, count(answers.len()));
        if sender.send_raw(&answers).is_err() {
            break;
        }
    }
    let arrived = target.wait_for(measure::now() + Duration::from_millis(500), |message: &Value| {
        (!message["answer"].is_null()).then_some(())
    });
    context.check(
        "answers without an offer",
        arrived.is_err(),
        if arrived.is_ok() { "relayed" } else { "not relayed" },
    );
    Ok(())
}

fn member_of_thousands(context: &Context<'_>) -> Result<()> {
    const LIMIT: usize = 100;
    let mut member = WebSocket::open(hostile_v4(1), context.http(hostile_v4(1)), None, TIMEOUT)?;
    let peer = random_id();
    let mut joined = 0;
    for _ in 0..context.pick(500, 5000) {
        let hash = random_id();
        let message = announce(&hash, &peer, &[]);
        context.spend(1, count(message.to_string().len()));
        member.send(&message)?;
        let is_answer =
            |message: &Value| (message["info_hash"] == *hash).then(|| message["failure reason"].is_null());
        joined += usize::from(member.wait_for(measure::now() + MESSAGE_TIME_MAX, is_answer)?);
    }
    context.check("torrents of one connection", joined <= LIMIT, format!("{joined} at a limit of {LIMIT}"));
    Ok(())
}

/// Floods ten peers with small offers, and counts the bytes that reach them.
fn small_offers(context: &Context<'_>) -> Result<()> {
    let (hash, is_over, began) = (random_id(), AtomicBool::new(false), measure::now());
    let received = AtomicU64::new(0);
    thread::scope(|scope| -> Result<()> {
        for _ in 0..10 {
            let mut target =
                crate::siege::websocket::bare(hostile_v4(2), context.http(hostile_v4(2)), TIMEOUT)?;
            target.write_all(&text(announce(&hash, &random_id(), &[]).to_string().as_bytes()))?;
            target.set_read_timeout(Some(READ_INTERVAL))?;
            let (is_over, received) = (&is_over, &received);
            scope.spawn(move || {
                let mut buffer = vec![0; 256 << 10];
                while !is_over.load(Ordering::Relaxed) {
                    received.fetch_add(count(target.read(&mut buffer).unwrap_or(0)), Ordering::Relaxed);
                }
            });
        }
        for _ in 0..30 {
            let (hash, is_over) = (&hash, &is_over);
            scope.spawn(move || offer_without_pause(context, hostile_v4(1), hash, 0, 1, is_over));
        }
        context.wait_for_window();
        is_over.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    // Allowances are counted in whole seconds.
    let seconds = BURST_S + (measure::now() - began).as_secs() + 2;
    let (received, allowed) = (received.into_inner(), RELAYED_PER_S * seconds);
    let found = format!("{received} bytes relayed, {allowed} allowed");
    context.check("bytes of small offers", received > 0 && received <= allowed, found);
    Ok(())
}

/// Floods browsers with offers from one address, and counts the offers that reach each of them.
fn flood_browsers(context: &Context<'_>, browsers: u32) -> Result<()> {
    let (hash, is_over, began) = (random_id(), AtomicBool::new(false), measure::now());
    let received: Vec<AtomicU64> = (0..browsers).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| -> Result<()> {
        for (number, received) in (40..).zip(&received) {
            let source = honest_v4(number);
            let mut browser = crate::siege::websocket::bare(source, context.http(source), TIMEOUT)?;
            browser.write_all(&text(announce(&hash, &random_id(), &[]).to_string().as_bytes()))?;
            browser.set_read_timeout(Some(READ_INTERVAL))?;
            let is_over = &is_over;
            scope.spawn(move || {
                let (mut tail, mut buffer) = (Vec::new(), vec![0; 256 << 10]);
                while !is_over.load(Ordering::Relaxed) {
                    let length = browser.read(&mut buffer).unwrap_or(0);
                    let offers = occurrences(b"\"offer\":", &mut tail, &buffer[..length]);
                    received.fetch_add(offers, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..8 {
            // As seeders, they make offers to the browsers and not to each other.
            let (hash, is_over) = (&hash, &is_over);
            scope.spawn(move || offer_without_pause(context, hostile_v4(1), hash, 0, 200, is_over));
        }
        context.wait_for_window();
        // The burst comes at once, so a short window alone would show nothing else.
        context.sleep_ms(context.pick(3000, 0));
        is_over.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    // Allowances are counted in whole seconds.
    let seconds = (measure::now() - began).as_secs() + 2;
    let allowed = OFFERS_BURST + OFFERS_PER_S * seconds;
    let most = received.into_iter().map(AtomicU64::into_inner).max().unwrap_or(0);
    let found = format!("{most} in {seconds} s, {allowed} allowed");
    context.check("offers that one browser got", most > 0 && most <= allowed, found);
    Ok(())
}

fn filling(context: &Context<'_>) -> Result<()> {
    let source = hostile_v4(1);
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let mut socket = WebSocket::open(source, context.http(source), None, TIMEOUT)?;
        for _ in 0..250 {
            let message = announce(&random_id(), &random_id(), &[]);
            context.spend(1, count(message.to_string().len()));
            socket.send(&message)?;
        }
        sockets.push(socket);
    }
    context.sleep_ms(300);
    let mut other = WebSocket::open(honest_v4(40), context.http(honest_v4(40)), None, TIMEOUT)?;
    let hash = random_id();
    other.send(&announce(&hash, &random_id(), &[]))?;
    let outcome = other.wait_for(measure::now() + MESSAGE_TIME_MAX, |message| {
        let is_answer = message["info_hash"] == *hash;
        is_answer.then(|| message["failure reason"].as_str().unwrap_or("served").to_owned())
    })?;
    context.check("the announce of another client", outcome == "served", outcome);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::count_replies;

    #[test]
    fn replies_are_counted_across_pieces() {
        let mut tail = Vec::new();
        let pieces = [&b"{\"interval\":120}{\"inter"[..], b"val\":120}", b"{\"offer\":1}"];
        let found: Vec<u64> = pieces.iter().map(|piece| count_replies(&mut tail, piece)).collect();
        assert_eq!(found, [1, 1, 0]);
    }
}
