//! An announce over every protocol, for rules that apply to all of them.

use crate::http::Way;
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client, word};
use crate::kit::harness::Tracker;
use crate::kit::web::{Web, announce};
use crate::udp::hash;

/// Announces a seeder over UDP, HTTP and WebTorrent, from 127.0.0.1. Returns the words of the refusals, which are empty
/// where the announce is served.
pub(crate) fn announce_over_every_protocol(tracker: &Tracker) -> [String; 3] {
    let client = Client::new(tracker.udp[0]);
    let reply = client.ask(&Announce::seeder(hash(1), 1001).packet(client.connect(), 5));
    let udp =
        if word(&reply, 0) == 1 { String::new() } else { String::from_utf8_lossy(&reply[8..]).into_owned() };
    let reply = Web::connect(tracker.http[0], false).get(&announce(hash(1), 1, ""));
    let reply = String::from_utf8_lossy(&reply.body).into_owned();
    let refusal = reply.split_once("14:failure reason").and_then(|(_, rest)| rest.split_once(':'));
    let http = refusal.map_or("", |(length, rest)| &rest[..length.parse().unwrap()]).to_owned();
    let reply = Browser::open(Way::PLAIN, tracker).ask(&browser::announce('t', 'a', 0));
    let webtorrent = reply["failure reason"].as_str().unwrap_or_default().to_owned();
    [udp, http, webtorrent]
}
