//! aquatic: TOML of three programs, each for one protocol. Keys that a file leaves out have the defaults of aquatic.

use std::path::Path;

use serde_json::Value;

use super::address::Protocol;
use super::document::Document;
use super::rule::Rule::{self, Key, NoCounterpart, NotNeeded, Off};
use super::rule::{Rules, apply, bytes, log_level, number};
use super::translation::{Omission, Translation};
use super::{ODD, Source, some_are_known};

/// Keys of all three programs.
const ALL: [(&str, Rule); 18] = [
    ("socket_workers", Key("workers.count", number)),
    ("swarm_workers", NotNeeded("the workers of Shoal share one store")),
    ("log_level", Key("log.level", log_level)),
    ("network.set_only_ipv6", NotNeeded("sockets of Shoal serve one family each")),
    ("protocol.max_scrape_torrents", NotNeeded("a scrape may name as many torrents as a reply has room for")),
    ("cleaning.torrent_cleaning_interval", NotNeeded("Shoal removes old peers all the time")),
    ("privileges.user", NotNeeded("privileges.drop_privileges is off")),
    ("privileges.group", NotNeeded("privileges.drop_privileges is off")),
    ("privileges.drop_privileges", Off("it is off", ODD)),
    ("privileges.chroot_path", NotNeeded("the sandbox of Shoal permits only the files of its configuration")),
    ("access_list.path", NotNeeded("access_list.mode is off")),
    ("access_list.mode", NoCounterpart(ODD)),
    ("network.address", NoCounterpart(ODD)),
    ("network.only_ipv6", NoCounterpart(ODD)),
    ("network.use_ipv4", NoCounterpart(ODD)),
    ("network.use_ipv6", NoCounterpart(ODD)),
    ("network.address_ipv4", NotNeeded("network.use_ipv4 is off")),
    ("network.address_ipv6", NotNeeded("network.use_ipv6 is off")),
];

/// Keys of the two programs with connections.
const CONNECTIONS: [(&str, Rule); 8] = [
    ("network.enable_tls", NoCounterpart(ODD)),
    (
        "network.tcp_backlog",
        NotNeeded("Shoal asks for the most that the kernel permits (net.core.somaxconn)"),
    ),
    ("network.tls_certificate_path", Off("there is no TLS", NO_TLS)),
    ("network.tls_private_key_path", Off("there is no TLS", NO_TLS)),
    ("cleaning.connection_cleaning_interval", NotNeeded("Shoal closes a connection when its time is over")),
    ("metrics.torrent_count_update_interval", NotNeeded("metrics are made when they are read")),
    ("metrics.prometheus_endpoint_address", NotNeeded(METRICS)),
    ("metrics.run_prometheus_endpoint", NoCounterpart(ODD)),
];

const NO_TLS: &str = "network.enable_tls is off, or it lacks the other file; tls.listen switches it on";

const METRICS: &str = "Shoal serves metrics at http://127.0.0.1:6970/metrics";

const CLIENTS: &str =
    "`shoal ctl sources` and docs/monitoring.md tell what Shoal counts; it does not count clients by name";

const UDP: [(&str, Rule); 21] = [
    ("network.socket_recv_buffer_size", Key("udp.receive_buffer", bytes)),
    ("network.poll_timeout_ms", NotNeeded("workers wait for sockets without such an interval")),
    ("network.resend_buffer_max_len", NotNeeded("Linux has a buffer for replies")),
    ("network.use_io_uring", NotNeeded("udp.io = \"auto\" selects what measured cheapest")),
    ("network.ring_size", NotNeeded("udp.io = \"auto\" selects what measured cheapest")),
    ("protocol.max_response_peers", Key("announce.numwant_max", number)),
    ("protocol.peer_announce_interval", Key("announce.interval_s", number)),
    ("cleaning.max_peer_age", Key("announce.peer_timeout_s", number)),
    ("cleaning.max_connection_age", NotNeeded("a connection id of Shoal is valid for two minutes or more")),
    ("statistics.interval", NotNeeded(METRICS)),
    ("statistics.torrent_peer_histograms", Off("it is off", "`shoal top` lists the largest swarms")),
    ("statistics.peer_clients", Off("it is off", CLIENTS)),
    ("statistics.print_to_stdout", Off("it is off", "`shoal top` shows the figures in the terminal")),
    ("statistics.write_html_to_file", Off("it is off", HTML)),
    ("statistics.html_file_path", NotNeeded(HTML)),
    ("statistics.run_prometheus_endpoint", NoCounterpart(ODD)),
    ("statistics.prometheus_endpoint_address", NotNeeded(METRICS)),
    ("statistics.prometheus_peer_id_prefixes", Off("it is off", CLIENTS)),
    ("scrape_exports.enable_scrape_exports", Off("it is off", EXPORTS)),
    ("scrape_exports.frequency", NotNeeded("it is a part of scrape_exports.enable_scrape_exports")),
    ("scrape_exports.path", NotNeeded("it is a part of scrape_exports.enable_scrape_exports")),
];

