//! Nothing is allocated for an announce with a token that is in the cache, nor for one without a token.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use shoal_access::token::{HashKey, KeyNumber, KeySet, Url};
use shoal_base::transport::datagram::{Exchange, REPLY_BYTES_MAX};
use shoal_base::{Event, InfoHash, PeerId};
use shoal_config::Config;
use shoal_engine::connection_id::ConnectionIds;
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::limits::SourceRates;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::tokens::{TokenMemory, Tokens};
use shoal_engine::{http, udp};
use shoal_testkit::tokens::{Issuer, jwks};
use shoal_wire::udp::{Announce, Options, Request, TransactionId, encode_url_data};

use crate::{KEY, NOW, store};

const HASH: InfoHash = InfoHash([1; 20]);

fn policy(issuer: &Issuer) -> Policy {
    let config = Config::default();
    let keys = KeySet::parse(jwks(&[issuer.jwk()]).as_bytes()).expect("the issuer has a key");
    let keys = keys.following(None, &mut KeyNumber::default());
    let memory = Arc::new(TokenMemory::new(HashKey::new(&[9; HashKey::BYTES]), 1 << 20));
    let tokens = Tokens::new(&config.tokens, keys, 1000, memory, Arc::new(SourceRates::new([1, 2, 3, 4])));
    Policy::new(config).with_tokens(Some(tokens))
}

/// Returns tokens for all torrents and for one, a long one, and none.
fn tokens(issuer: &Issuer) -> Vec<String> {
    let hash = format!("{HASH:?}");
    let claims = [
        json!({ "exp": NOW.unix_s + 60 }),
        json!({ "exp": NOW.unix_s + 60, "infohash": [hash, "02".repeat(20)] }),
        json!({ "exp": NOW.unix_s + 60, "sub": "x".repeat(800) }),
    ];
    claims.iter().map(|claims| issuer.token(claims)).chain([String::new()]).collect()
}

fn announce() -> Announce {
    Announce {
        info_hash: HASH,
        peer_id: PeerId([b'-'; 20]),
        downloaded_bytes: 0.into(),
        left_bytes: 1.into(),
        uploaded_bytes: 0.into(),
        event: Announce::event_number(Event::Update),
        ip: [0; 4],
        key: 0.into(),
        num_want: 10.into(),
        port: 6881.into(),
    }
}

#[test]
fn a_known_token_over_udp() {
    let issuer = Issuer::ed25519("ed");
    let mut responder = udp::Responder::new(
        Context::new(Protocol::Udp, Arc::new(policy(&issuer)), Tally::default(), fastrand::Rng::with_seed(1)),
        &KEY,
        store(),
    );
    let source = SocketAddr::from(([10, 0, 0, 1], 6881));
    let connection_id = ConnectionIds::new(&KEY).issue(source.ip(), NOW.unix_s);
    for token in tokens(&issuer) {
        let mut options = [0; 1500];
        let url = format!("/announce?jwt={token}");
        let bytes = encode_url_data(url.as_bytes(), &mut options).expect("there is room");
        let (announce, options) = (announce(), Options::new(&options[..bytes]));
        let transaction_id = TransactionId(1);
        let request = Request::Announce { connection_id, transaction_id, announce: &announce, options };
        let (mut packet, mut reply) = ([0; 2000], [0; REPLY_BYTES_MAX]);
        let bytes = request.encode(&mut packet).expect("there is room");
        let mut allocations = 0;
        for round in 0..100 {
            let before = shoal_testkit::allocator::allocations();
            let mut batch = [Exchange { source, request: &packet[..bytes], reply: &mut reply, reply_len: 0 }];
            responder.serve(&mut batch, NOW);
            assert_eq!(batch[0].reply[3], if token.is_empty() { 3 } else { 1 }, "an error or an announce");
            if round > 0 {
                allocations += shoal_testkit::allocator::allocations() - before;
            }
        }
        assert_eq!(allocations, 0, "{token}");
    }
}

#[test]
fn a_known_token_over_http() {
    let issuer = Issuer::ed25519("ed");
    let mut responder = http::Responder::new(
        Context::new(
            Protocol::Http,
            Arc::new(policy(&issuer)),
            Tally::default(),
            fastrand::Rng::with_seed(1),
        ),
        store(),
    );
    let mut body = Vec::with_capacity(64 << 10);
    for token in tokens(&issuer) {
        let query = format!("info_hash={}&port=1&left=1&jwt={token}", "%01".repeat(20));
        let in_query = Url { path: b"/announce", query: query.as_bytes() };
        let path = format!("/{token}/announce");
        let in_path =
            Url { path: path.as_bytes(), query: &query.as_bytes()[..query.len() - 5 - token.len()] };
        for url in [in_query, in_path] {
            let mut allocations = 0;
            for round in 0..100 {
                body.clear();
                let before = shoal_testkit::allocator::allocations();
                responder.announce([10, 0, 0, 1].into(), url, NOW, &mut body);
                if round > 0 {
                    allocations += shoal_testkit::allocator::allocations() - before;
                }
                assert_eq!(body.starts_with(b"d14:failure reason"), token.is_empty());
            }
            assert_eq!(allocations, 0, "{token}");
        }
    }
}
