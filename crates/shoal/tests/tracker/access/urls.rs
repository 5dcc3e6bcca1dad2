//! Lists that a web server provides: every format, and every way in which a server can fail.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::signal::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use shoal_testkit::web_server::{TestServer, paths, raw, reply};
use tempfile::TempDir;

use crate::access::{assert_reason, info_hash, line, wait_until};
use crate::http::self_signed;
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, eventually, run};

/// The words of the tracker for a torrent without a reason.
const NOT_SERVED: &str = "this torrent is not served by this tracker";

/// Starts a tracker with these settings, whose copies lie in `folder`.
fn start(folder: &Path, settings: &[(&str, &str)]) -> Tracker {
    let config = folder.join("shoal.toml");
    fs::write(&config, "").unwrap();
    let copies = folder.join("copies").display().to_string();
    let settings = [settings, &[("SHOAL_FETCH_FOLDER", copies.as_str()), ("NO_PROXY", "*")]].concat();
    Tracker::start_with_path(&config, &settings)
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn hex(torrent: char) -> String {
    format!("{:02x}", u32::from(torrent)).repeat(20)
}

pub(crate) fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_fetched_list_holds_for_every_protocol_and_survives_a_restart_without_its_server() {
    let (folder, server) = (folder(), TestServer::start(reply("ETag: \"1\"\r\n", line('a', "a notice"))));
    let url = format!("http://user:secret@{}/deny?key=secret", server.address);
    let settings = [("SHOAL_ACCESS_TORRENTS_DENY", &*url)];
    let mut tracker = start(folder.path(), &settings);
    wait_until(&tracker, 'a', true);
    assert_reason(&tracker, 'a', Some("a notice"));
    assert_reason(&tracker, 'b', None);
    let request = server.requests()[0].clone();
    assert!(request.starts_with("get /deny?key=secret http/1.1"), "{request}");
    assert!(request.contains("authorization: basic dxnlcjpzzwnyzxq="), "{request}");
    // A content that has not changed is not sent again, and applies again after a restart, even if the server is away.
    server.set(raw("HTTP/1.1 304 Not Modified\r\n\r\n", None));
    tracker.signal(Signal::SIGHUP);
    eventually("it is fetched again", || server.requests().get(1).cloned()).contains("if-none-match: \"1\"");
    assert_reason(&tracker, 'a', Some("a notice"));
    let source = format!("source=\"http://{}/deny?…\"", server.address);
    let labels = ["list=\"torrents_deny\"", &*source];
    assert_eq!(tracker.metric("shoal_list_source_failures_total", &labels), 0);
    tracker.metric("shoal_list_source_age_seconds", &labels);
    assert!(!tracker.page("/metrics").body.contains("secret"));
    assert!(!tracker.log().contains("secret"), "{}", tracker.log());
    assert!(tracker.stop().success());
    server.set_away(true);
    let tracker = start(folder.path(), &settings);
    assert_reason(&tracker, 'a', Some("a notice"));
    tracker.wait_for_line("a list cannot be read and keeps its entries");
    assert_reason(&tracker, 'a', Some("a notice"));
    server.set(reply("", line('b', "")));
    server.set_away(false);
    tracker.signal(Signal::SIGHUP);
    wait_until(&tracker, 'b', true);
    wait_until(&tracker, 'a', false);
}

#[test]
fn a_server_that_fails_in_any_way_leaves_the_list_as_it_was() {
    let (folder, server) = (folder(), TestServer::start(reply("", line('a', ""))));
    let (good, other) = (server.url("/deny"), folder.path().join("other"));
    fs::write(&other, line('x', "")).unwrap();
    let sources = format!("{good},{}", other.display());
    let tracker = start(folder.path(), &[("SHOAL_ACCESS_TORRENTS_DENY", &sources)]);
    wait_until(&tracker, 'a', true);
    let garbage = line('b', "") + "garbage\n";
    let handlers = [
        (reply("", garbage.clone()), "line 2: it does not begin with an info hash"),
        (reply("Content-Encoding: gzip\r\n", &gzip(&line('b', ""))[..20]), "ends early"),
        (reply("", &gzip(&garbage)[..20]), ""),
        (reply("", "  \n"), "the content is empty"),
        (reply("Content-Type: text/html\r\n", "<!doctype html><html><body>Sorry</body></html>"), "web page"),
        (reply("", "<Error><Code>AccessDenied</Code></Error>"), "it is no feed"),
        (reply("", format!("[\"{}\",\n7]", hex('b'))), "line 2: expected an info hash"),
        (reply("", "d4:infod4:name1:xee"), "no info dictionary"),
        (raw("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", None), "status 404"),
        (raw("HTTP/1.1 302 Found\r\nLocation: /for/ever\r\nContent-Length: 0\r\n\r\n", None), "redirects"),
        (
            raw("HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", Some(b"x")),
            "more than 536870912 bytes",
        ),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\nshort", None), "ends early"),
        (raw("no HTTP at all", None), ""),
    ];
    for (failures, (handler, expected)) in (1..).zip(handlers) {
        server.set(handler);
        tracker.signal(Signal::SIGHUP);
        let line = tracker.wait_for_line("a list cannot be read and keeps its entries");
        let error = line["error"].as_str().unwrap();
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
        assert_eq!(
            (line["list"].as_str(), line["source"].as_str()),
            (Some("access.torrents_deny"), Some(&*good))
        );
        let source = format!("source=\"{good}\"");
        eventually("the failure is counted", || {
            let counted = tracker.metric("shoal_list_source_failures_total", &[&source]);
            (counted == failures).then_some(())
        });
        wait_until(&tracker, 'a', true);
        wait_until(&tracker, 'b', false);
    }
    assert_eq!(tracker.metric("shoal_list_sources_faulty", &["list=\"deny\""]), 1);
    assert_reason(&tracker, 'x', Some(NOT_SERVED));
    server.set(reply("", line('b', "back")));
    tracker.signal(Signal::SIGHUP);
    wait_until(&tracker, 'b', true);
    wait_until(&tracker, 'a', false);
    assert_eq!(tracker.metric("shoal_list_sources_faulty", &["list=\"deny\""]), 0);
}

#[test]
fn every_format_is_read() {
    let (a, b, c, d) = (hex('a'), hex('b'), hex('c'), hex('d'));
    let feed = format!(
        "<rss><channel><item><link>magnet:?xt=urn:btih:{b}&amp;dn=x</link></item>\
         <item><enclosure url='linked' type='application/x-bittorrent'/></item>\
         <item><enclosure url='gone.torrent'/></item></channel></rss>"
    );
    let opds = format!(
        "<feed><entry><link type='application/x-bittorrent' href='{c}.torrent'/><i infohash='{c}'/></entry></feed>"
    );
    let torrent = "d4:infod4:name1:x6:pieces0:ee";
    let linked = shoal_access::torrents::info_hashes(torrent.as_bytes()).unwrap()[0];
    let folder = folder();
    let server = TestServer::start(paths(vec![
        ("/json", reply("", format!("[\"{a}\", {{\"info_hash\": \"{d}\", \"reason\": \"why\"}}]"))),
        ("/feed", reply("", gzip(&feed))),
        ("/opds", reply("Content-Encoding: gzip\r\n", gzip(&opds))),
        ("/linked", reply("", torrent)),
    ]));
    let sources = ["/json", "/feed", "/opds"].map(|path| server.url(path)).join(",");
    let tracker = start(folder.path(), &[("SHOAL_ACCESS_TORRENTS_DENY", &sources)]);
    for torrent in ['a', 'b', 'c', 'd'] {
        wait_until(&tracker, torrent, true);
    }
    assert_reason(&tracker, 'd', Some("why"));
    let client = Client::new(tracker.udp[0]);
    let packet = Announce::leecher(linked.0, 6881).packet(client.connect(), 7);
    assert_eq!(client.refusal(&packet), NOT_SERVED);
    // A linked file that is not there is a fault that does not concern the others.
    let fault = tracker.wait_for_line("a part of a list cannot be read and keeps its entries");
    assert_eq!(fault["error"], "1 of 2 linked torrents cannot be read: the server replies with status 404");
    // It is tried again although the feed has not changed, and the other one is not fetched again.
    let config = folder.path().join("shoal.toml").display().to_string();
    let (copies, control) = (folder.path().join("copies").display().to_string(), tracker.control.to_string());
    let settings = [
        ("SHOAL_ACCESS_TORRENTS_DENY", &*sources),
        ("SHOAL_FETCH_FOLDER", &*copies),
        ("SHOAL_CONTROL_LISTEN", &*control),
    ];
    let output = run(&["access", "reload", "--config", &config], &settings);
    assert!(String::from_utf8_lossy(&output.stdout).contains("access.torrents_deny http://"), "{output:?}");
    tracker.wait_for_line("a part of a list cannot be read and keeps its entries");
    let of = |path: &str| server.requests().iter().filter(|head| head.contains(path)).count();
    assert_eq!((of("get /linked "), of("get /gone.torrent ")), (1, 2));
    // The commands read the copies.
    let output = run(&["access", "check", &hex('d'), "--config", &config], &settings);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("/json: why"), "{text}");
}

