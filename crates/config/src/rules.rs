//! Rules that involve several keys: each value is in range, but the combination is impossible.

use core::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use shoal_access::rules::Rule;
use shoal_base::PeerV4;
use shoal_base::transport::stream::ListenAddress;
use shoal_wire::udp::AnnounceHead;

use crate::keys::Config;
use crate::values::{Auto, ClientHeader, DatagramBackend, ListSource, Listen, OpentrackerMode, Trusted};

/// Keys whose values contradict each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The full names of the keys. The first is the one to change.
    pub(crate) keys: &'static [&'static str],
    /// The reason for the refusal, and the values that would be accepted.
    pub(crate) fault: String,
}

pub(crate) fn check(config: &Config) -> Vec<Conflict> {
    let rules = [
        listen_at_all,
        udp_listens_once,
        xdp_goes_with_mmsg,
        xdp_has_addresses,
        interfaces_are_named_once,
        steered_workers_are_pinned,
        http_listens_once,
        tls_has_certificates,
        certificates_are_used,
        certificates_are_kept,
        domains_are_names,
        contact_is_an_address,
        external_account_has_key,
        keys_match_certificates,
        proxies_are_trusted,
        unix_sockets_name_clients,
        numwant_order,
        timeout_after_interval,
        webtorrent_timeout_after_interval,
        peers_fit,
        store_fits_memory,
        all_torrents_are_published_once,
        urls_have_a_folder,
        owners_are_known,
        share_needs_peers_per_address,
        a_home_page_tells_where_to_announce,
        first_ban_is_not_the_longest,
        one_shape_of_statistics,
        control_key_has_certificate,
        group_has_user,
        one_kind_of_nats_credentials,
        nats_user_has_password,
        nats_key_has_certificate,
        credit_has_users,
    ];
    rules.iter().filter_map(|rule| rule(config)).collect()
}

fn listen_at_all(config: &Config) -> Option<Conflict> {
    let listens =
        !(config.udp.listen.is_empty() && config.http.listen.is_empty() && config.tls.listen.is_empty());
    (!listens).then(|| Conflict {
        keys: &["udp.listen", "http.listen", "tls.listen"],
        fault: "the tracker would listen nowhere; at least one of these keys must name an address".to_owned(),
    })
}

fn a_home_page_tells_where_to_announce(config: &Config) -> Option<Conflict> {
    let home = &config.home;
    (home.page && home.file.is_none() && home.urls.is_empty()).then(|| Conflict {
        keys: &["home.page", "home.urls"],
        fault: "the page would not tell where to announce; home.urls must name at least one URL, such as \
                \"udp://tracker.example:6969/announce\", or home.file a page of your own"
            .to_owned(),
    })
}

fn one_shape_of_statistics(config: &Config) -> Option<Conflict> {
    (config.statistics.json && config.statistics.bittorrent_tracker).then(|| Conflict {
        keys: &["statistics.bittorrent_tracker", "statistics.json"],
        fault: "both would be served at /stats.json; at most one of these keys may be true".to_owned(),
    })
}

fn all_torrents_are_published_once(config: &Config) -> Option<Conflict> {
    let is_listed = config.statistics.opentracker.contains(&OpentrackerMode::Tpbs);
    (is_listed && !config.http.full_scrape).then(|| Conflict {
        keys: &["statistics.opentracker", "http.full_scrape"],
        fault: "\"tpbs\" is a full scrape in another form; set http.full_scrape, or leave this mode out"
            .to_owned(),
    })
}

fn udp_listens_once(config: &Config) -> Option<Conflict> {
    let fault = listening_twice(&config.udp.listen)?;
    Some(Conflict { keys: &["udp.listen"], fault })
}

fn xdp_goes_with_mmsg(config: &Config) -> Option<Conflict> {
    (!config.xdp.interfaces.is_empty() && config.udp.io == DatagramBackend::Uring).then(|| Conflict {
        keys: &["udp.io", "udp.xdp.interfaces"],
        fault: "the sockets beside an XDP data path are served by \"mmsg\"; accepts \"mmsg\" or \"auto\""
            .to_owned(),
    })
}

