//! The public keys of tokens: where they come from, and when they are read again.
//!
//! This module owns the JWK set of `tokens.jwks`. A set that cannot be read leaves the keys as they were, except when the
//! tracker starts or the operator names another source. A thread looks at the file once a second, or fetches the URL at its
//! interval, and publishes new keys. All of this happens off the data path.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use shoal_config::{Config, ListSource, TokensConfig};
use shoal_engine::policy::Policy;
use shoal_engine::tokens;
use shoal_token::{JWKS_BYTES_MAX, KeyNumber, KeySet, Rules};

use crate::access::{Lists, Publisher, Seen};
use crate::reload::Live;

/// Pause between two looks at the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The numbers of the keys, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct KeyCounters {
    keys: AtomicU64,
    is_faulty: AtomicU64,
}

impl KeyCounters {
    /// Returns the number of keys that can be used.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns 1 if the keys could not be read the last time, or else 0.
    pub(crate) fn faulty(&self) -> u64 {
        self.is_faulty.load(Ordering::Relaxed)
    }
}

/// The keys and where they come from. All users share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenKeys {
    state: Arc<Mutex<State>>,
    counters: Arc<KeyCounters>,
}

/// The keys of one configuration.
#[derive(Debug, Default)]
pub(crate) struct State {
    source: Option<ListSource>,
    rules: Rules,
    keys: KeySet,
    /// The greatest number that a key has had.
    last: KeyNumber,
    /// The file as it was read last.
    seen: Option<Seen>,
    is_faulty: bool,
}

impl TokenKeys {
    /// Reads the keys of a configuration when the tracker starts.
    ///
    /// # Errors
    /// Returns which key of the configuration is to be changed, and why.
    pub(crate) fn load(config: &Config) -> Result<Self, String> {
        let state = State::default().following(config)?;
        let keys = Self::default();
        keys.count(&state);
        *keys.lock() = state;
        Ok(keys)
    }

    /// Returns the keys, if tokens are configured.
    pub(crate) fn current(&self) -> Option<KeySet> {
        let state = self.lock();
        state.source.is_some().then(|| state.keys.clone())
    }

    /// Returns the counters, for the metrics.
    pub(crate) fn counters(&self) -> Arc<KeyCounters> {
        Arc::clone(&self.counters)
    }

    /// Locks the keys, so that they stay as they are until the caller has published them.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that reads the keys again, which runs as long as the program.
    ///
    /// # Errors
    /// Fails if the kernel provides no more threads.
    pub(crate) fn watch(&self, lists: &Arc<Mutex<Lists>>, publisher: &Arc<Publisher>) -> io::Result<Thread> {
        let (keys, lists, publisher) = (self.clone(), Arc::clone(lists), Arc::clone(publisher));
        let thread = thread::Builder::new().name("token-keys".to_owned()).spawn(move || {
            loop {
                let has_source = keys.refresh(&lists, &publisher);
                if has_source { thread::park_timeout(LOOK_EVERY) } else { thread::park() }
            }
        })?;
        Ok(thread.thread().clone())
    }

    /// Reads the keys again if they may have changed, and publishes them. Returns whether there is a source.
    fn refresh(&self, lists: &Mutex<Lists>, publisher: &Publisher) -> bool {
        let mut state = self.lock();
        if state.refresh() {
            // Only the owner of the lists publishes.
            let _lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
            publisher.publish(|live| Live {
                policy: Arc::new(with_keys(&live.policy, &state.keys)),
                sessions: Arc::clone(&live.sessions),
                stream_limits: live.stream_limits,
            });
        }
        self.count(&state);
        state.source.is_some()
    }

    /// Counts what is known of the keys.
    pub(crate) fn count(&self, state: &State) {
        self.counters.keys.store(state.keys.len() as u64, Ordering::Relaxed);
        self.counters.is_faulty.store(state.is_faulty.into(), Ordering::Relaxed);
    }
}

impl State {
    /// Returns the keys for another configuration.
    ///
    /// # Errors
    /// Returns which key of the configuration is to be changed, and why: a new source has no keys that could be kept.
    pub(crate) fn following(&self, config: &Config) -> Result<Self, String> {
        let TokensConfig { jwks, .. } = &config.tokens;
        let rules = tokens::rules(&config.tokens);
        let Some(source) = jwks else { return Ok(Self { last: self.last, ..Self::default() }) };
        let is_known = self.source.as_ref() == Some(source);
        // Tokens that were verified by other rules are to be verified again, so that all keys get new numbers.
        let old = (self.rules == rules).then_some(&self.keys);
        let mut last = self.last;
        let (keys, seen, is_faulty) = match read(source) {
            Ok((keys, seen)) => (keys, Some(seen), false),
            Err(error) if is_known => {
                log_kept(source, &error);
                (self.keys.clone(), self.seen, true)
            }
            Err(error) => return Err(format!("tokens.jwks = \"{source}\": {error}")),
        };
        let keys = keys.following(old, &mut last);
        log_read(source, &keys);
        Ok(Self { source: Some(source.clone()), rules, keys, last, seen, is_faulty })
    }

    /// Returns the keys, if tokens are configured.
    pub(crate) fn keys(&self) -> Option<KeySet> {
        self.source.is_some().then(|| self.keys.clone())
    }

    /// Reads the keys again if they may have changed. Returns whether they are new.
    fn refresh(&mut self) -> bool {
        let Some(source @ ListSource::Path(path)) = &self.source else { return false };
        let now = Seen::of(path);
        if self.seen.as_ref() == Some(&now) {
            return false;
        }
        self.seen = Some(now);
        match read(source) {
            Ok((keys, seen)) => {
                self.keys = keys.following(Some(&self.keys), &mut self.last);
                (self.seen, self.is_faulty) = (Some(seen), false);
                log_read(source, &self.keys);
                true
            }
            Err(error) => {
                self.is_faulty = true;
                log_kept(source, &error);
                false
            }
        }
    }
}

/// Returns a policy with other keys of tokens.
fn with_keys(policy: &Policy, keys: &KeySet) -> Policy {
    let tokens = policy.tokens().map(|tokens| tokens.with_keys(keys.clone()));
    policy.clone().with_tokens(tokens)
}

/// Reads a set of keys.
fn read(source: &ListSource) -> Result<(KeySet, Seen), String> {
    let ListSource::Path(path) = source else {
        return Err("keys cannot be fetched yet; name a file".to_owned());
    };
    // A change while the file is read shows at the next look.
    let seen = Seen::of(path);
    let json = read_file(path).map_err(|error| error.to_string())?;
    let keys = KeySet::parse(&json).map_err(|error| error.to_string())?;
    Ok((keys, seen))
}

/// Reads a file, but no more of it than a set may have and one byte.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Other files are not even opened: a reader of a FIFO would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut json = Vec::new();
    File::open(path)?.take(JWKS_BYTES_MAX as u64 + 1).read_to_end(&mut json)?;
    Ok(json)
}

fn log_read(source: &ListSource, keys: &KeySet) {
    tracing::info!(%source, keys = keys.len(), "keys of tokens");
    for reason in keys.unusable() {
        tracing::warn!(%source, reason, "a key of tokens cannot be used");
    }
}

fn log_kept(source: &ListSource, error: &str) {
    tracing::error!(%source, error, "the keys of tokens cannot be read and stay as they were");
}
