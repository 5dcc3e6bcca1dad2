//! bittorrent-tracker: a command line, since it has no file. Its defaults are those of the command `bittorrent-tracker`.

use std::collections::BTreeMap;

use shoal_config::nearest;

use super::address::Protocol;
use super::some_are_known;
use super::translation::{Omission, Translation};

/// The options with a value, and the flags.
const OPTIONS: [&str; 15] = [
    "--port",
    "--http-hostname",
    "--udp-hostname",
    "--udp6-hostname",
    "--interval",
    "--trust-proxy",
    "--http",
    "--udp",
    "--ws",
    "--stats",
    "--no-stats",
    "--quiet",
    "--silent",
    "--help",
    "--version",
];

/// How many of [`OPTIONS`] have a value.
const WITH_VALUE: usize = 5;

const SHORT: [(&str, &str); 5] =
    [("-p", "--port"), ("-q", "--quiet"), ("-s", "--silent"), ("-h", "--help"), ("-v", "--version")];

const LOG: &str = "Shoal logs starts, stops and problems, not requests (log.level); log.access logs requests";

/// Quotes a word, so that [`import`] reads it as it is.
pub(super) fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| String::new(), |quoted| quoted.into_owned())
}

/// Reads a command line. The words before the name of the program are left out, as in `npx bittorrent-tracker`.
pub(super) fn import(text: &str, translation: &mut Translation) -> Result<(), String> {
    let words = shlex::split(text).ok_or("a quotation mark is not closed")?;
    let program = words.iter().position(|word| word.rsplit('/').next() == Some("bittorrent-tracker"));
    let arguments = &words[program.map_or(0, |place| place + 1)..];
    let (options, unknown) = options(arguments);
    let given = options.len();
    some_are_known(given + usize::from(program.is_some()), given + unknown.len())?;
    for word in &unknown {
        let advice = match nearest(word, OPTIONS.into_iter()) {
            Some(near) => format!("no version of bittorrent-tracker has this option; did you mean {near}?"),
            None => "no version of bittorrent-tracker has this option, so it had no effect".to_owned(),
        };
        translation.note(Omission::Unknown, word, &advice);
    }
    take(&options, translation);
    Ok(())
}

/// Returns the options with their values, and the words that are none. A later option overrides an earlier one.
fn options(arguments: &[String]) -> (BTreeMap<&'static str, String>, Vec<&str>) {
    let (mut options, mut unknown) = (BTreeMap::new(), Vec::new());
    let mut words = arguments.iter().peekable();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let name = SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, long)| *long);
        match OPTIONS.iter().position(|option| *option == name) {
            Some(place) if place < WITH_VALUE => {
                let value = value.or_else(|| words.next_if(|next| !next.starts_with("--")).cloned());
                options.insert(OPTIONS[place], value.unwrap_or_default());
            }
            Some(place) => {
                options.insert(OPTIONS[place], value.unwrap_or_else(|| "true".to_owned()));
            }
            None => unknown.push(word.as_str()),
        }
    }
    (options, unknown)
}

fn take(options: &BTreeMap<&'static str, String>, translation: &mut Translation) {
    let is_on = |name: &str| options.get(name).is_some_and(|value| value != "false");
    let serves_all = !(is_on("--http") || is_on("--udp") || is_on("--ws"));
    let port = options.get("--port").map_or("8000", String::as_str);
    if serves_all || is_on("--http") || is_on("--ws") {
        listen(options, Protocol::Http, "--http-hostname", "::", port, translation);
    }
    if serves_all || is_on("--udp") {
        listen(options, Protocol::Udp, "--udp-hostname", "0.0.0.0", port, translation);
        listen(options, Protocol::Udp, "--udp6-hostname", "::", port, translation);
    }
    translation.has_webtorrent |= serves_all || is_on("--ws");
    if is_on("--ws") && !is_on("--http") {
        let advice = "the addresses of http.listen serve announces over HTTP, too";
        translation.note(Omission::NoCounterpart, "--ws without --http", advice);
    }
    take_interval(options.get("--interval"), translation);
    if is_on("--trust-proxy") {
        translation.trust_proxy("--trust-proxy", "x-forwarded-for");
    }
    let is_public = options.get("--stats").map_or("true", String::as_str) != "false" && !is_on("--no-stats");
    for key in ["statistics.page", "statistics.bittorrent_tracker"] {
        if is_public {
            translation.assume(key, true, "--stats, on by default: /stats and /stats.json");
        }
    }
    for name in ["--quiet", "--silent"].iter().filter(|name| is_on(name)) {
        translation.note(Omission::NotNeeded, name, LOG);
    }
}

fn listen(
    options: &BTreeMap<&'static str, String>,
    protocol: Protocol,
    option: &str,
    default: &str,
    port: &str,
    translation: &mut Translation,
) {
    let host = options.get(option).map_or(default, String::as_str);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let address = format!("{host}:{port}");
    let is_dual = protocol == Protocol::Http;
    if options.contains_key(option) {
        translation.listen(protocol, option, &address, is_dual);
    } else if options.contains_key("--port") {
        translation.listen(protocol, "--port", &address, is_dual);
    } else {
        translation.listen_by_default(protocol, &address, is_dual);
    }
}

/// Takes over the interval, in milliseconds. Browsers get a fifth of it, and every peer is forgotten after 20 minutes.
fn take_interval(written: Option<&String>, translation: &mut Translation) {
    const PEER_TIMEOUT_S: u64 = 1200;
    let interval_ms = written.map_or(Some(600_000), |text| text.parse::<u64>().ok());
    let Some(interval_ms) = interval_ms.filter(|interval_ms| *interval_ms > 0) else {
        return translation.note(Omission::NoCounterpart, "--interval", "not a number of milliseconds");
    };
    let (interval_s, browsers_s) = (interval_ms.div_ceil(1000), interval_ms.div_ceil(5000));
    if written.is_some() {
        translation.take("--interval", "announce.interval_s", interval_s);
    } else {
        translation.assume("announce.interval_s", interval_s, "the default of bittorrent-tracker");
    }
    translation.assume(
        "webtorrent.interval_s",
        browsers_s,
        "a fifth of the interval, as with bittorrent-tracker",
    );
    translation.assume("announce.peer_timeout_s", PEER_TIMEOUT_S, "constant in bittorrent-tracker");
}
