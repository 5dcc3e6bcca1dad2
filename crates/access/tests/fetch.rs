//! Fetches from a local server that is slow, lies, sends garbage, and goes away.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use shoal_access::fetch::{Content, FetchError, Limits, Remote, Uri};
use shoal_testkit::web_server::{TestServer, raw, reply};

const LIMITS: Limits = Limits { bytes_max: 100_000, time_max: Duration::from_secs(30) };

/// Bounds for servers that would keep the client waiting.
const SHORT: Limits = Limits { bytes_max: 100_000, time_max: Duration::from_millis(300) };

fn server_with(fields: &str, body: impl AsRef<[u8]>) -> TestServer {
    TestServer::start(reply(fields, body))
}

fn remote_of(server: &TestServer, folder: &Path) -> Remote {
    Remote::new(server.url("/list").parse().unwrap(), folder, "test")
}

fn text(content: &mut Content) -> Result<String, String> {
    let mut text = String::new();
    content.body.read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.contains("garbage") { Err("line 7: garbage".to_owned()) } else { Ok(text) }
}

fn fetch(remote: &mut Remote) -> Result<Option<String>, FetchError> {
    remote.fetch(LIMITS, text)
}

#[track_caller]
fn assert_fails(result: Result<Option<String>, FetchError>, expected: &str) {
    let error = result.expect_err("the fetch fails").to_string();
    assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn an_unchanged_content_is_not_sent_again_even_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(Arc::new(|request: &str, stream: &mut TcpStream| {
        let request = request.to_lowercase();
        let is_known = request.contains("if-none-match: \"one\"")
            && request.contains("if-modified-since: sat, 31 jan 2026 00:00:00 gmt");
        let head = "ETag: \"one\"\r\nLast-Modified: Sat, 31 Jan 2026 00:00:00 GMT\r\nContent-Type: Text/Plain; a=b\r\n";
        if is_known {
            let _ = stream.write_all(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n");
        } else {
            reply(head, "first")("", stream);
        }
    }));
    let mut remote = remote_of(&server, folder.path());
    assert_eq!(remote.read_copy(text).unwrap(), None);
    let mut media_type = None;
    let content = remote.fetch(LIMITS, |content| {
        media_type.clone_from(&content.media_type);
        text(content)
    });
    assert_eq!((content.unwrap().as_deref(), media_type.as_deref()), (Some("first"), Some("text/plain")));
    assert_eq!(fetch(&mut remote).unwrap(), None);
    let mut restarted = remote_of(&server, folder.path());
    assert_eq!(restarted.read_copy(text).unwrap().as_deref(), Some("first"));
    assert_eq!(fetch(&mut restarted).unwrap(), None);
    assert_eq!(server.requests().len(), 3);
    // A caller that has not accepted the copy gets the content as a whole.
    assert_eq!(fetch(&mut remote_of(&server, folder.path())).unwrap().as_deref(), Some("first"));
    // There is one file, which others cannot read.
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_same_content_without_validators_is_accepted_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with("", "first");
    let mut remote = remote_of(&server, folder.path());
    assert_eq!(fetch(&mut remote).unwrap().as_deref(), Some("first"));
    assert_eq!(fetch(&mut remote).unwrap(), None);
    server.set(reply("ETag: \"late\"\r\n", "first"));
    assert_eq!(fetch(&mut remote).unwrap(), None);
    server.set(reply("", "other"));
    assert_eq!(fetch(&mut remote).unwrap().as_deref(), Some("other"));
    assert!(server.requests().last().unwrap().contains("if-none-match: \"late\""));
}

#[test]
fn a_refused_content_leaves_the_last_good_copy() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with("ETag: \"good\"\r\n", "good");
    let mut remote = remote_of(&server, folder.path());
    fetch(&mut remote).unwrap();
    server.set(reply("ETag: \"bad\"\r\n", "garbage"));
    assert_fails(fetch(&mut remote), "line 7: garbage");
    assert_fails(fetch(&mut remote), "line 7: garbage");
    assert!(server.requests().last().unwrap().contains("if-none-match: \"good\""));
    assert_eq!(remote_of(&server, folder.path()).read_copy(text).unwrap().as_deref(), Some("good"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
}

#[test]
fn a_source_that_goes_away_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with("", "first");
    let mut remote = remote_of(&server, folder.path());
    fetch(&mut remote).unwrap();
    server.set_away(true);
    fetch(&mut remote).unwrap_err();
    let mut restarted = remote_of(&server, folder.path());
    assert_eq!(restarted.read_copy(text).unwrap().as_deref(), Some("first"));
    fetch(&mut restarted).unwrap_err();
    server.set(reply("", "second"));
    server.set_away(false);
    assert_eq!(fetch(&mut restarted).unwrap().as_deref(), Some("second"));
    server.set(raw("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", None));
    assert_fails(fetch(&mut restarted), "status 503");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nothing: Uri = format!("http://{port}/").parse().unwrap();
    assert_fails(fetch(&mut Remote::new(nothing, folder.path(), "test")), "refused");
}

#[test]
fn a_slow_server_meets_the_time_limit() {
    let folder = tempfile::tempdir().unwrap();
    let silent = |_: &str, _: &mut TcpStream| thread::sleep(Duration::from_secs(100));
    let drips = |_: &str, stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    };
    for server in [TestServer::start(Arc::new(silent)), TestServer::start(Arc::new(drips))] {
        let error = remote_of(&server, folder.path()).fetch(SHORT, text).unwrap_err();
        assert!(matches!(error, FetchError::Timeout(_)), "{error:?}");
    }
}

