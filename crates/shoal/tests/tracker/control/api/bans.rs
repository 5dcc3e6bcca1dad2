//! Bans of networks, over every protocol.

use std::fs;

use serde_json::{Value, json};

use super::{ADMIN, Controlled, ask, start_in};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::protocols::announce_over_every_protocol;

const REFUSED: [&str; 3] = ["your network is not served by this tracker"; 3];

/// Waits until the clients of all protocols get this answer. The API answers when the rules are published, and a worker
/// takes them over before its next batch.
fn wait_for(tracker: &Tracker, expected: [&str; 3]) {
    eventually("all protocols follow the bans", || {
        (announce_over_every_protocol(tracker) == expected).then_some(())
    });
}

#[test]
fn a_ban_applies_to_all_protocols_survives_a_restart_and_is_lifted() {
    let mut controlled = Controlled::start(&[]);
    wait_for(&controlled.tracker, [""; 3]);
    let ban = json!({ "network": "127.0.0.1", "reason": "floods", "duration_s": 3600 });
    let set = controlled.admin("POST", "/api/v1/bans", Some(&ban));
    assert_eq!((&set["network"], &set["by"]), (&json!("127.0.0.1/32"), &json!("SHOAL_CONTROL_ADMIN_TOKEN")));
    wait_for(&controlled.tracker, REFUSED);
    let status = controlled.admin("GET", "/api/v1/sources/127.0.0.1", None);
    assert_eq!((&status["network_served"], &status["ban"]), (&json!(false), &set));

    assert_eq!(controlled.tracker.stop().code(), Some(0));
    controlled.tracker = start_in(&controlled.directory, &[]);
    assert_eq!(controlled.admin("GET", "/api/v1/bans", None), json!({ "bans": [set] }));
    wait_for(&controlled.tracker, REFUSED);
    // A reload keeps bans as well.
    controlled.admin("POST", "/api/v1/reload", Some(&json!({})));
    wait_for(&controlled.tracker, REFUSED);

    assert_eq!(controlled.admin("DELETE", "/api/v1/bans/127.0.0.1", None), set);
    wait_for(&controlled.tracker, [""; 3]);
    let gone = controlled.ask("DELETE", "/api/v1/bans/127.0.0.1%2F32", Some(ADMIN), None);
    assert!(gone.status == 404 && gone.body.contains("has no ban"), "{gone:?}");
}

#[test]
fn a_ban_ends_by_itself() {
    let controlled = Controlled::start(&[]);
    let ban = json!({ "network": "127.0.0.0/8", "reason": "", "duration_s": 1 });
    controlled.admin("POST", "/api/v1/bans", Some(&ban));
    wait_for(&controlled.tracker, [""; 3]);
    assert_eq!(controlled.admin("GET", "/api/v1/bans", None), json!({ "bans": [] }));
}

#[test]
fn what_is_no_ban_is_refused() {
    let controlled = Controlled::start(&[]);
    for ban in [
        json!({ "network": "0.0.0.0/0", "reason": "" }),
        json!({ "network": "tracker.example", "reason": "" }),
        json!({ "network": "192.0.2.1" }),
        json!({ "network": "192.0.2.1", "reason": "a\nb" }),
        json!({ "network": "192.0.2.1", "reason": "r".repeat(201) }),
        json!({ "network": "192.0.2.1", "reason": "", "duration_s": 0 }),
        json!({ "network": "192.0.2.1", "reason": "", "duration_s": -1 }),
        json!({ "network": "192.0.2.1", "reason": "", "unknown": 1 }),
    ] {
        let refused = controlled.ask("POST", "/api/v1/bans", Some(ADMIN), Some(&ban));
        assert_eq!(refused.status, 400, "{ban}: {refused:?}");
    }
    assert_eq!(controlled.admin("GET", "/api/v1/bans", None), json!({ "bans": [] }));
    let audit = fs::read_to_string(controlled.path("audit")).unwrap_or_default();
    assert_eq!(audit, "");
    let never_ends = json!({ "network": "192.0.2.1", "reason": "", "duration_s": u64::MAX });
    assert_eq!(controlled.admin("POST", "/api/v1/bans", Some(&never_ends))["until_unix_s"], u64::MAX);
}

#[test]
fn without_a_file_there_are_no_bans() {
    let tracker = Tracker::start(&[("SHOAL_CONTROL_ADMIN_TOKEN", ADMIN)]);
    let ban = json!({ "network": "192.0.2.1", "reason": "floods" });
    let refused = ask(&tracker, "POST", "/api/v1/bans", Some(ADMIN), Some(&ban));
    assert!(refused.status == 409 && refused.body.contains("access.bans_file"), "{refused:?}");
    let bans: Value =
        serde_json::from_str(&ask(&tracker, "GET", "/api/v1/bans", Some(ADMIN), None).body).unwrap();
    assert_eq!(bans, json!({ "bans": [] }));
}
