//! Which connection a peer belongs to, and how many peers a connection may have.

use crate::harness::{
    Client, HASH, OTHER_HASH, Tracker, announce, answer, answer_heard, configured, failure, leecher,
    offer_heard, offers, peer_id, policy, relay_settings, reply, seeder, v4, v6,
};
use std::sync::Arc;

use shoal_access::Access;
use shoal_access::networks::{Network, NetworkTable};
use shoal_config::{Config, LimitsConfig, TokensConfig};
use shoal_engine::limits::SourceRates;
use shoal_engine::refusal::Refusal;
use shoal_engine::tokens::{TokenMemory, Tokens};
use shoal_source::{HoldingLimits, Holdings};
use shoal_token::{HashKey, KeySet};

const TAKEN: &str = "another peer of this torrent has this peer_id";
const TOO_MANY: &str = "this connection has as many torrents as this tracker allows";

/// Seconds after which a claim is decided.
const CLAIM_S: u32 = 7;

/// Returns the payloads of the pings that a client must answer.
fn pings(tracker: &mut Tracker, client: &Client) -> Vec<Vec<u8>> {
    tracker.received(client);
    tracker.pings(client)
}

#[test]
fn a_peer_is_not_taken_from_one_that_lives_wherever_the_claimant_is() {
    for (worker, ip) in [(0, v6(2)), (0, v4(1)), (1, v4(1))] {
        let mut tracker = Tracker::of(2, &Config::default(), &relay_settings());
        let (mut owner, mut thief) = (tracker.connect(v4(1)), tracker.connect_to(worker, ip));
        tracker.ask(&mut owner, &seeder(1, ""));
        assert_eq!(tracker.ask(&mut thief, &leecher(1, "")), [""; 0], "the owner is asked first");
        let asked = pings(&mut tracker, &owner);
        assert_eq!(asked, [[HASH.as_bytes(), peer_id(1).as_bytes()].concat()]);
        tracker.pong(&owner, &asked[0]);
        // The holder is challenged once for each claim, and a second claim of the same client does not wait.
        assert_eq!(tracker.ask(&mut thief, &leecher(1, "")), [failure("announce", Some(HASH), TAKEN)]);
        assert_eq!(pings(&mut tracker, &owner).len(), 0);
        tracker.pass(CLAIM_S - 1);
        assert_eq!(tracker.received(&thief), [""; 0]);
        tracker.pass(1);
        assert_eq!(tracker.received(&thief), [""; 0], "it is called first");
        assert_eq!(tracker.decided(&mut thief), [failure("announce", Some(HASH), TAKEN)]);
        assert_eq!(tracker.ask(&mut thief, &leecher(1, r#","event":"stopped""#)), [reply(1, 0)]);
        assert_eq!(tracker.counts(HASH), [1, 0, 0], "nor does it make it leave");
        tracker.leave(thief);
        assert_eq!(tracker.counts(HASH), [1, 0, 0]);
        // In another torrent the peer id is free. Here it becomes free once its owner has disconnected.
        let mut next = tracker.connect(v4(3));
        assert!(!tracker.ask(&mut next, &announce(OTHER_HASH, 1, ""))[0].contains("failure"));
        tracker.leave(owner);
        assert_eq!(tracker.ask(&mut next, &leecher(1, "")), [reply(0, 1)]);
    }
}

#[test]
fn an_announce_is_a_sign_of_life_too_and_a_pong_of_another_is_none() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut owner, mut thief) = (tracker.newcomer(), tracker.newcomer());
    tracker.ask(&mut owner, &leecher(1, ""));
    tracker.say(&mut thief, &leecher(1, ""));
    let asked = pings(&mut tracker, &owner);
    tracker.ask(&mut owner, &leecher(1, ""));
    tracker.pass(CLAIM_S);
    assert_eq!(tracker.decided(&mut thief), [failure("announce", Some(HASH), TAKEN)]);
    // Now the owner is silent, and the claimant cannot answer in its place.
    tracker.say(&mut thief, &leecher(1, ""));
    assert_eq!(pings(&mut tracker, &owner), asked);
    tracker.pong(&thief, &asked[0]);
    tracker.pong(&owner, b"something else");
    tracker.pass(CLAIM_S);
    assert_eq!(tracker.decided(&mut thief), [reply(0, 1)]);
}

#[test]
fn a_client_that_is_back_gets_its_peer_when_its_dead_connection_does_not_answer() {
    for worker in [0, 1] {
        let mut tracker = Tracker::of(2, &Config::default(), &relay_settings());
        let (mut old, mut new) = (tracker.connect(v4(1)), tracker.connect_to(worker, v4(9)));
        let mut other = tracker.connect(v4(2));
        tracker.ask(&mut other, &leecher(2, ""));
        tracker.ask(&mut old, &leecher(1, &format!(r#","offers":{}"#, offers("x", 1))));
        assert_eq!(tracker.received(&other), [offer_heard(1, "x-0")]);
        assert_eq!(tracker.ask(&mut new, &leecher(1, r#","event":"completed""#)), [""; 0]);
        tracker.received(&old);
        tracker.pass(CLAIM_S);
        assert_eq!(tracker.decided(&mut new), [reply(1, 1)], "there is still one of it");
        // The offerer receives the answer over its new connection.
        tracker.say(&mut other, &answer(2, 1, "x-0"));
        assert_eq!(tracker.received(&new), [answer_heard(2, "x-0")]);
        assert_eq!(tracker.received(&old), [""; 0]);
        // The end of the old connection does not affect the peer of the new one.
        tracker.leave(old);
        assert_eq!(tracker.counts(HASH), [1, 1, 1]);
        tracker.leave(new);
        assert_eq!(tracker.counts(HASH), [0, 1, 1]);
    }
}

#[test]
fn a_connection_that_has_not_taken_what_it_was_told_is_not_asked_and_keeps_its_peers() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut owner, mut thief) = (tracker.newcomer(), tracker.newcomer());
    tracker.ask(&mut owner, &leecher(1, ""));
    tracker.set_unsent(&owner, 1000);
    tracker.say(&mut thief, &leecher(1, ""));
    tracker.pass(CLAIM_S);
    assert_eq!(tracker.decided(&mut thief), [failure("announce", Some(HASH), TAKEN)]);
    tracker.set_unsent(&owner, 0);
    assert_eq!(pings(&mut tracker, &owner).len(), 0);
}

#[test]
fn a_challenged_connection_that_is_still_receiving_keeps_its_peer() {
    for is_receiving in [true, false] {
        let mut tracker = Tracker::of(2, &Config::default(), &relay_settings());
        let (mut owner, mut thief) = (tracker.connect(v4(1)), tracker.connect_to(1, v4(9)));
        tracker.ask(&mut owner, &leecher(1, ""));
        tracker.ask(&mut thief, &leecher(1, ""));
        assert_eq!(pings(&mut tracker, &owner).len(), 1);
        tracker.pass(3);
        assert_eq!(tracker.check_suspects(0, is_receiving), 0, "there is still time for a pong");
        tracker.pass(1);
        assert_eq!(tracker.check_suspects(0, is_receiving), 1);
        assert_eq!(tracker.check_suspects(0, is_receiving), 0, "each is checked once");
        tracker.pass(CLAIM_S - 4);
        let expected = if is_receiving { failure("announce", Some(HASH), TAKEN) } else { reply(0, 1) };
        assert_eq!(tracker.decided(&mut thief), [expected]);
    }
}

#[test]
fn a_claim_beyond_a_limit_of_its_source_is_decided_like_any_announce() {
    type Change = fn(&mut LimitsConfig);
    let limit = |limits: &mut LimitsConfig| limits.peers_per_source_max = 1;
    let refused = failure("announce", Some(HASH), "your address has as many peers as this tracker allows");
    let cases: [(Change, String); 3] = [
        (|_| {}, reply(0, 1)),
        (|limits| limits.refuse_excess = true, refused),
        (|limits| limits.exempt = vec!["77.1.0.9/32".parse().unwrap()], reply(0, 2)),
    ];
    for (change, expected) in cases {
        let config = configured(|config| {
            limit(&mut config.limits);
            change(&mut config.limits);
        });
        let limits = HoldingLimits { peers_max: 1, torrents_max: 0 };
        let holdings = Holdings::new(limits, [1, 2]).map(Arc::new);
        let relay = shoal_relay::Settings { holdings, ..relay_settings() };
        let mut tracker = Tracker::of(1, &config, &relay);
        let [mut owner, mut claimant, mut other] = [1, 9, 9].map(|n| tracker.connect(v4(n)));
        tracker.ask(&mut owner, &leecher(1, ""));
        assert_eq!(tracker.ask(&mut claimant, &leecher(1, "")), [""; 0]);
        // Meanwhile, the peer becomes free, and the source of the claimant gets another one.
        tracker.leave(owner);
        assert_eq!(tracker.ask(&mut other, &leecher(2, "")), [reply(0, 1)]);
        tracker.pass(CLAIM_S);
        assert_eq!(tracker.decided(&mut claimant), [expected]);
    }
}

#[test]
fn a_claim_is_decided_by_the_rules_of_that_time() {
    let before = policy(&configured(|config| config.webtorrent.interval_jitter_s = 0));
    let networks = NetworkTable::new(None, &[Network::new(v4(9), 32).unwrap()]);
    let networks =
        before.clone().with_access(Access { networks: Some(Arc::new(networks)), ..Access::default() });
    let memory = Arc::new(TokenMemory::new(HashKey::new(&[0; HashKey::BYTES]), 1 << 20));
    let rates = Arc::new(SourceRates::new([1, 2, 3, 4]));
    let tokens = Tokens::new(&TokensConfig::default(), KeySet::default(), 1, memory, rates);
    let tokens = before.clone().with_tokens(Some(tokens));
    let missing = "this tracker needs a token in its URL, and yours has none";
    for (after, refusal) in
        [(before, None), (networks, Some(Refusal::NetworkDenied.message())), (tokens, Some(missing))]
    {
        let mut tracker = Tracker::new(&Config::default());
        let [mut owner, mut claimant] = [1, 9].map(|n| tracker.connect(v4(n)));
        tracker.ask(&mut owner, &leecher(1, ""));
        assert_eq!(tracker.ask(&mut claimant, &leecher(1, "")), [""; 0]);
        tracker.leave(owner);
        tracker.set_policy(after);
        tracker.pass(CLAIM_S);
        let expected = refusal.map_or_else(|| reply(0, 1), |reason| failure("announce", Some(HASH), reason));
        assert_eq!(tracker.decided(&mut claimant), [expected]);
        assert_eq!(tracker.counts(HASH), [0, u32::from(refusal.is_none()), 0]);
    }
}

#[test]
fn claims_are_bounded_and_go_with_their_connection() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut owner, mut thief) = (tracker.newcomer(), tracker.newcomer());
    let refused = failure("announce", Some(HASH), TAKEN);
    for n in 0..20 {
        tracker.ask(&mut owner, &leecher(n, ""));
        let expected = if n < 16 { vec![] } else { vec![refused.clone()] };
        assert_eq!(tracker.ask(&mut thief, &leecher(n, "")), expected);
    }
    tracker.leave(thief);
    let mut next = tracker.newcomer();
    tracker.pass(CLAIM_S);
    assert_eq!(tracker.decided(&mut next), [""; 0]);
    // Peers of unanswered challenges are now handed over at once.
    assert_eq!(tracker.ask(&mut next, &leecher(3, "")), [reply(0, 20)]);
    assert_eq!(tracker.ask(&mut next, &leecher(18, "")), [""; 0]);
    let mut thieves: Vec<_> = (0..100).map(|_| tracker.newcomer()).collect();
    let waiting = thieves.iter_mut().flat_map(|thief| {
        (0..20).map(|n| tracker.ask(thief, &leecher(n, "")).is_empty()).collect::<Vec<_>>()
    });
    assert!(waiting.filter(|waits| *waits).count() <= 1024);
}

#[test]
fn a_source_of_many_claims_leaves_room_for_those_of_others() {
    let mut tracker = Tracker::new(&Config::default());
    let mut owner = tracker.connect(v4(1));
    for n in 0..17 {
        tracker.ask(&mut owner, &leecher(n, ""));
    }
    let mut thieves: Vec<_> = (0..70).map(|_| tracker.connect(v4(66))).collect();
    let waiting = |tracker: &mut Tracker, thieves: &mut [Client]| {
        let mut waiting = 0;
        for thief in thieves {
            waiting += (0..16).filter(|n| tracker.ask(thief, &leecher(*n, "")).is_empty()).count();
        }
        waiting
    };
    assert_eq!(waiting(&mut tracker, &mut thieves), 64);
    let mut honest = tracker.connect(v4(7));
    assert_eq!(tracker.ask(&mut honest, &leecher(16, "")), [""; 0], "it waits");
    // Claims count until they are due, even if their connections have closed: otherwise, connections that come and go
    // could cause any number of challenges.
    for thief in thieves.drain(..2) {
        tracker.leave(thief);
    }
    assert_eq!(waiting(&mut tracker, &mut thieves), 0);
    tracker.pass(CLAIM_S);
    for thief in &mut thieves {
        tracker.decided(thief);
    }
    let mut thieves: Vec<_> = (0..70).map(|_| tracker.connect(v4(66))).collect();
    owner = tracker.connect(v4(2));
    for n in 100..116 {
        tracker.ask(&mut owner, &leecher(n, ""));
    }
    let again = thieves
        .iter_mut()
        .map(|thief| (100..116).filter(|n| tracker.ask(thief, &leecher(*n, "")).is_empty()).count());
    assert_eq!(again.sum::<usize>(), 64);
}

#[test]
fn one_socket_may_carry_several_peers_and_torrents() {
    let mut tracker = Tracker::new(&Config::default());
    let (mut socket, mut other) = (tracker.newcomer(), tracker.newcomer());
    for n in 1..4 {
        tracker.say(&mut socket, &leecher(n, ""));
        tracker.say(&mut socket, &announce(OTHER_HASH, n, ""));
    }
    tracker.received(&socket);
    assert_eq!((tracker.counts(HASH), tracker.counts(OTHER_HASH)), ([0, 3, 0], [0, 3, 0]));
    tracker.ask(&mut other, &leecher(9, &format!(r#","offers":{}"#, offers("x", 9))));
    assert_eq!(tracker.received(&socket).len(), 3, "an offer for each of its peers");
    tracker.say(&mut socket, &leecher(2, r#","event":"stopped""#));
    assert_eq!(tracker.counts(HASH), [0, 3, 0], "the other two, and the other one");
    tracker.leave(socket);
    assert_eq!((tracker.counts(HASH), tracker.counts(OTHER_HASH)), ([0, 1, 0], [0, 0, 0]));
}

#[test]
fn a_socket_has_no_more_peers_than_the_operator_allows() {
    let settings = configured(|config| config.webtorrent.torrents_per_connection_max = 2);
    let mut tracker = Tracker::new(&settings);
    let mut client = tracker.newcomer();
    tracker.ask(&mut client, &leecher(1, ""));
    tracker.ask(&mut client, &announce(OTHER_HASH, 1, ""));
    let refused = || failure("announce", Some(HASH), TOO_MANY);
    assert_eq!(tracker.ask(&mut client, &leecher(2, "")), [refused()]);
    assert_eq!(tracker.ask(&mut client, &leecher(1, "")), [reply(0, 1)], "those that it has are served");
    tracker.ask(&mut client, &announce(OTHER_HASH, 1, r#""event":"stopped""#));
    assert_eq!(tracker.ask(&mut client, &leecher(2, "")), [reply(0, 2)], "one that leaves makes room");
    assert_eq!(tracker.ask(&mut client, &leecher(3, "")), [refused()]);
    // Peers that were removed for silence make room as well, and so do peers that were taken over.
    tracker.pass(1000);
    assert_eq!(tracker.ask(&mut client, &leecher(3, "")), [reply(0, 1)]);
    assert_eq!(tracker.ask(&mut client, &leecher(4, "")), [reply(0, 2)]);
    assert_eq!(tracker.ask(&mut client, &leecher(5, "")), [refused()]);
}

#[test]
fn one_that_leaves_makes_room_although_it_was_forgotten_before() {
    let settings = configured(|config| config.webtorrent.torrents_per_connection_max = 200);
    let mut tracker = Tracker::new(&settings);
    let mut client = tracker.newcomer();
    (1..=200).for_each(|n| drop(tracker.ask(&mut client, &leecher(n, ""))));
    for _ in 0..4 {
        tracker.pass(300);
        (2..=200).for_each(|n| drop(tracker.ask(&mut client, &leecher(n, ""))));
    }
    assert_eq!(tracker.counts(HASH), [0, 199, 0]);
    tracker.ask(&mut client, &leecher(1, r#","event":"stopped""#));
    assert_eq!(tracker.ask(&mut client, &leecher(201, "")), [reply(0, 200)]);
}

#[test]
fn a_takeover_counts_as_one_more_of_the_socket() {
    let settings = configured(|config| config.webtorrent.torrents_per_connection_max = 1);
    let mut tracker = Tracker::new(&settings);
    let (mut old, mut new) = (tracker.connect(v4(1)), tracker.connect(v4(1)));
    tracker.ask(&mut old, &leecher(1, ""));
    tracker.ask(&mut new, &leecher(2, ""));
    tracker.say(&mut new, &leecher(1, ""));
    tracker.pass(CLAIM_S);
    assert_eq!(tracker.decided(&mut new), [failure("announce", Some(HASH), TOO_MANY)]);
    tracker.ask(&mut new, &leecher(2, r#","event":"stopped""#));
    assert_eq!(tracker.ask(&mut new, &leecher(1, "")), [reply(0, 1)]);
    // The old one has lost its only peer.
    assert_eq!(tracker.ask(&mut old, &leecher(3, "")), [reply(0, 2)]);
}
