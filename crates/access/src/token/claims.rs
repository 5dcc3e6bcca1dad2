//! The claims of a token: what it permits, and until when.

use core::fmt;
use std::borrow::Cow;

use crate::torrents::parse_hash;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use shoal_base::InfoHash;

use crate::token::cache::Verified;
use crate::token::keys::KeyNumber;
use crate::token::verifier::TokenError;

/// The operator's demands on claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The required issuer, if any.
    pub issuer: Option<String>,
    /// The required audience. Without it, a token must name none (RFC 7519, section 4.1.3).
    pub audience: Option<String>,
    /// Maximum difference in seconds between the clocks of the issuer and of the tracker.
    pub leeway_s: u64,
}

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The key of its signature.
    pub key: KeyNumber,
    /// The second, since 1970, before which the token is not valid. The leeway is included.
    pub not_before_s: u64,
    /// The second, since 1970, from which on the token is no longer valid. The leeway is included.
    pub expires_s: u64,
    /// The torrents that it is bound to; `None` if it permits all.
    pub torrents: Option<Box<[InfoHash]>>,
}

/// The claims as written (RFC 7519, section 4.1). A `null` claim is an error, not a missing one: a token must not
/// permit all torrents because its issuer knew none.
#[derive(Deserialize)]
pub(crate) struct Payload<'p> {
    #[serde(borrow, default, deserialize_with = "some")]
    iss: Option<Text<'p>>,
    #[serde(borrow, default, deserialize_with = "some")]
    aud: Option<Texts<'p>>,
    exp: Seconds,
    #[serde(default, deserialize_with = "some")]
    nbf: Option<Seconds>,
    #[serde(borrow, default, deserialize_with = "some")]
    infohash: Option<Texts<'p>>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'p>(#[serde(borrow)] Cow<'p, str>);

struct Texts<'p>(Vec<Cow<'p, str>>);

/// A time, which may have a fraction and may be before 1970 (RFC 7519, "NumericDate").
#[derive(Clone, Copy)]
struct Seconds(u64);

impl Claims {
    /// Decides whether the token is valid now. The error says why it is not.
    pub const fn check_time(&self, now_s: u64) -> Result<(), TokenError> {
        check_time(self.not_before_s, self.expires_s, now_s)
    }

    /// Returns whether the token permits a torrent.
    pub fn permit(&self, info_hash: &InfoHash) -> bool {
        self.torrents.as_ref().is_none_or(|torrents| torrents.contains(info_hash))
    }

    /// Returns the part of the claims that a cache remembers.
    pub const fn verified(&self) -> Verified {
        Verified { key: self.key, not_before_s: self.not_before_s, expires_s: self.expires_s }
    }

    /// Returns the memory of the list of torrents, in bytes.
    pub fn list_bytes(&self) -> usize {
        self.torrents.as_ref().map_or(0, |torrents| size_of_val(&**torrents))
    }
}

impl Verified {
    /// Returns whether the token is valid now.
    #[inline]
    pub const fn is_valid(&self, now_s: u64) -> bool {
        check_time(self.not_before_s, self.expires_s, now_s).is_ok()
    }
}

#[inline]
const fn check_time(not_before_s: u64, expires_s: u64, now_s: u64) -> Result<(), TokenError> {
    if now_s >= expires_s {
        Err(TokenError::Expired)
    } else if now_s < not_before_s {
        Err(TokenError::NotYetValid)
    } else {
        Ok(())
    }
}

impl Payload<'_> {
    /// Applies the rules, and returns the claims of a token signed by `key`.
    pub(crate) fn check(&self, rules: &Rules, key: KeyNumber, now_s: u64) -> Result<Claims, TokenError> {
        if let Some(issuer) = &rules.issuer
            && self.iss.as_ref().is_none_or(|iss| iss.0 != *issuer)
        {
            return Err(TokenError::WrongIssuer);
        }
        let is_audience = match (&self.aud, &rules.audience) {
            (None, None) => true,
            (Some(named), Some(audience)) => named.0.iter().any(|name| name == audience),
            _ => false,
        };
        if !is_audience {
            return Err(TokenError::WrongAudience);
        }
        let torrents = match &self.infohash {
            None => None,
            Some(Texts(texts)) => {
                let parsed = texts.iter().map(|text| parse_hash(text.as_bytes()));
                Some(parsed.collect::<Option<Box<[InfoHash]>>>().ok_or(TokenError::Malformed)?)
            }
        };
        let claims = Claims {
            key,
            not_before_s: self.nbf.map_or(0, |nbf| nbf.0.saturating_sub(rules.leeway_s)),
            expires_s: self.exp.0.saturating_add(rules.leeway_s),
            torrents,
        };
        claims.check_time(now_s)?;
        Ok(claims)
    }
}

/// Reads a claim that exists.
pub(crate) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl<'de: 'p, 'p> Deserialize<'de> for Texts<'p> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Texts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Texts(vec![Cow::Borrowed(text)]))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Texts(vec![Cow::Owned(text.to_owned())]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut texts = Vec::new();
                while let Some(Text(text)) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Seconds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of seconds")
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Seconds, E> {
                Ok(Seconds(seconds))
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Seconds, E> {
                Ok(Seconds(u64::try_from(seconds).unwrap_or(0)))
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Seconds, E> {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
                Ok(Seconds(seconds as u64))
            }
        }

        deserializer.deserialize_any(Number)
    }
}
