//! Tokens: what a client shows in its tracker URL to be served.
//!
//! A token is a JWT (RFC 7519) in the compact form of a JWS (RFC 7515), signed by RS256, ES256 or `EdDSA` (Ed25519).
//! This crate owns its form ([`Url`], [`Verifier::read`]), the public keys ([`KeySet`], a JWK set of RFC 7517), the
//! meaning of its claims ([`Claims`]), and the memory of verified tokens ([`Cache`]). `jsonwebtoken` verifies
//! signatures, on aws-lc-rs.
//!
//! `shoal-engine` decides whether a client needs a token, and how many are verified for a source. The crate must not
//! use files, sockets, threads or clocks: key sets come as bytes, time and secrets as arguments.

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

/// Maximum length of a token in bytes. A key of 4096 bits leaves some thousand of them for the claims.
pub const TOKEN_BYTES_MAX: usize = 2048;
