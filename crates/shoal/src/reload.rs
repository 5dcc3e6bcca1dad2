//! Reload: what SIGHUP changes while the tracker runs.
//!
//! The configuration and the certificates are read again and checked as a whole. If all of it is valid, it takes
//! effect at once. Otherwise everything stays as it was, and the log says why. The lists of torrents are read again
//! as well: a source that cannot be read keeps its entries, independently of the others. A worker sees the new
//! [`Live`] before its next batch, see [`shoal_runtime::published`]. Keys whose change needs a restart keep their
//! values, and the log names them. `shoal_config` declares for each key whether a reload changes it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use shoal_config::{ByteSize, Config, Differences, Reloaded};

use crate::certificates::Certificates;
use crate::hand_over::HandOver;
use crate::sandbox::Sandbox;
use crate::service_manager::ServiceManager;
use crate::settings;
use crate::sockets::listening;
use shoal_control::public_statistics::home;
use shoal_control::{TokenSet, Tokens};
use shoal_runtime::config_file;
use shoal_runtime::counters::ReloadCounters;
use shoal_runtime::lists::{Lists, Publisher};
use shoal_runtime::live::Live;
use shoal_runtime::log::LogFilter;
use shoal_runtime::token_keys::TokenKeys;
use shoal_session::SessionSettings;
use tokio::sync::Notify;

pub(crate) struct Reloader {
    pub(crate) file: Option<PathBuf>,
    pub(crate) serves_tls: bool,
    /// The certificates of all listeners that need them.
    pub(crate) certificates: Vec<Certificates>,
    pub(crate) control_tokens: Arc<Tokens>,
    pub(crate) lists: Arc<Mutex<Lists>>,
    /// The keys of tokens, and the thread that reads them again.
    pub(crate) token_keys: (TokenKeys, Thread),
    pub(crate) log: LogFilter,
    pub(crate) hand_over: Arc<HandOver>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) counters: Arc<ReloadCounters>,
    /// The memory that the policy reserved at start.
    pub(crate) policy_bytes_max: u64,
    /// The memory of the process.
    pub(crate) memory_bytes_max: u64,
    /// The limits of the process, which a configuration must not exceed.
    pub(crate) sandbox: Sandbox,
    pub(crate) manager: ServiceManager,
    /// The shared values of all nodes of a cluster, once the first have arrived.
    pub(crate) cluster_values: Mutex<Option<Vec<(String, String)>>>,
    /// Makes the task that renews the certificate look again.
    pub(crate) renew: Arc<Notify>,
    /// Held during a reload.
    pub(crate) running: Mutex<()>,
}

impl core::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

impl Reloader {
    /// Reads everything again, as an operator asks, and logs the outcome. The certificate is looked at as well, even if the
    /// configuration is invalid. The error says why everything stays as it was.
    pub(crate) fn reload(&self) -> Result<Differences, String> {
        let outcome = self.read_again();
        self.renew.notify_one();
        outcome
    }

    /// Reads everything again, and logs the outcome. Concurrent calls run one after another.
    fn read_again(&self) -> Result<Differences, String> {
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.manager.reloading();
        let outcome = self.try_reload();
        self.manager.reloaded(outcome.as_ref().map(|_| ()).map_err(String::as_str));
        let count = match &outcome {
            Ok(differences) => {
                tracing::info!(changed = differences.applied.join(" "), "the configuration was read again");
                if !differences.needs_restart.is_empty() {
                    // An upgrade takes over the sockets of all workers.
                    let keys = differences.needs_restart.join(", ");
                    let keys = keys.replace("workers.count", "workers.count (fewer workers: only a restart)");
                    tracing::warn!("`shoal upgrade` or a restart applies: {keys}");
                }
                &self.counters.applied
            }
            Err(error) => {
                tracing::error!(error, "the configuration stays as it was");
                &self.counters.failed
            }
        };
        count.add(1);
        outcome
    }

