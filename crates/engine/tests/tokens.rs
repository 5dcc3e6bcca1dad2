//! Which clients are served with which tokens, at the price of how many signatures.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use shoal_access::rules::HeaderMatch;
use shoal_access::token::{HashKey, KeySet, Url};
use shoal_base::{Event, InfoHash};
use shoal_config::{Config, TokensConfig};
use shoal_engine::Now;
use shoal_engine::limits::SourceRates;
use shoal_engine::pace::Pace;
use shoal_engine::policy::{Policy, Protocol, Request, ScrapeRequest, Torrents};
use shoal_engine::refusal::Refusal;
use shoal_engine::tokens::{Shown, SocketToken, TokenMemory, Tokens};
use shoal_engine::watch::{Cause, Watch};
use shoal_testkit::tokens::{Issuer, encode, jwks, message};
use shoal_wire::udp::Options;

const NOW_S: u64 = 1_800_000_000;
const HASH: InfoHash = InfoHash([1; 20]);
const OTHER: InfoHash = InfoHash([2; 20]);

static ISSUER: LazyLock<Issuer> = LazyLock::new(|| Issuer::ed25519("ed"));

fn at(seconds: u64) -> Now {
    let monotonic_s = 1000 + u32::try_from(seconds).unwrap();
    Now { monotonic_s, monotonic_ms: 1000 * u64::from(monotonic_s), unix_s: NOW_S + seconds }
}

fn ip(number: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, number])
}

/// Returns a policy with changes to the default rules about tokens, and a number of signatures for each second.
fn policy(signatures_per_s: u32, change: impl FnOnce(&mut TokensConfig)) -> Policy {
    let mut config = Config::default();
    config.http.full_scrape = true;
    change(&mut config.tokens);
    let keys = KeySet::parse(jwks(&[ISSUER.jwk()]).as_bytes()).unwrap();
    let keys = keys.following(None, &mut Default::default());
    let mut random = [0; HashKey::BYTES];
    fastrand::Rng::with_seed(1).fill(&mut random);
    let memory = Arc::new(TokenMemory::new(HashKey::new(&random), 1 << 20));
    let sources = Arc::new(SourceRates::new([1, 2, 3, 4]));
    let tokens = Tokens::new(&config.tokens, keys, signatures_per_s, memory, sources);
    Policy::new(config).with_tokens(Some(tokens))
}

fn usual() -> Policy {
    policy(10_000, |_| {})
}

/// Returns a token that differs from others by its number.
fn token(number: u64) -> String {
    ISSUER.token(&json!({ "exp": NOW_S + 60, "jti": number.to_string() }))
}

/// Returns a token with a wrong signature.
fn forged(number: u64) -> String {
    let header = json!({ "alg": "EdDSA", "kid": "ed" });
    let message = message(&header, &json!({ "exp": NOW_S + 86_400, "jti": number }));
    format!("{message}.{}", encode(&[7; 64]))
}

fn bound(torrents: &[InfoHash]) -> String {
    let torrents: Vec<String> = torrents.iter().map(|info_hash| format!("{info_hash:?}")).collect();
    ISSUER.token(&json!({ "exp": NOW_S + 60, "infohash": torrents }))
}

fn announce(
    policy: &Policy,
    ip: IpAddr,
    info_hash: &InfoHash,
    shown: Shown<'_>,
    now: Now,
) -> Result<(), Refusal> {
    let request = Request { shown, port: Some(1), ..Request::new(Protocol::Http, ip, info_hash) };
    policy.admit(&request, now).map(|_| ()).map_err(|refused| refused.refusal)
}

/// Announces with a token in the query.
fn with(policy: &Policy, number: u8, token: &str, now: Now) -> Result<(), Refusal> {
    let query = format!("jwt={token}");
    let url = Url { path: b"/announce", query: query.as_bytes() };
    announce(policy, ip(number), &HASH, Shown::Url(url), now)
}

/// Returns the number of signatures that were verified so far, good and bad.
fn signatures(policy: &Policy) -> [u64; 2] {
    let memory = policy.tokens().unwrap().memory();
    [memory.good_signatures(), memory.bad_signatures()]
}

#[test]
fn a_token_is_verified_once_for_all_torrents_and_clients() {
    let policy = usual();
    let token = token(1);
    for number in 1..100 {
        assert_eq!(with(&policy, number, &token, at(0)), Ok(()));
    }
    assert_eq!(signatures(&policy), [1, 0]);
}

