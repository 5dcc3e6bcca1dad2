//! The handling of requests, and the bodies of replies.

use std::net::{IpAddr, SocketAddr};

use super::Reply;
use super::head::Request;
use crate::fault::Fault;
use crate::operator::TOO_MANY;
use crate::reply::{choose, counts, counts_for, interval_s, write_peer};
use crate::tracker::{Announce, Announced, State, Swarm};

const SCRAPE_MAX: usize = 60;

pub(crate) fn respond(state: &mut State, peer: IpAddr, request: &Request) -> Reply {
    let fault = state.fault;
    let is_get = matches!(request.method.as_str(), "GET" | "HEAD");
    if (!is_get && fault != Fault::HttpAnyMethod) || (request.method == "HEAD" && fault == Fault::HttpNoHead)
    {
        return Reply {
            headers: "Allow: GET, HEAD\r\n".to_owned(),
            ..Reply::error("405 Method Not Allowed")
        };
    }
    if request.header("transfer-encoding").is_some() {
        return Reply::error("501 Not Implemented");
    }
    let query = request.query.as_deref().unwrap_or_default();
    let body = match request.path.as_str() {
        "/announce" => announce(state, peer, request, query),
        "/scrape" => scrape(state, peer, query),
        _ if fault == Fault::HttpAnyPath => announce(state, peer, request, query),
        _ => return Reply::error("404 Not Found"),
    };
    match body {
        Ok(mut body) => {
            if fault == Fault::HttpTrailingBytes {
                body.push(b'\n');
            }
            if fault == Fault::HttpCutsBody {
                body.pop();
            }
            Reply::ok(body)
        }
        Err(reason) => refusal(fault, reason),
    }
}

fn refusal(fault: Fault, reason: &str) -> Reply {
    let retry_in = match fault {
        Fault::HttpRetryInIsZero => "i0e",
        Fault::HttpRefusalOfManyIsFinal => "5:never",
        _ if reason == TOO_MANY => "i1e",
        _ => "5:never",
    };
    let body = match fault {
        Fault::HttpRefusalIsEmpty => "de".to_owned(),
        _ => format!("d14:failure reason{}:{reason}8:retry in{retry_in}e", reason.len()),
    };
    let mut reply = Reply::ok(body.into_bytes());
    if fault == Fault::HttpRefusalHasOtherStatus {
        reply.status = "400 Bad Request";
    }
    reply.closes = fault == Fault::HttpRefusalCloses;
    reply
}

type Parameter = (Vec<u8>, Vec<u8>);

fn parameters(fault: Fault, query: &str) -> Result<Vec<Parameter>, &'static str> {
    let mut parameters: Vec<Parameter> = Vec::new();
    for text in query.split('&') {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            if fault == Fault::HttpOddParameterIsError && !query.is_empty() {
                return Err("odd parameter");
            }
            continue;
        };
        if fault == Fault::HttpLongValueIsError && value.len() > 500 {
            return Err("long value");
        }
        let keeps_escapes = fault == Fault::HttpEscapedNumbersAreUnknown && name == "left";
        let value = if keeps_escapes { value.as_bytes().to_vec() } else { decode(fault, value)? };
        parameters.push((decode(fault, name)?, value));
    }
    Ok(parameters)
}

fn decode(fault: Fault, text: &str) -> Result<Vec<u8>, &'static str> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = match more {
            [high, low, more @ ..] => {
                rest = more;
                [*high, *low]
            }
            [..] if fault == Fault::HttpCutEscapeIsAByte => {
                rest = &[];
                *b"00"
            }
            [..] => return Err("cut escape"),
        };
        let is_lower = digits.iter().any(u8::is_ascii_lowercase);
        let digits = std::str::from_utf8(&digits).map_err(|_| "bad escape")?;
        let byte = u8::from_str_radix(digits, 16).map_err(|_| "bad escape")?;
        if is_lower && fault == Fault::HttpUpperCaseEscapesOnly {
            return Err("lower case");
        }
        if byte.is_ascii_alphanumeric() && fault == Fault::HttpSkipsUnneededEscapes {
            bytes.extend([b'%', b'0']);
        } else {
            bytes.push(byte);
        }
    }
    Ok(bytes)
}

