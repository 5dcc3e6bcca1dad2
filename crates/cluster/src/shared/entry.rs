//! The keys of the bucket and their values.
//!
//! | Key | Value |
//! |---|---|
//! | `keys.connection` | `{"key": 32 hexadecimal digits}` |
//! | `keys.tickets` | `{"keys": hexadecimal digits}` |
//! | `keys.acme` | `{"account": text, "thumbprint": text}` |
//! | `deny.INFO_HASH`, `allow.INFO_HASH` | [`SharedTorrent`](shoal_runtime::lists::SharedTorrent) |
//! | `bans.ADDRESS-PREFIX`, the address in hexadecimal digits | [`Banned`] |
//! | `config.SECTION.KEY` | [`SharedValue`] |
//! | `bucket.filled` | [`Filled`](super::fill::Filled) |
//!
//! Values are JSON. Later versions may add members and keys, which are ignored here.

use core::fmt;
use std::net::IpAddr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shoal_base::InfoHash;
use shoal_control::cluster::SharedValue;
use shoal_session::AcmeAccount;

use shoal_runtime::lists::bans::{Ban, REASON_BYTES_MAX};
use shoal_runtime::lists::{BY_BYTES_MAX, Which, is_line};

pub(super) const VALUE_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The key of connection ids.
    Connection,
    /// The keys of TLS tickets.
    Tickets,
    /// The account at the certificate authority.
    Acme,
    /// A torrent of a list.
    Torrent(Which, InfoHash),
    /// A banned network.
    Ban(IpNet),
    /// A key of the configuration.
    Config(String),
    /// The mark that the bucket has had the entries of another one.
    Filled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Banned {
    reason: String,
    by: String,
    since_unix_s: u64,
    #[serde(default)]
    until_unix_s: Option<u64>,
}

impl Key {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        match kind {
            "keys" if rest == "connection" => Some(Self::Connection),
            "keys" if rest == "tickets" => Some(Self::Tickets),
            "keys" if rest == "acme" => Some(Self::Acme),
            "deny" => parse_info_hash(rest).map(|info_hash| Self::Torrent(Which::Deny, info_hash)),
            "allow" => parse_info_hash(rest).map(|info_hash| Self::Torrent(Which::Allow, info_hash)),
            "bans" => parse_network(rest).map(Self::Ban),
            "config" => is_config_key(rest).then(|| Self::Config(rest.to_owned())),
            "bucket" if rest == "filled" => Some(Self::Filled),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection => f.write_str("keys.connection"),
            Self::Tickets => f.write_str("keys.tickets"),
            Self::Acme => f.write_str("keys.acme"),
            Self::Torrent(which, info_hash) => write!(f, "{}.{info_hash:?}", which.name()),
            Self::Ban(network) => match network.addr() {
                IpAddr::V4(ip) => write!(f, "bans.{:08x}-{}", u32::from(ip), network.prefix_len()),
                IpAddr::V6(ip) => write!(f, "bans.{:032x}-{}", u128::from(ip), network.prefix_len()),
            },
            Self::Config(key) => write!(f, "config.{key}"),
            Self::Filled => f.write_str("bucket.filled"),
        }
    }
}

/// Reads 40 lower-case hexadecimal digits, so that each torrent has one key.
fn parse_info_hash(text: &str) -> Option<InfoHash> {
    Some(InfoHash(HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()?))
}

/// Reads a network with zero host bits.
fn parse_network(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('-')?;
    let bytes = from_hex(address)?;
    let address: IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        16 => <[u8; 16]>::try_from(bytes).ok()?.into(),
        _ => return None,
    };
    let network = IpNet::new(address, prefix.parse().ok()?).ok()?;
    // Each network has one key, and must be a valid network of a ban.
    let is_canonical = Key::Ban(network).to_string().ends_with(text) && network.trunc() == network;
    shoal_runtime::lists::bans::parse_network(&network.to_string()).ok().filter(|_| is_canonical)
}

fn is_config_key(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    text.len() <= 100 && text.split_once('.').is_some_and(|(section, key)| is_name(section) && is_name(key))
}

/// Returns whether the value of a key of the configuration can be shown.
pub(super) fn can_show(value: &SharedValue) -> bool {
    is_line(&value.value, VALUE_BYTES_MAX) && is_line(&value.by, BY_BYTES_MAX)
}

impl Banned {
    pub(super) fn of(ban: &Ban) -> Self {
        let Ban { reason, by, since_unix_s, until_unix_s, .. } = ban.clone();
        Self { reason, by, since_unix_s, until_unix_s }
    }

    /// Returns the ban of a network, unless its texts cannot be shown.
    pub(super) fn ban(self, network: IpNet) -> Option<Ban> {
        let Self { reason, by, since_unix_s, until_unix_s } = self;
        let is_valid = is_line(&reason, REASON_BYTES_MAX) && is_line(&by, BY_BYTES_MAX);
        is_valid.then_some(Ban { network, reason, by, since_unix_s, until_unix_s })
    }
}

/// Returns the value of the account at the certificate authority.
pub(super) fn account_value(account: &AcmeAccount) -> Value {
    json!({ "account": account.credentials, "thumbprint": account.thumbprint })
}

/// Returns the account of a value.
pub(super) fn account(value: &Value) -> Option<AcmeAccount> {
    let text = |member: &str| value[member].as_str().map(str::to_owned);
    Some(AcmeAccount { credentials: text("account")?, thumbprint: text("thumbprint")? })
}

/// Returns the value of a secret key, with its member.
pub(super) fn secret(member: &str, bytes: &[u8]) -> Value {
    json!({ member: HEXLOWER.encode(bytes) })
}

/// Returns the bytes of such a member.
pub(super) fn secret_bytes(value: &Value, member: &str) -> Option<Vec<u8>> {
    from_hex(value[member].as_str()?)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        for text in [
            "keys.connection",
            "keys.tickets",
            "keys.acme",
            "deny.0123456789abcdef0123456789abcdef01234567",
            "allow.ffffffffffffffffffffffffffffffffffffffff",
            "bans.c0000200-24",
            "bans.20010db8000000000000000000000000-32",
            "config.announce.interval_s",
            "bucket.filled",
        ] {
            assert_eq!(Key::parse(text).expect(text).to_string(), text);
        }
        let network = "192.0.2.0/24".parse().expect("it is a network");
        assert_eq!(Key::parse("bans.c0000200-24"), Some(Key::Ban(network)));
    }

    #[test]
    fn other_keys_are_none() {
        for text in [
            "",
            "keys",
            "keys.other",
            "deny.",
            "deny.0123456789ABCDEF0123456789abcdef01234567",
            "deny.0123",
            "deny.zz23456789abcdef0123456789abcdef01234567",
            "bans.c0000201-24",
            "bans.c0000200-024",
            "bans.C0000200-24",
            "bans.c0000200-33",
            "bans.00000000-0",
            "bans.00000000000000000000ffffc0000200-120",
            "bans.c00002-24",
            "config.announce",
            "config.announce.interval_s.more",
            "config.Announce.interval_s",
            "later.thing",
        ] {
            assert_eq!(Key::parse(text), None, "{text}");
        }
    }

    #[test]
    fn secrets_are_read_back() {
        let value = secret("keys", &[0, 255]);
        assert_eq!(value.to_string(), r#"{"keys":"00ff"}"#);
        assert_eq!(secret_bytes(&value, "keys"), Some(vec![0, 255]));
        assert_eq!(secret_bytes(&value, "key"), None);
        assert_eq!(secret_bytes(&json!({ "keys": "é" }), "keys"), None);
    }
}