const HTML: &str = "http://127.0.0.1:6970/ is a page for operators, and statistics.page one for everyone";

const EXPORTS: &str = "http.full_scrape serves the counts of all torrents at /scrape, and `shoal state export` prints all swarms";

const HTTP: [(&str, Rule); 8] = [
    ("protocol.max_peers", Key("announce.numwant_max", number)),
    ("protocol.peer_announce_interval", Key("announce.interval_s", number)),
    ("cleaning.max_peer_age", Key("announce.peer_timeout_s", number)),
    ("cleaning.max_connection_idle", Key("http.idle_timeout_s", number)),
    (
        "network.keep_alive",
        NotNeeded("Shoal keeps a connection open until the client closes it or is idle for too long"),
    ),
    ("network.runs_behind_reverse_proxy", NoCounterpart(ODD)),
    ("network.reverse_proxy_ip_header_name", NotNeeded("network.runs_behind_reverse_proxy is off")),
    (
        "network.reverse_proxy_ip_header_format",
        NotNeeded("Shoal uses the last address that is not a trusted proxy"),
    ),
];

const WS: [(&str, Rule); 12] = [
    ("protocol.max_offers", Key("webtorrent.offers_max", number)),
    ("protocol.peer_announce_interval", Key("webtorrent.interval_s", number)),
    ("cleaning.max_peer_age", Key("webtorrent.peer_timeout_s", number)),
    ("cleaning.max_offer_age", NotNeeded("Shoal forgets offers without an answer by itself")),
    ("cleaning.max_connection_idle", NotNeeded("pings find dead connections (webtorrent.ping_interval_s)")),
    ("cleaning.close_after_tls_update_grace_period", NotNeeded("a new certificate closes no connection")),
    ("network.websocket_max_message_size", NotNeeded(BOUNDS)),
    ("network.websocket_max_frame_size", NotNeeded(BOUNDS)),
    ("network.websocket_write_buffer_size", NotNeeded(BOUNDS)),
    (
        "network.enable_http_health_checks",
        Off("it is off", "http://127.0.0.1:6970/health tells whether every worker answers, also with TLS"),
    ),
    ("metrics.peer_clients", Off("it is off", CLIENTS)),
    ("metrics.peer_id_prefixes", Off("it is off", CLIENTS)),
];

const BOUNDS: &str = "messages and buffers of Shoal have fixed bounds";

pub(super) fn import(
    source: Source,
    mut document: Document,
    translation: &mut Translation,
) -> Result<(), String> {
    let keys = document.len();
    take_listeners(source, &mut document, translation);
    take_proxy(&mut document, translation);
    let root = take_privileges(&mut document, translation);
    take_access_list(&mut document, root.as_deref(), translation);
    for section in ["metrics", "statistics"] {
        let path = format!("{section}.prometheus_endpoint_address");
        if document.take_true(&format!("{section}.run_prometheus_endpoint")) {
            let address = document.take_text(&path).unwrap_or_else(|| "0.0.0.0:9000".to_owned());
            translation.control(&path, &address);
        }
    }
    // One worker is the default of aquatic, and would leave the other processors idle here.
    if document.take_if("socket_workers", &[Value::from(0), Value::from(1)]) {
        let reason = "Shoal has a worker for each processor";
        translation.note(Omission::NotNeeded, "socket_workers", reason);
    }
    let taken = keys - document.len();
    let rules: &[Rules<'_>] = match source {
        Source::AquaticUdp => &[("", &ALL), ("", &UDP)],
        Source::AquaticHttp => &[("", &ALL), ("", &CONNECTIONS), ("", &HTTP)],
        _ => &[("", &ALL), ("", &CONNECTIONS), ("", &WS)],
    };
    let known = apply(&mut document, source, rules, translation);
    assume_defaults(source, translation);
    some_are_known(taken + known, keys)
}