#[test]
fn a_slow_server_delays_neither_others_nor_files() {
    let folder = folder();
    let silent = |_: &str, _: &mut TcpStream| thread::sleep(Duration::from_secs(300));
    let server =
        TestServer::start(paths(vec![("/slow", Arc::new(silent)), ("/fast", reply("", line('a', "")))]));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let sources = format!("{},{},{}", server.url("/slow"), server.url("/fast"), file.display());
    let tracker = start(folder.path(), &[("SHOAL_ACCESS_TORRENTS_DENY", &sources)]);
    wait_until(&tracker, 'a', true);
    fs::write(&file, line('b', "")).unwrap();
    wait_until(&tracker, 'b', true);
    assert!(server.requests().iter().any(|head| head.contains("/slow")));
}

#[test]
fn an_allow_list_is_empty_until_it_has_been_fetched_and_the_deny_list_takes_precedence() {
    let (folder, server) = (folder(), TestServer::start(raw("", None)));
    let (allow, deny) = (server.url("/allow"), server.url("/deny"));
    let settings = [("SHOAL_ACCESS_TORRENTS_ALLOW", &*allow), ("SHOAL_ACCESS_TORRENTS_DENY", &*deny)];
    let tracker = start(folder.path(), &settings);
    assert_reason(&tracker, 'a', Some(NOT_SERVED));
    server.set(paths(vec![
        ("/allow", reply("", line('a', "") + &line('b', ""))),
        ("/deny", reply("", line('b', "on both"))),
    ]));
    tracker.signal(Signal::SIGHUP);
    wait_until(&tracker, 'a', false);
    eventually("both lists apply", || {
        tracker.page("/metrics").body.contains("shoal_list_torrents{list=\"deny\"} 1").then_some(())
    });
    assert_reason(&tracker, 'b', Some("on both"));
    assert_reason(&tracker, 'c', Some(NOT_SERVED));
}

