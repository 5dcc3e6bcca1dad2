//! The replies of the tracker as text for people. Text from outside becomes one line of printable characters.

use serde_json::Value;

use super::{Action, BanAction, ListAction};
use crate::top::numbers::{UNKNOWN, bytes, duration, utc, words};
use shoal_runtime::{clock, printable};

/// The kinds of swarms, and of rates, in the API.
const KINDS: [&str; 4] = ["total", "v4", "v6", "webtorrent"];
const RATES: [&str; 6] = ["udp", "http", "webtorrent", "udp_connect", "tcp_connect", "bad_token"];

/// Returns the reply to a command as text.
pub(super) fn show(action: &Action, reply: &Value) -> String {
    match action {
        Action::Bans { action: None | Some(BanAction::List) } => {
            bans(&[rows(&reply["bans"]), rows(&reply["cluster"])].concat())
        }
        Action::Bans { action: Some(BanAction::Add { .. }) } => bans(core::slice::from_ref(reply)),
        Action::Bans { action: Some(BanAction::Remove { .. }) } => {
            format!("the ban of {} is lifted\n", text(&reply["network"]))
        }
        Action::Drain { .. } => drain(reply),
        Action::Pause { .. } | Action::Resume { .. } => paused(rows(&reply["paused"])),
        Action::Lists { action: None | Some(ListAction::Sources) } => {
            columns(&reply["sources"], &["list", "source", "entries", "fault"], "no lists")
        }
        Action::Lists { action: Some(ListAction::Search { .. }) } => {
            columns(&reply["entries"], &["info_hash", "date", "reference", "reason", "source"], "no entries")
        }
        Action::Torrent { .. } => torrent(reply),
        Action::Top { .. } => top(rows(&reply["torrents"])),
        Action::Source { .. } => source(reply),
        Action::Snapshot => snapshot(reply),
        Action::Upgrade => upgrade(reply),
        _ => {
            let fields = reply.as_object().into_iter().flatten();
            fields.map(|(name, value)| format!("{}: {}\n", printable::line(name), text(value))).collect()
        }
    }
}

fn bans(bans: &[Value]) -> String {
    let now_unix_s = clock::unix_s();
    let rows = bans.iter().map(|ban| {
        [text(&ban["network"]), end(&ban["until_unix_s"], now_unix_s), text(&ban["by"]), text(&ban["reason"])]
    });
    table(["network", "ends", "by", "reason"], rows.collect(), "no bans")
}

/// Returns whether and how long the tracker drains, and what follows.
fn drain(reply: &Value) -> String {
    let state = ("state", text(&reply["state"]));
    if reply["state"] == "serving" {
        return lines(&[state]);
    }
    let then = match reply["then"].as_str() {
        Some("exit") => "the tracker ends",
        _ => "announces are refused until `shoal ctl drain --cancel`",
    };
    lines(&[
        state,
        ("since", number(&reply["since_unix_s"], utc)),
        ("left", number(&reply["remaining_s"], duration)),
        ("then", then.to_owned()),
    ])
}

/// Returns a table of the paused protocols and families.
fn paused(parts: &[Value]) -> String {
    let row = |part: &Value| {
        let at_restart = if part["keep"] == true { "stays" } else { "ends" };
        [
            text(&part["protocol"]),
            text(&part["family"]),
            number(&part["since_unix_s"], utc),
            text(&part["by"]),
            format!("{} min", text(&part["retry_in_minutes"])),
            at_restart.to_owned(),
            text(&part["reason"]),
        ]
    };
    let head = ["protocol", "family", "since", "by", "retry in", "at a restart", "reason"];
    table(head, parts.iter().map(row).collect(), "nothing is paused")
}

