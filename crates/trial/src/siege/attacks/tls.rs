//! Attacks on TLS sessions.

use std::io::{Read, Write};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use rustls::HandshakeKind;
use shoal_testkit::client::tcp;
use shoal_testkit::client::tls::{Tls, TlsStream};

use super::holding::{Holding, Reading};
use crate::measure::count;
use crate::siege::address::{hostile, hostile_v4};
use crate::siege::attack::{Attack, Layer, Setting};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, announce_target, get};

const FEW_SLOTS: &[Setting] =
    &[("http.connections_max", "200"), ("http.connections_per_source_max", "100000")];
const THOUSAND_SLOTS: &[Setting] =
    &[("http.connections_max", "1000"), ("http.connections_per_source_max", "100000")];

const SERVED: &str = "honest clients are answered, plain and over TLS";

const fn tls(name: &'static str, tries: &'static str, run: fn(&Context<'_>) -> Result<()>) -> Attack {
    Layer::Tls.attack(name, tries, SERVED, run)
}

const fn holding(name: &'static str, tries: &'static str, run: fn(&Context<'_>) -> Result<()>) -> Attack {
    Attack { settings: FEW_SLOTS, settings_full: THOUSAND_SLOTS, ..tls(name, tries, run) }
}

pub(super) const ATTACKS: &[Attack] = &[
    holding("half-handshakes", "ten addresses hold every slot with half a client hello", |context| {
        let hello = context.tls.hello()?;
        hold(context, &hello[..hello.len() / 2])
    }),
    holding("unfinished-handshakes", "ten addresses hold every slot with unfinished handshakes", |context| {
        hold(context, &context.tls.hello()?)
    }),
    tls("client-hello-flood", "client hellos without a pause, each on a new connection", hello_flood),
    tls("mutated-hellos", "client hellos with some bytes changed", mutated_hellos),
    tls(
        "garbage-records",
        "records of every type with random payload, before and after a handshake",
        garbage_records,
    ),
    tls("tiny-records", "requests in records of one byte each", tiny_records),
    tls("junk-tickets", "client hellos with random session tickets and key shares", junk_tickets),
    tls("resumption-flood", "sessions that are resumed without a pause", resumption_flood),
    tls("replayed-tickets", "one client hello with a valid ticket again and again", replayed_tickets),
    tls("empty-records", "empty records and fragments of one byte without a pause", empty_records),
];

fn hold(context: &Context<'_>, opening: &[u8]) -> Result<()> {
    let sources: Vec<IpAddr> = (1..=10).map(hostile_v4).collect();
    let (target, connections) = (context.tracker.tls(sources[0]), context.pick(300, 1500));
    Holding { target, sources, connections, opening, trickle: b"", reading: Reading::Everything }
        .run(context);
    Ok(())
}

/// Sends bytes on a new connection and reads the start of the response.
fn send(context: &Context<'_>, number: u32, bytes: &[u8]) {
    let source = hostile(number % 200);
    let Ok(mut stream) = tcp(source, context.tracker.tls(source), TIMEOUT) else { return };
    if stream.write_all(bytes).is_ok() {
        context.spend(1, count(bytes.len()));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read(&mut [0; 4096]);
    }
}

fn hello_flood(context: &Context<'_>) -> Result<()> {
    changed_hellos(context, |_| {})
}

/// Sends client hellos without a pause, each of which may be changed.
fn changed_hellos(context: &Context<'_>, change: fn(&mut [u8])) -> Result<()> {
    let hello = context.tls.hello()?;
    for number in context.rounds() {
        let mut changed = hello.clone();
        change(&mut changed);
        send(context, number, &changed);
    }
    Ok(())
}

fn mutated_hellos(context: &Context<'_>) -> Result<()> {
    changed_hellos(context, |hello| {
        for _ in 0..fastrand::usize(1..8) {
            hello[fastrand::usize(5..hello.len())] = fastrand::u8(..);
        }
    })
}

/// Randomizes the last third of a client hello, which contains extensions such as key shares and tickets.
fn junk_tickets(context: &Context<'_>) -> Result<()> {
    changed_hellos(context, |hello| {
        let start = hello.len() / 3 * 2;
        fastrand::fill(&mut hello[start..]);
    })
}

fn garbage_records(context: &Context<'_>) -> Result<()> {
    for number in context.rounds() {
        let mut payload = vec![0; fastrand::usize(..16_000)];
        fastrand::fill(&mut payload);
        let record = record(fastrand::u8(18..26), &payload);
        if number % 2 == 0 {
            send(context, number, &record);
        } else if let Ok(mut stream) = session(context, context.tls, number) {
            // After the handshake, plain records violate the protocol.
            let _ = stream.sock.write_all(&record);
            context.spend(1, count(record.len()));
            let _ = stream.sock.read(&mut [0; 4096]);
        }
    }
    Ok(())
}

fn empty_records(context: &Context<'_>) -> Result<()> {
    let hello = context.tls.hello()?;
    // RFC 8446, 5.1: empty handshake records must not be sent, but fragments may have a single byte.
    let mut tiny = Vec::new();
    for byte in &hello[5..] {
        tiny.extend(record(22, &[*byte]));
    }
    let empty = record(22, &[]).repeat(4000);
    for number in context.rounds() {
        send(context, number, if number % 2 == 0 { &tiny } else { &empty });
    }
    Ok(())
}

fn resumption_flood(context: &Context<'_>) -> Result<()> {
    let client = context.tls.resuming();
    let (mut resumed, mut served) = (0, 0);
    for number in context.rounds() {
        if let Ok(stream) = session(context, &client, number) {
            served += 1;
            resumed += u64::from(stream.conn.handshake_kind() == Some(HandshakeKind::Resumed));
        }
        context.spend(1, 600);
    }
    let found = format!("{resumed} of {served}");
    context.check("sessions are resumed", resumed > 0 && resumed * 10 >= served * 9, found);
    Ok(())
}

fn replayed_tickets(context: &Context<'_>) -> Result<()> {
    let client = context.tls.resuming();
    drop(session(context, &client, 0)?);
    let hello = client.hello()?;
    ensure!(hello.len() > context.tls.hello()?.len() + 100, "the client has no ticket");
    for number in context.rounds() {
        send(context, number, &hello);
    }
    Ok(())
}

/// Encodes a plain record (RFC 8446, 5.1).
fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[kind, 3, 3, length[0], length[1]], payload].concat()
}

/// Completes a handshake with a request.
fn session(context: &Context<'_>, client: &Tls, number: u32) -> Result<TlsStream> {
    let source = hostile(number % 200);
    let mut stream = client.wrap(tcp(source, context.tracker.tls(source), TIMEOUT)?)?;
    stream.write_all(&get("/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa"))?;
    let length = stream.read(&mut [0; 4096])?;
    ensure!(length > 0, "closed in the middle of a handshake");
    Ok(stream)
}

fn tiny_records(context: &Context<'_>) -> Result<()> {
    let mut answered = 0;
    while !context.is_window_over() {
        let mut stream = session(context, context.tls, 1).context("no TLS session")?;
        let request = get(&announce_target(&[2; 20], 7300, 10));
        for byte in &request {
            stream.write_all(&[*byte])?;
            stream.flush()?;
        }
        // A record has 22 bytes in addition to its payload.
        context.spend(count(request.len()), count(request.len() * 23));
        answered += u64::from(HttpClient::over(stream).receive().is_ok_and(|response| response.is_some()));
    }
    context.check("requests in tiny records are answered", answered > 0, format!("{answered}"));
    Ok(())
}
