//! For any query, the reply is one bencoded dictionary, and no bytes make the responder panic.

use proptest::prelude::*;
use shoal_config::Config;

use crate::bencode::Value;
use crate::harness::{Tracker, leecher, url, v4, v6};

/// Generates bytes that are nearly a query.
fn nearly_a_query() -> impl Strategy<Value = Vec<u8>> {
    let parameter = prop_oneof![
        Just(leecher(6881).into_bytes()),
        Just(b"info_hash=".to_vec()),
        Just(b"compact=0".to_vec()),
        Just(b"event=stopped".to_vec()),
        Just(b"numwant=99999999999999999999".to_vec()),
        Just(b"left=-99999999999999999999".to_vec()),
        Just(b"port=%31".to_vec()),
        "[a-z_]{0,9}=[%0-9a-f]{0,60}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(parameter, 0..8).prop_map(|parameters| parameters.join(&b'&'))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_query_is_answered(query in prop_oneof![
        nearly_a_query(), prop::collection::vec(any::<u8>(), 0..300),
    ]) {
        let mut tracker = Tracker::new(&Config::default());
        for ip in [v4(1), v6(1)] {
            let mut body = Vec::new();
            tracker.http.announce(ip, url(&query), tracker.now, &mut body);
            let reply = Value::read(&body);
            prop_assert!(reply.find("failure reason").is_some() != reply.find("peers").is_some());

            let mut body = Vec::new();
            tracker.http.scrape(ip, url(&query), tracker.now, &mut body);
            let reply = Value::read(&body);
            prop_assert!(reply.find("failure reason").is_some() != reply.find("files").is_some());
        }
    }
}
