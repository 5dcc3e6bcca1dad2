//! torrust-tracker: TOML of the schema 2.0.0.

use super::address::Protocol;
use super::document::Document;
use super::rule::Rule::{self, Key, NoCounterpart, NotNeeded, Off, Secret};
use super::rule::{Rules, apply, log_level, number, shown};
use super::translation::{Omission, Translation};
use super::{ODD, Source, some_are_known};

const RULES: [(&str, Rule); 19] = [
    ("metadata.*", NotNeeded("Shoal's file has no version of its own")),
    ("logging.threshold", Key("log.level", log_level)),
    ("core.announce_policy.interval", Key("announce.interval_s", number)),
    ("core.announce_policy.interval_min", Key("announce.min_interval_s", number)),
    ("core.tracker_policy.max_peer_timeout", Key("announce.peer_timeout_s", number)),
    ("core.tracker_policy.persistent_torrent_completed_stat", Off("it is off", ODD)),
    ("core.tracker_policy.remove_peerless_torrents", NotNeeded("Shoal keeps no torrents without peers")),
    ("core.inactive_peer_cleanup_interval", NotNeeded("Shoal removes old peers all the time")),
    ("core.tracker_usage_statistics", NotNeeded("counting costs Shoal nothing")),
    ("core.database.driver", NotNeeded("Shoal needs no database")),
    ("core.database.path", Secret("Shoal needs no database; state.path names a directory for its state")),
    ("core.listed", Off("it is off", ODD)),
    ("core.private", Off("it is off", ODD)),
    ("core.private_mode.check_keys_expiration", NotNeeded("a token of Shoal has a time at which it expires")),
    ("core.net.on_reverse_proxy", Off("it is off", ODD)),
    ("http_api.bind_address", NoCounterpart(ODD)),
    (
        "http_api.access_tokens.*",
        Secret("`shoal ctl token` makes tokens for control.tokens (docs/control.md)"),
    ),
    (
        "http_api.tsl_config.*",
        NoCounterpart("control.certificate and control.private_key serve the API over HTTPS"),
    ),
    ("health_check_api.bind_address", NotNeeded("the control listener serves /health")),
];

const LISTENER: [(&str, Rule); 5] = [
    ("bind_address", NoCounterpart(ODD)),
    ("cookie_lifetime*", NotNeeded("a connection id of Shoal is valid for two minutes or more")),
    ("tracker_usage_statistics", NotNeeded("counting costs Shoal nothing")),
    ("tsl_config.ssl_cert_path", Off("there is no TLS", "TLS needs a key as well")),
    ("tsl_config.ssl_key_path", Off("there is no TLS", "TLS needs a certificate as well")),
];

/// The number of torrents whose counts are kept. They take up to 32 bytes each.
const COMPLETED_RETAINED_MAX: u64 = 1_000_000;

pub(super) fn import(mut document: Document, translation: &mut Translation) -> Result<(), String> {
    let keys = document.len();
    if let Some(version) = document.take_text("metadata.schema_version")
        && !version.starts_with("2.")
    {
        return Err(format!("its schema is {version}, but only 2.0.0 is known"));
    }
    for table in document.tables("udp_trackers") {
        let path = format!("{table}.bind_address");
        match document.take_text(&path) {
            Some(address) => translation.listen(Protocol::Udp, &path, &address, false),
            None => translation.listen_by_default(Protocol::Udp, "0.0.0.0:6969", false),
        }
    }
    for table in document.tables("http_trackers") {
        take_http(&mut document, &table, translation);
    }
    if let Some(address) = document.take_text("http_api.bind_address") {
        translation.control("http_api.bind_address", &address);
    }
    take_policy(&mut document, translation);
    let taken = keys - document.len();
    let rules: [Rules<'_>; 3] =
        [("", &RULES), ("udp_trackers[].", &LISTENER), ("http_trackers[].", &LISTENER)];
    let known = apply(&mut document, Source::Torrust, &rules, translation);
    let defaults =
        [("announce.interval_s", 120), ("announce.min_interval_s", 120), ("announce.peer_timeout_s", 900)];
    for (key, value) in defaults {
        translation.assume(key, value, "the default of torrust-tracker");
    }
    some_are_known(taken + known, keys)
}

fn take_http(document: &mut Document, table: &str, translation: &mut Translation) {
    let paths = ["cert", "key"].map(|file| format!("{table}.tsl_config.ssl_{file}_path"));
    let protocol = match document.take_pair([&paths[0], &paths[1]]) {
        Some([certificate, key]) => {
            translation.certificate([&paths[0], &paths[1]], &certificate, &key);
            Protocol::Tls
        }
        // torrust-tracker does not start with one of the files, so it does not serve this address without TLS.
        None if paths.iter().any(|path| document.has_text(path)) => Protocol::Tls,
        None => Protocol::Http,
    };
    let path = format!("{table}.bind_address");
    match document.take_text(&path) {
        Some(address) => translation.listen(protocol, &path, &address, false),
        None => translation.listen_by_default(protocol, "0.0.0.0:7070", false),
    }
}

/// Takes over the modes that decide who is served, and what is kept.
fn take_policy(document: &mut Document, translation: &mut Translation) {
    if document.take_true("core.listed") {
        let file = "/etc/shoal/torrents_allow";
        translation.add("core.listed", "access.torrents_allow", file);
        translation.warn(&format!(
            "core.listed serves the torrents of the database, which Shoal reads from a file; before the start, write the \
             result of `select info_hash from whitelist` to {file}"
        ));
    }
    if document.take_true("core.private") {
        let advice = "Shoal has tokens that a site signs in place of keys in a database (docs/tokens.md); until tokens.jwks \
                      is set, it serves everyone";
        translation.warn(&format!("core.private has no counterpart: {advice}"));
        translation.note(Omission::NoCounterpart, "core.private = true", advice);
    }
    if document.take_true("core.net.on_reverse_proxy") {
        translation.trust_proxy("core.net.on_reverse_proxy", "x-forwarded-for");
    }
    let path = "core.tracker_policy.persistent_torrent_completed_stat";
    if document.take_true(path) {
        translation.take(path, "store.completed_retained_max", COMPLETED_RETAINED_MAX);
        translation.assume("state.path", "/var/lib/shoal", "where the counts are kept over a restart");
    }
    if let Some(address) = document.take("core.net.external_ip")
        && address != "0.0.0.0"
    {
        let advice = "a peer has the address that its announce comes from; address.private says what becomes of private ones";
        translation.note(
            Omission::NoCounterpart,
            &format!("core.net.external_ip = {}", shown(&address)),
            advice,
        );
    }
}
