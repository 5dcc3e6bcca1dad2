//! Session tickets: the keys that all workers share, and the handle through which a worker uses them.
//!
//! A ticket takes the state of a session to the client, so that the server stores none (RFC 8446, 4.6.1). A client may
//! return to any worker, so all of them have the same keys. Each has a copy of them in its own [`Tickets`]: sealing and
//! opening read one shared word, which is written only when the keys change.
//!
//! A ticket is the name of its key, a random nonce, and the sealed state. The cipher is AES-256-GCM-SIV, because many
//! workers draw nonces independently: a repeated nonce only reveals whether two states are equal (RFC 8452, 9).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use parking_lot::Mutex;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

/// How long new tickets are sealed with the same key. The key opens tickets for the same time again.
const KEY_LIFETIME_S: u64 = 6 * 60 * 60;

/// How long a client may keep a ticket.
const TICKET_LIFETIME_S: u32 = 12 * 60 * 60;

const NAME_BYTES: usize = 16;

const KEY_BYTES: usize = 32;

const TAG_BYTES: usize = 16;

pub(crate) struct TicketKeys {
    /// How often the keys have changed.
    version: AtomicU64,
    current: Mutex<Arc<KeySet>>,
    time: Arc<dyn TimeProvider>,
}

/// The keys between two changes.
struct KeySet {
    version: u64,
    sealing: Arc<Key>,
    /// The previous key, unless its tickets have expired.
    previous: Option<Arc<Key>>,
    /// When the next change is due.
    until_unix_s: u64,
}

struct Key {
    name: [u8; NAME_BYTES],
    /// The secret, for the next process.
    secret: [u8; KEY_BYTES],
    cipher: LessSafeKey,
}

/// Keys that a server has exported.
struct ExportedKeys {
    until_unix_s: u64,
    sealing: Arc<Key>,
    previous: Option<Arc<Key>>,
}

/// How a running server has used another server's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// The server uses them.
    Adopted,
    /// The server has changed the same keys since, and keeps its own.
    Newer,
    /// The keys are malformed.
    Malformed,
}

pub(crate) struct Tickets {
    keys: Arc<TicketKeys>,
    /// No other worker takes this lock.
    snapshot: Mutex<Arc<KeySet>>,
}

impl TicketKeys {
    /// Generates the first key. Fails if the system provides no random numbers.
    pub(crate) fn new(time: Arc<dyn TimeProvider>) -> Result<Arc<Self>, Unspecified> {
        let now_s = time.current_time().map_or(0, |time| time.as_secs());
        let first = KeySet {
            version: 0,
            sealing: Arc::new(Key::random()?),
            previous: None,
            until_unix_s: now_s.saturating_add(KEY_LIFETIME_S),
        };
        Ok(Arc::new(Self { version: AtomicU64::new(0), current: Mutex::new(Arc::new(first)), time }))
    }

