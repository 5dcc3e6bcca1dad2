//! Attacks on HTTP requests.

mod announces;

use std::io::{Read, Write};

use anyhow::Result;
use shoal_testkit::client::tcp;
use shoal_testkit::client::tls;

use crate::measure::count;
use crate::siege::address::{hostile, hostile_v4};
use crate::siege::attack::{Attack, Layer, Limits};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{announce_target, get};
use crate::siege::websocket::WebSocket;

const SERVED: &str = "honest clients are answered, and memory stays within its bound";

pub(super) const ATTACKS: &[Attack] = &[
    Layer::Http.attack(
        "pipelining",
        "thousands of requests on a connection without waiting for responses",
        SERVED,
        pipelining,
    ),
    Layer::Http.attack(
        "header-bombs",
        "ten thousand header fields, and one field of a megabyte",
        SERVED,
        header_bombs,
    ),
    Layer::Http.attack(
        "smuggling",
        "requests whose end two servers would locate differently",
        "each is refused or answered once; none hides a second request",
        smuggling,
    ),
    Layer::Http.attack(
        "endless-body",
        "a chunked body that never ends, and a body with a declared length of an exabyte",
        "the connection ends before a megabyte of the body is read",
        endless_body,
    ),
    Layer::Http.attack(
        "huge-query",
        "targets of up to a megabyte, and thousands of parameters",
        SERVED,
        huge_query,
    ),
    Layer::Http.attack(
        "odd-methods",
        "all kinds of methods, in lower case too, and invalid bytes as a method",
        "none of them announces",
        odd_methods,
    ),
    Attack {
        settings: &[("webtorrent.origins_deny", "https://evil.example")],
        ..Layer::Http.attack(
            "cross-site-browsers",
            "a web page makes its visitors announce, by an image, a form, a script or a WebSocket, with and without TLS",
            "cross-site browsers are refused",
            cross_site,
        )
    },
    Attack {
        settings: announces::FEW_SOCKETS,
        ..Layer::Http.attack(
            "forged-addresses",
            "announces and WebSockets that name other addresses in parameters, header fields and a PROXY header",
            "a peer has the address of its connection, and counts for it",
            announces::forged_addresses,
        )
    },
    Attack {
        settings: announces::FEW_TORRENTS,
        limits: Limits::SWARMS_STAY,
        ..Layer::Http.attack(
            "holding",
            "one source announces more torrents than it may have, with and without TLS",
            "none beyond the limit is stored, and other sources are served",
            announces::hold,
        )
    },
    Attack {
        limits: Limits::SWARMS_STAY,
        ..Layer::Http.attack(
            "poisoning",
            "one address over HTTP and one IPv6 /48 over HTTPS join a swarm of 50 honest peers",
            "at most 5 % of the peers in replies are hostile",
            announces::poison,
        )
    },
    Layer::Http.attack(
        "upgrade-storm",
        "upgrades to WebSockets that are closed at once, and upgrades to unknown protocols",
        SERVED,
        upgrades,
    ),
];

/// Sends bytes on a new connection as long as they are accepted. Returns the response and the number of accepted bytes.
fn send(context: &Context<'_>, number: u32, pieces: impl Iterator<Item = Vec<u8>>) -> (Vec<u8>, u64) {
    let (source, mut response, mut accepted) = (hostile(number % 200), Vec::new(), 0);
    let Ok(mut stream) = tcp(source, context.http(source), TIMEOUT) else { return (response, 0) };
    for piece in pieces {
        if stream.write_all(&piece).is_err() {
            break;
        }
        accepted += count(piece.len());
    }
    context.spend(1, accepted);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.take(64 << 10).read_to_end(&mut response);
    (response, accepted)
}

fn pipelining(context: &Context<'_>) -> Result<()> {
    let requests = get(&announce_target(&[2; 20], 7400, 50)).repeat(64);
    let mut answered = 0;
    for number in context.rounds() {
        let source = hostile(number % 200);
        let Ok(mut stream) = tcp(source, context.http(source), TIMEOUT) else { continue };
        for _ in 0..16 {
            if stream.write_all(&requests).is_err() {
                break;
            }
            context.spend(64, count(requests.len()));
            answered += stream.read(&mut [0; 64 << 10]).unwrap_or(0);
        }
    }
    context.check("pipelined requests are answered", answered > 0, format!("{answered} bytes"));
    Ok(())
}

