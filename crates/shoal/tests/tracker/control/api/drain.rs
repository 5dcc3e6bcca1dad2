//! Drain, over every protocol.

use serde_json::json;

use super::{ADMIN, Controlled};
use crate::http::Way;
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, STOPPED};
use crate::kit::harness::{PATIENCE, eventually};
use crate::kit::protocols::announce_over_every_protocol;
use crate::udp::hash;

const REFUSED: [&str; 3] = ["this tracker is about to stop, try again in a minute"; 3];

#[test]
fn a_tracker_that_drains_refuses_announces_of_all_protocols_until_it_is_cancelled() {
    let controlled = Controlled::start(&[]);
    let tracker = &controlled.tracker;
    assert_eq!(announce_over_every_protocol(tracker), [""; 3]);
    assert_eq!(controlled.admin("GET", "/api/v1/drain", None)["state"], "serving");
    let stay = json!({ "wait_s": 3600, "then": "stay" });
    let status = controlled.admin("PUT", "/api/v1/drain", Some(&stay));
    assert_eq!((&status["state"], &status["then"]), (&json!("draining"), &json!("stay")), "{status}");
    let refused = || (announce_over_every_protocol(tracker) == REFUSED).then_some(());
    eventually("announces of all protocols are refused", refused);
    // A reload does not end it.
    controlled.admin("POST", "/api/v1/reload", Some(&json!({})));
    eventually("announces of all protocols are refused", refused);
    // Peers can leave, counts can be read, and nothing restarts the tracker.
    let client = Client::new(tracker.udp[0]);
    assert_eq!(client.scrape(&[hash(1)])[0].seeders, 1);
    client.announce(&Announce { event: STOPPED, ..Announce::seeder(hash(1), 1001) });
    assert_eq!(client.scrape(&[hash(1)])[0].seeders, 0);
    assert_eq!((tracker.page("/health").status, tracker.page("/health/ready").status), (200, 503));
    // It has drained when the time is over.
    controlled.admin("PUT", "/api/v1/drain", Some(&json!({ "wait_s": 0, "then": "stay" })));
    assert_eq!(controlled.admin("GET", "/api/v1/drain", None)["state"], "drained");
    assert_eq!(controlled.admin("DELETE", "/api/v1/drain", None)["state"], "serving");
    assert_eq!(tracker.page("/health/ready").status, 200);
    eventually("announces are served again", || {
        (announce_over_every_protocol(tracker) == [""; 3]).then_some(())
    });
}

#[test]
fn an_open_websocket_is_closed_after_its_refused_announce_so_that_its_client_goes_elsewhere() {
    let controlled = Controlled::start(&[]);
    let [mut announcing, mut leaving, mut idle] = ['a', 'b', 'c'].map(|peer| {
        let mut browser = Browser::open(Way::PLAIN, &controlled.tracker);
        assert!(browser.ask(&browser::announce('t', peer, 0))["interval"].is_u64());
        browser
    });
    controlled.admin("PUT", "/api/v1/drain", Some(&json!({ "wait_s": 3600, "then": "stay" })));
    eventually("announces are refused", || {
        (announce_over_every_protocol(&controlled.tracker) == REFUSED).then_some(())
    });
    let refused = announcing.ask(&browser::announce('t', 'a', 0));
    assert_eq!(refused["failure reason"], REFUSED[0], "{refused}");
    assert_eq!(announcing.close_code(), Some(1012));
    // A peer that leaves, and one that asks for nothing, keep their connections.
    let mut stopped = browser::announce('t', 'b', 0);
    stopped["event"] = json!("stopped");
    assert!(leaving.ask(&stopped)["interval"].is_u64());
    leaving.check();
    idle.check();
}

#[test]
fn a_tracker_that_has_drained_ends() {
    let mut controlled = Controlled::start(&[]);
    let output = controlled.ctl(&["drain", "--wait", "0s"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(controlled.tracker.wait(PATIENCE).code(), Some(0));
}

#[test]
fn a_drain_that_lasts_too_long_is_refused() {
    let controlled = Controlled::start(&[]);
    for body in [json!({ "wait_s": 86_401 }), json!({ "wait_s": -1 }), json!({ "then": "explode" })] {
        assert_eq!(controlled.ask("PUT", "/api/v1/drain", Some(ADMIN), Some(&body)).status, 400, "{body}");
    }
    assert_eq!(controlled.admin("GET", "/api/v1/drain", None)["state"], "serving");
}