/// Listens where the program does. Until version 0.9 it has one address, and later, except for WebTorrent, one of each
/// family.
fn take_listeners(source: Source, document: &mut Document, translation: &mut Translation) {
    let has_tls = document.take_true("network.enable_tls");
    let protocol = match source {
        Source::AquaticUdp => Protocol::Udp,
        _ if has_tls => Protocol::Tls,
        _ => Protocol::Http,
    };
    translation.has_webtorrent |= source == Source::AquaticWs;
    let paths = ["network.tls_certificate_path", "network.tls_private_key_path"];
    if has_tls && let Some([certificate, key]) = document.take_pair(paths) {
        translation.certificate(paths, &certificate, &key);
    }
    let is_dual = !document.take_true("network.only_ipv6");
    let mut is_named = false;
    if let Some(address) = document.take_text("network.address") {
        translation.listen(protocol, "network.address", &address, is_dual);
        is_named = true;
    }
    for (family, default) in [("ipv4", "0.0.0.0:3000"), ("ipv6", "[::]:3000")] {
        let (switch, path) = (format!("network.use_{family}"), format!("network.address_{family}"));
        let is_off = document.take_if(&switch, &[Value::Bool(false)]);
        let is_on = !is_off && document.take_true(&switch);
        match document.take_text(&path) {
            _ if is_off => {}
            Some(address) => translation.listen(protocol, &path, &address, false),
            None if is_on => translation.listen_by_default(protocol, default, false),
            None => continue,
        }
        is_named = true;
    }
    if !is_named {
        translation.listen_by_default(protocol, "0.0.0.0:3000", false);
    }
}

fn take_proxy(document: &mut Document, translation: &mut Translation) {
    if document.take_true("network.runs_behind_reverse_proxy") {
        let path = "network.reverse_proxy_ip_header_name";
        let header = document.take_text(path).unwrap_or_else(|| "X-Forwarded-For".to_owned());
        translation.trust_proxy(path, &header);
    }
}

/// Takes over the user. Returns the directory below which the program opens its files.
fn take_privileges(document: &mut Document, translation: &mut Translation) -> Option<String> {
    if !document.take_true("privileges.drop_privileges") {
        return None;
    }
    for (path, key, default) in
        [("privileges.user", "process.user", "nobody"), ("privileges.group", "process.group", "nogroup")]
    {
        match document.take_text(path) {
            Some(name) => translation.take(path, key, name.as_str()),
            None => translation.assume(key, default, "the default of aquatic"),
        }
    }
    document.take_text("privileges.chroot_path")
}

fn take_access_list(document: &mut Document, root: Option<&str>, translation: &mut Translation) {
    let key = match document.take_text("access_list.mode").as_deref() {
        Some("allow") => "access.torrents_allow",
        Some("deny") => "access.torrents_deny",
        _ => return,
    };
    let path = document.take_text("access_list.path").unwrap_or_else(|| "./access-list.txt".to_owned());
    let path = match root {
        Some(root) => {
            let path = path.trim_start_matches("./").trim_start_matches('/');
            Path::new(root).join(path).display().to_string()
        }
        None => path,
    };
    translation.add("access_list.path", key, &path);
}

/// Sets the defaults of the program that decide how it answers.
fn assume_defaults(source: Source, translation: &mut Translation) {
    let defaults: &[(&str, u64)] = match source {
        Source::AquaticUdp => {
            &[("announce.numwant_max", 30), ("announce.interval_s", 900), ("announce.peer_timeout_s", 1200)]
        }
        Source::AquaticHttp => {
            &[("announce.numwant_max", 50), ("announce.interval_s", 120), ("announce.peer_timeout_s", 1800)]
        }
        _ => &[("webtorrent.interval_s", 120), ("webtorrent.peer_timeout_s", 180)],
    };
    for (key, value) in defaults {
        translation.assume(key, *value, &format!("the default of {}", source.name()));
    }
}
