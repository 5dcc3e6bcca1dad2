//! chihaya: YAML below the key `chihaya`. mochi, a fork of it, shares most of the rules.

use super::address::Protocol;
use super::document::Document;
use super::rule::Rule::{self, Key, NoCounterpart, NotNeeded, Off, Secret};
use super::rule::{Rules, apply, go_seconds, number, shown, text};
use super::translation::{Omission, Translation};
use super::{ODD, Source, some_are_known};

/// Intervals.
pub(super) const TOP: [(&str, Rule); 3] = [
    ("announce_interval", Key("announce.interval_s", go_seconds)),
    ("min_announce_interval", Key("announce.min_interval_s", go_seconds)),
    ("metrics_addr", Off("Shoal serves metrics at http://127.0.0.1:6970/metrics", ODD)),
];

/// Keys of requests, at the frontends, and in early versions at the top.
pub(super) const REQUESTS: [(&str, Rule); 5] = [
    ("allow_ip_spoofing", Off(SOURCE, SOURCE)),
    ("max_numwant", Key("announce.numwant_max", number)),
    ("default_numwant", Key("announce.numwant_default", number)),
    ("max_scrape_infohashes", NotNeeded("a scrape may name as many torrents as a reply has room for")),
    (
        "enable_request_timing",
        Off("it is off", "/metrics tells how busy each worker is, not the time of each request"),
    ),
];

const SOURCE: &str =
    "Shoal always takes the address that a request comes from, never one that the client claims";

/// Keys of the HTTP frontend.
pub(super) const HTTP: [(&str, Rule); 9] = [
    ("addr", Off("plain HTTP is off", ODD)),
    ("read_timeout", Key("http.request_timeout_s", go_seconds)),
    ("write_timeout", Key("http.send_timeout_s", go_seconds)),
    ("idle_timeout", Key("http.idle_timeout_s", go_seconds)),
    (
        "enable_keepalive",
        NotNeeded("Shoal keeps a connection open until the client closes it or is idle for too long"),
    ),
    ("https_addr", Off("HTTPS is off", ODD)),
    ("tls_cert_path", Off("HTTPS is off", NO_TLS)),
    ("tls_key_path", Off("HTTPS is off", NO_TLS)),
    ("real_ip_header", Off("no proxy names clients", ODD)),
];

const NO_TLS: &str = "HTTPS is off, or it lacks the other file; tls.listen switches it on";

/// Keys of the UDP frontend.
pub(super) const UDP: [(&str, Rule); 2] = [
    ("max_clock_skew", NotNeeded("a connection id of Shoal is valid for two minutes or more")),
    (
        "private_key",
        Secret(
            "connection ids of other trackers are not valid, so clients fetch new ones by themselves; trackers that accept \
             each other's ids share connection_id.key (`openssl rand -hex 16`)",
        ),
    ),
];

/// Keys of the storage.
pub(super) const STORAGE: [(&str, Rule); 9] = [
    ("name", NotNeeded("Shoal keeps swarms in memory, and on disk as well if state.path is set")),
    (
        "config.gc_interval",
        NotNeeded("Shoal removes old peers all the time, from one part of the store after the other"),
    ),
    ("config.peer_lifetime", Key("announce.peer_timeout_s", go_seconds)),
    ("config.shard_count", NotNeeded("Shoal chooses the number of shards")),
    ("config.prometheus_reporting_interval", NotNeeded("metrics are made when they are read")),
    ("config.redis_broker", Secret(DATABASE)),
    ("config.redis_read_timeout", NoCounterpart(DATABASE)),
    ("config.redis_write_timeout", NoCounterpart(DATABASE)),
    ("config.redis_connect_timeout", NoCounterpart(DATABASE)),
];

/// Instead of a database for swarms.
pub(super) const DATABASE: &str = "Shoal keeps swarms in its own memory; state.path keeps them over a restart, and several \
                                   nodes share them over NATS (docs/cluster.md)";

/// Empty lists of hooks.
pub(super) const NO_HOOKS: [(&str, Rule); 2] =
    [("prehooks", Off("there are no hooks", ODD)), ("posthooks", Off("there are no hooks", ODD))];

/// Keys of the hook "jwt".
pub(super) const JWT: [(&str, Rule); 4] = [
    ("issuer", Key("tokens.issuer", text)),
    ("audience", Key("tokens.audience", text)),
    ("jwk_set_url", Off("there are no keys", ODD)),
    ("jwk_set_update_interval", NotNeeded("Shoal fetches the keys of tokens every five minutes")),
];

/// Keys of the hook "interval variation".
pub(super) const VARIATION: [(&str, Rule); 3] = [
    ("max_increase_delta", Key("announce.interval_jitter_s", number)),
    ("modify_response_probability", NotNeeded("Shoal spreads every interval")),
    ("modify_min_interval", NotNeeded("Shoal spreads only the interval, which is never below the minimum")),
];

/// Keys of the hooks "client approval" and "torrent approval" that are left: empty lists.
const APPROVAL: [(&str, Rule); 2] =
    [("whitelist", Off("the list is empty", ODD)), ("blacklist", Off("the list is empty", ODD))];

/// Instead of other hooks.
pub(super) const OTHER_HOOK: &str = "Shoal has no hooks; docs/README.md names its own rules for torrents, networks, clients and \
                                     tokens";

