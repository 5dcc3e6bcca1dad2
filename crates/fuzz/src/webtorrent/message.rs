//! Messages of WebTorrent clients, compared with the tree that another JSON library builds from them.

use serde::de::IgnoredAny;
use serde_json::Value;
use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::webtorrent::received::{self, Failure, Received, RelayedAnswer, RelayedOffer};
use shoal_wire::webtorrent::{
    Action, Announce, Answer, DEPTH_MAX, Fault, JsonError, Limits, OFFER_ID_BYTES_MAX, OfferId, Request,
    Storage, Unreadable, decode, reply,
};

/// Offers of any size are accepted, because the tree does not show how an offer was spelled.
const LIMITS: Limits = Limits { offers_max: 3, offer_bytes_max: usize::MAX, info_hashes_max: 3 };

/// Real offers are larger than this, but those of a fuzzer are not.
const STRICT: Limits = Limits { offers_max: 1, offer_bytes_max: 8, info_hashes_max: 1 };

/// Decodes the input as a message of a client, and encodes the messages that a tracker relays from it.
pub fn webtorrent_message(message: &[u8]) {
    let mut storage = Storage::default();
    let decoded = decode(message, &LIMITS, &mut storage);
    let json = match decoded {
        Err(Unreadable { fault: Fault::Json(json), .. }) => Some(json),
        _ => None,
    };
    check_json(message, json);
    if let Err(unreadable) = &decoded {
        let (reason, mut out) = (unreadable.to_string(), Vec::new());
        reply::failure(unreadable.action, unreadable.info_hash.as_ref(), &reason, &mut out);
        let Unreadable { action, info_hash, .. } = *unreadable;
        let action = action.filter(|&action| action == Action::Scrape || info_hash.is_some());
        let expected = Failure { action, info_hash, reason: reason.into() };
        assert_eq!(received::decode(&out), Ok(Received::Failure(expected)));
    }
    if json.is_none()
        && let Ok(tree) = serde_json::from_slice::<Value>(message)
    {
        match &decoded {
            Ok(Request::Announce(announce)) => check_announce(announce, &tree),
            Ok(Request::Answer(answer)) => check_answer(answer, &tree),
            Ok(Request::Scrape(info_hashes)) => {
                assert_eq!(action(&tree), Some(Action::Scrape));
                let expected = scraped(&tree["info_hash"]).expect("info hashes");
                assert_eq!(**info_hashes, expected[..expected.len().min(LIMITS.info_hashes_max)]);
            }
            Err(unreadable) => check_unreadable(unreadable, &tree),
        }
    }
    // A message that exceeds a limit is cut to it or refused.
    match decode(message, &STRICT, &mut Storage::default()) {
        Ok(Request::Announce(announce)) => {
            assert!(announce.offers.len() <= STRICT.offers_max);
            assert!(announce.offers.iter().all(|offer| offer.offer.len() <= STRICT.offer_bytes_max));
        }
        Ok(Request::Answer(answer)) => assert!(answer.answer.len() <= STRICT.offer_bytes_max),
        Ok(Request::Scrape(info_hashes)) => assert!(info_hashes.len() <= STRICT.info_hashes_max),
        Err(_) => {}
    }
}

/// Checks that the other library agrees on whether the input is JSON, except for the depth, which only ours limits.
pub(crate) fn check_json(message: &[u8], error: Option<JsonError>) {
    if let Some(JsonError::Malformed { at }) = error {
        assert!(at < message.len());
    }
    if error == Some(JsonError::TooDeep) {
        assert!(message.iter().filter(|byte| b"[{".contains(byte)).count() > DEPTH_MAX);
        return;
    }
    let text = core::str::from_utf8(message);
    let is_json = text.is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    assert_eq!(error.is_none(), is_json);
}

fn check_unreadable(unreadable: &Unreadable, tree: &Value) {
    assert_eq!(unreadable.fault == Fault::NotAnObject, !tree.is_object());
    assert_eq!(unreadable.action, action(tree));
    let hashes = scraped(&tree["info_hash"]).unwrap_or_default();
    let only = if let [only] = hashes[..] { Some(only) } else { None };
    assert_eq!(unreadable.info_hash, only);
    if let Fault::Missing { key } = unreadable.fault {
        assert!(tree[key].is_null());
    }
    if let Fault::NotTwentyBytes { key } = unreadable.fault {
        assert_eq!(twenty(&tree[key]), None);
    }
}

