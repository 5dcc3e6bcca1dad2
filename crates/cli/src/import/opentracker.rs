//! opentracker: lines of a key and a value, in a file that `opentracker -f` reads.
//!
//! Intervals, timeouts and most features are constants that are chosen when opentracker is compiled. Its defaults are
//! Shoal's as well: 30 minutes between announces, 45 minutes until a peer is forgotten, 200 peers at most.

use std::path::Path;

use shoal_config::{Setting, nearest};

use super::address::Protocol;
use super::some_are_known;
use super::translation::{Omission, Translation};

/// The keys of all versions.
const KEYS: [&str; 15] = [
    "listen.tcp_udp",
    "listen.tcp",
    "listen.udp",
    "listen.udp.workers",
    "access.whitelist",
    "access.blacklist",
    "access.fifo_add",
    "access.fifo_delete",
    "access.stats",
    "access.stats_path",
    "access.proxy",
    "livesync.cluster.listen",
    "livesync.cluster.node_ip",
    "batchsync.cluster.admin_ip",
    "tracker.rootdir",
];

/// Keys that were added after [`KEYS`] in the sample file.
const TRACKER_KEYS: [&str; 2] = ["tracker.user", "tracker.redirect_url"];

const CLUSTER: &str = "nodes of Shoal share peers over NATS, between any networks (docs/cluster.md)";

const FIFO: &str =
    "`shoal access add` and `shoal access remove` change a list, and the tracker reads it at once";

const CLOSED_STATISTICS: &str = "statistics at /stats are for everyone or off, so they are off; the figures for operators are \
                                 at http://127.0.0.1:6970/";

/// The statistics that opentracker serves to everyone, unless it was compiled otherwise.
const MODES: [&str; 6] = ["everything", "peer", "torr", "conn", "scrp", "udp4"];

pub(super) fn import(text: &str, translation: &mut Translation) -> Result<(), String> {
    let lines: Vec<(&str, &str)> = text.lines().filter_map(line).collect();
    let is_known = |key: &&str| KEYS.contains(key) || TRACKER_KEYS.contains(key);
    some_are_known(lines.iter().filter(|(key, _)| is_known(key)).count(), lines.len())?;
    let root = lines.iter().rfind(|(key, _)| *key == "tracker.rootdir").map(|(_, value)| *value);
    for (key, value) in &lines {
        take(key, value, root, translation);
    }
    if !lines.iter().any(|(key, _)| key.starts_with("listen.") && *key != "listen.udp.workers") {
        listen(&[Protocol::Http, Protocol::Udp], "the default of opentracker", "0.0.0.0", translation);
    }
    if !lines.iter().any(|(key, _)| *key == "access.stats") {
        let modes = MODES.iter().chain(&["tcp4"]).map(|mode| (*mode).to_owned()).collect();
        translation.assume("statistics.opentracker", Setting::List(modes), "the default of opentracker");
    }
    translation.warn(
        "options that were chosen when opentracker was compiled cannot be seen: set http.full_scrape = true if it answered \
         full scrapes, and add addresses of the other family, since an opentracker serves only IPv4 or only IPv6",
    );
    Ok(())
}

/// Returns key and value of a line, unless it is empty or a comment.
fn line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    Some((key, value.trim()))
}

fn take(key: &str, value: &str, root: Option<&str>, translation: &mut Translation) {
    let what = format!("{key} {value}");
    let mut without = |advice: &str| translation.note(Omission::NoCounterpart, &what, advice);
    match key {
        "listen.tcp_udp" => listen(&[Protocol::Http, Protocol::Udp], &what, value, translation),
        "listen.tcp" => listen(&[Protocol::Http], &what, value, translation),
        "listen.udp" => listen(&[Protocol::Udp], &what, value, translation),
        "listen.udp.workers" => {
            let reason = "Shoal has a worker for each processor (workers.count), which serves all protocols";
            translation.note(Omission::NotNeeded, &what, reason);
        }
        "access.whitelist" => translation.add(&what, "access.torrents_allow", &below(root, value)),
        "access.blacklist" => translation.add(&what, "access.torrents_deny", &below(root, value)),
        "access.fifo_add" | "access.fifo_delete" => without(FIFO),
        "access.stats" => without(CLOSED_STATISTICS),
        "access.stats_path" if value.trim_matches('/') == "stats" => {
            translation.note(Omission::NotNeeded, &what, "Shoal serves them there");
        }
        "access.stats_path" => without("Shoal serves statistics at /stats, which a proxy can rename or hide"),
        "access.proxy" => {
            translation.add(&what, "proxy.trusted", value);
            translation.assume("proxy.header", "x-forwarded-for", "opentracker reads this header");
        }
        "livesync.cluster.listen" | "livesync.cluster.node_ip" | "batchsync.cluster.admin_ip" => {
            without(CLUSTER)
        }
        "tracker.rootdir" => {
            let reason = "the sandbox of Shoal permits only the files of its configuration; paths of lists were completed";
            translation.note(Omission::NotNeeded, &what, reason);
        }
        "tracker.user" => translation.take(&what, "process.user", value),
        "tracker.redirect_url" => {
            without("Shoal redirects nothing; home.page or home.file serves a page at /")
        }
        _ => {
            let known = KEYS.iter().chain(&TRACKER_KEYS).copied();
            let advice = match nearest(key, known) {
                Some(near) => format!("no version of opentracker has this key; did you mean {near}?"),
                None => "no version of opentracker has this key, so it had no effect".to_owned(),
            };
            translation.note(Omission::Unknown, key, &advice);
        }
    }
}

/// Listens at an address, whose port is 6969 unless it is written.
fn listen(protocols: &[Protocol], what: &str, address: &str, translation: &mut Translation) {
    let has_port = match address.rsplit_once(':') {
        Some((host, _)) => !host.contains(':') || host.ends_with(']'),
        None => false,
    };
    let address = match address {
        _ if has_port => address.to_owned(),
        _ if address.contains(':') && !address.starts_with('[') => format!("[{address}]:6969"),
        _ => format!("{address}:6969"),
    };
    for protocol in protocols {
        translation.listen(*protocol, what, &address, false);
    }
}

/// Returns the path of a list, which opentracker opens after it has changed to its root directory.
fn below(root: Option<&str>, path: &str) -> String {
    let Some(root) = root else { return path.to_owned() };
    // Without the rights of root, opentracker cannot make the directory its root, and absolute paths are what they say.
    if Path::new(path).starts_with(root) {
        return path.to_owned();
    }
    let path = path.trim_start_matches("./").trim_start_matches('/');
    Path::new(root).join(path).display().to_string()
}
