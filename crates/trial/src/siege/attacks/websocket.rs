//! Attacks on WebSocket frames and messages.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use shoal_wire::websocket::frame::Opcode;

use super::holding::{Holding, Reading};
use crate::measure;
use crate::measure::count;
use crate::siege::address::{honest_v4, hostile, hostile_v4, hostile_v6};
use crate::siege::attack::{Attack, Layer, Limits, Setting};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::websocket::{WebSocket, announce, bare, fragment, random_id, text, upgrade};

/// Much less memory than the sockets below would use, without a limit per source.
const LITTLE_MEMORY: &[Setting] = &[
    ("memory.max", "64MiB"),
    ("store.memory_max", "8MiB"),
    ("http.connections_per_source_max", "100000"),
    ("webtorrent.connections_per_source_max", "100000"),
];

/// A small number of slots, without a limit per source.
const FEW_SLOTS: &[Setting] = &[
    ("http.connections_max", "200"),
    ("http.connections_per_source_max", "100000"),
    ("webtorrent.connections_per_source_max", "100000"),
];

/// The metric of the connections that were closed because memory was short.
const SHED: &str = "shoal_connections_ended_total{reason=\"evicted_memory\"} ";

const SIXTY_FOUR_MIB: Limits = Limits { resident_bytes_max: 64 << 20, ..Limits::USUAL };

const SERVED: &str = "honest clients are answered, and memory stays within its bound";

