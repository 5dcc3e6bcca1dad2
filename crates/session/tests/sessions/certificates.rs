//! Certificates: formats of keys, errors for bad files, selection by name, and reload.

use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use pem::Pem;
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::CertificateDer;
use shoal_session::tls::{CertificateError, CertificateFiles, SelfSignedError, Server, Session};

use crate::identity::{Folder, Identity, Kind};
use crate::peer::{Client, TLS_1_2, TLS_1_3, open, transfer, trusting, with_provider};

const NAME: &str = "tracker.example";

/// Names a single file with certificate and key.
fn one_file(chain: PathBuf) -> CertificateFiles {
    CertificateFiles { chain, key: None }
}

fn two_files(chain: PathBuf, key: PathBuf) -> CertificateFiles {
    CertificateFiles { chain, key: Some(key) }
}

/// Returns the error for these files.
fn refusal(files: CertificateFiles) -> CertificateError {
    Server::load(&[files]).unwrap_err()
}

/// Returns the certificate for a client that requests a name.
fn presented(server: &Server, name: &str, roots: &[&Identity]) -> CertificateDer<'static> {
    let roots: Vec<_> = roots.iter().map(|root| &root.der).collect();
    let mut client = Client::new(&Arc::new(trusting(&roots, TLS_1_3)), name);
    transfer(&mut Session::new(server), &mut client);
    client.0.peer_certificates().unwrap()[0].clone()
}

#[test]
fn keys_in_every_form() {
    let folder = Folder::new();
    // `openssl ecparam -genkey` writes the curve in a section of its own in front of the key; prime256v1 here.
    let parameters = pem::encode(&Pem::new("EC PARAMETERS", [6, 8, 42, 134, 72, 206, 61, 3, 1, 7]));
    for kind in Kind::ALL {
        let identity = Identity::new(kind, &[NAME]);
        let old = match kind {
            Kind::P256 => Some(format!("{parameters}{}", identity.old_key_pem("EC PRIVATE KEY"))),
            Kind::P384 => Some(identity.old_key_pem("EC PRIVATE KEY")),
            Kind::Rsa => Some(identity.old_key_pem("RSA PRIVATE KEY")),
            Kind::Ed25519 => None,
        };
        for key in [Some(identity.key_pem()), old].into_iter().flatten() {
            let certificate = &identity.certificate_pem;
            let apart = two_files(folder.write("chain", certificate), folder.write("key", &key));
            let together = one_file(folder.write("both", format!("{certificate}{key}")));
            let reversed = one_file(folder.write("reversed", format!("{key}{certificate}")));
            let comments =
                one_file(folder.write("comments", format!("subject=x\r\n\r\n{certificate}\n{key}")));
            for files in [apart, together, reversed, comments] {
                let server = Server::load(&[files]).unwrap();
                assert_eq!(presented(&server, NAME, &[&identity]), identity.der, "{kind:?}");
            }
        }
    }
}

#[test]
fn a_certificate_is_described() {
    let folder = Folder::new();
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let names = ["Tracker.Example", "*.tracker.example", "192.0.2.7", "2001:db8::7"].map(str::to_owned);
    let trial = shoal_session::tls::self_signed_for_a_year(&names, now).unwrap();
    let file = folder.write("both.pem", trial.certificate_pem + &trial.key_pem);
    let server = Server::load(&[one_file(file.clone())]).unwrap();
    let [certificate] = &server.certificates()[..] else { panic!("one certificate") };
    assert_eq!(certificate.file, file);
    assert_eq!(certificate.names, ["tracker.example", "*.tracker.example"]);
    assert_eq!(certificate.not_before_unix_s, Some(1_800_000_000));
    assert_eq!(certificate.not_after_unix_s, Some(1_800_000_000 + 365 * 86_400));
}

#[test]
fn self_signed_certificates_are_valid_for_their_names() {
    let folder = Folder::new();
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let trial = shoal_session::tls::self_signed(&names).unwrap();
    let der = CertificateDer::from(pem::parse(&trial.certificate_pem).unwrap().into_contents());
    let server =
        Server::load(&[one_file(folder.write("both", trial.certificate_pem + &trial.key_pem))]).unwrap();
    let config = Arc::new(trusting(&[&der], TLS_1_3));
    for name in names {
        let mut client = Client::new(&config, &name);
        transfer(&mut Session::new(&server), &mut client);
        assert!(!client.0.is_handshaking(), "{name}");
    }
    let mut stranger = Client::new(&config, "other.example");
    let (_, _, flight) = open(&mut Session::new(&server), &stranger.sent());
    assert!(matches!(stranger.read(&flight), Err(rustls::Error::InvalidCertificate(_))));
}

