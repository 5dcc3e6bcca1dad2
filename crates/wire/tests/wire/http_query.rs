//! Valid and invalid queries of clients.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::http::query::{AnnounceQuery, Parameters, PeersForm, QueryError, ScrapeQuery};

/// An info hash that contains every byte with a meaning in a query, in several encodings.
const INFO_HASH: InfoHash = InfoHash(*b"\x00\xff&=%+ #?/~-_.aZ019\x80");
const INFO_HASH_LOWER: &str = "%00%ff%26%3d%25%2b%20%23%3f%2f~-_.aZ019%80";
const INFO_HASH_UPPER: &str = "%00%FF%26%3D%25%2B%20%23%3F%2F%7E%2D%5F%2EaZ019%80";
/// Encoded by a library for forms.
const INFO_HASH_FORM: &str = "%00%FF%26%3D%25%2B+%23%3F%2F%7E-_.aZ019%80";
/// Encoded by a client that escapes as little as possible.
const INFO_HASH_BARE: &str = "%00%ff%26=%25%2B%20%23?/~-_.%61Z019%80";
const PEER_ID: &str = "-qB4650-!(*x'~.)0aZ9";

fn plain() -> AnnounceQuery {
    AnnounceQuery {
        info_hash: INFO_HASH,
        peer_id: Some(PeerId(*b"-qB4650-!(*x'~.)0aZ9")),
        port: 6881,
        left_bytes: Some(0),
        event: Event::Update,
        numwant: None,
        form: PeersForm::Compact,
        no_peer_id: false,
    }
}

fn decode(query: &str) -> Result<AnnounceQuery, QueryError> {
    AnnounceQuery::decode(query.as_bytes())
}

/// Returns a minimal announce followed by `more`.
fn with(more: &str) -> AnnounceQuery {
    decode(&format!("info_hash={INFO_HASH_LOWER}&peer_id={PEER_ID}&port=6881&left=0{more}")).unwrap()
}

#[test]
fn queries_of_real_clients() {
    let started = AnnounceQuery { event: Event::Started, left_bytes: Some(1 << 30), ..plain() };
    let cases = [
        (
            "libtorrent",
            format!(
                "info_hash={INFO_HASH_LOWER}&peer_id={PEER_ID}&port=6881&uploaded=0&downloaded=0\
                 &left=1073741824&corrupt=0&key=1A2B3C4D&event=started&numwant=200&compact=1&no_peer_id=1\
                 &supportcrypto=1&redundant=0&ipv6=2001%3adb8%3a%3a1"
            ),
            AnnounceQuery { numwant: Some(200), no_peer_id: true, ..started },
        ),
        (
            "Transmission",
            format!(
                "info_hash={INFO_HASH_UPPER}&peer_id={PEER_ID}&port=6881&uploaded=0&downloaded=0\
                 &left=1073741824&numwant=80&key=5c3fe2a9&compact=1&supportcrypto=1&requirecrypto=1\
                 &ipv4=192.0.2.1&event=started"
            ),
            AnnounceQuery { numwant: Some(80), ..started },
        ),
        (
            "rTorrent",
            format!(
                "info_hash={INFO_HASH_UPPER}&peer_id={PEER_ID}&key=3b5e91aa&compact=1&port=6881\
                 &uploaded=0&downloaded=0&left=0&trackerid=a%26b"
            ),
            plain(),
        ),
        (
            "a client of old that wants dictionaries",
            format!(
                "info_hash={INFO_HASH_BARE}&peer_id={PEER_ID}&ip=10.0.0.1&port=6881&uploaded=0\
                 &downloaded=0&left=0&event=completed&compact=0&no_peer_id=1"
            ),
            AnnounceQuery {
                event: Event::Completed,
                form: PeersForm::Dictionaries,
                no_peer_id: true,
                ..plain()
            },
        ),
        (
            "a client that writes queries as forms are written",
            format!("compact=1&info_hash={INFO_HASH_FORM}&left=0&peer_id={PEER_ID}&port=6881"),
            plain(),
        ),
        (
            "Azureus, which accepts encrypted connections only",
            format!(
                "info_hash={INFO_HASH_UPPER}&peer_id={PEER_ID}&requirecrypto=1&port=0&cryptoport=6881&azudp=6881\
                 &uploaded=0&downloaded=0&left=0&corrupt=0&numwant=100&no_peer_id=1&compact=1&azver=3"
            ),
            AnnounceQuery { numwant: Some(100), no_peer_id: true, ..plain() },
        ),
        (
            "Azureus, which accepts no connections",
            format!(
                "info_hash={INFO_HASH_UPPER}&peer_id={PEER_ID}&supportcrypto=1&port=0&azudp=0&hide=1&uploaded=0\
                 &downloaded=0&left=0&compact=1"
            ),
            AnnounceQuery { port: 0, ..plain() },
        ),
        (
            "a partial seed (BEP 21)",
            format!("left=0&port=6881&peer_id={PEER_ID}&info_hash={INFO_HASH_LOWER}&event=paused"),
            plain(),
        ),
        (
            "a leaving client without numwant",
            format!(
                "info_hash={INFO_HASH_LOWER}&peer_id={PEER_ID}&port=6881&uploaded=9&downloaded=9&left=0\
                 &event=stopped&numwant=0"
            ),
            AnnounceQuery { event: Event::Stopped, numwant: Some(0), ..plain() },
        ),
        (
            "empty parameters and such without =",
            format!(
                "&&info_hash={INFO_HASH_LOWER}&=&=x&x&supportcrypto&peer_id={PEER_ID}&port=6881&event=\
                 &left=0&numwant=&"
            ),
            plain(),
        ),
        (
            "a URL with parameters of its own",
            format!(
                "port=1&numwant=3&info_hash={PEER_ID}&info_hash={INFO_HASH_LOWER}&peer_id={PEER_ID}&port=6881&left=0&numwant=4"
            ),
            AnnounceQuery { numwant: Some(4), ..plain() },
        ),
    ];
    for (client, query, expected) in cases {
        assert_eq!(decode(&query), Ok(expected), "{client}");
    }
}

