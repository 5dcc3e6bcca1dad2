//! Certificates that the tracker obtains by itself, from a real certificate authority (Pebble).

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use shoal_session::tls::{CertificateFiles, Server, self_signed};
use shoal_testkit::client::tls::Tls;
use shoal_testkit::pebble::{Options, Pebble};
use shoal_testkit::ports::unused_ports;
use tempfile::TempDir;

use crate::kit::harness::{Tracker, eventually, run};
use crate::kit::web::{Web, announce, tcp};
use crate::udp::hash;

/// A name that leads to this host, as the name server of the tests says.
const DOMAIN: &str = "tracker.example";

/// A tracker's settings and its certificate authority.
struct Place {
    pebble: Pebble,
    options: Options,
    state: TempDir,
    http: String,
    tls: String,
    more: Vec<(&'static str, String)>,
}

impl Place {
    /// Prepares a place in which the certificate authority validates at the listeners of the tracker, after a change of its
    /// options.
    fn new(change: impl FnOnce(&mut Options)) -> Self {
        let [http, tls] = unused_ports().unwrap();
        let mut options = Options::new(http, tls);
        change(&mut options);
        Self {
            pebble: Pebble::prepare(options.clone()).unwrap(),
            options,
            state: tempfile::tempdir().unwrap(),
            http: format!("127.0.0.1:{http}"),
            tls: format!("127.0.0.1:{tls}"),
            more: Vec::new(),
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("SHOAL_ACME_DOMAINS", DOMAIN.to_owned()),
            ("SHOAL_ACME_DIRECTORY", self.pebble.url()),
            ("SHOAL_STATE_PATH", self.state.path().display().to_string()),
            ("SHOAL_HTTP_LISTEN", self.http.clone()),
            ("SHOAL_TLS_LISTEN", self.tls.clone()),
            ("SSL_CERT_FILE", self.pebble.ca_file().display().to_string()),
        ];
        settings.extend(self.more.iter().cloned());
        settings
    }

    fn start(&self) -> Tracker {
        let settings = self.settings();
        Tracker::start(&borrowed(&settings))
    }

