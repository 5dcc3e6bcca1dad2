//! The certificates of the TLS listeners and of the control listener. They are read at the start and on each reload.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shoal_config::Config;
use shoal_session::Challenges;
use shoal_session::tls::{CertificateError, CertificateFiles, Server};

use crate::acme;
use shoal_runtime::certificates::{self, control_files};
use shoal_runtime::clock;
use shoal_runtime::failure::Failure;

/// Maximum time to read the files at the start. Busy disks may take long; service managers give a minute and a half.
const READ_TIME_MAX: Duration = Duration::from_secs(60);

/// The keys that name the files.
const OF_CLIENTS: &str = "tls.certificates and tls.keys";
const OF_CONTROL: &str = "control.certificate and control.private_key";

#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    server: Server,
    files: fn(&Config) -> Vec<CertificateFiles>,
}

impl Certificates {
    /// Reads the certificates of the listeners for clients, if any listener needs them. The error says which file is
    /// unusable, and why.
    pub(crate) async fn load(config: &Config) -> Result<Option<Self>, Failure> {
        if config.tls.listen.is_empty() {
            return Ok(None);
        }
        let challenges = config.has_acme().then(Arc::<Challenges>::default);
        Self::read(config, files, challenges, OF_CLIENTS).await.map(Some)
    }

    /// Reads the certificate of the control listener, if it has one. The error says which file is unusable, and why.
    pub(crate) async fn load_control(config: &Config) -> Result<Option<Self>, Failure> {
        if config.control.certificate.is_none() || config.control.listen.is_none() {
            return Ok(None);
        }
        Self::read(config, control_files, None, OF_CONTROL).await.map(Some)
    }

    /// Reads both kinds of files, to check them.
    ///
    /// # Errors
    /// Returns the keys that name the unusable file, and the reason.
    pub(crate) fn check(config: &Config) -> Result<(), Failure> {
        for (files, keys) in [(files(config), OF_CLIENTS), (control_files(config), OF_CONTROL)] {
            if !files.is_empty() {
                Server::load(&files).map_err(|error| unusable(keys, &error))?;
            }
        }
        Ok(())
    }

    async fn read(
        config: &Config,
        files: fn(&Config) -> Vec<CertificateFiles>,
        challenges: Option<Arc<Challenges>>,
        keys: &str,
    ) -> Result<Self, Failure> {
        let named = files(config);
        let load = move || match challenges {
            Some(challenges) => Server::load_for_acme(&named, challenges),
            None => Server::load(&named),
        };
        let read = move || load().map(|server| Self { server, files });
        let read = tokio::time::timeout(READ_TIME_MAX, tokio::task::spawn_blocking(read)).await;
        let Ok(read) = read else {
            let limit_s = READ_TIME_MAX.as_secs();
            return Err(Failure::Configuration(format!(
                "the files in {keys} could not be read within {limit_s} s: is their file system \
                 available?"
            )));
        };
        let loaded = read.context("the thread that reads certificates has failed")?;
        let loaded = loaded.map_err(|error| unusable(keys, &error))?;
        show(&loaded.server);
        Ok(loaded)
    }

    pub(crate) fn server(&self) -> Server {
        self.server.clone()
    }

    /// Reads the files that `config` names. If they are unusable, open connections continue, and new ones get the old
    /// certificates. So does an issued certificate in use whose file cannot be used any more.
    pub(crate) fn reload(&self, config: &Config) -> Result<(), CertificateError> {
        let files = (self.files)(config);
        if self.loses_issued(config, &files) {
            // The reload goes on otherwise, and the task that replaces the file looks at it.
            tracing::error!("the certificates stay as they were, because the issued one cannot be used");
            return Ok(());
        }
        self.server.reload(&files)?;
        tracing::info!(certificates = files.len(), "the certificates were read again");
        show(&self.server);
        Ok(())
    }

    /// Returns whether the issued certificate is in use and its file exists, but is not among these files.
    fn loses_issued(&self, config: &Config, files: &[CertificateFiles]) -> bool {
        certificates::issued_file(config).is_some_and(|file| {
            let is_served = self.server.certificates().iter().any(|certificate| certificate.file == file);
            is_served && file.exists() && files.iter().all(|files| files.chain != file)
        })
    }
}

fn unusable(keys: &str, error: &CertificateError) -> Failure {
    Failure::Configuration(format!("{keys}: {error}"))
}

/// Logs the certificates, and warns about certificates that clients refuse because of their dates.
fn show(server: &Server) {
    let now_s = clock::unix_s();
    for certificate in server.certificates() {
        let (file, names) = (certificate.file.display(), certificate.names.join(" "));
        tracing::info!(%file, names, days_left = certificates::days_left(&certificate, now_s), "certificate");
        if let Some(fault) = certificates::fault(&certificate, now_s, certificates::RENEW) {
            tracing::warn!(%file, "{fault}");
        }
    }
}

/// Returns the files of the listeners for clients: those that the configuration names, and the one that was issued.
fn files(config: &Config) -> Vec<CertificateFiles> {
    certificates::files(config).into_iter().chain(acme::certificate(config)).collect()
}
