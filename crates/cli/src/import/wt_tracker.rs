//! wt-tracker: JSON with a list of servers, each for WebSockets with or without TLS.

use serde_json::Value;

use super::address::Protocol;
use super::document::Document;
use super::rule::Rule::{self, Key, NoCounterpart, NotNeeded, Off, Secret};
use super::rule::{Rules, apply, inverted, number};
use super::translation::Translation;
use super::{ODD, Source, some_are_known};

/// The names of uWebSockets.js for the files of TLS are rules of their own: no other tracker has these.
const SERVERS: [(&str, Rule); 14] = [
    ("server.port", NoCounterpart(ODD)),
    ("server.host", NoCounterpart(ODD)),
    ("server.key_file_name", NoCounterpart(ODD)),
    ("server.cert_file_name", NotNeeded("a server without key_file_name has no TLS")),
    (
        "server.passphrase",
        Secret(
            "Shoal reads private keys without a passphrase; `openssl pkey -in KEY -out NEW_KEY` removes it",
        ),
    ),
    ("server.dh_params_file_name", NotNeeded("TLS 1.2 and 1.3 of Shoal use elliptic curves only")),
    (
        "server.ca_file_name",
        NotNeeded("clients show no certificates; the file of the certificate has its whole chain"),
    ),
    ("server.ssl_ciphers", NotNeeded("all cipher suites of Shoal are safe today")),
    ("server.ssl_prefer_low_memory_usage", NotNeeded("docs/memory.md tells what a connection takes")),
    ("websockets.path", NotNeeded("Shoal accepts WebSockets at every path")),
    ("websockets.maxPayloadLength", NotNeeded("messages of Shoal have a fixed bound of 256 KiB")),
    ("websockets.idleTimeout", NotNeeded("pings find dead connections (webtorrent.ping_interval_s)")),
    ("websockets.compression", Off("it is off", "Shoal does not compress messages, which browsers accept")),
    (
        "websockets.maxConnections",
        Off("there is no limit", "http.connections_max limits the connections of all servers"),
    ),
];

const TRACKER: [(&str, Rule); 2] = [
    ("maxOffers", Key("webtorrent.offers_max", number)),
    ("announceInterval", Key("webtorrent.interval_s", number)),
];

const ACCESS: [(&str, Rule); 3] = [
    ("allowOrigins", NoCounterpart(ODD)),
    ("denyOrigins", Off("the list is empty", ODD)),
    ("denyEmptyOrigin", Key("webtorrent.origin_missing", inverted)),
];

pub(super) fn import(mut document: Document, translation: &mut Translation) -> Result<(), String> {
    let keys = document.len();
    translation.has_webtorrent = true;
    let servers = document.tables("servers");
    for table in &servers {
        take_server(&mut document, table, translation);
    }
    if servers.is_empty() {
        translation.listen_by_default(Protocol::Http, "0.0.0.0:8000", false);
    }
    take_origins(&mut document, "allowOrigins", "webtorrent.origins_allow", translation);
    take_origins(&mut document, "denyOrigins", "webtorrent.origins_deny", translation);
    let taken = keys - document.len();
    let rules: [Rules<'_>; 3] =
        [("servers[].", &SERVERS), ("tracker.", &TRACKER), ("websocketsAccess.", &ACCESS)];
    let known = apply(&mut document, Source::WtTracker, &rules, translation);
    translation.assume("webtorrent.interval_s", 20, "the default of wt-tracker");
    translation.assume("webtorrent.offers_max", 20, "the default of wt-tracker");
    some_are_known(taken + known, keys)
}

fn take_server(document: &mut Document, table: &str, translation: &mut Translation) {
    let paths = ["cert_file_name", "key_file_name"].map(|key| format!("{table}.server.{key}"));
    let protocol = match document.take_text(&paths[1]) {
        Some(key) => {
            let certificate = document.take_text(&paths[0]).unwrap_or_default();
            translation.certificate([&paths[0], &paths[1]], &certificate, &key);
            Protocol::Tls
        }
        None => Protocol::Http,
    };
    let path = format!("{table}.server.port");
    let port = document.take(&path);
    let host = document.take_text(&format!("{table}.server.host"));
    let is_named = port.is_some() || host.is_some();
    let host = host.unwrap_or_else(|| "0.0.0.0".to_owned());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let address = format!("{host}:{}", port.unwrap_or_else(|| Value::from(8000)));
    if is_named {
        translation.listen(protocol, &path, &address, true);
    } else {
        translation.listen_by_default(protocol, &address, true);
    }
}

fn take_origins(document: &mut Document, name: &str, key: &str, translation: &mut Translation) {
    let path = format!("websocketsAccess.{name}");
    let Some(value) = document.take(&path) else { return };
    let origins = value.as_array().into_iter().flatten();
    for origin in origins.clone().filter_map(Value::as_str) {
        translation.add(&path, key, origin);
    }
    if key == "webtorrent.origins_allow" && translation.draft.value(key).is_none() {
        translation.warn(&format!(
            "{path} permitted no page, or none that Shoal can name, but an empty {key} permits all; name those that may \
             use the tracker"
        ));
    }
}