fn xdp_has_addresses(config: &Config) -> Option<Conflict> {
    (!config.xdp.interfaces.is_empty() && config.udp.listen.is_empty()).then(|| Conflict {
        keys: &["udp.xdp.interfaces", "udp.listen"],
        fault: "the data path serves the addresses of udp.listen, so that must name at least one".to_owned(),
    })
}

fn interfaces_are_named_once(config: &Config) -> Option<Conflict> {
    let interfaces = &config.xdp.interfaces;
    let twice = interfaces.iter().enumerate().find(|(place, name)| interfaces[..*place].contains(name))?.1;
    Some(Conflict { keys: &["udp.xdp.interfaces"], fault: format!("{twice} is named more than once") })
}

fn steered_workers_are_pinned(config: &Config) -> Option<Conflict> {
    (config.workers.steer && !config.workers.pin).then(|| Conflict {
        keys: &["workers.steer", "workers.pin"],
        fault: "a worker that is not pinned has no processor whose datagrams it could get; set workers.pin as well"
            .to_owned(),
    })
}

fn http_listens_once(config: &Config) -> Option<Conflict> {
    let all = || config.http.listen.iter().chain(&config.tls.listen);
    let addresses: Vec<SocketAddr> = all()
        .filter_map(|listen| match listen.address {
            ListenAddress::Tcp(address) => Some(address),
            ListenAddress::Unix(_) => None,
        })
        .collect();
    let files: Vec<&Path> = all()
        .filter_map(|listen| match &listen.address {
            ListenAddress::Unix(path) => Some(&**path),
            ListenAddress::Tcp(_) => None,
        })
        .collect();
    let file = files.iter().enumerate().find(|(index, file)| files[..*index].contains(file));
    let fault = listening_twice(&addresses).or_else(|| {
        file.map(|(_, file)| format!("{} is listed twice; list each file once", file.display()))
    })?;
    Some(Conflict { keys: &["http.listen", "tls.listen"], fault })
}

/// Describes the first two addresses where one covers the other.
fn listening_twice(addresses: &[SocketAddr]) -> Option<String> {
    let pairs = addresses
        .iter()
        .enumerate()
        .flat_map(|(index, second)| addresses[..index].iter().map(move |first| (first, second)));
    pairs.filter(|(first, second)| first.port() == second.port() && first.port() != 0).find_map(
        |(first, second)| {
            let same_family = first.is_ipv4() == second.is_ipv4();
            let covers = |one: &SocketAddr| same_family && one.ip().is_unspecified();
            if first == second {
                Some(format!("{second} is listed twice; list each address once"))
            } else if covers(first) || covers(second) {
                let (all, one) = if covers(first) { (first, second) } else { (second, first) };
                Some(format!("{all} covers {one} already; list one of them, or another port"))
            } else {
                None
            }
        },
    )
}

fn tls_has_certificates(config: &Config) -> Option<Conflict> {
    let has_certificate = !config.tls.certificates.is_empty() || config.has_acme();
    (!config.tls.listen.is_empty() && !has_certificate).then(|| Conflict {
        keys: &["tls.certificates", "tls.listen"],
        fault: "TLS needs a certificate; certificates must name at least one file \
                (`shoal tls self-signed` makes one for testing), or acme.domains the domains of one that the tracker \
                obtains itself"
            .to_owned(),
    })
}

fn certificates_are_used(config: &Config) -> Option<Conflict> {
    (config.has_acme() && config.tls.listen.is_empty()).then(|| Conflict {
        keys: &["tls.listen", "acme.domains"],
        fault: "a certificate is of no use without TLS; listen must name an address, such as \"0.0.0.0:443\", or domains \
                must be []"
            .to_owned(),
    })
}

fn certificates_are_kept(config: &Config) -> Option<Conflict> {
    (config.has_acme() && config.state.path.is_none()).then(|| Conflict {
        keys: &["state.path", "acme.domains"],
        fault: "certificate authorities limit how many certificates a domain gets, so the tracker must keep its own; path must \
                name a directory, such as \"/var/lib/shoal\", or domains must be []"
            .to_owned(),
    })
}

