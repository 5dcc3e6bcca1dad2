//! The certificate that the tracker obtains and renews by itself (ACME, RFC 8555).
//!
//! One task of the control plane ([`Renewal`]) owns the account, the order in progress and the file of the certificate.
//! It must not delay a request: workers only look up challenges, and get a new certificate as after a reload. A new
//! process of an upgrade begins its task once the old one has let go, so there is one at a time.
//!
//! Whatever fails, the certificate in use stays in use. An issued certificate that cannot be written is kept in memory
//! until it can be, because certificate authorities limit how many they issue. An end of the process or an upgrade before
//! that loses it.
//!
//! | File of the state | Contents |
//! |---|---|
//! | `acme-account` | the account with its key, for the owner only |
//! | `acme.pem` | the certificate with its chain and its key, for the owner only |

mod account;
mod authority;
mod fault;
mod issued;
mod order;
mod schedule;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{Account, ChallengeType, RevocationRequest};
use shoal_base::transport::stream::ListenAddress;
use shoal_config::{Config, HostName, Listen};
use shoal_runtime::certificates::{self, issued_file};
use shoal_runtime::clock;
use shoal_runtime::failure::Failure;
use shoal_runtime::live::Live;
use shoal_runtime::published::Published;
use shoal_runtime::state_directory::ACME_ACCOUNT;
use shoal_session::Challenges;
use shoal_session::tls::CertificateFiles;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::authority::RetryAfter;
use self::fault::Fault;
use self::issued::Issued;
use crate::certificates::Certificates;

/// The port to which certificate authorities connect for TLS-ALPN-01 (RFC 8737, 3).
const TLS_PORT: u16 = 443;

/// The port to which they connect for HTTP-01 (RFC 8555, 8.3).
const HTTP_PORT: u16 = 80;

/// How often a new node of a cluster looks for the account of the other nodes.
const CLUSTER_LOOKS: Range<u32> = 10..50;
const CLUSTER_LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long the other nodes may take to learn of a new account.
const CLUSTER_PAUSE: Duration = Duration::from_secs(3);

/// The pause before an attempt that will probably succeed at once: with another nonce, or a new account.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const FAILURES_IN_A_ROW_MAX: u32 = 5;

/// The pause after a panic, which the next attempt will probably repeat.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(3600);

/// Returns the issued certificate for the listeners, if there is a usable one.
pub(crate) fn certificate(config: &Config) -> Option<CertificateFiles> {
    issued::files(&issued_file(config)?)
}

/// Checks the files that the configuration names. The error names the key.
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    let key = config.acme.external_account_key_file.as_ref();
    key.map_or(Ok(()), |file| account::read_key(file).map(drop).map_err(Failure::Configuration))
}

/// Returns the file of the account, which is beside the certificate.
fn account_file(config: &Config) -> Option<PathBuf> {
    issued_file(config).map(|file| file.with_file_name(ACME_ACCOUNT))
}

/// The task that obtains and renews the certificate.
#[derive(Clone)]
pub(crate) struct Renewal {
    /// The configuration of the start: a change of the keys of ACME takes a new process.
    config: Config,
    certificates: Certificates,
    challenges: Arc<Challenges>,
    live: Arc<Published<Live>>,
    account_file: PathBuf,
    certificate_file: PathBuf,
    /// The possible kinds of challenges. The first is the one that is tried first.
    kinds: Vec<ChallengeType>,
    /// A certificate that could not be written yet.
    unwritten: Option<String>,
    failures: u32,
}

/// The subject of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    First,
    /// The certificate is not the configured one, or it is revoked.
    Another,
    Renewal,
}

impl Renewal {
    /// Returns the task of a tracker that obtains its certificate.
    pub(crate) fn new(
        config: &Config,
        certificates: Option<&Certificates>,
        live: &Arc<Published<Live>>,
    ) -> Option<Self> {
        let certificates = certificates?.clone();
        Some(Self {
            challenges: Arc::clone(certificates.server().challenges()?),
            certificates,
            live: Arc::clone(live),
            account_file: account_file(config)?,
            certificate_file: issued_file(config)?,
            kinds: kinds(config),
            unwritten: None,
            failures: 0,
            config: config.clone(),
        })
    }

