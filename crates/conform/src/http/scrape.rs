//! Scrapes (BEP 48).

use std::collections::BTreeSet;

use super::client::Client;
use super::reply::{Strictness, accepted, scraped};
use super::request::{Parameters, escaped, get, scrape_path};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, COMPLETED, Counts, STARTED};
use crate::rules::Client as _;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "http-scrape-layout",
        "BEP 48, \"Tracker scrape\"",
        "A scrape reply has a dictionary called files that maps info hashes to complete, downloaded and incomplete.",
        layout,
    ),
    Case::must(
        "http-scrape-keys-are-sorted",
        "BEP 3, \"bencoding\"",
        "The keys of a scrape reply, info hashes included, are sorted as raw strings, and none is repeated.",
        keys_are_sorted,
    )
    .with_info_hashes(12),
    Case::must(
        "http-scrape-counts-are-right",
        "BEP 48, \"Tracker scrape\"",
        "A scrape reply gives complete, downloaded and incomplete of each torrent under the right names.",
        counts_are_right,
    )
    .with_info_hashes(3),
    Case::must(
        "http-scrape-of-many-is-answered",
        "BEP 48, \"Tracker scrape\"",
        "A scrape of several torrents by repeated info hashes is answered, and each entry of the reply is correct.",
        |context| many(context, 12, false),
    )
    .with_info_hashes(12),
    Case::should(
        "http-scrape-of-50-is-complete",
        "practice: clients put as many torrents into a scrape as fit into a URL of a few kilobytes",
        "The reply to a scrape of 50 torrents covers all of them.",
        |context| many(context, 50, true),
    )
    .with_info_hashes(50),
    Case::must(
        "http-scrape-tells-only-what-is-asked",
        "BEP 48, \"Tracker scrape\"",
        "The reply to a scrape of one torrent covers no other.",
        tells_only_what_is_asked,
    )
    .with_info_hashes(2),
    Case::should(
        "http-scrape-of-unknown-is-zeros-or-nothing",
        "practice: a torrent without peers is not an error",
        "A torrent without peers has an entry of zeros or none, and the other torrents of the scrape have theirs.",
        unknown,
    )
    .with_info_hashes(3),
    Case::should(
        "http-scrape-of-repeated-is-told-once",
        "BEP 3, \"bencoding\"",
        "An info hash that a scrape repeats has one entry.",
        repeated,
    ),
    Case::should(
        "http-scrape-of-a-bad-hash-tells-nothing",
        "BEP 3, \"Trackers\"",
        "A scrape of an info hash that does not have 20 bytes gets a failure reason or no entries.",
        bad_hash,
    )
    .with_info_hashes(0),
    Case::should(
        "http-scrape-of-everything-is-refused-or-whole",
        "BEP 48, \"Tracker scrape\"",
        "A scrape without an info hash gets all torrents, or is refused.",
        everything,
    ),
];

fn layout(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    let response = client.request(&client.scrape_request(&[hash]))?;
    ensure(
        scraped(&response, Strictness::Exact)?.iter().any(|(found, _)| *found == hash),
        "an entry under the info hash",
        response.describe(),
    )
}

fn keys_are_sorted(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hashes = context.hashes(12);
    for &hash in &hashes {
        client.announce(&Announce::leecher(hash, 1001))?;
    }
    let response = client.request(&client.scrape_request(&hashes))?;
    let misplaced = accepted(&response)?.misplaced_key().map(|key| key.escape_ascii().to_string());
    ensure(
        misplaced.is_none(),
        "keys in order, each once",
        format!("{} out of order or repeated, in {}", misplaced.unwrap_or_default(), response.describe()),
    )
}

fn counts_are_right(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hashes = context.hashes(3);
    // The torrents may have earlier downloads, if their info hashes had to be listed.
    let before = client.scrape(&hashes)?;
    let (one, two) = (hashes[0], hashes[1]);
    client.announce_all(&[1001, 1002, 1003].map(|port| Announce::leecher(one, port)))?;
    client.announce_all(&[1004, 1005].map(|port| Announce::seeder(one, port)))?;
    client.announce(&Announce::leecher(two, 1001).with_event(STARTED))?;
    client.announce(&Announce::seeder(two, 1001).with_event(COMPLETED))?;
    let after = client.scrape(&hashes)?;
    let seen: Vec<Counts> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| Counts {
            completed: after.completed.saturating_sub(before.completed),
            ..*after
        })
        .collect();
    let seen: Vec<_> =
        seen.iter().map(|counts| (counts.seeders, counts.completed, counts.leechers)).collect();
    // Another rule requires that downloads are counted.
    let is_right = seen == [(2, 0, 3), (1, 1, 0), (0, 0, 0)] || seen == [(2, 0, 3), (1, 0, 0), (0, 0, 0)];
    ensure(
        is_right,
        "(complete, downloaded, incomplete) of [(2, 0, 3), (1, 1, 0), (0, 0, 0)]",
        format!("{seen:?}"),
    )
}

