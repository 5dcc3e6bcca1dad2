//! The API of the control listener, with real requests.

mod bans;
mod drain;
mod endpoints;
mod pauses;
mod refusals;
mod torrents;

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::harness::{Tracker, run};
use crate::kit::page::{Page, send};
use crate::kit::web::tcp;
use crate::udp::hash;

pub(crate) const READ: &str = "read-token-0123456789";
pub(crate) const ADMIN: &str = "admin-token-0123456789";

/// A tracker with tokens, lists, bans, limits and an audit file.
struct Controlled {
    tracker: Tracker,
    directory: TempDir,
}

impl Controlled {
    fn start(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("deny"), "").unwrap();
        Self { tracker: start_in(&directory, settings), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The answer to a request with a token.
    fn ask(&self, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> Page {
        ask(&self.tracker, method, path, token, body)
    }

    /// The document of a request of an administrator, which succeeds.
    fn admin(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let page = self.ask(method, path, Some(ADMIN), body);
        assert_eq!(page.status, 200, "{method} {path}: {page:?}");
        serde_json::from_str(&page.body).unwrap()
    }

    /// Runs `shoal ctl` as an administrator.
    fn ctl(&self, arguments: &[&str]) -> Output {
        let url = format!("http://{}", self.tracker.control);
        let settings = [("SHOAL_CONTROL_URL", &*url), ("SHOAL_CONTROL_TOKEN", ADMIN)];
        run(&[&["ctl"], arguments].concat(), &settings)
    }
}

fn start_in(directory: &TempDir, settings: &[(&str, &str)]) -> Tracker {
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let config = directory.path().join("shoal.toml");
    let text = format!(
        "[access]\ntorrents_deny = [{:?}]\nbans_file = {:?}\naudit_file = {:?}\n[limits]\npeers_per_source_max = 1000\n",
        path("deny"),
        path("bans"),
        path("audit")
    );
    fs::write(&config, text).unwrap();
    let tokens = [("SHOAL_CONTROL_READ_TOKEN", READ), ("SHOAL_CONTROL_ADMIN_TOKEN", ADMIN)];
    Tracker::start_with_path(&config, &[&tokens[..], settings].concat())
}

pub(crate) fn ask(
    tracker: &Tracker,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> Page {
    send(tracker.control, &request_bytes(method, path, token, body))
}

/// A request with JSON, as it is sent.
fn request_bytes(method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> Vec<u8> {
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let body = body.map_or(String::new(), Value::to_string);
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{token}");
    format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").into()
}

fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap()
}

#[test]
fn lists_are_changed_searched_and_recorded() {
    let controlled = Controlled::start(&[]);
    let [one, two] = [1, 2].map(|byte| format!("{:?}", shoal_base::InfoHash(hash(byte))));
    let addition = json!({ "torrents": [one, two], "reason": "a court order", "reference": "4711" });
    let added = controlled.admin("POST", "/api/v1/lists/deny/add", Some(&addition));
    assert_eq!(added["changed"].as_array().unwrap().len(), 2, "{added}");
    let found = controlled.admin("GET", "/api/v1/lists/deny/torrents?text=COURT", None);
    assert_eq!(found["entries"].as_array().unwrap().len(), 2, "{found}");
    assert_eq!(found["entries"][0]["reason"], "a court order");
    let found = controlled.admin("GET", "/api/v1/lists/deny/torrents?text=else", None);
    assert_eq!(found, json!({ "entries": [], "has_more": false }));
    let found = controlled.admin("GET", &format!("/api/v1/lists/deny/torrents?info_hash={one}"), None);
    assert_eq!(found["entries"][0]["reference"], "4711");
    let sources = controlled.admin("GET", "/api/v1/lists", None);
    assert_eq!(sources["sources"][0]["entries"], 2, "{sources}");
    let removed =
        controlled.admin("POST", "/api/v1/lists/deny/remove", Some(&json!({ "torrents": [one, one] })));
    assert_eq!((&removed["changed"], &removed["unchanged"]), (&json!([one]), &json!([])));
    assert_eq!(controlled.admin("GET", "/api/v1/lists", None)["sources"][0]["entries"], 1);
    let refused =
        controlled.ask("POST", "/api/v1/lists/allow/add", Some(ADMIN), Some(&json!({ "torrents": [one] })));
    assert!(refused.status == 409 && refused.body.contains("access.torrents_allow"), "{refused:?}");
    let audit = fs::read_to_string(controlled.path("audit")).unwrap();
    assert_eq!(audit.lines().count(), 3, "{audit}");
    assert!(
        audit.lines().all(|line| line.contains("token SHOAL_CONTROL_ADMIN_TOKEN at 127.0.0.1")),
        "{audit}"
    );
}

#[test]
fn the_level_of_the_log_and_the_configuration_are_changed() {
    let controlled = Controlled::start(&[]);
    assert_eq!(controlled.admin("GET", "/api/v1/log", None), json!({ "level": "info" }));
    let debug = json!({ "level": "debug" });
    assert_eq!(controlled.admin("PUT", "/api/v1/log", Some(&debug)), debug);
    assert_eq!(controlled.admin("GET", "/api/v1/log", None), debug);
    let refused = controlled.ask("PUT", "/api/v1/log", Some(ADMIN), Some(&json!({ "level": "loud" })));
    assert!(refused.status == 400 && refused.body.contains("trace"), "{refused:?}");
    let reloaded = controlled.admin("POST", "/api/v1/reload", Some(&json!({})));
    assert_eq!(reloaded, json!({ "applied": [], "needs_restart": [] }));
    assert_eq!(controlled.admin("GET", "/api/v1/log", None), json!({ "level": "info" }));
    fs::write(controlled.path("shoal.toml"), "[announce]\ninterval_s = 0\n").unwrap();
    let refused = controlled.ask("POST", "/api/v1/reload", Some(ADMIN), Some(&json!({})));
    assert!(refused.status == 409 && refused.body.contains("announce.interval_s"), "{refused:?}");
    controlled.tracker.wait_for_line("the configuration stays as it was");
}

#[test]
fn bodies_that_are_too_large_too_deep_or_never_end_are_refused() {
    let controlled = Controlled::start(&[]);
    let send_raw = |head: &str, body: &str| {
        let head = format!(
            "PUT /api/v1/log HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n{head}\r\n{body}"
        );
        send(controlled.tracker.control, head.as_bytes())
    };
    let json = "Content-Type: application/json\r\n";
    let sized = |body: &str| send_raw(&format!("{json}Content-Length: {}\r\n", body.len()), body);
    assert_eq!(send_raw(&format!("{json}Content-Length: 1000000\r\n"), "").status, 413);
    let deep = "[".repeat(60_000);
    for body in ["", "null", "[]", "{\"level\":\"info\",\"other\":1}", "{\"level\":", &deep, "\u{feff}{}"] {
        assert_eq!(sized(body).status, 400, "{body:.40}");
    }
    let long = format!("{{\"level\":\"{}\"}}", "i".repeat(60_000));
    let refused = sized(&long);
    assert!(refused.status == 400 && refused.body.len() < 1000, "{}", refused.body.len());
    assert_eq!(send_raw("Content-Type: text/plain\r\nContent-Length: 2\r\n", "{}").status, 415);
    // A chunked body without an end. The tracker answers before it has read all of it, and closes the connection.
    let chunk = format!("{:x}\r\n{}\r\n", 30_000, "x".repeat(30_000));
    let mut stream = tcp(controlled.tracker.control);
    let head = format!(
        "PUT /api/v1/log HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n{json}\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    while stream.write_all(chunk.as_bytes()).is_ok() {}
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(text(&status), "HTTP/1.1 413");
    assert_eq!(send_raw(&format!("{json}Content-Length: 100\r\n"), "{").status, 408);
}

#[test]
fn the_limits_of_one_address_are_told() {
    let controlled = Controlled::start(&[
        ("SHOAL_LIMITS_UDP_REQUESTS_PER_S", "100"),
        ("SHOAL_LIMITS_BURST_S", "60"),
        ("SHOAL_LIMITS_HTTP_REQUESTS_PER_S", "0"),
    ]);
    let client = crate::kit::client::Client::new(controlled.tracker.udp[0]);
    client.announce(&crate::kit::client::Announce::seeder([1; 20], 1001));
    let status = controlled.admin("GET", "/api/v1/sources/127.0.0.1", None);
    assert_eq!((&status["network_served"], &status["exempt"]), (&json!(true), &json!(false)), "{status}");
    assert_eq!((&status["rates"]["udp"], &status["rates"]["http"]), (&json!("partial"), &json!("unlimited")));
    assert_eq!(status["holdings"]["peers"], 1, "{status}");
    assert_eq!(status["holdings"]["peers_max"], 1000, "{status}");
    let other = controlled.admin("GET", "/api/v1/sources/::ffff:192.0.2.1", None);
    assert_eq!((&other["address"], &other["holdings"]["peers"]), (&json!("192.0.2.1"), &json!(0)));
    assert_eq!(controlled.ask("GET", "/api/v1/sources/tracker.example", Some(ADMIN), None).status, 400);
}

#[test]
fn ctl_shows_and_changes_what_the_api_does() {
    let controlled = Controlled::start(&[]);
    let output = controlled.ctl(&["bans"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "no bans\n"));
    let output =
        controlled.ctl(&["bans", "add", "192.0.2.0/24", "--reason", "floods", "--for", "1h", "--json"]);
    let ban: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ban["network"], "192.0.2.0/24", "{ban}");
    assert!(text(&controlled.ctl(&["bans"]).stdout).contains("SHOAL_CONTROL_ADMIN_TOKEN  floods"));
    let lifted = controlled.ctl(&["bans", "remove", "192.0.2.0/24"]);
    assert_eq!(text(&lifted.stdout), "the ban of 192.0.2.0/24 is lifted\n", "{lifted:?}");
    assert_eq!(text(&controlled.ctl(&["drain", "--status"]).stdout), "state: serving\n");
    let output = controlled.ctl(&["bans", "remove", "192.0.2.0/24"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("has no ban"), "{output:?}");
    assert_eq!(text(&controlled.ctl(&["log"]).stdout), "level: info\n");
    assert_eq!(controlled.ctl(&["log", "loud"]).status.code(), Some(2));
    assert!(text(&controlled.ctl(&["lists"]).stdout).contains("access.torrents_deny"));
    assert_eq!(controlled.ctl(&["lists", "search", "--deny"]).status.code(), Some(0));
    let source = controlled.ctl(&["source", "127.0.0.1"]);
    assert!(source.status.success() && text(&source.stdout).contains("\npeers: 0 of 1000\n"), "{source:?}");
    let seeder = crate::kit::client::Announce::seeder([1; 20], 1001);
    crate::kit::client::Client::new(controlled.tracker.udp[0]).announce(&seeder);
    let torrent = controlled.ctl(&["torrent", &"01".repeat(20), "--peers", "3"]);
    assert!(text(&torrent.stdout).contains("\n127.0.0.1:1001  seeder "), "{torrent:?}");
    assert_eq!(controlled.ctl(&["reload"]).status.code(), Some(0));
    assert!(text(&controlled.ctl(&["openapi"]).stdout).contains("\"openapi\""));

    let url = format!("http://{}", controlled.tracker.control);
    let wrong = run(&["ctl", "bans", "--url", &url], &[("SHOAL_CONTROL_TOKEN", "a wrong token")]);
    assert_eq!(wrong.status.code(), Some(5), "{wrong:?}");
    let none = run(&["ctl", "bans", "--url", "http://127.0.0.1:1"], &[]);
    assert!(none.status.code() == Some(1) && text(&none.stderr).contains("no tracker"), "{none:?}");
    assert_eq!(run(&["ctl", "bans", "--url", "tracker.example"], &[]).status.code(), Some(2));
}

#[test]
fn a_made_token_is_accepted_over_tls_with_the_certificate_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = crate::http::self_signed(directory.path(), "localhost");
    let output = run(&["ctl", "token", "--role", "read", "--name", "kim", "--json"], &[]);
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [tokens, token] = ["tokens", "token"].map(|name| directory.path().join(name));
    fs::write(&tokens, format!("{}\n", made["line"].as_str().unwrap())).unwrap();
    let mut file = fs::File::create(&token).unwrap();
    writeln!(file, "{}", made["token"].as_str().unwrap()).unwrap();
    let tracker = Tracker::start(&[
        ("SHOAL_CONTROL_CERTIFICATE", &certificate),
        ("SHOAL_CONTROL_PRIVATE_KEY", &key),
        ("SHOAL_CONTROL_TOKENS", tokens.to_str().unwrap()),
    ]);
    let url = format!("https://localhost:{}", tracker.control.port());
    let ctl = |more: &[&str]| run(&[&["ctl", "log", "--url", &url], more].concat(), &[]);
    let with_token = ["--token-file", token.to_str().unwrap(), "--ca-file", &certificate];
    let output = ctl(&with_token);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "level: info\n"), "{output:?}");
    assert_eq!(ctl(&["--ca-file", &certificate]).status.code(), Some(5));
    assert_eq!(ctl(&["--token-file", token.to_str().unwrap()]).status.code(), Some(1));
    assert_eq!(ctl(&[&["debug"], &with_token[..]].concat()).status.code(), Some(5));
    for name in ["", "two words", "<b>"] {
        assert_eq!(run(&["ctl", "token", "--role", "read", "--name", name], &[]).status.code(), Some(2));
    }
}
