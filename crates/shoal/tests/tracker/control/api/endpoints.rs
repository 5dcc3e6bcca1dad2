//! Every endpoint that the OpenAPI document describes, with every kind of token.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{ADMIN, Controlled, READ, request_bytes};
use crate::kit::harness::Tracker;
use crate::kit::page::{Page, begin, send};

/// An endpoint of the document.
struct Endpoint {
    method: String,
    path: String,
    /// `none`, `read` or `admin`.
    role: String,
    statuses: Vec<u16>,
    /// Whether a reply with the requested result has no end.
    is_stream: bool,
}

fn document() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns all endpoints of the document. Every one names its role, or says by an empty requirement that it needs none.
fn endpoints() -> Vec<Endpoint> {
    let document = document();
    let mut endpoints = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let need = &operation["security"][0];
            let role = if *need == json!({}) { Some("none") } else { need["token"][0].as_str() };
            let role = role.unwrap_or_else(|| panic!("{method} {path} names no role"));
            let statuses = operation["responses"].as_object().unwrap().keys();
            endpoints.push(Endpoint {
                method: method.to_uppercase(),
                path: path.clone(),
                role: role.to_owned(),
                statuses: statuses.map(|status| status.parse().unwrap()).collect(),
                is_stream: operation["responses"]["200"]["content"].get("text/event-stream").is_some(),
            });
        }
    }
    assert!(endpoints.len() >= 29, "the document lacks endpoints");
    endpoints
}

impl Endpoint {
    /// Returns its path for a resource that may exist, with a valid value of each parameter.
    fn target(&self) -> String {
        let values = [
            ("{key}", "announce.interval_s"),
            ("{network}", "192.0.2.0%2F24"),
            ("{list}", "deny"),
            ("{address}", "192.0.2.1"),
            ("{info_hash}", "0101010101010101010101010101010101010101"),
        ];
        let path = values.iter().fold(self.path.clone(), |path, (name, value)| path.replace(name, value));
        assert!(!path.contains('{'), "{path}: this test lacks a value for a parameter");
        path
    }

    /// Returns a body that the endpoint accepts, and that leaves the tracker running.
    fn body(&self) -> Option<Value> {
        let torrents = json!(["0101010101010101010101010101010101010101"]);
        Some(match (&*self.method, &*self.path) {
            ("POST", "/api/v1/bans") => json!({ "network": "192.0.2.0/24", "reason": "a test" }),
            ("POST", "/api/v1/pauses") => json!({ "reason": "a test" }),
            ("PUT", "/api/v1/drain") => json!({ "wait_s": 3600, "then": "stay" }),
            ("POST", "/api/v1/lists/{list}/add" | "/api/v1/lists/{list}/remove") => {
                json!({ "torrents": torrents })
            }
            ("POST", "/api/v1/torrents") => json!({ "info_hashes": torrents }),
            ("PUT", "/api/v1/cluster/values/{key}") => json!({ "value": "900" }),
            ("PUT", "/api/v1/log") => json!({ "level": "info" }),
            (
                "POST",
                "/api/v1/pauses/resume"
                | "/api/v1/reload"
                | "/access/reload"
                | "/api/v1/snapshot"
                | "/api/v1/upgrade",
            ) => {
                json!({})
            }
            ("GET" | "DELETE", _) => return None,
            (method, path) => panic!("{method} {path}: this test lacks a body"),
        })
    }

    /// Returns the reply to a request with a token: its head, and its body unless that does not end.
    fn reply(&self, tracker: &Tracker, token: Option<&str>) -> Page {
        let request = request_bytes(&self.method, &self.target(), token, self.body().as_ref());
        if self.is_stream { begin(tracker.control, &request) } else { send(tracker.control, &request) }
    }

    fn status(&self, tracker: &Tracker, token: Option<&str>) -> u16 {
        self.reply(tracker, token).status
    }
}

#[test]
fn every_endpoint_answers_its_role_and_refuses_all_others() {
    let controlled = Controlled::start(&[]);
    let tracker = &controlled.tracker;
    for endpoint in endpoints() {
        let name = format!("{} {}", endpoint.method, endpoint.path);
        if endpoint.role == "none" {
            for token in [None, Some("x"), Some(READ), Some(ADMIN)] {
                let status = endpoint.status(tracker, token);
                assert!(endpoint.statuses.contains(&status), "{name} with {token:?}: {status}");
            }
            continue;
        }
        assert_eq!(endpoint.status(tracker, None), 401, "{name} without a token");
        for wrong in ["", "x", &ADMIN[1..], &format!("{ADMIN}x")] {
            // Wrong tokens in this number are limited, which is as good.
            let status = endpoint.status(tracker, Some(wrong));
            assert!(matches!(status, 401 | 429), "{name} with a wrong token: {status}");
        }
        let (read, admin) = (endpoint.status(tracker, Some(READ)), endpoint.status(tracker, Some(ADMIN)));
        match &*endpoint.role {
            "read" => assert!(endpoint.statuses.contains(&read), "{name} with the role read: {read}"),
            "admin" => assert_eq!(read, 403, "{name} with the role read"),
            other => panic!("{name} has the unknown role {other}"),
        }
        assert!(endpoint.statuses.contains(&admin) && admin < 500, "{name} with the role admin: {admin}");
        if endpoint.path.ends_with("/upgrade") {
            // The old process may take a connection without a request to its end.
            tracker.wait_for_line("the old process has ended");
        }
    }
}

/// Without tokens, everything can be read, and nothing can be changed.
#[test]
fn without_tokens_endpoints_of_the_role_admin_say_how_to_get_one() {
    let tracker = Tracker::start(&[]);
    for endpoint in endpoints() {
        let page = endpoint.reply(&tracker, None);
        let name = format!("{} {}: {page:?}", endpoint.method, endpoint.path);
        match &*endpoint.role {
            // The operator has written into files what this applies.
            _ if endpoint.path == "/access/reload" => assert_eq!(page.status, 200, "{name}"),
            "none" | "read" => {
                assert!(endpoint.statuses.contains(&page.status) && page.status < 500, "{name}");
            }
            _ => assert!(page.status == 403 && page.body.contains("shoal ctl token"), "{name}"),
        }
    }
}

#[test]
fn the_document_is_served() {
    let tracker = Tracker::start(&[]);
    let page = tracker.page("/api/v1/openapi.json");
    assert_eq!(page.status, 200);
    assert_eq!(serde_json::from_str::<Value>(&page.body).unwrap(), document());
}
