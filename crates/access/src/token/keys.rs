//! Sets of public keys: JWK sets (RFC 7517, section 5).

use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Maximum size of a JWK set in bytes.
pub const JWKS_BYTES_MAX: usize = 256 << 10;

/// Maximum number of keys in a set.
pub const KEYS_MAX: usize = 64;

const KEY_ID_BYTES_MAX: usize = 256;

/// The sizes of RSA keys. aws-lc-rs refuses smaller, weak ones. The time of a signature grows with the square of the
/// size.
const RSA_BITS: core::ops::RangeInclusive<usize> = 2048..=4096;

/// Bytes of a coordinate on P-256, and of a key of Ed25519.
const COORDINATE_BYTES: usize = 32;

/// The number of a key. A key keeps it from one set to the next, and no other key gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyNumber(pub(crate) u32);

impl KeyNumber {
    pub(crate) const MAX: u32 = 0x00ff_ffff;
}

/// The keys by which tokens may be signed.
#[derive(Clone, Default)]
pub struct KeySet {
    keys: Vec<Key>,
    unusable: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) number: KeyNumber,
    identity: Identity,
    pub(crate) decoding: DecodingKey,
}

/// The parts of a key that identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    id: Option<String>,
    algorithm: Algorithm,
    /// The key itself, as written.
    material: [String; 2],
}

/// Why a JWK set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The set is too large.
    #[error("it has more than {JWKS_BYTES_MAX} bytes")]
    TooLarge,
    /// The text is not a JWK set.
    #[error("it is not a JWK set, a JSON object with a list \"keys\"")]
    NotASet,
    /// The set has too many keys.
    #[error("it has {0} keys; at most {KEYS_MAX} are accepted")]
    TooManyKeys(usize),
    /// The set has no usable key, for these reasons.
    #[error("it has no key that can be used: {}", .0.join("; "))]
    NoneUsable(Vec<String>),
}

/// A key of a set (RFC 7517, section 4; RFC 7518, section 6; RFC 8037, section 2).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    /// The private part of a key of any type.
    d: Option<serde::de::IgnoredAny>,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.identity)).finish()
    }
}

impl KeySet {
    /// Reads a JWK set. Skips unusable keys (RFC 7517, section 5); [`unusable`](Self::unusable) returns the reasons.
    /// The error says why there is no set, or no usable key.
    pub fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        if json.len() > JWKS_BYTES_MAX {
            return Err(KeySetError::TooLarge);
        }
        let set: Value = serde_json::from_slice(json).map_err(|_| KeySetError::NotASet)?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or(KeySetError::NotASet)?;
        if keys.len() > KEYS_MAX {
            return Err(KeySetError::TooManyKeys(keys.len()));
        }
        let mut usable: Vec<Key> = Vec::new();
        let mut unusable = Vec::new();
        for (number, key) in (1_u32..).zip(keys) {
            let read = Key::read(key).and_then(|key| {
                let same_place = |other: &&Key| {
                    other.identity.id == key.identity.id && other.algorithm() == key.algorithm()
                };
                match usable.iter().find(same_place) {
                    Some(_) => Err("a key before it has the same \"kid\" and algorithm".to_owned()),
                    None => Ok(key),
                }
            });
            match read {
                Ok(key) => usable.push(Key { number: KeyNumber(number), ..key }),
                Err(reason) => unusable.push(format!("key {number}: {reason}")),
            }
        }
        if usable.is_empty() {
            return Err(KeySetError::NoneUsable(unusable));
        }
        Ok(Self { keys: usable, unusable })
    }

    /// Returns the set with new numbers, except that keys which are also in `old` keep theirs. `last` is the greatest
    /// number ever used.
    #[must_use]
    pub fn following(mut self, old: Option<&Self>, last: &mut KeyNumber) -> Self {
        for key in &mut self.keys {
            let known = old.and_then(|old| old.keys.iter().find(|other| other.identity == key.identity));
            key.number = known.map_or_else(
                || {
                    // A number comes back after 16 million keys, when the cache has no token by the old one any more.
                    last.0 = last.0 % KeyNumber::MAX + 1;
                    *last
                },
                |known| known.number,
            );
        }
        self
    }

    /// Returns the number of keys that can be used.
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there is no key.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns why keys were skipped.
    pub fn unusable(&self) -> &[String] {
        &self.unusable
    }

    /// Returns whether the key with this number is in the set.
    #[inline]
    pub fn has(&self, number: KeyNumber) -> bool {
        self.keys.iter().any(|key| key.number == number)
    }

    /// Returns the key for a token: the key with its id, or without an id, the only key for its algorithm. A token
    /// never selects among keys that do not fit its algorithm, and costs at most one signature.
    pub(crate) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self.keys.iter().filter(|key| key.algorithm() == algorithm);
        match id {
            Some(id) => fitting.find(|key| key.identity.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }
}

