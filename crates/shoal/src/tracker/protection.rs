//! Tells a new operator at the start, in one line of the log each, which protections are on and which are off.

use std::net::SocketAddr;

use shoal_config::{Auto, Config, PrivateAddresses};
use shoal_engine::limits::Limits;
use shoal_engine::policy::Policy;

/// One line.
#[derive(Debug)]
struct Line {
    what: &'static str,
    is_protected: bool,
    how: String,
}

impl Line {
    /// Returns a line of what holds, or else of the key that would change it.
    fn new(what: &'static str, parts: &[String], otherwise: &str) -> Self {
        let is_protected = !parts.is_empty();
        Self { what, is_protected, how: if is_protected { parts.join(", ") } else { otherwise.to_owned() } }
    }
}

/// Logs the protection of a tracker with this policy, whose control listener is at `control`.
/// `has_tokens` says whether operators show tokens to the control listener.
pub(super) fn log(policy: &Policy, control: Option<SocketAddr>, has_tokens: bool) {
    for Line { what, is_protected, how } in lines(policy, control, has_tokens) {
        if is_protected {
            tracing::info!(what, how, "protected");
        } else {
            tracing::info!(what, how, "not protected");
        }
    }
}

fn lines(policy: &Policy, control: Option<SocketAddr>, has_tokens: bool) -> [Line; 8] {
    let config = policy.config();
    [
        Line::new("requests of a source", &rates(config), "limits.udp_requests_per_s and others are 0"),
        Line::new("peers of a source", &holdings(config), "limits.peers_per_source_max = 0"),
        private(policy),
        Line::new("lists", &lists(config), "access has no list of torrents, networks, clients or ports"),
        bans(config),
        transport(config),
        operators(config, control, has_tokens),
        abuse(config),
    ]
}

/// Returns these keys with their values, except those of value 0.
fn set(keys: &[(&str, u32)]) -> Vec<String> {
    keys.iter().filter(|(_, value)| *value > 0).map(|(key, value)| format!("{key} = {value}")).collect()
}

fn rates(config: &Config) -> Vec<String> {
    let limits = &config.limits;
    let mut rates = set(&[
        ("limits.udp_requests_per_s", limits.udp_requests_per_s),
        ("http_requests_per_s", limits.http_requests_per_s),
        ("webtorrent_requests_per_s", limits.webtorrent_requests_per_s),
        ("udp_connects_per_s", limits.udp_connects_per_s),
        ("tcp_connects_per_s", limits.tcp_connects_per_s),
    ]);
    if !rates.is_empty() {
        rates.push(format!("burst_s = {}", limits.burst_s));
        let exempt: Vec<String> = limits.exempt.iter().map(ToString::to_string).collect();
        rates.push(format!(
            "exempt: {}",
            if exempt.is_empty() { "none".to_owned() } else { exempt.join(" ") }
        ));
    }
    rates
}

fn holdings(config: &Config) -> Vec<String> {
    set(&[
        ("limits.peers_per_source_max", config.limits.peers_per_source_max),
        ("torrents_per_source_max", config.limits.torrents_per_source_max),
    ])
}

fn private(policy: &Policy) -> Line {
    let because = match (policy.config().address.private, policy.is_host_private()) {
        (Auto::Set(_), _) => "as address.private says",
        (Auto::Auto, true) => "all addresses of this tracker are private",
        (Auto::Auto, false) => "this tracker has public addresses",
    };
    let private = policy.private_addresses();
    let done = match private {
        PrivateAddresses::Serve => "served like all others",
        PrivateAddresses::Apart => "peers are kept apart, each in its own network",
        PrivateAddresses::Refuse => "refused",
    };
    let is_protected = private != PrivateAddresses::Serve;
    Line { what: "private addresses", is_protected, how: format!("{done}: {because}") }
}

fn lists(config: &Config) -> Vec<String> {
    let access = &config.access;
    let lists = [
        ("torrents_allow", access.torrents_allow.len()),
        ("torrents_deny", access.torrents_deny.len()),
        ("networks_allow", access.networks_allow.len()),
        ("networks_deny", access.networks_deny.len()),
        ("clients_allow", access.clients_allow.len()),
        ("clients_deny", access.clients_deny.len()),
        ("ports_deny", access.ports_deny.len()),
        ("rules", access.rules.len()),
        ("hosts_allow", access.hosts_allow.len()),
    ];
    let set = lists.into_iter().filter(|(_, entries)| *entries > 0);
    let mut lists: Vec<String> = set.map(|(key, _)| format!("access.{key}")).collect();
    if config.tokens.jwks.is_some() {
        lists.push("tokens.jwks".to_owned());
    }
    lists
}

fn bans(config: &Config) -> Line {
    let file = config.bans_file().map(|file| format!("kept in {}", file.display()));
    Line::new("bans over a restart", file.as_slice(), "access.bans_file and state.path are not set")
}

