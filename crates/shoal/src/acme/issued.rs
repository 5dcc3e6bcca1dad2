//! The issued certificate: a file of the state with the private key and the whole chain, which is replaced as a whole.
//!
//! Its first line is no PEM. It says where the certificate comes from, so that another certificate authority or another
//! profile leads to another certificate. The line of a revoked certificate says nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use shoal_config::AcmeConfig;
use shoal_runtime::replace_file::temporary;
use shoal_runtime::state_directory::replace;
use shoal_session::tls::{Certificate, CertificateError, CertificateFiles, Server};
use yasna::models::ObjectIdentifier;
use yasna::{ASN1Result, BERReader, Tag};

/// RFC 5280, 4.2.1.1.
const AUTHORITY_KEY_IDENTIFIER: [u64; 4] = [2, 5, 29, 35];

/// Maximum size of the file, as of other certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The beginning of the first line, and of the first line after a revocation.
const ORIGIN: &str = "# ";
const REVOKED: &[u8] = b"!";

/// A usable certificate of the file.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) certificate: Certificate,
    der: CertificateDer<'static>,
    origin: String,
}

impl Issued {
    /// Reads the certificate, if there is a usable one. The error is that of the file system: the file may be good.
    pub(super) fn read(file: &Path) -> io::Result<Option<Self>> {
        let Some(server) = usable(file)? else { return Ok(None) };
        let text = shoal_base::file::read_text(file, FILE_BYTES_MAX)?;
        let origin = text.lines().next().and_then(|line| line.strip_prefix(ORIGIN)).unwrap_or_default();
        let der = CertificateDer::from_pem_slice(text.as_bytes()).ok();
        let certificate = server.certificates().into_iter().next().zip(der);
        Ok(certificate.map(|(certificate, der)| Self { certificate, der, origin: origin.to_owned() }))
    }

    /// Returns whether the certificate authority and the profile of a configuration have issued the certificate, and it is
    /// not revoked.
    pub(super) fn is_from(&self, config: &AcmeConfig) -> bool {
        self.origin == origin(config)
    }

    /// Returns whether the certificate authority of a configuration has issued the certificate, by whatever profile.
    pub(super) fn is_of_directory(&self, config: &AcmeConfig) -> bool {
        self.origin.split(' ').next() == Some(&config.directory.uri().to_string())
    }

    /// Returns whether the certificate has these names. Some certificate authorities add names, such as that with `www.`.
    pub(super) fn has_names<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        names.all(|name| self.certificate.names.iter().any(|own| own == name))
    }

    /// Returns whether the certificate has one of these names.
    pub(super) fn has_any_name<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        names.any(|name| self.certificate.names.iter().any(|own| own == name))
    }

    /// Returns a share of one that is the same for all looks at this certificate, and differs between certificates.
    pub(super) fn share(&self) -> f64 {
        f64::from(crc32fast::hash(&self.der)) / f64::from(u32::MAX)
    }

    /// Returns what identifies the certificate to its issuer (RFC 9773, 4.1), if it names its issuer's key.
    pub(super) fn identifier(&self) -> Option<CertificateIdentifier<'static>> {
        let (serial, authority) = yasna::parse_der(&self.der, certificate).ok()?;
        Some(CertificateIdentifier {
            authority_key_identifier: URL_SAFE_NO_PAD.encode(authority?).into(),
            serial: URL_SAFE_NO_PAD.encode(serial).into(),
        })
    }

    pub(super) fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }
}

/// Returns the text of a file with this key and this chain, in PEM.
pub(super) fn text(config: &AcmeConfig, key: &str, chain: &str) -> String {
    format!("{ORIGIN}{}\n{key}{chain}", origin(config))
}

fn origin(config: &AcmeConfig) -> String {
    let profile = config.profile.as_ref().map_or("", |profile| profile.as_str());
    format!("{} {profile}", config.directory.uri())
}

/// Opens the file to mark the certificate as revoked by [`mark_revoked`].
pub(super) fn open_to_mark(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(file)
}

/// Marks the certificate as revoked: the next look orders another one. The file keeps its owner, whichever user does this.
pub(super) fn mark_revoked(file: &File) -> io::Result<()> {
    file.write_all_at(REVOKED, 0)?;
    file.sync_all()
}