fn value<'p>(parameters: &'p [Parameter], name: &str) -> Option<&'p [u8]> {
    parameters.iter().find(|(found, _)| found == name.as_bytes()).map(|(_, value)| &value[..])
}

fn number(parameters: &[Parameter], name: &str) -> Option<i128> {
    std::str::from_utf8(value(parameters, name)?).ok()?.parse().ok()
}

fn hash(fault: Fault, value: &[u8]) -> Result<[u8; 20], &'static str> {
    if fault == Fault::HttpAnyHashLength {
        let mut value = value.to_vec();
        value.resize(20, 0);
        return Ok(value.try_into().unwrap());
    }
    value.try_into().map_err(|_| "info_hash does not have 20 bytes")
}

/// Returns the reason of a refusal by a fault of HTTP only.
fn fault_refusal(fault: Fault, parameters: &[Parameter], query: &str) -> Option<&'static str> {
    const KNOWN: [&str; 12] = [
        "info_hash",
        "peer_id",
        "port",
        "uploaded",
        "downloaded",
        "left",
        "compact",
        "key",
        "numwant",
        "ip",
        "event",
        "no_peer_id",
    ];
    let names = || parameters.iter().map(|(name, _)| name.as_slice());
    let is_known = |name: &[u8]| KNOWN.iter().any(|known| known.as_bytes() == name);
    let event = value(parameters, "event");
    let is_wrong = match fault {
        Fault::HttpUnknownParameterIsError => names().any(|name| !is_known(name)),
        Fault::HttpRepeatedParameterIsError => {
            names().enumerate().any(|(at, name)| names().take(at).any(|other| other == name))
        }
        Fault::HttpNeedsHashFirst => {
            query.contains("info_hash=")
                && !query.trim_start_matches("&flag&=&=value&empty=&").starts_with("info_hash=")
        }
        Fault::HttpEmptyEventIsError => event == Some(b""),
        Fault::HttpPausedIsError => event == Some(b"paused"),
        Fault::HttpStoppedIsError => event == Some(b"stopped"),
        _ => false,
    };
    is_wrong.then_some("refused by a fault")
}