    /// Runs until it is aborted. `wake` makes it look again at once, as an operator asks by a reload, or as soon as the
    /// certificate authority permits. A panic ends one attempt: the tracker serves on, and without this task the
    /// certificate would expire.
    pub(crate) async fn run(self, wake: Arc<Notify>) {
        loop {
            // Dropping the set ends the task.
            let mut task = JoinSet::new();
            task.spawn(self.clone().renew(Arc::clone(&wake)));
            if let Some(Err(error)) = task.join_next().await {
                tracing::error!(%error, pause_s = PAUSE_AFTER_PANIC.as_secs(), "the task of acme.domains has failed");
            }
            tokio::time::sleep(PAUSE_AFTER_PANIC).await;
        }
    }

    async fn renew(mut self, wake: Arc<Notify>) {
        loop {
            let retry_after = RetryAfter::default();
            let pause = match self.attempt(&retry_after).await {
                Ok(pause) => {
                    self.failures = 0;
                    pause
                }
                Err(fault) => self.failed(&fault, retry_after.duration()).await,
            };
            let earliest = Instant::now() + schedule::obeyed(retry_after.duration());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = wake.notified() => tokio::time::sleep_until(earliest).await,
            }
        }
    }

    /// Obtains a certificate if one is due. Returns the time until the next look.
    async fn attempt(&mut self, retry_after: &RetryAfter) -> Result<Duration, Fault> {
        if let Some(pem) = self.unwritten.take() {
            return self.install(pem).await;
        }
        let issued = self.read().await?;
        if let Some(issued) = &issued {
            self.serve(issued)?;
        }
        let (purpose, account) = match &issued {
            None => (Purpose::First, None),
            Some(issued) if !issued.is_from(&self.config.acme) || !issued.has_names(self.domains()) => {
                (Purpose::Another, None)
            }
            Some(issued) => {
                let account = self.account(retry_after).await;
                let (window, look) = match &account {
                    Ok(account) => window(account, issued).await,
                    Err(_) => (None, None),
                };
                let due_s = schedule::due_unix_s(&issued.certificate, window, issued.share());
                let due_in_s = due_s.saturating_sub(clock::unix_s());
                if due_in_s > 0 {
                    if let Err(fault) = account {
                        tracing::warn!(reason = %fault, "the certificate authority was not asked when to renew");
                    }
                    return Ok(schedule::look_in(due_in_s, look));
                }
                (Purpose::Renewal, Some(account?))
            }
        };
        self.announce(purpose);
        let account = match account {
            Some(account) => account,
            None => self.account(retry_after).await?,
        };
        let pem = self.obtain(&account, issued.as_ref()).await?;
        self.install(pem).await
    }

    fn domains(&self) -> impl Iterator<Item = &str> {
        self.config.acme.domains.iter().map(HostName::as_str)
    }

    fn announce(&self, purpose: Purpose) {
        let domains = self.domains().collect::<Vec<_>>().join(" ");
        let directory = &self.config.acme.directory;
        match purpose {
            Purpose::First => tracing::info!(
                domains, %directory,
                "ordering the first certificate: until it is issued, HTTPS and WSS fail for these domains, unless \
                 tls.certificates has one for them"
            ),
            Purpose::Another => tracing::info!(
                domains, %directory,
                "ordering another certificate, because acme.* has changed or the certificate was revoked"
            ),
            Purpose::Renewal => tracing::info!(domains, %directory, "renewing the certificate"),
        }
    }

    async fn account(&self, retry_after: &RetryAfter) -> Result<Account, Fault> {
        let open = || account::open(&self.config.acme, &self.account_file, &self.challenges, retry_after);
        if self.has_account().await? {
            return open().await;
        }
        open().await?;
        // Until now another node may have been faster, and then it has the account of all.
        tokio::time::sleep(CLUSTER_PAUSE).await;
        open().await
    }

    /// Returns whether this node need not tell others of a new account. Gives the other nodes of a cluster time to tell theirs.
    async fn has_account(&self) -> Result<bool, Fault> {
        let is_known = || account::is_known(&self.config.acme, &self.account_file, &self.challenges);
        if !self.config.shares_state() || is_known()? {
            return Ok(true);
        }
        // Nodes that start together do not create accounts together.
        let mut looks = fastrand::u32(CLUSTER_LOOKS);
        while !is_known()? && looks > 0 {
            tokio::time::sleep(CLUSTER_LOOK_EVERY).await;
            looks -= 1;
        }
        is_known()
    }

    /// Obtains a certificate by the first kind of challenge that shows this tracker.
    async fn obtain(&mut self, account: &Account, issued: Option<&Issued>) -> Result<String, Fault> {
        let mut reasons = Vec::new();
        for place in 0..self.kinds.len() {
            let kind = self.kinds[place].clone();
            // An order replaces only a certificate with which it shares a name (RFC 9773, 5).
            let replaced = issued.filter(|issued| {
                issued.is_of_directory(&self.config.acme) && issued.has_any_name(self.domains())
            });
            let replaced = replaced.and_then(Issued::identifier);
            match order::obtain(account, &self.config.acme, replaced, &kind, &self.challenges).await {
                Ok(pem) => {
                    // The next renewal begins with what works.
                    self.kinds.swap(0, place);
                    return Ok(pem);
                }
                Err(Fault::NotShown(reason)) => reasons.push(format!("{}: {reason}", name(&kind))),
                Err(fault) if fault.is("accountDoesNotExist") => {
                    account::forget(&self.account_file, &self.challenges);
                    return Err(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::NotShown(reasons.join("; ")))
    }

    /// Writes an issued certificate, and lets clients have it.
    async fn install(&mut self, pem: String) -> Result<Duration, Fault> {
        let (file, content) = (self.certificate_file.clone(), pem.clone());
        let write = tokio::task::spawn_blocking(move || issued::write(&file, &content));
        if let Err(error) = write.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            if error.kind() == io::ErrorKind::InvalidData {
                return Err(Fault::Unusable(error.to_string()));
            }
            self.unwritten = Some(pem);
            return Err(Fault::file(&self.certificate_file, &error));
        }
        let Some(issued) = self.read().await? else {
            return Err(Fault::Unusable("its file has changed".to_owned()));
        };
        self.reload()?;
        if !issued.has_names(self.domains()) {
            // The same order would probably get the same certificate.
            let names = issued.certificate.names.join(" ");
            return Err(Fault::Unusable(format!("it lacks some of acme.domains, and has: {names}")));
        }
        if schedule::due_unix_s(&issued.certificate, None, issued.share()) <= clock::unix_s() {
            return Err(Fault::Unusable(
                "by its dates, its renewal is due already; is the clock right?".to_owned(),
            ));
        }
        tracing::info!(days = days_left(&issued), "a certificate was issued");
        Ok(schedule::look_after_renewal(&issued.certificate))
    }

    /// Lets clients have the certificate of the file, unless they get it already.
    fn serve(&self, issued: &Issued) -> Result<(), Fault> {
        if self.certificates.server().certificates().contains(&issued.certificate) {
            return Ok(());
        }
        self.reload()
    }

    /// A fault in a file of the operator keeps the issued certificate out of service as well, so this is tried again.
    fn reload(&self) -> Result<(), Fault> {
        self.certificates.reload(self.live.latest().policy.config()).map_err(|error| {
            Fault::Configuration(format!(
                "the issued certificate is not in use yet: tls.certificates: {error}"
            ))
        })
    }

    async fn read(&self) -> Result<Option<Issued>, Fault> {
        read(self.certificate_file.clone()).await
    }

    /// Logs a failure, and returns the pause until the next attempt.
    async fn failed(&mut self, fault: &Fault, retry_after: Duration) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let is_over = fault.is("badNonce") || fault.is("accountDoesNotExist");
        let pause = if is_over && self.failures <= FAILURES_IN_A_ROW_MAX {
            PAUSE_MIN
        } else {
            schedule::pause(self.failures, fault.is_refusal(), retry_after, fastrand::f64())
        };
        let next_attempt_s = pause.as_secs();
        match self.read().await.ok().flatten() {
            Some(issued) => tracing::error!(
                reason = %fault, days_left = days_left(&issued), next_attempt_s,
                "the certificate was not renewed; the old one stays in use (SIGHUP tries again at once, unless the \
                 certificate authority has asked to wait)"
            ),
            None => tracing::error!(
                reason = %fault, next_attempt_s,
                "there is no certificate yet: HTTPS and WSS fail for acme.domains, unless tls.certificates has one for \
                 them (SIGHUP tries again at once, unless the certificate authority has asked to wait)"
            ),
        }
        pause
    }
}

