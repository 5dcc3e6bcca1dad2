//! Names that the tracker never chose: foreign domains whose addresses are those of the tracker.

use std::io::{Read, Write};
use std::net::IpAddr;

use anyhow::Result;
use shoal_testkit::client::{tcp, tls};
use shoal_wire::websocket::handshake;

use crate::measure::count;
use crate::siege::address::public_hostile_v4;
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, announce_target};
use crate::siege::udp::random_hash;
use crate::siege::websocket::{announce as announce_message, random_id, text};

/// The tracker's name in the attack that it refuses the others.
pub(super) const OWN: &str = "tracker.test";

/// Other names: one of a stranger, one that begins like the own one, and one that ends like it. [`foreign_names`] has a fourth one.
const FOREIGN: [&str; 3] = ["swarm.example", "tracker.test.example", "eviltracker.test"];

/// Ways to write the own name (RFC 9110, 7.2; RFC 3986, 3.2.2; RFC 1034, 3.1).
const OWN_WAYS: [&str; 4] = ["tracker.test", "TRACKER.Test", "tracker.test.", "tracker.test:6969"];

/// Requests by foreign names, and by the own one.
#[derive(Default)]
struct Counts {
    sent: u64,
    served: u64,
    /// Those of the refused whose reason names the right name.
    explained: u64,
}

pub(super) fn served(context: &Context<'_>) -> Result<()> {
    let foreign = ask_by(context, &foreign_names())?;
    check(context, "requests by foreign names that are served", foreign.served, foreign.sent);
    Ok(())
}

pub(super) fn refused(context: &Context<'_>) -> Result<()> {
    let foreign = ask_by(context, &foreign_names())?;
    check(context, "requests by foreign names that are refused", foreign.sent - foreign.served, foreign.sent);
    check(context, "refusals that tell the right name", foreign.explained, foreign.sent);
    let own = ask_by(context, &OWN_WAYS.map(str::to_owned))?;
    check(context, "requests by the own name that are served", own.served, own.sent);
    Ok(())
}

/// Checks that all of some requests have met their fate.
fn check(context: &Context<'_>, what: &str, found: u64, all: u64) {
    context.check(what, found == all && all > 0, format!("{found} of {all}"));
}

/// Returns the foreign names, with one of the greatest length (RFC 1035, 2.3.4).
fn foreign_names() -> Vec<String> {
    let long =
        format!("{}.example", ["a".repeat(61), "b".repeat(61), "c".repeat(61), "d".repeat(56)].join("."));
    FOREIGN.into_iter().map(str::to_owned).chain([long]).collect()
}

/// Announces by each name until the end of the window, over HTTP and HTTPS and by WebSockets.
fn ask_by(context: &Context<'_>, names: &[String]) -> Result<Counts> {
    let mut counts = Counts::default();
    for round in 0.. {
        for (number, name) in (0..).zip(names) {
            let source = public_hostile_v4(round % 100 * 10 + number);
            for is_tls in [false, true] {
                counts.add(context, &announce(context, source, is_tls, name)?, b"8:interval");
            }
            counts.add(context, &announce_by_socket(context, source, name)?, b"\"interval\"");
        }
        if context.is_window_over() {
            return Ok(counts);
        }
    }
    Ok(counts)
}

impl Counts {
    fn add(&mut self, context: &Context<'_>, response: &[u8], served: &[u8]) {
        let contains = |text: &[u8]| response.windows(text.len()).any(|window| window == text);
        self.sent += 1;
        if contains(served) {
            self.served += 1;
        } else {
            self.explained += u64::from(contains(OWN.as_bytes()));
        }
        context.spend(1, count(response.len()));
    }
}

fn announce(context: &Context<'_>, source: IpAddr, is_tls: bool, name: &str) -> Result<Vec<u8>> {
    let target = if is_tls { context.tracker.tls(source) } else { context.http(source) };
    let stream = tls::open(source, target, is_tls.then_some(context.tls), TIMEOUT)?;
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n",
        announce_target(&random_hash(), 7405, 10)
    );
    let mut client = HttpClient::over(stream);
    client.send(request.as_bytes())?;
    Ok(client.until_closed()?)
}

/// Announces by a WebSocket, and returns everything that the tracker sends until it has replied or closes the connection.
fn announce_by_socket(context: &Context<'_>, source: IpAddr, name: &str) -> Result<Vec<u8>> {
    let mut request = Vec::new();
    let key = handshake::key(fastrand::u128(..).to_ne_bytes());
    handshake::ask("/announce", name, &key, None, &mut request);
    let mut stream = tcp(source, context.http(source), TIMEOUT)?;
    stream.write_all(&request)?;
    let (mut received, mut piece, mut is_open) = (Vec::new(), [0; 4096], false);
    loop {
        let length = stream.read(&mut piece)?;
        received.extend_from_slice(&piece[..length]);
        let contains = |text: &[u8]| received.windows(text.len()).any(|window| window == text);
        if length == 0 || contains(b"\"interval\"") || contains(b"failure reason") {
            return Ok(received);
        }
        if !is_open && contains(b"\r\n\r\n") {
            is_open = true;
            let message = announce_message(&random_id(), &random_id(), &[]);
            stream.write_all(&text(message.to_string().as_bytes()))?;
        }
    }
}
