//! The opening handshake (RFC 6455, 4): which requests are upgraded or refused, and that no extension is negotiated.

use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

use super::frame::{FIN, TEXT};
use super::message::{Fields, Kind};
use super::socket::Socket;
use crate::case::{Case, Checked, ensure};
use crate::context::{Context, Target};
use crate::http::response::Response;

/// The string that is appended to every key before hashing (RFC 6455, 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A pause that is long enough to send a piece separately, and short enough to repeat a few hundred times.
const BETWEEN_PIECES: Duration = Duration::from_micros(300);

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-handshake-is-accepted",
        "RFC 6455, 4.2.2",
        "An upgrade gets 101 with Upgrade: websocket, Connection: Upgrade and the accept value of its key.",
        is_accepted,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-handshake-on-any-path-is-accepted",
        "practice: tracker URLs have the path /, /announce or another one",
        "An upgrade is accepted on any path, with and without a query.",
        on_any_path,
    )
    .with_info_hashes(0),
    Case::must(
        "ws-handshake-header-names-have-any-case",
        "RFC 6455, 4.2.1; RFC 9110, 5.1",
        "Header names, and the tokens websocket and Upgrade, are accepted in any case.",
        |context| {
            is_upgraded_by(
                context,
                &["uPGRADE: WebSocket", "CONNECTION: UPGRADE", "sec-websocket-version:13"],
            )
        },
    )
    .with_info_hashes(0),
    Case::must(
        "ws-handshake-connection-is-a-list",
        "RFC 6455, 4.2.1: \"includes the token\"; a well-known browser sends keep-alive, Upgrade",
        "Upgrade is found among other tokens in Connection.",
        |context| {
            is_upgraded_by(
                context,
                &["Upgrade: websocket", "Connection: keep-alive, Upgrade", "Sec-WebSocket-Version: 13"],
            )
        },
    )
    .with_info_hashes(0),
    Case::should(
        "ws-handshake-with-and-without-origin-is-accepted",
        "RFC 6455, 4.2.1: native clients send none",
        "An upgrade is accepted with the Origin of a web page, and without one.",
        |context| with_header(context, "Origin: https://client.example").map(drop),
    )
    .with_info_hashes(0),
    Case::must(
        "ws-handshake-negotiates-only-what-was-offered",
        "RFC 6455, 4.1: the client must fail the connection",
        "The 101 names no extension or subprotocol if none was offered.",
        names_only_what_was_offered,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-handshake-declines-compression",
        "practice: a compressor costs each connection more memory than everything else",
        "An offer of permessage-deflate is neither accepted nor an error.",
        declines_compression,
    ),
    Case::must(
        "ws-handshake-of-another-version-is-refused",
        "RFC 6455, 4.2.2 and 4.4",
        "An upgrade to a version other than 13 is not accepted.",
        |context| other_version(context).map(drop),
    )
    .with_info_hashes(0),
    Case::should(
        "ws-handshake-of-another-version-gets-426",
        "RFC 6455, 4.2.2 and 4.4",
        "An upgrade to a version other than 13 gets 426 with Sec-WebSocket-Version: 13.",
        other_version_gets_426,
    )
    .with_info_hashes(0),
    Case::must(
        "ws-handshake-without-its-pieces-is-refused",
        "RFC 6455, 4.2.1",
        "A request without Upgrade, Connection, key or version is not upgraded.",
        without_its_pieces,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-handshake-without-a-key-gets-400",
        "RFC 6455, 4.2.1",
        "An upgrade without a key gets 400.",
        without_a_key,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-handshake-with-a-bad-key-gets-400",
        "RFC 6455, 4.2.1: \"when decoded, is 16 bytes\"",
        "An upgrade whose key is not 16 bytes of base64 gets 400.",
        with_a_bad_key,
    )
    .with_info_hashes(0),
    Case::must(
        "ws-handshake-in-single-bytes-is-accepted",
        "practice: TCP is a stream of bytes",
        "An upgrade that arrives byte by byte is accepted.",
        in_single_bytes,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-frames-behind-the-handshake-are-read",
        "practice: proxies may merge segments",
        "A message that arrives in the same segment as the upgrade is answered.",
        frames_behind,
    ),
];

pub(super) fn new_key(context: &Context<'_>) -> String {
    STANDARD.encode(context.random_bytes(16))
}

/// Computes the value that proves that a server has read the key (RFC 6455, 4.2.2).
pub(super) fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::digest(format!("{key}{GUID}")))
}

/// Encodes an upgrade request for this path with these additional headers.
pub(super) fn request(target: &Target, path: &str, key: &str, headers: &[&str]) -> Vec<u8> {
    let key = format!("Sec-WebSocket-Key: {key}");
    let usual = ["Upgrade: websocket", "Connection: Upgrade", &key, "Sec-WebSocket-Version: 13"];
    request_of(target, path, &[&usual, headers].concat())
}

/// Encodes a request with these headers and Host only.
fn request_of(target: &Target, path: &str, headers: &[&str]) -> Vec<u8> {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", target.host).into_bytes()
}

fn is_accepted(context: &Context<'_>) -> Checked {
    for _ in 0..5 {
        Socket::open(context)?;
    }
    Ok(())
}

fn on_any_path(context: &Context<'_>) -> Checked {
    for path in ["/", "/announce", "/tracker/socket", "/announce?x=y", "/a/b/c/"] {
        let (mut socket, key) = (Socket::connect(context)?, new_key(context));
        socket.send(&request(context.target, path, &key, &[]));
        socket.confirm(&key)?;
    }
    Ok(())
}