fn header_bombs(context: &Context<'_>) -> Result<()> {
    let many =
        [b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec(), b"A: b\r\n".repeat(10_000), b"\r\n".to_vec()].concat();
    let long = [b"GET / HTTP/1.1\r\nHost: a\r\nA: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    let mut served = 0;
    for number in context.rounds() {
        let bomb = if number % 2 == 0 { &many } else { &long };
        let (response, _) = send(context, number, bomb.chunks(16 << 10).map(<[u8]>::to_vec));
        served += u64::from(response.starts_with(b"HTTP/1.1 2"));
    }
    context.check("bombs served", served == 0, format!("{served}"));
    Ok(())
}

/// Descriptions, and requests that must not get a single 200 response.
const SMUGGLING: &[(&str, &str)] = &[
    (
        "two lengths",
        "GET T HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    (
        "length and chunks",
        "POST T HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    (
        "chunks by another name",
        "GET T HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    (
        "chunks twice",
        "GET T HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    ("two hosts", "GET T HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    (
        "a blank before the colon",
        "GET T HTTP/1.1\r\nHost: a\r\nContent-Length : 26\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    ("a folded line", "GET T HTTP/1.1\r\nHost: a\r\nX: a\r\n Content-Length: 26\r\n\r\n"),
    ("a bare CR", "GET T HTTP/1.1\r\nHost: a\rContent-Length: 26\r\n\r\n"),
    ("a NUL", "GET T HTTP/1.1\r\nHost: a\0\r\n\r\n"),
    (
        "a signed length",
        "GET T HTTP/1.1\r\nHost: a\r\nContent-Length: +26\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    (
        "a length in hexadecimal",
        "GET T HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1a\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    ("a length beyond 64 bits", "GET T HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\nG"),
    (
        "a request within a body",
        "POST T HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\nGET T HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    ("an HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
];

fn smuggling(context: &Context<'_>) -> Result<()> {
    let target = announce_target(&[2; 20], 7401, 10);
    for (number, (name, request)) in (0..).zip(SMUGGLING) {
        let request = request.replace(" T ", &format!(" {target} ")).into_bytes();
        let (response, _) = send(context, number, std::iter::once(request));
        let served = response.windows(12).filter(|window| window == b"HTTP/1.1 200").count();
        let first = String::from_utf8_lossy(&response);
        let first = first.lines().next().unwrap_or("nothing");
        context.check(*name, served == 0, format!("{served} served, first response {first}"));
    }
    Ok(())
}

fn endless_body(context: &Context<'_>) -> Result<()> {
    let chunk = [b"4000\r\n".to_vec(), vec![b'a'; 0x4000], b"\r\n".to_vec()].concat();
    let heads = [
        "POST /announce HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /announce HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000000000\r\n\r\n",
        "GET /announce HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    for (number, head) in (0..).zip(heads) {
        let body = std::iter::once(head.as_bytes().to_vec()).chain(std::iter::repeat_n(chunk.clone(), 1000));
        let (_, accepted) = send(context, number, body);
        // Bytes in kernel buffers count as accepted here, several MiB on loopback.
        context.check("bytes of a body that never ends", accepted < 12 << 20, format!("{accepted} accepted"));
    }
    Ok(())
}

fn huge_query(context: &Context<'_>) -> Result<()> {
    let long = format!("/announce?{}", "a".repeat(1 << 20));
    let many = format!("{}{}", announce_target(&[2; 20], 7402, 10), "&x=%41".repeat(900));
    let hashes = format!("/scrape?{}", "info_hash=aaaaaaaaaaaaaaaaaaaa&".repeat(240));
    for number in context.rounds() {
        let target = [&long, &many, &hashes][usize::from(number % 3 == 1) + 2 * usize::from(number % 3 == 2)];
        send(context, number, get(target).chunks(16 << 10).map(<[u8]>::to_vec));
    }
    Ok(())
}

fn odd_methods(context: &Context<'_>) -> Result<()> {
    const METHODS: [&str; 12] = [
        "PUT", "DELETE", "TRACE", "CONNECT", "OPTIONS", "PATCH", "PROPFIND", "get", "Get", "G\u{e4}T",
        "GE T", "\t",
    ];
    let target = announce_target(&[0x77; 20], 7403, 10);
    for number in context.rounds() {
        let method = METHODS[usize::try_from(number)? % METHODS.len()];
        let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
        send(context, number, std::iter::once(request));
    }
    let members = context.udp(hostile_v4(1))?.scrape(&[[0x77; 20]])?[0].members();
    context.check("peers registered by odd methods", members == 0, format!("{members}"));
    Ok(())
}

fn cross_site(context: &Context<'_>) -> Result<()> {
    const HEADERS: [(&str, &str); 4] = [
        ("an image", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n"),
        (
            "a script",
            "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n",
        ),
        ("a frame", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n"),
        ("a form of an old browser", "Origin: https://evil.example\r\n"),
    ];
    let mut number = 0;
    for (source, is_tls) in announces::sources(1) {
        for (name, headers) in HEADERS {
            number += 1;
            let hash = [0x90 + number; 20];
            let mut client = announces::open(context, source, is_tls)?;
            let target = announce_target(&hash, 7404, 10);
            let request = format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\n{headers}\r\n");
            context.spend(1, count(request.len()));
            let _ = client.request(request.as_bytes());
            let members = context.udp(source)?.scrape(&[hash])?[0].members();
            let what = format!("peers registered by {name}, {}", announces::path(source, is_tls));
            context.check(what, members == 0, format!("{members}"));
        }
        let (target, tls) = announces::endpoint(context, source, is_tls);
        let stream = tls::open(source, target, tls, TIMEOUT)?;
        let socket = WebSocket::over_with(stream, "/announce", "Origin: https://evil.example\r\n");
        let what = format!("a WebSocket of a page, {}", announces::path(source, is_tls));
        context.check(what, socket.is_err(), if socket.is_err() { "refused" } else { "opened" });
    }
    Ok(())
}

fn upgrades(context: &Context<'_>) -> Result<()> {
    let unknown = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c, x, y\r\n\r\n".to_vec();
    for number in context.rounds() {
        let upgrade = crate::siege::websocket::upgrade("dGhlIHNhbXBsZSBub25jZQ==");
        send(context, number, std::iter::once(if number % 2 == 0 { upgrade } else { unknown.clone() }));
    }
    Ok(())
}