/// Returns the file for listeners, if it has a usable certificate. A damaged one is replaced by the next certificate.
pub(crate) fn files(file: &Path) -> Option<CertificateFiles> {
    let usable = usable(file).unwrap_or_else(|error| {
        tracing::error!(file = %file.display(), %error, "the issued certificate cannot be read");
        None
    });
    usable.map(|_| of(file))
}

fn of(file: &Path) -> CertificateFiles {
    CertificateFiles { chain: file.to_owned(), key: None }
}

fn usable(file: &Path) -> io::Result<Option<Server>> {
    match Server::load(&[of(file)]) {
        Ok(server) => Ok(Some(server)),
        Err(CertificateError::Unreadable { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(CertificateError::Unreadable { error, .. }) => Err(error),
        Err(error) => {
            tracing::error!(%error, "the issued certificate cannot be used; a new one replaces it");
            Ok(None)
        }
    }
}

/// Replaces the certificate by another one with its key, if that one can be used. Otherwise the error is `InvalidData`.
pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    replace(file, |mut new| {
        new.write_all(text.as_bytes())?;
        match Server::load(&[of(&temporary(file))]) {
            Ok(_) => Ok((new, ())),
            Err(CertificateError::Unreadable { error, .. }) => Err(error),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
        }
    })
}

/// Returns the serial number and the identifier of the issuer's key (RFC 5280, 4.1).
fn certificate(reader: BERReader<'_, '_>) -> ASN1Result<(Vec<u8>, Option<Vec<u8>>)> {
    reader.read_sequence(|reader| {
        let parts = reader.next().read_sequence(|reader| {
            let _version = reader
                .read_optional(|reader| reader.read_tagged(Tag::context(0), |reader| reader.read_i64()))?;
            let serial = reader.next().read_der()?;
            let [_signature, _issuer, _validity, _subject, _key] = [
                reader.next().read_der()?,
                reader.next().read_der()?,
                reader.next().read_der()?,
                reader.next().read_der()?,
                reader.next().read_der()?,
            ];
            let extensions =
                reader.next().read_tagged(Tag::context(3), |reader| reader.collect_sequence_of(extension))?;
            let authority = ObjectIdentifier::from_slice(&AUTHORITY_KEY_IDENTIFIER);
            let found = extensions.into_iter().find(|(id, _)| *id == authority);
            // A serial number has at most 20 bytes, after its type and its length.
            Ok((
                serial.get(2..).unwrap_or_default().to_vec(),
                found.and_then(|(_, value)| key_identifier(&value)),
            ))
        })?;
        let [_algorithm, _signature] = [reader.next().read_der()?, reader.next().read_der()?];
        Ok(parts)
    })
}

fn extension(reader: BERReader<'_, '_>) -> ASN1Result<(ObjectIdentifier, Vec<u8>)> {
    reader.read_sequence(|reader| {
        let id = reader.next().read_oid()?;
        let _is_critical = reader.read_optional(|reader| reader.read_bool())?;
        Ok((id, reader.next().read_bytes()?))
    })
}

fn key_identifier(value: &[u8]) -> Option<Vec<u8>> {
    let read = |reader: BERReader<'_, '_>| {
        reader.read_sequence(|reader| {
            reader.next().read_tagged_implicit(Tag::context(0), |reader| reader.read_bytes())
        })
    };
    yasna::parse_der(value, read).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shoal_session::tls::self_signed;

    use super::*;

    #[test]
    fn only_a_usable_certificate_replaces_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("acme.pem");
        assert!(Issued::read(&file).unwrap().is_none());
        let of_both = ["a.example".to_owned(), "www.a.example".to_owned()];
        let [one, other] = [&of_both[..], &of_both[..1]].map(|names| self_signed(names).unwrap());
        let config = AcmeConfig::default();
        write(&file, &text(&config, &one.key_pem, &one.certificate_pem)).unwrap();
        for pem in ["<html>", &text(&config, &one.key_pem, &other.certificate_pem)] {
            assert_eq!(write(&file, pem).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let issued = Issued::read(&file).unwrap().unwrap();
        assert!(issued.has_names(["a.example"].into_iter()) && issued.is_from(&config));
        assert!(!issued.has_names(["a.example", "b.example"].into_iter()));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        mark_revoked(&open_to_mark(&file).unwrap()).unwrap();
        let issued = Issued::read(&file).unwrap().unwrap();
        assert!(!issued.is_from(&config) && !issued.is_of_directory(&config));
        // A file that cannot be read may be good.
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("acme.pem", &file).unwrap();
        assert!(Issued::read(&file).is_err());
    }
}