/// Upgrades with these headers and a key.
fn is_upgraded_by(context: &Context<'_>, headers: &[&str]) -> Checked {
    let (mut socket, key) = (Socket::connect(context)?, new_key(context));
    let key_header = format!("SEC-WEBSOCKET-KEY: {key}");
    socket.send(&request_of(context.target, &context.target.path, &[headers, &[&key_header]].concat()));
    socket.confirm(&key).map(drop)
}

fn with_header(context: &Context<'_>, header: &str) -> Checked<Response> {
    let (mut socket, key) = (Socket::connect(context)?, new_key(context));
    socket.send(&request(context.target, &context.target.path, &key, &[header]));
    socket.confirm(&key)
}

fn names_only_what_was_offered(context: &Context<'_>) -> Checked {
    let response = with_header(context, "User-Agent: shoal-lab")?;
    for name in ["sec-websocket-extensions", "sec-websocket-protocol"] {
        ensure(response.header(name).is_none(), format!("no {name}"), format!("{:?}", response.headers))?;
    }
    Ok(())
}

fn declines_compression(context: &Context<'_>) -> Checked {
    let (mut socket, key) = (Socket::connect(context)?, new_key(context));
    let header = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits";
    socket.send(&request(context.target, &context.target.path, &key, &[header]));
    let response = socket.confirm(&key)?;
    ensure(
        response.header("sec-websocket-extensions").is_none(),
        "no extension",
        format!("{:?}", response.headers),
    )?;
    socket.announce(&Fields::announce(context.hash(0), 1)).map(drop)
}

/// Returns the response to a request with these headers, which must not be upgraded.
fn refusal(context: &Context<'_>, headers: &[&str]) -> Checked<Option<Response>> {
    let mut socket = Socket::connect(context)?;
    socket.send(&request_of(context.target, &context.target.path, headers));
    let response = socket.response()?;
    let status = response.as_ref().map(|response| response.status);
    ensure(status != Some(101), format!("no upgrade for {headers:?}"), "101")?;
    Ok(response)
}

fn other_version(context: &Context<'_>) -> Checked<Vec<Response>> {
    let key = format!("Sec-WebSocket-Key: {}", new_key(context));
    // Version 8 was a draft that some servers support as well.
    let versions = ["7", "14", "x"].map(|version| format!("Sec-WebSocket-Version: {version}"));
    let refuse =
        |version: &String| refusal(context, &["Upgrade: websocket", "Connection: Upgrade", &key, version]);
    Ok(versions.iter().map(refuse).collect::<Checked<Vec<_>>>()?.into_iter().flatten().collect())
}

fn other_version_gets_426(context: &Context<'_>) -> Checked {
    let responses = other_version(context)?;
    ensure(responses.len() == 3, "a response to each request", format!("{} responses", responses.len()))?;
    for response in responses {
        ensure(
            response.status == 426 && response.has_token("sec-websocket-version", "13"),
            "426 with Sec-WebSocket-Version: 13",
            format!("{}, {:?}", response.describe(), response.headers),
        )?;
    }
    Ok(())
}

fn without_its_pieces(context: &Context<'_>) -> Checked {
    let key = format!("Sec-WebSocket-Key: {}", new_key(context));
    let all = ["Upgrade: websocket", "Connection: Upgrade", &key, "Sec-WebSocket-Version: 13"];
    for left_out in 0..all.len() {
        let headers: Vec<&str> = (0..all.len()).filter(|&at| at != left_out).map(|at| all[at]).collect();
        refusal(context, &headers)?;
    }
    let others = ["Upgrade: h2c", "Connection: Upgrade", &key, "Sec-WebSocket-Version: 13"];
    refusal(context, &others).map(drop)
}

fn without_a_key(context: &Context<'_>) -> Checked {
    gets_400(context, &["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"])
}

fn with_a_bad_key(context: &Context<'_>) -> Checked {
    for key in ["AAAA", "", "AAAAAAAAAAAAAAAAAAAAAAAA", "!!!!!!!!!!!!!!!!!!!!!!=="] {
        let key = format!("Sec-WebSocket-Key: {key}");
        gets_400(context, &["Upgrade: websocket", "Connection: Upgrade", &key, "Sec-WebSocket-Version: 13"])?;
    }
    Ok(())
}

fn gets_400(context: &Context<'_>, headers: &[&str]) -> Checked {
    let response = refusal(context, headers)?;
    let text = response.as_ref().map_or_else(|| "no response".to_owned(), Response::describe);
    ensure(response.is_some_and(|response| response.status == 400), format!("400 for {headers:?}"), text)
}

fn in_single_bytes(context: &Context<'_>) -> Checked {
    let (mut socket, key) = (Socket::connect(context)?, new_key(context));
    for byte in request(context.target, &context.target.path, &key, &[]) {
        socket.send_untraced(&[byte]);
        thread::sleep(BETWEEN_PIECES);
    }
    socket.confirm(&key).map(drop)
}

fn frames_behind(context: &Context<'_>) -> Checked {
    let (mut socket, key) = (Socket::connect(context)?, new_key(context));
    let message = Fields::announce(context.hash(0), 1).text();
    let frame = socket.frame(FIN | TEXT, message.as_bytes());
    socket.send(&[request(context.target, &context.target.path, &key, &[]), frame].concat());
    socket.confirm(&key)?;
    socket.expect_kind(Kind::Reply).map(drop)
}

#[cfg(test)]
mod tests {
    use super::accept;

    /// RFC 6455, 1.3.
    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
