//! The files that a tracker reads at its start: its state, and the files that the configuration names.
//!
//! The tracker reads them in the sandbox and as its final user, so a file that a reload could not read already
//! prevents the start. A separate thread reads each file, since a file system can hang.

use std::fs;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use shoal_access::Access;
use shoal_access::budget::Budget;
use shoal_config::{Config, ListSource};

use crate::access_log::{self, OpenTarget};
use crate::acme;
use crate::certificates::Certificates;
use crate::cluster::{self, ClusterFiles};
use crate::hand_over::Predecessor;
use crate::privileges::Identity;
use crate::sandbox::needs::{self, Need, Use};
use crate::service_manager::frozen_swarms::FrozenSwarms;
use crate::settings;
use crate::state::State;
use shoal_control::TokenSet;
use shoal_control::public_statistics::home;
use shoal_runtime::division::Division;
use shoal_runtime::failure::Failure;
use shoal_runtime::lists::Lists;
use shoal_runtime::token_keys::TokenKeys;

pub(super) struct Files {
    pub(super) state: State,
    pub(super) access: Access,
    pub(super) access_target: Option<OpenTarget>,
    pub(super) reloadable: Reloadable,
    pub(super) cluster: ClusterFiles,
}

pub(super) struct Reloadable {
    pub(super) lists: Arc<Mutex<Lists>>,
    pub(super) token_keys: TokenKeys,
    pub(super) certificates: Option<Certificates>,
    /// The certificates of the control listener, if it has some.
    pub(super) control_certificates: Option<Certificates>,
    pub(super) control_tokens: TokenSet,
    /// The operator's own home page, if there is one.
    pub(super) home: Option<Arc<str>>,
}

impl Files {
    /// Reads all files. Lists and bans may take their parts of the memory. The secret keys come from the tracker that this one
    /// replaces, or from the frozen swarms. The error says which file cannot be used, and why.
    pub(super) async fn read(
        config: &Config,
        division: &Division,
        predecessor: Option<&mut Predecessor>,
        frozen_swarms: Option<&FrozenSwarms>,
    ) -> Result<Self, Failure> {
        let mut state = match predecessor {
            Some(Predecessor { keys, lock, .. }) => State::take_over(config, keys, lock.take())?,
            None => State::open(config, frozen_swarms.map(FrozenSwarms::keys))?,
        };
        let certificates = Certificates::load(config).await?;
        if let Some(certificates) = &certificates {
            state.resume_sessions(config, certificates.server());
        }
        let control_certificates = Certificates::load_control(config).await?;
        let tokens = read_apart("the tokens of the control listener", config, TokenSet::read).await?;
        let control_tokens = tokens.map_err(Failure::Configuration)?;
        let home = read_apart("the home page", config, home::read).await?.map_err(Failure::Configuration)?;
        let token_keys = read_apart("the keys of tokens", config, TokenKeys::load).await?;
        let token_keys = token_keys.map_err(Failure::Configuration)?;
        let cluster = read_apart("the files of the cluster", config, ClusterFiles::read).await??;
        if let Some(key) = cluster.connection_key().filter(|_| config.state.keys) {
            state.keys.adopt_connections(key);
        }
        let mut lists = Lists::new(settings::list_key()?, Budget::new(division.lists));
        lists.limit_bans(settings::bans_bytes(config, division.max));
        let read_lists = move |config: &Config| {
            if config.shares_state() {
                cluster.share(&mut lists);
            }
            let access = lists.read_all(config);
            (Arc::new(Mutex::new(lists)), access, cluster)
        };
        let (lists, access, cluster) = read_apart("lists", config, read_lists).await?;
        let access_target = access_log::open(&config.log.access)?;
        let reloadable =
            Reloadable { lists, token_keys, certificates, control_certificates, control_tokens, home };
        Ok(Self { state, access, access_target, reloadable, cluster })
    }
}

/// Opens every file that a configuration names, and reads certificates, keys and tokens as a start does. Fetches no
/// URLs. The error says which key names an unusable file, and why.
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    Identity::find(config)?;
    for Need { why, path, use_ } in needs::paths(config, None) {
        // `shoal access check` reads a whole list, and a tracker may change it.
        if use_ == Use::ReadFile || why.starts_with("access.torrents") {
            let opened = if path.is_dir() {
                fs::read_dir(&path).map(drop)
            } else {
                shoal_base::file::open(&path).map(drop)
            };
            opened.map_err(|error| {
                Failure::Configuration(format!("{why} = \"{}\": it cannot be read: {error}", path.display()))
            })?;
        }
    }
    Certificates::check(config)?;
    acme::check(config)?;
    TokenSet::read(config).map_err(Failure::Configuration)?;
    home::read(config).map_err(Failure::Configuration)?;
    if matches!(config.tokens.jwks, Some(ListSource::Path(_))) {
        TokenKeys::load(config).map_err(Failure::Configuration)?;
    }
    cluster::check(config)
}

/// Reads files on a separate thread, and waits for it.
async fn read_apart<T: Send + 'static>(
    files: &'static str,
    config: &Config,
    read: impl FnOnce(&Config) -> T + Send + 'static,
) -> anyhow::Result<T> {
    let config = config.clone();
    let thread = tokio::task::spawn_blocking(move || read(&config));
    thread.await.with_context(|| format!("the thread that reads {files} has failed"))
}