pub(super) fn import(mut document: Document, translation: &mut Translation) -> Result<(), String> {
    let keys = document.len();
    take_http(&mut document, translation);
    if let Some(address) = document.take_text("chihaya.udp.addr") {
        translation.listen(Protocol::Udp, "chihaya.udp.addr", &address, true);
    }
    for key in ["chihaya.metrics_addr", "chihaya.prometheus_addr"] {
        if let Some(address) = document.take_text(key) {
            translation.control(key, &address);
        }
    }
    let hooks: Vec<String> =
        ["chihaya.prehooks", "chihaya.posthooks"].iter().flat_map(|list| document.tables(list)).collect();
    for table in hooks {
        take_hook(&mut document, &table, translation);
    }
    let taken = keys - document.len();
    let rules: [Rules<'_>; 13] = [
        ("chihaya.", &TOP),
        ("chihaya.", &NO_HOOKS),
        ("chihaya.", &REQUESTS),
        ("chihaya.http.", &REQUESTS),
        ("chihaya.http.", &HTTP),
        ("chihaya.udp.", &[("addr", Off("UDP is off", ODD))]),
        ("chihaya.udp.", &REQUESTS),
        ("chihaya.udp.", &UDP),
        ("chihaya.storage.", &STORAGE),
        ("chihaya.prehooks[jwt].options.", &JWT),
        ("chihaya.prehooks[interval variation].options.", &VARIATION),
        ("chihaya.prehooks[client approval].options.", &APPROVAL),
        ("chihaya.prehooks[torrent approval].options.", &APPROVAL),
    ];
    let known = apply(&mut document, Source::Chihaya, &rules, translation);
    translation.assume("announce.peer_timeout_s", 1800, "the default of chihaya");
    some_are_known(taken + known, keys)
}

fn take_http(document: &mut Document, translation: &mut Translation) {
    if let Some(address) = document.take_text("chihaya.http.addr") {
        translation.listen(Protocol::Http, "chihaya.http.addr", &address, true);
    }
    if let Some(address) = document.take_text("chihaya.http.https_addr") {
        translation.listen(Protocol::Tls, "chihaya.http.https_addr", &address, true);
        take_certificate(document, "chihaya.http.", translation);
    }
    take_routes(document, "chihaya.http.", translation);
}

/// Takes over the certificate of a frontend.
pub(super) fn take_certificate(document: &mut Document, prefix: &str, translation: &mut Translation) {
    let paths = ["tls_cert_path", "tls_key_path"].map(|key| format!("{prefix}{key}"));
    if let Some([certificate, key]) = document.take_pair([&paths[0], &paths[1]]) {
        translation.certificate([&paths[0], &paths[1]], &certificate, &key);
    }
}

/// Takes over the header of proxies and the paths of a frontend.
pub(super) fn take_routes(document: &mut Document, prefix: &str, translation: &mut Translation) {
    let header = format!("{prefix}real_ip_header");
    if let Some(name) = document.take_text(&header) {
        translation.trust_proxy(&header, &name);
    }
    for (key, usual) in [("announce_routes", "/announce"), ("scrape_routes", "/scrape")] {
        let path = format!("{prefix}{key}");
        let Some(routes) = document.take(&path) else { continue };
        let is_usual = routes.as_array().is_some_and(|routes| routes.iter().all(|route| route == usual));
        let (omission, advice) = if is_usual {
            (Omission::NotNeeded, "Shoal serves this path")
        } else {
            (
                Omission::NoCounterpart,
                "Shoal serves /announce and /scrape; a proxy in front can change other paths to these",
            )
        };
        translation.note(omission, &format!("{path} = {}", shown(&routes)), advice);
    }
}

fn take_hook(document: &mut Document, table: &str, translation: &mut Translation) {
    let name = document.name(table).unwrap_or_default().to_owned();
    document.take(&format!("{table}.name"));
    let options = format!("{table}.options.");
    match name.as_str() {
        "jwt" => take_keys(document, &format!("{options}jwk_set_url"), translation),
        "client approval" => {
            for (key, is_allowed) in [("whitelist", true), ("blacklist", false)] {
                let path = format!("{options}{key}");
                let items = document.take_texts(&path);
                take_clients(&path, &items, is_allowed, translation);
            }
        }
        "torrent approval" => {
            for (key, is_allowed) in [("whitelist", true), ("blacklist", false)] {
                let path = format!("{options}{key}");
                let items = document.take_texts(&path);
                if !items.is_empty() {
                    translation.list_inline(&path, is_allowed, items);
                }
            }
        }
        "interval variation" => {}
        _ => translation.note(Omission::NoCounterpart, &format!("{table} = {name:?}"), OTHER_HOOK),
    }
}

/// Takes over the URL of the public keys of tokens.
pub(super) fn take_keys(document: &mut Document, path: &str, translation: &mut Translation) {
    if let Some(url) = document.take_text(path) {
        translation.take(path, "tokens.jwks", url.as_str());
        translation.assume("fetch.folder", "/var/lib/shoal/fetched", "where the copies of URLs are kept");
    }
}

/// Takes over a list of clients. Their ids are six bytes of a peer id, after the hyphen if there is one.
pub(super) fn take_clients(what: &str, ids: &[String], is_allowed: bool, translation: &mut Translation) {
    let key = if is_allowed { "access.clients_allow" } else { "access.clients_deny" };
    for id in ids {
        translation.add(what, key, &format!("-{id}"));
        translation.add(what, key, id);
    }
}