    fn certificate_file(&self) -> PathBuf {
        self.state.path().join("acme.pem")
    }
}

fn borrowed<'s>(settings: &'s [(&'static str, String)]) -> Vec<(&'static str, &'s str)> {
    settings.iter().map(|(name, value)| (*name, &**value)).collect()
}

/// Makes a handshake for the domain and returns the certificate, unless the tracker has none that the client trusts.
fn handshake(address: SocketAddr, client: &Tls) -> Result<(Web, Vec<u8>), String> {
    let mut session = client.begin(DOMAIN).unwrap();
    let mut stream = tcp(address);
    while session.is_handshaking() {
        session.complete_io(&mut stream).map_err(|error| error.to_string())?;
    }
    let certificate = session.peer_certificates().unwrap()[0].to_vec();
    Ok((Web::over(rustls::StreamOwned::new(session, stream)), certificate))
}

/// Waits for the next failure, and returns its reason.
fn failure(tracker: &Tracker, message: &str) -> String {
    tracker.wait_for_line(message)["reason"].as_str().unwrap().to_owned()
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

/// The patience of tests is ten seconds, which is the promise: from an empty directory to a served certificate.
#[test]
fn a_tracker_obtains_its_certificate_and_keeps_it() {
    let mut place = Place::new(|_| {});
    place.pebble.run().unwrap();
    let tracker = place.start();
    tracker.wait_for_line("ordering the first certificate");
    tracker.wait_for_line("a certificate was issued");
    let client = place.pebble.client().unwrap();
    let (mut web, certificate) = handshake(tracker.tls[0], &client).unwrap();
    assert_eq!(web.get(&announce(hash(1), 6881, "")).status, 200);
    for file in ["acme.pem", "acme-account"] {
        assert_eq!(mode(&place.state.path().join(file)), 0o600, "{file}");
    }
    // The one that every client sees is the one whose end the metrics tell.
    let file = format!("file=\"{}\"", place.certificate_file().display());
    let [start_s, end_s] = ["start", "expiry"]
        .map(|time| tracker.metric(&format!("shoal_certificate_{time}_timestamp_seconds"), &[&file]));
    assert!(start_s < end_s, "{start_s} to {end_s}");
    drop(tracker);
    // A restart serves it at once, without the certificate authority.
    place.pebble.end();
    let tracker = place.start();
    assert_eq!(handshake(tracker.tls[0], &client).unwrap().1, certificate);
    let reason = failure(&tracker, "the certificate authority was not asked when to renew");
    assert!(reason.contains("cannot be used: "), "{reason}");
    // A damaged file takes nothing out of service, and is replaced.
    fs::write(place.certificate_file(), "x").unwrap();
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the certificates stay as they were");
    failure(&tracker, "there is no certificate yet");
    assert_eq!(handshake(tracker.tls[0], &client).unwrap().1, certificate);
    place.pebble.run().unwrap();
    tracker.signal(Signal::SIGHUP);
    failure(&tracker, "there is no certificate yet");
    tracker.wait_for_line("a certificate was issued");
    handshake(tracker.tls[0], &place.pebble.client().unwrap()).unwrap();
}

/// The way from the staging directory to the real one.
#[test]
fn another_directory_and_another_profile_have_another_certificate() {
    let mut place = Place::new(|_| {});
    place.pebble.run().unwrap();
    place.start().wait_for_line("a certificate was issued");
    place.pebble = Pebble::start(place.options.clone()).unwrap();
    let tracker = place.start();
    tracker.wait_for_line("ordering another certificate");
    tracker.wait_for_line("a certificate was issued");
    handshake(tracker.tls[0], &place.pebble.client().unwrap()).unwrap();
    drop(tracker);
    place.more.push(("SHOAL_ACME_PROFILE", "shortlived".to_owned()));
    let tracker = place.start();
    tracker.wait_for_line("ordering another certificate");
    let days = tracker.wait_for_line("a certificate was issued")["days"].as_u64().unwrap();
    assert!(days < 7, "{days}");
}

/// The certificate authority refuses an order that says it replaces a certificate with which it shares no name.
#[test]
fn other_domains_have_another_certificate() {
    let mut place = Place::new(|_| {});
    place.pebble.run().unwrap();
    place.start().wait_for_line("a certificate was issued");
    for (domains, names) in [("other.example", 1), ("other.example,third.example", 2)] {
        place.more = vec![("SHOAL_ACME_DOMAINS", domains.to_owned())];
        let tracker = place.start();
        tracker.wait_for_line("ordering another certificate");
        tracker.wait_for_line("a certificate was issued");
        let file = CertificateFiles { chain: place.certificate_file(), key: None };
        let issued = Server::load(&[file]).unwrap().certificates();
        assert_eq!(issued[0].names.len(), names, "{:?}", issued[0].names);
        assert!(issued[0].names.iter().all(|name| domains.contains(&**name)), "{:?}", issued[0].names);
    }
}

#[test]
fn where_tls_is_not_reached_plain_http_shows_the_tracker() {
    let [elsewhere] = unused_ports().unwrap();
    let mut place = Place::new(|options| options.tls_port = elsewhere);
    place.pebble.run().unwrap();
    let tracker = place.start();
    tracker.wait_for_line("a certificate was issued");
    handshake(tracker.tls[0], &place.pebble.client().unwrap()).unwrap();
    let answer = Web::connect(tracker.http[0], false).get("/.well-known/acme-challenge/");
    assert_eq!(answer.status, 404);
}

#[test]
fn a_domain_that_leads_elsewhere_gets_no_certificate_and_a_reason() {
    let [tls, http] = unused_ports().unwrap();
    let mut place = Place::new(|options| (options.tls_port, options.http_port) = (tls, http));
    place.pebble.run().unwrap();
    let tracker = place.start();
    let reason = failure(&tracker, "there is no certificate yet");
    for part in ["does not find this tracker: TLS-ALPN-01: tracker.example: ", "; HTTP-01: tracker.example: "]
    {
        assert!(reason.contains(part), "{reason}");
    }
    assert!(reason.ends_with("port 443 to tls.listen or port 80 to http.listen"), "{reason}");
    // A client without a certificate gets an alert, and others are served.
    let error = handshake(tracker.tls[0], &Tls::new().unwrap()).err().unwrap();
    assert!(error.contains("alert"), "{error}");
    assert_eq!(Web::connect(tracker.http[0], false).get(&announce(hash(1), 6881, "")).status, 200);
}

#[test]
fn a_certificate_authority_may_be_away() {
    let mut place = Place::new(|_| {});
    let tracker = place.start();
    let reason = failure(&tracker, "there is no certificate yet");
    assert!(
        reason.contains("the certificate authority cannot be used: ") && reason.contains("refused"),
        "{reason}"
    );
    place.pebble.run().unwrap();
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("a certificate was issued");
    handshake(tracker.tls[0], &place.pebble.client().unwrap()).unwrap();
    // It has forgotten the account, and then gets a new one.
    place.pebble.run().unwrap();
    fs::remove_file(place.certificate_file()).unwrap();
    tracker.signal(Signal::SIGHUP);
    let reason = failure(&tracker, "there is no certificate yet");
    assert!(reason.contains("accountDoesNotExist"), "{reason}");
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("a certificate was issued");
}

#[test]
fn a_certificate_that_another_file_keeps_out_of_service_is_a_failure() {
    let mut place = Place::new(|_| {});
    place.pebble.run().unwrap();
    let other = place.state.path().join("other.pem");
    let identity = self_signed(&["other.example".to_owned()]).unwrap();
    let pem = identity.certificate_pem + &identity.key_pem;
    fs::write(&other, &pem).unwrap();
    place.more.push(("SHOAL_TLS_CERTIFICATES", other.display().to_string()));
    let tracker = place.start();
    tracker.wait_for_line("a certificate was issued");
    let client = place.pebble.client().unwrap();
    let first = handshake(tracker.tls[0], &client).unwrap().1;
    fs::remove_file(&other).unwrap();
    fs::remove_file(place.certificate_file()).unwrap();
    tracker.signal(Signal::SIGHUP);
    let reason = failure(&tracker, "the certificate was not renewed");
    assert!(
        reason.contains("not in use yet: tls.certificates: ") && reason.contains("other.pem"),
        "{reason}"
    );
    assert_eq!(handshake(tracker.tls[0], &client).unwrap().1, first);
    fs::write(&other, &pem).unwrap();
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the certificates were read again");
    assert_ne!(handshake(tracker.tls[0], &client).unwrap().1, first);
}

#[test]
fn a_directory_with_a_wrong_certificate_is_not_trusted() {
    let mut place = Place::new(|_| {});
    place.pebble.run().unwrap();
    place.more.push(("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt".to_owned()));
    let tracker = place.start();
    let reason = failure(&tracker, "there is no certificate yet");
    assert!(reason.contains("TLS: ") && reason.contains("SSL_CERT_FILE"), "{reason}");
    assert!(!place.state.path().join("acme-account").exists());
}

#[test]
fn refused_nonces_are_replaced() {
    // Chance decides whether any of these three requests is repeated, since polls do not count.
    let requests = ["POST /sign-me-up", "POST /order-plz", "POST /finalize-order/"];
    let is_repeated = (0..20).any(|_| {
        let mut place = Place::new(|options| options.nonces_refused = 20);
        place.pebble.run().unwrap();
        place.start().wait_for_line("a certificate was issued");
        let log = place.pebble.log();
        let count = |request: &str| log.matches(request).count();
        assert!(requests.iter().all(|request| count(request) > 0), "{log}");
        requests.iter().any(|request| count(request) > 1)
    });
    assert!(is_repeated);
}

#[test]
fn an_external_account_and_a_profile_are_used() {
    const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let mut place = Place::new(|options| options.external_account = Some(("kid-1", KEY)));
    place.pebble.run().unwrap();
    let tracker = place.start();
    let reason = failure(&tracker, "there is no certificate yet");
    assert!(reason.ends_with("; set acme.external_account and acme.external_account_key_file"), "{reason}");
    drop(tracker);
    let key = place.state.path().join("key");
    fs::write(&key, format!("{KEY}\n")).unwrap();
    place.more = vec![
        ("SHOAL_ACME_EXTERNAL_ACCOUNT", "kid-1".to_owned()),
        ("SHOAL_ACME_EXTERNAL_ACCOUNT_KEY_FILE", key.display().to_string()),
        ("SHOAL_ACME_CONTACT", "operator@tracker.example".to_owned()),
        ("SHOAL_ACME_PROFILE", "shortlived".to_owned()),
    ];
    let tracker = place.start();
    let days = tracker.wait_for_line("a certificate was issued")["days"].as_u64().unwrap();
    assert!(days < 7, "{days}");
}

/// A certificate authority that creates no account today.
fn start_limited_authority(folder: &Path) -> (String, PathBuf) {
    let identity = self_signed(&["localhost".to_owned()]).unwrap();
    let files = CertificateFiles { chain: folder.join("ca.pem"), key: Some(folder.join("ca-key.pem")) };
    fs::write(&files.chain, identity.certificate_pem).unwrap();
    fs::write(files.key.as_ref().unwrap(), identity.key_pem).unwrap();
    let config = Server::load(std::slice::from_ref(&files)).unwrap().config();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let directory = ["newNonce", "newAccount", "newOrder"].map(|name| format!("\"{name}\":\"{url}/{name}\""));
    let directory = format!("{{{}}}", directory.join(","));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream);
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or(0);
            let limit = r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many accounts","status":429}"#;
            let (status, body) = match &request[..read] {
                request if request.starts_with(b"GET /dir ") => ("200 OK", &*directory),
                request if request.starts_with(b"POST") => ("429 Too Many Requests", limit),
                _ => ("200 OK", ""),
            };
            let fields = "Replay-Nonce: abc\r\nRetry-After: 7200\r\nConnection: close";
            let length = body.len();
            // The client may have gone.
            let _ = write!(stream, "HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.conn.send_close_notify();
            let _ = stream.flush().and_then(|()| stream.sock.shutdown(Shutdown::Write));
            // Input that nothing reads would reset the connection, and the response with it.
            let _ = io::copy(&mut stream.sock, &mut io::sink());
        }
    });
    (format!("{url}/dir"), files.chain)
}

