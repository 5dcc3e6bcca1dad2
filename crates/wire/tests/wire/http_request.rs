//! Requests, encoded and patched as a client does and decoded as the tracker does.

use proptest::option;
use proptest::prelude::*;
use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::http::Version;
use shoal_wire::http::head::{Body, HeaderStorage, Method, RequestHead};
use shoal_wire::http::query::{AnnounceQuery, PeersForm, ScrapeQuery};
use shoal_wire::http::request::{AnnounceRequest, Target, encode_scrape};

const TARGET: Target<'_> =
    Target { path: "/announce", host: "[::1]:6969", version: Version::Http11, keep_alive: true, fields: &[] };

const REQUEST: AnnounceRequest = AnnounceRequest {
    info_hash: InfoHash(*b"\x00\xff&=%+ #?/~-_.aZ019\x80"),
    peer_id: PeerId(*b"-SH0001-abcdefghijkl"),
    port: 81,
    left_bytes: 7,
    event: Event::Started,
    numwant: Some(30),
    form: PeersForm::Compact,
};

fn query_of(request: &[u8]) -> AnnounceQuery {
    let mut storage = HeaderStorage::new();
    let head = RequestHead::decode(request, &mut storage).unwrap().unwrap();
    assert_eq!((head.bytes, head.method, head.body), (request.len(), Method::Get, Body::None));
    assert_eq!((head.path, head.host()), (&b"/announce"[..], Some(&b"[::1]:6969"[..])));
    AnnounceQuery::decode(head.query).unwrap()
}

fn expected(request: &AnnounceRequest) -> AnnounceQuery {
    AnnounceQuery {
        info_hash: request.info_hash,
        peer_id: Some(request.peer_id),
        port: request.port,
        left_bytes: Some(request.left_bytes),
        event: request.event,
        numwant: request.numwant.map(i64::from),
        form: request.form,
        no_peer_id: false,
    }
}

#[test]
fn an_announce() {
    let mut out = Vec::new();
    REQUEST.encode(&TARGET, &mut out);
    let text = "GET /announce?info_hash=%00%ff%26%3d%25%2b%20%23%3f%2f%7e%2d%5f%2e%61%5a%30%31%39%80\
        &peer_id=%2d%53%48%30%30%30%31%2d%61%62%63%64%65%66%67%68%69%6a%6b%6c&port=00081&uploaded=0&downloaded=0\
        &left=7&compact=1&numwant=30&event=started HTTP/1.1\r\nHost: [::1]:6969\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), text);
}

#[test]
fn the_tracker_reads_the_requested_persistence() {
    for version in [Version::Http10, Version::Http11] {
        for keep_alive in [false, true] {
            let mut out = Vec::new();
            let fields = [("User-Agent", "shoal-lab"), ("X-Forwarded-For", "192.0.2.1")];
            REQUEST.encode(&Target { version, keep_alive, fields: &fields, ..TARGET }, &mut out);
            let mut storage = HeaderStorage::new();
            let head = RequestHead::decode(&out, &mut storage).unwrap().unwrap();
            assert_eq!((head.version, head.keep_alive), (version, keep_alive));
            assert_eq!(head.header("x-forwarded-for").next(), Some(&b"192.0.2.1"[..]));
        }
    }
}

#[test]
fn a_path_may_have_parameters_of_its_own() {
    let mut out = Vec::new();
    REQUEST.encode(&Target { path: "/announce?passkey=a", ..TARGET }, &mut out);
    assert!(out.starts_with(b"GET /announce?passkey=a&info_hash=%"));
    assert_eq!(query_of(&out), expected(&REQUEST));
}

#[test]
fn a_scrape_is_patched_in_any_place() {
    let hash = |byte| InfoHash([byte; 20]);
    let mut out = b"before".to_vec();
    let slots = encode_scrape(&Target { path: "/scrape", ..TARGET }, &[hash(1), hash(2), hash(3)], &mut out);
    let request = &mut out[6..];
    slots.set_info_hash(request, 0, hash(b'&'));
    slots.set_info_hash(request, 2, hash(0xfe));
    let mut storage = HeaderStorage::new();
    let head = RequestHead::decode(request, &mut storage).unwrap().unwrap();
    let hashes: Result<Vec<_>, _> = ScrapeQuery::new(head.query).collect();
    assert_eq!(hashes, Ok(vec![hash(b'&'), hash(2), hash(0xfe)]));
}

fn request() -> impl Strategy<Value = AnnounceRequest> {
    let event =
        prop_oneof![Just(Event::Update), Just(Event::Started), Just(Event::Completed), Just(Event::Stopped)];
    let ids = (any::<[u8; 20]>(), any::<[u8; 20]>());
    // The largest number means "unknown" (see `query`).
    let left_bytes = 0..u64::MAX / 2;
    (ids, any::<u16>(), left_bytes, event, option::of(any::<u32>()), any::<bool>()).prop_map(
        |((info_hash, peer_id), port, left_bytes, event, numwant, compact)| AnnounceRequest {
            info_hash: InfoHash(info_hash),
            peer_id: PeerId(peer_id),
            port,
            left_bytes,
            event,
            numwant,
            form: if compact { PeersForm::Compact } else { PeersForm::Dictionaries },
        },
    )
}

proptest! {
    #[test]
    fn an_announce_is_read_as_it_was_written_and_patched(first in request(), second in request(), before in 0..9_usize) {
        let mut out = vec![b'x'; before];
        let slots = first.encode(&TARGET, &mut out);
        let template = &mut out[before..];
        prop_assert_eq!(query_of(template), expected(&first));
        slots.set_info_hash(template, second.info_hash);
        slots.set_peer_id(template, second.peer_id);
        slots.set_port(template, second.port);
        let AnnounceRequest { info_hash, peer_id, port, .. } = second;
        prop_assert_eq!(query_of(template), expected(&AnnounceRequest { info_hash, peer_id, port, ..first }));
    }
}
