//! Attacks on the verification of tokens.

use std::thread;

use anyhow::Result;
use serde_json::{Value, json};
use shoal_testkit::client::tls;
use shoal_testkit::tokens::{Issuer, encode, message};
use shoal_wire::udp::Reply;
use shoal_wire::websocket::handshake::Unaccepted;

use crate::measure::{self, count};
use crate::siege::address::{honest_v4, hostile, hostile_v4, hostile_v6};
use crate::siege::attack::{Attack, JWKS, Layer, Limits};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, announce_target, get};
use crate::siege::udp::{Flow, leecher, send_all};
use crate::siege::websocket::{WebSocket, announce, random_id};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    // Honest clients of all protocols have no token; those of the attack have one, and each of their replies is checked.
    settings: &[("tokens.jwks", JWKS), ("tokens.required", "false")],
    limits: Limits { resident_bytes_max: 512 << 20, ..Limits::SWARMS_STAY },
    ..Layer::Tokens.attack(
        "random-tokens",
        "announces over UDP, HTTP and WebSockets with different tokens without a pause, all of them well-formed with wrong signatures",
        "clients with known tokens are served, those with new ones in nearly all cases, and no wrong token is accepted",
        random_tokens,
    )
}];

/// The secret key of `keys/jwks.json`. It is good for nothing else.
pub(super) const SEED: [u8; 32] = *b"the siege signs tokens with this";

/// Bytes of a signature.
const SIGNATURE_BYTES: usize = 64;

/// Milliseconds between the requests of the honest client.
const PAUSE_MS: u64 = 5;

/// The number of known tokens for each new one that the honest client shows.
const KNOWN_FOR_A_NEW_ONE: u32 = 4;

/// Wrong tokens that were refused, and those that were not.
#[derive(Default)]
struct Refusals {
    refused: u64,
    accepted: u64,
}

/// The requests of the honest client, and how many of them were served.
#[derive(Default)]
struct Served {
    known: [u64; 2],
    new: [u64; 2],
}

fn claims(number: u64) -> Value {
    json!({ "exp": 4_000_000_000_u32, "jti": number })
}

/// Returns a token with a random signature.
fn wrong_token() -> String {
    let mut signature = [0; SIGNATURE_BYTES];
    fastrand::fill(&mut signature);
    let header = json!({ "alg": "EdDSA", "kid": "siege" });
    format!("{}.{}", message(&header, &claims(fastrand::u64(..))), encode(&signature))
}

fn random_tokens(context: &Context<'_>) -> Result<()> {
    let (served, over_udp, over_ws, over_http) = thread::scope(|scope| {
        let honest = scope.spawn(|| serve_honest(context));
        let udp = scope.spawn(|| flood_udp(context));
        let ws = scope.spawn(|| flood_ws(context));
        let http = flood_http(context);
        (join(honest), join(udp), join(ws), http)
    });
    let Served { known, new } = served?;
    let refusals = [("UDP", over_udp?), ("HTTP", over_http?), ("WebSockets", over_ws?)];
    for (name, Refusals { refused, accepted }) in refusals {
        let found = format!("{accepted}, and {refused} refused");
        context.check(format!("wrong tokens accepted over {name}"), accepted == 0 && refused > 0, found);
    }
    let found = |[served, due]: [u64; 2]| format!("{served} of {due}");
    context.check("known tokens served", known[0] == known[1] && known[1] > 0, found(known));
    context.check("new tokens served", new[0] * 10 >= new[1] * 9 && new[1] > 0, found(new));
    Ok(())
}