fn announce(
    state: &mut State,
    peer: IpAddr,
    request: &Request,
    query: &str,
) -> Result<Vec<u8>, &'static str> {
    let fault = state.fault;
    let parameters = parameters(fault, query)?;
    if let Some(reason) = fault_refusal(fault, &parameters, query) {
        return Err(reason);
    }
    let mut hash = match value(&parameters, "info_hash") {
        Some(value) => hash(fault, value)?,
        None if fault == Fault::HttpMissingHashIsZeros => [0; 20],
        None => return Err("no info_hash"),
    };
    let peer_id = value(&parameters, "peer_id").unwrap_or_default();
    let refusal = state.requests.refusal(fault, peer, hash, peer_id);
    // A client may leave at any time.
    match refusal {
        Some(reason) if value(&parameters, "event") != Some(b"stopped") => return Err(reason),
        Some(_) => {}
        None => _ = state.info_hashes.insert(hash),
    }
    if fault == Fault::HttpOwnSwarms {
        hash[0] ^= 1;
    }
    let port = match number(&parameters, "port").and_then(|port| u16::try_from(port).ok()) {
        Some(port) => port,
        None if fault == Fault::HttpMissingPortIsTaken => 6881,
        None => return Err("no port"),
    };
    let event = match value(&parameters, "event").unwrap_or_default() {
        b"" => 0,
        b"completed" => 1,
        b"started" => 2,
        b"stopped" => 3,
        b"paused" if fault == Fault::UnknownEventIsError => 0,
        _ => 4,
    };
    let clamped = |number: i128| i64::try_from(number.clamp(i64::MIN.into(), i64::MAX.into())).unwrap();
    let left = number(&parameters, "left").map(clamped);
    let left = left.unwrap_or(if fault == Fault::HttpAbsentLeftIsSeeder { 0 } else { i64::MAX });
    let numwant = number(&parameters, "numwant").unwrap_or(-1);
    // An explicit -1 equals the default, except for a fault that concerns explicit negative numbers.
    let numwant = if fault == Fault::NegativeIsNone && numwant < 0 && value(&parameters, "numwant").is_some()
    {
        -2
    } else {
        i32::try_from(numwant.clamp(i32::MIN.into(), i32::MAX.into())).unwrap()
    };
    let mut peer_id = [0; 8];
    let tail = value(&parameters, "peer_id").unwrap_or_default().rchunks(8).next().unwrap_or_default();
    peer_id[..tail.len()].copy_from_slice(tail);
    let address = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let announce = Announce {
        hash,
        peer_id: u64::from_be_bytes(peer_id),
        left,
        event,
        claimed: value(&parameters, "ip").and_then(address),
        numwant,
        port,
    };
    if state.refuses(&announce) {
        return Err("refused");
    }
    let believed = match fault {
        Fault::HttpBelievesHeaders => {
            request.header("x-forwarded-for").and_then(|text| address(text.as_bytes()))
        }
        Fault::HttpBelievesIpv4Parameter => value(&parameters, "ipv4").and_then(address),
        _ => None,
    };
    let source = believed.unwrap_or(peer);
    let (swarm, announced) = state.apply(source, &announce);
    let is_compact = match value(&parameters, "compact") {
        _ if fault == Fault::HttpAlwaysCompact => true,
        Some(b"0") => false,
        Some(_) => fault != Fault::HttpCompact1IsDictionaries,
        None => fault != Fault::HttpDictionariesByDefault,
    };
    let has_ids = value(&parameters, "no_peer_id").is_none() || fault == Fault::HttpAlwaysPeerId;
    Ok(announce_body(state, &swarm, &announced, peer, is_compact, has_ids))
}

fn announce_body(
    state: &mut State,
    swarm: &Swarm,
    to: &Announced,
    client: IpAddr,
    is_compact: bool,
    has_ids: bool,
) -> Vec<u8> {
    let fault = state.fault;
    let (seeders, leechers) = counts_for(fault, swarm, to);
    let chosen = choose(state, swarm, to);
    let mut pairs: Vec<(&str, Vec<u8>)> = Vec::new();
    if fault != Fault::HttpNoCounts {
        pairs.push(("complete", integer(seeders)));
    }
    let external = if fault == Fault::HttpExternalIpIsFixed { IpAddr::from([192, 0, 2, 1]) } else { client };
    pairs.push((
        "external ip",
        string(&match external {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        }),
    ));
    if fault != Fault::HttpNoCounts {
        pairs.push(("incomplete", integer(leechers)));
    }
    let interval_s = interval_s(state);
    if fault != Fault::HttpNoInterval {
        pairs.push(("interval", integer(interval_s)));
        pairs.push(("min interval", integer(interval_s.min(900))));
    }
    if !chosen.is_empty() || fault != Fault::HttpOmitsEmptyPeers {
        let (v4, v6): (Vec<SocketAddr>, Vec<SocketAddr>) = chosen.iter().partition(|peer| peer.is_ipv4());
        if is_compact {
            let mixes = fault == Fault::OneFamily;
            let size = |is_v4: bool| is_v4 != (fault == Fault::PeersOfOtherSize);
            let write = |peers: &[SocketAddr], is_v4: bool| {
                let mut bytes = Vec::new();
                peers.iter().for_each(|&peer| write_peer(&mut bytes, peer, size(is_v4)));
                string(&bytes)
            };
            pairs.push(("peers", write(if mixes { &chosen } else { &v4 }, true)));
            if !v6.is_empty() && !mixes {
                pairs.push(("peers6", write(&v6, false)));
            }
        } else {
            pairs.push(("peers", list(&chosen, has_ids)));
        }
    }
    if fault == Fault::HttpUnsortedKeys {
        pairs.swap(0, 1);
    }
    dictionary(pairs.into_iter().map(|(key, value)| (key.as_bytes().to_vec(), value)).collect())
}

