//! The credentials of the connection to NATS, and its certificates.
//!
//! Files are checked at the start and read again at each connection, so that credentials can be replaced while the
//! tracker runs. No log shows their contents.
//!
//! Nkeys are why the tree has a second implementation of Ed25519: the client signs with `nkeys` only.

use std::path::{Path, PathBuf};

use async_nats::Auth;
use nkeys::KeyPair;
use shoal_config::ClusterConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const FILE_BYTES_MAX: u64 = 64 << 10;

/// Maximum size of a file of certificates. The authorities of a system have some 250 KiB.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// The markers around the parts of a file of credentials (`nsc generate creds`).
const JWT_MARKERS: [&str; 2] = ["-----BEGIN NATS USER JWT-----", "------END NATS USER JWT------"];
const SEED_MARKERS: [&str; 2] = ["-----BEGIN USER NKEY SEED-----", "------END USER NKEY SEED------"];

/// How the tracker proves to NATS servers that it may connect.
#[derive(Clone, Debug)]
pub(super) enum Credentials {
    /// Not at all.
    None,
    /// By a file of credentials, or of the seed of an nkey.
    Key(PathBuf),
    /// By a user and the password in a file.
    Password { user: String, file: PathBuf },
    /// By the token in a file.
    Token(PathBuf),
}

/// The certificate files of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Certificates {
    /// The trusted authorities, instead of the system's.
    pub(super) authorities: Option<PathBuf>,
    /// The files of the certificate and the key to show.
    pub(super) own: Option<(PathBuf, PathBuf)>,
}

impl Credentials {
    /// Returns the configured credentials, and checks their files. The error is the key, its value and what is wrong
    /// with it.
    pub(super) fn read(config: &ClusterConfig) -> Result<Self, String> {
        let (key, credentials) = if let Some(file) = &config.credentials {
            ("credentials", Self::Key(file.clone()))
        } else if let (Some(user), Some(file)) = (&config.user, &config.password_file) {
            ("password_file", Self::Password { user: user.to_string(), file: file.clone() })
        } else if let Some(file) = &config.token_file {
            ("token_file", Self::Token(file.clone()))
        } else {
            return Ok(Self::None);
        };
        credentials.authenticate(b"").map_err(|fault| format!("cluster.{key}: {fault}"))?;
        Ok(credentials)
    }

    pub(super) const fn keys(&self) -> &'static str {
        match self {
            Self::None => "none are configured, by cluster.user, cluster.token_file or cluster.credentials",
            Self::Key(_) => "cluster.credentials",
            Self::Password { .. } => "cluster.user, cluster.password_file",
            Self::Token(_) => "cluster.token_file",
        }
    }

    /// Returns the answer to a server that sent this nonce. The error names the file.
    pub(super) fn authenticate(&self, nonce: &[u8]) -> Result<Auth, String> {
        let mut auth = Auth::new();
        match self {
            Self::None => {}
            Self::Key(file) => {
                let text = read(file)?;
                sign(&text, nonce, &mut auth).map_err(|fault| format!("{}: {fault}", file.display()))?;
            }
            Self::Password { user, file } => {
                auth.username = Some(user.clone());
                auth.password = Some(first_line(file)?);
            }
            Self::Token(file) => auth.token = Some(first_line(file)?),
        }
        Ok(auth)
    }
}

impl Certificates {
    /// Returns the configured files, and checks them. The error is the key, its value and what is wrong with it.
    pub(super) fn read(config: &ClusterConfig) -> Result<Self, String> {
        let fault = |key: &str, file: &Path, accepted: &str, error: &dyn core::fmt::Display| {
            format!("cluster.{key}: {}: {error}; accepts {accepted} in PEM format", file.display())
        };
        if let Some(file) = &config.tls_ca {
            check_certificates(file).map_err(|error| fault("tls_ca", file, "certificates", &error))?;
        }
        let own = config
            .tls_certificate
            .as_ref()
            .map(|certificate| (certificate.clone(), config.tls_key.as_ref().unwrap_or(certificate).clone()));
        if let Some((certificate, key)) = &own {
            check_certificates(certificate)
                .map_err(|error| fault("tls_certificate", certificate, "certificates", &error))?;
            check_key(key).map_err(|error| fault("tls_key", key, "a private key", &error))?;
        }
        Ok(Self { authorities: config.tls_ca.clone(), own })
    }
}

