//! The certificates in use, and which of them a client gets.
//!
//! Owns the choice by name (RFC 6066, 3) and by what kinds of signatures the client can check. A name stands for all
//! its certificates, so that one with RSA beside one with ECDSA serves old clients too.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::{EndEntityCert, KeyUsage};

/// What can be said of a certificate in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The file it came from.
    pub file: PathBuf,
    /// The host names it is for, wildcards included.
    pub names: Vec<String>,
    /// When it begins to be valid, in seconds since 1970.
    pub not_before_unix_s: Option<u64>,
    /// Until when it is valid, in seconds since 1970.
    pub not_after_unix_s: Option<u64>,
}

impl Certificate {
    /// What stands in a certificate that can be used.
    ///
    /// # Errors
    /// When it is not X.509 version 3.
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

/// Why a certificate would be refused at a time. For webpki the dates are among the first things to look at, and the
/// only way to have it tell them.
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
    /// In the order of the configuration; never empty.
    all: Vec<Usable>,
    /// Which of them are for a name, in the same order. A wildcard stands under what follows its star, dot included:
    /// no host name begins with a dot.
    by_name: HashMap<String, Vec<usize>>,
}

impl Certificates {
    /// Takes at least one.
    pub(crate) fn new(all: Vec<Usable>) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, usable) in all.iter().enumerate() {
            for name in &usable.certificate.names {
                by_name.entry(name.trim_start_matches('*').to_owned()).or_default().push(index);
            }
        }
        Self { all, by_name }
    }

    /// The certificate for a client that asks for `name` and can check signatures that `is_accepted` tells.
    fn select(&self, name: Option<&str>, is_accepted: impl Fn(&CertifiedKey) -> bool) -> Option<&Usable> {
        let named = name.and_then(|name| self.of_name(&name.to_ascii_lowercase()));
        let of_name = named.into_iter().flatten().filter_map(|index| self.all.get(*index));
        of_name.chain(&self.all).find(|usable| is_accepted(&usable.key)).or_else(|| self.all.first())
    }

    /// The certificates for the name itself, or else those for all names beside it (RFC 9525, 6.3: a star stands for
    /// one whole label).
    fn of_name(&self, name: &str) -> Option<&Vec<usize>> {
        let parent = || name.find('.').and_then(|dot| name.get(dot..));
        self.by_name.get(name).or_else(|| self.by_name.get(parent()?))
    }
}

/// What rustls asks for a certificate; exchanges all of them at once.
#[derive(Debug)]
pub(crate) struct Selector {
    current: RwLock<Arc<Certificates>>,
}

impl Selector {
    pub(crate) fn new(certificates: Certificates) -> Self {
        Self { current: RwLock::new(Arc::new(certificates)) }
    }

    pub(crate) fn replace(&self, certificates: Certificates) {
        *self.current.write() = Arc::new(certificates);
    }

    pub(crate) fn summary(&self) -> Vec<Certificate> {
        self.current.read().all.iter().map(|usable| usable.certificate.clone()).collect()
    }
}

impl ResolvesServerCert for Selector {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let certificates = self.current.read();
        let usable = certificates
            .select(hello.server_name(), |certified| certified.key.choose_scheme(schemes).is_some())?;
        Some(Arc::clone(&usable.key))
    }
}