#[test]
fn a_limit_of_the_certificate_authority_is_obeyed() {
    let mut place = Place::new(|_| {});
    let (url, ca) = start_limited_authority(place.state.path());
    place.more = vec![("SHOAL_ACME_DIRECTORY", url), ("SSL_CERT_FILE", ca.display().to_string())];
    let tracker = place.start();
    let line = tracker.wait_for_line("there is no certificate yet");
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.contains("refuses: too many accounts (rateLimited); it asks to wait"), "{reason}");
    assert_eq!(line["next_attempt_s"], 7200);
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the configuration was read again");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(tracker.log().matches("there is no certificate yet").count(), 1);
}

/// The certificate authority reaches the first node only, which answers for the second one.
#[cfg(feature = "cluster")]
#[test]
fn each_node_of_a_cluster_answers_for_the_others() {
    let mut place = Place::new(|_| {});
    place.pebble.run().unwrap();
    let nats = shoal_testkit::nats::Server::start(&shoal_testkit::nats::Options::default()).unwrap();
    place.more.push(("SHOAL_CLUSTER_SERVERS", nats.url()));
    let first = place.start();
    first.wait_for_line("there is an account");
    first.wait_for_line("a certificate was issued");
    let state = tempfile::tempdir().unwrap();
    place.more.extend([
        ("SHOAL_HTTP_LISTEN", "127.0.0.1:0".to_owned()),
        ("SHOAL_TLS_LISTEN", "127.0.0.1:0".to_owned()),
        ("SHOAL_STATE_PATH", state.path().display().to_string()),
    ]);
    let second = place.start();
    second.wait_for_line("a certificate was issued");
    let client = place.pebble.client().unwrap();
    let certificates = [&first, &second].map(|node| handshake(node.tls[0], &client).unwrap().1);
    assert_ne!(certificates[0], certificates[1]);
    let account = |folder: &Path| fs::read_to_string(folder.join("acme-account")).unwrap();
    let shared = account(place.state.path());
    assert_eq!(shared, account(state.path()));
    // The certificate authority has forgotten the account: the first node that learns it has another one for both.
    place.pebble.run().unwrap();
    for (node, state) in [(&first, place.state.path()), (&second, state.path())] {
        fs::remove_file(state.join("acme.pem")).unwrap();
        node.signal(Signal::SIGHUP);
        node.wait_for_line("a certificate was issued");
    }
    assert_ne!(shared, account(place.state.path()));
    assert_eq!(account(place.state.path()), account(state.path()));
}