fn check_certificates(file: &Path) -> Result<(), String> {
    let pem = shoal_base::file::read(file, PEM_BYTES_MAX).map_err(|error| error.to_string())?;
    let mut certificates = CertificateDer::pem_slice_iter(&pem);
    match certificates.next() {
        None => Err("there is no certificate in it".to_owned()),
        Some(first) => {
            first.and(certificates.try_for_each(|next| next.map(drop))).map_err(|error| error.to_string())
        }
    }
}

fn check_key(file: &Path) -> Result<(), String> {
    let pem = shoal_base::file::read(file, PEM_BYTES_MAX).map_err(|error| error.to_string())?;
    PrivateKeyDer::from_pem_slice(&pem).map(drop).map_err(|error| error.to_string())
}

/// Signs the nonce with the key of a file of credentials.
fn sign(text: &str, nonce: &[u8], auth: &mut Auth) -> Result<(), String> {
    let jwt = between(text, JWT_MARKERS);
    let seed = match jwt {
        Some(_) => between(text, SEED_MARKERS),
        None => text.lines().map(str::trim).find(|line| line.starts_with("SU")),
    };
    let key = seed.and_then(|seed| KeyPair::from_seed(seed).ok());
    let key = key.ok_or("accepts NATS credentials (a JWT and a seed), or the seed of an nkey (\"SU…\")")?;
    match jwt {
        Some(jwt) => auth.jwt = Some(jwt.to_owned()),
        None => auth.nkey = Some(key.public_key()),
    }
    auth.signature = Some(key.sign(nonce).map_err(|error| error.to_string())?);
    Ok(())
}

fn between<'t>(text: &'t str, [begin, end]: [&str; 2]) -> Option<&'t str> {
    let (_, rest) = text.split_once(begin)?;
    rest.split_once(end).map(|(content, _)| content.trim())
}

fn first_line(file: &Path) -> Result<String, String> {
    let text = read(file)?;
    let line = text.lines().next().map(str::trim_end).filter(|line| !line.is_empty());
    let empty = || {
        format!(
            "{}: the first line is empty; accepts a file with the secret in its first line",
            file.display()
        )
    };
    line.map(str::to_owned).ok_or_else(empty)
}

fn read(file: &Path) -> Result<String, String> {
    shoal_base::file::read_text(file, FILE_BYTES_MAX)
        .map_err(|error| format!("{}: it cannot be read: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(text: &str) -> Result<Auth, String> {
        let mut auth = Auth::new();
        sign(text, b"nonce", &mut auth).map(|()| auth)
    }

    #[test]
    fn credentials_are_a_token_and_a_seed() {
        let key = KeyPair::new_user();
        let seed = key.seed().unwrap();
        let text = format!(
            "{}\nheader.payload.signature\n{}\n\n***** IMPORTANT *****\n\n{}\n{seed}\n{}\n",
            JWT_MARKERS[0], JWT_MARKERS[1], SEED_MARKERS[0], SEED_MARKERS[1]
        );
        let auth = signed(&text).unwrap();
        assert_eq!(auth.jwt.as_deref(), Some("header.payload.signature"));
        assert!(auth.nkey.is_none());
        key.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn a_seed_alone_is_an_nkey() {
        let key = KeyPair::new_user();
        let auth = signed(&format!("# for the tracker\n{}\n", key.seed().unwrap())).unwrap();
        assert_eq!(auth.nkey, Some(key.public_key()));
        key.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn other_files_are_refused_with_what_is_accepted() {
        for text in
            ["", "SU", "SUNOSEED", "-----BEGIN NATS USER JWT-----\na\n------END NATS USER JWT------\n"]
        {
            assert!(signed(text).is_err_and(|fault| fault.contains("accepts NATS credentials")), "{text}");
        }
    }

    #[test]
    fn the_first_line_of_a_file_is_the_secret() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "secret \r\nnot this\n").unwrap();
        assert_eq!(first_line(&file).as_deref(), Ok("secret"));
        std::fs::write(&file, "\nsecret").unwrap();
        assert!(first_line(&file).is_err_and(|fault| fault.contains("the first line is empty")));
        assert!(
            first_line(&directory.path().join("none")).is_err_and(|fault| fault.contains("cannot be read"))
        );
    }
}
