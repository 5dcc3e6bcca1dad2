//! The certificates of the TLS listeners and of the control listener. They are read at the start and on each reload.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shoal_config::Config;
use shoal_session::Challenges;
use shoal_session::tls::{Certificate, CertificateError, CertificateFiles, Server};

use crate::acme;
use shoal_runtime::clock;
use shoal_runtime::failure::Failure;

const DAY_S: u64 = 86_400;

/// With less time left, a renewal is overdue: certificate authorities advise renewal a month before the end. Of a certificate
/// with a short life, it is a quarter of the life.
const LEFT_S_MIN: u64 = 14 * DAY_S;

/// Maximum time to read the files at the start.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

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
    /// certificates.
    pub(crate) fn reload(&self, config: &Config) -> Result<(), CertificateError> {
        let files = (self.files)(config);
        self.server.reload(&files)?;
        tracing::info!(certificates = files.len(), "the certificates were read again");
        show(&self.server);
        Ok(())
    }
}

fn unusable(keys: &str, error: &CertificateError) -> Failure {
    Failure::Configuration(format!("{keys}: {error}"))
}

/// Logs the certificates, and warns about certificates that clients refuse because of their dates.
fn show(server: &Server) {
    let now_s = clock::unix_s();
    for Certificate { file, names, not_before_unix_s, not_after_unix_s } in server.certificates() {
        let (file, names) = (file.display(), names.join(" "));
        let days_left = not_after_unix_s.map(|end_s| end_s.saturating_sub(now_s) / DAY_S);
        tracing::info!(%file, names, days_left, "certificate");
        if not_before_unix_s.is_some_and(|begin_s| now_s < begin_s) {
            tracing::warn!(%file, "this certificate is not valid yet: clients refuse it (is the clock right?)");
        }
        let Some(end_s) = not_after_unix_s else { continue };
        let overdue_s = LEFT_S_MIN.min(end_s.saturating_sub(not_before_unix_s.unwrap_or(0)) / 4);
        match end_s.checked_sub(now_s) {
            None => {
                tracing::warn!(%file, "this certificate has expired: clients refuse it; renew it and send SIGHUP");
            }
            Some(left_s) if left_s < overdue_s => {
                tracing::warn!(%file, days_left, "this certificate expires soon; renew it and send SIGHUP");
            }
            _ => {}
        }
    }
}

fn files(config: &Config) -> Vec<CertificateFiles> {
    let keys = config.tls.keys.iter().map(|key| Some(key.clone())).chain(std::iter::repeat(None));
    let file = |(chain, key): (&PathBuf, Option<PathBuf>)| CertificateFiles { chain: chain.clone(), key };
    config.tls.certificates.iter().zip(keys).map(file).chain(acme::certificate(config)).collect()
}

fn control_files(config: &Config) -> Vec<CertificateFiles> {
    let key = config.control.private_key.clone();
    config
        .control
        .certificate
        .iter()
        .map(|chain| CertificateFiles { chain: chain.clone(), key: key.clone() })
        .collect()
}
