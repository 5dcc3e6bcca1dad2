//! The account at the certificate authority, which is retained with its key in a file of the state.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::{Account, AccountBuilder, AccountCredentials, ExternalAccountKey, NewAccount};
use serde_json::Value;
use shoal_config::AcmeConfig;
use shoal_runtime::state_directory::replace;
use shoal_session::{AcmeAccount, Challenges};

use super::authority::{Client, RetryAfter};
use super::fault::Fault;

/// Maximum size of the files of the account and of the external account.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// Opens the account that the nodes of a cluster share, or else the account of the file, or else creates one. From then on
/// its challenges are answered.
pub(super) async fn open(
    config: &AcmeConfig,
    file: &Path,
    challenges: &Challenges,
    retry_after: &RetryAfter,
) -> Result<Account, Fault> {
    let builder = builder(retry_after);
    let retained = read(file)?;
    let shared = challenges.account();
    let texts = shared.iter().map(|account| account.credentials.clone()).chain(retained.clone());
    let (text, account) = match known(config, texts) {
        Some((text, credentials)) => (text, builder.from_credentials(credentials).await?),
        None => {
            let (account, credentials) = create(config, builder).await?;
            let text =
                serde_json::to_string(&credentials).map_err(|error| Fault::file(file, &error.into()))?;
            (text, account)
        }
    };
    if retained.as_ref() != Some(&text) {
        let write = replace(file, |mut new| new.write_all(text.as_bytes()).map(|()| (new, ())));
        write.map_err(|error| Fault::file(file, &error))?;
    }
    // The account of a faster node may have arrived meanwhile, and the next attempt has it.
    if challenges.account() == shared {
        let thumbprint = account.key_thumbprint().to_owned();
        challenges.set_account(Some(AcmeAccount { credentials: text, thumbprint }));
    }
    Ok(account)
}

/// Opens the account of the file. Creates none, and writes nothing: another user than that of the tracker may ask.
pub(super) async fn open_retained(config: &AcmeConfig, file: &Path) -> Result<Account, Fault> {
    let Some((_, credentials)) = known(config, read(file)?.into_iter()) else {
        let (file, directory) = (file.display(), &config.directory);
        return Err(Fault::File(format!("{file} has no account of acme.directory = {directory}")));
    };
    Ok(builder(&RetryAfter::default()).from_credentials(credentials).await?)
}

fn builder(retry_after: &RetryAfter) -> AccountBuilder {
    Account::builder_with_http(Box::new(Client::new(retry_after.clone())))
}

/// Returns whether [`open`] would create no account.
pub(super) fn is_known(config: &AcmeConfig, file: &Path, challenges: &Challenges) -> Result<bool, Fault> {
    let shared = challenges.account().map(|account| account.credentials);
    Ok(known(config, shared.into_iter().chain(read(file)?)).is_some())
}

/// Returns the first of these accounts that is one for the configured certificate authority.
fn known(
    config: &AcmeConfig,
    mut texts: impl Iterator<Item = String>,
) -> Option<(String, AccountCredentials)> {
    texts.find_map(|text| credentials(config, &text).map(|credentials| (text, credentials)))
}

async fn create(
    config: &AcmeConfig,
    builder: AccountBuilder,
) -> Result<(Account, AccountCredentials), Fault> {
    let contact = config.contact.as_ref().map(|contact| format!("mailto:{}", contact.as_str()));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let external = external_key(config)?;
    let (account, credentials) = builder.create(&new, directory(config), external.as_ref()).await?;
    // The URL may contain secrets, which this form omits.
    tracing::info!(directory = %config.directory, account = account.id(), "there is an account at the certificate authority now");
    Ok((account, credentials))
}

/// Forgets an account that the certificate authority does not know any more.
pub(super) fn forget(file: &Path, challenges: &Challenges) {
    challenges.set_account(None);
    match fs::remove_file(file) {
        Ok(()) => {
            tracing::warn!("the certificate authority does not know the account; a new one replaces it")
        }
        Err(error) => tracing::error!(file = %file.display(), %error, "cannot remove the account"),
    }
}

fn read(file: &Path) -> Result<Option<String>, Fault> {
    match shoal_base::file::read_text(file, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| Fault::file(file, &error)),
    }
}

/// Returns the account of a text, if it has one for this certificate authority. A damaged text has none.
fn credentials(config: &AcmeConfig, text: &str) -> Option<AccountCredentials> {
    let value: Value = serde_json::from_str(text).ok()?;
    let is_of_directory = value["directory"] == directory(config);
    is_of_directory.then(|| serde_json::from_value(value).ok()).flatten()
}

fn directory(config: &AcmeConfig) -> String {
    config.directory.uri().to_string()
}

/// Returns the key of the external account, if there is one.
fn external_key(config: &AcmeConfig) -> Result<Option<ExternalAccountKey>, Fault> {
    let (Some(id), Some(file)) = (&config.external_account, &config.external_account_key_file) else {
        return Ok(None);
    };
    let key = read_key(file).map_err(Fault::Configuration)?;
    Ok(Some(ExternalAccountKey::new(id.as_str().to_owned(), &key)))
}

/// Reads the key of the external account, to check it as well. The error names the key of the configuration.
pub(super) fn read_key(file: &Path) -> Result<Vec<u8>, String> {
    let fault = |fault: &str| format!("acme.external_account_key_file = {file:?}: {fault}");
    let text = shoal_base::file::read_text(file, FILE_BYTES_MAX);
    let text = text.map_err(|error| fault(&format!("it cannot be read: {error}")))?;
    let line = text.lines().next().unwrap_or_default().trim().trim_end_matches('=');
    let key = URL_SAFE_NO_PAD.decode(line).ok().filter(|key| !key.is_empty());
    key.ok_or_else(|| {
        fault("its first line must be the key in base64url, as the certificate authority gives it")
    })
}