/// Joins a thread, whose panic is one of this thread.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Announces over UDP and HTTP with good tokens.
fn serve_honest(context: &Context<'_>) -> Result<Served> {
    let (source, issuer, mut served) = (honest_v4(20), Issuer::of_seed("siege", &SEED), Served::default());
    let known = issuer.token(&claims(0));
    let udp = context.udp(source)?;
    let mut http = HttpClient::open(source, context.http(source), None, TIMEOUT)?;
    for round in context.rounds() {
        let is_new = round % (KNOWN_FOR_A_NEW_ONE + 1) == KNOWN_FOR_A_NEW_ONE;
        let new = issuer.token(&claims(1 + u64::from(round)));
        let token = if is_new { &new } else { &known };
        let url = format!("/announce?jwt={token}");
        let packet = leecher([9; 20], 4003).packet_with_url(udp.connection_id(), 1, &url);
        let mut is_served = false;
        send_all(&udp, [packet], || false, |reply| is_served = matches!(reply, Reply::Announce { .. }));
        let target = format!("{}&jwt={token}", announce_target(&[9; 20], 4004, 10));
        let response = http.request(&get(&target))?;
        let both = [is_served, response.status == 200 && !response.body.starts_with(b"d14:failure reason")];
        let counts = if is_new { &mut served.new } else { &mut served.known };
        counts[0] += both.into_iter().map(u64::from).sum::<u64>();
        counts[1] += count(both.len());
        context.sleep_ms(PAUSE_MS);
    }
    Ok(served)
}

fn flood_udp(context: &Context<'_>) -> Result<Refusals> {
    let address =
        |number: u32| if number.is_multiple_of(4) { hostile_v6(number) } else { hostile_v4(number) };
    let mut clients: Vec<_> =
        (0..context.pick(16, 500)).map(|number| context.udp(address(number))).collect::<Result<_>>()?;
    let mut flow = Flow::default();
    while !context.is_window_over() {
        for client in &mut clients {
            let id = client.connection_id();
            let packets = (0..128).map(|_| {
                let url = format!("/{}/announce", wrong_token());
                leecher([8; 20], 4005).packet_with_url(id, 1, &url)
            });
            flow.add(send_all(client, packets, || context.is_window_over(), |_| {}));
        }
    }
    context.spend_flow(flow);
    Ok(Refusals { refused: flow.errors, accepted: flow.answered - flow.errors })
}

fn flood_http(context: &Context<'_>) -> Result<Refusals> {
    let mut refusals = Refusals::default();
    for number in context.rounds() {
        let source = hostile_v4(1000 + number % 200);
        let mut client = HttpClient::open(source, context.http(source), None, TIMEOUT)?;
        for _ in 0..64 {
            let target = format!("{}&jwt={}", announce_target(&[8; 20], 4006, 10), wrong_token());
            let request = get(&target);
            context.spend(1, count(request.len()));
            let response = client.request(&request)?;
            let is_refused = response.body.starts_with(b"d14:failure reason");
            refusals.refused += u64::from(is_refused);
            refusals.accepted += u64::from(!is_refused);
        }
    }
    Ok(refusals)
}

/// Opens a WebSocket for each announce.
fn flood_ws(context: &Context<'_>) -> Result<Refusals> {
    let mut refusals = Refusals::default();
    for number in context.rounds() {
        let source = hostile(2000 + number % 200);
        let target = format!("/announce?jwt={}", wrong_token());
        context.spend(1, count(target.len()));
        let stream = tls::open(source, context.http(source), None, TIMEOUT)?;
        let announced = WebSocket::over_with(stream, &target, "").and_then(|mut socket| {
            socket.send(&announce(&random_id(), &random_id(), &[]))?;
            let deadline = measure::now() + TIMEOUT;
            socket.wait_for(deadline, |message| {
                message["interval"].as_u64().map(|_| true).or(message.get("failure reason").map(|_| false))
            })
        });
        match announced {
            Ok(true) => refusals.accepted += 1,
            Ok(false) => refusals.refused += 1,
            // A token may be refused by the upgrade already.
            Err(error) if error.is::<Unaccepted>() => refusals.refused += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(refusals)
}

#[cfg(test)]
mod tests {
    use shoal_testkit::tokens::jwks;

    use super::*;

    #[test]
    fn the_file_of_keys_has_the_key_of_the_seed() {
        let file: Value = serde_json::from_str(include_str!("../../../keys/jwks.json")).expect("JSON");
        let expected: Value =
            serde_json::from_str(&jwks(&[Issuer::of_seed("siege", &SEED).jwk()])).expect("JSON");
        assert_eq!(file, expected);
    }
}