fn domains_are_names(config: &Config) -> Option<Conflict> {
    let is_wrong =
        |name: &str| !name.contains('.') || name.contains(['_', '[']) || name.parse::<Ipv4Addr>().is_ok();
    let domain = config.acme.domains.iter().find(|domain| is_wrong(domain.as_str()))?;
    let fault =
        format!("no certificate has the name {domain}; accepts host names such as \"tracker.example\"");
    Some(Conflict { keys: &["acme.domains"], fault })
}

fn contact_is_an_address(config: &Config) -> Option<Conflict> {
    let contact = config.acme.contact.as_ref()?.as_str();
    let is_address = contact.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    (!is_address || contact.starts_with("mailto:")).then(|| Conflict {
        keys: &["acme.contact"],
        fault:
            "this is no e-mail address; accepts one such as \"operator@tracker.example\", or \"\" for none"
                .to_owned(),
    })
}

fn external_account_has_key(config: &Config) -> Option<Conflict> {
    let acme = &config.acme;
    let keys: &'static [&'static str] =
        match (acme.external_account.is_some(), acme.external_account_key_file.is_some()) {
            (true, false) => &["acme.external_account_key_file", "acme.external_account"],
            (false, true) => &["acme.external_account", "acme.external_account_key_file"],
            _ => return None,
        };
    let fault = "an external account has an id and a key; set both of these keys, or neither";
    Some(Conflict { keys, fault: fault.to_owned() })
}

fn keys_match_certificates(config: &Config) -> Option<Conflict> {
    let (keys, certificates) = (config.tls.keys.len(), config.tls.certificates.len());
    (keys != 0 && keys != certificates).then(|| Conflict {
        keys: &["tls.keys", "tls.certificates"],
        fault: format!(
            "there are {keys} keys for {certificates} certificates; list {certificates} keys, or none if each \
             certificate file contains its key"
        ),
    })
}

fn proxies_are_trusted(config: &Config) -> Option<Conflict> {
    let trusted = &config.proxy.trusted;
    let has_networks = trusted.iter().any(|trusted| matches!(trusted, Trusted::Network(_)));
    let trusts_no_proxy = |listen: &Listen| match listen.address {
        ListenAddress::Tcp(_) => listen.proxy_protocol && !has_networks,
        ListenAddress::Unix(_) => !trusted.contains(&Trusted::Unix),
    };
    let keys: &'static [&'static str] = if config.http.listen.iter().any(trusts_no_proxy) {
        &["proxy.trusted", "http.listen"]
    } else if config.tls.listen.iter().any(trusts_no_proxy) {
        &["proxy.trusted", "tls.listen"]
    } else if config.proxy.header != ClientHeader::None && trusted.is_empty() {
        &["proxy.trusted", "proxy.header"]
    } else {
        return None;
    };
    let fault = "no proxy would be trusted; trusted must name the addresses of the proxies, and \"unix\" for proxies that \
             connect to a Unix socket";
    Some(Conflict { keys, fault: fault.to_owned() })
}

fn unix_sockets_name_clients(config: &Config) -> Option<Conflict> {
    let lacks_client_addresses = |listen: &Listen| {
        matches!(listen.address, ListenAddress::Unix(_))
            && !listen.proxy_protocol
            && config.proxy.header == ClientHeader::None
    };
    let keys: &'static [&'static str] = if config.http.listen.iter().any(lacks_client_addresses) {
        &["proxy.header", "http.listen"]
    } else if config.tls.listen.iter().any(lacks_client_addresses) {
        &["proxy.header", "tls.listen"]
    } else {
        return None;
    };
    let fault = "a connection to a Unix socket has no address, so no client would be served; set header to the one in \
             which the proxy names its clients, or append \" proxy-protocol\" to the socket";
    Some(Conflict { keys, fault: fault.to_owned() })
}

fn numwant_order(config: &Config) -> Option<Conflict> {
    let most = config.announce.numwant_max;
    (config.announce.numwant_default > most).then(|| Conflict {
        keys: &["announce.numwant_default", "announce.numwant_max"],
        fault: format!("the default exceeds the maximum; numwant_default must be at most {most}"),
    })
}