#[test]
fn left() {
    let cases = [
        ("0", Some(0)),
        ("16384", Some(16_384)),
        ("9223372036854775806", Some(9_223_372_036_854_775_806)),
        ("9223372036854775807", None),
        ("18446744073709551615", None),
        ("99999999999999999999999999", None),
        ("-1", None),
        ("", None),
        ("many", None),
    ];
    for (left, expected) in cases {
        assert_eq!(with(&format!("&left={left}")).left_bytes, expected, "{left}");
    }
    assert_eq!(decode(&format!("info_hash={INFO_HASH_LOWER}&port=1")).unwrap().left_bytes, None);
}

#[test]
fn numwant() {
    let cases = [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("50", Some(50)),
        ("99999999999999999999999999", Some(i64::MAX)),
        ("", None),
        ("all", None),
    ];
    for (numwant, expected) in cases {
        assert_eq!(with(&format!("&numwant={numwant}")).numwant, expected, "{numwant}");
    }
}

#[test]
fn events_and_forms() {
    for (event, expected) in [
        ("", Event::Update),
        ("empty", Event::Update),
        ("paused", Event::Update),
        ("started", Event::Started),
        ("completed", Event::Completed),
        ("stopped", Event::Stopped),
    ] {
        assert_eq!(with(&format!("&event={event}")).event, expected, "{event}");
    }
    for (compact, form) in [
        ("", PeersForm::Compact),
        ("&compact=1", PeersForm::Compact),
        ("&compact", PeersForm::Compact),
        ("&compact=yes", PeersForm::Compact),
        ("&compact=0", PeersForm::Dictionaries),
    ] {
        assert_eq!(with(compact).form, form, "{compact}");
    }
}

#[test]
fn errors_are_readable_for_users() {
    let hash = INFO_HASH_LOWER;
    let cases = [
        (String::new(), "info_hash is missing"),
        ("port=1".into(), "info_hash is missing"),
        ("INFO_HASH=12345678901234567890&port=1".into(), "info_hash is missing"),
        ("info_hash=&port=1".into(), "info_hash is not 20 bytes long"),
        ("info_hash=1234567890123456789&port=1".into(), "info_hash is not 20 bytes long"),
        (format!("info_hash={hash}x&port=1"), "info_hash is not 20 bytes long"),
        (format!("info_hash={}&port=1", "0a".repeat(20)), "info_hash is not 20 bytes long"),
        ("info_hash=1234567890123456789%g0&port=1".into(), "info_hash has a broken percent escape"),
        ("info_hash=1234567890123456789%0&port=1".into(), "info_hash has a broken percent escape"),
        (format!("info_hash={hash}&port=1&peer_id=short"), "peer_id is not 20 bytes long"),
        (format!("info_hash={hash}&port=1&peer_id=%"), "peer_id has a broken percent escape"),
        (format!("info_hash={hash}"), "port is missing"),
        (format!("info_hash={hash}&port="), "port is not a number from 0 to 65535"),
        (format!("info_hash={hash}&port=65536"), "port is not a number from 0 to 65535"),
        (format!("info_hash={hash}&port=-1"), "port is not a number from 0 to 65535"),
        (format!("info_hash={hash}&port=http"), "port is not a number from 0 to 65535"),
        (format!("info_hash={hash}&event=stopped&port=x"), "port is not a number from 0 to 65535"),
        (format!("info_hash={hash}&event=started"), "port is missing"),
        (format!("info_hash={hash}&cryptoport=6881"), "port is missing"),
        (format!("info_hash={hash}&port=0&cryptoport=65536"), "cryptoport is not a number from 0 to 65535"),
        (format!("info_hash={hash}&port=0&cryptoport="), "cryptoport is not a number from 0 to 65535"),
    ];
    for (query, text) in cases {
        assert_eq!(decode(&query).unwrap_err().to_string(), text, "{query}");
    }
}

