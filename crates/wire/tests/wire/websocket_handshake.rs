//! Handshakes of browsers, clients and servers, valid and invalid.

use proptest::prelude::*;
use shoal_wire::http::Version;
use shoal_wire::http::date::Date;
use shoal_wire::http::head::{HEAD_BYTES_MAX, HEADERS_MAX, HeaderStorage, RequestHead};
use shoal_wire::http::response::{Framing, PLAIN_TEXT, ReceivedHead, ResponseHead, Status};
use shoal_wire::websocket::handshake::{
    Asked, UPGRADE_REQUIRED_FIELDS, Unaccepted, accept, ask, confirm, key, request, respond,
};

/// RFC 6455, 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

fn asked(head: &str) -> Asked {
    let mut storage = HeaderStorage::new();
    request(&RequestHead::decode(head.as_bytes(), &mut storage).unwrap().unwrap())
}

/// Returns the upgrade that a request with these fields asks for.
fn asked_by(fields: &str) -> Asked {
    asked(&format!("GET /announce HTTP/1.1\r\nHost: t.example\r\n{fields}\r\n"))
}

/// Returns the fields of a valid request, with one of them replaced.
fn fields_with(name: &str, replacement: &str) -> String {
    let fields = [
        "Upgrade: websocket\r\n",
        "Connection: Upgrade\r\n",
        "Sec-WebSocket-Version: 13\r\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    ];
    fields.map(|field| if field.starts_with(name) { replacement } else { field }).concat()
}

fn response_with(name: &str, replacement: &str) -> String {
    let fields = [
        "HTTP/1.1 101 Switching Protocols\r\n",
        "Upgrade: websocket\r\n",
        "Connection: Upgrade\r\n",
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
        "\r\n",
    ];
    fields.map(|field| if !name.is_empty() && field.starts_with(name) { replacement } else { field }).concat()
}

fn good() -> Asked {
    Asked::WebSocket(accept(KEY.as_bytes()).unwrap())
}

#[test]
fn the_example_of_the_standard() {
    assert_eq!(accept(KEY.as_bytes()).unwrap().as_bytes(), ACCEPT);
    assert_eq!(key(*b"the sample nonce"), KEY);
    let mut out = b"before".to_vec();
    respond(&accept(KEY.as_bytes()).unwrap(), &mut out);
    assert_eq!(out, format!("before{}", response_with("", "")).as_bytes());
}

#[test]
fn keys_are_sixteen_bytes_of_base64() {
    for key in ["AAAAAAAAAAAAAAAAAAAAAA==", "+/+/+/+/+/+/+/+/+/+/+w==", "zzzzzzzzzzzzzzzzzzzzzz=="] {
        assert!(accept(key.as_bytes()).is_some(), "{key}");
    }
    let bad = [
        "",
        "==",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZQA=",
        "dGhlIHNhbXBsZSBub25jZQAA",
        "dGhlIHNhbXBsZSBub25jZQ===",
        "dGhlIHNhbXBsZSBub25j-_==",
        "dGhlIHNhbXBsZSBub25jZ ==",
        "dGhlIHNhbXBsZSBub25jZQ==dGhlIHNhbXBsZSBub25jZQ==",
        "\u{e9}GhlIHNhbXBsZSBub25jZ==",
    ];
    for key in bad {
        assert_eq!(accept(key.as_bytes()), None, "{key}");
    }
}

#[test]
fn requests_that_open_a_websocket() {
    let chromium = "Connection: Upgrade\r\nPragma: no-cache\r\nCache-Control: no-cache\r\nUser-Agent: Mozilla/5.0\r\n\
        Upgrade: websocket\r\nOrigin: https://webtorrent.example\r\nSec-WebSocket-Version: 13\r\n\
        Accept-Encoding: gzip, deflate, br\r\nAccept-Language: en\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    assert_eq!(asked_by(chromium), good());
    let firefox = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key:   dGhlIHNhbXBsZSBub25jZQ==  \r\n";
    assert_eq!(asked_by(firefox), good());
    assert_eq!(asked_by(&fields_with("Upgrade", "UPGRADE: h2c, WebSocket\r\n")), good());
    assert_eq!(asked_by(&fields_with("Upgrade", "Upgrade: h2c\r\nUpgrade: websocket\r\n")), good());
    assert_eq!(asked_by(&fields_with("Connection", "connection: upgrade\r\n")), good());
    let without_host = format!("GET /?a=b HTTP/1.1\r\n{}\r\n", fields_with("-", ""));
    assert_eq!(asked(&without_host), good());
    let protocols = fields_with("-", "") + "Sec-WebSocket-Protocol: a, b\r\n";
    assert_eq!(asked_by(&protocols), good(), "none of them is agreed on");
}

#[test]
fn requests_that_ask_for_nothing() {
    assert_eq!(asked_by(""), Asked::No);
    assert_eq!(asked_by(&fields_with("Upgrade", "")), Asked::No);
    assert_eq!(asked_by(&fields_with("Upgrade", "Upgrade: h2c\r\n")), Asked::No);
    assert_eq!(asked_by(&fields_with("Upgrade", "Upgrade: websocket2\r\n")), Asked::No);
    // RFC 9110, 7.8: a proxy that forwards `Upgrade` without `Connection` did not intend it for the tracker, nor does
    // HTTP/1.0 support it.
    assert_eq!(asked_by(&fields_with("Connection", "")), Asked::No);
    assert_eq!(asked_by(&fields_with("Connection", "Connection: keep-alive\r\n")), Asked::No);
    assert_eq!(asked(&format!("GET / HTTP/1.0\r\n{}\r\n", fields_with("-", ""))), Asked::No);
}

#[test]
fn requests_for_other_versions() {
    for version in
        ["", "Sec-WebSocket-Version: 8\r\n", "Sec-WebSocket-Version: 013\r\n", "Sec-WebSocket-Version:\r\n"]
    {
        assert_eq!(asked_by(&fields_with("Sec-WebSocket-Version", version)), Asked::Version, "{version}");
    }
    let two = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Version: 8\r\n";
    assert_eq!(asked_by(&fields_with("Sec-WebSocket-Version", two)), Asked::Version);
}

#[test]
fn requests_that_are_malformed() {
    let keys = ["", "Sec-WebSocket-Key: x\r\n", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n"];
    for key in keys {
        assert!(matches!(asked_by(&fields_with("Sec-WebSocket-Key", key)), Asked::Malformed(_)), "{key}");
    }
    let twice = fields_with("-", "") + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    assert!(matches!(asked_by(&twice), Asked::Malformed(_)));
    for method in ["POST", "HEAD"] {
        let head = format!("{method} / HTTP/1.1\r\n{}\r\n", fields_with("-", ""));
        assert!(matches!(asked(&head), Asked::Malformed(_)), "{method}");
    }
    for body in ["Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n"] {
        assert!(matches!(asked_by(&(fields_with("-", "") + body)), Asked::Malformed(_)), "{body}");
    }
    assert_eq!(asked_by(&(fields_with("-", "") + "Content-Length: 0\r\n")), good());
}

#[test]
fn a_client_asks_as_a_server_wants_it() {
    for origin in [None, Some("https://webtorrent.example")] {
        let mut out = Vec::new();
        ask("/announce", "t.example:8000", KEY, origin, &mut out);
        let mut storage = HeaderStorage::new();
        let head = RequestHead::decode(&out, &mut storage).unwrap().unwrap();
        assert_eq!(head.bytes, out.len());
        assert_eq!((head.path, head.host()), (&b"/announce"[..], Some(&b"t.example:8000"[..])));
        assert_eq!(head.header("origin").next(), origin.map(str::as_bytes));
        assert_eq!(request(&head), good());
    }
}

#[test]
fn a_client_confirms_the_response_of_a_server() {
    let response = response_with("", "");
    let head_bytes = response.len();
    let followed = response + "\u{1}frames";
    assert_eq!(confirm(followed.as_bytes(), KEY), Ok(Some(head_bytes)));
    for bytes in 0..head_bytes {
        assert_eq!(confirm(&followed.as_bytes()[..bytes], KEY), Ok(None), "{bytes}");
    }
    let other = response_with("Connection", "connection: keep-alive, UPGRADE\r\nServer: other\r\n");
    assert_eq!(confirm(other.as_bytes(), KEY), Ok(Some(other.len())));
    let other = response_with("Upgrade", "upgrade: WebSocket\r\n");
    assert_eq!(confirm(other.as_bytes(), KEY), Ok(Some(other.len())));
}

#[test]
fn a_client_confirms_nothing_else() {
    let cases = [
        ("HTTP/1.1", "HTTP/1.1 400 Bad Request\r\n", Unaccepted::Status(400)),
        ("HTTP/1.1", "HTTP/1.1 200 OK\r\n", Unaccepted::Status(200)),
        ("HTTP/1.1", "SSH-2.0-x\r\n", Unaccepted::Malformed),
        ("Upgrade", "", Unaccepted::Protocol),
        ("Upgrade", "Upgrade: h2c\r\n", Unaccepted::Protocol),
        ("Connection", "", Unaccepted::Protocol),
        ("Connection", "Connection: close\r\n", Unaccepted::Protocol),
        ("Sec-WebSocket-Accept", "", Unaccepted::Key),
        ("Sec-WebSocket-Accept", "Sec-WebSocket-Accept: dGhlIHNhbXBsZSBub25jZQ==\r\n", Unaccepted::Key),
        (
            "Connection",
            "Connection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate\r\n",
            Unaccepted::Extension,
        ),
        ("Connection", "Connection: Upgrade\r\nSec-WebSocket-Protocol: a\r\n", Unaccepted::Extension),
    ];
    for (name, replacement, expected) in cases {
        assert_eq!(confirm(response_with(name, replacement).as_bytes(), KEY), Err(expected), "{replacement}");
    }
    let twice = "Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    assert_eq!(confirm(response_with("Connection", twice).as_bytes(), KEY), Err(Unaccepted::Key));
    let another = key([0; 16]);
    assert_eq!(confirm(response_with("", "").as_bytes(), &another), Err(Unaccepted::Key));
    assert_eq!(confirm(response_with("", "").as_bytes(), "no key"), Err(Unaccepted::Key));
    let endless = format!("HTTP/1.1 101 X\r\nA: {}", "a".repeat(HEAD_BYTES_MAX));
    assert_eq!(confirm(endless.as_bytes(), KEY), Err(Unaccepted::Malformed));
    let many = format!("HTTP/1.1 101 X\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
    assert_eq!(confirm(many.as_bytes(), KEY), Err(Unaccepted::Malformed));
}

#[test]
fn a_request_for_another_version_gets_the_supported_one() {
    let mut out = Vec::new();
    let head = ResponseHead {
        status: Status::UpgradeRequired,
        version: Version::Http11,
        keep_alive: true,
        content_type: PLAIN_TEXT,
        framing: Framing::Length(0),
        date: &Date::EPOCH,
        fields: &UPGRADE_REQUIRED_FIELDS,
    };
    head.encode(&mut out);
    let text = str::from_utf8(&out).unwrap();
    assert!(text.starts_with("HTTP/1.1 426 Upgrade Required\r\n"));
    assert!(text.contains("\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"));
    let received = ReceivedHead::decode(&out).unwrap().unwrap();
    assert_eq!((received.status, received.keep_alive), (426, true));
}

proptest! {
    #[test]
    fn every_nonce_is_agreed_on(nonce in any::<[u8; 16]>(), other in any::<[u8; 16]>()) {
        let asking = key(nonce);
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        ask("/", "t.example", &asking, None, &mut asked);
        let mut storage = HeaderStorage::new();
        let head = RequestHead::decode(&asked, &mut storage).unwrap().unwrap();
        let Asked::WebSocket(accept) = request(&head) else { panic!("a WebSocket was asked for") };
        respond(&accept, &mut answered);
        prop_assert_eq!(confirm(&answered, &asking), Ok(Some(answered.len())));
        if other != nonce {
            prop_assert_eq!(confirm(&answered, &key(other)), Err(Unaccepted::Key));
        }
    }
}