fn timeout_after_interval(config: &Config) -> Option<Conflict> {
    let announce = &config.announce;
    let longest_s = announce.interval_s.max(announce.interval_s_max) + announce.interval_jitter_s;
    (config.announce.peer_timeout_s <= longest_s).then(|| Conflict {
        keys: if announce.interval_s_max > announce.interval_s {
            &["announce.peer_timeout_s", "announce.interval_s_max", "announce.interval_jitter_s"]
        } else {
            &["announce.peer_timeout_s", "announce.interval_s", "announce.interval_jitter_s"]
        },
        fault: format!(
            "peers would time out before they announce again; peer_timeout_s must be more than {longest_s}"
        ),
    })
}

fn webtorrent_timeout_after_interval(config: &Config) -> Option<Conflict> {
    let longest_s = config.webtorrent.interval_s + config.webtorrent_jitter_s();
    (config.webtorrent.peer_timeout_s <= longest_s).then(|| Conflict {
        keys: &["webtorrent.peer_timeout_s", "webtorrent.interval_s", "announce.interval_jitter_s"],
        fault: format!(
            "peers would time out before they announce again; peer_timeout_s must be more than {longest_s}"
        ),
    })
}

fn peers_fit(config: &Config) -> Option<Conflict> {
    let entries_max = entries_that_fit::<AnnounceHead, PeerV4>(config.udp.reply_bytes_max);
    (config.announce.numwant_max > entries_max).then(|| Conflict {
        keys: &["announce.numwant_max", "udp.reply_bytes_max"],
        fault: format!("that many peers do not fit in a reply; numwant_max must be at most {entries_max}"),
    })
}

fn store_fits_memory(config: &Config) -> Option<Conflict> {
    let (Auto::Set(store), Auto::Set(max)) = (config.store.memory_max, config.memory.max) else {
        return None;
    };
    (store >= max).then(|| Conflict {
        keys: &["store.memory_max", "memory.max"],
        fault: format!(
            "the store is part of the process's memory; memory_max must be less than {max}, or \"auto\""
        ),
    })
}

fn owners_are_known(config: &Config) -> Option<Conflict> {
    let access = &config.access;
    let needs_owners = access.rules.iter().any(Rule::needs_owners);
    (needs_owners && access.geoip.is_empty()).then(|| Conflict {
        keys: &["access.geoip", "access.rules"],
        fault: "a rule names an autonomous system or a country, and nothing tells the networks of these; geoip must name a \
                table, such as \"/var/lib/shoal/ip2asn-combined.tsv.gz\""
            .to_owned(),
    })
}

fn urls_have_a_folder(config: &Config) -> Option<Conflict> {
    let has_url = |list: &[ListSource]| list.iter().any(|source| matches!(source, ListSource::Url(_)));
    let access = &config.access;
    let keys: &'static [&'static str] = if has_url(&access.torrents_allow) {
        &["fetch.folder", "access.torrents_allow"]
    } else if has_url(&access.torrents_deny) {
        &["fetch.folder", "access.torrents_deny"]
    } else if has_url(&access.networks_allow) {
        &["fetch.folder", "access.networks_allow"]
    } else if has_url(&access.networks_deny) {
        &["fetch.folder", "access.networks_deny"]
    } else if has_url(&access.geoip) {
        &["fetch.folder", "access.geoip"]
    } else if config.tokens.jwks.as_ref().is_some_and(|source| has_url(core::slice::from_ref(source))) {
        &["fetch.folder", "tokens.jwks"]
    } else {
        return None;
    };
    config.fetch.folder.is_none().then(|| Conflict {
        keys,
        fault: "there is no place for the copies of URLs; folder must name a folder that the tracker may write to, such as \
                \"/var/lib/shoal/fetched\""
            .to_owned(),
    })
}

fn first_ban_is_not_the_longest(config: &Config) -> Option<Conflict> {
    let (first_s, longest_s) = (config.bans.first_s, config.bans.longest_s);
    (first_s > longest_s).then(|| Conflict {
        keys: &["bans.first_s", "bans.longest_s"],
        fault: format!("must be at most bans.longest_s, which is {longest_s}"),
    })
}