/// Reads the certificate on a thread that may wait.
async fn read(file: PathBuf) -> Result<Option<Issued>, Fault> {
    let path = file.clone();
    let read = tokio::task::spawn_blocking(move || Issued::read(&path)).await;
    read.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| Fault::file(&file, &error))
}

/// Returns the window that the issuer suggests for the renewal, and when to ask again. Not every issuer has one.
async fn window(account: &Account, issued: &Issued) -> (Option<Range<u64>>, Option<Duration>) {
    let Some(identifier) = issued.identifier() else { return (None, None) };
    match account.renewal_info(&identifier).await {
        Ok((information, retry_after)) => {
            let window = information.suggested_window;
            let [start, end] =
                [window.start, window.end].map(|time| u64::try_from(time.unix_timestamp()).unwrap_or(0));
            (Some(start..end), Some(retry_after))
        }
        Err(error) => {
            tracing::debug!(%error, "there is no renewal information");
            (None, None)
        }
    }
}

fn days_left(issued: &Issued) -> u64 {
    certificates::days_left(&issued.certificate, clock::unix_s()).unwrap_or(0)
}

/// Returns the kinds of challenges that the listeners can answer: first the one whose port is certainly here.
fn kinds(config: &Config) -> Vec<ChallengeType> {
    let has_port = |listen: &[Listen], port| {
        listen
            .iter()
            .any(|listen| matches!(&listen.address, ListenAddress::Tcp(address) if address.port() == port))
    };
    if config.http.listen.is_empty() {
        return vec![ChallengeType::TlsAlpn01];
    }
    // The certificate authority may reach any node of a cluster, and each can answer HTTP-01.
    let is_http_first = has_port(&config.http.listen, HTTP_PORT) && !has_port(&config.tls.listen, TLS_PORT);
    if config.shares_state() || is_http_first {
        return vec![ChallengeType::Http01, ChallengeType::TlsAlpn01];
    }
    vec![ChallengeType::TlsAlpn01, ChallengeType::Http01]
}