#[test]
fn names_that_no_certificate_can_be_for() {
    assert!(matches!(shoal_session::tls::self_signed(&[]), Err(SelfSignedError::NoName)));
    for name in ["", "a b", "müller.example", "http://x", "host:6969", "*.", "a.*.b", "."] {
        let outcome = shoal_session::tls::self_signed(&[name.to_owned()]);
        assert!(
            matches!(&outcome, Err(SelfSignedError::BadName(bad)) if bad == name),
            "{name:?}: {outcome:?}"
        );
    }
}

#[test]
fn bad_files_are_named_with_what_to_do() {
    let folder = Folder::new();
    let identity = Identity::new(Kind::P256, &[NAME]);
    let certificate = folder.write("good.pem", &identity.certificate_pem);
    let key = folder.write("good.key", identity.key_pem());
    let der = folder.write("cert.der", &identity.der);
    let encrypted = pem::encode(&Pem::new("ENCRYPTED PRIVATE KEY", [0; 40]));
    let old_encrypted = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n\
                         -----END RSA PRIVATE KEY-----\n";
    let cut = &identity.certificate_pem[..200];
    let nonsense = pem::encode(&Pem::new("CERTIFICATE", [48, 3, 2, 1, 5]));
    let nonsense_key = pem::encode(&Pem::new("PRIVATE KEY", [48, 3, 2, 1, 5]));
    for (files, expected) in [
        (two_files(folder.path("absent.pem"), key.clone()), "absent.pem cannot be read: No such file"),
        (
            two_files(certificate.clone(), folder.path("absent.key")),
            "absent.key cannot be read: No such file",
        ),
        (two_files("/dev/zero".into(), key.clone()), "/dev/zero is not a regular file"),
        (two_files(certificate.clone(), folder.path(".")), "is not a regular file"),
        (
            two_files(folder.write("large.pem", "x".repeat((1 << 20) + 1)), key.clone()),
            "has more than 1024 KiB",
        ),
        (
            two_files(der.clone(), key.clone()),
            "is not PEM, whose sections begin with -----BEGIN; if it is DER, `openssl x509",
        ),
        (
            two_files(certificate.clone(), der),
            "is not PEM, whose sections begin with -----BEGIN; if it is DER, `openssl pkey",
        ),
        (two_files(folder.write("empty.pem", ""), key.clone()), "empty.pem is not PEM"),
        (two_files(folder.write("cut.pem", cut), key.clone()), "cut.pem is damaged: "),
        (two_files(key.clone(), key.clone()), "there is no certificate in "),
        (two_files(folder.write("nonsense.pem", nonsense), key.clone()), "nonsense.pem cannot be used: "),
        (one_file(certificate.clone()), "there is no private key in "),
        (two_files(certificate.clone(), certificate.clone()), "there is no private key in "),
        (two_files(certificate.clone(), folder.write("secret.key", encrypted)), "secret.key is encrypted"),
        (two_files(certificate.clone(), folder.write("old.key", old_encrypted)), "old.key is encrypted"),
        (two_files(certificate, folder.write("nonsense.key", nonsense_key)), "nonsense.key cannot be used: "),
    ] {
        let shown = format!("{files:?}");
        let message = refusal(files).to_string();
        assert!(message.contains(expected), "{shown}: {message}");
    }
    assert!(matches!(Server::load(&[]), Err(CertificateError::NoneGiven)));
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let folder = Folder::new();
    let (one, other) = (Identity::new(Kind::P256, &[NAME]), Identity::new(Kind::P256, &[NAME]));
    let rsa = Identity::new(Kind::Rsa, &[NAME]);
    let chain = folder.write("one.pem", &one.certificate_pem);
    for stranger in [&other, &rsa] {
        let message =
            refusal(two_files(chain.clone(), folder.write("other.key", stranger.key_pem()))).to_string();
        assert!(message.contains("other.key does not match the first certificate in "), "{message}");
        assert!(message.ends_with("one.pem"), "{message}");
    }
    let wrong_order = folder.write("order.pem", format!("{}{}", other.certificate_pem, one.certificate_pem));
    let message = refusal(two_files(wrong_order, folder.write("one.key", one.key_pem()))).to_string();
    assert!(message.ends_with("the server's own must come first"), "{message}");
}

