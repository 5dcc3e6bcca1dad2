//! The public keys of tokens: their source, and when they are read again.
//!
//! This module owns the JWK set of `tokens.jwks`. A set that cannot be read leaves the keys unchanged, except when the
//! tracker starts or the operator names another source. A thread looks at the file once a second, or fetches the URL at
//! its interval, and publishes new keys. It fetches without the lock of the keys, so that a reload does not wait for a
//! server whose keys are known. All of this happens off the data path.
//!
//! A tracker whose URL is away at the start uses its last good copy. Without one, it starts without keys and refuses
//! all tokens until the URL is back.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use shoal_access::fetch::{Content, Limits, Remote};
use shoal_access::token::{JWKS_BYTES_MAX, KeyNumber, KeySet, Rules};
use shoal_base::metrics::Gauge;
use shoal_config::{Config, ListSource, SourceUrl, TokensConfig};
use shoal_engine::policy::Policy;
use shoal_engine::tokens;

use crate::clock;
use crate::heartbeat::ReaderHeartbeat;
use crate::lists::{Lists, Publisher, Seen};
use crate::panics::caught;

/// Pause between two looks at the file, or at the time of the next fetch.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time between two fetches. A withdrawn key is in use for no longer.
const REFRESH_MS: u64 = 300_000;

/// Time until the next fetch after one that has failed.
const RETRY_MS: u64 = 10_000;

/// The name of the copies of keys.
const PURPOSE: &str = "token-keys";

/// The numbers of the keys, for the metrics.
#[derive(Debug, Default)]
pub struct KeyCounters {
    /// Keys that can be used.
    pub keys: Gauge,
    /// 1 if the keys could not be read the last time, or else 0.
    pub is_faulty: Gauge,
    /// That of the thread which reads the keys again.
    pub heartbeat: ReaderHeartbeat,
}

/// The keys and where they come from. All users share it.
#[derive(Clone, Debug, Default)]
pub struct TokenKeys {
    state: Arc<Mutex<State>>,
    counters: Arc<KeyCounters>,
}

/// The keys of one configuration.
#[derive(Debug, Default)]
pub struct State {
    source: Option<ListSource>,
    rules: Rules,
    keys: KeySet,
    /// The greatest number that a key has had.
    last: KeyNumber,
    /// The file as last read.
    seen: Option<Seen>,
    /// The content of a URL. Absent while the thread fetches it.
    url: Option<UrlKeys>,
    /// The locks of the URLs in use. A URL that is configured again while the thread still fetches it has the same
    /// lock.
    fetching: Vec<(SourceUrl, Weak<Mutex<()>>)>,
    is_faulty: bool,
}

#[derive(Debug)]
struct UrlKeys {
    url: SourceUrl,
    folder: PathBuf,
    remote: Remote,
    limits: Limits,
    /// The time of the next fetch, on the monotonic clock.
    due_ms: u64,
    /// Held during a fetch, because there is one copy on disk.
    fetching: Arc<Mutex<()>>,
}

impl TokenKeys {
    /// Reads the keys of a configuration when the tracker starts. The error says which key of the configuration to
    /// change, and why.
    pub fn load(config: &Config) -> Result<Self, String> {
        let state = State::default().following(config, true)?;
        let keys = Self::default();
        keys.count(&state);
        *keys.lock() = state;
        Ok(keys)
    }

    /// Returns the keys, if tokens are configured.
    pub fn current(&self) -> Option<KeySet> {
        self.lock().keys()
    }

    /// Returns the counters, for the metrics.
    pub fn counters(&self) -> Arc<KeyCounters> {
        Arc::clone(&self.counters)
    }

    /// Locks the keys, so that they stay unchanged until the caller has published them.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that reads the keys again, which runs as long as the program. Fails if the kernel provides no
    /// more threads.
    pub fn watch(&self, lists: &Arc<Mutex<Lists>>, publisher: &Arc<Publisher>) -> io::Result<Thread> {
        let (keys, lists, publisher) = (self.clone(), Arc::clone(lists), Arc::clone(publisher));
        let thread = thread::Builder::new().name("token-keys".to_owned()).spawn(move || {
            loop {
                let refresh = || keys.refresh(&lists, &publisher);
                let has_source = keys.counters.heartbeat.during(clock::monotonic_ms(), refresh);
                if has_source { thread::park_timeout(LOOK_EVERY) } else { thread::park() }
            }
        })?;
        Ok(thread.thread().clone())
    }

