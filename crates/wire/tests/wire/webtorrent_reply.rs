//! Messages to clients, byte by byte, and messages of other trackers.

use std::fmt::Write as _;

use shoal_base::{InfoHash, PeerId};
use shoal_wire::webtorrent::received::{self, AnnounceReply, Failure, Received, ReceivedError, ScrapeFile};
use shoal_wire::webtorrent::{Action, JsonError, Limits, Request, Storage, decode, reply};

const INFO_HASH: InfoHash = InfoHash(*b"\0\x08\t\n\x0c\r\x1f\"\\/<>&\x7f\x80\xa0\xbf\xc0\xffz");
const WRITTEN: &str =
    "\\u0000\\u0008\\u0009\\u000a\\u000c\\u000d\\u001f\\\"\\\\/<>&\u{7f}\u{80}\u{a0}\u{bf}\u{c0}\u{ff}z";
const PEER_ID: PeerId = PeerId(*b"-WW0208-ABCDEFGHIJKL");

/// Returns the text that `write` appends.
fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"}".to_vec();
    write(&mut out);
    assert_eq!(out.remove(0), b'}', "the existing bytes stay");
    String::from_utf8(out).unwrap()
}

#[test]
fn an_announce_reply() {
    let reply = text(|out| reply::announce(&INFO_HASH, 120, 0, u32::MAX, out));
    let rest = r#""interval":120,"complete":0,"incomplete":4294967295}"#;
    assert_eq!(reply, format!(r#"{{"action":"announce","info_hash":"{WRITTEN}",{rest}"#));
}

#[test]
fn offers_and_answers_are_passed_on_untouched() {
    let offer_id = r#""\u00e9\/é""#;
    let object = r#"{ "type":"offer" ,"sdp":"v=0\r\n\u0041 \ud800", "": [1.0e0] }"#;
    let common = format!(r#""action":"announce","info_hash":"{WRITTEN}","peer_id":"-WW0208-ABCDEFGHIJKL""#);
    let limits = Limits { offers_max: 1, offer_bytes_max: 100, info_hashes_max: 1 };
    let mut storage = Storage::default();

    let message = format!(r#"{{{common},"offers":[{{"offer": {object} ,"offer_id": {offer_id} }}]}}"#);
    let Ok(Request::Announce(announce)) = decode(message.as_bytes(), &limits, &mut storage) else {
        panic!("{message}");
    };
    let offer = announce.offers.iter().next().unwrap();
    let relayed = text(|out| reply::offer(&INFO_HASH, &PEER_ID, &offer, out));
    assert_eq!(relayed, format!(r#"{{{common},"offer_id":{offer_id},"offer":{object}}}"#));

    let message = format!(
        r#"{{{common},"to_peer_id":"01234567890123456789","answer": {object} ,"offer_id": {offer_id} }}"#
    );
    let Ok(Request::Answer(answer)) = decode(message.as_bytes(), &limits, &mut storage) else {
        panic!("{message}");
    };
    let relayed = text(|out| reply::answer(&INFO_HASH, &PEER_ID, &answer, out));
    assert_eq!(relayed, format!(r#"{{{common},"offer_id":{offer_id},"answer":{object}}}"#));
}

#[test]
fn scrape_replies() {
    let scrape = |files: &[(InfoHash, u32)]| {
        text(|out| {
            reply::scrape_begin(out);
            files.iter().for_each(|(info_hash, count)| {
                reply::scrape_file(info_hash, *count, count + 1, count + 2, out);
            });
            reply::scrape_end(out);
        })
    };
    assert_eq!(scrape(&[]), r#"{"action":"scrape","files":{}}"#);
    let one = format!(r#""{WRITTEN}":{{"complete":1,"incomplete":2,"downloaded":3}}"#);
    assert_eq!(scrape(&[(INFO_HASH, 1)]), format!(r#"{{"action":"scrape","files":{{{one}}}}}"#));
    let braces = InfoHash(*b"}}}}}}}}}}{{{{{{{{{{");
    let other = r#""}}}}}}}}}}{{{{{{{{{{":{"complete":7,"incomplete":8,"downloaded":9}"#;
    let both = scrape(&[(braces, 7), (INFO_HASH, 1)]);
    assert_eq!(both, format!(r#"{{"action":"scrape","files":{{{other},{one}}}}}"#));
}

#[test]
fn failures_contain_all_known_values() {
    let failure = |action, info_hash| text(|out| reply::failure(action, info_hash, "no", out));
    let scrape = failure(Some(Action::Scrape), Some(&INFO_HASH));
    assert_eq!(scrape, format!(r#"{{"action":"scrape","info_hash":"{WRITTEN}","failure reason":"no"}}"#));
    let announce = failure(Some(Action::Announce), Some(&INFO_HASH));
    assert_eq!(announce, format!(r#"{{"action":"announce","info_hash":"{WRITTEN}","failure reason":"no"}}"#));
    assert_eq!(failure(Some(Action::Scrape), None), r#"{"action":"scrape","failure reason":"no"}"#);
    assert_eq!(failure(None, None), r#"{"failure reason":"no"}"#);
}

#[test]
fn a_failure_without_an_info_hash_is_no_announce() {
    let failure = text(|out| reply::failure(Some(Action::Announce), None, "no", out));
    assert_eq!(failure, r#"{"failure reason":"no"}"#);
}

#[test]
fn reasons_are_escaped() {
    let reason = "a \"quote\", a \\, a line\n, U+00E9 é, U+1F600 😀 and\0";
    let said = text(|out| reply::failure(None, None, reason, out));
    let written = "a \\\"quote\\\", a \\\\, a line\\u000a, U+00E9 é, U+1F600 😀 and\\u0000";
    assert_eq!(said, format!(r#"{{"failure reason":"{written}"}}"#));
}

#[test]
fn every_byte_of_an_id_is_json() {
    for byte in 0..=u8::MAX {
        let info_hash = InfoHash([byte; 20]);
        let reply = text(|out| reply::announce(&info_hash, 1, 2, 3, out));
        let value: serde_json::Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(value["info_hash"], char::from(byte).to_string().repeat(20), "{byte}");
    }
}

#[test]
fn other_trackers_reply() {
    let expected = AnnounceReply {
        info_hash: InfoHash(*b"01234567890123456789"),
        interval_s: 120,
        complete: 1,
        incomplete: 2,
    };
    for reply in [
        r#"{"complete":1,"incomplete":2,"action":"announce","interval":120,"info_hash":"01234567890123456789"}"#,
        r#"{"action":"announce","info_hash":"01234567890123456789","complete":1,"incomplete":2,"interval":120}"#,
        r#"{"action":"announce","interval":120,"info_hash":"01234567890123456789","complete":1,"incomplete":2,"min interval":null,"offer":null,"answer":null,"peers":[]}"#,
    ] {
        assert_eq!(received::decode(reply.as_bytes()), Ok(Received::Announce(expected)), "{reply}");
    }
    let scrape = r#"{"action":"scrape","files":{"01234567890123456789":{"complete":1,"incomplete":2,"downloaded":3,"x":{}} , "98765432109876543210":{"complete":4,"incomplete":5}},"flags":{"min_request_interval":600}}"#;
    let Ok(Received::Scrape(scrape)) = received::decode(scrape.as_bytes()) else { panic!("{scrape}") };
    let file = |complete, incomplete, downloaded| Some(ScrapeFile { complete, incomplete, downloaded });
    assert_eq!(scrape.files().count(), 2);
    assert_eq!(scrape.file(InfoHash(*b"01234567890123456789")), file(1, 2, 3));
    assert_eq!(scrape.file(InfoHash(*b"98765432109876543210")), file(4, 5, 0));
    assert_eq!(scrape.file(INFO_HASH), None);
}

#[test]
fn failures_of_other_trackers() {
    let decode = |message: &'static str| received::decode(message.as_bytes());
    let failure = |action, info_hash, reason: &'static str| {
        Ok(Received::Failure(Failure { action, info_hash, reason: reason.into() }))
    };
    let all = r#"{"action":"scrape","failure reason":"\u00e9\ud83d\ude00 \ud800\n","info_hash":"01234567890123456789"}"#;
    let info_hash = Some(InfoHash(*b"01234567890123456789"));
    assert_eq!(decode(all), failure(Some(Action::Scrape), info_hash, "é😀 \u{fffd}\n"));
    assert_eq!(decode(r#"{"failure reason":""}"#), failure(None, None, ""));
    assert_eq!(decode(r#"{"action":"error","failure reason":"é"}"#), failure(None, None, "é"));
}

#[test]
fn keys_that_a_reply_must_contain() {
    let key = |message: &str| match received::decode(message.as_bytes()) {
        Err(ReceivedError::Key { key }) => key,
        other => panic!("{other:?}"),
    };
    let mut announce = r#"{"action":"announce""#.to_owned();
    for (missing, value) in
        [("info_hash", "\"01234567890123456789\""), ("interval", "1"), ("complete", "1"), ("incomplete", "1")]
    {
        assert_eq!(key(&format!("{announce}}}")), missing);
        write!(announce, ",\"{missing}\":{value}").unwrap();
    }
    let mut offer = r#"{"action":"announce","info_hash":"01234567890123456789","offer":{}"#.to_owned();
    for (missing, value) in [("peer_id", "\"01234567890123456789\""), ("offer_id", "\"x\"")] {
        assert_eq!(key(&format!("{offer}}}")), missing);
        assert_eq!(key(&format!("{offer}}}").replace("\"offer\"", "\"answer\"")), missing);
        write!(offer, ",\"{missing}\":{value}").unwrap();
    }
    assert!(matches!(received::decode(format!("{announce}}}").as_bytes()), Ok(Received::Announce(_))));
    assert!(matches!(received::decode(format!("{offer}}}").as_bytes()), Ok(Received::Offer(_))));

    assert_eq!(key("{}"), "action");
    assert_eq!(key(r#"{"action":"error"}"#), "action");
    for files in [
        "null",
        "[]",
        r#"{"short":{"complete":1,"incomplete":1}}"#,
        r#"{"01234567890123456789":{}}"#,
        r#"{"01234567890123456789":{"complete":1}}"#,
        r#"{"01234567890123456789":{"complete":-1,"incomplete":1}}"#,
        r#"{"01234567890123456789":[]}"#,
        r#"{"01234567890123456789":{"complete":1,"incomplete":1},"":{}}"#,
    ] {
        assert_eq!(key(&format!(r#"{{"action":"scrape","files":{files}}}"#)), "files", "{files}");
    }
    let interval = announce.replace("\"interval\":1", "\"interval\":4294967296") + "}";
    assert_eq!(key(&interval), "interval");
    assert_eq!(received::decode(b"{"), Err(ReceivedError::Json(JsonError::Truncated)));
}
