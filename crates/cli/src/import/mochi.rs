//! mochi: YAML with a list of frontends and hooks, each with a name and a table `config`.

use super::address::Protocol;
use super::chihaya::{
    DATABASE, HTTP, JWT, NO_HOOKS, OTHER_HOOK, REQUESTS, STORAGE, TOP, UDP, VARIATION, take_certificate,
    take_clients, take_keys, take_routes,
};
use super::document::Document;
use super::rule::Rule::{self, Key, NoCounterpart, NotNeeded, Off, Secret};
use super::rule::{Rules, apply, boolean};
use super::translation::{Omission, Translation};
use super::{ODD, Source, some_are_known};

/// The address of a frontend that names none.
const ADDRESS: &str = ":6969";

/// Keys of both frontends that chihaya does not have.
const FRONTEND: [(&str, Rule); 4] = [
    ("reuse_port", NotNeeded("each worker of Shoal has a socket of its own")),
    ("workers", NotNeeded("Shoal has a worker for each processor (workers.count), and http.connections_max")),
    ("tls", Off("the frontend serves plain HTTP", ODD)),
    ("ping_routes", NoCounterpart("http://127.0.0.1:6970/health tells whether every worker answers")),
];

/// Keys of the hook "jwt" that chihaya does not have.
const TOKENS: [(&str, Rule); 3] = [
    (
        "header",
        NoCounterpart(
            "clients show their token in the URL, as /announce?jwt=TOKEN or /announce/TOKEN (docs/tokens.md)",
        ),
    ),
    ("handle_announce", NotNeeded("every announce needs a token once tokens.jwks is set (tokens.required)")),
    ("handle_scrape", Key("tokens.scrapes", boolean)),
];

/// Keys of the hook "client approval" that are left.
const CLIENTS: [(&str, Rule); 2] =
    [("client_id_list", Off("the list is empty", ODD)), ("invert", NotNeeded("it was read with the list"))];

/// Keys of the hook "torrent approval" that are left.
const APPROVAL: [(&str, Rule); 5] = [
    ("storage.*", NotNeeded("Shoal reads the list from its file, and again when that changes")),
    ("configuration.hash_list", Off("the list is empty", ODD)),
    ("configuration.period", NotNeeded("Shoal notices a change of a directory at once")),
    ("configuration.invert", NotNeeded("it was read with the list")),
    (
        "configuration.storage_ctx",
        NotNeeded("Shoal reads the list from its file, and again when that changes"),
    ),
];

pub(super) fn import(mut document: Document, translation: &mut Translation) -> Result<(), String> {
    let keys = document.len();
    for table in document.tables("frontends") {
        take_frontend(&mut document, &table, translation);
    }
    if let Some(address) = document.take_text("metrics_addr") {
        translation.control("metrics_addr", &address);
    }
    let hooks: Vec<String> =
        ["prehooks", "posthooks"].iter().flat_map(|list| document.tables(list)).collect();
    for table in hooks {
        take_hook(&mut document, &table, translation);
    }
    let taken = keys - document.len();
    let rules: [Rules<'_>; 15] = [
        ("", &TOP),
        ("", &NO_HOOKS),
        ("frontends[http].config.", &FRONTEND),
        ("frontends[http].config.", &REQUESTS),
        ("frontends[http].config.", &HTTP),
        ("frontends[udp].config.", &FRONTEND),
        ("frontends[udp].config.", &REQUESTS),
        ("frontends[udp].config.", &UDP),
        ("storage.", &STORAGE),
        ("storage.", &[("config.*", Secret(DATABASE))]),
        ("prehooks[jwt].config.", &JWT),
        ("prehooks[jwt].config.", &TOKENS),
        ("prehooks[interval variation].config.", &VARIATION),
        ("prehooks[client approval].config.", &CLIENTS),
        ("prehooks[torrent approval].config.", &APPROVAL),
    ];
    let known = apply(&mut document, Source::Mochi, &rules, translation);
    translation.assume("announce.peer_timeout_s", 1800, "the default of mochi");
    some_are_known(taken + known, keys)
}

fn take_frontend(document: &mut Document, table: &str, translation: &mut Translation) {
    let name = document.name(table).unwrap_or_default().to_owned();
    document.take(&format!("{table}.name"));
    let prefix = format!("{table}.config.");
    let protocol = match name.as_str() {
        "udp" => Protocol::Udp,
        "http" if document.take_true(&format!("{prefix}tls")) => {
            take_certificate(document, &prefix, translation);
            Protocol::Tls
        }
        "http" => Protocol::Http,
        _ => {
            return translation.note(
                Omission::Unknown,
                &format!("{table} = {name:?}"),
                "a frontend is http or udp",
            );
        }
    };
    let key = format!("{prefix}addr");
    match document.take_text(&key) {
        Some(address) => translation.listen(protocol, &key, &address, true),
        None => translation.listen_by_default(protocol, ADDRESS, true),
    }
    if document.take_true(&format!("{prefix}filter_private_ips")) {
        translation.take(&format!("{prefix}filter_private_ips"), "address.private", "refuse");
    }
    document.take(&format!("{prefix}filter_private_ips"));
    take_routes(document, &prefix, translation);
}

fn take_hook(document: &mut Document, table: &str, translation: &mut Translation) {
    let name = document.name(table).unwrap_or_default().to_owned();
    document.take(&format!("{table}.name"));
    let config = format!("{table}.config.");
    match name.as_str() {
        "jwt" => take_keys(document, &format!("{config}jwk_set_url"), translation),
        "client approval" => {
            // The example of mochi says that `invert` permits the clients, but the program refuses them.
            let is_allowed = !document.take_true(&format!("{config}invert"));
            let path = format!("{config}client_id_list");
            let ids = document.take_texts(&path);
            take_clients(&path, &ids, is_allowed, translation);
        }
        "torrent approval" => take_torrents(document, &config, translation),
        "interval variation" => {}
        _ => translation.note(Omission::NoCounterpart, &format!("{table} = {name:?}"), OTHER_HOOK),
    }
}

fn take_torrents(document: &mut Document, config: &str, translation: &mut Translation) {
    let is_allowed = !document.take_true(&format!("{config}configuration.invert"));
    let source = document.take_text(&format!("{config}initial_source")).unwrap_or_default();
    match source.as_str() {
        "list" => {
            let path = format!("{config}configuration.hash_list");
            let hashes = document.take_texts(&path);
            if !hashes.is_empty() {
                translation.list_inline(&path, is_allowed, hashes);
            }
        }
        "directory" => {
            let path = format!("{config}configuration.path");
            if let Some(directory) = document.take_text(&path) {
                let key = if is_allowed { "access.torrents_allow" } else { "access.torrents_deny" };
                translation.add(&path, key, &directory);
            }
        }
        _ => {
            let what = format!("{config}initial_source = {source:?}");
            let advice = "Shoal reads files, directories and URLs; until access.torrents_allow or access.torrents_deny names \
                          one, it serves all torrents";
            translation.warn(&format!("{what} has no counterpart: {advice}"));
            translation.note(Omission::NoCounterpart, &what, advice);
        }
    }
    // The path is a part of the other sources' examples, and the rest belongs to S3.
    document.take(&format!("{config}configuration.path"));
}