    pub(crate) fn handle(self: &Arc<Self>) -> Arc<Tickets> {
        let snapshot = Mutex::new(Arc::clone(&self.current.lock()));
        Arc::new(Tickets { keys: Arc::clone(self), snapshot })
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the keys: the time of the next change, then a name and a secret of each.
    pub(crate) fn export(&self) -> Vec<u8> {
        let current = self.current.lock();
        let keys = [Some(&current.sealing), current.previous.as_ref()];
        let keys = keys.into_iter().flatten().flat_map(|key| [&key.name[..], &key.secret].concat());
        current.until_unix_s.to_le_bytes().into_iter().chain(keys).collect()
    }

    /// Replaces the keys by exported ones. Returns whether these are well-formed. Keys that are too old are replaced at
    /// their next use.
    pub(crate) fn import(&self, exported: &[u8]) -> bool {
        let Some(exported) = ExportedKeys::parse(exported, self.now_s()) else { return false };
        self.replace(&mut self.current.lock(), exported);
        true
    }

    /// Uses another server's keys from now on, unless the keys here are their successors: this server has changed them,
    /// and the other one does not know that yet.
    pub(crate) fn adopt(&self, exported: &[u8]) -> Adoption {
        let Some(mut exported) = ExportedKeys::parse(exported, self.now_s()) else {
            return Adoption::Malformed;
        };
        let mut current = self.current.lock();
        if current.previous.as_ref().is_some_and(|previous| previous.name == exported.sealing.name) {
            return Adoption::Newer;
        }
        if current.sealing.name == exported.sealing.name {
            // The clocks of the servers may differ. The keys change when the first of them does so.
            exported.until_unix_s = exported.until_unix_s.min(current.until_unix_s);
            exported.previous = exported.previous.or_else(|| current.previous.clone());
            let adds_key = exported.previous.is_some() && current.previous.is_none();
            if exported.until_unix_s == current.until_unix_s && !adds_key {
                return Adoption::Adopted;
            }
        }
        self.replace(&mut current, exported);
        Adoption::Adopted
    }

    fn replace(&self, current: &mut Arc<KeySet>, keys: ExportedKeys) {
        let ExportedKeys { until_unix_s, sealing, previous } = keys;
        *current = Arc::new(KeySet { version: current.version + 1, sealing, previous, until_unix_s });
        self.version.store(current.version, Ordering::Release);
    }

    fn now_s(&self) -> u64 {
        self.time.current_time().map_or(0, |time| time.as_secs())
    }

    /// Changes the keys, unless another worker has done so already. Returns the current ones.
    fn change(&self, now_s: u64) -> Option<Arc<KeySet>> {
        let mut current = self.current.lock();
        if now_s > current.until_unix_s {
            // The tickets of a key that ended long ago have also expired.
            let is_recent = now_s <= current.until_unix_s.saturating_add(KEY_LIFETIME_S);
            *current = Arc::new(KeySet {
                version: current.version + 1,
                sealing: Arc::new(Key::random().ok()?),
                previous: is_recent.then(|| Arc::clone(&current.sealing)),
                until_unix_s: now_s.saturating_add(KEY_LIFETIME_S),
            });
            self.version.store(current.version, Ordering::Release);
        }
        Some(Arc::clone(&current))
    }
}

impl ExportedKeys {
    fn parse(exported: &[u8], now_s: u64) -> Option<Self> {
        let (until, keys) = exported.split_first_chunk()?;
        let keys: Option<Vec<_>> = keys.chunks(NAME_BYTES + KEY_BYTES).map(Key::import).collect();
        let mut keys = keys.filter(|keys| keys.len() <= 2)?.into_iter();
        Some(Self {
            // The clock may have been set back.
            until_unix_s: u64::from_le_bytes(*until).min(now_s.saturating_add(KEY_LIFETIME_S)),
            sealing: keys.next()?,
            previous: keys.next(),
        })
    }
}

impl Tickets {
    /// Uses the keys of this time.
    fn with_keys<T>(&self, act: impl FnOnce(&KeySet) -> Option<T>) -> Option<T> {
        let now_s = self.keys.time.current_time()?.as_secs();
        let mut snapshot = self.snapshot.lock();
        let is_stale = self.keys.version.load(Ordering::Acquire) != snapshot.version;
        if is_stale || now_s > snapshot.until_unix_s {
            *snapshot = self.keys.change(now_s)?;
        }
        act(&snapshot)
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_LIFETIME_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.with_keys(|keys| keys.sealing.seal(plain).ok())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.with_keys(|keys| {
            let (name, sealed) = ticket.split_first_chunk()?;
            let all = [Some(&keys.sealing), keys.previous.as_ref()];
            all.into_iter().flatten().find(|key| key.name == *name)?.open(sealed)
        })
    }
}

impl Key {
    fn random() -> Result<Self, Unspecified> {
        let (mut name, mut secret) = ([0; NAME_BYTES], [0; KEY_BYTES]);
        rand::fill(&mut name)?;
        rand::fill(&mut secret)?;
        Self::new(name, secret)
    }