fn list(peers: &[SocketAddr], has_ids: bool) -> Vec<u8> {
    let peer = |peer: &SocketAddr| {
        let mut pairs = vec![(b"ip".to_vec(), string(peer.ip().to_string().as_bytes()))];
        if has_ids {
            pairs.push((b"peer id".to_vec(), string(&[b'x'; 20])));
        }
        pairs.push((b"port".to_vec(), integer(peer.port().into())));
        dictionary(pairs)
    };
    [b"l".to_vec(), peers.iter().flat_map(peer).collect(), b"e".to_vec()].concat()
}

fn scrape(state: &mut State, peer: IpAddr, query: &str) -> Result<Vec<u8>, &'static str> {
    let fault = state.fault;
    let parameters = parameters(fault, query)?;
    let mut hashes: Vec<[u8; 20]> = Vec::new();
    for (_, found) in parameters.iter().filter(|(name, _)| name == b"info_hash") {
        match hash(fault, found) {
            Ok(hash) => hashes.push(hash),
            Err(_) if fault == Fault::HttpBadScrapeHashIsZeros => hashes.push([0; 20]),
            Err(reason) => return Err(reason),
        }
    }
    state.info_hashes.extend(&hashes);
    if hashes.is_empty() && fault != Fault::HttpFullScrapeIsEmpty {
        return Err("no full scrapes");
    }
    if fault == Fault::HttpScrapeTellsAll {
        hashes = state.info_hashes.iter().copied().collect();
    }
    hashes.truncate(if fault == Fault::HttpScrapeStopsAt10 { 10 } else { SCRAPE_MAX });
    if fault != Fault::HttpScrapeUnsorted {
        hashes.sort_unstable();
    }
    if fault != Fault::HttpScrapeRepeats {
        hashes.dedup();
    }
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for hash in &hashes {
        let mut key = *hash;
        key[0] ^= u8::from(fault == Fault::HttpOwnSwarms);
        let swarm = state.swarm(peer.is_ipv4(), key);
        if fault == Fault::HttpUnknownScrapeIsError && swarm.is_none_or(|swarm| swarm.peers.is_empty()) {
            return Err("unknown torrent");
        }
        let swarm = swarm.cloned().unwrap_or_default();
        let (seeders, leechers) = counts(swarm.peers.values());
        let (seeders, leechers) =
            if fault == Fault::ScrapeSwapsFields { (leechers, seeders) } else { (seeders, leechers) };
        let leechers = leechers + u32::from(fault == Fault::HttpWrongCounts && hashes.len() > 5);
        let name = if fault == Fault::HttpCountsUnderOtherNames { "seeders" } else { "complete" };
        let counts = vec![
            (name.as_bytes().to_vec(), integer(seeders)),
            (b"downloaded".to_vec(), integer(swarm.completed)),
            (b"incomplete".to_vec(), integer(leechers)),
        ];
        let key = match fault {
            Fault::HttpScrapeKeysAreHex => {
                hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes()
            }
            _ => hash.to_vec(),
        };
        entries.push((key, dictionary(counts)));
    }
    Ok(dictionary(vec![(b"files".to_vec(), dictionary(entries))]))
}

fn integer(number: u32) -> Vec<u8> {
    format!("i{number}e").into_bytes()
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [format!("{}:", bytes.len()).as_bytes(), bytes].concat()
}

fn dictionary(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<u8> {
    let pair = |(key, value): (Vec<u8>, Vec<u8>)| [string(&key), value].concat();
    [b"d".to_vec(), pairs.into_iter().flat_map(pair).collect(), b"e".to_vec()].concat()
}