    /// Replaces the shared values of a cluster, and reads everything again. The error says why everything stays as it
    /// was.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only a node uses it"))]
    pub(crate) fn apply_cluster(&self, values: Vec<(String, String)>) -> Result<Differences, String> {
        *self.cluster_values() = Some(values);
        self.read_again()
    }

    /// Checks values that all nodes of a cluster are to share. The error is the key, the value, and what would be
    /// accepted.
    pub(crate) fn check_cluster(&self, values: &[(String, String)]) -> Result<(), String> {
        let live = self.publisher.live.latest();
        config_file::reread(live.policy.config(), self.file.as_deref(), Some(values)).map(drop)
    }

    fn reread(&self, running: &Config) -> Result<Reloaded, String> {
        let values = self.cluster_values().clone();
        config_file::reread(running, self.file.as_deref(), values.as_deref())
    }

    fn cluster_values(&self) -> MutexGuard<'_, Option<Vec<(String, String)>>> {
        self.cluster_values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_reload(&self) -> Result<Differences, String> {
        // An upgrade that begins later reads the same files or newer ones.
        self.hand_over.check_reload()?;
        let live = self.publisher.live.latest();
        let mut reloaded = self.reread(live.policy.config())?;
        if !self.serves_tls && reloaded.config.tls.listen != live.policy.config().tls.listen {
            // The workers have no certificates.
            reloaded.keep_tls_listen(live.policy.config());
        }
        let config = reloaded.config;
        self.sandbox.check(&config, self.file.as_deref())?;
        let (token_keys, token_thread) = &self.token_keys;
        let mut keys = token_keys.lock();
        let new_keys = keys.following(&config, false)?;
        // The policy may have other keys than a moment ago.
        let live = self.publisher.live.latest();
        // This check comes before any such allocation.
        let (needed, reserved) =
            (settings::policy_bytes(&config, self.memory_bytes_max), self.policy_bytes_max);
        if needed > reserved {
            return Err(format!(
                "limits, tokens: what these keys limit and cache takes {} now, and {} were reserved in memory.max at \
                 start; restart the tracker, or set these keys as they were",
                ByteSize::mib(needed.div_ceil(1 << 20)),
                ByteSize::mib(reserved >> 20)
            ));
        }
        let policy =
            settings::policy(config.clone(), new_keys.keys(), Some(&live.policy), self.memory_bytes_max)
                .map_err(|error| error.to_string())?
                .with_private_host(live.policy.is_host_private());
        let control_tokens = TokenSet::read(&config)?;
        let home = home::read(&config)?;
        let running = live.policy.config();
        let change = listening::is_change(running, &config);
        let change = change.then(|| self.hand_over.change_sockets(running, &config)).transpose()?;
        // Reading certificates is the last step that can fail.
        for certificates in &self.certificates {
            certificates.reload(&config).map_err(|error| {
                tracing::error!(%error, "the certificates stay as they were");
                error.to_string()
            })?;
        }
        self.control_tokens.replace(control_tokens);
        self.log.set_level(config.log.level);
        // The lock is held until the lists are published, so that no older lists replace them.
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let access = lists.read_all(&config);
        let endpoints = change.as_ref().map_or(&live.endpoints, |pending| &pending.change.endpoints);
        let listeners = match &change {
            Some(pending) => pending.change.listener_protocols(&config),
            None => live.sessions.listeners.clone(),
        };
        self.publisher.publish(|live| Live {
            sessions: Arc::new(SessionSettings { listeners, ..SessionSettings::of(&config) }),
            stream_limits: settings::stream_limits(&config, endpoints.connections_max),
            endpoints: Arc::clone(endpoints),
            policy: Arc::new(policy.with_access(access).with_suspension_of(&live.policy)),
            home,
            connection_key: live.connection_key,
        });
        if let Some(change) = change {
            change.commit();
        }
        settings::apply_to_store(&self.publisher.store, &config);
        lists.log_changes();
        lists.watch();
        token_keys.count(&new_keys);
        *keys = new_keys;
        token_thread.unpark();
        Ok(reloaded.differences)
    }
}
