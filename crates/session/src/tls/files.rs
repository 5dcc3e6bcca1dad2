//! Loads certificates and keys from PEM files.
//!
//! The errors tell the operator how to correct a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::InconsistentKeys;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use shoal_base::file::Fault;

use crate::tls::certificates::{Certificate, Certificates, Usable};

/// The maximum size of a file. A chain of five certificates with a key has about 10 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by the intermediate certificates up to a root that clients trust.
    pub chain: PathBuf,
    /// The private key. If absent, the key is in the same file.
    pub key: Option<PathBuf>,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// No files were given.
    #[error("no certificate is configured; `shoal tls self-signed` creates one for testing")]
    NoneGiven,
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A file might block a reader or never end, because it is not a regular file: a FIFO, a device, a socket, a
    /// directory.
    #[error("{} is not a regular file", file.display())]
    NotAFile {
        /// The file.
        file: PathBuf,
    },
    /// A file is larger than any certificate.
    #[error("{} has more than {} KiB, which no certificate or key has", file.display(), FILE_BYTES_MAX >> 10)]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// A file contains no PEM.
    #[error(
        "{shown} is not PEM, whose sections begin with -----BEGIN; if it is DER, `openssl {command} -inform der -in \
         {shown} -out {shown}.pem` converts it",
        shown = file.display()
    )]
    NotPem {
        /// The file.
        file: PathBuf,
        /// The openssl command for the expected contents.
        command: &'static str,
    },
    /// A file contains invalid PEM.
    #[error("{} is damaged: {error}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The violation.
        error: rustls::pki_types::pem::Error,
    },
    /// A file contains no certificate.
    #[error("there is no certificate in {}, only other PEM sections: is it the key?", file.display())]
    NoCertificate {
        /// The file.
        file: PathBuf,
    },
    /// A certificate cannot be parsed.
    #[error(
        "the first certificate in {} cannot be used: {error}; clients require X.509 version 3 with subjectAltName",
        file.display()
    )]
    BadCertificate {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: webpki::Error,
    },
    /// A file contains no private key.
    #[error(
        "there is no private key in {}, which would begin with -----BEGIN PRIVATE KEY-----, -----BEGIN EC PRIVATE \
         KEY----- or -----BEGIN RSA PRIVATE KEY-----",
        file.display()
    )]
    NoKey {
        /// The file.
        file: PathBuf,
    },
    /// A private key is encrypted.
    #[error(
        "the private key in {shown} is encrypted, and there is no way to enter its password; `openssl pkey -in \
         {shown} -out {shown}.plain` decrypts it",
        shown = file.display()
    )]
    EncryptedKey {
        /// The file.
        file: PathBuf,
    },
    /// A private key cannot be parsed.
    #[error(
        "the private key in {} cannot be used: {error}; supported keys are ECDSA with P-256 or P-384, RSA with \
         2048 bits or more, and Ed25519",
        file.display()
    )]
    BadKey {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: rustls::Error,
    },
    /// A private key does not belong to the certificate.
    #[error("the private key in {} does not match the first certificate in {}{}", key.display(), chain.display(),
        if *.is_misplaced { ", but a later one there: the server's own must come first" } else { "" })]
    Mismatch {
        /// The file of the certificate.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Whether the key belongs to another certificate of the chain.
        is_misplaced: bool,
    },
    /// The system provides no random numbers for the keys of tickets.
    #[error("cannot generate keys for session tickets: {0}")]
    NoRandomness(rustls::Error),
}

/// Loads all certificates, which may be none. The error is the error of the first unusable certificate.
pub(crate) fn load(
    files: &[CertificateFiles],
    provider: &CryptoProvider,
) -> Result<Certificates, CertificateError> {
    let all = files.iter().map(|files| load_one(files, provider)).collect::<Result<_, _>>()?;
    Ok(Certificates::new(all))
}

fn load_one(files: &CertificateFiles, provider: &CryptoProvider) -> Result<Usable, CertificateError> {
    let chain_pem = read(&files.chain)?;
    let chain = chain(&files.chain, &chain_pem)?;
    let leaf = chain.first().ok_or_else(|| CertificateError::NoCertificate { file: files.chain.clone() })?;
    let certificate = Certificate::read(files.chain.clone(), leaf)
        .map_err(|error| CertificateError::BadCertificate { file: files.chain.clone(), error })?;
    let (key_file, key) = match &files.key {
        Some(file) => (file, key(file, &read(file)?)?),
        None => (&files.chain, key(&files.chain, &chain_pem)?),
    };
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| CertificateError::BadKey { file: key_file.clone(), error })?;
    let certified = CertifiedKey::new(chain, key);
    if is_mismatch(&certified) {
        let is_misplaced =
            certified.cert.iter().skip(1).any(|other| {
                !is_mismatch(&CertifiedKey::new(vec![other.clone()], Arc::clone(&certified.key)))
            });
        let (chain, key) = (files.chain.clone(), key_file.clone());
        return Err(CertificateError::Mismatch { chain, key, is_misplaced });
    }
    Ok(Usable { certificate, key: Arc::new(certified) })
}

fn read(file: &Path) -> Result<Vec<u8>, CertificateError> {
    let file_of = || file.to_owned();
    shoal_base::file::read(file, FILE_BYTES_MAX).map_err(|error| match Fault::of(&error) {
        Some(Fault::NotRegular) => CertificateError::NotAFile { file: file_of() },
        Some(Fault::TooLarge(_)) => CertificateError::TooLarge { file: file_of() },
        None => CertificateError::Unreadable { file: file_of(), error },
    })
}

fn chain(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    if !is_pem(pem) {
        return Err(CertificateError::NotPem { file: file.to_owned(), command: "x509" });
    }
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| CertificateError::Damaged { file: file.to_owned(), error })
}

fn key(file: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let file = || file.to_owned();
    if !is_pem(pem) {
        return Err(CertificateError::NotPem { file: file(), command: "pkey" });
    }
    // The old format of OpenSSL has ordinary markers, followed by a header that declares the encryption.
    if contains(pem, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(pem, b"Proc-Type: 4,ENCRYPTED") {
        return Err(CertificateError::EncryptedKey { file: file() });
    }
    match PrivateKeyDer::pem_slice_iter(pem).next() {
        Some(key) => key.map_err(|error| CertificateError::Damaged { file: file(), error }),
        None => Err(CertificateError::NoKey { file: file() }),
    }
}

/// Returns whether a key does not belong to the certificate. If rustls cannot determine this, the key is accepted.
fn is_mismatch(certified: &CertifiedKey) -> bool {
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => false,
        Err(_) => true,
    }
}

fn is_pem(bytes: &[u8]) -> bool {
    contains(bytes, b"-----BEGIN ")
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
