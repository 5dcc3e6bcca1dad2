//! The files, directories and ports that a running tracker needs, and why: one list, from the configuration alone.
//!
//! The sandbox permits only these. A reload may need more than the start, and the same list shows it.
//!
//! Each entry has the key that names the path or port, and its use. The rules of Landlock (`rules`) and the check of
//! a reload both follow from the list. A new key with a path is one line here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use shoal_base::transport::stream::ListenAddress;
use shoal_config::{AccessLogTarget, Config, ListSource, SourceUrl};

/// A path that the tracker uses after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The key that names the path, or else its purpose.
    pub(crate) why: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) use_: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The tracker reads this file, and any file that replaces it.
    ReadFile,
    /// The tracker reads this directory and everything in it.
    ReadTree,
    /// The tracker appends to this file, creates it, or replaces it by a new file from the same directory.
    WriteFile,
    /// The tracker creates, replaces and removes files and directories in this directory, and creates the directory.
    WriteTree,
    /// The tracker removes this file.
    RemoveFile,
}

/// The paths where libraries look up host names and find trusted certificate authorities.
const FOR_URLS: [&str; 9] = [
    "/etc",
    // The files that `/etc/resolv.conf` may link to.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    // The libraries of nsswitch.conf(5), and the certificates that `/etc/ssl` links to.
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// The environment variables that name other certificate authorities.
const FOR_URLS_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Ports of redirects and links.
const PORTS_FOR_URLS: [u16; 2] = [80, 443];

/// The port of name servers, over TCP.
const PORT_OF_NAMES: u16 = 53;

/// Returns every path that a tracker needs after its start, with this configuration from `file`. It writes to a list
/// of torrents if the API changes it.
pub(crate) fn paths(config: &Config, file: Option<&Path>) -> Vec<Need> {
    let is_changed = config.control.listen.is_some();
    paths_with(config, file, if is_changed { Use::WriteFile } else { Use::ReadFile })
}

/// Returns every path that a running tracker needs to reload this configuration. It may serve with a new list that it
/// cannot write; a change through the API then fails.
pub(super) fn paths_of_reload(config: &Config, file: Option<&Path>) -> Vec<Need> {
    paths_with(config, file, Use::ReadFile)
}

fn paths_with(config: &Config, file: Option<&Path>, torrents: Use) -> Vec<Need> {
    let access = &config.access;
    let mut needs = Needs(Vec::new());
    needs.add("--config", file, Use::ReadFile);
    needs.add("tls.certificates", &config.tls.certificates, Use::ReadFile);
    needs.add("tls.keys", &config.tls.keys, Use::ReadFile);
    needs.add("acme.external_account_key_file", &config.acme.external_account_key_file, Use::ReadFile);
    needs.add("access.torrents_allow", files(&access.torrents_allow), torrents);
    needs.add("access.torrents_deny", files(&access.torrents_deny), torrents);
    needs.add("access.networks_allow", files(&access.networks_allow), Use::ReadFile);
    needs.add("access.networks_deny", files(&access.networks_deny), Use::ReadFile);
    needs.add("access.geoip", files(&access.geoip), Use::ReadFile);
    needs.add("access.audit_file", &access.audit_file, Use::WriteFile);
    needs.add("access.bans_file", &access.bans_file, Use::WriteFile);
    needs.add("tokens.jwks", files(config.tokens.jwks.as_slice()), Use::ReadFile);
    needs.add("fetch.folder", &config.fetch.folder, Use::WriteTree);
    needs.add("state.path", &config.state.path, Use::WriteTree);
    needs.add("control.certificate", &config.control.certificate, Use::ReadFile);
    needs.add("control.private_key", &config.control.private_key, Use::ReadFile);
    needs.add("control.tokens", &config.control.tokens, Use::ReadFile);
    needs.add("home.file", &config.home.file, Use::ReadFile);
    needs.add("cluster.credentials", &config.cluster.credentials, Use::ReadFile);
    needs.add("cluster.password_file", &config.cluster.password_file, Use::ReadFile);
    needs.add("cluster.token_file", &config.cluster.token_file, Use::ReadFile);
    needs.add("cluster.tls_ca", &config.cluster.tls_ca, Use::ReadFile);
    needs.add("cluster.tls_certificate", &config.cluster.tls_certificate, Use::ReadFile);
    needs.add("cluster.tls_key", &config.cluster.tls_key, Use::ReadFile);
    if let AccessLogTarget::File(file) = &config.log.access {
        needs.add("log.access", [file], Use::WriteFile);
    }
    // So a reload can name the first file of records.
    let logs = std::env::var_os("LOGS_DIRECTORY");
    needs.add("LOGS_DIRECTORY", logs.iter().flat_map(std::env::split_paths), Use::WriteTree);
    needs.add("http.listen", socket_files(&config.http.listen), Use::RemoveFile);
    needs.add("tls.listen", socket_files(&config.tls.listen), Use::RemoveFile);
    needs.add("metrics of the process", ["/proc/self"], Use::ReadTree);
    needs.add("the machine", ["/sys/kernel/mm/transparent_hugepage", "/sys/devices/system"], Use::ReadTree);
    // A NATS server may demand encryption, and then shows a certificate.
    let trusts_system = !config.cluster.servers.is_empty() && config.cluster.tls_ca.is_none();
    if looks_up_names(config) || trusts_system {
        needs.add("names and certificates of URLs", FOR_URLS, Use::ReadTree);
        let others = FOR_URLS_VARIABLES.iter().filter_map(std::env::var_os);
        needs.add("certificates of URLs", others, Use::ReadTree);
    }
    needs.0
}

/// Returns the need of a tracker that removes its control socket when it stops.
pub(crate) fn local_socket(path: &Path) -> Need {
    Need { why: "the control socket", path: path.to_owned(), use_: Use::RemoveFile }
}

/// Returns every TCP port that a tracker with this configuration connects to.
pub(crate) fn ports(config: &Config) -> BTreeSet<u16> {
    let mut ports: BTreeSet<u16> = urls(config).filter_map(|url| url.uri().port_u16()).collect();
    if config.has_acme() {
        ports.extend(config.acme.directory.uri().port_u16());
    }
    if has_urls(config) {
        ports.extend(PORTS_FOR_URLS);
        ports.extend(ureq::Proxy::try_from_env().map(|proxy| proxy.port()));
    }
    ports.extend(config.cluster.servers.iter().map(|server| server.port));
    if looks_up_names(config) {
        ports.insert(PORT_OF_NAMES);
    }
    ports
}

/// Returns whether the tracker looks up host names, for URLs or NATS servers.
pub(crate) fn looks_up_names(config: &Config) -> bool {
    has_urls(config) || config.cluster.servers.iter().any(|server| server.address().is_none())
}

fn has_urls(config: &Config) -> bool {
    config.has_acme() || urls(config).next().is_some()
}

pub(crate) fn has_socket_files(config: &Config) -> bool {
    socket_files(&config.http.listen).chain(socket_files(&config.tls.listen)).next().is_some()
}

struct Needs(Vec<Need>);

impl Needs {
    fn add<P: AsRef<Path>>(&mut self, why: &'static str, paths: impl IntoIterator<Item = P>, use_: Use) {
        let need = |path: P| Need { why, path: path.as_ref().to_owned(), use_ };
        self.0.extend(paths.into_iter().map(need));
    }
}

fn sources(config: &Config) -> impl Iterator<Item = &ListSource> {
    let access = &config.access;
    [&access.torrents_allow, &access.torrents_deny, &access.networks_allow, &access.networks_deny]
        .into_iter()
        .flatten()
        .chain(&access.geoip)
        .chain(&config.tokens.jwks)
}

fn urls(config: &Config) -> impl Iterator<Item = &SourceUrl> {
    sources(config).filter_map(|source| match source {
        ListSource::Url(url) => Some(url),
        ListSource::Path(_) => None,
    })
}

fn files(sources: &[ListSource]) -> impl Iterator<Item = &Path> {
    sources.iter().filter_map(|source| match source {
        ListSource::Path(path) => Some(path.as_path()),
        ListSource::Url(_) => None,
    })
}

fn socket_files(listen: &[shoal_config::Listen]) -> impl Iterator<Item = &Path> {
    listen.iter().filter_map(|listen| match &listen.address {
        ListenAddress::Unix(path) => Some(path.as_path()),
        ListenAddress::Tcp(_) => None,
    })
}
