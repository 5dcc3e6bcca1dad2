//! Certificates and keys of every kind, in temporary files.

use std::fs;
use std::path::PathBuf;

use pem::Pem;
use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};
use rustls::pki_types::CertificateDer;
use shoal_session::tls::CertificateFiles;
use tempfile::TempDir;

/// The kind of a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    P256,
    P384,
    Rsa,
    Ed25519,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::P256, Self::P384, Self::Rsa, Self::Ed25519];

    fn algorithm(self) -> &'static SignatureAlgorithm {
        match self {
            Self::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            Self::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            Self::Rsa => &rcgen::PKCS_RSA_SHA256,
            Self::Ed25519 => &rcgen::PKCS_ED25519,
        }
    }
}

/// A certificate for some names, with its key.
pub(crate) struct Identity {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) certificate_pem: String,
    pub(crate) key: KeyPair,
}

impl Identity {
    pub(crate) fn new(kind: Kind, names: &[&str]) -> Self {
        let key = KeyPair::generate_for(kind.algorithm()).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        Self { der: certificate.der().clone(), certificate_pem: certificate.pem(), key }
    }

    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Returns the key in the older format of its kind, which PKCS#8 contains after version and algorithm: SEC1 for curves,
    /// PKCS#1 for RSA.
    pub(crate) fn old_key_pem(&self, label: &str) -> String {
        let pkcs8 = self.key.serialize_der();
        let (_, body, _) = der_element(&pkcs8);
        let (_, _, after_version) = der_element(body);
        let (_, _, after_algorithm) = der_element(after_version);
        let (tag, key, _) = der_element(after_algorithm);
        assert_eq!(tag, 4, "an OCTET STRING");
        pem::encode(&Pem::new(label, key))
    }
}

/// Splits a DER element into tag, content and the rest.
fn der_element(bytes: &[u8]) -> (u8, &[u8], &[u8]) {
    let (length, header) = match bytes[1] {
        0x82 => (usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 4),
        0x81 => (usize::from(bytes[2]), 3),
        short => (usize::from(short), 2),
    };
    let (content, rest) = bytes[header..].split_at(length);
    (bytes[0], content, rest)
}

/// A temporary directory with PEM files.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes both files of an identity.
    pub(crate) fn files(&self, name: &str, identity: &Identity) -> CertificateFiles {
        CertificateFiles {
            chain: self.write(&format!("{name}.pem"), &identity.certificate_pem),
            key: Some(self.write(&format!("{name}.key"), identity.key_pem())),
        }
    }
}
