//! Self-signed certificates for testing.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};

/// The validity of a certificate. Clients accept 398 days at most.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A certificate and its private key.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// The private key, PKCS#8 in PEM.
    pub key_pem: String,
}

/// Why a certificate cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    /// No names were given.
    #[error("a certificate needs a name: the host name or the address that clients connect to")]
    NoName,
    /// A name cannot be in a certificate.
    #[error("{0:?} is neither a host name (in ASCII; others as xn--…) nor an IP address")]
    BadName(String),
    /// Cryptography failed.
    #[error("cannot create a certificate: {0}")]
    Other(#[from] rcgen::Error),
}

/// Creates a certificate for these host names and IP addresses. It is meant for tests, and practically never expires,
/// because this crate reads no clock. Fails if a name is neither a host name nor an IP address, or if there is none.
pub fn self_signed(names: &[String]) -> Result<SelfSigned, SelfSignedError> {
    sign(parameters(names)?)
}

/// Creates a certificate for these host names and IP addresses that is valid for a year from `now`. Fails as
/// [`self_signed`] does.
pub fn self_signed_for_a_year(names: &[String], now: SystemTime) -> Result<SelfSigned, SelfSignedError> {
    let mut parameters = parameters(names)?;
    parameters.not_before = now.into();
    parameters.not_after = (now + YEAR).into();
    sign(parameters)
}

fn parameters(names: &[String]) -> Result<CertificateParams, SelfSignedError> {
    let first = names.first().ok_or(SelfSignedError::NoName)?;
    if let Some(bad) = names.iter().find(|name| !is_name(name)) {
        return Err(SelfSignedError::BadName(bad.clone()));
    }
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, first.as_str());
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(parameters)
}

fn sign(parameters: CertificateParams) -> Result<SelfSigned, SelfSignedError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = parameters.self_signed(&key)?;
    Ok(SelfSigned { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
}

/// Returns whether a certificate can have this name, since rcgen accepts any text.
fn is_name(name: &str) -> bool {
    let host = name.strip_prefix("*.").unwrap_or(name);
    rustls::pki_types::ServerName::try_from(host).is_ok()
}