#[test]
fn without_a_token_a_client_may_only_leave() {
    let required = usual();
    let optional = policy(1000, |tokens| tokens.required = false);
    for protocol in Protocol::ALL {
        let request = Request { port: Some(1), ..Request::new(protocol, ip(1), &HASH) };
        let outcome = |policy: &Policy, event| {
            policy.admit(&Request { event, ..request }, at(0)).map(|_| ()).map_err(|refused| refused.refusal)
        };
        assert_eq!(outcome(&required, Event::Started), Err(Refusal::TokenMissing));
        assert_eq!(outcome(&required, Event::Stopped), Ok(()));
        assert_eq!(outcome(&optional, Event::Started), Ok(()));
    }
    assert_eq!(with(&optional, 1, &forged(1), at(0)), Err(Refusal::TokenBadSignature));
}

#[test]
fn udp_clients_repeat_their_url_in_pieces() {
    let policy = usual();
    let urls = [
        format!("/announce?jwt={}", token(1)),
        format!("/announce?x={}&jwt={}", "y".repeat(600), token(1)),
        format!("/announce/{}", token(1)),
        format!("/{}/announce?x=1", token(1)),
    ];
    for (url, piece_bytes) in urls.iter().flat_map(|url| [1, 2, 100, 254, 255].map(|bytes| (url, bytes))) {
        let mut options = vec![1, 3, 1, 0xff];
        for piece in url.as_bytes().chunks(piece_bytes) {
            options.extend([2, u8::try_from(piece.len()).unwrap()]);
            options.extend(piece);
        }
        options.push(0);
        let shown = Shown::Options(Options::new(&options));
        assert_eq!(announce(&policy, ip(1), &HASH, shown, at(0)), Ok(()), "{piece_bytes}: {url}");
    }
    assert_eq!(signatures(&policy), [1, 0]);
    for (options, refusal) in [
        (&b""[..], Refusal::TokenMissing),
        (b"\x02\x09/announce\x00", Refusal::TokenMissing),
        (b"\x02\x04?jwt\x02\x04=a.b\x02\x02.c", Refusal::TokenMalformed),
        (b"\x00\x02\x08?jwt=abc", Refusal::TokenMissing),
    ] {
        let shown = Shown::Options(Options::new(options));
        assert_eq!(announce(&policy, ip(1), &HASH, shown, at(0)), Err(refusal), "{options:?}");
    }
    let long: Vec<u8> = [2, 255].into_iter().chain([b'?'; 255]).collect::<Vec<u8>>().repeat(20);
    let shown = Shown::Options(Options::new(&long));
    assert_eq!(announce(&policy, ip(1), &HASH, shown, at(0)), Err(Refusal::TokenMalformed));
}

#[test]
fn a_verified_token_ends_when_it_expires_or_its_key_is_removed() {
    let policy = usual();
    let token = token(1);
    assert_eq!(with(&policy, 1, &token, at(0)), Ok(()));
    assert_eq!(with(&policy, 1, &token, at(89)), Ok(()), "a leeway of 30 s");
    assert_eq!(with(&policy, 1, &token, at(90)), Err(Refusal::TokenExpired));
    let other = KeySet::parse(jwks(&[Issuer::ed25519("ed").jwk()]).as_bytes()).unwrap();
    let tokens = policy.tokens().unwrap();
    let mut last = Default::default();
    let known = tokens.keys().clone().following(None, &mut last);
    let other = other.following(Some(&known), &mut last);
    let changed = policy.clone().with_tokens(Some(tokens.with_keys(other)));
    assert_eq!(with(&changed, 1, &token, at(0)), Err(Refusal::TokenBadSignature));
    assert_eq!(with(&policy, 1, &token, at(0)), Ok(()), "the other policy still has the key");
    assert_eq!(signatures(&policy), [1, 1]);
}

#[test]
fn a_token_is_good_for_its_own_torrents() {
    let policy = usual();
    let token = bound(&[HASH, InfoHash([9; 20])]);
    let query = format!("jwt={token}");
    let url = Url { path: b"/", query: query.as_bytes() };
    for _ in 0..3 {
        assert_eq!(announce(&policy, ip(1), &HASH, Shown::Url(url), at(0)), Ok(()));
        assert_eq!(announce(&policy, ip(1), &OTHER, Shown::Url(url), at(0)), Err(Refusal::TokenWrongTorrent));
    }
    assert_eq!(signatures(&policy), [1, 0], "another torrent costs no signature");
}

