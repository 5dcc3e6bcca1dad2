//! The certificates in use, and the selection of one for each client.
//!
//! A certificate is selected by name (RFC 6066, 3) and by the signature schemes that the client supports. A name can
//! have several certificates, so that one with RSA in addition to one with ECDSA also serves old clients.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::{EndEntityCert, KeyUsage};

use crate::challenges::{Challenges, VALIDATION_PROTOCOL};

/// A description of a certificate in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The file that the certificate was loaded from.
    pub file: PathBuf,
    /// The host names in the certificate, wildcards included.
    pub names: Vec<String>,
    /// The start of validity, in seconds since 1970.
    pub not_before_unix_s: Option<u64>,
    /// The end of validity, in seconds since 1970.
    pub not_after_unix_s: Option<u64>,
}

impl Certificate {
    /// Parses a certificate. Fails unless it is X.509 version 3.
    pub(crate) fn read(file: PathBuf, der: &CertificateDer<'_>) -> Result<Self, webpki::Error> {
        let certificate = EndEntityCert::try_from(der)?;
        Ok(Self {
            file,
            names: certificate.valid_dns_names().map(str::to_ascii_lowercase).collect(),
            not_before_unix_s: match refusal(&certificate, UnixTime::since_unix_epoch(Duration::ZERO)) {
                Some(webpki::Error::CertNotValidYet { not_before, .. }) => Some(not_before.as_secs()),
                _ => None,
            },
            not_after_unix_s: match refusal(&certificate, UnixTime::since_unix_epoch(Duration::MAX)) {
                Some(webpki::Error::CertExpired { not_after, .. }) => Some(not_after.as_secs()),
                _ => None,
            },
        })
    }
}

/// Returns why a certificate would be refused at a time. webpki checks the dates early, and exposes them only through
/// this error.
fn refusal(certificate: &EndEntityCert<'_>, time: UnixTime) -> Option<webpki::Error> {
    certificate.verify_for_usage(&[], &[], &[], time, KeyUsage::server_auth(), None, None).err()
}

/// A certificate with its chain and its key.
#[derive(Debug)]
pub(crate) struct Usable {
    pub(crate) certificate: Certificate,
    pub(crate) key: Arc<CertifiedKey>,
}

/// The certificates of one configuration.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// In the order of the configuration. Empty until the first certificate has been issued.
    all: Vec<Usable>,
    /// The certificates of each name, in the same order. The key of a wildcard is the part after the asterisk,
    /// including the dot, with which a host name cannot begin.
    by_name: HashMap<String, Vec<usize>>,
}

impl Certificates {
    /// Indexes certificates by name.
    pub(crate) fn new(all: Vec<Usable>) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, usable) in all.iter().enumerate() {
            for name in &usable.certificate.names {
                by_name.entry(name.trim_start_matches('*').to_owned()).or_default().push(index);
            }
        }
        Self { all, by_name }
    }

    /// Selects the certificate for a client that requests `name` and supports the keys for which `is_accepted` holds.
    fn select(&self, name: Option<&str>, is_accepted: impl Fn(&CertifiedKey) -> bool) -> Option<&Usable> {
        let indexes = name.and_then(|name| self.find(&name.to_ascii_lowercase()));
        let of_name = indexes.into_iter().flatten().filter_map(|index| self.all.get(*index));
        of_name.chain(&self.all).find(|usable| is_accepted(&usable.key)).or_else(|| self.all.first())
    }

    /// Returns the certificates of the name, or else of a matching wildcard, whose asterisk stands for one whole label
    /// (RFC 9525, 6.3).
    fn find(&self, name: &str) -> Option<&Vec<usize>> {
        let parent = || name.find('.').and_then(|dot| name.get(dot..));
        self.by_name.get(name).or_else(|| self.by_name.get(parent()?))
    }
}

/// The certificate resolver for rustls, which can replace all certificates at once.
#[derive(Debug)]
pub(crate) struct Selector {
    current: RwLock<Arc<Certificates>>,
    /// The challenges of a certificate authority, if it issues certificates.
    challenges: Option<Arc<Challenges>>,
}

impl Selector {
    pub(crate) fn new(certificates: Certificates, challenges: Option<Arc<Challenges>>) -> Self {
        Self { current: RwLock::new(Arc::new(certificates)), challenges }
    }

    pub(crate) fn replace(&self, certificates: Certificates) {
        *self.current.write() = Arc::new(certificates);
    }

    pub(crate) const fn challenges(&self) -> Option<&Arc<Challenges>> {
        self.challenges.as_ref()
    }

    pub(crate) fn summary(&self) -> Vec<Certificate> {
        self.current.read().all.iter().map(|usable| usable.certificate.clone()).collect()
    }
}

impl ResolvesServerCert for Selector {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if is_validation(&hello) {
            return self.challenges.as_ref()?.tls(hello.server_name()?);
        }
        let schemes = hello.signature_schemes();
        let certificates = self.current.read();
        let usable = certificates
            .select(hello.server_name(), |certified| certified.key.choose_scheme(schemes).is_some())?;
        Some(Arc::clone(&usable.key))
    }
}

/// Returns whether a certificate authority validates a domain. It offers no other application protocol (RFC 8737, 3).
fn is_validation(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(VALIDATION_PROTOCOL) && offered.next().is_none())
}
