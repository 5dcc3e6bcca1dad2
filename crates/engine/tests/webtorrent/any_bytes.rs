//! Random messages: nothing panics, and every message except an answer gets one reply.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_config::Config;
use shoal_engine::counter::{Counters, Family, Kind, Outcome};

use crate::harness::{Tracker, announce, answer, leecher, offers};

/// Generates a valid or nearly valid message.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let good = prop_oneof![
        (0..4_u32, 0..5_usize)
            .prop_map(|(n, count)| leecher(n, &format!(r#","offers":{}"#, offers("x", count)))),
        (0..4_u32).prop_map(|n| announce("bbbbbbbbbbbbbbbbbbbb", n, r#""event":"stopped""#)),
        (0..4_u32, 0..4_u32, 0..5_u32).prop_map(|(n, to, offer)| answer(n, to, &format!("x-{offer}"))),
        Just(r#"{"action":"scrape","info_hash":["aaaaaaaaaaaaaaaaaaaa"]}"#.to_owned()),
    ];
    let mangled = (good.clone(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>());
    prop_oneof![
        2 => good.prop_map(String::into_bytes),
        2 => mangled.prop_map(|(message, place, byte, cut)| {
            let mut bytes = message.into_bytes();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            if cut {
                bytes.truncate(place);
            }
            bytes
        }),
        1 => vec(any::<u8>(), 0..100),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_but_an_answer_is_replied_to(messages in vec((0..3_usize, message()), 1..30)) {
        let mut tracker = Tracker::new(&Config::default());
        let mut clients: Vec<_> = (0..3).map(|_| tracker.newcomer()).collect();
        for (client, message) in messages {
            let answers = |tracker: &Tracker| tracker.count(|counters| counters.requests(Family::V4, Kind::Answer));
            // The message claims the peer id of another client, which is decided later.
            let waiting = |tracker: &Tracker| {
                let replied = |counters: &Counters| {
                    Outcome::all().map(|outcome| counters.replies(Family::V4, Kind::Announce, outcome)).sum()
                };
                tracker.count(|counters| counters.requests(Family::V4, Kind::Announce)) - tracker.count(replied)
            };
            let (before, waiting_before) = (answers(&tracker), waiting(&tracker));
            tracker.say_bytes(&mut clients[client], &message);
            let is_answer = answers(&tracker) > before;
            let replies: usize = clients
                .iter()
                .flat_map(|client| tracker.received(client))
                .filter(|text| !text.contains(r#""offer":"#) && !text.contains(r#""answer":"#))
                .count();
            let waits = waiting(&tracker) > waiting_before;
            prop_assert_eq!(replies, usize::from(!is_answer && !waits));
        }
        clients.into_iter().for_each(|client| tracker.leave(client));
        prop_assert_eq!(tracker.swarms.totals().swarms, 0);
    }
}