#[test]
fn scrapes_need_a_token_if_the_operator_wants_that_and_full_ones_always_do() {
    let (open, checked) = (usual(), policy(1000, |tokens| tokens.scrapes = true));
    let (all, one) = (token(1), bound(&[HASH]));
    let headers = HeaderMatch::default();
    let scrape = |policy: &Policy, token: Option<&str>, torrents: Torrents<'_>| {
        let query = token.map(|token| format!("jwt={token}")).unwrap_or_default();
        let shown = Shown::Url(Url { path: b"/scrape", query: query.as_bytes() });
        policy
            .admit_scrape(
                &ScrapeRequest { protocol: Protocol::Http, ip: ip(1), torrents, shown, headers },
                Pace::default(),
                at(0),
            )
            .map_err(|refused| refused.refusal)
    };
    let (own, both) = (Torrents::Named(&[HASH]), Torrents::Named(&[HASH, OTHER]));
    for (token, torrents, in_open, in_checked) in [
        (None, own, Ok(()), Err(Refusal::TokenMissing)),
        (Some(&all), both, Ok(()), Ok(())),
        (Some(&one), own, Ok(()), Ok(())),
        (Some(&one), both, Ok(()), Err(Refusal::TokenWrongTorrent)),
        (None, Torrents::All, Err(Refusal::TokenMissing), Err(Refusal::TokenMissing)),
        (Some(&one), Torrents::All, Err(Refusal::TokenWrongTorrent), Err(Refusal::TokenWrongTorrent)),
        (Some(&all), Torrents::All, Ok(()), Ok(())),
    ] {
        assert_eq!(scrape(&open, token.map(String::as_str), torrents), in_open, "{token:?}");
        assert_eq!(scrape(&checked, token.map(String::as_str), torrents), in_checked, "{token:?}");
    }
    let (protocol, shown) = (Protocol::Udp, Shown::Nothing);
    let over_udp = ScrapeRequest { protocol, ip: ip(1), torrents: own, shown, headers };
    assert_eq!(open.admit_scrape(&over_udp, Pace::default(), at(0)), Ok(()));
    assert_eq!(checked.admit_scrape(&over_udp, Pace::default(), at(0)), Err(Refusal::TokenMissing.into()));
}

#[test]
fn a_socket_keeps_its_token_until_it_expires() {
    let policy = usual();
    let enter = |token: Option<String>, now| {
        let query = token.map(|token| format!("jwt={token}")).unwrap_or_default();
        policy.read_socket_token(ip(1), Url { path: b"/", query: query.as_bytes() }, now)
    };
    let announce =
        |token: &SocketToken, info_hash, now| announce(&policy, ip(1), info_hash, Shown::Socket(token), now);
    let all = enter(Some(token(1)), at(0)).unwrap();
    assert_eq!((announce(&all, &HASH, at(0)), announce(&all, &OTHER, at(89))), (Ok(()), Ok(())));
    assert_eq!(announce(&all, &HASH, at(90)), Err(Refusal::TokenExpired));
    let one = enter(Some(bound(&[HASH])), at(0)).unwrap();
    assert_eq!(announce(&one, &HASH, at(0)), Ok(()));
    assert_eq!(announce(&one, &OTHER, at(0)), Err(Refusal::TokenWrongTorrent));
    assert!(one.held_bytes() > 20 && SocketToken::default().held_bytes() == 0);
    let none = enter(None, at(0)).unwrap();
    assert_eq!(announce(&none, &HASH, at(0)), Err(Refusal::TokenMissing));
    let bad = enter(Some(forged(1)), at(0)).unwrap();
    assert_eq!(announce(&bad, &HASH, at(0)), Err(Refusal::TokenBadSignature));
    for number in 2..=30 {
        assert!(enter(Some(forged(number)), at(0)).is_ok());
    }
    assert_eq!(enter(Some(forged(31)), at(0)).unwrap_err(), Refusal::TokenSourceLimited);
    assert_eq!(announce(&one, &HASH, at(0)), Ok(()));
    // Tokens whose signatures are known cost nothing, so a neighbour of an attacker may connect.
    for known in [token(1), bound(&[HASH])] {
        let socket = enter(Some(known), at(0)).unwrap();
        assert_eq!(announce(&socket, &HASH, at(0)), Ok(()));
    }
}

