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

const SANE_INTERVAL_S: std::ops::RangeInclusive<u32> = 60..=86_400;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-announce-is-a-bencoded-dictionary",
        "BEP 3, \"Trackers\" and \"bencoding\"",
        "The body of an announce reply is a bencoded dictionary.",
        |context| replies(context, |response| dictionary(response).map(drop)),
    ),
    Case::should(
        "http-announce-is-nothing-but-a-dictionary",
        "BEP 3, \"Trackers\" and \"bencoding\"",
        "Nothing follows the dictionary of an announce reply.",
        |context| replies(context, nothing_follows),
    ),
    Case::must(
        "http-announce-keys-are-sorted",
        "BEP 3, \"bencoding\"",
        "The keys of a dictionary are sorted as raw strings, and none is repeated.",
        |context| replies(context, keys_are_sorted),
    ),
    Case::must(
        "http-announce-has-an-interval",
        "BEP 3, \"Trackers\"",
        "An announce reply gives the interval in seconds.",
        |context| replies(context, |response| announced(response).map(drop)),
    ),
    Case::should(
        "http-announce-interval-is-sane",
        "BEP 3, \"Trackers\"",
        "The interval lies between a minute and a day, and a min interval is no longer.",
        interval_is_sane,
    ),
    Case::should(
        "http-announce-interval-is-jittered",
        "practice: a restart must not synchronise the announces of all clients",
        "Intervals differ from reply to reply.",
        interval_is_jittered,
    ),
    Case::should(
        "http-announce-has-counts",
        "practice: clients show complete and incomplete as the size of the swarm",
        "An announce reply has complete and incomplete.",
        |context| replies(context, has_counts),
    ),
    Case::must(
        "http-announce-always-has-peers",
        "practice: one known client fails on a reply without the key",
        "An announce reply has the key peers, even if there are none.",
        always_has_peers,
    )
    .with_info_hashes(2),
    Case::must(
        "http-announce-peers-are-well-formed",
        "BEP 3, \"Trackers\"; BEP 23; BEP 7",
        "Peers are dictionaries or in compact form, 6 bytes each over IPv4 and 18 over IPv6.",
        peers_are_well_formed,
    ),
    Case::should(
        "http-compact-1-gives-compact-peers",
        "BEP 23",
        "A client that prefers compact peers is given compact peers.",
        |context| compact_form(context, |parameters| parameters.with("compact", "1")),
    ),
    Case::should(
        "http-compact-is-the-default",
        "BEP 23",
        "A client that states no preference is given compact peers.",
        |context| compact_form(context, |parameters| parameters.without("compact")),
    ),
    Case::should(
        "http-compact-0-gives-dictionaries",
        "BEP 23",
        "A client that prefers the original form is given a list of dictionaries with ip and port.",
        compact_0_gives_dictionaries,
    ),
    Case::should(
        "http-no-peer-id-is-kept",
        "practice: a client that sends no_peer_id has no use for peer ids",
        "With compact=0 and no_peer_id=1, the dictionaries of peers have no peer id.",
        no_peer_id_is_kept,
    ),
    Case::should(
        "http-external-ip-is-that-of-the-client",
        "BEP 24",
        "The external ip, if present, has 4 or 16 bytes and is the address that the announce came from.",
        external_ip_is_that_of_the_client,
    ),
    Case::should(
        "http-announce-is-plain-text",
        "BEP 3, \"Trackers\": \"text/plain\"",
        "The content type of a reply is text/plain.",
        |context| replies(context, is_plain_text),
    ),
    Case::must(
        "http-announce-length-is-right",
        "RFC 9112, 6.2",
        "Content-Length, if present, is the length of the body.",
        length_is_right,
    ),
    Case::should(
        "http-announce-has-a-length",
        "practice: otherwise clients and proxies read to the end of the connection",
        "A reply states its length, by Content-Length or chunked encoding.",
        |context| replies(context, has_a_length),
    ),
];

/// Checks the replies to a first leecher, to a second one for which there is a peer, and to one that leaves.
fn replies(context: &Context<'_>, check: impl Fn(&Response) -> Checked) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    for announce in [
        Announce::leecher(hash, 1001).with_event(STARTED),
        Announce::leecher(hash, 1002),
        Announce::seeder(hash, 1003),
        Announce::leecher(hash, 1001).wanting(10),
        Announce::leecher(hash, 1002).with_event(crate::peer::STOPPED),
    ] {
        check(&client.request(&client.announce_request(&announce))?)?;
    }
    Ok(())
}

fn nothing_follows(response: &Response) -> Checked {
    dictionary(response)?;
    let rest = super::bencode::read(&response.body).map_or(0, |(_, rest)| rest);
    ensure(rest == 0, "nothing after the dictionary", format!("{rest} bytes, in {}", response.describe()))
}

