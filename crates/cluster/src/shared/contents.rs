//! The contents of the bucket as this node knows them.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use shoal_base::InfoHash;

use super::entry::{Banned, Key, VALUE_BYTES_MAX, account, can_show, secret_bytes};
use super::{ENTRIES_BYTES_MAX, Filled};
use shoal_control::cluster::SharedValue;
use shoal_runtime::lists::bans::Ban;
use shoal_runtime::lists::{SharedTorrent, Which};
use shoal_session::AcmeAccount;

/// Maximum number of known entries. Tools add fewer ([`super::TORRENTS_MAX`] and others), and two nodes may add the
/// last ones at the same time.
const TORRENTS_KNOWN_MAX: usize = 1 << 16;
const BANS_KNOWN_MAX: usize = 1 << 14;
const CONFIG_KNOWN_MAX: usize = 1 << 8;

/// Memory of the keys of all entries, in a set and in the list of keys being written, at 100 bytes each.
pub(super) const KEYS_BYTES_MAX: usize = 2 * 100 * (TORRENTS_KNOWN_MAX + BANS_KNOWN_MAX + CONFIG_KNOWN_MAX);

/// Memory of an entry without its texts, in all places that may have it at once: the contents before and after a new
/// reading of the bucket, their copy while it is applied, and the tables or the list before and after.
const TORRENT_BYTES: usize = 800;
const BAN_BYTES: usize = 1300;
const VALUE_BYTES: usize = 1600;

/// Number of these places that have the texts of an entry.
const TORRENT_TEXTS: usize = 4;
const BAN_TEXTS: usize = 5;
const VALUE_TEXTS: usize = 6;

/// The torrents of a list. Copies share them.
pub(super) type Torrents = BTreeMap<InfoHash, Arc<SharedTorrent>>;

/// A secret and its revision. A removed secret also has a revision.
pub(super) type Secret<T> = (Option<T>, u64);

#[derive(Clone, Default)]
pub(super) struct Secrets {
    pub(super) connection: Secret<[u8; 16]>,
    pub(super) tickets: Secret<Vec<u8>>,
    pub(super) acme: Secret<AcmeAccount>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub(super) secrets: Secrets,
    pub(super) revision: u64,
    torrents: [Torrents; 2],
    /// The bans with their revisions.
    pub(super) bans: BTreeMap<IpNet, (Ban, u64)>,
    pub(super) config: BTreeMap<String, SharedValue>,
    /// The mark that the bucket has had the entries of another one.
    pub(super) filled: Option<Filled>,
    /// The memory of the entries, in all places.
    bytes: usize,
}

/// Returns the memory of a torrent in bytes, in all places that may have it at once.
pub(super) fn torrent_bytes(torrent: &SharedTorrent) -> usize {
    let texts = [&torrent.date, &torrent.reference, &torrent.reason];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    TORRENT_BYTES + TORRENT_TEXTS * (texts + torrent.by.len())
}

/// The same of a ban.
pub(super) fn ban_bytes(ban: &Ban) -> usize {
    BAN_BYTES + BAN_TEXTS * (ban.reason.len() + ban.by.len())
}

/// The same of a value of the configuration.
pub(super) fn value_bytes(value: &SharedValue) -> usize {
    VALUE_BYTES + VALUE_TEXTS * (value.value.len() + value.by.len())
}

/// The parts of the contents that have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) keys: bool,
    pub(super) torrents: bool,
    pub(super) bans: bool,
    pub(super) config: bool,
    /// Which bucket it is, or which entries it lacks.
    pub(super) fill: bool,
}

/// Why a key or a value was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ignored {
    /// This version cannot read it.
    Unreadable,
    /// The node already keeps the maximum number of entries.
    Full,
}

impl fmt::Debug for Secrets {
    /// Omits the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl Parts {
    pub(super) const fn is_any(self) -> bool {
        self.keys || self.torrents || self.bans || self.config || self.fill
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Self {
            keys: self.keys || other.keys,
            torrents: self.torrents || other.torrents,
            bans: self.bans || other.bans,
            config: self.config || other.config,
            fill: self.fill || other.fill,
        }
    }
}