const fn websocket(name: &'static str, tries: &'static str, run: fn(&Context<'_>) -> Result<()>) -> Attack {
    Layer::WebSocket.attack(name, tries, SERVED, run)
}

/// Returns an attack on a tracker with little memory.
const fn bounded(name: &'static str, tries: &'static str, run: fn(&Context<'_>) -> Result<()>) -> Attack {
    Attack {
        settings: LITTLE_MEMORY,
        limits: SIXTY_FOUR_MIB,
        promise: "the process stays within memory.max of 64 MiB, and memory is returned",
        ..websocket(name, tries, run)
    }
}

pub(super) const ATTACKS: &[Attack] = &[
    bounded("half-messages", "thousands of sockets with half a message of 256 KiB each", |context| {
        plain_half_messages(context, hostile_v4)
    }),
    bounded("half-messages-v6", "the same over IPv6 from many networks of one /48", |context| {
        plain_half_messages(context, hostile_v6)
    }),
    bounded("half-messages-tls", "the same over TLS and both families", half_messages_over_tls),
    Attack {
        promise: "a client with one long message keeps its connection",
        ..bounded(
            "divided-half-messages",
            "one address divides more than the memory between sockets that hold less than an honest one",
            divided_half_messages,
        )
    },
    bounded("unread-answers", "sockets that scrape without a pause and read nothing", unread_answers),
    websocket("fragments-of-a-byte", "messages in fragments of one byte and empty fragments", fragments),
    websocket("ping-flood", "pings of 125 bytes without a pause, without reading the pongs", ping_flood),
    websocket("masked-garbage", "random bytes and invalid frames after the upgrade", garbage),
    websocket(
        "close-without-reading",
        "announces followed by a close, without reading",
        close_without_reading,
    ),
    websocket("deep-json", "tens of thousands of nested arrays and objects", deep_json),
    websocket("huge-numbers", "numbers with thousands of digits, and strings of escapes", huge_numbers),
    Attack {
        settings: FEW_SLOTS,
        ..websocket("socket-hoarding", "ten addresses open more sockets than there are slots", |context| {
            let sources: Vec<IpAddr> = (1..=10).map(hostile_v4).collect();
            let (target, opening) = (context.http(sources[0]), upgrade("dGhlIHNhbXBsZSBub25jZQ=="));
            let connections = context.pick(300, 1500);
            Holding {
                target,
                sources,
                connections,
                opening: &opening,
                trickle: b"",
                reading: Reading::Everything,
            }
            .run(context);
            Ok(())
        })
    },
];

/// Returns the first fragment of a message that is not too long.
fn half_message() -> Vec<u8> {
    fragment(Opcode::Text, false, &vec![b' '; 200 << 10])
}

/// Opens sockets, sends half a message on each, and holds them.
fn half_messages<S>(
    context: &Context<'_>,
    source: fn(u32) -> IpAddr,
    open: impl Fn(IpAddr, &[u8]) -> Result<S>,
) -> Result<()> {
    let half = half_message();
    let mut sockets = Vec::new();
    for number in 0..context.pick(400, 3000) {
        if context.is_over() {
            break;
        }
        if let Ok(socket) = open(source(number % 60), &half) {
            context.spend(1, count(half.len()));
            sockets.push(socket);
        }
    }
    context.sleep_ms(300);
    Ok(())
}

fn plain_half_messages(context: &Context<'_>, source: fn(u32) -> IpAddr) -> Result<()> {
    half_messages(context, source, |source, half| {
        let mut stream = bare(source, context.http(source), TIMEOUT)?;
        stream.write_all(half)?;
        Ok(stream)
    })
}

fn half_messages_over_tls(context: &Context<'_>) -> Result<()> {
    half_messages(context, hostile, |source, half| {
        let target = context.tracker.tls(source);
        let mut socket = WebSocket::open(source, target, Some(context.tls), TIMEOUT)?;
        socket.send_raw(half)?;
        Ok(socket)
    })
}

/// Holds many quarters of a message of one address, while an honest client sends a whole one slowly.
fn divided_half_messages(context: &Context<'_>) -> Result<()> {
    let padding = " ".repeat(200 << 10);
    let message = announce(&random_id(), &random_id(), &[]).to_string();
    let source = honest_v4(50);
    let mut honest = WebSocket::open(source, context.http(source), None, TIMEOUT)?;
    honest.send_raw(&fragment(Opcode::Text, false, padding.as_bytes()))?;
    let quarter = fragment(Opcode::Text, false, &padding.as_bytes()[..50 << 10]);
    let mut sockets = Vec::new();
    // The honest message has to be complete before `http.request_timeout_s`.
    let end = measure::now() + Duration::from_secs(5);
    for _ in 0..context.pick(1600, 4000) {
        if measure::now() > end {
            break;
        }
        let source = hostile_v4(1);
        let Ok(mut stream) = bare(source, context.http(source), TIMEOUT) else { continue };
        if stream.write_all(&quarter).is_ok() {
            context.spend(1, count(quarter.len()));
        }
        sockets.push(stream);
    }
    let metrics = context.tracker.request_control("/metrics", TIMEOUT)?;
    let metrics = String::from_utf8_lossy(&metrics.body);
    let shed = metrics.lines().find_map(|line| line.strip_prefix(SHED)?.parse().ok()).unwrap_or(0_u64);
    let sent = honest.send_raw(&fragment(Opcode::Continuation, true, message.as_bytes()));
    let deadline = measure::now() + TIMEOUT;
    let outcome = sent.and_then(|()| honest.wait_for(deadline, |message| message["interval"].as_u64()));
    let found = outcome.as_ref().map_or_else(|error| format!("{error:#}"), |_| "answered".to_owned());
    context.check("a client with one long message", outcome.is_ok(), found);
    // Without this, the attack would show nothing.
    context.check("memory was short", shed > 0, format!("{shed} connections closed for it"));
    Ok(())
}

/// Calls `act` on new sockets until the end of the window. It returns the number of bytes that it sent.
fn repeat(
    context: &Context<'_>,
    mut act: impl FnMut(&mut TcpStream) -> std::io::Result<usize>,
) -> Result<()> {
    for number in context.rounds() {
        let source = hostile(number % 200);
        let Ok(mut stream) = bare(source, context.http(source), TIMEOUT) else { continue };
        let sent = act(&mut stream).unwrap_or(0);
        context.spend(1, count(sent));
    }
    Ok(())
}

fn unread_answers(context: &Context<'_>) -> Result<()> {
    let hashes: Vec<String> = (0..200).map(|_| random_id()).collect();
    let scrape = text(json!({"action": "scrape", "info_hash": hashes}).to_string().as_bytes()).repeat(8);
    let mut sockets = Vec::new();
    for number in 0..context.pick(200, 1500) {
        let source = hostile_v4(number % 60);
        let Ok(stream) = bare(source, context.http(source), TIMEOUT) else { continue };
        stream.set_nonblocking(true)?;
        sockets.push(stream);
    }
    while !context.is_window_over() {
        for socket in &mut sockets {
            if let Ok(sent) = socket.write(&scrape) {
                context.spend(1, count(sent));
            }
        }
    }
    Ok(())
}

fn fragments(context: &Context<'_>) -> Result<()> {
    let message = announce(&random_id(), &random_id(), &[]).to_string();
    let mut bytes = fragment(Opcode::Text, false, b"");
    for byte in message.as_bytes() {
        bytes.extend(fragment(Opcode::Continuation, false, &[*byte]));
        bytes.extend(fragment(Opcode::Continuation, false, b""));
    }
    bytes.extend(fragment(Opcode::Continuation, true, b""));
    let mut answered = 0;
    repeat(context, |stream| {
        stream.write_all(&bytes.repeat(20))?;
        answered += stream.read(&mut [0; 4096])?;
        Ok(bytes.len() * 20)
    })?;
    context.check("messages in fragments are answered", answered > 0, format!("{answered} bytes"));
    Ok(())
}

fn ping_flood(context: &Context<'_>) -> Result<()> {
    let pings = fragment(Opcode::Ping, true, &[b'p'; 125]).repeat(500);
    repeat(context, |stream| {
        stream.set_nonblocking(true)?;
        let mut sent = 0;
        for _ in 0..50 {
            sent += stream.write(&pings).unwrap_or(0);
        }
        Ok(sent)
    })
}

fn garbage(context: &Context<'_>) -> Result<()> {
    repeat(context, |stream| {
        let mut bytes = vec![0; fastrand::usize(1..4096)];
        fastrand::fill(&mut bytes);
        // Half of them begin with the header of a masked text frame, so that the payload is decoded.
        if fastrand::bool() && bytes.len() > 8 {
            bytes[0] = 0x81;
            bytes[1] = 0x80 | fastrand::u8(..126);
        }
        stream.write_all(&bytes)?;
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read(&mut [0; 4096]);
        Ok(bytes.len())
    })
}

fn close_without_reading(context: &Context<'_>) -> Result<()> {
    let mut bytes = text(announce(&random_id(), &random_id(), &[]).to_string().as_bytes()).repeat(50);
    bytes.extend(fragment(Opcode::Close, true, &1000_u16.to_be_bytes()));
    repeat(context, |stream| {
        stream.write_all(&bytes)?;
        Ok(bytes.len())
    })
}

fn deep_json(context: &Context<'_>) -> Result<()> {
    let deep = |open: &str, close: &str| {
        let value = format!("{}{}", open.repeat(20_000), close.repeat(20_000));
        text(format!("{{\"action\":\"announce\",\"x\":{value}}}").as_bytes())
    };
    let messages = [deep("[", "]"), deep("{\"a\":[", "]}"), deep("[", "")];
    send_in_turn(context, &messages)
}

fn huge_numbers(context: &Context<'_>) -> Result<()> {
    let of = |value: String| {
        let (hash, peer) = (random_id(), random_id());
        text(format!(
            "{{\"action\":\"announce\",\"info_hash\":\"{hash}\",\"peer_id\":\"{peer}\",\"numwant\":{value},\"left\":{value}}}"
        ).as_bytes())
    };
    let messages = [
        of("9".repeat(100_000)),
        of(format!("1e{}", "9".repeat(50_000))),
        of("-0.".to_owned() + &"0".repeat(90_000)),
        of(format!("\"{}\"", "\\u0041".repeat(30_000))),
    ];
    send_in_turn(context, &messages)
}

/// Sends one of these messages on each new socket, and reads the start of the reply.
fn send_in_turn(context: &Context<'_>, messages: &[Vec<u8>]) -> Result<()> {
    let mut messages = messages.iter().cycle();
    repeat(context, |stream| {
        let message = messages.next().expect("there are messages");
        stream.write_all(message)?;
        let _ = stream.read(&mut [0; 4096]);
        Ok(message.len())
    })
}