fn keys_are_sorted(response: &Response) -> Checked {
    let dictionary = dictionary(response)?;
    let misplaced = dictionary.misplaced_key().map(<[u8]>::escape_ascii);
    ensure(
        misplaced.is_none(),
        "keys in order, each once",
        format!(
            "{} out of order or repeated, in {}",
            misplaced.map_or_else(String::new, |key| key.to_string()),
            response.describe()
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
    ensure(is_there("complete") && is_there("incomplete"), "complete and incomplete", response.describe())
}

fn always_has_peers(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let alone = Announce::leecher(context.hash(0), 1001);
    let stopped = Announce::leecher(context.hash(1), 1001).with_event(crate::peer::STOPPED);
    for announce in [alone, alone.wanting(0), stopped] {
        let response = client.request(&client.announce_request(&announce))?;
        ensure(accepted(&response)?.value("peers").is_some(), "the key peers", response.describe())?;
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
        // Another rule forbids handing a peer to itself.
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

/// Returns the reply to an announce in a swarm of three other peers, and its description.
fn reply_with_peers(
    context: &Context<'_>,
    edit: impl FnOnce(Parameters) -> Parameters,
) -> Checked<(Dictionary, String)> {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    let announce = Announce::leecher(hash, 1004).wanting(10);
    let response = client.request(&client.announce_request_with(&announce, edit))?;
    Ok((accepted(&response)?, response.describe()))
}

fn compact_form(context: &Context<'_>, edit: impl FnOnce(Parameters) -> Parameters) -> Checked {
    let (reply, text) = reply_with_peers(context, edit)?;
    // BEP 7 defines a separate key for IPv6 peers.
    let key = if context.target.address.is_ipv4() { "peers" } else { "peers6" };
    let bytes = reply.bytes(key).map(<[u8]>::len);
    ensure(
        bytes.is_some_and(|bytes| bytes > 0 && bytes % context.peer_bytes() == 0),
        format!("{key} as a string of {} · n bytes", context.peer_bytes()),
        text,
    )
}

/// Returns the dictionaries of peers, which BEP 3 puts into `peers` for both families.
fn peer_dictionaries(reply: &Dictionary) -> Vec<&Dictionary> {
    let lists = ["peers", "peers6"].into_iter().filter_map(|key| match reply.value(key) {
        Some(Value::List(list)) => Some(list),
        _ => None,
    });
    lists.flatten().filter_map(Value::dictionary).collect()
}

fn compact_0_gives_dictionaries(context: &Context<'_>) -> Checked {
    let (reply, text) = reply_with_peers(context, |parameters| parameters.with("compact", "0"))?;
    let dictionaries = peer_dictionaries(&reply);
    let is_peer = |peer: &&Dictionary| peer.bytes("ip").is_some() && peer.integer("port").is_some();
    ensure(
        !dictionaries.is_empty() && dictionaries.iter().all(is_peer),
        "a list of dictionaries with ip and port",
        text,
    )
}

fn no_peer_id_is_kept(context: &Context<'_>) -> Checked {
    let edit = |parameters: Parameters| parameters.with("compact", "0").and("no_peer_id", "1");
    let (reply, text) = reply_with_peers(context, edit)?;
    let dictionaries = peer_dictionaries(&reply);
    ensure(dictionaries.iter().all(|peer| peer.value("peer id").is_none()), "no peer id", text)
}

fn external_ip_is_that_of_the_client(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let mut connection = client.connect()?;
    connection.send(&client.announce_request(&Announce::leecher(context.hash(0), 1001)));
    let response = connection.receive_response()?;
    let reply = accepted(&response)?;
    let Some(external) = reply.value("external ip") else {
        return Err(Unmet::NotSupported(
            "the reply has no external ip, which a tracker may leave out".to_owned(),
        ));
    };
    let own = connection.local_address().map(|address| match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    });
    let Value::Bytes(external) = external else {
        return ensure(false, "external ip as a string", response.describe());
    };
    // Beyond this host there may be a NAT, whose address is not known here.
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
    ensure(has, "Content-Length, or a chunked body", response.describe())
}

/// On a connection that closes after the reply, the end also shows the length.
fn length_is_right(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(hash, port)))?;
    for announce in [Announce::leecher(hash, 1001), Announce::leecher(hash, 1004).wanting(0)] {
        let mut connection = client.connect()?;
        let path = client.announce_path(&announce);
        connection.send(&super::request::get(context.target, &path, &["Connection: close"]));
        let response = connection.receive_response()?;
        accepted(&response)?;
        let (_, rest) = connection.wait_for_close()?;
        ensure(
            rest.is_empty(),
            "the end of the connection where Content-Length places it",
            format!("{} bytes after {}", rest.len(), response.describe()),
        )?;
    }
    Ok(())
}
