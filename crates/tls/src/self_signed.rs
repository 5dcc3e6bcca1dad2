//! Certificates for trials, which no authority has signed.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};

/// No longer than clients believe in, which is 398 days.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// Its private key, PKCS#8 in PEM.
    pub key_pem: String,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    /// Nobody to be certified.
    #[error("a certificate needs a name: the host name or the address that clients connect to")]
    NoName,
    /// A name that a certificate cannot hold.
    #[error("{0:?} is neither a host name (in ASCII; xn--… for others) nor an IP address")]
    BadName(String),
    /// The cryptography failed.
    #[error("cannot make a certificate: {0}")]
    Other(#[from] rcgen::Error),
}

/// A certificate for these host names and IP addresses that practically never expires, for tests: there is no clock
/// here that could say which year begins now.
///
/// # Errors
/// When a name is neither a host name nor an IP address, or there is none.
pub fn self_signed(names: &[String]) -> Result<SelfSigned, SelfSignedError> {
    sign(parameters(names)?)
}

/// A certificate for these host names and IP addresses that is valid for a year from `now` on.
///
/// # Errors
/// As [`self_signed`].
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

/// Whether a certificate can be for `name`: rcgen would take any text.
fn is_name(name: &str) -> bool {
    let host = name.strip_prefix("*.").unwrap_or(name);
    rustls::pki_types::ServerName::try_from(host).is_ok()
}