#[test]
fn a_certificate_is_chosen_by_name() {
    let folder = Folder::new();
    let first = Identity::new(Kind::P256, &["first.example", "default.example"]);
    let second = Identity::new(Kind::P256, &["Second.Example"]);
    let wild = Identity::new(Kind::P256, &["*.wild.example"]);
    let exact = Identity::new(Kind::P256, &["exact.wild.example"]);
    let all = [&first, &second, &wild, &exact];
    let files: Vec<_> =
        all.iter().enumerate().map(|(index, identity)| folder.files(&index.to_string(), identity)).collect();
    let server = Server::load(&files).unwrap();
    for (name, identity) in [
        ("first.example", &first),
        ("second.example", &second),
        ("SECOND.example", &second),
        ("any.wild.example", &wild),
        ("ANY.Wild.Example", &wild),
        ("exact.wild.example", &exact),
    ] {
        assert_eq!(presented(&server, name, &all), identity.der, "{name}");
    }
    // An asterisk stands for exactly one label.
    for name in ["unknown.example", "wild.example", "a.b.wild.example", "192.0.2.1"] {
        let config = trusting(&[], TLS_1_2);
        assert_eq!(shown(&server, config, name, &all), [&first.der], "{name}");
    }
    let mut nameless = trusting(&[], TLS_1_2);
    nameless.enable_sni = false;
    assert_eq!(shown(&server, nameless, "second.example", &all), [&first.der]);
}

/// Returns which of these certificates the server sends to a client; TLS 1.2 does not encrypt them.
fn shown<'i>(
    server: &Server,
    config: ClientConfig,
    name: &str,
    identities: &[&'i Identity],
) -> Vec<&'i CertificateDer<'static>> {
    let mut client = Client::new(&Arc::new(config), name);
    let (outcome, _, flight) = open(&mut Session::new(server), &client.sent());
    outcome.unwrap();
    let is_shown = |der: &[u8]| flight.windows(der.len()).any(|window| window == der);
    identities.iter().map(|identity| &identity.der).filter(|der| is_shown(der)).collect()
}

#[test]
fn rsa_beside_ecdsa_for_clients_that_know_only_one() {
    let folder = Folder::new();
    let default = Identity::new(Kind::P256, &["default.example"]);
    let (ecdsa, rsa) = (Identity::new(Kind::P256, &[NAME]), Identity::new(Kind::Rsa, &[NAME]));
    let all = [&default, &ecdsa, &rsa];
    let files = [folder.files("a", &default), folder.files("b", &ecdsa), folder.files("c", &rsa)];
    let server = Server::load(&files).unwrap();
    let offering = |suite| {
        let provider = CryptoProvider { cipher_suites: vec![suite], ..default_provider() };
        with_provider(provider, &[], TLS_1_2)
    };
    let ecdsa_only = || offering(cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    let rsa_only = || offering(cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
    assert_eq!(shown(&server, trusting(&[], TLS_1_2), NAME, &all), [&ecdsa.der], "the first one");
    assert_eq!(shown(&server, ecdsa_only(), NAME, &all), [&ecdsa.der]);
    assert_eq!(shown(&server, rsa_only(), NAME, &all), [&rsa.der]);
    assert_eq!(shown(&server, rsa_only(), "default.example", &all), [&rsa.der], "rather than none");
}

#[test]
fn a_reload_replaces_certificates_for_new_sessions() {
    let folder = Folder::new();
    let (old, new) = (Identity::new(Kind::P256, &[NAME]), Identity::new(Kind::Rsa, &[NAME]));
    let server = Server::load(&[folder.files("live", &old)]).unwrap();
    let clone = server.clone();
    let mut session = Session::new(&server);
    let mut client = Client::new(&Arc::new(trusting(&[&old.der], TLS_1_3)), NAME);
    transfer(&mut session, &mut client);
    server.reload(&[folder.files("live", &new)]).unwrap();
    assert_eq!(presented(&server, NAME, &[&old, &new]), new.der);
    assert_eq!(presented(&clone, NAME, &[&old, &new]), new.der);
    client.write(b"still here");
    assert_eq!(transfer(&mut session, &mut client), b"still here");
}

#[test]
fn a_reload_that_fails_keeps_the_old_certificates() {
    let folder = Folder::new();
    let (old, new) = (Identity::new(Kind::P256, &[NAME]), Identity::new(Kind::P256, &[NAME]));
    let files = folder.files("live", &old);
    let server = Server::load(slice::from_ref(&files)).unwrap();
    // As during a replacement: the certificate is new, but the key is still old.
    folder.write("live.pem", &new.certificate_pem);
    let error = server.reload(slice::from_ref(&files)).unwrap_err();
    assert!(matches!(error, CertificateError::Mismatch { .. }), "{error}");
    assert!(server.reload(&[]).is_err());
    assert!(server.reload(&[files.clone(), one_file(folder.path("absent"))]).is_err());
    assert_eq!(presented(&server, NAME, &[&old, &new]), old.der);
    folder.write("live.key", new.key_pem());
    server.reload(&[files]).unwrap();
    assert_eq!(presented(&server, NAME, &[&old, &new]), new.der);
}
