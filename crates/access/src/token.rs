//! Tokens: what a client shows in its tracker URL to be served.
//!
//! A token is a JWT (RFC 7519) in the compact form of a JWS (RFC 7515), signed by RS256, ES256 or `EdDSA` (Ed25519). This
//! crate owns its form ([`Url`], [`Verifier::read`]), the public keys ([`KeySet`], a JWK set of RFC 7517), the meaning of
//! its claims ([`Claims`]), and the memory of tokens that were verified ([`Cache`]). Signatures are verified by
//! `jsonwebtoken`, on aws-lc-rs.
//!
//! Whether a client needs a token, and how often a source may have one verified, is decided by `shoal-engine`. The crate
//! must not use files, sockets, threads or clocks: key sets come as bytes, time and secrets as arguments.

mod cache;
mod claims;
mod hash;
mod keys;
mod subject;
mod url;
mod verifier;

pub use cache::{Cache, Verified};
pub use claims::{Claims, Rules};
pub use hash::{HashKey, Tag};
pub use keys::{JWKS_BYTES_MAX, KEYS_MAX, KeyNumber, KeySet, KeySetError};
pub use subject::subject;
pub use url::{Url, is_token};
pub use verifier::{TokenError, Unverified, Verifier};

/// Maximum length of a token in bytes. A token by a key of 4096 bits leaves some thousand of them for its claims.
pub const TOKEN_BYTES_MAX: usize = 2048;
