//! Challenges of a certificate authority, by which it learns that a domain leads to this tracker (RFC 8555, 8).
//!
//! The control plane sets what the answers follow from. Workers only look them up: those of HTTP-01 by path, and those of
//! TLS-ALPN-01 by host name. All answers are public.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

/// RFC 8737, 4: the application protocol of a TLS connection that only validates.
pub(crate) const VALIDATION_PROTOCOL: &[u8] = b"acme-tls/1";

/// RFC 8555, 8.3.
const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// Maximum length of a token. Certificate authorities use 43.
const TOKEN_BYTES_MAX: usize = 128;

/// Maximum number of answers to TLS-ALPN-01, one for each name of a certificate.
const ANSWERS_MAX: usize = 100;

/// The domain of a TLS-ALPN-01 challenge, and SHA-256 of its key authorization.
pub type TlsAnswer = (String, [u8; 32]);

/// The account at the certificate authority. The nodes of a cluster share one, so that each of them can answer HTTP-01 for the
/// others.
#[derive(Clone, PartialEq, Eq)]
pub struct AcmeAccount {
    /// The account with its secret key, in the form of its file.
    pub credentials: String,
    /// The thumbprint of its key (RFC 8555, 8.1), which is public.
    pub thumbprint: String,
}

/// Why there is no certificate for a challenge.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the certificate of a challenge: {0}")]
pub struct ChallengeError(String);

/// The answers to all challenges at this moment.
#[derive(Default)]
pub struct Challenges {
    /// The account whose challenges are answered by path: each answer follows from the token and the account.
    account: RwLock<Option<AcmeAccount>>,
    tls: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

impl Challenges {
    /// Answers the HTTP-01 challenges of this account from now on; of none without one.
    pub fn set_account(&self, account: Option<AcmeAccount>) {
        if *self.account.read() != account {
            *self.account.write() = account;
        }
    }

    /// Returns the account.
    pub fn account(&self) -> Option<AcmeAccount> {
        self.account.read().clone()
    }

    /// Replaces all answers to TLS-ALPN-01. Fails if a certificate cannot be made, and then keeps the old ones.
    pub fn replace_tls(&self, answers: &[TlsAnswer]) -> Result<(), ChallengeError> {
        let made = answers.iter().take(ANSWERS_MAX).map(|(domain, digest)| {
            Ok((domain.to_ascii_lowercase(), Arc::new(certificate(domain, digest)?)))
        });
        *self.tls.write() = made.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Returns the response to a request for this path, if it asks for the answer to a challenge (RFC 8555, 8.3).
    pub(crate) fn http(&self, path: &[u8]) -> Option<String> {
        let token = str::from_utf8(path.strip_prefix(PATH)?).ok()?;
        let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=TOKEN_BYTES_MAX).contains(&token.len()) || !token.bytes().all(is_base64url) {
            return None;
        }
        self.account.read().as_ref().map(|account| format!("{token}.{}", account.thumbprint))
    }

    /// Returns the certificate for a client that validates the domain.
    pub(crate) fn tls(&self, domain: &str) -> Option<Arc<CertifiedKey>> {
        self.tls.read().get(&domain.to_ascii_lowercase()).cloned()
    }
}

impl fmt::Debug for AcmeAccount {
    /// Omits the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AcmeAccount").field("thumbprint", &self.thumbprint).finish_non_exhaustive()
    }
}

impl fmt::Debug for Challenges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Challenges").field("tls", &self.tls.read().len()).finish_non_exhaustive()
    }
}

/// Creates the certificate of a challenge (RFC 8737, 3): self-signed, with the domain and the digest.
fn certificate(domain: &str, digest: &[u8; 32]) -> Result<CertifiedKey, ChallengeError> {
    let fault = |error: rcgen::Error| ChallengeError(error.to_string());
    let mut parameters = CertificateParams::new([domain.to_owned()]).map_err(fault)?;
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(fault)?;
    let certificate = parameters.self_signed(&key).map_err(fault)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = aws_lc_rs::default_provider().key_provider.load_private_key(key);
    let key = key.map_err(|error| ChallengeError(error.to_string()))?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_answered_for_any_token_of_the_account() {
        let challenges = Challenges::default();
        let of_path = |path: &str| challenges.http(path.as_bytes());
        assert_eq!(of_path("/.well-known/acme-challenge/to-ken_1"), None);
        let account = AcmeAccount { credentials: "secret".to_owned(), thumbprint: "thumb".to_owned() };
        assert!(!format!("{account:?}").contains("secret"));
        challenges.set_account(Some(account));
        assert_eq!(of_path("/.well-known/acme-challenge/to-ken_1").as_deref(), Some("to-ken_1.thumb"));
        let long = format!("/.well-known/acme-challenge/{}", "x".repeat(TOKEN_BYTES_MAX + 1));
        for path in ["/.well-known/acme-challenge/", "/.well-known/acme-challenge/a/b", "/token", &long] {
            assert_eq!(of_path(path), None, "{path}");
        }
    }

    #[test]
    fn only_the_last_answers_of_tls_are_given() {
        let challenges = Challenges::default();
        challenges.replace_tls(&[("Tracker.example".to_owned(), [7; 32])]).unwrap();
        assert!(challenges.tls("tracker.EXAMPLE").is_some());
        assert!(challenges.tls("other.example").is_none());
        challenges.replace_tls(&[]).unwrap();
        assert!(challenges.tls("tracker.example").is_none());
    }
}