    /// Reads the keys again if they may have changed, and publishes them. Returns whether there is a source.
    fn refresh(&self, lists: &Mutex<Lists>, publisher: &Publisher) -> bool {
        // A separate statement, so that the lock is free while the thread fetches.
        let due = self.lock().take_due();
        let fetched = due.map(|mut url| {
            let read = url.fetch();
            (url, read)
        });
        let mut state = self.lock();
        let are_new = match fetched {
            Some((url, read)) => state.take_fetched(url, read),
            None => state.read_file(),
        };
        if are_new {
            // Only the owner of the lists publishes.
            let _lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
            publisher.publish(|live| live.with_policy(with_keys(&live.policy, &state.keys)));
        }
        self.count(&state);
        state.source.is_some()
    }

    /// Updates the counters.
    pub fn count(&self, state: &State) {
        self.counters.keys.set(state.keys.len() as u64);
        self.counters.is_faulty.set(state.is_faulty.into());
    }
}

impl State {
    /// Returns the keys for another configuration. At the start of the tracker, a URL that is away is no error. The
    /// error says which key of the configuration to change, and why: a new source has no earlier keys.
    pub fn following(&self, config: &Config, is_start: bool) -> Result<Self, String> {
        let TokensConfig { jwks, .. } = &config.tokens;
        let rules = tokens::rules(&config.tokens);
        let mut fetching = self.fetching.clone();
        fetching.retain(|(_, lock)| lock.strong_count() > 0);
        let Some(source) = jwks else {
            return Ok(Self { last: self.last, fetching, ..Self::default() });
        };
        let is_known = self.source.as_ref() == Some(source);
        let mut url = match source {
            ListSource::Path(_) => None,
            ListSource::Url(url) => Some(UrlKeys::new(url, config, lock_of(url, &mut fetching))?),
        };
        let read = match (source, &mut url) {
            // The thread fetches it at once.
            (_, Some(_)) if is_known => Ok((self.keys.clone(), None)),
            (_, Some(url)) => url.read_first().map(|keys| (keys, None)),
            (ListSource::Path(path), None) => read(path).map(|(keys, seen)| (keys, Some(seen))),
            (ListSource::Url(_), None) => Ok((KeySet::default(), None)),
        };
        let (keys, seen, is_faulty) = match read {
            Ok((keys, seen)) => (keys, seen, url.is_some() && is_known && self.is_faulty),
            Err(error) if is_known => {
                log_kept(source, &error);
                (self.keys.clone(), self.seen, true)
            }
            Err(error) if is_start && url.is_some() => {
                log_kept(source, &error);
                (KeySet::default(), None, true)
            }
            Err(error) => return Err(format!("tokens.jwks = \"{source}\": {error}")),
        };
        // Tokens that were verified by other rules must be verified again, so all keys get new numbers.
        let old = (self.rules == rules).then_some(&self.keys);
        let mut last = self.last;
        let keys = keys.following(old, &mut last);
        log_read(source, &keys);
        Ok(Self { source: Some(source.clone()), rules, keys, last, seen, url, fetching, is_faulty })
    }

    /// Returns the keys, if tokens are configured.
    pub fn keys(&self) -> Option<KeySet> {
        self.source.is_some().then(|| self.keys.clone())
    }

    /// Takes the URL out, if it is due.
    fn take_due(&mut self) -> Option<UrlKeys> {
        self.url.take_if(|url| url.due_ms <= clock::monotonic_ms())
    }

    /// Puts a URL back and adopts its fetched keys, unless the configuration was read again meanwhile. Returns whether
    /// the keys are new.
    fn take_fetched(&mut self, url: UrlKeys, read: Result<Option<KeySet>, String>) -> bool {
        // The URL of a newly read configuration is due at once. It may be another one.
        if let Some(own) = &mut self.url {
            // If it is the same URL, the copy on disk belongs to the keys that are discarded here.
            own.forget_copy();
            return false;
        }
        if !matches!(self.source, Some(ListSource::Url(_))) {
            return false;
        }
        self.url = Some(url);
        self.take(read)
    }

