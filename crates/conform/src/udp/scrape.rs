//! Scrapes: the counts of several torrents, in the order of the request (BEP 15, "Scrape").

use super::client::Client;
use super::describe;
use super::packet::{ERROR, SCRAPE, read_scraped, scrape, u32_at};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::{Announce, COMPLETED, Counts};
use crate::rules::Client as _;

/// BEP 15, "Scrape": "Up to about 74 torrents can be scraped at once."
const HASHES_MAX: usize = 74;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-scrape-layout",
        "BEP 15, \"Scrape\"",
        "A scrape reply has action 2, the transaction id, and 12 bytes for each torrent.",
        layout,
    )
    .with_info_hashes(2),
    Case::must(
        "udp-scrape-keeps-order-and-fields",
        "BEP 15, \"Scrape\"",
        "A scrape reply gives seeders, completed and leechers of each torrent in the order of the request.",
        keeps_order_and_fields,
    )
    .with_info_hashes(3),
    Case::must(
        "udp-scrape-of-any-size-is-answered",
        "BEP 15, \"Scrape\"",
        "A scrape of any number of torrents from 1 to 74 is answered, and the entries match the torrents of the request in order.",
        any_size_is_answered,
    )
    .with_info_hashes(HASHES_MAX),
    Case::should(
        "udp-scrape-of-74-is-complete",
        "BEP 15, \"Scrape\"",
        "The reply to a scrape of any number of torrents from 1 to 74 covers all of them.",
        all_are_told,
    )
    .with_info_hashes(HASHES_MAX),
    Case::must(
        "udp-scrape-unknown-is-zeros",
        "BEP 15, \"Scrape\"",
        "A torrent without peers has an entry of zeros, because the position of an entry identifies its torrent.",
        unknown_is_zeros,
    )
    .with_info_hashes(3),
    Case::should(
        "udp-scrape-repeated-is-answered-each-time",
        "BEP 15, \"Scrape\"",
        "An info hash that a scrape repeats is answered at each of its positions.",
        repeated_is_answered_each_time,
    )
    .with_info_hashes(2),
    Case::should(
        "udp-scrape-too-large-lines-up",
        "BEP 15, \"Scrape\"",
        "A scrape of more torrents than the tracker answers gets the first of them, an error, or silence.",
        too_large_lines_up,
    ),
    Case::should(
        "udp-scrape-ignores-a-partial-hash",
        "BEP 15, \"Extensions\"",
        "Bytes after the last whole info hash of a scrape are ignored.",
        ignores_a_partial_hash,
    ),
    Case::should(
        "udp-scrape-of-nothing-gets-nothing",
        "BEP 15, \"Scrape\"",
        "A scrape without an info hash gets no counts, because this protocol has no full scrape.",
        of_nothing_gets_nothing,
    ),
];

fn layout(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let id = client.connection_id()?;
    for count in [1, 2] {
        for transaction_id in [0, u32::MAX, context.random()] {
            let reply = client.request_any(&scrape(id, transaction_id, &context.hashes(count)))?.bytes;
            let is_right = u32_at(&reply, 0) == Some(SCRAPE)
                && u32_at(&reply, 4) == Some(transaction_id)
                && reply.len() == 8 + 12 * count;
            ensure(
                is_right,
                format!("action 2, transaction id {transaction_id:#x}, {} bytes", 8 + 12 * count),
                describe::reply(&reply, context.peer_bytes()),
            )?;
        }
    }
    Ok(())
}

/// Puts two seeders into the first torrent, one leecher into the second, and one of each into the third. The seeder of the
/// third is a download, which another case checks: here the tracker may also count none.
fn keeps_order_and_fields(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let [one, two, three] = [context.hash(0), context.hash(1), context.hash(2)];
    let before = client.scrape(&[one, two, three])?;
    client.announce_all(&[1001, 1002].map(|port| Announce::seeder(one, port)))?;
    client.announce(&Announce::leecher(two, 1003))?;
    client.announce(&Announce::leecher(three, 1004))?;
    client.announce(&Announce::leecher(three, 1005))?;
    client.announce(&Announce::seeder(three, 1005).with_event(COMPLETED))?;
    let completed = |index: usize| before.get(index).map_or(0, |counts| counts.completed);
    let expected = |downloads| {
        [
            Counts { seeders: 2, completed: completed(0), leechers: 0 },
            Counts { seeders: 0, completed: completed(1), leechers: 1 },
            Counts { seeders: 1, completed: completed(2) + downloads, leechers: 1 },
        ]
    };
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let seen = client.scrape(&order.map(|index| context.hash(index)))?;
        let [counted, uncounted] = [expected(1), expected(0)].map(|all| order.map(|index| all[index]));
        ensure(
            seen == counted || seen == uncounted,
            format!("{counted:?}"),
            format!("{seen:?} for the order {order:?}"),
        )?;
    }
    Ok(())
}