impl Key {
    pub(crate) const fn algorithm(&self) -> Algorithm {
        self.identity.algorithm
    }

    /// Reads a key, or returns why it is unusable.
    fn read(jwk: &Value) -> Result<Self, String> {
        let jwk = Jwk::deserialize(jwk).map_err(|error| format!("it is not a JWK: {error}"))?;
        let algorithm = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Algorithm::RS256,
            ("EC", Some("P-256")) => Algorithm::ES256,
            ("OKP", Some("Ed25519")) => Algorithm::EdDSA,
            (kty, None) => return Err(format!("keys of the type {kty:?} are not accepted")),
            (kty, Some(crv)) => return Err(format!("keys of the type {kty:?} {crv:?} are not accepted")),
        };
        jwk.check_use(algorithm)?;
        let missing = |name: &str| format!("it has no {name:?}");
        let part = |part: &Option<String>, name| part.clone().ok_or_else(|| missing(name));
        let (material, decoding) = match algorithm {
            Algorithm::RS256 => {
                let [n, e] = [part(&jwk.n, "n")?, part(&jwk.e, "e")?];
                check_rsa(&decode(&n, "n")?, &decode(&e, "e")?)?;
                let decoding = DecodingKey::from_rsa_components(&n, &e);
                ([n, e], decoding)
            }
            Algorithm::ES256 => {
                let [x, y] = [part(&jwk.x, "x")?, part(&jwk.y, "y")?];
                check_length(&x, "x")?;
                check_length(&y, "y")?;
                let decoding = DecodingKey::from_ec_components(&x, &y);
                ([x, y], decoding)
            }
            _ => {
                let x = part(&jwk.x, "x")?;
                check_length(&x, "x")?;
                let decoding = DecodingKey::from_ed_components(&x);
                ([x, String::new()], decoding)
            }
        };
        let decoding = decoding.map_err(|error| error.to_string())?;
        let identity = Identity { id: jwk.kid, algorithm, material };
        Ok(Self { number: KeyNumber::default(), identity, decoding })
    }
}

impl Jwk {
    /// Checks everything that a key says about itself, except the key material.
    fn check_use(&self, algorithm: Algorithm) -> Result<(), String> {
        if self.d.is_some() {
            return Err("it has a private part \"d\", which must stay with the issuer of tokens".to_owned());
        }
        if let Some(usage) = self.usage.as_deref().filter(|usage| *usage != "sig") {
            return Err(format!("its \"use\" is {usage:?} instead of \"sig\""));
        }
        if self.key_ops.as_ref().is_some_and(|operations| !operations.iter().any(|name| name == "verify")) {
            return Err("its \"key_ops\" do not contain \"verify\"".to_owned());
        }
        // RFC 9864 names EdDSA on this curve more exactly.
        let name = format!("{algorithm:?}");
        let fits = |alg: &str| alg == name || (algorithm == Algorithm::EdDSA && alg == "Ed25519");
        if let Some(alg) = self.alg.as_deref().filter(|alg| !fits(alg)) {
            return Err(format!(
                "its \"alg\" is {alg:?}, but a key of this type is accepted for {name} only"
            ));
        }
        if self.kid.as_ref().is_some_and(|id| id.len() > KEY_ID_BYTES_MAX) {
            return Err(format!("its \"kid\" has more than {KEY_ID_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

fn decode(text: &str, name: &str) -> Result<Vec<u8>, String> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("its {name:?} is not base64url without padding"))
}

fn check_length(text: &str, name: &str) -> Result<(), String> {
    let bytes = decode(text, name)?.len();
    if bytes == COORDINATE_BYTES {
        Ok(())
    } else {
        Err(format!("its {name:?} has {bytes} bytes instead of {COORDINATE_BYTES}"))
    }
}

fn check_rsa(modulus: &[u8], exponent: &[u8]) -> Result<(), String> {
    let bits = modulus.iter().position(|byte| *byte != 0).map_or(0, |zeros| {
        8 * (modulus.len() - zeros) - usize::try_from(modulus[zeros].leading_zeros()).unwrap_or(0)
    });
    if !RSA_BITS.contains(&bits) {
        let (least, most) = (RSA_BITS.start(), RSA_BITS.end());
        return Err(format!("its RSA modulus has {bits} bits; {least} to {most} are accepted"));
    }
    match exponent {
        [3] | [1, 0, 1] => Ok(()),
        _ => Err("its RSA exponent is neither 65537 nor 3".to_owned()),
    }
}
