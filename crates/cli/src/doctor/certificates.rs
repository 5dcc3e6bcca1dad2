//! The certificates: whether they can be read, for which names they are, and how long they last.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;

use shoal_config::Config;
use shoal_session::tls::{CertificateFiles, Server};

use super::machine::Machine;
use crate::finding::Finding;
use shoal_runtime::certificates;

const SUBJECT: &str = "certificates";

/// How to mend files that cannot be used.
const MEND: &str =
    "mend the file, or change tls.certificates and tls.keys, or control.certificate and control.private_key";

/// Instead of both remedies for the certificate that the tracker obtains by itself.
const SHOW_LOG: &str = "`journalctl -u shoal` tells why the tracker has not renewed it";

pub(super) fn examine(machine: &Machine, config: &Config) -> Vec<Finding> {
    let of_clients = (!config.tls.listen.is_empty()).then(|| certificates::files(config));
    let of_control = config.control.listen.map(|_| certificates::control_files(config));
    let all = of_clients.into_iter().chain(of_control).flatten();
    let mut findings: Vec<Finding> =
        all.flat_map(|files| of_files(machine, &files, MEND, certificates::RENEW)).collect();
    if let Some(file) = certificates::issued_file(config) {
        findings.extend(of_issued(machine, file));
    }
    findings
}

/// Looks at the certificate that the tracker obtains by itself.
fn of_issued(machine: &Machine, file: PathBuf) -> Vec<Finding> {
    match File::open(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let found = format!("{} does not exist: no certificate was obtained yet", file.display());
            vec![Finding::advice(SUBJECT, found, "`journalctl -u shoal` tells why")]
        }
        _ => of_files(machine, &CertificateFiles { chain: file, key: None }, SHOW_LOG, SHOW_LOG),
    }
}

/// Looks at a certificate. It comes with the remedies for files that cannot be used, and for dates.
fn of_files(machine: &Machine, files: &CertificateFiles, mend: &str, renew: &str) -> Vec<Finding> {
    let shown = files.chain.display();
    let unreadable = [Some(&files.chain), files.key.as_ref()]
        .into_iter()
        .flatten()
        .find(|file| File::open(file).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied));
    if let Some(file) = unreadable.filter(|_| !machine.is_root) {
        let found = format!("{} cannot be read by this user", file.display());
        return vec![Finding::advice(SUBJECT, found, "sudo shoal doctor")];
    }
    let server = match Server::load(std::slice::from_ref(files)) {
        Ok(server) => server,
        Err(error) => return vec![Finding::problem(SUBJECT, error.to_string(), mend)],
    };
    let length = std::fs::read_to_string(&files.chain)
        .map_or(0, |text| text.matches("-----BEGIN CERTIFICATE-----").count());
    let judge = |certificate: shoal_session::tls::Certificate| {
        let names = certificate.names.join(", ");
        let end = certificates::days_left(&certificate, machine.now_unix_s);
        let days = end.map_or_else(String::new, |days| format!(", {days} days left"));
        let chain = match length {
            1 => "alone, without the certificate of its issuer".to_owned(),
            _ => format!("in a chain of {length}"),
        };
        let found = format!("{shown}: {names}; {chain}{days}");
        match certificates::fault(&certificate, machine.now_unix_s, renew) {
            None => Finding::ok(SUBJECT, found),
            Some(fault) if certificates::is_refused(&certificate, machine.now_unix_s) => {
                Finding::problem(SUBJECT, found, fault)
            }
            Some(fault) => Finding::advice(SUBJECT, found, fault),
        }
    };
    server.certificates().into_iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::machine::tests::{MadeUp, config, made_up};
    use super::*;
    use crate::finding::Level;

    #[test]
    fn certificates_are_told_with_their_names_and_days() {
        let mut made: MadeUp = made_up(&[]);
        let made_at = SystemTime::UNIX_EPOCH + Duration::from_secs(made.machine.now_unix_s);
        let own =
            shoal_session::tls::self_signed_for_a_year(&["tracker.example".to_owned()], made_at).unwrap();
        made.write("cert.pem", &own.certificate_pem);
        made.write("key.pem", &own.key_pem);
        let path = |name: &str| made.folder.path().join(name).display().to_string();
        let (certificate, key) = (path("cert.pem"), path("key.pem"));
        let config = config(&[
            ("SHOAL_TLS_LISTEN", "127.0.0.1:443"),
            ("SHOAL_TLS_CERTIFICATES", &certificate),
            ("SHOAL_TLS_KEYS", &key),
        ]);
        let day_s = 86_400;
        for (days, level, expected) in [
            (1, Level::Ok, "tracker.example"),
            (360, Level::Advice, "alone"),
            (400, Level::Problem, "0 days"),
        ] {
            made.machine.now_unix_s = 1_800_000_000 + days * day_s;
            let [finding] = examine(&made.machine, &config).try_into().unwrap();
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.found.contains(expected), "{finding:?}");
        }
        made.write("key.pem", "nonsense");
        let [finding] = examine(&made.machine, &config).try_into().unwrap();
        assert!(finding.level == Level::Problem && finding.found.contains("key.pem"), "{finding:?}");
    }

    #[test]
    fn the_certificate_that_the_tracker_obtains_is_told() {
        let mut made: MadeUp = made_up(&[]);
        let state = made.folder.path().display().to_string();
        let config = config(&[("SHOAL_ACME_DOMAINS", "tracker.example"), ("SHOAL_STATE_PATH", &state)]);
        let [missing] = examine(&made.machine, &config).try_into().unwrap();
        assert!(missing.level == Level::Advice && missing.found.contains("acme.pem does not exist"));
        let made_at = SystemTime::UNIX_EPOCH + Duration::from_secs(made.machine.now_unix_s);
        let own =
            shoal_session::tls::self_signed_for_a_year(&["tracker.example".to_owned()], made_at).unwrap();
        made.write("acme.pem", &format!("{}{}", own.certificate_pem, own.key_pem));
        made.machine.now_unix_s += 400 * 86_400;
        let [expired] = examine(&made.machine, &config).try_into().unwrap();
        let action = expired.action.unwrap();
        assert!(action.contains("has expired") && action.ends_with(SHOW_LOG), "{action}");
    }
}
