//! Attacks on who receives the offers and answers of a swarm: many peers of one source, and peer ids of others.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::MESSAGE_TIME_MAX;
use crate::measure;
use crate::measure::count;
use crate::siege::address::{honest_v4, hostile_v4};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::websocket::{WebSocket, announce, answer, random_id};

/// The number of honest browsers, of the announces of each, and of the offers in each announce. An attacker with the
/// share of one source gets 2 % of them, seven standard deviations below the limit.
const BROWSERS: u32 = 50;
const ANNOUNCES: usize = 4;
const OFFERS: usize = 5;

/// The time in which offers are answered.
const ANSWER_TIME: Duration = Duration::from_secs(6);

/// The part of the honest offers that has to be answered, in per cent.
const ANSWERED_MIN: u64 = 95;

fn open(context: &Context<'_>, source: IpAddr) -> Result<WebSocket> {
    WebSocket::open(source, context.http(source), None, TIMEOUT)
}

fn some_offers() -> Vec<(String, String)> {
    (0..OFFERS).map(|_| (random_id(), random_id())).collect()
}

/// Returns an address for each honest browser.
pub(super) fn apart(number: u32) -> IpAddr {
    honest_v4(100 + number)
}

/// Returns the address that all honest browsers have.
pub(super) fn neighbours(_number: u32) -> IpAddr {
    honest_v4(100)
}

/// Takes part in the swarm with many peers of one source, none of which answers an offer: `sockets` sockets from the
/// addresses that `source` returns, with `ids` peer ids each. The honest browsers have the addresses that `honest` returns.
pub(super) fn flood(
    context: &Context<'_>,
    (sockets, ids): (u32, u32),
    honest: impl Fn(u32) -> IpAddr,
    source: impl Fn(u32) -> IpAddr,
) -> Result<()> {
    let hash = random_id();
    let mut browsers = Vec::new();
    for number in 0..BROWSERS {
        let (mut socket, peer) = (open(context, honest(number))?, random_id());
        socket.send(&announce(&hash, &peer, &[]))?;
        browsers.push((socket, peer));
    }
    let mut hostile = Vec::new();
    for number in 0..sockets {
        let mut socket = open(context, source(number))?;
        for _ in 0..ids {
            let message = announce(&hash, &random_id(), &[]);
            context.spend(1, count(message.to_string().len()));
            socket.send(&message)?;
        }
        hostile.push(socket);
    }
    context.sleep_ms(500);
    let answered: u64 = thread::scope(|scope| {
        let browsers: Vec<_> =
            browsers.into_iter().map(|browser| scope.spawn(|| browse(browser, &hash))).collect();
        browsers.into_iter().map(|browser| browser.join().expect("a browser does not panic")).sum()
    });
    let offers = count(ANNOUNCES * OFFERS) * u64::from(BROWSERS);
    let found = format!("{answered} of {offers}");
    context.check("honest offers that are answered", answered * 100 >= offers * ANSWERED_MIN, found);
    drop(hostile);
    Ok(())
}

/// Makes offers, and answers those of others. Returns how many of its offers are answered in time.
fn browse((mut socket, peer): (WebSocket, String), hash: &str) -> u64 {
    let deadline = measure::now() + ANSWER_TIME;
    let mut answered = 0;
    for _ in 0..ANNOUNCES {
        if socket.send(&announce(hash, &peer, &some_offers())).is_err() {
            return 0;
        }
    }
    let is_of_peer = |message: &Value| {
        (message["offer"].is_object() || message["answer"].is_object()).then(|| message.clone())
    };
    while answered < count(ANNOUNCES * OFFERS)
        && let Ok(message) = socket.wait_for(deadline, is_of_peer)
    {
        if message["answer"].is_object() {
            answered += 1;
        } else if let (Some(to), Some(id)) = (message["peer_id"].as_str(), message["offer_id"].as_str()) {
            let _ = socket.send(&answer(hash, &peer, to, id, "v=0"));
        }
    }
    // It goes on answering, since others may still wait.
    while let Ok(message) = socket.wait_for(deadline, is_of_peer) {
        if let (Some(to), Some(id), true) =
            (message["peer_id"].as_str(), message["offer_id"].as_str(), message["offer"].is_object())
        {
            let _ = socket.send(&answer(hash, &peer, to, id, "v=0"));
        }
    }
    answered
}

/// Announces the peer id of a client on many sockets, before it does and afterwards, and stops it again and again.
pub(super) fn namesakes(context: &Context<'_>) -> Result<()> {
    let (hash, peer, other_peer) = (random_id(), random_id(), random_id());
    let mut hostile = Vec::new();
    for number in 0..context.pick(40, 400) {
        let mut socket = open(context, hostile_v4(number % 4))?;
        let message = announce(&hash, &peer, &[]);
        context.spend(1, count(message.to_string().len()));
        socket.send(&message)?;
        hostile.push(socket);
    }
    context.sleep_ms(300);
    let (mut client, mut other) = (open(context, honest_v4(30))?, open(context, honest_v4(31))?);
    other.send(&announce(&hash, &other_peer, &[]))?;
    let is_reply = |message: &Value| message["interval"].as_u64();
    other.wait_for(measure::now() + MESSAGE_TIME_MAX, is_reply)?;
    let offers: Vec<(String, String)> = (0..10).map(|_| (random_id(), random_id())).collect();
    client.send(&announce(&hash, &peer, &offers))?;
    let served = client.wait_for(measure::now() + MESSAGE_TIME_MAX, |message| {
        (message["info_hash"] == *hash)
            .then(|| message["failure reason"].as_str().unwrap_or("served").to_owned())
    });
    let found = served.unwrap_or_else(|error| format!("{error:#}"));
    context.check("the announce of the client", found == "served", found);
    for socket in &mut hostile {
        let mut stopped = announce(&hash, &peer, &[]);
        stopped["event"] = "stopped".into();
        for message in [stopped, announce(&hash, &peer, &some_offers())] {
            context.spend(1, count(message.to_string().len()));
            socket.send(&message)?;
        }
    }
    let ids: Vec<&str> = offers.iter().map(|(id, _)| id.as_str()).collect();
    let offered = other.wait_for(measure::now() + MESSAGE_TIME_MAX, |message| {
        let id = message["offer_id"].as_str().filter(|id| ids.contains(id))?;
        Some(id.to_owned())
    });
    if let Ok(id) = &offered {
        other.send(&answer(&hash, &other_peer, &peer, id, "v=0"))?;
    }
    let is_answer = |message: &Value| message["answer"].is_object().then_some(());
    let arrived = offered.is_ok() && client.wait_for(measure::now() + MESSAGE_TIME_MAX, is_answer).is_ok();
    context.check("the answer to the client", arrived, if arrived { "arrived" } else { "did not arrive" });
    // The messages that some of the sockets have received by now show whether an answer went astray.
    let mut stolen = 0;
    for socket in hostile.iter_mut().take(3) {
        stolen += u32::from(socket.wait_for(measure::now() + Duration::from_millis(100), is_answer).is_ok());
    }
    context.check("answers at other sockets with its peer id", stolen == 0, stolen.to_string());
    Ok(())
}
