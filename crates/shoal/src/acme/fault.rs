//! Why there is no new certificate, in the words of an operator.

use core::fmt;
use std::io;
use std::path::Path;

use instant_acme::{Error, Problem};

use super::authority;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The certificate authority was not reached, or did not answer as one.
    Away(String),
    /// The certificate authority refused a request.
    Refused(Problem),
    /// The certificate authority did not find this tracker behind a domain.
    NotShown(String),
    /// The certificate authority issued a certificate that is of no use.
    Unusable(String),
    /// A file could not be read or written.
    File(String),
    /// A key of the configuration has to change.
    Configuration(String),
}

impl Fault {
    /// Returns the fault of a file.
    pub(super) fn file(file: &Path, error: &io::Error) -> Self {
        Self::File(format!("{}: {error}", file.display()))
    }

    /// Returns whether the same request would probably fail again soon.
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NotShown(_) | Self::Unusable(_) | Self::Configuration(_))
    }

    /// Returns whether the certificate authority refused with an error of this name (RFC 8555, 6.7).
    pub(super) fn is(&self, name: &str) -> bool {
        matches!(self, Self::Refused(problem) if kind(problem) == name)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        if let Some(reason) = authority::request_fault(&error) {
            return Self::Away(reason);
        }
        match error {
            Error::Api(problem) => Self::Refused(problem),
            Error::Json(_) => Self::Away(
                "its answers are not ACME; acme.directory must be the URL of a directory".to_owned(),
            ),
            other => Self::Away(other.to_string()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(reason) => write!(f, "the certificate authority cannot be used: {reason}"),
            Self::Refused(problem) => {
                write!(f, "the certificate authority refuses: {}", text(problem))?;
                advice(kind(problem)).map_or(Ok(()), |advice| write!(f, "; {advice}"))
            }
            Self::NotShown(reason) => write!(
                f,
                "the certificate authority does not find this tracker: {reason}; each of acme.domains must lead to this host, \
                 and port 443 to tls.listen or port 80 to http.listen"
            ),
            Self::Unusable(reason) => {
                write!(f, "the certificate authority has issued a certificate that cannot be used: {reason}")
            }
            Self::File(reason) => write!(f, "the state cannot be used: {reason}"),
            Self::Configuration(reason) => f.write_str(reason),
        }
    }
}

/// Returns the name of an error.
pub(super) fn kind(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.rsplit(':').next().unwrap_or_default()
}

/// Returns the text of an error, with the texts about single domains.
pub(super) fn text(problem: &Problem) -> String {
    let of_domains = problem.subproblems.iter().map(|problem| problem.to_string());
    let detail = problem.detail.clone().unwrap_or_default();
    let texts: Vec<String> =
        std::iter::once(detail).chain(of_domains).filter(|text| !text.is_empty()).collect();
    let kind = kind(problem);
    // The text comes from another host.
    let texts: String = texts.join(", ").chars().filter(|character| !character.is_control()).collect();
    if texts.is_empty() { kind.to_owned() } else { format!("{texts} ({kind})") }
}

/// Returns what an operator can do about an error.
fn advice(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "rateLimited" => "it asks to wait; for trials, acme.directory can name its staging directory",
        "externalAccountRequired" => "set acme.external_account and acme.external_account_key_file",
        "invalidContact" | "unsupportedContact" => "acme.contact must be an e-mail address that it accepts",
        "rejectedIdentifier" | "unsupportedIdentifier" => {
            "acme.domains must be public host names that it issues certificates for"
        }
        "caa" => "the CAA record of the domain must permit this certificate authority",
        "invalidProfile" => "acme.profile must be one of its profiles, or \"\"",
        _ => return None,
    })
}
