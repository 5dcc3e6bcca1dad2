//! Malformed messages: the error names the fault and keeps the values that were readable.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::de::IgnoredAny;
use shoal_base::InfoHash;
use shoal_wire::webtorrent::received::{self, ReceivedError};
use shoal_wire::webtorrent::{Action, DEPTH_MAX, Fault, JsonError, Limits, Storage, Unreadable, decode};

const LIMITS: Limits = Limits { offers_max: 10, offer_bytes_max: 8 << 10, info_hashes_max: 100 };
const INFO_HASH: InfoHash = InfoHash(*b"01234567890123456789");
const ANNOUNCE: &str = r#"{"action":"announce","info_hash":"01234567890123456789","peer_id":"-WW0208-ABCDEFGHIJKL","uploaded":0,"left":1.5e3,"event":"started","numwant":2,"offers":[{"offer":{"type":"offer","sdp":"v=0\r\n\u00e9é"},"offer_id":"x"},null,true,false,[],{}]}"#;

fn read(message: impl AsRef<[u8]>) -> Result<(), Unreadable> {
    decode(message.as_ref(), &LIMITS, &mut Storage::default()).map(drop)
}

fn unreadable(message: &str) -> Unreadable {
    read(message).map(|()| panic!("{message} is a message")).unwrap_err()
}

