//! Tokens in the URLs of clients, on every protocol and family: good ones are served, and of all others the client is told
//! what is wrong with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shoal_testkit::tokens::{Issuer, encode, hs256, jwks, message, unsigned};
use shoal_testkit::web_server::{TestServer, raw, reply};
use tempfile::TempDir;

use crate::http::{Way, over_every_way};
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, ERROR, STOPPED, scrape_packet, word};
use crate::kit::harness::{Tracker, command, eventually};
use crate::kit::web::{Web, announce};
use crate::udp;
use crate::udp::hash;

over_every_way!(each_kind_of_token_over_http, each_kind_of_token_over_webtorrent);

udp::over_every_way!(each_kind_of_token_over_udp);

/// One issuer for each algorithm.
static ISSUERS: LazyLock<[Issuer; 3]> =
    LazyLock::new(|| [Issuer::rs256("rsa"), Issuer::es256("ec"), Issuer::ed25519("ed")]);

/// The rules of the tests, in addition to the keys.
const RULES: [(&str, &str); 2] =
    [("SHOAL_TOKENS_ISSUER", "https://site.example/"), ("SHOAL_TOKENS_AUDIENCE", "tracker")];

const MISSING: &str = "this tracker needs a token in its URL, and yours has none";
const UNKNOWN_KEY: &str = "the token in the URL of this tracker is signed by an unknown key";
const WRONG_TORRENT: &str = "the token in the URL of this tracker is for another torrent";

/// A JWK set in a file.
struct Keys {
    _folder: TempDir,
    path: PathBuf,
}

impl Keys {
    fn new(keys: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jwks.json");
        fs::write(&path, jwks(keys)).unwrap();
        Self { _folder: folder, path }
    }

    fn of_all_issuers() -> Self {
        Self::new(&ISSUERS.each_ref().map(Issuer::jwk))
    }

    /// Replaces the file as a whole.
    fn replace(&self, text: &str) {
        let new = self.path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &self.path).unwrap();
    }

    fn setting(&self) -> (&'static str, &str) {
        ("SHOAL_TOKENS_JWKS", self.path.to_str().unwrap())
    }

    fn settings<'s>(&'s self, more: &[(&'static str, &'s str)]) -> Vec<(&'static str, &'s str)> {
        [&[self.setting()], &RULES[..], more].concat()
    }
}

