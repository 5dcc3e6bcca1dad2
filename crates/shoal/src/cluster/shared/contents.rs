//! The contents of the bucket as this node knows them.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;
use shoal_types::InfoHash;

use super::entry::{Banned, ConnectionSecret, Key, TicketSecrets, VALUE_BYTES_MAX, Value};
use crate::access::bans::Ban;
use crate::access::{SharedTorrent, Which};

/// Maximum number of entries that are known. Tools add fewer ([`super::TORRENTS_MAX`] and others), and two nodes may add
/// the last ones at the same time.
const TORRENTS_KNOWN_MAX: usize = 1 << 16;
const BANS_KNOWN_MAX: usize = 1 << 14;
const CONFIG_KNOWN_MAX: usize = 1 << 8;

/// The torrents of a list. Copies share them.
pub(super) type Torrents = BTreeMap<InfoHash, Arc<SharedTorrent>>;

/// A secret and its revision, which is also known of one that was removed.
pub(super) type Secret<T> = (Option<T>, u64);

/// The secret keys.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    pub(super) connection: Secret<[u8; 16]>,
    pub(super) tickets: Secret<Vec<u8>>,
}

/// Everything in the bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub(super) secrets: Secrets,
    /// The revision of the last change.
    pub(super) revision: u64,
    torrents: [Torrents; 2],
    /// The bans with their revisions.
    pub(super) bans: BTreeMap<IpNet, (Ban, u64)>,
    pub(super) config: BTreeMap<String, Value>,
}

/// The parts of the contents that have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) keys: bool,
    pub(super) torrents: bool,
    pub(super) bans: bool,
    pub(super) config: bool,
}

/// A key or a value that is none, or one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ignored;

impl fmt::Debug for Secrets {
    /// Omits the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl Parts {
    pub(super) const fn is_any(self) -> bool {
        self.keys || self.torrents || self.bans || self.config
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Self {
            keys: self.keys || other.keys,
            torrents: self.torrents || other.torrents,
            bans: self.bans || other.bans,
            config: self.config || other.config,
        }
    }
}

impl Contents {
    /// Returns contents without entries.
    pub(super) fn at(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Returns the torrents of a list.
    pub(super) const fn torrents(&self, which: Which) -> &Torrents {
        match which {
            Which::Deny => &self.torrents[0],
            Which::Allow => &self.torrents[1],
        }
    }

    /// Returns the number of entries, without keys.
    pub(super) fn len(&self) -> usize {
        self.torrents_len() + self.bans.len() + self.config.len()
    }

    /// Returns the number of torrents of both lists.
    pub(super) fn torrents_len(&self) -> usize {
        self.torrents.iter().map(BTreeMap::len).sum()
    }

    /// Applies a change of a key: a new value, or its removal. A value that cannot be read changes nothing.
    pub(super) fn apply(&mut self, key: &str, value: Option<&[u8]>, revision: u64) -> Result<Parts, Ignored> {
        self.revision = revision;
        let key = Key::parse(key).ok_or(Ignored)?;
        if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            return Err(Ignored);
        }
        match key {
            // A node replaces a secret that cannot be read, as it writes one that is missing.
            Key::Connection => {
                let key = read(value, |secret: ConnectionSecret| secret.key());
                self.secrets.connection = (key.unwrap_or_default(), revision);
                key.map(|_| Parts { keys: true, ..Parts::default() })
            }
            Key::Tickets => {
                let keys = read(value, |secret: TicketSecrets| secret.keys());
                self.secrets.tickets = (keys.clone().unwrap_or_default(), revision);
                keys.map(|_| Parts { keys: true, ..Parts::default() })
            }
            Key::Torrent(which, info_hash) => {
                let listed =
                    read(value, |listed: SharedTorrent| listed.is_valid().then(|| Arc::new(listed)))?;
                let has_room = self.torrents_len() < TORRENTS_KNOWN_MAX;
                let list = &mut self.torrents[usize::from(which == Which::Allow)];
                let torrents = set(list, info_hash, listed, has_room)?;
                Ok(Parts { torrents, ..Parts::default() })
            }
            Key::Ban(network) => {
                let ban = read(value, |banned: Banned| Some((banned.ban(network)?, revision)))?;
                let has_room = self.bans.len() < BANS_KNOWN_MAX;
                Ok(Parts { bans: set(&mut self.bans, network, ban, has_room)?, ..Parts::default() })
            }
            Key::Config(key) => {
                let value = read(value, |value: Value| value.is_valid().then_some(value))?;
                let has_room = self.config.len() < CONFIG_KNOWN_MAX;
                Ok(Parts { config: set(&mut self.config, key, value, has_room)?, ..Parts::default() })
            }
        }
    }