impl Contents {
    /// Returns contents without entries.
    pub(super) fn at(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    pub(super) const fn torrents(&self, which: Which) -> &Torrents {
        match which {
            Which::Deny => &self.torrents[0],
            Which::Allow => &self.torrents[1],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.torrents_len() + self.bans.len() + self.config.len()
    }

    /// Returns the number of torrents of both lists.
    pub(super) fn torrents_len(&self) -> usize {
        self.torrents.iter().map(BTreeMap::len).sum()
    }

    /// Returns the memory that more entries may take, in all places.
    pub(super) const fn bytes_left(&self) -> usize {
        ENTRIES_BYTES_MAX.saturating_sub(self.bytes)
    }

    /// Returns whether there is room for some more entries of each kind.
    pub(super) fn has_room(&self) -> bool {
        self.bytes_left() > ENTRIES_BYTES_MAX / 64
            && self.torrents_len() < TORRENTS_KNOWN_MAX
            && self.bans.len() < BANS_KNOWN_MAX
            && self.config.len() < CONFIG_KNOWN_MAX
    }

    /// Applies a change of a key: a new value, or its removal. A value that is unreadable or has no room changes
    /// nothing.
    pub(super) fn apply(&mut self, key: &str, value: Option<&[u8]>, revision: u64) -> Result<Parts, Ignored> {
        self.revision = revision;
        let key = Key::parse(key).ok_or(Ignored::Unreadable)?;
        if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            return Err(Ignored::Unreadable);
        }
        let bytes = &mut self.bytes;
        match key {
            // A node replaces an unreadable secret like a missing one.
            Key::Connection => {
                let key = read(value, |value: Value| <[u8; 16]>::try_from(secret_bytes(&value, "key")?).ok());
                self.secrets.connection = (key.unwrap_or_default(), revision);
                key.map(|_| Parts { keys: true, ..Parts::default() })
            }
            Key::Tickets => {
                let keys = read(value, |value: Value| secret_bytes(&value, "keys"));
                self.secrets.tickets = (keys.clone().unwrap_or_default(), revision);
                keys.map(|_| Parts { keys: true, ..Parts::default() })
            }
            Key::Acme => {
                let account = read(value, |value: Value| account(&value));
                self.secrets.acme = (account.clone().unwrap_or_default(), revision);
                account.map(|_| Parts { keys: true, ..Parts::default() })
            }
            Key::Torrent(which, info_hash) => {
                let listed =
                    read(value, |listed: SharedTorrent| listed.is_valid().then(|| Arc::new(listed)))?;
                let other = usize::from(which == Which::Deny);
                let len_max = TORRENTS_KNOWN_MAX - self.torrents[other].len();
                let list = &mut self.torrents[1 - other];
                let torrents =
                    set(list, info_hash, listed, len_max, bytes, |torrent| torrent_bytes(torrent))?;
                Ok(Parts { torrents, ..Parts::default() })
            }
            Key::Ban(network) => {
                let ban = read(value, |banned: Banned| Some((banned.ban(network)?, revision)))?;
                let bans =
                    set(&mut self.bans, network, ban, BANS_KNOWN_MAX, bytes, |(ban, _)| ban_bytes(ban))?;
                Ok(Parts { bans, ..Parts::default() })
            }
            Key::Config(key) => {
                let value = read(value, |value: SharedValue| can_show(&value).then_some(value))?;
                let config = set(&mut self.config, key, value, CONFIG_KNOWN_MAX, bytes, value_bytes)?;
                Ok(Parts { config, ..Parts::default() })
            }
            Key::Filled => {
                self.filled = read(value, Some)?;
                Ok(Parts::default())
            }
        }
    }

    /// Adds entries of other contents. Returns the keys that had room.
    pub(super) fn adopt(&mut self, other: &Self, keys: BTreeSet<String>) -> BTreeSet<String> {
        let (mut adopted, revision) = (keys, self.revision);
        adopted.retain(|key| {
            let value = Key::parse(key).and_then(|key| other.value(&key));
            value.is_some_and(|value| self.apply(key, Some(value.as_bytes()), revision).is_ok())
        });
        adopted
    }

    /// Returns an entry in the form of the bucket.
    pub(super) fn value(&self, key: &Key) -> Option<String> {
        match key {
            Key::Torrent(which, info_hash) => {
                self.torrents(*which).get(info_hash).map(|listed| json(&**listed))
            }
            Key::Ban(network) => self.bans.get(network).map(|(ban, _)| json(&Banned::of(ban))),
            Key::Config(key) => self.config.get(key).map(json),
            Key::Connection | Key::Tickets | Key::Acme | Key::Filled => None,
        }
    }

    /// Returns the parts in which this differs from other contents.
    pub(super) fn differences(&self, other: &Self) -> Parts {
        let keys = |contents: &Self| {
            let Secrets { connection, tickets, acme } = contents.secrets.clone();
            (connection.0, tickets.0, acme.0)
        };
        Parts {
            keys: keys(self) != keys(other),
            torrents: self.torrents != other.torrents,
            bans: !self.bans.values().map(|(ban, _)| ban).eq(other.bans.values().map(|(ban, _)| ban)),
            config: self.config != other.config,
            fill: false,
        }
    }

    /// Returns the names of all entries except secret keys.
    pub(super) fn names(&self) -> impl Iterator<Item = Key> {
        let torrents = [Which::Deny, Which::Allow].into_iter().flat_map(|which| {
            self.torrents(which).keys().map(move |info_hash| Key::Torrent(which, *info_hash))
        });
        let bans = self.bans.keys().map(|network| Key::Ban(*network));
        let config = self.config.keys().map(|key| Key::Config(key.clone()));
        torrents.chain(bans).chain(config)
    }

    /// Returns all entries in the form of the bucket, without secret keys.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Key, String)> {
        self.names().filter_map(|name| self.value(&name).map(|value| (name, value)))
    }
}