#[test]
fn fetched_networks_hold() {
    let list = gzip("Some Company:127.0.0.9-127.0.0.9\n127.0.0.10/32\n");
    let (folder, server) = (folder(), TestServer::start(reply("Content-Type: application/gzip\r\n", list)));
    let tracker = start(folder.path(), &[("SHOAL_ACCESS_NETWORKS_DENY", &*server.url("/list.gz"))]);
    let is_served = |ip: &str| {
        let client = Client::from_ip(ip.parse().unwrap(), tracker.udp[0]);
        client.ask(&Announce::leecher(info_hash('a'), 6881).packet(client.connect(), 5))[3] == 1
    };
    for ip in ["127.0.0.9", "127.0.0.10"] {
        eventually("the list applies", || (!is_served(ip)).then_some(()));
    }
    assert!(is_served("127.0.0.8"));
    server.set(reply("", "127.0.0.8\ngarbage\n"));
    tracker.signal(Signal::SIGHUP);
    let line = tracker.wait_for_line("a list cannot be read and keeps its entries");
    assert!(line["error"].as_str().unwrap().contains("line 2:"), "{line}");
    assert_eq!([is_served("127.0.0.8"), is_served("127.0.0.9")], [true, false]);
}

/// Serves one reply over TLS, for ever. The name of the certificate is "localhost".
fn serve_tls(certificate: &str, key: &str, reply: Arc<Mutex<String>>) -> u16 {
    let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            // A client that does not trust the certificate has gone.
            let _ = stream.write_all(reply.lock().unwrap().as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    port
}

#[test]
fn https_needs_a_trusted_certificate_and_never_leads_to_http() {
    let folder = folder();
    let (certificate, key) = self_signed(folder.path(), "localhost");
    let body = line('a', "");
    let list = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let reply = Arc::new(Mutex::new(list));
    let url = format!("https://localhost:{}/list", serve_tls(&certificate, &key, Arc::clone(&reply)));
    let settings = [("SHOAL_ACCESS_TORRENTS_DENY", &*url), ("SSL_CERT_FILE", "/dev/null")];
    let mut tracker = start(folder.path(), &settings);
    let line = tracker.wait_for_line("a list cannot be read as a whole");
    assert!(line["error"].as_str().unwrap().contains("certificate"), "{line}");
    tracker.stop();
    let settings = [("SHOAL_ACCESS_TORRENTS_DENY", &*url), ("SSL_CERT_FILE", &*certificate)];
    let tracker = start(folder.path(), &settings);
    wait_until(&tracker, 'a', true);
    let plain = TestServer::start(shoal_testkit::web_server::reply("", ""));
    let location = plain.url("/list");
    *reply.lock().unwrap() =
        format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
    tracker.signal(Signal::SIGHUP);
    let line = tracker.wait_for_line("a list cannot be read and keeps its entries");
    assert_eq!(line["error"], "a redirect leads from https to http");
    assert!(plain.requests().is_empty());
    wait_until(&tracker, 'a', true);
}