    /// Returns the parts in which this differs from other contents.
    pub(super) fn differences(&self, other: &Self) -> Parts {
        let keys = |contents: &Self| {
            let Secrets { connection, tickets } = contents.secrets.clone();
            (connection.0, tickets.0)
        };
        Parts {
            keys: keys(self) != keys(other),
            torrents: self.torrents != other.torrents,
            bans: !self.bans.values().map(|(ban, _)| ban).eq(other.bans.values().map(|(ban, _)| ban)),
            config: self.config != other.config,
        }
    }

    /// Returns all entries, without keys, as they are in the bucket.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Key, String)> {
        let torrents = [Which::Deny, Which::Allow].into_iter().flat_map(|which| {
            let list = self.torrents(which).iter();
            list.map(move |(info_hash, listed)| (Key::Torrent(which, *info_hash), json(&**listed)))
        });
        let bans = self.bans.iter().map(|(network, (ban, _))| (Key::Ban(*network), json(&Banned::of(ban))));
        let config = self.config.iter().map(|(key, value)| (Key::Config(key.clone()), json(value)));
        torrents.chain(bans).chain(config)
    }
}

/// Reads a value, if there is one.
fn read<T, V: for<'v> Deserialize<'v>>(
    value: Option<&[u8]>,
    check: impl FnOnce(V) -> Option<T>,
) -> Result<Option<T>, Ignored> {
    let Some(value) = value else { return Ok(None) };
    let read = serde_json::from_slice(value).ok().and_then(check);
    read.map(Some).ok_or(Ignored)
}

/// Sets or removes an entry. Returns whether that changes anything.
fn set<K: Ord, V: PartialEq>(
    entries: &mut BTreeMap<K, V>,
    key: K,
    value: Option<V>,
    has_room: bool,
) -> Result<bool, Ignored> {
    let Some(value) = value else { return Ok(entries.remove(&key).is_some()) };
    match entries.get_mut(&key) {
        Some(old) if *old == value => Ok(false),
        Some(old) => {
            *old = value;
            Ok(true)
        }
        None if !has_room => Err(Ignored),
        None => {
            entries.insert(key, value);
            Ok(true)
        }
    }
}

/// Returns a value as it is written.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    // The values consist of strings and numbers only.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: &str = "deny.0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn changes_and_removals_of_entries_are_told_apart() {
        let mut contents = Contents::default();
        let mut apply = |key: &str, value: Option<&str>| contents.apply(key, value.map(str::as_bytes), 7);
        let torrents = Ok(Parts { torrents: true, ..Parts::default() });
        assert_eq!(apply(DENIED, Some(r#"{"reason":"r"}"#)), torrents);
        assert_eq!(apply(DENIED, Some(r#"{"reason":"r"}"#)), Ok(Parts::default()));
        assert_eq!(apply(DENIED, Some("garbage")), Err(Ignored));
        assert_eq!(apply("bans.c0000200-24", Some(r#"{"reason":""}"#)), Err(Ignored));
        let ban = r#"{"reason":"floods","by":"kim","since_unix_s":1,"until_unix_s":9,"later":true}"#;
        assert_eq!(apply("bans.c0000200-24", Some(ban)), Ok(Parts { bans: true, ..Parts::default() }));
        assert_eq!(apply(DENIED, None), torrents);
        assert_eq!(apply(DENIED, None), Ok(Parts::default()));
        assert_eq!(apply("nonsense", None), Err(Ignored));
        assert_eq!(apply("config.a.b", Some(&"x".repeat(VALUE_BYTES_MAX + 1))), Err(Ignored));
        assert_eq!((contents.len(), contents.torrents_len()), (1, 0));
    }

    #[test]
    fn a_flood_of_entries_is_bounded() {
        let mut contents = Contents::default();
        for number in 0..TORRENTS_KNOWN_MAX {
            assert!(contents.apply(&format!("deny.{number:040x}"), Some(b"{}"), 1).is_ok());
        }
        assert_eq!(contents.apply(&format!("allow.{:040x}", 0), Some(b"{}"), 1), Err(Ignored));
        assert_eq!(
            contents.apply(&format!("deny.{:040x}", 0), Some(br#"{"by":"kim"}"#), 1),
            Ok(Parts { torrents: true, ..Parts::default() })
        );
    }

    #[test]
    fn entries_are_written_as_they_are_read() {
        let mut contents = Contents::default();
        contents.apply(DENIED, Some(br#"{"date":"2026-01-31","reason":"r","by":"kim"}"#), 1).unwrap();
        contents.apply("config.announce.interval_s", Some(br#"{"value":"900","by":"kim"}"#), 2).unwrap();
        contents.apply("bans.c0000200-24", Some(br#"{"reason":"","by":"","since_unix_s":1}"#), 3).unwrap();
        let mut again = Contents::default();
        for (key, value) in contents.entries() {
            again.apply(&key.to_string(), Some(value.as_bytes()), 1).unwrap();
        }
        assert_eq!((contents.differences(&again), again.len()), (Parts::default(), 3));
    }
}
