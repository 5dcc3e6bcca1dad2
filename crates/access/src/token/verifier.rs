//! From a token to its claims.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::token::TOKEN_BYTES_MAX;
use crate::token::claims::{Claims, Payload, Rules, some};
use crate::token::keys::{Key, KeySet};

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The token is too long, does not have the form of a JWT, or a claim has no meaning.
    Malformed,
    /// The token's algorithm is not accepted, or it demands an extension.
    Unsupported,
    /// No key of the set fits its key id and its algorithm.
    UnknownKey,
    /// The signature does not match the key.
    BadSignature,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    NotYetValid,
    /// Another issuer has made it.
    WrongIssuer,
    /// It was made for another service.
    WrongAudience,
}

/// Reads tokens by a set of keys and some rules. Immutable.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    keys: KeySet,
    rules: Rules,
}

/// A token that is good except that its signature is not verified yet.
#[derive(Debug)]
pub struct Unverified<'t> {
    /// The claims. An attacker can claim anything.
    pub claims: Claims,
    /// The header and the payload with the dot between them.
    message: &'t [u8],
    signature: &'t str,
    key: &'t Key,
}

/// The header of a token (RFC 7515, section 4.1). Further members are hints for other purposes.
#[derive(Deserialize)]
struct Header<'h> {
    #[serde(borrow)]
    alg: Cow<'h, str>,
    #[serde(borrow)]
    kid: Option<Cow<'h, str>>,
    /// Extensions that must be understood. None is supported.
    #[serde(default, deserialize_with = "some")]
    crit: Option<IgnoredAny>,
}

impl Verifier {
    /// Creates a verifier.
    pub const fn new(keys: KeySet, rules: Rules) -> Self {
        Self { keys, rules }
    }

    /// Returns the keys.
    pub const fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// Returns the rules.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Checks everything about a token but its signature, which takes some microseconds. The error says why the token
    /// is refused. An attacker can choose the reason.
    pub fn read<'t>(&'t self, token: &'t [u8], now_s: u64) -> Result<Unverified<'t>, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed);
        }
        let token = core::str::from_utf8(token).map_err(|_| TokenError::Malformed)?;
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, payload) = message.split_once('.').ok_or(TokenError::Malformed)?;
        if payload.contains('.') {
            return Err(TokenError::Malformed);
        }
        let header = decode(header)?;
        let header: Header<'_> = parse(&header)?;
        let algorithm = match &*header.alg {
            _ if header.crit.is_some() => return Err(TokenError::Unsupported),
            "RS256" => Algorithm::RS256,
            "ES256" => Algorithm::ES256,
            // RFC 9864 names EdDSA on this curve more exactly.
            "EdDSA" | "Ed25519" => Algorithm::EdDSA,
            _ => return Err(TokenError::Unsupported),
        };
        let key = self.keys.find(header.kid.as_deref(), algorithm).ok_or(TokenError::UnknownKey)?;
        let payload = decode(payload)?;
        let payload: Payload<'_> = parse(&payload)?;
        let claims = payload.check(&self.rules, key.number, now_s)?;
        Ok(Unverified { claims, message: message.as_bytes(), signature, key })
    }
}

impl Unverified<'_> {
    /// Verifies the signature, which takes 20 to 100 µs. Fails with [`TokenError::BadSignature`] if it does not match
    /// the key.
    pub fn verify(self) -> Result<Claims, TokenError> {
        let Self { claims, message, signature, key } = self;
        match jsonwebtoken::crypto::verify(signature, message, &key.decoding, key.algorithm()) {
            Ok(true) => Ok(claims),
            Ok(false) | Err(_) => Err(TokenError::BadSignature),
        }
    }
}

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)
}

fn parse<'p, T: Deserialize<'p>>(json: &'p [u8]) -> Result<T, TokenError> {
    serde_json::from_slice(json).map_err(|_| TokenError::Malformed)
}