/// Scrapes torrents with one, two and three leechers in turn.
fn many(context: &Context<'_>, count: usize, is_complete: bool) -> Checked {
    let client = Client::new(context);
    let hashes = context.hashes(count);
    let leechers = |index: usize| 1 + u16::try_from(index % 3).unwrap_or_default();
    for (index, &hash) in hashes.iter().enumerate() {
        for port in 0..leechers(index) {
            client.announce(&Announce::leecher(hash, 1001 + port))?;
        }
    }
    let response = client.request(&client.scrape_request(&hashes))?;
    let files = scraped(&response, Strictness::Lenient)?;
    let wrong = files.iter().find(|(hash, counts)| {
        let index = hashes.iter().position(|asked| asked == hash);
        index.is_none_or(|index| counts.leechers != u32::from(leechers(index)))
    });
    ensure(wrong.is_none(), "right counts", format!("{wrong:?}"))?;
    let expected = if is_complete { count } else { 1 };
    ensure(
        files.len() >= expected,
        format!("{expected} of {count} torrents"),
        format!("{} torrents", files.len()),
    )
}

fn tells_only_what_is_asked(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hashes = context.hashes(2);
    for &hash in &hashes {
        client.announce(&Announce::leecher(hash, 1001))?;
    }
    let response = client.request(&client.scrape_request(&hashes[..1]))?;
    let files = scraped(&response, Strictness::Lenient)?;
    ensure(
        files.iter().all(|(hash, _)| *hash == hashes[0]),
        "the torrent that was asked for",
        response.describe(),
    )
}

fn unknown(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hashes = context.hashes(3);
    client.announce(&Announce::leecher(hashes[1], 1001))?;
    let response = client.request(&client.scrape_request(&hashes))?;
    let files = scraped(&response, Strictness::Lenient)?;
    let leechers =
        |hash| files.iter().find(|(found, _)| *found == hash).map_or(0, |(_, counts)| counts.leechers);
    let seen: Vec<u32> = hashes.iter().map(|&hash| leechers(hash)).collect();
    ensure(
        seen == [0, 1, 0],
        "leechers [0, 1, 0]",
        format!("leechers {seen:?}, in {}", response.describe()),
    )?;
    // A scrape of an unknown torrent alone is also accepted.
    accepted(&client.request(&client.scrape_request(&hashes[..1]))?).map(drop)
}

fn repeated(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    let response = client.request(&client.scrape_request(&[hash; 5]))?;
    let files = scraped(&response, Strictness::Lenient)?;
    ensure(files.len() == 1, "one entry", response.describe())
}

fn bad_hash(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    for bytes in [0, 19, 21, 40] {
        let parameters = Parameters::default().and("info_hash", &escaped(&vec![7; bytes]));
        let path = scrape_path(context.target, &parameters);
        let response = client.request(&get(context.target, &path, &[]))?;
        let has_entries = scraped(&response, Strictness::Lenient).is_ok_and(|files| !files.is_empty());
        ensure(!has_entries, "a failure reason, or no entries", response.describe())?;
    }
    Ok(())
}

fn everything(context: &Context<'_>) -> Checked {
    let client = Client::new(context);
    let hash = context.hash(0);
    client.announce(&Announce::leecher(hash, 1001))?;
    let path = scrape_path(context.target, &Parameters::default());
    let response = client.request(&get(context.target, &path, &[]))?;
    if response.status != 200 || super::reply::dictionary(&response)?.bytes("failure reason").is_some() {
        return Ok(());
    }
    let seen: BTreeSet<[u8; 20]> =
        scraped(&response, Strictness::Lenient)?.into_iter().map(|(hash, _)| hash).collect();
    ensure(seen.contains(&hash), "all torrents, or a failure reason", response.describe())
}
