//! Rules about networks and clients.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::http::{Way, over_every_way};
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, STOPPED, word};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::{Web, announce};
use crate::udp::hash;

over_every_way!(a_denied_network_is_refused_over_http_and_webtorrent);

const NETWORK_REFUSED: &str = "your network is not served by this tracker";

/// Writes a file of a list and returns its path.
fn list(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn body(web: &mut Web, target: &str) -> String {
    String::from_utf8_lossy(&web.get(target).body).into_owned()
}

fn a_denied_network_is_refused_over_http_and_webtorrent(way: Way) {
    let directory = tempfile::tempdir().unwrap();
    let text = if way.is_v6() { "::1\n" } else { "# this host\nhome:127.0.0.0-127.0.0.7\n" };
    let deny = list(directory.path(), "deny", text);
    let tracker = way.start(&[("SHOAL_ACCESS_NETWORKS_DENY", &deny)]);
    let mut web = way.connect(&tracker);
    assert!(body(&mut web, &announce(hash(1), 1, "")).contains(NETWORK_REFUSED));
    let scrape = announce(hash(1), 1, "").replace("/announce", "/scrape");
    assert!(body(&mut web, &scrape).contains(NETWORK_REFUSED));
    let mut page = Browser::open(way, &tracker);
    assert_eq!(page.ask(&browser::announce('t', 'a', 0))["failure reason"], NETWORK_REFUSED);
    let mut other = way.over_other_family().connect(&tracker);
    assert!(!body(&mut other, &announce(hash(1), 1, "")).contains("failure"));
    let labels = ["protocol=\"http\"", "outcome=\"network_denied\""];
    assert_eq!(tracker.metric("shoal_replies_total", &labels), 2);
}

#[test]
fn networks_hold_over_udp_and_follow_their_files() {
    let directory = tempfile::tempdir().unwrap();
    let deny = list(directory.path(), "deny", "127.0.0.9\n::1/128 ; a remark\n");
    let allow = list(directory.path(), "allow", "127.0.0.0/8\n");
    let tracker =
        Tracker::start(&[("SHOAL_ACCESS_NETWORKS_DENY", &deny), ("SHOAL_ACCESS_NETWORKS_ALLOW", &allow)]);
    let [served, denied] =
        ["127.0.0.8", "127.0.0.9"].map(|ip| Client::from_ip(ip.parse().unwrap(), tracker.udp[0]));
    let packet = |client: &Client| Announce::leecher(hash(1), 6881).packet(client.connect(), 5);
    assert_eq!(served.announce(&Announce::leecher(hash(1), 6881)).leechers, 1);
    for client in [&denied, &Client::new(tracker.udp[1])] {
        assert_eq!(client.refusal(&packet(client)), NETWORK_REFUSED);
    }
    let replace = |text: &str| fs::rename(list(directory.path(), "new", text), &deny).unwrap();
    replace("127.0.0.8\n");
    eventually("the list is followed", || (word(&denied.ask(&packet(&denied)), 0) == 1).then_some(()));
    assert_eq!(served.refusal(&packet(&served)), NETWORK_REFUSED);
    // A broken list changes nothing.
    replace("127.0.0.9\ngarbage\n");
    let line = tracker.wait_for_line("a list cannot be read and keeps its entries");
    assert!(line["error"].as_str().unwrap().contains("; line 2:"), "{line}");
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the configuration was read again");
    assert_eq!(served.refusal(&packet(&served)), NETWORK_REFUSED);
    assert_eq!(word(&denied.ask(&packet(&denied)), 0), 1);
}

#[test]
fn a_peer_of_a_client_that_becomes_denied_can_leave() {
    let directory = tempfile::tempdir().unwrap();
    let file = list(directory.path(), "shoal.toml", "");
    let tracker = Tracker::start_with_path(Path::new(&file), &[]);
    let client = Client::new(tracker.udp[0]);
    let peer = Announce::leecher(hash(1), 6881);
    assert_eq!(client.announce(&peer).leechers, 1);
    fs::write(&file, "[access]\nclients_deny = [\"-XX\"]\n").unwrap();
    tracker.signal(Signal::SIGHUP);
    let packet = peer.packet(client.connect(), 5);
    eventually("the client is denied", || (word(&client.ask(&packet), 0) == 3).then_some(()));
    assert_eq!(client.announce(&Announce { event: STOPPED, ..peer }).leechers, 0);
}