/// Ends the clients of a test, also if it fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Clients connect without a pause while the certificate is revoked and replaced, and the process by another one.
#[test]
fn a_revoked_certificate_is_renewed_and_no_handshake_fails() {
    let mut place = Place::new(|_| {});
    place.pebble.run().unwrap();
    let tracker = place.start();
    tracker.wait_for_line("a certificate was issued");
    let client = place.pebble.client().unwrap();
    let address = tracker.tls[0];
    let first = handshake(address, &client).unwrap().1;
    let (is_over, handshakes) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let end = End(&is_over);
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        handshake(address, &client)?;
                        handshakes.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        // An account of another certificate authority is of no use, and stays as it is.
        let account = place.state.path().join("acme-account");
        let before = fs::read(&account).unwrap();
        let other = ["tls", "revoke", "--set", "acme.directory=https://localhost:1/dir"];
        let refused = run(&other, &borrowed(&place.settings()));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("has no account of"), "{refused:?}");
        assert_eq!(fs::read(&account).unwrap(), before);
        let mut settings = place.settings();
        settings.retain(|(name, _)| *name != "SHOAL_ACME_DOMAINS");
        let domains = format!("acme.domains={DOMAIN}");
        let revoked = run(&["tls", "revoke", "--set", &domains], &borrowed(&settings));
        assert!(revoked.status.success(), "{revoked:?}");
        tracker.signal(Signal::SIGHUP);
        tracker.wait_for_line("ordering another certificate");
        tracker.wait_for_line("a certificate was issued");
        eventually("clients get the new certificate", || {
            (handshake(address, &client).unwrap().1 != first).then_some(())
        });
        let before = handshakes.load(Ordering::Relaxed);
        tracker.signal(Signal::SIGUSR2);
        tracker.wait_for_line("the new process serves");
        eventually("clients reach the new process", || {
            (handshakes.load(Ordering::Relaxed) > before + 10).then_some(())
        });
        drop(end);
        for client in clients {
            client.join().unwrap().unwrap();
        }
    });
}

/// The certificate is issued, but there is no room for it: the tracker keeps it until there is some, and orders no other one.
#[test]
fn a_full_disk_loses_no_certificate() {
    let mut place = Place::new(|_| {});
    let settings = place.settings();
    let tracker = Tracker::start_with_file_system(place.state.path(), &borrowed(&settings));
    failure(&tracker, "there is no certificate yet");
    // The account takes one page of the file system, and the certificate another one.
    let state = format!("/proc/{}/root{}", tracker.pid(), place.state.path().display());
    let filler = Path::new(&state).join("filler");
    let mut file = OpenOptions::new().create_new(true).append(true).open(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    file.set_len(file.metadata().unwrap().len() - 4096).unwrap();
    drop(file);
    place.pebble.run().unwrap();
    tracker.signal(Signal::SIGHUP);
    let reason = failure(&tracker, "there is no certificate yet");
    assert!(reason.contains("acme.pem: No space left on device"), "{reason}");
    fs::remove_file(&filler).unwrap();
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("a certificate was issued");
    handshake(tracker.tls[0], &place.pebble.client().unwrap()).unwrap();
    assert_eq!(place.pebble.log().matches("Issued certificate").count(), 1, "{}", place.pebble.log());
}