fn share_needs_peers_per_address(config: &Config) -> Option<Conflict> {
    (config.limits.swarm_share_max > 0 && config.announce.peers_per_address_max == 0).then(|| Conflict {
        keys: &["limits.swarm_share_max", "announce.peers_per_address_max"],
        fault:
            "peers of one address are counted only if their number is limited; swarm_share_max must be 0, or \
                announce.peers_per_address_max at least 1"
                .to_owned(),
    })
}

fn control_key_has_certificate(config: &Config) -> Option<Conflict> {
    (config.control.private_key.is_some() && config.control.certificate.is_none()).then(|| Conflict {
        keys: &["control.certificate", "control.private_key"],
        fault:
            "a private key needs its certificate; certificate must name a file, or private_key must be \"\""
                .to_owned(),
    })
}

fn group_has_user(config: &Config) -> Option<Conflict> {
    (config.process.group.is_some() && config.process.user.is_none()).then(|| Conflict {
        keys: &["process.user", "process.group"],
        fault: "only a change of the user changes the group; user must name one, or group must be \"\""
            .to_owned(),
    })
}

fn one_kind_of_nats_credentials(config: &Config) -> Option<Conflict> {
    let cluster = &config.cluster;
    let keys: &'static [&'static str] =
        match (cluster.credentials.is_some(), cluster.user.is_some(), cluster.token_file.is_some()) {
            (true, true, _) => &["cluster.credentials", "cluster.user"],
            (true, _, true) => &["cluster.credentials", "cluster.token_file"],
            (_, true, true) => &["cluster.token_file", "cluster.user"],
            _ => return None,
        };
    let fault =
        "NATS accepts one kind of credentials; at most one of credentials, user and token_file may be set";
    Some(Conflict { keys, fault: fault.to_owned() })
}

fn nats_user_has_password(config: &Config) -> Option<Conflict> {
    let cluster = &config.cluster;
    let (keys, fault): (&'static [&'static str], _) =
        match (cluster.user.is_some(), cluster.password_file.is_some()) {
            (true, false) => {
                let fault = "a user has a password; password_file must name its file, or user must be \"\"";
                (&["cluster.password_file", "cluster.user"], fault)
            }
            (false, true) => {
                let fault = "a password has a user; user must name it, or password_file must be \"\"";
                (&["cluster.user", "cluster.password_file"], fault)
            }
            _ => return None,
        };
    Some(Conflict { keys, fault: fault.to_owned() })
}

fn credit_has_users(config: &Config) -> Option<Conflict> {
    let stream = config.cluster.credit_stream.as_ref()?;
    let (keys, missing): (&'static [&'static str], _) = if config.cluster.servers.is_empty() {
        (&["cluster.servers", "cluster.credit_stream"], "servers must name NATS servers")
    } else if config.tokens.jwks.is_none() {
        (&["tokens.jwks", "cluster.credit_stream"], "jwks must name the keys of tokens, which name users")
    } else {
        return None;
    };
    let fault = format!("{missing}, or credit_stream ({:?}) must be \"\"", stream.as_str());
    Some(Conflict { keys, fault })
}

fn nats_key_has_certificate(config: &Config) -> Option<Conflict> {
    (config.cluster.tls_key.is_some() && config.cluster.tls_certificate.is_none()).then(|| Conflict {
        keys: &["cluster.tls_certificate", "cluster.tls_key"],
        fault:
            "a private key needs its certificate; tls_certificate must name a file, or tls_key must be \"\""
                .to_owned(),
    })
}

/// Returns the number of entries that fit in a reply after its head.
fn entries_that_fit<Head, Entry>(reply_bytes_max: u32) -> u32 {
    const { assert!(size_of::<Head>() < 100 && size_of::<Entry>() < 100, "the casts lose no bits") };
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let (head_bytes, entry_bytes) = (size_of::<Head>() as u32, size_of::<Entry>() as u32);
    reply_bytes_max.saturating_sub(head_bytes) / entry_bytes
}