#[test]
fn a_socket_whose_signature_is_wrong_recovers_when_the_key_is_replaced() {
    let policy = usual();
    let enter = |token: &str| {
        let query = format!("jwt={token}");
        policy.read_socket_token(ip(1), Url { path: b"/", query: query.as_bytes() }, at(0)).unwrap()
    };
    let announce = |policy: &Policy, socket: &mut SocketToken, now| {
        policy.refresh_socket_token(socket, ip(1), now);
        announce(policy, ip(1), &HASH, Shown::Socket(socket), now)
    };
    // Another key with the same id.
    let new = Issuer::ed25519("ed");
    let mut early = enter(&new.token(&json!({ "exp": NOW_S + 60 })));
    let mut wrong = enter(&forged(0));
    assert_eq!(announce(&policy, &mut early, at(1)), Err(Refusal::TokenBadSignature));
    let tokens = policy.tokens().unwrap();
    let mut last = Default::default();
    let known = tokens.keys().clone().following(None, &mut last);
    let keys = KeySet::parse(jwks(&[new.jwk()]).as_bytes()).unwrap().following(Some(&known), &mut last);
    let changed = policy.clone().with_tokens(Some(tokens.with_keys(keys)));
    assert_eq!(signatures(&policy), [0, 2]);
    for second in 2..5 {
        assert_eq!(announce(&changed, &mut early, at(second)), Ok(()));
        assert_eq!(announce(&changed, &mut wrong, at(second)), Err(Refusal::TokenBadSignature));
    }
    assert_eq!(signatures(&policy), [1, 3], "one signature for each key");
}

#[test]
fn a_socket_is_told_that_its_token_could_not_be_verified() {
    let policy = usual();
    let new = Issuer::es256("new");
    let query = format!("jwt={}", new.token(&json!({ "exp": NOW_S + 60 })));
    let url = Url { path: b"/", query: query.as_bytes() };
    let mut socket = policy.read_socket_token(ip(1), url, at(0)).unwrap();
    let mut announce = |policy: &Policy, now| {
        policy.refresh_socket_token(&mut socket, ip(1), now);
        announce(policy, ip(1), &HASH, Shown::Socket(&socket), now)
    };
    assert_eq!(announce(&policy, at(1)), Err(Refusal::TokenUnknownKey));
    (0..30).for_each(|number| assert!(with(&policy, 1, &forged(number), at(2)).is_err()));
    let mut last = Default::default();
    let tokens = policy.tokens().unwrap();
    let both = KeySet::parse(jwks(&[ISSUER.jwk(), new.jwk()]).as_bytes()).unwrap();
    let changed = policy.clone().with_tokens(Some(tokens.with_keys(both.following(None, &mut last))));
    assert_eq!(announce(&changed, at(2)), Err(Refusal::TokenSourceLimited));
    assert_eq!(announce(&changed, at(10)), Ok(()), "its source has recovered");
}

#[test]
fn a_socket_recovers_when_its_key_is_known_and_its_time_has_come() {
    let policy = usual();
    let enter = |token: &str, now| {
        let query = format!("jwt={token}");
        policy.read_socket_token(ip(1), Url { path: b"/", query: query.as_bytes() }, now).unwrap()
    };
    let announce = |policy: &Policy, token: &mut SocketToken, now| {
        policy.refresh_socket_token(token, ip(1), now);
        announce(policy, ip(1), &HASH, Shown::Socket(token), now)
    };
    let mut early = enter(&ISSUER.token(&json!({ "exp": NOW_S + 900, "nbf": NOW_S + 60 })), at(0));
    assert_eq!(announce(&policy, &mut early, at(29)), Err(Refusal::TokenNotYetValid));
    assert_eq!(announce(&policy, &mut early, at(30)), Ok(()), "a leeway of 30 s");
    let new = Issuer::es256("new");
    let mut unknown = enter(&new.token(&json!({ "exp": NOW_S + 60 })), at(30));
    let mut forged = enter(&forged(1), at(30));
    assert_eq!(announce(&policy, &mut unknown, at(30)), Err(Refusal::TokenUnknownKey));
    let tokens = policy.tokens().unwrap();
    let mut last = Default::default();
    let known = tokens.keys().clone().following(None, &mut last);
    let both = KeySet::parse(jwks(&[ISSUER.jwk(), new.jwk()]).as_bytes()).unwrap();
    let changed = policy.clone().with_tokens(Some(tokens.with_keys(both.following(Some(&known), &mut last))));
    assert_eq!(announce(&changed, &mut unknown, at(30)), Err(Refusal::TokenUnknownKey), "a look a second");
    let before = signatures(&policy);
    for second in 31..35 {
        assert_eq!(announce(&changed, &mut unknown, at(second)), Ok(()));
        assert_eq!(announce(&changed, &mut forged, at(second)), Err(Refusal::TokenBadSignature));
    }
    assert_eq!(signatures(&policy), [before[0] + 1, before[1]], "a wrong signature is verified once");
    // Other rules give all keys new numbers, and end no token that they permit.
    let renumbered = tokens.keys().clone().following(None, &mut last);
    let changed = policy.clone().with_tokens(Some(tokens.with_keys(renumbered)));
    assert_eq!(announce(&changed, &mut early, at(40)), Ok(()));
    assert_eq!(announce(&changed, &mut unknown, at(40)), Err(Refusal::TokenUnknownKey), "its key is gone");
}