#[test]
fn a_server_that_lies_about_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let fetch = |reply: &str, forever| {
        let server = TestServer::start(raw(reply, forever));
        remote_of(&server, folder.path()).fetch(LIMITS, text)
    };
    assert_fails(fetch("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", None), "ends early");
    let huge = "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n";
    assert_fails(fetch(huge, Some(b"x")), "more than 100000 bytes");
    // Everything beyond the declared length belongs to no content.
    let more = fetch("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst and more", None);
    assert_eq!(more.unwrap().as_deref(), Some("first"));
    assert_fails(fetch("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nfirst", None), "no valid HTTP");
}

#[test]
fn endless_replies_meet_the_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let fetch = |reply: &str, forever: &'static [u8]| {
        let server = TestServer::start(raw(reply, Some(forever)));
        remote_of(&server, folder.path()).fetch(LIMITS, text)
    };
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_fails(fetch(chunked, b"5\r\nabcde\r\n"), "more than 100000 bytes");
    assert_fails(fetch("HTTP/1.1 200 OK\r\n\r\n", b"no length"), "more than 100000 bytes");
    assert_fails(fetch("HTTP/1.1 200 OK\r\n", b"X-Field: value\r\n"), "no valid HTTP");
    assert_fails(fetch("HTTP/1.1 200 OK\r\nX-Field: ", b"value"), "head of the reply");
}

#[test]
fn garbage_is_no_reply() {
    let folder = tempfile::tempdir().unwrap();
    for reply in ["\x00\x01\x02 garbage\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", ""] {
        let server = TestServer::start(raw(reply, None));
        let error = remote_of(&server, folder.path()).fetch(LIMITS, text).unwrap_err();
        assert!(matches!(error, FetchError::Transport(_)), "{error:?}");
    }
    let coded = server_with("Content-Encoding: br\r\n", "x");
    assert_fails(fetch(&mut remote_of(&coded, folder.path())), "unknown coding");
}

#[test]
fn compressed_replies_are_limited_before_and_after_decompression() {
    let folder = tempfile::tempdir().unwrap();
    let fetch = |body: &[u8]| {
        let server = server_with("Content-Encoding: gzip\r\n", body);
        remote_of(&server, folder.path()).fetch(LIMITS, text)
    };
    assert_eq!(fetch(&gzip(b"first")).unwrap().as_deref(), Some("first"));
    assert_fails(fetch(&gzip(&vec![0; 50_000_000])), "more than 100000 bytes");
    // Members without content are no way around it.
    assert_fails(fetch(&gzip(b"").repeat(10_000)), "more than 100000 bytes");
    assert_fails(fetch(&gzip(b"first")[..12]), "ends early");
    fetch(b"no gzip").unwrap_err();
}

