//! Which certificates a configuration names, and what is wrong with their dates.

use std::path::PathBuf;

use shoal_config::Config;
use shoal_session::tls::{Certificate, CertificateFiles};

use crate::state_directory::ACME_CERTIFICATE;

const DAY_S: u64 = 86_400;

/// The remedy for a certificate of which only the file is known.
pub const RENEW: &str = "renew it and send SIGHUP, unless acme.domains does so";

/// With less time left, a renewal is overdue: certificate authorities advise renewal a month before the end. Of a
/// certificate with a short life, it is a quarter of the life.
const LEFT_S_MIN: u64 = 14 * DAY_S;

/// Returns the files of the listeners for clients.
pub fn files(config: &Config) -> Vec<CertificateFiles> {
    let keys = config.tls.keys.iter().map(|key| Some(key.clone())).chain(std::iter::repeat(None));
    let file = |(chain, key): (&PathBuf, Option<PathBuf>)| CertificateFiles { chain: chain.clone(), key };
    config.tls.certificates.iter().zip(keys).map(file).collect()
}

/// Returns the file of the certificate that the tracker obtains by itself, with its key.
pub fn issued_file(config: &Config) -> Option<PathBuf> {
    config.state.path.as_ref().filter(|_| config.has_acme()).map(|directory| directory.join(ACME_CERTIFICATE))
}

/// Returns the files of the control listener.
pub fn control_files(config: &Config) -> Vec<CertificateFiles> {
    let key = config.control.private_key.clone();
    config
        .control
        .certificate
        .iter()
        .map(|chain| CertificateFiles { chain: chain.clone(), key: key.clone() })
        .collect()
}

/// Returns the whole days until a certificate ends, if it tells.
pub fn days_left(certificate: &Certificate, now_s: u64) -> Option<u64> {
    certificate.not_after_unix_s.map(|end_s| end_s.saturating_sub(now_s) / DAY_S)
}

/// Returns whether clients refuse a certificate now because of its dates.
pub fn is_refused(certificate: &Certificate, now_s: u64) -> bool {
    certificate.not_before_unix_s.is_some_and(|begin_s| now_s < begin_s)
        || certificate.not_after_unix_s.is_some_and(|end_s| end_s < now_s)
}

/// Returns what is wrong with the dates of a certificate, and what to do about it: `remedy`, unless the clock is wrong.
pub fn fault(certificate: &Certificate, now_s: u64, remedy: &str) -> Option<String> {
    if certificate.not_before_unix_s.is_some_and(|begin_s| now_s < begin_s) {
        return Some("this certificate is not valid yet: clients refuse it (is the clock right?)".to_owned());
    }
    if certificate.not_after_unix_s.is_some_and(|end_s| end_s < now_s) {
        return Some(format!("this certificate has expired: clients refuse it; {remedy}"));
    }
    let end_s = certificate.not_after_unix_s?;
    let life_s = end_s.saturating_sub(certificate.not_before_unix_s.unwrap_or(0));
    if end_s - now_s >= LEFT_S_MIN.min(life_s / 4) {
        return None;
    }
    let days_left = (end_s - now_s) / DAY_S;
    Some(format!("this certificate expires soon (days left: {days_left}); {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_clients_refuse_are_told_and_so_is_an_end_that_is_near() {
        let certificate = |begin_s, end_s| Certificate {
            file: PathBuf::from("a.pem"),
            names: Vec::new(),
            not_before_unix_s: Some(begin_s),
            not_after_unix_s: Some(end_s),
        };
        let now_s = 100 * DAY_S;
        for (begin_s, end_s, expected, is_refused_now) in [
            (0, 200 * DAY_S, None, false),
            (now_s + 1, 200 * DAY_S, Some("not valid yet"), true),
            (0, now_s - 1, Some("has expired"), true),
            (0, now_s + 13 * DAY_S, Some("days left: 13"), false),
            (now_s - 3 * DAY_S, now_s + 3 * DAY_S, None, false),
            (now_s - 5 * DAY_S, now_s + DAY_S, Some("days left: 1)"), false),
        ] {
            let certificate = certificate(begin_s, end_s);
            let fault = fault(&certificate, now_s, RENEW);
            assert_eq!(fault.is_some(), expected.is_some(), "{fault:?}");
            assert!(expected.is_none_or(|expected| fault.unwrap().contains(expected)));
            assert_eq!(is_refused(&certificate, now_s), is_refused_now);
        }
    }
}