fn torrent(reply: &Value) -> String {
    let torrent = &reply["torrent"];
    let counts = KINDS.map(|kind| {
        let counts = &torrent[kind];
        let age = reply["age_s"][kind].as_u64().map_or_else(|| UNKNOWN.to_owned(), duration);
        let [seeders, leechers, completed] =
            ["seeders", "leechers", "completed"].map(|count| text(&counts[count]));
        [words(kind), seeders, leechers, completed, age]
    });
    let head = format!("info hash {}\n\n", text(&torrent["info_hash"]));
    let counts = table(["swarms", "seeders", "leechers", "completed", "age"], counts.to_vec(), "");
    if reply["peers"].is_null() {
        return head + &counts;
    }
    let peers = rows(&reply["peers"]).iter().map(|peer| {
        let address = peer["address"].as_str().map_or_else(|| words("webtorrent"), printable::line);
        let seeds = if peer["seeds"] == true { "seeder" } else { "leecher" };
        let age = peer["age_s"].as_u64().map_or_else(|| UNKNOWN.to_owned(), |age| duration(age) + " ago");
        [address, seeds.to_owned(), age]
    });
    head + &counts + "\n" + &table(["peer", "kind", "last announce"], peers.collect(), "no peers")
}

fn top(torrents: &[Value]) -> String {
    let rows = torrents.iter().map(|torrent| {
        let total = &torrent["total"];
        [text(&torrent["info_hash"]), text(&total["seeders"]), text(&total["leechers"])]
    });
    table(["info hash", "seeders", "leechers"], rows.collect(), "no torrents")
}

fn source(reply: &Value) -> String {
    let ban = &reply["ban"];
    let ban = if ban.is_null() {
        "none".to_owned()
    } else {
        let [network, by, reason] = ["network", "by", "reason"].map(|field| text(&ban[field]));
        format!("{network}, ends {}, by {by}: {reason}", end(&ban["until_unix_s"], clock::unix_s()))
    };
    let holding = |count: &str, max: &str| {
        let holdings = &reply["holdings"];
        match holdings[max].as_u64() {
            None | Some(0) => "not limited".to_owned(),
            Some(max) => format!("{} of {max}", text(&holdings[count])),
        }
    };
    let facts = [
        ("address", text(&reply["address"])),
        ("served", text(&reply["network_served"])),
        ("exempt", text(&reply["exempt"])),
        ("ban", ban),
        ("peers", holding("peers", "peers_max")),
        ("torrents", holding("torrents", "torrents_max")),
    ];
    let rates = RATES.map(|rate| [words(rate), text(&reply["rates"][rate])]);
    lines(&facts) + "\n" + &table(["rate", "left"], rates.to_vec(), "")
}

fn snapshot(reply: &Value) -> String {
    lines(&[
        ("begun", number(&reply["begun_unix_s"], utc)),
        ("took", number(&reply["duration_ms"], |ms| crate::top::numbers::time(ms as f64 / 1000.0))),
        ("size", number(&reply["bytes"], |size| bytes(size as f64))),
        ("swarms", text(&reply["swarms"])),
        ("peers", text(&reply["peers"])),
    ])
}

fn upgrade(reply: &Value) -> String {
    let swarms = if reply["in_memory"] == true { "in the same memory" } else { "from a snapshot" };
    lines(&[
        ("process", text(&reply["pid"])),
        ("pause", format!("{} ms", text(&reply["gap_ms"]))),
        ("swarms", swarms.to_owned()),
    ])
}

/// Returns a number in the format of `shown`.
fn number(value: &Value, shown: fn(u64) -> String) -> String {
    value.as_u64().map_or_else(|| UNKNOWN.to_owned(), shown)
}

/// Returns the end of a ban.
fn end(until_unix_s: &Value, now_unix_s: u64) -> String {
    match until_unix_s.as_u64() {
        None => "never".to_owned(),
        Some(until_unix_s) if until_unix_s <= now_unix_s => "now".to_owned(),
        Some(until_unix_s) => format!("in {}", duration(until_unix_s - now_unix_s)),
    }
}