#[expect(clippy::disallowed_methods, reason = "the tracker compares tokens with the clock of this host")]
pub(crate) fn now_s() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// Returns good claims with changes; `null` removes one.
fn claims(changes: &Value) -> Value {
    let mut claims = json!({ "iss": "https://site.example/", "aud": ["tracker"], "exp": now_s() + 3600 });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

/// Returns the torrent `hash(1)`, as it is written in claims.
fn hash_text() -> String {
    hash(1).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn good() -> String {
    ISSUERS[2].token(&claims(&json!({})))
}

/// Returns an info hash of equal bytes, as it is written in claims.
fn hex(byte: u8) -> String {
    format!("{byte:02x}").repeat(20)
}

/// Returns tokens of every kind, each with the words of the refusal, or "" if it is good for the torrent `mine`.
fn kinds(mine: &str) -> Vec<(String, &'static str)> {
    let [rsa, ec, ed] = &*ISSUERS;
    let of = |changes: Value| ed.token(&claims(&changes));
    let usual = claims(&json!({}));
    let public = rsa.jwk()["n"].as_str().unwrap().to_owned();
    let (header, payload) = (json!({ "alg": "EdDSA", "kid": "ed" }), &usual);
    vec![
        (rsa.token(&usual), ""),
        (ec.token(&usual), ""),
        (ed.token(&usual), ""),
        (of(json!({ "nbf": now_s() - 10 })), ""),
        (of(json!({ "infohash": mine })), ""),
        (of(json!({ "infohash": [hex(9), format!("{mine}{}", "0".repeat(24))] })), ""),
        (of(json!({ "infohash": [hex(9)] })), WRONG_TORRENT),
        (of(json!({ "infohash": [] })), WRONG_TORRENT),
        (of(json!({ "exp": now_s() - 3600 })), "the token in the URL of this tracker has expired"),
        (of(json!({ "nbf": now_s() + 1800 })), "the token in the URL of this tracker is not valid yet"),
        (of(json!({ "iss": "other" })), "the token in the URL of this tracker is from another issuer"),
        (of(json!({ "aud": "other" })), "the token in the URL of this tracker is for another service"),
        (of(json!({ "exp": null })), "the token in the URL of this tracker is malformed"),
        ("nonsense".to_owned(), "the token in the URL of this tracker is malformed"),
        (unsigned(&usual), "the token in the URL of this tracker is of an unsupported kind"),
        (
            hs256(public.as_bytes(), &json!({ "alg": "HS256", "kid": "rsa" }), &usual),
            "the token in the URL of this tracker is of an unsupported kind",
        ),
        (
            hs256(public.as_bytes(), &json!({ "alg": "RS256", "kid": "rsa" }), &usual),
            "the token in the URL of this tracker has a wrong signature",
        ),
        (
            ed.token_with_header(&json!({ "alg": "EdDSA", "kid": "ed", "crit": ["x"], "x": 1 }), &usual),
            "the token in the URL of this tracker is of an unsupported kind",
        ),
        (ed.token_with_header(&json!({ "alg": "EdDSA", "kid": "rsa" }), &usual), UNKNOWN_KEY),
        (Issuer::es256("other").token(&usual), UNKNOWN_KEY),
        (Issuer::ed25519("ed").token(&usual), "the token in the URL of this tracker has a wrong signature"),
        (
            format!("{}.{}", message(&header, payload), encode(&[0; 64])),
            "the token in the URL of this tracker has a wrong signature",
        ),
    ]
}

/// Returns the reason of a refusal, or "" if there is none.
fn reason(body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let Some((_, rest)) = body.split_once("14:failure reason") else { return String::new() };
    let (bytes, rest) = rest.split_once(':').unwrap();
    rest[..bytes.parse().unwrap()].to_owned()
}

/// Returns the target of an announce with a token in the query.
fn with_token(info_hash: [u8; 20], token: &str) -> String {
    announce(info_hash, 6881, &format!("&jwt={token}"))
}

fn refusals(tracker: &Tracker, protocol: &str, outcome: &str) -> u64 {
    let [protocol, outcome] = [format!("protocol=\"{protocol}\""), format!("outcome=\"{outcome}\"")];
    tracker.metric("shoal_replies_total", &[&protocol, &outcome])
}

fn each_kind_of_token_over_http(way: Way) {
    let keys = Keys::of_all_issuers();
    let tracker = way.start(&keys.settings(&[]));
    let mut web = way.connect(&tracker);
    for _ in 0..2 {
        for (token, expected) in kinds(&hash_text()) {
            assert_eq!(reason(&web.get(&with_token(hash(1), &token)).body), expected, "{token}");
        }
    }
    let plain = announce(hash(1), 6881, "");
    let in_path = |path: &str| plain.replace("/announce", &path.replace("TOKEN", &good()));
    for (target, expected) in [
        (plain.clone(), MISSING),
        (format!("{plain}&jwt="), MISSING),
        (format!("{plain}&event=stopped"), ""),
        (in_path("/announce/TOKEN"), ""),
        (in_path("/announce/TOKEN/"), ""),
        (in_path("/announce.php/TOKEN"), ""),
        (in_path("/TOKEN/announce"), ""),
        (in_path("/x/TOKEN/announce.php"), ""),
    ] {
        let answer = web.get(&target);
        assert_eq!((answer.status, &*reason(&answer.body)), (200, expected), "{target}");
    }
    let scrape = plain.replace("/announce", "/scrape");
    assert_eq!(reason(&web.get(&scrape).body), "");
    for (outcome, count) in [("token_missing", 2), ("token_expired", 2), ("token_bad_signature", 6)] {
        assert_eq!(refusals(&tracker, "http", outcome), count, "{outcome}");
    }
    assert_eq!(tracker.metric("shoal_token_keys", &[]), 3);
    assert_eq!(tracker.metric("shoal_token_signatures_total", &["outcome=\"bad\""]), 6);
}

fn each_kind_of_token_over_webtorrent(way: Way) {
    let keys = Keys::of_all_issuers();
    let tracker = way.start(&keys.settings(&[]));
    let mine = hex(b't');
    for (token, expected) in kinds(&mine) {
        for target in [format!("/announce?jwt={token}"), format!("/{token}/announce")] {
            // A path has a token only if it has the form of one.
            let expected = if target == "/nonsense/announce" { MISSING } else { expected };
            let mut page = Browser::open_at(way, &tracker, &target);
            let reply = page.ask(&browser::announce('t', 'a', 0));
            assert_eq!(reply["failure reason"].as_str().unwrap_or_default(), expected, "{target}: {reply}");
            assert_eq!(reply["interval"].is_number(), expected.is_empty());
        }
    }
    let bound = ISSUERS[2].token(&claims(&json!({ "infohash": mine })));
    let mut page = Browser::open_at(way, &tracker, &format!("/announce/{bound}"));
    assert_eq!(page.ask(&browser::announce('u', 'a', 0))["failure reason"], WRONG_TORRENT);
    assert!(page.ask(&browser::announce('t', 'a', 0))["interval"].is_number(), "the connection stays");
    let mut page = Browser::open(way, &tracker);
    assert_eq!(page.ask(&browser::announce('t', 'b', 0))["failure reason"], MISSING);
    assert_eq!(refusals(&tracker, "webtorrent", "token_missing"), 2);
}

#[test]
fn a_socket_whose_token_has_expired_gets_no_more_offers() {
    let way = Way::PLAIN;
    let keys = Keys::of_all_issuers();
    let tracker = way.start(&keys.settings(&[]));
    // A token is good for 30 s after its end, so this one is for ten more.
    let token = ISSUERS[2].token(&claims(&json!({ "exp": now_s() - 20 })));
    let mut spent = Browser::open_at(way, &tracker, &format!("/announce/{token}"));
    assert!(spent.ask(&browser::announce('t', 'a', 0))["interval"].is_number());
    let mut other = Browser::open_at(way, &tracker, &format!("/announce/{}", good()));
    assert_eq!(other.ask(&browser::announce('t', 'b', 1))["incomplete"], 2);
    assert!(spent.receive()["offer"].is_object(), "the token is good");
    // A socket of another swarm tells when the clock of the tracker has come so far.
    let mut third = Browser::open_at(way, &tracker, &format!("/announce/{token}"));
    eventually("the token expires", || {
        let reply = third.ask(&browser::announce('u', 'c', 0));
        reply["failure reason"].as_str().map(|reason| assert!(reason.contains("expired"), "{reason}"))
    });
    assert!(other.ask(&browser::announce('t', 'b', 1))["interval"].is_number());
    // A worker passes an offer on after its reply. One that is on its way when the spent socket leaves still arrives.
    other.check();
    spent.check();
    assert_eq!(other.ask(&browser::announce('t', 'b', 0))["incomplete"], 1, "it has left the swarm");
    let refused = spent.ask(&browser::announce('t', 'a', 0));
    let reason = refused["failure reason"].as_str().unwrap_or_default();
    assert!(reason.contains("expired"), "it got an offer instead: {refused}");
}

/// Appends a URL to an announce (BEP 41), in pieces of this size.
pub(crate) fn with_url(mut packet: Vec<u8>, url: &str, piece_bytes: usize) -> Vec<u8> {
    for piece in url.as_bytes().chunks(piece_bytes) {
        packet.extend([2, u8::try_from(piece.len()).unwrap()]);
        packet.extend(piece);
    }
    packet
}

fn each_kind_of_token_over_udp(way: udp::Way) {
    let keys = Keys::of_all_issuers();
    let tracker = way.start(&keys.settings(&[]));
    let client = way.client(&tracker);
    let id = client.connect();
    let ask = |url: &str, piece_bytes| {
        let packet = with_url(Announce::leecher(hash(1), 6881).packet(id, 5), url, piece_bytes);
        let reply = client.ask(&packet);
        if word(&reply, 0) == ERROR { String::from_utf8(reply[8..].to_vec()).unwrap() } else { String::new() }
    };
    for piece_bytes in [255, 64] {
        for (token, expected) in kinds(&hash_text()) {
            assert_eq!(ask(&format!("/announce?jwt={token}"), piece_bytes), expected, "{token}");
        }
        assert_eq!(ask(&format!("/announce/{}", good()), piece_bytes), "");
        assert_eq!(ask(&format!("/{}/announce?x=1", good()), piece_bytes), "");
        assert_eq!(ask("/announce", piece_bytes), MISSING);
    }
    let plain = Announce::leecher(hash(1), 6881);
    assert_eq!(client.refusal(&plain.packet(id, 5)), MISSING);
    assert_eq!(word(&client.ask(&Announce { event: STOPPED, ..plain }.packet(id, 5)), 0), 1);
    assert_eq!(client.scrape(&[hash(1)]).len(), 1);
    assert_eq!(refusals(&tracker, "udp", "token_missing"), 3);
    // Without a connection id, no token is looked at.
    client.send(&with_url(plain.packet(1, 5), &format!("/?jwt={}", good()), 255));
    client.assert_silence("a wrong connection id");
}

#[test]
fn scrapes_need_a_token_if_the_operator_wants_that() {
    let keys = Keys::of_all_issuers();
    let more = [("SHOAL_TOKENS_SCRAPES", "true"), ("SHOAL_HTTP_FULL_SCRAPE", "true")];
    let tracker = Tracker::start(&keys.settings(&more));
    let mut web = Web::connect(tracker.http[0], false);
    let (plain, token) = (announce(hash(1), 1, "").replace("/announce", "/scrape"), good());
    let all = |token: &str| format!("/scrape?jwt={token}");
    assert_eq!(reason(&web.get(&plain).body), MISSING);
    assert_eq!(reason(&web.get("/scrape").body), MISSING);
    assert_eq!(reason(&web.get(&format!("{plain}&jwt={token}")).body), "");
    assert_eq!(reason(&web.get(&plain.replace("/scrape", &format!("/scrape/{token}"))).body), "");
    let bound = ISSUERS[2].token(&claims(&json!({ "infohash": "07".repeat(20) })));
    assert_eq!(reason(&web.get(&format!("{plain}&jwt={bound}")).body), WRONG_TORRENT);
    assert_eq!(reason(&web.get(&all(&bound)).body), WRONG_TORRENT);
    web.send(format!("GET {} HTTP/1.0\r\n\r\n", all(&token)).as_bytes());
    assert!(String::from_utf8_lossy(&web.until_closed().unwrap()).contains("d5:files"));
    let client = Client::new(tracker.udp[0]);
    assert_eq!(client.refusal(&scrape_packet(client.connect(), 5, &[hash(1)])), MISSING);
}

#[test]
fn a_new_set_of_keys_applies_while_the_tracker_runs_and_a_broken_one_changes_nothing() {
    let [old, new] = [Issuer::ed25519("old"), Issuer::es256("new")];
    let keys = Keys::new(&[old.jwk()]);
    let tracker = Tracker::start(&keys.settings(&[]));
    let mut web = Web::connect(tracker.http[0], false);
    let [of_old, of_new] = [&old, &new].map(|issuer| with_token(hash(1), &issuer.token(&claims(&json!({})))));
    let target = format!("/announce?jwt={}", old.token(&claims(&json!({}))));
    let mut page = Browser::open_at(Way::PLAIN, &tracker, &target);
    let mut outcome = |target: &str| reason(&web.get(target).body);
    assert_eq!((&*outcome(&of_old), &*outcome(&of_new)), ("", UNKNOWN_KEY));
    keys.replace(&jwks(&[old.jwk(), new.jwk()]));
    eventually("the new key is known", || outcome(&of_new).is_empty().then_some(()));
    assert_eq!(outcome(&of_old), "");
    for broken in ["garbage", "", "{\"keys\":[]}"] {
        keys.replace(broken);
        tracker.wait_for_line("the keys of tokens cannot be read and stay as they were");
        assert_eq!((outcome(&of_old), outcome(&of_new)), (String::new(), String::new()));
    }
    fs::remove_file(&keys.path).unwrap();
    tracker.wait_for_line("the keys of tokens cannot be read and stay as they were");
    assert_eq!(tracker.metric("shoal_token_keys_faulty", &[]), 1);
    assert!(page.ask(&browser::announce('t', 'a', 0))["interval"].is_number());
    keys.replace(&jwks(&[new.jwk()]));
    eventually("the old key is gone", || (outcome(&of_old) == UNKNOWN_KEY).then_some(()));
    assert_eq!(outcome(&of_new), "");
    assert_eq!(page.ask(&browser::announce('t', 'a', 0))["failure reason"], UNKNOWN_KEY);
    assert_eq!(tracker.metric("shoal_token_keys_faulty", &[]), 0);
    // SIGHUP does not wait for the next look.
    keys.replace("garbage");
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the configuration was read again");
    assert_eq!(outcome(&of_new), "");
}

#[test]
fn a_reload_turns_tokens_on_and_off_and_changes_their_rules() {
    let keys = Keys::of_all_issuers();
    let file = keys.path.with_file_name("shoal.toml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write("");
    let tracker = Tracker::start_with_path(&file, &[]);
    let mut web = Web::connect(tracker.http[0], false);
    let (none, token) = (announce(hash(1), 1, ""), with_token(hash(1), &good()));
    let mut outcome = |target: &str| reason(&web.get(target).body);
    let reload = |text: &str, message: &str| {
        write(text);
        tracker.signal(Signal::SIGHUP);
        tracker.wait_for_line(message);
    };
    assert_eq!((&*outcome(&none), &*outcome(&token)), ("", ""));
    let jwks = format!("[tokens]\njwks = {:?}\n", keys.path);
    let read = "the configuration was read again";
    reload(&format!("{jwks}audience = \"tracker\"\n"), read);
    assert_eq!((&*outcome(&none), &*outcome(&token)), (MISSING, ""));
    reload(&format!("{jwks}audience = \"other\"\n"), read);
    let wrong = "the token in the URL of this tracker is for another service";
    assert_eq!(outcome(&token), wrong, "although it is in the cache");
    reload("[tokens]\njwks = \"/nowhere/jwks.json\"\n", "the configuration stays as it was");
    assert_eq!(outcome(&token), wrong);
    reload(&format!("{jwks}audience = \"tracker\"\nrequired = false\nparameter = \"token\"\n"), read);
    assert_eq!((&*outcome(&none), &*outcome(&token)), ("", ""));
    assert_eq!(
        outcome(&token.replace("&jwt=", "&token=x")),
        "the token in the URL of this tracker is malformed"
    );
    reload("", read);
    assert_eq!((&*outcome(&none), &*outcome(&token.replace("&jwt=", "&jwt=x"))), ("", ""));
}

#[test]
fn keys_that_cannot_be_read_stop_the_start() {
    let refused = |path: &Path| {
        let settings = [("SHOAL_TOKENS_JWKS", path.to_str().unwrap()), ("SHOAL_CONTROL_LISTEN", "")];
        let output = command(&settings).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let none = refused(Path::new("/nowhere/jwks.json"));
    assert!(none.contains("tokens.jwks = \"/nowhere/jwks.json\"") && none.contains("No such file"), "{none}");
    for (text, reason) in [
        ("garbage".to_owned(), "it is not a JWK set"),
        (jwks(&[]), "it has no key that can be used"),
        (jwks(&[json!({ "kty": "oct", "k": "AA" })]), "keys of the type"),
        (" ".repeat(300_000), "it has more than 256 KiB"),
    ] {
        let keys = Keys::new(&[]);
        keys.replace(&text);
        let line = refused(&keys.path);
        assert!(line.contains("tokens.jwks") && line.contains(reason), "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(refused(&fifo).contains("it is not a regular file"));
}

#[test]
fn a_flood_of_wrong_signatures_leaves_known_tokens_alone() {
    let keys = Keys::of_all_issuers();
    let tracker = Tracker::start(&keys.settings(&[]));
    let mut web = Web::connect(tracker.http[0], false);
    let known = with_token(hash(1), &good());
    assert_eq!(reason(&web.get(&known).body), "");
    let header = json!({ "alg": "RS256", "kid": "rsa" });
    let forged = |number: u32| {
        let message = message(&header, &claims(&json!({ "jti": number })));
        with_token(hash(1), &format!("{message}.{}", encode(&[1; 256])))
    };
    let limited = "your address has sent too many tokens with wrong signatures, try again later";
    let replies: Vec<String> = (0..300).map(|number| reason(&web.get(&forged(number)).body)).collect();
    assert!(replies.iter().any(|reply| reply == limited), "{:?}", replies.last());
    assert_eq!(reason(&web.get(&known).body), "");
    let bad = tracker.metric("shoal_token_signatures_total", &["outcome=\"bad\""]);
    let told = replies.iter().filter(|reply| *reply != limited).count() as u64;
    assert_eq!((bad, bad < 300), (told, true));
    let body = web.get(&forged(1000)).body;
    assert!(String::from_utf8_lossy(&body).contains("8:retry ini1e") || !reason(&body).contains("too many"));
}

#[test]
fn keys_come_from_a_url_and_a_server_that_fails_leaves_them_as_they_were() {
    let [old, new] = [Issuer::ed25519("old"), Issuer::es256("new")];
    let [of_old, of_new] = [&old, &new].map(|issuer| with_token(hash(1), &issuer.token(&claims(&json!({})))));
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(reply("ETag: \"1\"\r\n", jwks(&[old.jwk()])));
    let url = server.url("/jwks.json?key=secret");
    let settings = |copies: &str| {
        let folder = folder.path().join(copies).display().to_string();
        let more = [("SHOAL_TOKENS_JWKS", url.clone()), ("SHOAL_FETCH_FOLDER", folder)];
        let fixed =
            [("SHOAL_FETCH_TIMEOUT_S", "1"), ("NO_PROXY", "*")].map(|(name, text)| (name, text.to_owned()));
        more.into_iter().chain(fixed).collect::<Vec<_>>()
    };
    let start = |copies: &str| {
        let settings = settings(copies);
        let settings: Vec<_> = settings.iter().map(|(name, text)| (*name, text.as_str())).collect();
        Tracker::start(&[&settings, &RULES[..]].concat())
    };
    let outcome =
        |tracker: &Tracker, target: &str| reason(&Web::connect(tracker.http[0], false).get(target).body);
    let mut tracker = start("copies");
    assert_eq!((&*outcome(&tracker, &of_old), &*outcome(&tracker, &of_new)), ("", UNKNOWN_KEY));
    let slow = |_: &str, _: &mut std::net::TcpStream| std::thread::sleep(Duration::from_secs(3));
    for fault in [
        reply("", "garbage"),
        reply("", jwks(&[])),
        reply("", " ".repeat(300_000)),
        raw("HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", Some(b"x")),
        raw("HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", None),
        raw("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", None),
        Arc::new(slow),
    ] {
        server.set(fault);
        tracker.signal(Signal::SIGHUP);
        tracker.wait_for_line("the keys of tokens cannot be read and stay as they were");
        assert_eq!(outcome(&tracker, &of_old), "");
    }
    assert_eq!(tracker.metric("shoal_token_keys_faulty", &[]), 1);
    server.set(reply("", jwks(&[new.jwk()])));
    tracker.signal(Signal::SIGHUP);
    eventually("the new keys apply", || outcome(&tracker, &of_new).is_empty().then_some(()));
    assert_eq!(outcome(&tracker, &of_old), UNKNOWN_KEY);
    assert_eq!(tracker.metric("shoal_token_keys_faulty", &[]), 0);
    assert!(!tracker.log().contains("secret"), "{}", tracker.log());
    assert!(tracker.stop().success());
    server.set_away(true);
    let tracker = start("copies");
    assert_eq!(outcome(&tracker, &of_new), "", "by the last good copy");
    let tracker_without_keys = start("others");
    assert_eq!(outcome(&tracker_without_keys, &of_new), UNKNOWN_KEY);
    server.set_away(false);
    tracker_without_keys.signal(Signal::SIGHUP);
    eventually("the server is back", || outcome(&tracker_without_keys, &of_new).is_empty().then_some(()));
    drop(tracker);
}

#[test]
fn a_reload_with_another_url_waits_for_no_fetch_and_back_it_keeps_no_old_keys() {
    let issuers = ["old", "new", "other"].map(Issuer::ed25519);
    let [old, new, other] = &issuers;
    let targets = issuers.each_ref().map(|issuer| with_token(hash(1), &issuer.token(&claims(&json!({})))));
    let folder = tempfile::tempdir().unwrap();
    let (file, copies) = (folder.path().join("shoal.toml"), folder.path().join("copies"));
    let server = TestServer::start(reply("ETag: \"1\"\r\n", jwks(&[old.jwk()])));
    let other_server = TestServer::start(reply("", jwks(&[other.jwk()])));
    let write = |server: &TestServer| {
        let url = server.url("/jwks.json");
        fs::write(
            &file,
            format!("tokens.jwks = {url:?}\nfetch = {{ folder = {copies:?}, timeout_s = 600 }}\n"),
        )
        .unwrap();
    };
    write(&server);
    // The other server has another port, which Landlock would forbid.
    let settings = [("NO_PROXY", "*"), ("SHOAL_PROCESS_LANDLOCK", "false")];
    let tracker = Tracker::start_with_path(&file, &[&settings, &RULES[..]].concat());
    let reload = || {
        tracker.signal(Signal::SIGHUP);
        tracker.wait_for_line("the configuration was read again");
    };
    let served = || {
        targets
            .each_ref()
            .map(|target| reason(&Web::connect(tracker.http[0], false).get(target).body).is_empty())
    };
    assert_eq!(served(), [true, false, false]);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let changed = reply("ETag: \"2\"\r\n", jwks(&[new.jwk()]));
    let unchanged = raw("HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n", None);
    server.set(Arc::new(move |request: &str, stream: &mut std::net::TcpStream| {
        // Until the test drops the other end.
        let _ = held.lock().unwrap().recv();
        let reply = if request.contains("\"2\"") { &unchanged } else { &changed };
        reply(request, stream);
    }));
    let before = server.requests().len();
    reload();
    eventually("the thread waits for the server", || (server.requests().len() > before).then_some(()));
    write(&other_server);
    reload();
    assert_eq!(served(), [false, false, true]);
    write(&server);
    reload();
    assert_eq!(served(), [true, false, false], "by its last good copy");
    drop(release);
    eventually("the new keys apply", || (served() == [false, true, false]).then_some(()));
}

#[test]
fn a_url_of_keys_needs_a_folder() {
    let output = command(&[("SHOAL_TOKENS_JWKS", "http://127.0.0.1:1/jwks.json")]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("fetch.folder"), "{text}");
}