    fn new(name: [u8; NAME_BYTES], secret: [u8; KEY_BYTES]) -> Result<Self, Unspecified> {
        Ok(Self { name, secret, cipher: LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, &secret)?) })
    }

    fn import(exported: &[u8]) -> Option<Arc<Self>> {
        let (name, secret) = exported.split_first_chunk()?;
        Self::new(*name, secret.try_into().ok()?).ok().map(Arc::new)
    }

    fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce)?;
        let mut ticket = Vec::with_capacity(NAME_BYTES + NONCE_LEN + plain.len() + TAG_BYTES);
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = &mut ticket[NAME_BYTES + NONCE_LEN..];
        let tag = self.cipher.seal_in_place_separate_tag(nonce, Aad::from(self.name), sealed)?;
        ticket.extend_from_slice(tag.as_ref());
        Ok(ticket)
    }

    /// Returns the content of a ticket, whose part after the name is `sealed`.
    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk()?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let bytes = self.cipher.open_in_place(nonce, Aad::from(self.name), &mut plain).ok()?.len();
        plain.truncate(bytes);
        Some(plain)
    }
}

impl fmt::Debug for Tickets {
    /// Omits the keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tickets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;

    #[derive(Debug, Default)]
    struct TestTime(AtomicU64);

    impl TimeProvider for TestTime {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
        }
    }

    fn workers() -> (Arc<TestTime>, [Arc<Tickets>; 2]) {
        let time = Arc::new(TestTime::default());
        let keys = TicketKeys::new(Arc::clone(&time) as _).unwrap();
        (time, [keys.handle(), keys.handle()])
    }

    #[test]
    fn a_ticket_is_good_for_every_worker_and_the_next_key() {
        let (time, [one, other]) = workers();
        let ticket = one.encrypt(b"state").unwrap();
        let read = |worker: &Tickets| worker.decrypt(&ticket);
        assert_eq!(read(&other).unwrap(), b"state");
        for (at_s, is_good) in [
            (KEY_LIFETIME_S, true),
            (KEY_LIFETIME_S + 1, true),
            (2 * KEY_LIFETIME_S + 1, true),
            (2 * KEY_LIFETIME_S + 2, false),
        ] {
            time.0.store(at_s, Ordering::Relaxed);
            assert_eq!(read(&other).is_some(), is_good, "{at_s}");
            assert_eq!(read(&one).is_some(), is_good, "{at_s}");
            // Both have changed to the same key.
            let next = other.encrypt(b"next").unwrap();
            assert_eq!(one.decrypt(&next).unwrap(), b"next");
            assert_eq!(next.starts_with(&ticket[..NAME_BYTES]), at_s == KEY_LIFETIME_S);
        }
    }

    #[test]
    fn after_a_long_pause_no_old_ticket_is_good() {
        let (time, [one, _]) = workers();
        let ticket = one.encrypt(b"state").unwrap();
        time.0.store(3 * KEY_LIFETIME_S, Ordering::Relaxed);
        assert_eq!(one.decrypt(&ticket), None);
    }

    #[test]
    fn exported_keys_open_the_tickets_of_their_process_for_as_long_as_there() {
        let (time, [one, _]) = workers();
        let first = one.encrypt(b"first").unwrap();
        time.0.store(KEY_LIFETIME_S + 1, Ordering::Relaxed);
        let second = one.encrypt(b"second").unwrap();
        let exported = one.keys.export();
        for (at_s, are_good) in [
            (KEY_LIFETIME_S + 2, [true, true]),
            (2 * KEY_LIFETIME_S + 1, [true, true]),
            (2 * KEY_LIFETIME_S + 2, [false, true]),
            (3 * KEY_LIFETIME_S + 2, [false, false]),
            // Its clock was set back.
            (0, [true, true]),
        ] {
            let (time, [other, _]) = workers();
            time.0.store(at_s, Ordering::Relaxed);
            assert!(other.keys.import(&exported));
            let opened = [(&first, b"first".to_vec()), (&second, b"second".to_vec())];
            assert_eq!(
                opened.map(|(ticket, plain)| other.decrypt(ticket) == Some(plain)),
                are_good,
                "{at_s}"
            );
            time.0.store(at_s + KEY_LIFETIME_S + 1, Ordering::Relaxed);
            assert!(!other.encrypt(b"next").unwrap().starts_with(&second[..NAME_BYTES]), "keys change");
        }
        for length in (0..exported.len()).filter(|length| *length != 8 + NAME_BYTES + KEY_BYTES) {
            assert!(!one.keys.import(&exported[..length]), "{length}");
        }
        assert!(!one.keys.import(&[exported.clone(), exported].concat()));
        assert_eq!(one.decrypt(&first).unwrap(), b"first", "the keys are as before");
    }

    /// Lets two servers exchange their keys until neither changes, by way of those that are stored. Returns these.
    fn exchange(stored: Vec<u8>, servers: [&TicketKeys; 2]) -> Vec<u8> {
        let offer = |stored: Vec<u8>, server: &TicketKeys| match server.adopt(&stored) {
            Adoption::Adopted => stored,
            Adoption::Newer => server.export(),
            Adoption::Malformed => panic!("the keys of a server"),
        };
        let stored = servers.into_iter().fold(stored, offer);
        assert!(servers.map(|server| server.adopt(&stored)).iter().all(|keys| *keys == Adoption::Adopted));
        stored
    }

    #[test]
    fn servers_that_exchange_their_keys_accept_the_tickets_of_both_beside_clocks_that_are_minutes_apart() {
        let ((time, [one, _]), (other_time, [other, _])) = (workers(), workers());
        let set_clocks = |now_s: u64| {
            time.0.store(now_s + 300, Ordering::Relaxed);
            other_time.0.store(now_s, Ordering::Relaxed);
        };
        let both = [&*one.keys, &*other.keys];
        set_clocks(0);
        let mut stored = exchange(one.keys.export(), both);
        let mut tickets: Vec<Vec<u8>> = Vec::new();
        for now_s in (0..4 * KEY_LIFETIME_S).step_by(60) {
            set_clocks(now_s);
            for (from, to) in [(&one, &other), (&other, &one)] {
                let ticket = from.encrypt(b"state").unwrap();
                stored = exchange(stored, both);
                assert_eq!(to.decrypt(&ticket).unwrap(), b"state", "{now_s}");
                if tickets.last().is_none_or(|last| last[..NAME_BYTES] != ticket[..NAME_BYTES]) {
                    tickets.push(ticket);
                }
            }
            // Tickets of the previous key are still accepted, and older ones are not.
            for (age, ticket) in tickets.iter().rev().enumerate() {
                assert_eq!(one.decrypt(ticket).is_some(), age < 2, "{now_s} {age}");
                assert_eq!(other.decrypt(ticket).is_some(), age < 2, "{now_s} {age}");
            }
        }
        assert_eq!(tickets.len(), 5, "each key is used for six hours");
        let versions = both.map(TicketKeys::version);
        exchange(stored, both);
        assert_eq!(both.map(TicketKeys::version), versions, "keys that are known change nothing");
    }

    #[test]
    fn keys_that_have_changed_meanwhile_are_not_taken_back() {
        let ((time, [one, _]), (other_time, [other, _])) = (workers(), workers());
        let first = one.keys.export();
        assert_eq!(other.keys.adopt(&first), Adoption::Adopted);
        time.0.store(KEY_LIFETIME_S + 1, Ordering::Relaxed);
        let ticket = one.encrypt(b"state").unwrap();
        assert_eq!(one.keys.adopt(&first), Adoption::Newer);
        assert_eq!(one.decrypt(&ticket).unwrap(), b"state");
        // Both change their keys at the same time. Both use the keys that are stored first.
        other_time.0.store(KEY_LIFETIME_S + 1, Ordering::Relaxed);
        other.encrypt(b"state").unwrap();
        let second = one.keys.export();
        assert_eq!(other.keys.adopt(&second), Adoption::Adopted);
        assert_eq!(other.decrypt(&ticket).unwrap(), b"state");
        assert_eq!(other.keys.export(), second);
        for length in (0..second.len()).filter(|length| *length != 8 + NAME_BYTES + KEY_BYTES) {
            assert_eq!(other.keys.adopt(&second[..length]), Adoption::Malformed, "{length}");
        }
    }

    #[test]
    fn an_altered_or_short_ticket_is_refused() {
        let (_, [one, _]) = workers();
        let ticket = one.encrypt(b"state").unwrap();
        assert_ne!(one.encrypt(b"state").unwrap(), ticket, "each has its own nonce");
        for index in 0..ticket.len() {
            let mut altered = ticket.clone();
            altered[index] ^= 1;
            assert_eq!(one.decrypt(&altered), None, "{index}");
            assert_eq!(one.decrypt(&ticket[..index]), None, "{index}");
        }
    }
}