#[test]
fn redirects_are_followed_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(Arc::new(|request: &str, stream: &mut TcpStream| {
        let path = request.split(' ').nth(1).unwrap();
        let location = match path {
            "/b/list" => "../a/./once?x=y",
            "/a/once?x=y" => return reply("", "arrived")("", stream),
            "/file" => "file:///etc/passwd",
            "/nowhere" => return raw("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", None)("", stream),
            _ => "/for/ever",
        };
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
    }));
    let remote = |path| Remote::new(server.url(path).parse().unwrap(), folder.path(), "test");
    assert_eq!(fetch(&mut remote("/b/list")).unwrap().as_deref(), Some("arrived"));
    assert_fails(fetch(&mut remote("/for/ever")), "more than 5 redirects");
    fetch(&mut remote("/file")).unwrap_err();
    fetch(&mut remote("/nowhere")).unwrap_err();
}

#[test]
fn secrets_of_a_url_are_sent_to_its_host_only_and_told_to_no_one() {
    let folder = tempfile::tempdir().unwrap();
    let other = server_with("", "arrived");
    let location = other.url("/list");
    let server = TestServer::start(Arc::new(move |_: &str, stream: &mut TcpStream| {
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
    }));
    let uri = format!("http://user:secret@{}/list?key=secret", server.address).parse().unwrap();
    let mut remote = Remote::new(uri, folder.path(), "test");
    assert_eq!(fetch(&mut remote).unwrap().as_deref(), Some("arrived"));
    assert!(server.requests().last().unwrap().contains("authorization: basic dxnlcjpzzwnyzxq="));
    assert!(!other.requests().last().unwrap().contains("authorization"));
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(!path.to_string_lossy().contains("secret"));
        assert!(!String::from_utf8(fs::read(path).unwrap()).unwrap().contains("secret"));
    }
    server.set(raw("HTTP/1.1 302 Found\r\nLocation: ftp://secret/\r\n\r\n", None));
    let error = fetch(&mut remote).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[test]
fn a_damaged_copy_is_named_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with("ETag: \"one\"\r\n", "first");
    fetch(&mut remote_of(&server, folder.path())).unwrap();
    let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&path).unwrap();
    for length in [0, 5, 33, 40, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let mut remote = remote_of(&server, folder.path());
        assert_fails(remote.read_copy(text), "the copy on disk: it is damaged");
        assert_eq!(fetch(&mut remote).unwrap().as_deref(), Some("first"));
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    // A copy that the caller does not accept any more is fetched as a whole.
    let mut remote = remote_of(&server, folder.path());
    remote.read_copy(|_| Err::<(), _>("not any more")).unwrap_err();
    assert_eq!(fetch(&mut remote).unwrap().as_deref(), Some("first"));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let server = server_with("", "first");
    assert_fails(fetch(&mut remote_of(&server, &file.join("deeper"))), "the copy on disk");
}

#[test]
fn links_in_a_content_are_fetched_within_their_own_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(Arc::new(|request: &str, stream: &mut TcpStream| {
        match request.split(' ').nth(1).unwrap() {
            "/list" => reply("", "feed")("", stream),
            "/small" => reply("", "linked")("", stream),
            _ => reply("", vec![b'x'; 1000])("", stream),
        }
    }));
    let limits = Limits { bytes_max: 999, ..LIMITS };
    let linked = remote_of(&server, folder.path()).fetch(LIMITS, |content| {
        let fetch = |link: &str| {
            content.fetch_link(link, limits, |body| {
                let mut bytes = Vec::new();
                let _ = body.read_to_end(&mut bytes);
                bytes
            })
        };
        let linked = fetch("small").unwrap();
        assert!(matches!(fetch("/large"), Err(FetchError::TooLarge(999))));
        assert!(matches!(content.fetch_link("/large", limits, |_| ()), Err(FetchError::TooLarge(999))));
        assert!(matches!(fetch("file:///etc/passwd"), Err(FetchError::Link)));
        Ok::<_, String>(linked)
    });
    assert_eq!(linked.unwrap().unwrap(), b"linked");
}
