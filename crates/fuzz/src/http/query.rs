//! The queries of announces and scrapes, compared with a naive decoder.

use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::http::Version;
use shoal_wire::http::head::{HEAD_BYTES_MAX, HeaderStorage, RequestHead};
use shoal_wire::http::query::{AnnounceQuery, Parameters, PeersForm, QueryError, ScrapeQuery};
use shoal_wire::http::request::{AnnounceRequest, Target};

/// Decodes the input as both kinds of query.
pub fn http_query(query: &[u8]) {
    // A query is part of a head, which is never longer than this.
    if query.len() > HEAD_BYTES_MAX {
        return;
    }
    let parameters: Vec<_> = Parameters::new(query).collect();
    let expected: Vec<_> = values(&parameters, "info_hash").map(|value| twenty("info_hash", value)).collect();
    let scraped: Vec<_> = ScrapeQuery::new(query).map(|hash| hash.map(|InfoHash(hash)| hash)).collect();
    assert_eq!(scraped, expected);
    match AnnounceQuery::decode(query) {
        Ok(announce) => check_announce(&announce, &parameters),
        Err(QueryError::Missing { parameter }) => {
            assert_eq!(values(&parameters, parameter).count(), 0);
            let leaves = values(&parameters, "event").last() == Some(b"stopped");
            assert!(parameter != "port" || !leaves);
        }
        Err(error @ (QueryError::NotTwentyBytes { parameter } | QueryError::BrokenEscape { parameter })) => {
            assert!(values(&parameters, parameter).any(|value| twenty(parameter, value) == Err(error)));
        }
        Err(QueryError::NotAPort { parameter }) => {
            let is_port = |value| String::from_utf8_lossy(value).parse::<u16>().is_ok();
            assert!(values(&parameters, parameter).any(|value| !is_port(value) || value.starts_with(b"+")));
        }
    }
}

fn check_announce(announce: &AnnounceQuery, parameters: &[(&[u8], &[u8])]) {
    let last = |key| values(parameters, key).last();
    let text = |key| last(key).map(String::from_utf8_lossy).unwrap_or_default();
    assert_eq!(last("info_hash").map(|value| twenty("info_hash", value)), Some(Ok(announce.info_hash.0)));
    let peer_id = last("peer_id")
        .filter(|value| !value.is_empty())
        .map(|value| twenty("peer_id", value).expect("a whole peer id"));
    assert_eq!(announce.peer_id, peer_id.map(PeerId));
    assert_eq!(announce.port, port(text));
    if let Some(left_bytes) = announce.left_bytes {
        assert_eq!(text("left").trim_start_matches('-').parse(), Ok(left_bytes));
    }
    if let Some(numwant) = announce.numwant {
        assert_eq!(text("numwant").starts_with('-') && numwant != 0, numwant < 0);
    }
    assert_eq!(announce.form == PeersForm::Dictionaries, text("compact") == "0");
    assert_eq!(announce.event == Event::Stopped, text("event") == "stopped");
    assert_eq!(announce.no_peer_id, text("no_peer_id") == "1");
    check_round_trip(announce);
}

/// Returns the port on which the peer accepts connections. The last value of each parameter counts.
fn port<'t>(text: impl Fn(&'static str) -> std::borrow::Cow<'t, str>) -> u16 {
    let number = |key| text(key).parse().ok();
    match number("port") {
        _ if text("hide") == "1" => 0,
        Some(0) => number("cryptoport").unwrap_or(0),
        port => port.unwrap_or(0),
    }
}

/// Checks that an encoded announce decodes to the same values.
fn check_round_trip(announce: &AnnounceQuery) {
    let request = AnnounceRequest {
        info_hash: announce.info_hash,
        peer_id: announce.peer_id.unwrap_or(PeerId([0; 20])),
        port: announce.port,
        left_bytes: announce.left_bytes.unwrap_or(u64::MAX),
        event: announce.event,
        numwant: announce.numwant.and_then(|numwant| u32::try_from(numwant).ok()),
        form: announce.form,
    };
    let target =
        Target { path: "/announce", host: "a", version: Version::Http11, keep_alive: true, fields: &[] };
    let mut bytes = Vec::new();
    request.encode(&target, &mut bytes);
    let mut storage = HeaderStorage::new();
    let head = RequestHead::decode(&bytes, &mut storage).ok().flatten().expect("a whole head");
    let expected = AnnounceQuery {
        peer_id: Some(request.peer_id),
        numwant: request.numwant.map(i64::from),
        no_peer_id: false,
        ..*announce
    };
    assert_eq!(AnnounceQuery::decode(head.query), Ok(expected));
}

fn values<'a>(parameters: &'a [(&[u8], &'a [u8])], key: &'a str) -> impl Iterator<Item = &'a [u8]> {
    parameters.iter().filter(move |(other, _)| *other == key.as_bytes()).map(|(_, value)| *value)
}

/// Decodes 20 bytes with the standard library's number parser. Stops at the twentieth byte.
fn twenty(parameter: &'static str, value: &[u8]) -> Result<[u8; 20], QueryError> {
    let (mut bytes, mut rest) = (Vec::new(), value.to_vec());
    while bytes.len() < 20 && !rest.is_empty() {
        let plain = rest.remove(0);
        if plain != b'%' {
            bytes.push(if plain == b'+' { b' ' } else { plain });
            continue;
        }
        let escape: Vec<u8> = rest.drain(..rest.len().min(2)).collect();
        let digits =
            String::from_utf8(escape).ok().filter(|digits| digits.len() == 2 && !digits.contains('+'));
        let byte = digits.and_then(|digits| u8::from_str_radix(&digits, 16).ok());
        bytes.push(byte.ok_or(QueryError::BrokenEscape { parameter })?);
    }
    let whole = bytes.try_into().ok().filter(|_| rest.is_empty());
    whole.ok_or(QueryError::NotTwentyBytes { parameter })
}