/// Returns a message with `value` in a key that is not used.
fn unread(value: &[u8]) -> Vec<u8> {
    [br#"{"action":"scrape","extra":"#, value, b"}"].concat()
}

#[test]
fn missing_and_invalid_keys_are_named() {
    let missing = |key| Fault::Missing { key };
    let wrong = |key| Fault::NotTwentyBytes { key };
    let announce = |rest: &str| format!(r#"{{"action":"announce"{rest}}}"#);
    let ours = r#","info_hash":"01234567890123456789""#;
    let cases = [
        ("{}".to_owned(), missing("action"), false),
        (r#"{"action":"announced"}"#.to_owned(), Fault::UnknownAction, false),
        (r#"{"action":"Announce"}"#.to_owned(), Fault::UnknownAction, false),
        (r#"{"action":null}"#.to_owned(), Fault::UnknownAction, false),
        (r#"{"action":1}"#.to_owned(), Fault::UnknownAction, false),
        (r#"{"action":["announce"]}"#.to_owned(), Fault::UnknownAction, false),
        (format!(r#"{{"action":"offer"{ours}}}"#), Fault::UnknownAction, true),
        (announce(""), missing("info_hash"), false),
        (announce(r#","info_hash":null"#), missing("info_hash"), false),
        (announce(r#","info_hash":7"#), wrong("info_hash"), false),
        (announce(r#","info_hash":"""#), wrong("info_hash"), false),
        (announce(r#","info_hash":"0123456789012345678""#), wrong("info_hash"), false),
        (announce(r#","info_hash":"012345678901234567890""#), wrong("info_hash"), false),
        (announce(r#","info_hash":"0123456789012345678\u0100""#), wrong("info_hash"), false),
        (announce(r#","info_hash":"0123456789012345678Ā""#), wrong("info_hash"), false),
        (announce(r#","info_hash":"0123456789012345678€""#), wrong("info_hash"), false),
        (announce(r#","info_hash":"012345678901234567\ud83d\ude00""#), wrong("info_hash"), false),
        (announce(r#","info_hash":"30313233343536373839303132333435363738""#), wrong("info_hash"), false),
        (
            announce(r#","info_hash":["01234567890123456789","98765432109876543210"]"#),
            wrong("info_hash"),
            false,
        ),
        (announce(r#","info_hash":["01234567890123456789"]"#), wrong("info_hash"), true),
        (announce(ours), missing("peer_id"), true),
        (announce(&format!(r#"{ours},"peer_id":null"#)), wrong("peer_id"), true),
        (announce(&format!(r#"{ours},"peer_id":"short""#)), wrong("peer_id"), true),
        (announce(&format!(r#"{ours},"peer_id":"{}""#, "€".repeat(20))), wrong("peer_id"), true),
    ];
    for (message, fault, has_info_hash) in cases {
        let error = unreadable(&message);
        assert_eq!(error.fault, fault, "{message}");
        assert_eq!(error.info_hash, has_info_hash.then_some(INFO_HASH), "{message}");
        let is_announce = message.contains(r#""action":"announce""#);
        assert_eq!(error.action, is_announce.then_some(Action::Announce), "{message}");
        assert_eq!(error.to_string(), fault.to_string());
    }
}

#[test]
fn answers_need_all_of_their_keys() {
    let whole = r#"{"action":"announce","info_hash":"01234567890123456789","peer_id":"-WW0208-ABCDEFGHIJKL","to_peer_id":"-WW0105-abcdefghijkl","answer":{},"offer_id":"x"}"#;
    assert_eq!(read(whole), Ok(()));
    for key in ["info_hash", "peer_id", "to_peer_id", "offer_id"] {
        let error = unreadable(&whole.replace(&format!("\"{key}\""), "\"other\""));
        assert_eq!(error.fault, Fault::Missing { key });
        assert_eq!(error.info_hash, (key != "info_hash").then_some(INFO_HASH));
    }
    let wrong = |from: &str, to: &str| unreadable(&whole.replace(from, to)).fault;
    assert_eq!(wrong("-WW0105-", "-WW0105"), Fault::NotTwentyBytes { key: "to_peer_id" });
    assert_eq!(wrong(r#""x""#, "7"), Fault::OfferId);
    assert_eq!(wrong(r#""x""#, "null"), Fault::OfferId);
    assert_eq!(wrong("announce", "answer"), Fault::UnknownAction);
}

#[test]
fn scrapes_of_invalid_info_hashes() {
    for info_hash in [
        "7",
        "{}",
        "true",
        "\"short\"",
        "[null]",
        "[7]",
        "[\"short\"]",
        r#"["01234567890123456789",[]]"#,
        r#"[["01234567890123456789"]]"#,
    ] {
        let error = unreadable(&format!(r#"{{"action":"scrape","info_hash":{info_hash}}}"#));
        let fault = Fault::NotTwentyBytes { key: "info_hash" };
        assert_eq!(error, Unreadable { action: Some(Action::Scrape), info_hash: None, fault }, "{info_hash}");
    }
}

#[test]
fn values_before_a_fault_are_known() {
    let action = r#"{"action":"announce","#;
    let both = r#"{"action":"announce","info_hash":"01234567890123456789","#;
    let late = r#"{"info_hash":["01234567890123456789"],"offers":[],"action":"scrape""#;
    let announce = Some(Action::Announce);
    let cases = [
        ("", None, None, JsonError::Truncated),
        (" ", None, None, JsonError::Truncated),
        ("{", None, None, JsonError::Truncated),
        (r#"{"action":"announce"#, None, None, JsonError::Truncated),
        (action, announce, None, JsonError::Truncated),
        (both, announce, Some(INFO_HASH), JsonError::Truncated),
        (late, Some(Action::Scrape), Some(INFO_HASH), JsonError::Truncated),
        (&format!("{both}}}"), announce, Some(INFO_HASH), JsonError::Malformed { at: both.len() }),
        (
            &format!("{both}\"offers\":[,"),
            announce,
            Some(INFO_HASH),
            JsonError::Malformed { at: both.len() + 10 },
        ),
        (
            &format!("{both}\"a\":1}} x"),
            announce,
            Some(INFO_HASH),
            JsonError::Malformed { at: both.len() + 7 },
        ),
        (&format!("{action}\"info_hash\":[\"01234567890123456789\","), announce, None, JsonError::Truncated),
    ];
    for (message, action, info_hash, json) in cases {
        let expected = Unreadable { action, info_hash, fault: Fault::Json(json) };
        assert_eq!(unreadable(message), expected, "{message}");
    }
}

#[test]
fn every_beginning_of_a_message_ends_early() {
    assert_eq!(read(ANNOUNCE), Ok(()));
    for end in 0..ANNOUNCE.len() {
        let error = read(&ANNOUNCE.as_bytes()[..end]).unwrap_err();
        assert_eq!(error.fault, Fault::Json(JsonError::Truncated), "{end}");
        assert_eq!(error.info_hash.is_some(), end >= 55, "{end}");
        assert_eq!(error.action.is_some(), end >= 20, "{end}");
    }
}

#[test]
fn values_other_than_objects() {
    for value in ["null", "true", "0", "-1.5e3", "\"{}\"", "[]", r#"[{"action":"announce"}]"#, " 7 "] {
        let expected = Unreadable { action: None, info_hash: None, fault: Fault::NotAnObject };
        assert_eq!(unreadable(value), expected, "{value}");
        assert_eq!(received::decode(value.as_bytes()), Err(ReceivedError::NotAnObject), "{value}");
    }
}

#[test]
fn valid_json() {
    for value in [
        "0",
        "-0",
        "10",
        "1.0",
        "-1.25",
        "1e1",
        "1E+10",
        "0e-0",
        "123456789012345678901234567890",
        "true",
        "false",
        "null",
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[[],{}]",
        "\"\"",
        "\" \"",
        "\"\u{7f}\"",
        "\"\u{80}\u{7ff}\u{800}\u{ffff}\u{10ffff}\"",
        r#""\"\\\/\b\f\n\r\t\u0000\uabCD\ud800\udc00\udc00""#,
        "[1 , 2\t,\n3\r]",
        r#"{"":0 , "a" : [ { } ] }"#,
    ] {
        assert_eq!(read(unread(value.as_bytes())), Ok(()), "{value}");
    }
}

/// Invalid JSON, each with one fault.
const NO_JSON: &[&[u8]] = &[
    // Numbers (RFC 8259, 6).
    b"+1",
    b"01",
    b"00",
    b"-",
    b"-a",
    b"-01",
    b".5",
    b"1.",
    b"1.e3",
    b"1e",
    b"1e+",
    b"1e1.5",
    b"0x10",
    b"1_000",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1 2",
    b"0 0",
    // Literals.
    b"nul",
    b"nulll",
    b"True",
    b"undefined",
    b"truefalse",
    b"tru\xc3\xa9",
    // Strings (RFC 8259, 7).
    b"'a'",
    b"a",
    b"\"a",
    b"\"\\a\"",
    b"\"\\'\"",
    b"\"\\x41\"",
    b"\"\\u12\"",
    b"\"\\u12g4\"",
    b"\"\\u+123\"",
    b"\"\\U0041\"",
    b"\"\0\"",
    b"\"\n\"",
    b"\"\t\"",
    b"\"\x1f\"",
    b"\"12345678\x1f\"",
    b"\"1234567\r\"",
    b"\"\"\"",
    // UTF-8 (RFC 3629): a lone continuation byte, overlong forms, surrogates, values beyond the last character,
    // truncated characters.
    b"\"\x80\"",
    b"\"\xbf\"",
    b"\"\xc0\x80\"",
    b"\"\xc1\xbf\"",
    b"\"\xe0\x80\x80\"",
    b"\"\xe0\x9f\xbf\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xf0\x80\x80\x80\"",
    b"\"\xf0\x8f\xbf\xbf\"",
    b"\"\xf4\x90\x80\x80\"",
    b"\"\xf5\x80\x80\x80\"",
    b"\"\xfe\"",
    b"\"\xff\"",
    b"\"\xc3\"",
    b"\"\xe2\x82\"",
    b"\"\xf0\x9f\x98\"",
    b"\"\xc3(\"",
    b"\"\xc3\xc3\xa9\"",
    b"\"\xe2\x82(\"",
    b"\xef\xbb\xbf1",
    // Arrays and objects.
    b"",
    b"[",
    b"[1",
    b"[1,",
    b"[1,]",
    b"[,1]",
    b"[,]",
    b"[1 2]",
    b"[1;2]",
    b"[1}",
    b"{]",
    b"[[]",
    b"[]]",
    b"]",
    b"}",
    b",",
    b":",
    b"{\"a\"}",
    b"{\"a\":}",
    b"{\"a\":1,}",
    b"{,}",
    b"{\"a\":1 \"b\":2}",
    b"{\"a\" 1}",
    b"{a:1}",
    b"{1:1}",
    b"{null:1}",
    b"{\"a\":1:2}",
    b"{\"a\",\"b\"}",
    b"[\"a\":1]",
    b"{\"a\":1",
    b"{[]:1}",
    b"{\"a\xff\":1}",
    // Extensions of other dialects.
    b"// 1\n1",
    b"/* 1 */ 1",
    b"1 # 1",
    b"1\x0c",
    b"\x0b1",
    b"\xc2\xa01",
    b"\0",
    b"1\0",
];

#[test]
fn invalid_json() {
    for &value in NO_JSON {
        let what = value.escape_ascii();
        let message = unread(value);
        let error = read(&message).unwrap_err();
        assert!(
            matches!(error.fault, Fault::Json(JsonError::Malformed { .. } | JsonError::Truncated)),
            "{what}"
        );
        assert_eq!(error.action, Some(Action::Scrape), "{what}");
        let received = received::decode(&message);
        assert!(matches!(received, Err(ReceivedError::Json(_))), "{what}: {received:?}");
    }
}

/// A fault is found at every position of a block that is checked as a whole.
#[test]
fn every_position_of_a_long_string_is_checked() {
    // Letters that form an escape after a backslash, and one that does not.
    for letter in ["n", "x"] {
        for what in
            ["\"", "\\", "\\\\", "\\n\\r", "\\\\\\n", "\\\"", "\\x", "\0", "\n", "\u{80}", "€", "\\u00e9"]
        {
            for at in 0..100 {
                let text = format!("\"{}{what}{}\"", letter.repeat(at), letter.repeat(100 - at));
                let is_read = read(unread(text.as_bytes())).is_ok();
                assert_eq!(is_read, is_json(text.as_bytes()), "{text}");
            }
        }
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |opening: &str, closing: &str, depth: usize| {
        unread(format!("{}1{}", opening.repeat(depth), closing.repeat(depth)).as_bytes())
    };
    for (opening, closing) in [("[", "]"), ("{\"a\":", "}"), ("[0,", "]"), ("{\"a\":1,\"b\":[", "],\"c\":1}")]
    {
        let levels = opening.matches(['[', '{']).count();
        assert_eq!(read(nested(opening, closing, DEPTH_MAX / levels)), Ok(()), "{opening}");
        let error = read(nested(opening, closing, DEPTH_MAX / levels + 1)).unwrap_err();
        assert_eq!(error.fault, Fault::Json(JsonError::TooDeep), "{opening}");
        assert_eq!(error.action, Some(Action::Scrape), "{opening}");
    }
    // A million levels are refused as quickly, without using the stack.
    for opening in ["[", "{\"a\":", "{\"offers\":[", "{\"offers\":[{\"offer\":"] {
        let fault = unreadable(&format!("{{\"offers\":[{}", opening.repeat(1_000_000))).fault;
        assert_eq!(fault, Fault::Json(JsonError::TooDeep), "{opening}");
    }
}

/// Pieces of JSON and of nearly valid JSON.
const PIECES: [&str; 44] = [
    "{",
    "}",
    "[",
    "]",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    ":",
    ",",
    " ",
    "\n",
    "\"",
    "\\",
    "\"a\"",
    "\"action\"",
    "\"announce\"",
    "\"info_hash\"",
    "\"offers\"",
    "\"offer\"",
    "\"offer_id\"",
    "\"answer\"",
    "\"left\"",
    "1",
    "0",
    "-",
    "+",
    ".",
    "e",
    "E5",
    "true",
    "false",
    "null",
    "nul",
    "\\u00e9",
    "\\ud800",
    "\\n",
    "é",
    "€",
    "😀",
    "\0",
    "\u{1f}",
];

fn is_json(bytes: &[u8]) -> bool {
    core::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Checks that another JSON reader agrees whether the bytes are JSON.
fn check_against_oracle(bytes: &[u8]) -> Result<(), TestCaseError> {
    let fault = read(bytes).err().map(|error| error.fault);
    let json = if let Some(Fault::Json(json)) = fault { Some(json) } else { None };
    if json == Some(JsonError::TooDeep) {
        let openings = bytes.iter().filter(|byte| b"[{".contains(byte)).count();
        prop_assert!(openings > DEPTH_MAX);
    } else {
        prop_assert_eq!(json.is_none(), is_json(bytes), "{}", bytes.escape_ascii());
    }
    let received = received::decode(bytes);
    prop_assert_eq!(json, if let Err(ReceivedError::Json(json)) = received { Some(json) } else { None });
    Ok(())
}

proptest! {
    #[test]
    fn both_readers_agree_on_json(pieces in vec(select(&PIECES[..]), 0..40)) {
        let text = pieces.concat();
        check_against_oracle(text.as_bytes())?;
        check_against_oracle(&unread(text.as_bytes()))?;
        check_against_oracle(format!("[{}]", pieces.join(",")).as_bytes())?;
    }

    #[test]
    fn both_readers_agree_on_strings(
        pieces in vec((0..40_usize, select(&["\\r\\n", "\\n", "\\\\", "\\\"", "\\u00e9", "é", "€", "\\", "\n", "\""][..])), 0..8),
    ) {
        // Mostly complete pieces; the last three break a string.
        let text: String = pieces.iter().map(|(bytes, piece)| "nrx".repeat(*bytes)[..*bytes].to_owned() + piece).collect();
        check_against_oracle(&unread(format!("\"{text}\"").as_bytes()))?;
    }

    #[test]
    fn a_message_with_a_blemish(changes in vec((any::<Index>(), any::<u8>(), 0..3_u8), 1..4)) {
        let mut message = ANNOUNCE.as_bytes().to_vec();
        for (index, byte, change) in changes {
            let at = index.index(message.len());
            match change {
                0 => message[at] = byte,
                1 => message.insert(at, byte),
                _ => _ = message.remove(at),
            }
        }
        check_against_oracle(&message)?;
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        check_against_oracle(&bytes)?;
        check_against_oracle(&unread(&bytes))?;
        check_against_oracle(&unread(&[b"\"", &bytes[..], b"\""].concat()))?;
    }
}