fn check_announce(announce: &Announce<'_>, tree: &Value) {
    assert_eq!(action(tree), Some(Action::Announce));
    assert!(!tree["answer"].is_object());
    check_ids(announce.info_hash, announce.peer_id, tree);
    assert_eq!(announce.event, event(&tree["event"]));
    check_number(announce.left_bytes, &tree["left"], 0);
    check_number(announce.numwant, &tree["numwant"], i64::MIN);

    let items = tree["offers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let good: Vec<_> = items
        .iter()
        .filter_map(|item| Some((item, item["offer"].as_object()?, offer_id(&item["offer_id"])?)))
        .take(LIMITS.offers_max)
        .collect();
    assert_eq!(announce.offers.len(), good.len());
    for (offer, (item, _, offer_id)) in announce.offers.iter().zip(&good) {
        assert_eq!(serde_json::from_slice::<Value>(offer.offer).ok().as_ref(), item.get("offer"));
        check_offer_id(&offer.offer_id, offer_id);
        let (info_hash, peer_id) = (announce.info_hash, announce.peer_id);
        let mut out = Vec::new();
        reply::offer(&info_hash, &peer_id, &offer, &mut out);
        let expected = RelayedOffer { info_hash, peer_id, offer_id: offer.offer_id, offer: offer.offer };
        assert_eq!(received::decode(&out), Ok(Received::Offer(expected)));
    }
}

fn check_answer(answer: &Answer<'_>, tree: &Value) {
    assert_eq!(action(tree), Some(Action::Announce));
    check_ids(answer.info_hash, answer.peer_id, tree);
    assert_eq!(twenty(&tree["to_peer_id"]), Some(answer.to_peer_id.0));
    assert_eq!(serde_json::from_slice::<Value>(answer.answer).ok().as_ref(), tree.get("answer"));
    check_offer_id(&answer.offer_id, &offer_id(&tree["offer_id"]).expect("an offer id"));
    let (info_hash, peer_id, offer_id) = (answer.info_hash, answer.peer_id, answer.offer_id);
    let mut out = Vec::new();
    reply::answer(&info_hash, &peer_id, answer, &mut out);
    let expected = RelayedAnswer { info_hash, peer_id, offer_id, answer: answer.answer };
    assert_eq!(received::decode(&out), Ok(Received::Answer(expected)));
}

fn check_ids(info_hash: InfoHash, peer_id: PeerId, tree: &Value) {
    assert_eq!(twenty(&tree["info_hash"]), Some(info_hash.0));
    assert_eq!(twenty(&tree["peer_id"]), Some(peer_id.0));
}

fn check_offer_id(read: &OfferId<'_>, expected: &[u8]) {
    assert_eq!(read.bytes(&mut [0; OFFER_ID_BYTES_MAX]), expected);
    let raw: Value = serde_json::from_slice(read.raw()).expect("a string");
    assert_eq!(offer_id(&raw).as_deref(), Some(expected));
}

/// Whole numbers are exact. Other numbers may differ in the last bit, which can round to the neighbouring integer.
fn check_number(read: Option<i64>, value: &Value, least: i64) {
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => assert_eq!(read, Some(whole).filter(|&whole| whole >= least)),
            (None, Some(float)) if float < 0.0 => assert!(read.is_none_or(|read| least <= read && read <= 0)),
            (None, Some(float)) if float > 1e18 => assert!(read >= Some(1_000_000_000_000_000_000)),
            (None, Some(float)) => {
                let read = read.and_then(|read| i32::try_from(read).ok()).map(f64::from);
                assert!(float > 1e9 || read.is_some_and(|read| (read - float).abs() <= 1.0));
            }
            (None, None) => unreachable!("a number is one of these"),
        },
        Value::String(text) => assert!(read.is_none() || read == text.parse().ok()),
        _ => assert_eq!(read, None),
    }
}

fn action(tree: &Value) -> Option<Action> {
    match tree["action"].as_str() {
        Some("announce") => Some(Action::Announce),
        Some("scrape") => Some(Action::Scrape),
        _ => None,
    }
}

fn event(value: &Value) -> Event {
    match value.as_str() {
        Some("started") => Event::Started,
        Some("completed") => Event::Completed,
        Some("stopped") => Event::Stopped,
        _ => Event::Update,
    }
}

fn scraped(value: &Value) -> Option<Vec<InfoHash>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => items.iter().map(|item| twenty(item).map(InfoHash)).collect(),
        value => twenty(value).map(|info_hash| vec![InfoHash(info_hash)]),
    }
}

fn binary(value: &Value) -> Option<Vec<u8>> {
    value.as_str()?.chars().map(|character| u8::try_from(character).ok()).collect()
}

fn twenty(value: &Value) -> Option<[u8; 20]> {
    binary(value)?.try_into().ok()
}

fn offer_id(value: &Value) -> Option<Vec<u8>> {
    binary(value).filter(|bytes| bytes.len() <= OFFER_ID_BYTES_MAX)
}
