//! The reply to an announce (BEP 3, "Trackers"; BEP 7; BEP 23; BEP 24).

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::bencode::{Dictionary, Value};
use super::client::Client;
use super::reply::{accepted, announced, dictionary};
use super::request::Parameters;
use super::response::Response;
use crate::case::{Case, Checked, Unmet, ensure};
use crate::context::Context;
use crate::peer::{Announce, STARTED};
use crate::rules::Client as _;

/// Seconds that no tracker should go below or beyond.
const SANE_INTERVAL_S: std::ops::RangeInclusive<u32> = 60..=86_400;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-announce-is-a-bencoded-dictionary",
        "BEP 3, \"Trackers\" and \"bencoding\"",
        "The body of an announce reply is a bencoded dictionary.",
        |context| replies(context, |response| dictionary(response).map(drop)),
    )
    .with_info_hashes(1),
    Case::should(
        "http-announce-is-nothing-but-a-dictionary",
        "BEP 3, \"Trackers\" and \"bencoding\"",
        "Nothing stands behind the dictionary of an announce reply.",
        |context| replies(context, nothing_behind),
    )
    .with_info_hashes(1),
    Case::must(
        "http-announce-keys-are-sorted",
        "BEP 3, \"bencoding\"",
        "The keys of a dictionary are sorted as raw strings, and none comes twice.",
        |context| replies(context, keys_are_sorted),
    )
    .with_info_hashes(1),
    Case::must(
        "http-announce-has-an-interval",
        "BEP 3, \"Trackers\"",
        "An announce reply tells the interval in seconds.",
        |context| replies(context, |response| announced(response).map(drop)),
    )
    .with_info_hashes(1),
    Case::should(
        "http-announce-interval-is-sane",
        "BEP 3, \"Trackers\"",
        "The interval lies between a minute and a day, and a min interval is no longer.",
        interval_is_sane,
    )
    .with_info_hashes(1),
    Case::should(
        "http-announce-interval-is-jittered",
        "practice: a restart must not synchronise the announces of all clients",
        "Intervals differ from reply to reply.",
        interval_is_jittered,
    )
    .with_info_hashes(1),
    Case::should(
        "http-announce-has-counts",
        "practice: clients show complete and incomplete as the size of the swarm",
        "An announce reply has complete and incomplete.",
        |context| replies(context, has_counts),
    )
    .with_info_hashes(1),
    Case::must(
        "http-announce-always-has-peers",
        "practice: a client is known that fails on a reply without the key",
        "An announce reply has the key peers, even if there are none.",
        always_has_peers,
    )
    .with_info_hashes(2),
    Case::must(
        "http-announce-peers-are-well-formed",
        "BEP 3, \"Trackers\"; BEP 23; BEP 7",
        "Peers come as dictionaries or in compact form, of 6 bytes each over IPv4 and of 18 over IPv6.",
        peers_are_well_formed,
    )
    .with_info_hashes(1),
    Case::should(
        "http-compact-1-gives-compact-peers",
        "BEP 23",
        "A client that prefers compact peers is given compact peers.",
        |context| compact_form(context, |parameters| parameters.with("compact", "1")),
    )
    .with_info_hashes(1),
    Case::should(
        "http-compact-is-the-default",
        "BEP 23",
        "A client that states no preference is given compact peers.",
        |context| compact_form(context, |parameters| parameters.without("compact")),
    )
    .with_info_hashes(1),
    Case::should(
        "http-compact-0-gives-dictionaries",
        "BEP 23",
        "A client that prefers the original form is given a list of dictionaries with ip and port.",
        compact_0_gives_dictionaries,
    )
    .with_info_hashes(1),
    Case::should(
        "http-no-peer-id-is-kept",
        "practice: a client that says no_peer_id has no use for peer ids",
        "With compact=0 and no_peer_id=1 no dictionary of a peer has a peer id.",
        no_peer_id_is_kept,
    )
    .with_info_hashes(1),
    Case::should(
        "http-external-ip-is-that-of-the-client",
        "BEP 24",
        "An external ip, if there is one, has 4 or 16 bytes, and is the address that the announce came from.",
        external_ip_is_that_of_the_client,
    )
    .with_info_hashes(1),
    Case::should(
        "http-announce-is-plain-text",
        "BEP 3, \"Trackers\": \"text/plain\"",
        "The content type of a reply is text/plain.",
        |context| replies(context, is_plain_text),
    )
    .with_info_hashes(1),
    Case::must(
        "http-announce-length-is-right",
        "RFC 9112, 6.2",
        "Content-Length, if it is there, says the length of the body.",
        length_is_right,
    )
    .with_info_hashes(1),
    Case::should(
        "http-announce-has-a-length",
        "practice: clients and proxies read to the end of the connection otherwise",
        "A reply tells its length, by Content-Length or in chunks.",
        |context| replies(context, has_a_length),
    )
    .with_info_hashes(1),
];

