//! The syntax of request parameters (RFC 3986; BEP 3, "Trackers").

use super::client::Client;
use super::reply::{Strictness, scraped};
use super::request::{Parameters, escaped, escaped_all, escaped_in_lower_case};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-parameters-come-in-any-order",
        "BEP 3, \"Trackers\"",
        "The order of the parameters does not matter.",
        |context| {
            takes(context, &[Parameters::reversed, |parameters| parameters.without("left").and("left", "5")])
        },
    ),
    Case::must(
        "http-unknown-parameters-are-ignored",
        "practice: clients send corrupt, redundant, supportcrypto, trackerid and more",
        "Parameters that the tracker does not know do not matter.",
        |context| {
            takes(context, &[usual_extras, |parameters| parameters.and("info_hash2", "x").and("portx", "1")])
        },
    ),
    Case::should(
        "http-odd-parameters-are-ignored",
        "practice: tracker URLs are copied, cut and extended by hand",
        "Empty parameters, names without a value, and values without a name do not matter.",
        |context| {
            takes(
                context,
                &[odd, |parameters| parameters.and_raw(""), |parameters| parameters.and_raw("&&&")],
            )
        },
    ),
    Case::should(
        "http-repeated-parameters-are-answered",
        "practice: some tracker URLs contain a query",
        "A parameter that comes twice with the same value does not matter.",
        |context| {
            takes(
                context,
                &[|parameters| parameters.and("compact", "1").and("uploaded", "0").and("left", "1048576")],
            )
        },
    ),
    Case::must(
        "http-escapes-in-lower-case-are-read",
        "RFC 3986, 2.1",
        "Escapes mean the same with digits in lower case.",
        |context| same_torrent(context, |hash| escaped_in_lower_case(hash)),
    )
    .with_info_hashes(4),
    Case::must(
        "http-unneeded-escapes-are-read",
        "RFC 3986, 2.3",
        "A character may be escaped even where it need not be.",
        |context| same_torrent(context, |hash| escaped_all(hash)),
    )
    .with_info_hashes(4),
    Case::should(
        "http-escaped-numbers-are-read",
        "RFC 3986, 2.3",
        "Names and numbers may be escaped as well.",
        escaped_numbers,
    ),
    Case::must(
        "http-info-hash-of-any-bytes-is-read",
        "BEP 3, \"Trackers\"",
        "An info hash may have any bytes, and a scrape returns it unchanged.",
        info_hash_of_any_bytes,
    )
    .with_every_byte(),
    Case::should(
        "http-long-values-are-ignored",
        "practice: clients send tracker ids and keys of any kind",
        "A value of a kilobyte and a value of arbitrary bytes are ignored where they have no meaning.",
        |context| {
            takes(
                context,
                &[|parameters| {
                    parameters
                        .and("trackerid", &"x".repeat(1024))
                        .with("key", &escaped(&(0..=255).collect::<Vec<u8>>()))
                }],
            )
        },
    ),
];

fn usual_extras(parameters: Parameters) -> Parameters {
    let extras = "corrupt=0&redundant=0&supportcrypto=1&requirecrypto=0&cryptoport=7&trackerid=abc&azudp=7&azver=3&no_peer_id=1";
    parameters.and_raw(extras)
}

fn odd(parameters: Parameters) -> Parameters {
    Parameters::default()
        .and_raw("")
        .and_raw("flag")
        .and_raw("=")
        .and_raw("=value")
        .and_raw("empty=")
        .and_raw(&parameters.text())
        .and_raw("a=b=c")
        .and_raw("")
}

/// Fails the case unless a leecher that announces in each of these ways joins and is handed another leecher.
fn takes(context: &Context<'_>, edits: &[fn(Parameters) -> Parameters]) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    for (port, edit) in (1002..).zip(edits) {
        let reply = client.announce_with(&Announce::leecher(hash, port).wanting(10), edit)?;
        let seen = client.scrape_one(hash)?;
        ensure(
            reply.ports().contains(&1001) && (seen.seeders, seen.leechers) == (0, u32::from(port) - 1000),
            format!("the peer at 1001, and {} leechers", port - 1000),
            format!("the ports {:?}, seeders {}, leechers {}", reply.ports(), seen.seeders, seen.leechers),
        )?;
    }
    Ok(())
}

fn escaped_numbers(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    // With its escapes, the number would be unknown, and the peer a leecher.
    let edit = |parameters: Parameters| {
        parameters.without("info_hash").and("info%5Fhash", &escaped(&hash)).with("left", "%30")
    };
    client.announce_with(&Announce::leecher(hash, 1001), edit)?;
    let seen = client.scrape_one(hash)?;
    ensure(
        (seen.seeders, seen.leechers) == (1, 0),
        "seeders 1, leechers 0 after left=%30",
        format!("seeders {}, leechers {}", seen.seeders, seen.leechers),
    )
}

/// Fails the case unless two peers that write the info hash differently are handed to each other.
fn same_torrent(context: &Context<'_>, escape: fn(&[u8; 20]) -> String) -> Checked {
    let client = Client::new(context);
    for hash in context.hashes(4) {
        client.announce(&Announce::leecher(hash, 1001))?;
        let edit = |parameters: Parameters| parameters.with("info_hash", &escape(&hash));
        let ports = client.announce_with(&Announce::leecher(hash, 1002).wanting(10), edit)?.ports();
        ensure(ports.contains(&1001), "the peer at 1001", format!("the ports {ports:?}"))?;
    }
    Ok(())
}

fn info_hash_of_any_bytes(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    for hash in context.hashes(256_usize.div_ceil(20)) {
        client.announce(&Announce::leecher(hash, 1001))?;
        let response = client.request(&client.scrape_request(&[hash]))?;
        let files = scraped(&response, Strictness::Lenient)?;
        ensure(
            files.iter().any(|(found, counts)| *found == hash && counts.leechers == 1),
            format!("one leecher of {}", escaped(&hash)),
            response.describe(),
        )?;
    }
    Ok(())
}
