//! Attacks on peer ids: claims of those that belong to other connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::{LARGE_SDP_BYTES, MESSAGE_TIME_MAX};
use crate::address::{honest_v4, hostile_v4};
use crate::context::{Context, TIMEOUT};
use crate::measure::count;
use crate::websocket::{WebSocket, announce, random_id};
use crate::{measure, socket};

/// The time after which a claim has been decided.
const CLAIM_DECIDED: Duration = Duration::from_secs(8);

/// The maximum wait for the decision on a busy machine.
const CLAIM_TIME_MAX: Duration = Duration::from_secs(12);

/// The time for which the holder of a claimed peer id may leave the challenge unanswered.
const CHALLENGE: Duration = Duration::from_secs(5);

/// A connection that reads this many bytes at a time, with a pause after each: 16 KB a second.
const SLOW_PIECE_BYTES: usize = 160;
const SLOW_PAUSE: Duration = Duration::from_millis(10);

/// The maximum time until such a connection has read all offers.
const SLOW_TIME_MAX: Duration = Duration::from_secs(40);

struct Slow(TcpStream);

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        thread::sleep(SLOW_PAUSE);
        let length = buffer.len().min(SLOW_PIECE_BYTES);
        self.0.read(&mut buffer[..length])
    }
}

impl Write for Slow {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Lets another client at the same address claim the peer id, then sends offers to the swarm.
pub(super) fn take_over(context: &Context<'_>) -> Result<()> {
    let (hash, peer) = (random_id(), random_id());
    let nat = honest_v4(30);
    let open = |source| WebSocket::open(source, context.http(source), None, TIMEOUT);
    let (mut owner, mut thief) = (open(nat)?, open(nat)?);
    owner.send(&announce(&hash, &peer, &[]))?;
    owner.wait_for(measure::now() + MESSAGE_TIME_MAX, |message| message["interval"].as_u64())?;
    for _ in 0..20 {
        let claim = announce(&hash, &peer, &[]);
        context.spend(1, count(claim.to_string().len()));
        thief.send(&claim)?;
        context.sleep_ms(10);
    }
    // The owner reads, and so answers the challenge, for longer than a claim takes. A claim is then granted at once if the
    // challenge was not answered.
    let _ = owner.wait_for(measure::now() + CLAIM_DECIDED, |_| None::<()>);
    thief.send(&announce(&hash, &peer, &[]))?;
    context.sleep_ms(100);
    let mut third = open(honest_v4(31))?;
    let sdp = random_id();
    let offers: Vec<(String, String)> = (0..5).map(|_| (random_id(), sdp.clone())).collect();
    third.send(&announce(&hash, &random_id(), &offers))?;
    let is_offer = |message: &Value| (message["offer"]["sdp"] == *sdp).then_some(());
    let arrived = owner.wait_for(measure::now() + MESSAGE_TIME_MAX / 2, is_offer);
    let stolen = thief.wait_for(measure::now() + Duration::from_millis(200), is_offer);
    let found = format!(
        "owner {}, other {}",
        arrived.as_ref().map_or_else(|error| format!("got none ({error:#})"), |()| "got it".to_owned()),
        if stolen.is_ok() { "got it" } else { "got none" }
    );
    context.check("an offer for the owner of a peer id", arrived.is_ok() && stolen.is_err(), found);
    Ok(())
}

/// Sends a slow peer as many offers as fit the send queue of its connection, and claims its peer id at the same time.
/// The ping to the peer is then behind these offers for longer than a claim takes.
pub(super) fn take_over_slow(context: &Context<'_>) -> Result<()> {
    /// Together they are less than the kernel accepts for a peer that does not read.
    const OFFERS: usize = 16;
    let (hash, peer) = (random_id(), random_id());
    let stream = socket::tcp_with_small_window(honest_v4(32), context.http(honest_v4(32)), TIMEOUT)?;
    let mut owner = WebSocket::over(Box::new(Slow(stream)))?;
    owner.send(&announce(&hash, &peer, &[]))?;
    owner.wait_for(measure::now() + MESSAGE_TIME_MAX, |message| message["interval"].as_u64())?;
    let open = |number| WebSocket::open(hostile_v4(number), context.http(hostile_v4(number)), None, TIMEOUT);
    let (mut flood, mut thief) = (open(1)?, open(2)?);
    let (flooder, sdp) = (random_id(), "s".repeat(LARGE_SDP_BYTES));
    for _ in 0..OFFERS {
        let message = announce(&hash, &flooder, &[(random_id(), sdp.clone())]);
        context.spend(1, count(message.to_string().len()));
        flood.send(&message)?;
        context.sleep_ms(20);
    }
    let claim = announce(&hash, &peer, &[]);
    context.spend(1, count(claim.to_string().len()));
    thief.send(&claim)?;
    let claimed = measure::now();
    let (outcome, pinged) = thread::scope(|scope| {
        let pinged = scope.spawn(|| owner.wait_for_ping(claimed + SLOW_TIME_MAX));
        let outcome = thief.wait_for(claimed + CLAIM_TIME_MAX, |message| {
            (message["info_hash"] == *hash).then(|| message["failure reason"].is_string())
        });
        (outcome, pinged.join().expect("reading does not panic"))
    });
    // Without this, the attack would show nothing: an owner that is not challenged, or answers in time, keeps its peer id.
    let pinged = pinged.map(|()| measure::now() - claimed);
    let found = match &pinged {
        Ok(after) => format!("after {:.1} s", after.as_secs_f64()),
        Err(error) => format!("{error:#}"),
    };
    context.check(
        "the slow peer gets the ping too late",
        matches!(pinged, Ok(after) if after > CHALLENGE),
        found,
    );
    let found = match &outcome {
        Ok(true) => "refused".to_owned(),
        Ok(false) => "granted".to_owned(),
        Err(error) => format!("{error:#}"),
    };
    context.check("a claim of the peer id of a slow peer", matches!(outcome, Ok(true)), found);
    Ok(())
}

/// Makes claims of the attackers' own peer ids until the tracker refuses more of them at once.
pub(super) fn hoard_claims(context: &Context<'_>) -> Result<()> {
    /// The claims of one connection, and the connections of an address.
    const CLAIMS: usize = 16;
    const CLAIMANTS: usize = 32;
    let open = |source| WebSocket::open(source, context.http(source), None, TIMEOUT);
    let (hash, peer) = (random_id(), random_id());
    let mut dead = open(honest_v4(33))?;
    dead.send(&announce(&hash, &peer, &[]))?;
    dead.wait_for(measure::now() + MESSAGE_TIME_MAX, |message| message["interval"].as_u64())?;
    let mut sockets = Vec::new();
    for source in (1..=10).map(hostile_v4) {
        let (mut holder, torrent) = (open(source)?, random_id());
        for _ in 0..CLAIMANTS {
            let mut claimant = open(source)?;
            for _ in 0..CLAIMS {
                let claim = announce(&torrent, &random_id(), &[]);
                context.spend(2, 2 * count(claim.to_string().len()));
                holder.send(&claim)?;
                holder.wait_for(measure::now() + MESSAGE_TIME_MAX, |message| message["interval"].as_u64())?;
                claimant.send(&claim)?;
            }
            sockets.push(claimant);
        }
        sockets.push(holder);
    }
    let mut back = open(honest_v4(34))?;
    back.send(&announce(&hash, &peer, &[]))?;
    let outcome = back.wait_for(measure::now() + CLAIM_TIME_MAX, |message| {
        (message["info_hash"] == *hash)
            .then(|| message["failure reason"].as_str().unwrap_or("granted").to_owned())
    });
    let found = outcome.unwrap_or_else(|error| format!("{error:#}"));
    context.check("the claim of a client that is back", found == "granted", found);
    Ok(())
}
