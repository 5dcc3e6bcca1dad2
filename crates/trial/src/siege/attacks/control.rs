//! Attacks on the control listener.

mod bodies;
pub(super) mod operator;
mod readers;
mod rights;

use std::fs;
use std::io::{Read, Write};

use anyhow::Result;

use self::operator::TOKENS;
use super::holding::{Holding, Reading};
use crate::measure::count;
use crate::siege::address::hostile_v4;
use crate::siege::attack::{Attack, Layer, Limits, Setting};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::HttpClient;
use shoal_testkit::client::tcp;

const HEALTHY: &str = "/health stays 200, and honest clients are answered";

const OPERATOR_SERVED: &str =
    "the operator and honest clients are answered, and memory stays within its bound";

/// Tokens of both roles.
const WITH_TOKENS: &[Setting] = &[TOKENS];

/// Everything that a token can change.
const WITH_LISTS: &[Setting] =
    &[TOKENS, ("access.bans_file", "TRACKER_FOLDER/bans"), ("access.torrents_deny", "TRACKER_FOLDER/deny")];

const fn control(name: &'static str, tries: &'static str, run: fn(&Context<'_>) -> Result<()>) -> Attack {
    Layer::Control.attack(name, tries, OPERATOR_SERVED, run)
}

pub(super) const ATTACKS: &[Attack] = &[
    Layer::Control.attack(
        "rebinding",
        "a web page whose name resolves to the operator's address reads the metrics (DNS rebinding)",
        "requests for names that are not the operator's are refused",
        rebinding,
    ),
    Layer::Control.attack(
        "slow-clients",
        "two hundred connections send their request byte by byte",
        HEALTHY,
        |context| {
            let target = context.tracker.control();
            let sources = vec![hostile_v4(1)];
            let reading = Reading::Everything;
            Holding { target, sources, connections: 200, opening: b"GET /", trickle: b"health", reading }
                .run(context);
            Ok(())
        },
    ),
    Layer::Control.attack("huge-heads", "heads that never end", HEALTHY, huge_heads),
    Layer::Control.attack("metrics-flood", "the metrics are requested without a pause", HEALTHY, metrics),
    control("slow-readers-of-the-page", "a thousand connections read the status page slowly", readers::page),
    control("slow-readers-of-metrics", "a thousand connections read the metrics slowly", readers::metrics),
    Attack {
        promise: "the operator and honest clients are answered, 40 feeds are open at most, and a reader misses no change",
        limits: Limits::SWARMS_STAY,
        ..control(
            "stalled-feeds",
            "a thousand readers of both feeds stop reading, then many torrents change",
            readers::stalled_feeds,
        )
    },
    control("long-polls", "a thousand connections wait for changes, and ask again", readers::long_polls),
    Attack {
        settings: WITH_LISTS,
        prepare: |folder| Ok(fs::write(folder.join("deny"), "")?),
        ..control(
            "endless-bodies",
            "bodies with a token that never end, in chunks and with a declared length",
            bodies::endless,
        )
    },
    control("slow-bodies", "a thousand connections send a large body byte by byte", bodies::slow),
    Attack {
        settings: WITH_LISTS,
        promise: "none of them is served, and the operator and honest clients are answered",
        prepare: |folder| Ok(fs::write(folder.join("deny"), "")?),
        ..control(
            "json-bombs",
            "deep, long, repeated and broken documents with a token of the role admin",
            bodies::json_bombs,
        )
    },
    control(
        "many-torrents",
        "a thousand connections ask for 10,000 torrents each, and read slowly",
        bodies::many_torrents,
    ),
    Attack {
        settings: WITH_TOKENS,
        promise: "none of them is served, and the operator and honest clients are answered",
        ..control(
            "wrong-tokens",
            "wrong tokens of all lengths from many addresses, and a token that lacks the role",
            rights::wrong_tokens,
        )
    },
    Attack {
        promise: "none of them is served, and the operator and honest clients are answered",
        ..control("forged-pages", "forged hosts and origins without a pause", rights::forged_pages)
    },
    Attack {
        settings: WITH_LISTS,
        promise: "there are 10,000 bans at most, and the operator and honest clients are answered",
        prepare: |folder| {
            fs::write(folder.join("deny"), "")?;
            rights::prepare_bans(folder)
        },
        ..control("bans-beyond-the-maximum", "bans until there are too many, and many more", rights::bans)
    },
    Attack {
        settings: WITH_TOKENS,
        promise: "announces are served after the last drain",
        finish: rights::drains,
        ..control("drain-in-a-loop", "drains that begin and are cancelled without a pause", |context| {
            context.wait_for_window();
            Ok(())
        })
    },
];

fn rebinding(context: &Context<'_>) -> Result<()> {
    for (name, headers) in [
        ("another name", "Host: evil.example\r\n"),
        ("another name with the port", "Host: evil.example:6970\r\n"),
        (
            "a page of another site",
            "Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\nOrigin: https://evil.example\r\n",
        ),
    ] {
        let mut client = HttpClient::open(hostile_v4(1), context.tracker.control(), None, TIMEOUT)?;
        let request = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        context.spend(1, count(request.len()));
        let status = client.request(request.as_bytes()).map_or(0, |response| response.status);
        context.check(format!("metrics for {name}"), status != 200, format!("status {status}"));
    }
    Ok(())
}

fn huge_heads(context: &Context<'_>) -> Result<()> {
    let head = [b"GET / HTTP/1.1\r\nHost: a\r\nA: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    while !context.is_window_over() {
        let Ok(mut stream) = tcp(hostile_v4(1), context.tracker.control(), TIMEOUT) else {
            continue;
        };
        let _ = stream.write_all(&head);
        context.spend(1, count(head.len()));
        let _ = stream.read(&mut [0; 4096]);
    }
    Ok(())
}

fn metrics(context: &Context<'_>) -> Result<()> {
    while !context.is_window_over() {
        context.spend(1, 60);
        let _ = context.tracker.request_control("/metrics", TIMEOUT);
    }
    Ok(())
}