/// Looks at the replies to a first leecher, to a second one that has a peer, and to one that leaves.
fn replies(context: &Context<'_>, look: impl Fn(&Response) -> Checked) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    for announce in [
        Announce::leecher(hash, 1001).with_event(STARTED),
        Announce::leecher(hash, 1002),
        Announce::seeder(hash, 1003),
        Announce::leecher(hash, 1001).wanting(10),
        Announce::leecher(hash, 1002).with_event(crate::peer::STOPPED),
    ] {
        look(&client.ask(&client.announce_request(&announce, |parameters| parameters))?)?;
    }
    Ok(())
}

fn nothing_behind(response: &Response) -> Checked {
    dictionary(response)?;
    let rest = super::bencode::read(&response.body).map_or(0, |(_, rest)| rest);
    ensure(rest == 0, "nothing behind the dictionary", format!("{rest} bytes, in {}", response.words()))
}

fn keys_are_sorted(response: &Response) -> Checked {
    let dictionary = dictionary(response)?;
    let misplaced = dictionary.misplaced_key().map(<[u8]>::escape_ascii);
    ensure(
        misplaced.is_none(),
        "keys in order, each once",
        format!(
            "{} where it does not belong, in {}",
            misplaced.map_or_else(String::new, |key| key.to_string()),
            response.words()
        ),
    )
}

fn interval_is_sane(context: &Context<'_>) -> Checked {
    replies(context, |response| {
        let interval_s = announced(response)?.interval_s;
        let min_s = accepted(response)?.integer("min interval").unwrap_or_default();
        ensure(
            SANE_INTERVAL_S.contains(&interval_s) && min_s <= interval_s.into(),
            "an interval from 60 to 86400 seconds, and a min interval that is no longer",
            format!("interval {interval_s}, min interval {min_s}"),
        )
    })
}

fn interval_is_jittered(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let replies = client.announce_all(&[Announce::leecher(context.hash(0), 1001); 20])?;
    let intervals: BTreeSet<u32> = replies.iter().map(|reply| reply.interval_s).collect();
    ensure(intervals.len() > 1, "several intervals in 20 replies", format!("{intervals:?}"))
}

fn has_counts(response: &Response) -> Checked {
    let dictionary = accepted(response)?;
    let is_there = |key| dictionary.integer(key).is_some_and(|count| count >= 0);
    ensure(is_there("complete") && is_there("incomplete"), "complete and incomplete", response.words())
}

fn always_has_peers(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let alone = Announce::leecher(context.hash(0), 1001);
    let stopped = Announce::leecher(context.hash(1), 1001).with_event(crate::peer::STOPPED);
    for announce in [alone, alone.wanting(0), stopped] {
        let response = client.ask(&client.announce_request(&announce, |parameters| parameters))?;
        ensure(accepted(&response)?.value("peers").is_some(), "the key peers", response.words())?;
    }
    Ok(())
}

fn peers_are_well_formed(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    let expected: BTreeSet<u16> = (1001..=1003).collect();
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    let edits: [fn(Parameters) -> Parameters; 2] = [|usual| usual, |usual| usual.without("compact")];
    for edit in edits {
        let announce = Announce::leecher(hash, 1004).wanting(10);
        let mut seen = client.announce_with(&announce, edit)?;
        // That nobody is handed to itself is another rule.
        seen.peers.retain(|peer| peer.port() != 1004);
        let is_of_family = |peer: &SocketAddr| peer.is_ipv4() == context.target.address.is_ipv4();
        ensure(
            seen.peers.iter().all(is_of_family) && seen.ports().into_iter().eq(expected.iter().copied()),
            format!("the peers at ports {expected:?}"),
            format!("{:?}", seen.peers),
        )?;
    }
    Ok(())
}

