//! Bencoded replies, byte by byte and decoded as a client does.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use shoal_base::{InfoHash, PeerV4, PeerV6};
use shoal_wire::http::bencode::{self, BencodeError, DEPTH_MAX, Value};
use shoal_wire::http::query::PeersForm;
use shoal_wire::http::received::{Received, ReceivedAnnounce, ReceivedError, ReceivedPeers, ReceivedScrape};
use shoal_wire::http::reply::{
    AnnounceReply, RetryIn, ScrapeFile, ScrapeFormat, failure, scrape_begin, scrape_end, scrape_file,
};

const V4: [PeerV4; 2] = [PeerV4(*b"\xc0\x00\x02\x01\x1a\xe1"), PeerV4(*b"\xc0\x00\x02\x02\x00\x50")];
const V6: [PeerV6; 1] = [PeerV6(*b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x1a\xe1")];

fn encoded(reply: &AnnounceReply<'_>) -> Vec<u8> {
    // Encoding appends to the existing bytes.
    let mut out = b"head".to_vec();
    reply.encode(&mut out);
    out.split_off(4)
}

fn received(body: &[u8]) -> ReceivedAnnounce<'_> {
    match ReceivedAnnounce::decode(body).unwrap() {
        Received::Reply(reply) => reply,
        Received::Failure { .. } => panic!("{}", body.escape_ascii()),
    }
}

#[test]
fn the_least_reply_has_peers() {
    let reply = AnnounceReply {
        complete: 1,
        incomplete: 20,
        downloaded: 300,
        interval_s: 1800,
        ..Default::default()
    };
    let expected = b"d8:completei1e10:downloadedi300e10:incompletei20e8:intervali1800e5:peers0:e";
    assert_eq!(encoded(&reply), expected);
    let dictionaries = AnnounceReply { form: PeersForm::Dictionaries, ..reply };
    let expected = b"d8:completei1e10:downloadedi300e10:incompletei20e8:intervali1800e5:peerslee";
    assert_eq!(encoded(&dictionaries), expected);
}

#[test]
fn a_reply_with_everything() {
    let reply = AnnounceReply {
        complete: 1,
        downloaded: 0,
        incomplete: 2,
        interval_s: 1801,
        min_interval_s: Some(60),
        external_ip: Some(Ipv4Addr::new(203, 0, 113, 65).into()),
        peers_v4: &V4,
        peers_v6: &V6,
        form: PeersForm::Compact,
        warning: Some("slow down"),
        tracker_id: Some("t"),
    };
    let expected =
        b"d8:completei1e10:downloadedi0e11:external ip4:\xcb\x00\x71A10:incompletei2e8:intervali1801e\
        12:min intervali60e5:peers12:\xc0\x00\x02\x01\x1a\xe1\xc0\x00\x02\x02\x00\x50\
        6:peers618:\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x1a\xe1\
        10:tracker id1:t15:warning message9:slow downe";
    assert_eq!(encoded(&reply).escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[test]
fn dictionaries_name_peers_of_both_families_in_one_list() {
    let reply = AnnounceReply {
        form: PeersForm::Dictionaries,
        external_ip: Some(Ipv6Addr::LOCALHOST.into()),
        peers_v4: &V4,
        peers_v6: &V6,
        ..Default::default()
    };
    let body = encoded(&reply);
    let peers =
        b"5:peersld2:ip9:192.0.2.14:porti6881eed2:ip9:192.0.2.24:porti80eed2:ip11:2001:db8::14:porti6881eeee";
    assert!(body.ends_with(peers), "{}", body.escape_ascii());
    let reply = received(&body);
    let expected: Vec<SocketAddr> = vec![
        "192.0.2.1:6881".parse().unwrap(),
        "192.0.2.2:80".parse().unwrap(),
        "[2001:db8::1]:6881".parse().unwrap(),
    ];
    assert_eq!(reply.peers.addresses().collect::<Vec<_>>(), expected);
    assert_eq!((reply.peers.count(), reply.peers_v6.len()), (3, 0));
    assert_eq!(reply.external_ip, Some(IpAddr::V6(Ipv6Addr::LOCALHOST)));
}

#[test]
fn the_longest_address_fits() {
    let peer =
        PeerV6::new(Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff), 65_535);
    let peers_v6 = [peer, PeerV6::new(Ipv4Addr::BROADCAST.to_ipv6_mapped(), 1)];
    let reply = AnnounceReply { form: PeersForm::Dictionaries, peers_v6: &peers_v6, ..Default::default() };
    let body = encoded(&reply);
    let addresses: Vec<SocketAddr> = received(&body).peers.addresses().collect();
    assert_eq!(addresses, peers_v6.map(|peer| SocketAddr::V6(peer.addr())));
}

#[test]
fn failures() {
    let cases = [
        (None, &b"d14:failure reason7:no suche"[..]),
        (Some(RetryIn::Minutes(15)), b"d14:failure reason7:no such8:intervali900e8:retry ini15ee"),
        (Some(RetryIn::Never), b"d14:failure reason7:no such8:retry in5:nevere"),
    ];
    for (retry_in, expected) in cases {
        let mut out = Vec::new();
        failure("no such", retry_in, &mut out);
        assert_eq!(out, expected);
        let Received::Failure { reason, retry_in: read } = ReceivedAnnounce::decode(&out).unwrap() else {
            panic!("a failure");
        };
        assert_eq!((reason, read), (&b"no such"[..], retry_in));
        assert!(matches!(ReceivedScrape::decode(&out), Ok(Received::Failure { .. })));
    }
}

#[test]
fn scrapes() {
    let mut out = Vec::new();
    scrape_begin(&mut out);
    scrape_end(None, &mut out);
    assert_eq!(out, b"d5:filesdee");

    let file = ScrapeFile { complete: 1, downloaded: 22, incomplete: 3 };
    let mut out = Vec::new();
    scrape_begin(&mut out);
    scrape_file(InfoHash(*b"aaaaaaaaaaaaaaaaaaaa"), file, &mut out);
    scrape_file(InfoHash(*b"bbbbbbbbbbbbbbbbbbbb"), ScrapeFile::default(), &mut out);
    scrape_end(Some(900), &mut out);
    let expected = b"d5:filesd20:aaaaaaaaaaaaaaaaaaaad8:completei1e10:downloadedi22e10:incompletei3ee\
        20:bbbbbbbbbbbbbbbbbbbbd8:completei0e10:downloadedi0e10:incompletei0eee\
        5:flagsd20:min_request_intervali900eee";
    assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());
    let Received::Reply(scrape) = ReceivedScrape::decode(&out).unwrap() else { panic!("a reply") };
    assert_eq!(scrape.files().count(), 2);
    assert_eq!(scrape.file(InfoHash(*b"aaaaaaaaaaaaaaaaaaaa")), Some(file));
    assert_eq!(scrape.file(InfoHash([0; 20])), None);
}

#[test]
fn replies_of_other_trackers_are_read() {
    let opentracker = b"d8:completei1e10:downloadedi0e10:incompletei1e8:intervali1732e12:min intervali866e\
        5:peers6:\x7f\x00\x00\x01\x1a\xe1e";
    let reply = received(opentracker);
    assert_eq!((reply.interval_s, reply.min_interval_s), (1732, Some(866)));
    assert!(matches!(reply.peers, ReceivedPeers::Compact([peer]) if peer.addr().port() == 6881));
    let bare = received(b"d8:intervali900e5:peersld2:ip3:::17:peer id2:xx4:porti1eeee");
    assert_eq!(bare.peers.addresses().collect::<Vec<_>>(), ["[::1]:1".parse().unwrap()]);
    assert_eq!((bare.complete, bare.warning), (None, None));
}

#[test]
fn invalid_replies_are_refused_with_a_reason() {
    let cases = [
        (&b"le"[..], "the reply is not a dictionary"),
        (b"de", "the reply has no valid interval"),
        (b"d8:intervali1ee", "the reply has no valid peers"),
        (b"d8:interval1:15:peers0:e", "the reply has no valid interval"),
        (b"d8:intervali-1e5:peers0:e", "the reply has no valid interval"),
        (b"d8:intervali1e5:peers5:12345e", "the reply has no valid peers"),
        (b"d8:intervali1e5:peersli1eee", "the reply has no valid peers"),
        (b"d8:intervali1e5:peersld2:ip1:x4:porti1eeee", "the reply has no valid peers"),
        (b"d8:intervali1e5:peers0:6:peers61:xe", "the reply has no valid peers6"),
        (b"d11:external ip3:abc8:intervali1e5:peers0:e", "the reply has no valid external ip"),
        (b"d8:completei4294967296e8:intervali1e5:peers0:e", "the reply has no valid complete"),
        (b"d14:failure reasoni1ee", "the reply has no valid failure reason"),
    ];
    for (body, text) in cases {
        let error = ReceivedAnnounce::decode(body).unwrap_err();
        assert_eq!(error.to_string(), text, "{}", body.escape_ascii());
    }
    for body in [
        &b"de"[..],
        b"d5:filesi1ee",
        b"d5:filesd1:xd8:completei1e10:incompletei1eeee",
        b"d5:filesd20:aaaaaaaaaaaaaaaaaaaadeee",
    ] {
        assert_eq!(
            ReceivedScrape::decode(body),
            Err(ReceivedError::Key { key: "files" }),
            "{}",
            body.escape_ascii()
        );
    }
}

#[test]
fn every_truncation_of_a_reply_is_an_error() {
    let body = encoded(&AnnounceReply { peers_v4: &V4, ..Default::default() });
    for bytes in 0..body.len() {
        let error = ReceivedError::Bencode(BencodeError::Truncated);
        assert_eq!(ReceivedAnnounce::decode(&body[..bytes]), Err(error), "{bytes}");
    }
}

#[test]
fn bencoded_values() {
    assert_eq!(bencode::decode(b"i-42e"), Ok(Value::Integer(-42)));
    assert_eq!(bencode::decode(b"i0e"), Ok(Value::Integer(0)));
    assert_eq!(bencode::decode(b"i9223372036854775807e"), Ok(Value::Integer(i64::MAX)));
    assert_eq!(bencode::decode(b"i-9223372036854775808e"), Ok(Value::Integer(i64::MIN)));
    assert_eq!(bencode::decode(b"0:"), Ok(Value::Bytes(b"")));
    assert_eq!(bencode::decode(b"4:sp\0m"), Ok(Value::Bytes(b"sp\0m")));
    let list = bencode::decode(b"li1e1:adelee").unwrap().list().unwrap();
    let kinds: Vec<_> =
        list.iter().map(|value| (value.integer(), value.bytes(), value.list().is_some())).collect();
    let expected =
        [(Some(1), None, false), (None, Some(&b"a"[..]), false), (None, None, false), (None, None, true)];
    assert_eq!(kinds, expected);
    let dictionary = bencode::decode(b"d1:ai1e1:bi2e1:bi3ee").unwrap().dictionary().unwrap();
    assert_eq!(dictionary.get(b"b"), Some(Value::Integer(2)));
    assert_eq!(dictionary.get(b"c"), None);
    assert!(!dictionary.is_sorted(), "a key comes twice");
    assert!(bencode::decode(b"d1:ai1e2:aai2e1:bi3ee").unwrap().dictionary().unwrap().is_sorted());
}

#[test]
fn malformed_bencoding_is_refused() {
    let malformed: [(&[u8], usize); 15] = [
        (b"x", 0),
        (b"e", 0),
        (b"-1:a", 0),
        (b"ie", 1),
        (b"i-e", 2),
        (b"i-0e", 2),
        (b"i01e", 2),
        (b"i1.0e", 2),
        (b"i+1e", 1),
        (b"i9223372036854775808e", 1),
        (b"01:a", 1),
        (b"1a", 1),
        (b"99999999999999999999999:a", 19),
        (b"di1ei2ee", 1),
        (b"d1:ae", 4),
    ];
    for (bytes, at) in malformed {
        assert_eq!(bencode::decode(bytes), Err(BencodeError::Malformed { at }), "{}", bytes.escape_ascii());
    }
    for truncated in [
        &b""[..],
        b"i",
        b"i1",
        b"1",
        b"1:",
        b"2:a",
        b"18446744073709551615:a",
        b"l",
        b"li1e",
        b"d",
        b"d1:a",
        b"d1:ai1e",
    ] {
        assert_eq!(bencode::decode(truncated), Err(BencodeError::Truncated), "{}", truncated.escape_ascii());
    }
    assert_eq!(bencode::decode(b"i1ei2e"), Err(BencodeError::Trailing { bytes: 3 }));
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| [vec![b'l'; depth], vec![b'e'; depth]].concat();
    assert!(bencode::decode(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(bencode::decode(&nested(DEPTH_MAX + 1)), Err(BencodeError::TooDeep));
    assert_eq!(bencode::decode(&vec![b'l'; 1 << 20]), Err(BencodeError::TooDeep));
}

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

proptest! {
    #[test]
    fn an_announce_reply_is_read_as_it_was_written(
        counts in any::<[u32; 4]>(),
        min_interval_s in option::of(any::<u32>()),
        external_ip in option::of(ip()),
        peers_v4 in vec(any::<[u8; 6]>().prop_map(PeerV4), 0..40),
        peers_v6 in vec(any::<[u8; 18]>().prop_map(PeerV6), 0..40),
        compact in any::<bool>(),
        warning in option::of(".{0,40}"),
        tracker_id in option::of(".{0,40}"),
    ) {
        let [complete, downloaded, incomplete, interval_s] = counts;
        let form = if compact { PeersForm::Compact } else { PeersForm::Dictionaries };
        let reply = AnnounceReply {
            complete,
            downloaded,
            incomplete,
            interval_s,
            min_interval_s,
            external_ip,
            peers_v4: &peers_v4,
            peers_v6: &peers_v6,
            form,
            warning: warning.as_deref(),
            tracker_id: tracker_id.as_deref(),
        };
        let body = encoded(&reply);
        prop_assert!(bencode::decode(&body).unwrap().dictionary().unwrap().is_sorted());
        let read = received(&body);
        prop_assert_eq!([read.complete, read.downloaded, read.incomplete], [Some(complete), Some(downloaded), Some(incomplete)]);
        prop_assert_eq!((read.interval_s, read.min_interval_s), (interval_s, min_interval_s));
        prop_assert_eq!(read.external_ip, external_ip);
        prop_assert_eq!(read.warning, warning.as_deref().map(str::as_bytes));
        prop_assert_eq!(read.tracker_id, tracker_id.as_deref().map(str::as_bytes));
        let addresses_v6 = read.peers_v6.iter().map(|peer| SocketAddr::V6(peer.addr()));
        let addresses: Vec<SocketAddr> = read.peers.addresses().chain(addresses_v6).collect();
        let expected_v6 = peers_v6.iter().map(|peer| SocketAddr::V6(peer.addr()));
        let expected: Vec<SocketAddr> =
            peers_v4.iter().map(|peer| SocketAddr::V4(peer.addr())).chain(expected_v6).collect();
        prop_assert_eq!(addresses, expected);
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in "[0-3ilde:-]{0,24}") {
        if let Ok(Value::Dictionary(dictionary)) = bencode::decode(bytes.as_bytes()) {
            prop_assert!(dictionary.iter().all(|(key, _)| dictionary.get(key).is_some()));
        }
    }
}

#[test]
fn lists_of_all_torrents_have_the_forms_of_opentracker() {
    let file = ScrapeFile { complete: 258, downloaded: 9, incomplete: 3 };
    let entry = |name: &str| {
        let format = ScrapeFormat::of_opentracker(name.as_bytes()).unwrap();
        let mut out = Vec::new();
        format.begin(&mut out);
        format.push(InfoHash(*b"\x00\xffabcdefghij-._~ /+%"), file, &mut out);
        format.end(&mut out);
        out
    };
    assert_eq!(entry("bin"), *b"\x00\xffabcdefghij-._~ /+%\0\0\x01\x02\0\0\0\x03");
    assert_eq!(entry("txt"), *b"00FF6162636465666768696A2D2E5F7E202F2B25:258:3\n");
    assert_eq!(entry("url"), *b"%00%FFabcdefghij-._~%20%2F%2B%25:258:3\n");
    let dictionary =
        *b"d5:filesd20:\x00\xffabcdefghij-._~ /+%d8:completei258e10:downloadedi9e10:incompletei3eeee";
    assert_eq!(entry("ben"), dictionary);
    assert_eq!(ScrapeFormat::of_opentracker(b"TXT"), None);
}