/// Returns whether each entry belongs to the torrent at its position, if each torrent with an odd index has one seeder.
fn lines_up(entries: &[Counts]) -> bool {
    (0_u32..).zip(entries).all(|(number, counts)| (counts.seeders, counts.leechers) == (number % 2, 0))
}

fn any_size_is_answered(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hashes = context.hashes(HASHES_MAX);
    let odd = hashes.iter().skip(1).step_by(2);
    client.announce_all(&odd.map(|&hash| Announce::seeder(hash, 1001)).collect::<Vec<_>>())?;
    let id = client.connection_id()?;
    for count in 1..=HASHES_MAX {
        let reply = client.request(&scrape(id, context.random(), &hashes[..count]))?;
        let entries = read_scraped(&reply);
        let is_right = entries
            .is_some_and(|entries| !entries.is_empty() && entries.len() <= count && lines_up(&entries));
        ensure(
            is_right || (count > 1 && u32_at(&reply, 0) == Some(ERROR)),
            format!("counts that line up with the {count} torrents of the request"),
            describe::reply(&reply, context.peer_bytes()),
        )?;
    }
    Ok(())
}

fn all_are_told(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hashes = context.hashes(HASHES_MAX);
    let id = client.connection_id()?;
    for count in 1..=HASHES_MAX {
        let reply = client.request(&scrape(id, context.random(), &hashes[..count]))?;
        let entries = read_scraped(&reply).map(|entries| entries.len());
        ensure(
            entries == Some(count),
            format!("{count} entries"),
            describe::reply(&reply, context.peer_bytes()),
        )?;
    }
    Ok(())
}

fn unknown_is_zeros(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    client.announce(&Announce::seeder(context.hash(1), 1001))?;
    let reply = client.request(&scrape(client.connection_id()?, context.random(), &context.hashes(3)))?;
    let seen = read_scraped(&reply).unwrap_or_default();
    let seen: Vec<(u32, u32)> = seen.iter().map(|counts| (counts.seeders, counts.leechers)).collect();
    ensure(
        seen == [(0, 0), (1, 0), (0, 0)],
        "three entries, with a seeder in the second torrent only",
        describe::reply(&reply, context.peer_bytes()),
    )
}

fn repeated_is_answered_each_time(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let [one, other] = [context.hash(0), context.hash(1)];
    client.announce(&Announce::leecher(one, 1001))?;
    let reply =
        client.request(&scrape(client.connection_id()?, context.random(), &[one, other, one, one]))?;
    let seen = read_scraped(&reply).unwrap_or_default();
    let seen: Vec<u32> = seen.iter().map(|counts| counts.leechers).collect();
    ensure(
        seen == [1, 0, 1, 1],
        "four entries, with a leecher in all but the second",
        describe::reply(&reply, context.peer_bytes()),
    )
}

fn too_large_lines_up(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    client.announce(&Announce::seeder(hash, 1001))?;
    for count in [75, 100] {
        let packet = scrape(client.connection_id()?, context.random(), &vec![hash; count]);
        for reply in client.send_and_collect(&[packet])? {
            let entries = read_scraped(&reply.bytes);
            let is_right = entries.is_some_and(|entries| {
                entries.len() <= count
                    && entries.iter().all(|entry| (entry.seeders, entry.leechers) == (1, 0))
            });
            ensure(
                is_right || u32_at(&reply.bytes, 0) == Some(ERROR),
                format!("at most {count} entries with a seeder each, an error, or silence"),
                describe::reply(&reply.bytes, context.peer_bytes()),
            )?;
        }
    }
    Ok(())
}

fn ignores_a_partial_hash(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    client.announce(&Announce::seeder(context.hash(0), 1001))?;
    for bytes in [1, 19] {
        let whole = scrape(client.connection_id()?, context.random(), &context.hashes(1));
        let reply = client.request(&[whole, vec![0; bytes]].concat())?;
        let seen = read_scraped(&reply).unwrap_or_default();
        ensure(
            seen.len() == 1 && lines_up(&[Counts::default(), seen[0]]),
            format!("one entry, with a seeder, for one info hash and {bytes} extra bytes"),
            describe::reply(&reply, context.peer_bytes()),
        )?;
    }
    Ok(())
}

fn of_nothing_gets_nothing(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    client.announce(&Announce::seeder(context.hash(0), 1001))?;
    let id = client.connection_id()?;
    let empty = scrape(id, context.random(), &[]);
    let partial = [scrape(id, context.random(), &[]), vec![0; 19]].concat();
    for reply in client.send_and_collect(&[empty, partial])? {
        ensure(
            u32_at(&reply.bytes, 0) == Some(ERROR)
                || (u32_at(&reply.bytes, 0) == Some(SCRAPE) && reply.bytes.len() == 8),
            "an error, silence, or a scrape reply without entries",
            describe::reply(&reply.bytes, context.peer_bytes()),
        )?;
    }
    Ok(())
}