#[test]
fn a_peer_id_may_be_absent_or_empty() {
    for peer_id in ["", "&peer_id=", "&peer_id"] {
        let query = decode(&format!("info_hash={INFO_HASH_LOWER}&port=0{peer_id}"));
        assert_eq!(query.unwrap().peer_id, None, "{peer_id}");
    }
}

#[test]
fn a_peer_accepts_connections_where_it_says() {
    let cases = [
        ("port=6881", 6881),
        ("port=0", 0),
        ("port=6881&hide=0", 6881),
        ("port=6881&hide=1", 0),
        ("port=0&hide=1&cryptoport=6882", 0),
        ("hide=1", 0),
        ("port=0&cryptoport=6882", 6882),
        ("cryptoport=6882&port=0", 6882),
        ("port=0&cryptoport=0", 0),
        ("port=6881&cryptoport=6882", 6881),
        ("port=6881&cryptoport=junk", 6881),
        ("event=stopped", 0),
        ("event=stopped&port=6881", 6881),
        ("event=stopped&port=0&cryptoport=6882", 6882),
    ];
    for (parameters, port) in cases {
        let query = decode(&format!("info_hash={INFO_HASH_LOWER}&{parameters}"));
        assert_eq!(query.unwrap().port, port, "{parameters}");
    }
}

#[test]
fn bytes_may_come_unescaped() {
    let id = *b"\x80\xff\xc3\x28 bytes, as it is";
    let query = [b"port=1&info_hash=".as_slice(), &id].concat();
    assert_eq!(AnnounceQuery::decode(&query).unwrap().info_hash, InfoHash(id));
}

#[test]
fn a_scrape_asks_for_each_info_hash() {
    let query = format!("info_hash={INFO_HASH_LOWER}&x=y&info_hash={PEER_ID}&info_hash=short&info_hash=%");
    let hashes: Vec<_> = ScrapeQuery::new(query.as_bytes()).collect();
    assert_eq!(
        hashes,
        [
            Ok(INFO_HASH),
            Ok(InfoHash(PEER_ID.as_bytes().try_into().unwrap())),
            Err(QueryError::NotTwentyBytes { parameter: "info_hash" }),
            Err(QueryError::BrokenEscape { parameter: "info_hash" }),
        ]
    );
    assert_eq!(ScrapeQuery::new(b"").count(), 0);
    assert_eq!(ScrapeQuery::new(b"info_hashes=x&&").count(), 0);
}

#[test]
fn parameters_come_as_they_are() {
    let parameters: Vec<_> = Parameters::new(b"&a=b=c&d&&=e&%66=%67&").collect();
    let expected: [(&[u8], &[u8]); 4] = [(b"a", b"b=c"), (b"d", b""), (b"", b"e"), (b"%66", b"%67")];
    assert_eq!(parameters, expected);
}

/// Encodes each byte plainly or as one of its escapes, as `style` selects; plainly only where that is possible.
fn encode(bytes: &[u8], styles: &[u8]) -> String {
    bytes
        .iter()
        .zip(styles)
        .map(|(&byte, style)| match style % 3 {
            0 if byte.is_ascii_graphic() && !matches!(byte, b'&' | b'%' | b'+') => {
                char::from(byte).to_string()
            }
            0 if byte == b' ' => "+".to_owned(),
            1 => format!("%{byte:02X}"),
            _ => format!("%{byte:02x}"),
        })
        .collect()
}

proptest! {
    #[test]
    fn ids_are_read_however_they_are_escaped(
        info_hash in any::<[u8; 20]>(),
        peer_id in any::<[u8; 20]>(),
        styles in any::<[u8; 20]>(),
        port in any::<u16>(),
    ) {
        let (hash, id) = (encode(&info_hash, &styles), encode(&peer_id, &styles));
        let query = decode(&format!("port={port}&peer_id={id}&info_hash={hash}")).unwrap();
        prop_assert_eq!(query.info_hash, InfoHash(info_hash));
        prop_assert_eq!(query.peer_id, Some(PeerId(peer_id)));
        prop_assert_eq!(query.port, port);
    }

    #[test]
    fn any_bytes_are_a_query_or_an_error(query in vec(any::<u8>(), 0..300)) {
        let _ = AnnounceQuery::decode(&query);
        prop_assert!(ScrapeQuery::new(&query).count() <= Parameters::new(&query).count());
    }
}

#[test]
fn names_and_numbers_may_be_escaped() {
    let escaped =
        b"info%5Fhash=aaaaaaaaaaaaaaaaaaaa&%70ort=%38%30&left=%30&event=%73topped&num%77ant=%2d1&compact=%30";
    let plain = b"info_hash=aaaaaaaaaaaaaaaaaaaa&port=80&left=0&event=stopped&numwant=-1&compact=0";
    let query = AnnounceQuery::decode(plain);
    assert_eq!(query.map(|query| (query.port, query.left_bytes)), Ok((80, Some(0))));
    assert_eq!(AnnounceQuery::decode(escaped), query);
    let hashes: Vec<_> = ScrapeQuery::new(b"info%5fhash=aaaaaaaaaaaaaaaaaaaa&info%5hash=x").collect();
    assert_eq!(hashes.len(), 1);
}