/// The reply to somebody who has three peers.
fn reply_with_peers(
    context: &Context<'_>,
    edit: impl FnOnce(Parameters) -> Parameters,
) -> Checked<(Dictionary, String)> {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    let announce = Announce::leecher(hash, 1004).wanting(10);
    let response = client.ask(&client.announce_request(&announce, edit))?;
    Ok((accepted(&response)?, response.words()))
}

/// The key that holds peers of the family of the target (BEP 7).
fn key(context: &Context<'_>) -> &'static str {
    if context.target.address.is_ipv4() { "peers" } else { "peers6" }
}

fn compact_form(context: &Context<'_>, edit: impl FnOnce(Parameters) -> Parameters) -> Checked {
    let (reply, words) = reply_with_peers(context, edit)?;
    let key = key(context);
    let bytes = reply.bytes(key).map(<[u8]>::len);
    ensure(
        bytes.is_some_and(|bytes| bytes > 0 && bytes % context.peer_bytes() == 0),
        format!("{key} as a string of {} · n bytes", context.peer_bytes()),
        words,
    )
}

/// The dictionaries of peers, which BEP 3 has in `peers` for both families.
fn dictionaries(reply: &Dictionary) -> Vec<&Dictionary> {
    let lists = ["peers", "peers6"].into_iter().filter_map(|key| match reply.value(key) {
        Some(Value::List(list)) => Some(list),
        _ => None,
    });
    lists.flatten().filter_map(Value::dictionary).collect()
}

fn compact_0_gives_dictionaries(context: &Context<'_>) -> Checked {
    let (reply, words) = reply_with_peers(context, |parameters| parameters.with("compact", "0"))?;
    let dictionaries = dictionaries(&reply);
    let is_peer = |peer: &&Dictionary| peer.bytes("ip").is_some() && peer.integer("port").is_some();
    ensure(
        !dictionaries.is_empty() && dictionaries.iter().all(is_peer),
        "a list of dictionaries with ip and port",
        words,
    )
}

fn no_peer_id_is_kept(context: &Context<'_>) -> Checked {
    let edit = |parameters: Parameters| parameters.with("compact", "0").and("no_peer_id", "1");
    let (reply, words) = reply_with_peers(context, edit)?;
    let dictionaries = dictionaries(&reply);
    ensure(dictionaries.iter().all(|peer| peer.value("peer id").is_none()), "no peer id", words)
}

fn external_ip_is_that_of_the_client(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut line = client.connect()?;
    line.send(&client.announce_request(&Announce::leecher(context.hash(0), 1001), |parameters| parameters));
    let response = line.receive_response()?;
    let reply = accepted(&response)?;
    let Some(external) = reply.value("external ip") else {
        return Err(Unmet::NotSupported(
            "the reply has no external ip, which a tracker may leave out".to_owned(),
        ));
    };
    let own = line.local_address().map(|address| match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    });
    let Value::Bytes(external) = external else {
        return ensure(false, "external ip as a string", response.words());
    };
    // Beyond this host there may be a NAT, and nobody here knows the address that it puts in.
    let is_own = own.as_ref() == Some(external) || !context.target.address.ip().is_loopback();
    ensure(
        matches!(external.len(), 4 | 16) && is_own,
        format!("the address of the client, {own:?}"),
        format!("external ip {external:?}"),
    )
}

fn is_plain_text(response: &Response) -> Checked {
    let content_type = response.header("content-type").unwrap_or("no Content-Type");
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    ensure(essence.eq_ignore_ascii_case("text/plain"), "text/plain", content_type)
}

fn has_a_length(response: &Response) -> Checked {
    let has =
        response.header("content-length").is_some() || response.has_token("transfer-encoding", "chunked");
    ensure(has, "Content-Length, or a chunked body", response.words())
}

/// On a connection that ends with the reply, the end tells the length, too.
fn length_is_right(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    for announce in [Announce::leecher(hash, 1001), Announce::leecher(hash, 1004).wanting(0)] {
        let mut line = client.connect()?;
        let path = client.announce_path(&announce, |parameters| parameters);
        line.send(&super::request::get(context.target, &path, &["Connection: close"]));
        let response = line.receive_response()?;
        accepted(&response)?;
        let (_, rest) = line.is_closed()?;
        ensure(
            rest.is_empty(),
            "the end of the connection where Content-Length says",
            format!("{} bytes behind {}", rest.len(), response.words()),
        )?;
    }
    Ok(())
}