    /// Reads the file again if it has changed. Returns whether the keys are new.
    fn read_file(&mut self) -> bool {
        let Some(ListSource::Path(path)) = &self.source else { return false };
        let now = Seen::of(path);
        if self.seen == Some(now) {
            return false;
        }
        self.seen = Some(now);
        let read = read(path).map(|(keys, seen)| {
            self.seen = Some(seen);
            Some(keys)
        });
        self.take(read)
    }

    /// Adopts keys that were read, or nothing if they have not changed. Returns whether they are new.
    fn take(&mut self, read: Result<Option<KeySet>, String>) -> bool {
        let Some(source) = &self.source else { return false };
        self.is_faulty = read.is_err();
        match read {
            Ok(Some(keys)) => {
                self.keys = keys.following(Some(&self.keys), &mut self.last);
                log_read(source, &self.keys);
                true
            }
            Ok(None) => false,
            Err(error) => {
                log_kept(source, &error);
                false
            }
        }
    }
}

impl UrlKeys {
    fn new(url: &SourceUrl, config: &Config, fetching: Arc<Mutex<()>>) -> Result<Self, String> {
        let Some(folder) = &config.fetch.folder else { return Err("fetch.folder is not set".to_owned()) };
        let limits = Limits {
            bytes_max: JWKS_BYTES_MAX as u64,
            time_max: Duration::from_secs(config.fetch.timeout_s.into()),
        };
        let remote = Remote::new(url.uri().clone(), folder, PURPOSE);
        let (url, folder) = (url.clone(), folder.clone());
        Ok(Self { url, folder, remote, limits, due_ms: 0, fetching })
    }

    /// Makes the next fetch unconditional.
    fn forget_copy(&mut self) {
        self.remote = Remote::new(self.url.uri().clone(), &self.folder, PURPOSE);
    }

    /// Returns the keys of the last good copy, or else of the URL.
    fn read_first(&mut self) -> Result<KeySet, String> {
        // An unreadable copy counts as missing.
        if let Ok(Some(keys)) = self.remote.read_copy(parse) {
            return Ok(keys);
        }
        self.fetch()?.ok_or_else(|| "the server says that its content has not changed".to_owned())
    }

    /// Fetches the keys. Returns `None` if they have not changed.
    fn fetch(&mut self) -> Result<Option<KeySet>, String> {
        let _fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        let fetched = caught(|| self.remote.fetch(self.limits, parse).map_err(|error| error.to_string()));
        let pause_ms = if fetched.is_ok() { REFRESH_MS } else { RETRY_MS };
        self.due_ms = clock::monotonic_ms().saturating_add(pause_ms);
        fetched
    }
}

/// Reads a fetched set of keys.
fn parse(content: &mut Content<'_>) -> Result<KeySet, String> {
    let mut json = Vec::new();
    let bytes_max = JWKS_BYTES_MAX as u64 + 1;
    content.body.by_ref().take(bytes_max).read_to_end(&mut json).map_err(|error| error.to_string())?;
    parse_json(&json)
}

fn parse_json(json: &[u8]) -> Result<KeySet, String> {
    caught(|| KeySet::parse(json).map_err(|error| error.to_string()))
}

/// Returns the lock of a URL, which is a new one unless the URL is in use.
fn lock_of(url: &SourceUrl, locks: &mut Vec<(SourceUrl, Weak<Mutex<()>>)>) -> Arc<Mutex<()>> {
    let known = locks.iter().find(|(other, _)| other == url).and_then(|(_, lock)| lock.upgrade());
    known.unwrap_or_else(|| {
        let lock = Arc::default();
        locks.push((url.clone(), Arc::downgrade(&lock)));
        lock
    })
}

fn with_keys(policy: &Policy, keys: &KeySet) -> Policy {
    let tokens = policy.tokens().map(|tokens| tokens.with_keys(keys.clone()));
    policy.clone().with_tokens(tokens)
}

fn read(path: &Path) -> Result<(KeySet, Seen), String> {
    // A change while the file is read shows at the next look.
    let seen = Seen::of(path);
    let json = shoal_base::file::read(path, JWKS_BYTES_MAX as u64).map_err(|error| error.to_string())?;
    Ok((parse_json(&json)?, seen))
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