#[test]
fn a_source_of_wrong_signatures_is_refused_and_harms_no_other() {
    let policy = usual();
    let known = token(1);
    assert_eq!(with(&policy, 1, &known, at(0)), Ok(()));
    let refused: Vec<Refusal> = (0..1000).map(|n| with(&policy, 1, &forged(n), at(0)).unwrap_err()).collect();
    assert!(refused[..30].iter().all(|refusal| *refusal == Refusal::TokenBadSignature));
    assert!(refused[30..].iter().all(|refusal| *refusal == Refusal::TokenSourceLimited));
    assert_eq!(signatures(&policy), [1, 30]);
    assert_eq!(with(&policy, 1, &token(2), at(0)), Err(Refusal::TokenSourceLimited), "its neighbour waits");
    assert_eq!(with(&policy, 1, &known, at(0)), Ok(()), "with a known token it does not");
    assert_eq!(with(&policy, 2, &token(2), at(0)), Ok(()));
    assert_eq!(with(&policy, 1, &token(3), at(1)), Ok(()), "and it recovers");
}

#[test]
fn a_source_that_goes_on_with_wrong_signatures_earns_a_ban_by_default() {
    let policy = usual();
    let sources = Arc::clone(policy.sources().unwrap());
    let policy = policy.with_watch(Watch::of(&Config::default(), &sources));
    let mut number = 0;
    let mut show = |client: u8, second: u64| {
        number += 1;
        with(&policy, client, &forged(number), at(second)).unwrap_err()
    };
    // The clients of one source show a hundred tokens each quarter of an hour.
    for second in (0..7200).step_by(900) {
        let refused: Vec<Refusal> = (0..100).map(|_| show(1, second)).collect();
        assert_eq!([refused[29], refused[30]], [Refusal::TokenBadSignature, Refusal::TokenSourceLimited]);
    }
    assert_eq!(sources.take_suspects(), []);
    // Another one shows three a second.
    (0..180 * 3).for_each(|number| _ = show(2, 8000 + number / 3));
    let suspects = sources.take_suspects();
    assert!(!suspects.is_empty());
    assert!(suspects.iter().all(|suspect| (suspect.ip, suspect.cause) == (ip(2), Cause::BadToken)));
}

#[test]
fn other_faults_count_against_no_source() {
    let policy = usual();
    let expired = ISSUER.token(&json!({ "exp": 1 }));
    for _ in 0..1000 {
        assert_eq!(with(&policy, 1, &expired, at(0)), Err(Refusal::TokenExpired));
        assert_eq!(with(&policy, 1, "a.b.c", at(0)), Err(Refusal::TokenMalformed));
    }
    assert_eq!(with(&policy, 1, &token(1), at(0)), Ok(()));
    assert_eq!(signatures(&policy), [1, 0]);
}

#[test]
fn sources_that_have_failed_leave_half_of_all_signatures_to_the_others() {
    // 100 at once.
    let policy = policy(1000, |_| {});
    let claims: Value = json!({ "exp": NOW_S + 60 });
    let bad: Vec<Refusal> = (0..200_u8)
        .flat_map(|number| (0..5).map(move |round| (number, round)))
        .map(|(number, round)| with(&policy, number, &forged(round), at(0)).unwrap_err())
        .collect();
    let verified = bad.iter().filter(|refusal| **refusal == Refusal::TokenBadSignature).count();
    assert_eq!(verified as u64, signatures(&policy)[1]);
    assert_eq!(verified, 100, "new sources have used up the rest");
    assert_eq!(with(&policy, 201, &ISSUER.token(&claims), at(0)), Err(Refusal::TokenOverload));
    // A tenth of a second later there are new ones, which the failed sources do not get before half of them are there.
    let later = Now { monotonic_ms: at(0).monotonic_ms + 20, ..at(0) };
    assert_eq!(with(&policy, 1, &forged(9), later), Err(Refusal::TokenOverload));
    assert_eq!(with(&policy, 201, &ISSUER.token(&claims), later), Ok(()));
}