const fn name(kind: &ChallengeType) -> &'static str {
    match kind {
        ChallengeType::Http01 => "HTTP-01",
        _ => "TLS-ALPN-01",
    }
}

/// Revokes the certificate of a tracker with this configuration, as its account. Returns a text with the next step.
pub(crate) fn revoke(config: &Config) -> Result<String, Failure> {
    let (Some(account_file), Some(certificate_file)) = (account_file(config), issued_file(config)) else {
        return Err(Failure::Configuration(
            "acme.domains = []: this tracker has no certificate that it has obtained itself".to_owned(),
        ));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Other(error.into()))?;
    let refused = runtime.block_on(revoke_with(config, &account_file, &certificate_file));
    refused.map_err(|fault| Failure::Other(anyhow::anyhow!("the certificate was not revoked: {fault}")))?;
    Ok(format!(
        "revoked: {}\nA running tracker still serves it. Send it SIGHUP: it then obtains a new one, with a new key.\n",
        certificate_file.display()
    ))
}

async fn revoke_with(config: &Config, account_file: &Path, certificate_file: &Path) -> Result<(), Fault> {
    let Some(issued) = read(certificate_file.to_owned()).await? else {
        return Err(Fault::File(format!("{} has no certificate", certificate_file.display())));
    };
    let account = account::open_retained(&config.acme, account_file).await?;
    // A revocation that the tracker does not learn of would leave the certificate in service.
    let marked = issued::open_to_mark(certificate_file);
    let marked = marked.map_err(|error| Fault::file(certificate_file, &error))?;
    account.revoke(&RevocationRequest { certificate: issued.der(), reason: None }).await?;
    issued::mark_revoked(&marked).map_err(|error| Fault::file(certificate_file, &error))
}
