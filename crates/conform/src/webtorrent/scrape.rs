//! Scrapes (BEP 48, "Tracker scrape", as JSON).

use serde_json::Value;

use super::message::{Fields, Kind, Message, binary, escaped};
use super::socket::Socket;
use crate::case::{Case, Checked, ensure};
use crate::context::Context;

pub(super) const CASES: &[Case] = &[
    Case::must(
        "ws-scrape-layout",
        "BEP 48, \"Tracker scrape\"; practice: clients look for action and files",
        "A scrape reply has the action scrape, and files with an entry for the torrent under its info hash.",
        layout,
    ),
    Case::must(
        "ws-scrape-of-one-and-of-many",
        "practice: clients send a string for one torrent, and an array for several",
        "A scrape of a string, of an array of one, and of an array of several is answered with all of them.",
        one_and_many,
    )
    .with_info_hashes(5),
    Case::must(
        "ws-scrape-counts-are-right",
        "BEP 48, \"Tracker scrape\"",
        "A scrape reply gives complete and incomplete of each torrent.",
        counts_are_right,
    )
    .with_info_hashes(2),
    Case::should(
        "ws-scrape-has-downloaded",
        "BEP 48, \"Tracker scrape\"",
        "A scrape reply gives downloaded of each torrent.",
        has_downloaded,
    ),
    Case::should(
        "ws-scrape-of-unknown-is-zeros",
        "practice: a client that scrapes a torrent expects an entry",
        "A torrent without peers has an entry of zeros.",
        unknown_is_zeros,
    ),
    Case::must(
        "ws-scrape-joins-nothing",
        "BEP 48, \"Tracker scrape\"",
        "A client that scrapes a torrent is not counted in it.",
        joins_nothing,
    ),
    Case::should(
        "ws-scrape-of-everything-is-answered",
        "BEP 48, \"Tracker scrape\": without info hashes it is of all torrents",
        "A scrape without info_hash gets a scrape reply, which may be empty, or a failure reason.",
        of_everything,
    )
    .with_info_hashes(0),
    Case::should(
        "ws-scrape-of-a-bad-hash-gets-no-counts",
        "practice: an info hash has 20 bytes",
        "A scrape of something that is not an info hash gets a reply without entries or a failure reason.",
        of_a_bad_hash,
    )
    .with_info_hashes(0),
];

fn scrape(socket: &mut Socket<'_>, info_hash: &str) -> Checked<Message> {
    socket.send_text(&Fields::scrape(info_hash).text());
    socket.expect_kind(Kind::Scrape)
}

fn layout(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    socket.announce(&Fields::announce(hash, 1))?;
    for written in [binary(&hash), escaped(&hash)] {
        let reply = scrape(&mut socket, &written)?;
        let is_entry = reply.file(&hash).is_some_and(|file| {
            file.get("complete").is_some_and(Value::is_u64)
                && file.get("incomplete").is_some_and(Value::is_u64)
        });
        ensure(is_entry, "files with complete and incomplete of the info hash", reply.describe())?;
    }
    Ok(())
}

fn one_and_many(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hashes = context.hashes(5);
    for &hash in &hashes {
        socket.announce(&Fields::announce(hash, 1))?;
    }
    for asked in [&hashes[..1], &hashes[..2], &hashes] {
        let list: Vec<String> = asked.iter().map(|hash| binary(hash)).collect();
        let reply = scrape(&mut socket, &format!("[{}]", list.join(",")))?;
        let is_whole = asked.iter().all(|hash| reply.file(hash).is_some());
        let files = reply.value("files").and_then(Value::as_object).map_or(0, serde_json::Map::len);
        ensure(is_whole && files == asked.len(), format!("the {} torrents", asked.len()), reply.describe())?;
    }
    scrape(&mut socket, &binary(&hashes[4])).map(drop)
}

fn counts_are_right(context: &Context<'_>) -> Checked {
    let mut sockets = Socket::open_many(context, 3)?;
    let [first, second] = [context.hash(0), context.hash(1)];
    sockets[0].announce(&Fields::announce(first, 1))?;
    sockets[1].announce(&Fields::announce(first, 2))?;
    sockets[2].announce(&Fields::seeder(first, 3))?;
    sockets[2].announce(&Fields::seeder(second, 3))?;
    sockets[0].ensure_counts(first, 1, 2)?;
    sockets[0].ensure_counts(second, 1, 0)
}

fn has_downloaded(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    socket.announce(&Fields::announce(hash, 1))?;
    let file = socket.scrape_one(hash)?;
    ensure(file.get("downloaded").is_some_and(Value::is_u64), "downloaded", file.to_string())
}

fn unknown_is_zeros(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    let hash = context.hash(0);
    let file = socket.scrape_one(hash)?;
    let is_zero = |key: &str| file.get(key).and_then(Value::as_u64) == Some(0);
    ensure(is_zero("complete") && is_zero("incomplete"), "an entry of zeros", file.to_string())
}

fn joins_nothing(context: &Context<'_>) -> Checked {
    let mut sockets = Socket::open_many(context, 2)?;
    let hash = context.hash(0);
    sockets[0].announce(&Fields::seeder(hash, 1))?;
    for _ in 0..2 {
        sockets[1].ensure_counts(hash, 1, 0)?;
    }
    Ok(())
}

/// Sends a message and returns the scrape reply or the failure reason.
fn reply_or_failure(socket: &mut Socket<'_>, fields: &Fields) -> Checked<Message> {
    socket.send_text(&fields.text());
    socket.expect("a scrape reply or a failure reason", |message| {
        matches!(message.kind(), Kind::Scrape | Kind::Failure)
    })
}

fn of_everything(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    for fields in [Fields::action("scrape"), Fields::scrape("null")] {
        reply_or_failure(&mut socket, &fields)?;
    }
    Ok(())
}

fn of_a_bad_hash(context: &Context<'_>) -> Checked {
    let mut socket = Socket::open(context)?;
    for written in [binary(&[b'x'; 19]), binary(&[b'x'; 21]), "\"\"".to_owned(), "7".to_owned()] {
        let reply = reply_or_failure(&mut socket, &Fields::scrape(&written))?;
        let files = reply.value("files").and_then(Value::as_object).map_or(0, serde_json::Map::len);
        ensure(files == 0, format!("no files for info_hash {written}"), reply.describe())?;
    }
    Ok(())
}