/// Returns whether sources earn bans.
fn abuse(config: &Config) -> Line {
    let is_counted = Limits::are_set(&config.limits) || config.tokens.jwks.is_some();
    let bans = (config.bans.automatic && is_counted).then(|| {
        let (first_s, longest_s) = (config.bans.first_s, config.bans.longest_s);
        format!("banned for {first_s} s, up to bans.longest_s = {longest_s}")
    });
    let otherwise = "bans.automatic = false, or no rate of limits is set";
    Line::new("sources far beyond their limits", bans.as_slice(), otherwise)
}

fn transport(config: &Config) -> Line {
    let plain = !config.http.listen.is_empty();
    match (config.tls.listen.is_empty(), plain) {
        (true, _) => Line::new("encryption", &[], "tls.listen is empty: requests can be read on the way"),
        (false, true) => Line::new("encryption", &["tls.listen; http.listen is plain".to_owned()], ""),
        (false, false) => Line::new("encryption", &["tls.listen".to_owned()], ""),
    }
}

fn operators(config: &Config, control: Option<SocketAddr>, has_tokens: bool) -> Line {
    let what = "control listener";
    let Some(address) = control else { return Line::new(what, &["off".to_owned()], "") };
    let mut by = Vec::new();
    if has_tokens {
        by.push("tokens".to_owned());
    }
    if address.ip().is_loopback() {
        by.push(format!("{address} is this host only"));
    }
    // Encryption refuses no client.
    if !by.is_empty() && config.control.certificate.is_some() {
        by.push("control.certificate".to_owned());
    }
    Line::new(what, &by, &format!("{address} without control.tokens: any client that reaches it reads it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: &str = "127.0.0.1:6970";

    /// Returns what is protected and how, with this configuration.
    fn shown(text: &str, control: &str, is_host_private: bool) -> Vec<String> {
        let file = shoal_config::ConfigFile { path: "shoal.toml", text };
        let none: [(std::ffi::OsString, std::ffi::OsString); 0] = [];
        let policy = Policy::new(shoal_config::read(Some(file), none).unwrap());
        let lines = lines(&policy.with_private_host(is_host_private), control.parse().ok(), false);
        let shown = lines.into_iter().map(|Line { what, is_protected, how }| {
            format!("{}{what}: {how}", if is_protected { "" } else { "not " })
        });
        shown.collect()
    }

    #[test]
    fn the_defaults_limit_sources_and_keep_private_addresses_apart() {
        let lines = shown("", CONTROL, false);
        assert!(lines[0].starts_with("requests of a source: limits.udp_requests_per_s = 200"), "{lines:#?}");
        assert!(lines[0].ends_with("exempt: 127.0.0.0/8 ::1/128"), "{lines:#?}");
        assert_eq!(lines[1], "peers of a source: limits.peers_per_source_max = 250000");
        assert!(lines[2].starts_with("private addresses: peers are kept apart"), "{lines:#?}");
        assert!(lines[3].starts_with("not lists") && lines[4].starts_with("not bans"), "{lines:#?}");
        assert!(lines[5].starts_with("not encryption"), "{lines:#?}");
        assert_eq!(lines[6], "control listener: 127.0.0.1:6970 is this host only");
        assert!(lines[7].starts_with("sources far beyond their limits: banned for 600 s"), "{lines:#?}");
    }

    #[test]
    fn what_is_off_names_the_key() {
        let text = "[limits]\nudp_requests_per_s = 0\nhttp_requests_per_s = 0\nwebtorrent_requests_per_s = 0\n\
                    tcp_connects_per_s = 0\npeers_per_source_max = 0\n";
        let lines = shown(text, "0.0.0.0:6970", true);
        for (line, key) in [
            (0, "limits.udp_requests_per_s"),
            (1, "limits.peers"),
            (6, "control.tokens"),
            (7, "bans.automatic"),
        ] {
            assert!(lines[line].starts_with("not ") && lines[line].contains(key), "{lines:#?}");
        }
        assert!(lines[2].ends_with("all addresses of this tracker are private"), "{lines:#?}");
        assert_eq!(shown(text, "", true)[6], "control listener: off");
        let text = "[control]\nlisten = \"0.0.0.0:6970\"\ncertificate = \"/c\"\nprivate_key = \"/k\"\n";
        assert!(
            shown(text, "0.0.0.0:6970", false)[6].starts_with("not control listener"),
            "encryption refuses no client"
        );
    }

    #[test]
    fn what_is_set_is_named() {
        let text = "[address]\nprivate = \"refuse\"\n[access]\nports_deny = [\"25\"]\nbans_file = \"/b\"\n";
        let lines = shown(text, CONTROL, true);
        assert_eq!(
            lines[2..5].join("; "),
            "private addresses: refused: as address.private says; lists: \
                                            access.ports_deny; bans over a restart: kept in /b"
        );
    }
}