/// Reads a value, if there is one.
fn read<T, V: for<'v> Deserialize<'v>>(
    value: Option<&[u8]>,
    check: impl FnOnce(V) -> Option<T>,
) -> Result<Option<T>, Ignored> {
    let Some(value) = value else { return Ok(None) };
    let read = serde_json::from_slice(value).ok().and_then(check);
    read.map(Some).ok_or(Ignored::Unreadable)
}

/// Sets or removes an entry of up to `len_max`, and counts its memory in `bytes`. Returns whether that changes anything.
fn set<K: Ord, V: PartialEq>(
    entries: &mut BTreeMap<K, V>,
    key: K,
    value: Option<V>,
    len_max: usize,
    bytes: &mut usize,
    bytes_of: fn(&V) -> usize,
) -> Result<bool, Ignored> {
    let old = entries.get(&key);
    if old == value.as_ref() {
        return Ok(false);
    }
    let others_bytes = *bytes - old.map_or(0, bytes_of);
    let all_bytes = others_bytes + value.as_ref().map_or(0, bytes_of);
    if value.is_some() && (all_bytes > ENTRIES_BYTES_MAX || old.is_none() && entries.len() >= len_max) {
        return Err(Ignored::Full);
    }
    *bytes = all_bytes;
    match value {
        Some(value) => entries.insert(key, value),
        None => entries.remove(&key),
    };
    Ok(true)
}

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
        assert_eq!(apply(DENIED, Some("garbage")), Err(Ignored::Unreadable));
        assert_eq!(apply("bans.c0000200-24", Some(r#"{"reason":""}"#)), Err(Ignored::Unreadable));
        let ban = r#"{"reason":"floods","by":"kim","since_unix_s":1,"until_unix_s":9,"later":true}"#;
        assert_eq!(apply("bans.c0000200-24", Some(ban)), Ok(Parts { bans: true, ..Parts::default() }));
        assert_eq!(apply(DENIED, None), torrents);
        assert_eq!(apply(DENIED, None), Ok(Parts::default()));
        assert_eq!(apply("nonsense", None), Err(Ignored::Unreadable));
        assert_eq!(apply("config.a.b", Some(&"x".repeat(VALUE_BYTES_MAX + 1))), Err(Ignored::Unreadable));
        assert_eq!((contents.len(), contents.torrents_len()), (1, 0));
    }

    #[test]
    fn a_flood_of_entries_is_bounded() {
        let mut contents = Contents::default();
        for number in 0..TORRENTS_KNOWN_MAX {
            assert!(contents.apply(&format!("deny.{number:040x}"), Some(b"{}"), 1).is_ok());
        }
        assert_eq!(contents.apply(&format!("allow.{:040x}", 0), Some(b"{}"), 1), Err(Ignored::Full));
        assert_eq!(
            contents.apply(&format!("deny.{:040x}", 0), Some(br#"{"by":"kim"}"#), 1),
            Ok(Parts { torrents: true, ..Parts::default() })
        );
    }

    /// Returns contents with this many entries of one kind, each with texts of this many bytes.
    fn filled(kind: &str, len: usize, text_bytes: usize) -> Contents {
        let text = "x".repeat(text_bytes);
        let mut contents = Contents::default();
        for number in 0..len {
            let (key, value) = match kind {
                "deny" => (
                    format!("deny.{number:040x}"),
                    serde_json::json!({ "date": "2026-01-31", "reference": text, "reason": format!("{number:05}{text}"), "by": text }),
                ),
                "bans" => (
                    format!("bans.{:08x}-32", number + (1 << 28)),
                    serde_json::json!({ "reason": text, "by": text, "since_unix_s": 1 }),
                ),
                _ => (
                    format!("config.{}.key_{number}", "s".repeat(80)),
                    serde_json::json!({ "value": text, "by": text }),
                ),
            };
            assert!(contents.apply(&key, Some(value.to_string().as_bytes()), 1).is_ok(), "{kind} {number}");
        }
        contents
    }

    #[test]
    fn entries_take_the_memory_that_is_counted_in_all_places_together() {
        use shoal_testkit::allocator::held_bytes;

        use crate::shared::copy::{bans, tables};

        let key = shoal_access::HashKey::new([7; 4]);
        for (kind, len, allocations) in [("deny", 20_000, 12), ("bans", 8000, 10), ("config", 200, 15)] {
            for text_bytes in [0, 20, 190] {
                let before = held_bytes();
                let (old, new) = (filled(kind, len, text_bytes), filled(kind, len, text_bytes));
                let applied = new.clone();
                let in_use = [&old, &new].map(|contents| (tables(contents, &key), bans(contents)));
                let values = [&new, &new, &new].map(|contents| contents.config.clone());
                let held = usize::try_from(held_bytes() - before).unwrap();
                // The allocator adds up to 16 bytes to each of them.
                let held = held + len * allocations * 16;
                assert!(held <= new.bytes, "{kind} {text_bytes}: {held} > {}", new.bytes);
                assert!(held * 2 > new.bytes, "{kind} {text_bytes}: {held} of {}", new.bytes);
                drop((old, applied, in_use, values));
            }
        }
    }

    #[test]
    fn the_memory_of_entries_is_bounded_and_goes_with_them() {
        let text = "x".repeat(250);
        let long = serde_json::json!({ "reason": text, "reference": text, "by": text }).to_string();
        let key = |number: usize| format!("deny.{number:040x}");
        let mut contents = Contents::default();
        let len = (0..).take_while(|number| contents.apply(&key(*number), Some(long.as_bytes()), 1).is_ok());
        let len = len.count();
        assert!((15_000..25_000).contains(&len), "{len}");
        assert!(contents.bytes <= ENTRIES_BYTES_MAX && contents.bytes_left() < 5000);
        let full = Err(Ignored::Full);
        assert_eq!(contents.apply(&key(len), Some(long.as_bytes()), 1), full);
        let ban = br#"{"reason":"","by":"","since_unix_s":1}"#;
        // An entry can be replaced by one that takes no more, and removed.
        assert!(contents.apply(&key(0), Some(long.replace('x', "y").as_bytes()), 1).is_ok());
        assert!(contents.apply(&key(0), Some(b"{}"), 1).is_ok());
        assert!(contents.apply("bans.c0000200-24", Some(ban), 1).is_ok());
        assert_eq!(contents.apply(&key(0), Some(long.as_bytes()), 1), full);
        for number in 0..len {
            assert!(contents.apply(&key(number), None, 1).is_ok());
        }
        assert_eq!((contents.len(), contents.bytes), (1, BAN_BYTES));
    }

    /// As many entries as tools add, with usual texts.
    #[test]
    fn there_is_room_for_as_many_entries_as_tools_add() {
        let mut contents = Contents::default();
        let torrent = serde_json::json!({ "date": "2026-01-31", "reason": "removed after a notice", "by": "SHOAL_TOKEN" });
        for number in 0..crate::shared::TORRENTS_MAX {
            contents.apply(&format!("deny.{number:040x}"), Some(torrent.to_string().as_bytes()), 1).unwrap();
        }
        let ban =
            serde_json::json!({ "reason": "floods", "by": "SHOAL_TOKEN", "since_unix_s": 1_800_000_000_u64 });
        for number in 0..shoal_runtime::lists::bans::BANS_MAX {
            let key = format!("bans.{:08x}-32", number + (1 << 28));
            contents.apply(&key, Some(ban.to_string().as_bytes()), 1).unwrap();
        }
        assert!(contents.bytes_left() > 2 << 20, "{}", contents.bytes_left());
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
