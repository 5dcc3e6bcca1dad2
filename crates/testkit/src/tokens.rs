//! An issuer of tokens (JWT), for tests.
//!
//! It makes its keys itself, and writes tokens and JWK sets without the crates that read them, whose mistakes it would
//! share. It also writes tokens that no issuer should: a test says which header and which claims they have. It must not be
//! part of the tracker.

use aws_lc_rs::encoding::{AsBigEndian, EcPublicKeyUncompressedBin};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A pair of keys, with the id by which tokens name it.
#[derive(Debug)]
pub struct Issuer {
    id: String,
    pair: Pair,
}

#[derive(Debug)]
enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

const MADE: &str = "aws-lc-rs makes keys and signatures";

impl Issuer {
    /// Makes a key for RS256, of 2048 bits. This takes a good part of a second.
    ///
    /// # Panics
    /// Panics if there is no randomness, as all of these functions do.
    #[must_use]
    pub fn rs256(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            pair: Pair::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).expect(MADE))),
        }
    }

    /// Makes a key for ES256.
    ///
    /// # Panics
    /// Panics if there is no randomness.
    #[must_use]
    pub fn es256(id: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect(MADE);
        Self { id: id.to_owned(), pair: Pair::Ec(pair) }
    }

    /// Makes a key for `EdDSA` on Ed25519.
    ///
    /// # Panics
    /// Panics if there is no randomness.
    #[must_use]
    pub fn ed25519(id: &str) -> Self {
        Self { id: id.to_owned(), pair: Pair::Ed(Ed25519KeyPair::generate().expect(MADE)) }
    }

    /// Makes the key for `EdDSA` that follows from a seed, for programs that keep its JWK set in a file.
    ///
    /// # Panics
    /// Panics if aws-lc-rs does not accept the seed, which it does.
    #[must_use]
    pub fn of_seed(id: &str, seed: &[u8; 32]) -> Self {
        Self { id: id.to_owned(), pair: Pair::Ed(Ed25519KeyPair::from_seed_unchecked(seed).expect(MADE)) }
    }

    /// Returns the name of its algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        match &self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_) => "ES256",
            Pair::Ed(_) => "EdDSA",
        }
    }

    /// Returns the public key as a JWK.
    ///
    /// # Panics
    /// Panics if the public key has another form than aws-lc-rs documents.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let [n, e] = rsa_integers(pair.public_key().as_ref());
                json!({ "kty": "RSA", "n": encode(n), "e": encode(e) })
            }
            Pair::Ec(pair) => {
                let point: EcPublicKeyUncompressedBin<'_> = pair.public_key().as_be_bytes().expect(MADE);
                let (x, y) = point.as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y) })
            }
            Pair::Ed(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref()) })
            }
        };
        jwk["kid"] = json!(self.id);
        jwk["alg"] = json!(self.algorithm());
        jwk["use"] = json!("sig");
        jwk
    }

    /// Returns a token with these claims.
    #[must_use]
    pub fn token(&self, claims: &Value) -> String {
        self.token_with_header(&json!({ "alg": self.algorithm(), "kid": self.id, "typ": "JWT" }), claims)
    }

    /// Returns a token with any header, signed by this key.
    #[must_use]
    pub fn token_with_header(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        format!("{message}.{}", encode(&self.sign(message.as_bytes())))
    }

    /// Signs a message.
    ///
    /// # Panics
    /// Panics if there is no randomness.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect(MADE);
                signature
            }
            Pair::Ec(pair) => pair.sign(&random, message).expect(MADE).as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

/// Returns a JWK set.
#[must_use]
pub fn jwks(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

/// Returns a token that is authenticated by a secret (HS256), with any header.
#[must_use]
pub fn hs256(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = message(header, claims);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    format!("{message}.{}", encode(hmac::sign(&key, message.as_bytes()).as_ref()))
}

/// Returns a token without a signature (`alg: none`).
#[must_use]
pub fn unsigned(claims: &Value) -> String {
    format!("{}.", message(&json!({ "alg": "none" }), claims))
}

/// Returns the part of a token that is signed.
#[must_use]
pub fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()))
}

/// Encodes bytes as tokens do: base64url without padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the two integers of an RSA public key (RFC 8017, appendix A.1.1), in DER.
fn rsa_integers(der: &[u8]) -> [&[u8]; 2] {
    let (sequence, _) = der_value(der);
    let (modulus, rest) = der_value(sequence);
    let (exponent, _) = der_value(rest);
    // A zero before the first bit keeps an integer from being negative.
    [modulus.strip_prefix(&[0]).unwrap_or(modulus), exponent]
}

/// Splits the bytes after the first value of DER off.
fn der_value(der: &[u8]) -> (&[u8], &[u8]) {
    let length_bytes = usize::from(der[1].saturating_sub(0x80));
    let length = match length_bytes {
        0 => usize::from(der[1]),
        _ => der[2..2 + length_bytes].iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
    };
    der[2 + length_bytes..].split_at(length)
}
