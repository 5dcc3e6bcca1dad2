//! Tokens, from the URL of a client on.

use std::sync::LazyLock;

use shoal_access::token::{Cache, HashKey, KeySet, Rules, TOKEN_BYTES_MAX, Url, Verifier};
use shoal_base::InfoHash;

/// The example of RFC 8037, appendix A, and that of RFC 7515, appendix A.3, as keys without ids.
const JWKS: &[u8] = br#"{"keys":[
    {"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    {"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}
]}"#;

/// A time before any token of the corpus expires.
const NOW_S: u64 = 1_800_000_000;

static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| {
    let keys = KeySet::parse(JWKS).expect("these keys are those of the RFCs");
    Verifier::new(keys, Rules::default())
});

static CACHE: LazyLock<Cache> = LazyLock::new(|| Cache::new(HashKey::new(&[7; HashKey::BYTES]), 1 << 16));

/// Reads the input as the path and query of a client, with a token. The claims are good at their time only. Only a good
/// signature verifies the token, and the cache then knows this token only.
pub fn token(input: &[u8]) {
    let Some(token) = Url::split(input).token(b"jwt") else { return };
    assert!(input.windows(token.len()).any(|part| part == token));
    let tag = CACHE.key().tag(token);
    assert_eq!(tag.is_none(), token.len() > TOKEN_BYTES_MAX);
    let Ok(unverified) = VERIFIER.read(token, NOW_S) else { return };
    let claims = unverified.claims.clone();
    assert!(claims.not_before_s <= NOW_S && NOW_S < claims.expires_s && VERIFIER.keys().has(claims.key));
    assert!(claims.check_time(NOW_S).is_ok() && claims.check_time(claims.expires_s).is_err());
    let Ok(verified) = unverified.verify() else { return };
    assert_eq!(verified, claims);
    let tag = tag.expect("it is not too long");
    CACHE.insert(tag, claims.verified(), NOW_S, |other| other.is_valid(NOW_S));
    assert!(CACHE.find(tag).is_some_and(|found| found.is_valid(NOW_S)));
    assert_eq!(CACHE.find(CACHE.key().bind(tag, &InfoHash([1; 20]))), None);
}

/// Reads the input as a JWK set. Every key is used or left out for a reason.
pub fn jwks(input: &[u8]) {
    let Ok(keys) = KeySet::parse(input) else { return };
    let value: serde_json::Value = serde_json::from_slice(input).expect("it was just parsed");
    let count = value["keys"].as_array().map_or(0, Vec::len);
    assert!(!keys.is_empty() && keys.len() + keys.unusable().len() == count);
    let mut last = shoal_access::token::KeyNumber::default();
    let first = keys.clone().following(None, &mut last);
    let same = last;
    assert_eq!(format!("{:?}", keys.following(Some(&first), &mut last)), format!("{first:?}"));
    assert_eq!(last, same, "keys keep their numbers");
}