fn rows(rows: &Value) -> &[Value] {
    rows.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns some fields of each document as a table.
fn columns<const N: usize>(documents: &Value, fields: &[&str; N], none: &str) -> String {
    let rows = rows(documents).iter().map(|document| fields.map(|field| text(&document[field])));
    table(fields.map(|field| field.replace('_', " ")).each_ref().map(String::as_str), rows.collect(), none)
}

/// Returns facts, one per line.
pub(crate) fn lines(facts: &[(&str, String)]) -> String {
    facts.iter().map(|(name, fact)| format!("{name}: {fact}\n")).collect()
}

/// Returns rows under a head, with aligned columns, or `none` if there are no rows.
pub(crate) fn table<const N: usize>(head: [&str; N], mut rows: Vec<[String; N]>, none: &str) -> String {
    if rows.is_empty() {
        return format!("{none}\n");
    }
    rows.insert(0, head.map(str::to_owned));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = core::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => printable::line(text),
        Value::Null => "-".to_owned(),
        Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(" "),
        Value::Number(number) => number.to_string(),
        Value::Object(_) => printable::json(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Text that a terminal would obey.
    const EVIL: &str = "\u{1b}[31mred\u{7}\u{202e}";

    #[test]
    fn the_end_of_a_ban_is_told_from_now() {
        for (until_unix_s, shown) in
            [(json!(null), "never"), (json!(4540), "in 59 min"), (json!(1000), "now"), (json!(7), "now")]
        {
            assert_eq!(end(&until_unix_s, 1000), shown);
        }
    }

    #[test]
    fn a_drain_is_told_in_words() {
        let action = Action::Drain { wait: 60, stay: false, cancel: false, status: true };
        assert_eq!(show(&action, &json!({ "state": "serving", "then": null })), "state: serving\n");
        let reply = json!({ "state": "draining", "since_unix_s": 86_399, "remaining_s": 90, "then": "exit" });
        let shown =
            "state: draining\nsince: 1970-01-01 23:59:59 UTC\nleft: 1 min 30 s\nthen: the tracker ends\n";
        assert_eq!(show(&action, &reply), shown);
    }

    #[test]
    fn pauses_are_a_table_with_their_words() {
        let action = Action::Resume { parts: Vec::new() };
        assert_eq!(show(&action, &json!({ "paused": [] })), "nothing is paused\n");
        let part = json!({
            "protocol": "udp", "family": "v6", "reason": "a\nb", "retry_in_minutes": 30, "by": "kim", "since_unix_s": 86_399,
            "keep": true,
        });
        let shown = show(&action, &json!({ "paused": [part] }));
        let words: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(words[..2], ["udp", "v6"]);
        assert_eq!(words[words.len() - 5..words.len() - 1], ["kim", "30", "min", "stays"], "{shown}");
        assert_eq!(shown.lines().count(), 2, "{shown}");
    }

    #[test]
    fn a_torrent_is_shown_with_the_addresses_of_its_peers() {
        let action = Action::Torrent { info_hash: String::new(), peers: 2 };
        let reply = json!({
            "torrent": { "info_hash": "0101", "v4": { "seeders": 1, "leechers": 0, "completed": 12 } },
            "age_s": { "v4": 3600, "v6": null },
            "peers": [
                { "address": "192.0.2.1:6881", "seeds": true, "age_s": 12 },
                { "address": null, "seeds": false, "age_s": 3 },
            ],
        });
        let shown = show(&action, &reply);
        for line in [
            "info hash 0101",
            "IPv4        1        0         12         1 h",
            "192.0.2.1:6881  seeder   12 s ago",
            "WebTorrent      leecher  3 s ago",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
        }
        assert!(show(&action, &json!({ "peers": [] })).ends_with("no peers\n"));
    }

    #[test]
    fn any_reply_is_printable() {
        let replies = [
            json!(EVIL),
            json!([EVIL]),
            json!({ EVIL: { EVIL: EVIL }, "address": EVIL, "rates": { "udp": EVIL }, "ban": { "reason": EVIL } }),
            json!({ "torrent": { "info_hash": EVIL }, "peers": [{ "address": EVIL, "age_s": u64::MAX }] }),
            json!({ "bans": [{ "network": EVIL, "until_unix_s": u64::MAX }], "begun_unix_s": u64::MAX }),
            json!({ "sources": [{ "source": EVIL }], "entries": [{ "reason": EVIL }] }),
        ];
        let actions = [
            Action::Bans { action: None },
            Action::Lists { action: None },
            Action::Torrent { info_hash: String::new(), peers: 2 },
            Action::Top { max: 1 },
            Action::Source { address: "::1".parse().unwrap() },
            Action::Reload,
            Action::Snapshot,
        ];
        for (action, reply) in
            actions.iter().flat_map(|action| replies.iter().map(move |reply| (action, reply)))
        {
            let shown = show(action, reply);
            assert!(shown.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{shown:?}");
        }
    }
}
