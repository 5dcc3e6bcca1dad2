//! Messages of clients, and values in all their forms.

use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::webtorrent::{
    Announce, Answer, Fault, Limits, OFFER_ID_BYTES_MAX, Offer, OfferId, Request, Storage, decode,
};

const LIMITS: Limits = Limits { offers_max: 10, offer_bytes_max: 8 << 10, info_hashes_max: 3 };

/// An info hash of bytes that some encoder writes in a special way.
const INFO_HASH: InfoHash = InfoHash(*b"\0\x08\t\n\x0c\r\x1f\"\\/<>&\x7f\x80\xa0\xbf\xc0\xffz");
/// The encodings of `JSON.stringify`, of Go's encoder, of Python's, and of one that escapes everything possible.
const INFO_HASHES_WRITTEN: [&str; 4] = [
    "\\u0000\\b\\t\\n\\f\\r\\u001f\\\"\\\\/<>&\u{7f}\u{80}\u{a0}\u{bf}\u{c0}\u{ff}z",
    "\\u0000\\u0008\\t\\n\\u000c\\r\\u001f\\\"\\\\/\\u003c\\u003e\\u0026\u{7f}\u{80}\u{a0}\u{bf}\u{c0}\u{ff}z",
    "\\u0000\\b\\t\\n\\f\\r\\u001f\\\"\\\\/<>&\\u007f\\u0080\\u00a0\\u00bf\\u00c0\\u00ffz",
    "\\u0000\\u0008\\u0009\\u000A\\u000C\\u000D\\u001F\\u0022\\u005C\\/\\u003C\\u003E\\u0026\\u007F\\u0080\\u00A0\
     \\u00BF\\u00C0\\u00FF\\u007A",
];
const PEER_ID: PeerId = PeerId(*b"-WW0208-ABCDEFGHIJKL");
const TO_PEER_ID: PeerId = PeerId(*b"-WW0105-abcdefghijkl");

const OFFER: &str = r#"{"type":"offer","sdp":"v=0\r\no=- 6516274127563498346 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n"}"#;
const ANSWER: &str = r#"{"type":"answer","sdp":"v=0\r\no=- 8131227561863287142 2 IN IP4 127.0.0.1\r\n"}"#;

/// The id of an offer, and its encoding by `JSON.stringify`.
const OFFER_ID: &[u8; 20] = b"\xcb\x13\xfe<\x7f\xbf\xe0Z~\xc1\"\xf8\xabi\x02\\\xa0\xff\xf2\xcc";
const OFFER_ID_WRITTEN: &str =
    "\u{cb}\\u0013\u{fe}<\u{7f}\u{bf}\u{e0}Z~\u{c1}\\\"\u{f8}\u{ab}i\\u0002\\\\\u{a0}\u{ff}\u{f2}\u{cc}";

/// Decodes `message` with every encoding of the info hash, and passes the requests to `check`.
///
/// `$H` stands for the info hash, `$ID` for the id of an offer, `$OFFER` and `$ANSWER` for the objects.
fn each(message: &str, check: impl Fn(Request<'_>)) {
    let message =
        message.replace("$ID", OFFER_ID_WRITTEN).replace("$OFFER", OFFER).replace("$ANSWER", ANSWER);
    for written in INFO_HASHES_WRITTEN {
        with(&message.replace("$H", written), &check);
    }
}

fn with<T>(message: &str, check: impl FnOnce(Request<'_>) -> T) -> T {
    let mut storage = Storage::default();
    check(
        decode(message.as_bytes(), &LIMITS, &mut storage)
            .unwrap_or_else(|error| panic!("{error}: {message}")),
    )
}

fn fault(message: &str) -> Fault {
    let mut storage = Storage::default();
    decode(message.as_bytes(), &LIMITS, &mut storage).map(|request| panic!("{request:?}")).unwrap_err().fault
}

fn announce(request: Request<'_>) -> Announce<'_> {
    let Request::Announce(announce) = request else { panic!("{request:?}") };
    announce
}

fn answer(request: Request<'_>) -> Answer<'_> {
    let Request::Answer(answer) = request else { panic!("{request:?}") };
    answer
}

/// The content of an announce, with its offers as text and the bytes of their ids.
#[derive(Debug, PartialEq)]
struct AnnounceContent {
    event: Event,
    left_bytes: Option<i64>,
    numwant: Option<i64>,
    offers: Vec<(String, Vec<u8>)>,
}

fn content_of(request: Request<'_>) -> AnnounceContent {
    let announce = announce(request);
    assert_eq!((announce.info_hash, announce.peer_id), (INFO_HASH, PEER_ID));
    assert_eq!(announce.offers.is_empty(), announce.offers.iter().next().is_none());
    let text = |offer: &[u8]| String::from_utf8(offer.to_vec()).unwrap();
    AnnounceContent {
        event: announce.event,
        left_bytes: announce.left_bytes,
        numwant: announce.numwant,
        offers: announce.offers.iter().map(|offer| (text(offer.offer), id(&offer.offer_id))).collect(),
    }
}

fn id(offer_id: &OfferId<'_>) -> Vec<u8> {
    offer_id.bytes(&mut [0; OFFER_ID_BYTES_MAX]).to_vec()
}

/// Returns a minimal announce followed by `more`.
fn least(more: &str) -> String {
    r#"{"action":"announce","info_hash":"$H","peer_id":"-WW0208-ABCDEFGHIJKL"$MORE}"#
        .replace("$H", INFO_HASHES_WRITTEN[0])
        .replace("$MORE", more)
}

/// Returns a minimal answer followed by `more`.
fn least_answer(more: &str) -> String {
    least(r#","to_peer_id":"-WW0105-abcdefghijkl","answer":{},"offer_id":"01234567890123456789"$MORE"#)
        .replace("$MORE", more)
}

#[test]
fn real_clients_announce() {
    // WebTorrent, without offers and with keys that only its own tracker uses; libtorrent; anacrolix.
    for (message, event, left_bytes, numwant, offers) in [
        (
            r#"{"numwant":2,"uploaded":0,"downloaded":0,"left":null,"event":"started","action":"announce","info_hash":"$H","peer_id":"-WW0208-ABCDEFGHIJKL","offers":[{"offer":$OFFER,"offer_id":"$ID"},{"offer":$OFFER,"offer_id":"$ID"}]}"#,
            Event::Started,
            None,
            Some(2),
            2,
        ),
        (
            r#"{"uploaded":5,"downloaded":7,"left":0,"event":"completed","numwant":50,"trackerid":"x","action":"announce","info_hash":"$H","peer_id":"-WW0208-ABCDEFGHIJKL"}"#,
            Event::Completed,
            Some(0),
            Some(50),
            0,
        ),
        (
            r#"{"event":"stopped","uploaded":0,"downloaded":0,"left":1048576,"action":"announce","info_hash":"$H","peer_id":"-WW0208-ABCDEFGHIJKL"}"#,
            Event::Stopped,
            Some(1 << 20),
            None,
            0,
        ),
        (
            r#"{"action":"announce","info_hash":"$H","uploaded":0,"downloaded":0,"left":16384,"corrupt":0,"numwant":1,"key":"5C3FE2A9","event":"paused","peer_id":"-WW0208-ABCDEFGHIJKL","offers":[{"offer_id":"$ID","offer":$OFFER}]}"#,
            Event::Update,
            Some(16_384),
            Some(1),
            1,
        ),
        (
            r#"{"numwant":1,"uploaded":0,"downloaded":0,"left":9223372036854775807,"event":"\u003cregular\u003e","action":"announce","info_hash":"$H","peer_id":"-WW0208-ABCDEFGHIJKL","offers":[{"offer_id":"$ID","offer":$OFFER}]}"#,
            Event::Update,
            Some(i64::MAX),
            Some(1),
            1,
        ),
        (
            r#"{"numwant":0,"uploaded":0,"downloaded":0,"left":-1,"event":"stopped","action":"announce","info_hash":"$H","peer_id":"-WW0208-ABCDEFGHIJKL","offers":null}"#,
            Event::Stopped,
            None,
            Some(0),
            0,
        ),
    ] {
        each(message, |request| {
            let offers = vec![(OFFER.to_owned(), OFFER_ID.to_vec()); offers];
            assert_eq!(content_of(request), AnnounceContent { event, left_bytes, numwant, offers });
        });
    }
}

#[test]
fn real_clients_answer() {
    let messages = [
        // WebTorrent.
        r#"{"action":"announce","info_hash":"$H","peer_id":"-WW0208-ABCDEFGHIJKL","to_peer_id":"-WW0105-abcdefghijkl","answer":$ANSWER,"offer_id":"$ID"}"#,
        // libtorrent.
        r#"{"action":"announce","info_hash":"$H","offer_id":"$ID","to_peer_id":"-WW0105-abcdefghijkl","peer_id":"-WW0208-ABCDEFGHIJKL","answer":$ANSWER}"#,
        // anacrolix.
        r#"{"info_hash":"$H","action":"announce","peer_id":"-WW0208-ABCDEFGHIJKL","to_peer_id":"-WW0105-abcdefghijkl","answer":$ANSWER,"offer_id":"$ID"}"#,
        // A client that always sends all keys.
        r#"{"info_hash":"$H","action":"announce","event":"started","numwant":5,"left":0,"offers":[{"offer":$OFFER,"offer_id":"x"}],"offer":null,"peer_id":"-WW0208-ABCDEFGHIJKL","to_peer_id":"-WW0105-abcdefghijkl","answer":$ANSWER,"offer_id":"$ID"}"#,
    ];
    for message in messages {
        each(message, |request| {
            let answer = answer(request);
            assert_eq!(
                (answer.info_hash, answer.peer_id, answer.to_peer_id),
                (INFO_HASH, PEER_ID, TO_PEER_ID)
            );
            assert_eq!((answer.answer, id(&answer.offer_id)), (ANSWER.as_bytes(), OFFER_ID.to_vec()));
        });
    }
}

#[test]
fn real_clients_scrape() {
    let scrapes = |message: &str, expected: &[InfoHash]| {
        each(message, |request| {
            let Request::Scrape(info_hashes) = request else { panic!("{request:?}") };
            assert_eq!(info_hashes, expected);
        });
    };
    let other = InfoHash(*b"01234567890123456789");
    scrapes(r#"{"action":"scrape","info_hash":"$H"}"#, &[INFO_HASH]);
    scrapes(r#"{"action":"scrape","info_hash":["$H"]}"#, &[INFO_HASH]);
    scrapes(r#"{"info_hash":["$H", "01234567890123456789"] ,"action":"scrape"}"#, &[INFO_HASH, other]);
    scrapes(r#"{"action":"scrape","info_hash":["$H","$H"]}"#, &[INFO_HASH, INFO_HASH]);
    scrapes(r#"{"action":"scrape","info_hash":["$H","$H","$H","$H"]}"#, &[INFO_HASH; 3]);
    scrapes(r#"{"action":"scrape","info_hash":[]}"#, &[]);
    scrapes(r#"{"action":"scrape","info_hash":null}"#, &[]);
    scrapes(r#"{"action":"scrape"}"#, &[]);
}

#[test]
fn bytes_left() {
    let cases = [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("0.0", Some(0)),
        ("1", Some(1)),
        ("1.5", Some(2)),
        ("1e9", Some(1_000_000_000)),
        ("1E+3", Some(1000)),
        // Only a peer that needs nothing is a seeder.
        ("0.25", Some(1)),
        ("1e-400", Some(0)),
        ("9007199254740993", Some(9_007_199_254_740_993)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775808", Some(i64::MAX)),
        ("1e400", Some(i64::MAX)),
        ("\"0\"", Some(0)),
        ("\"17\"", Some(17)),
        ("-1", None),
        ("-0.5", None),
        ("-1e400", None),
        ("null", None),
        ("true", None),
        ("\"\"", None),
        ("\"inf\"", None),
        ("\"1e3\"", None),
        ("\"Infinity\"", None),
        ("[0]", None),
        ("{\"left\":0}", None),
    ];
    for (left, expected) in cases {
        let message = least(&format!(r#","left":{left}"#));
        assert_eq!(with(&message, content_of).left_bytes, expected, "{left}");
    }
    assert_eq!(with(&least(""), content_of).left_bytes, None);
}

#[test]
fn numbers_wanted() {
    let cases = [
        ("0", Some(0)),
        ("50", Some(50)),
        ("-1", Some(-1)),
        ("2.0", Some(2)),
        ("1.5", Some(2)),
        ("-0.5", Some(-1)),
        ("1e9", Some(1_000_000_000)),
        ("99999999999999999999999", Some(i64::MAX)),
        ("-99999999999999999999999", Some(i64::MIN)),
        ("\"7\"", Some(7)),
        ("null", None),
        ("\"many\"", None),
        ("\"-\"", None),
        ("[]", None),
    ];
    for (numwant, expected) in cases {
        let message = least(&format!(r#","numwant":{numwant}"#));
        assert_eq!(with(&message, content_of).numwant, expected, "{numwant}");
    }
    assert_eq!(with(&least(""), content_of).numwant, None);
}

#[test]
fn events() {
    let cases = [
        ("\"started\"", Event::Started),
        ("\"\\u0073tarted\"", Event::Started),
        ("\"completed\"", Event::Completed),
        ("\"stopped\"", Event::Stopped),
        ("\"update\"", Event::Update),
        ("\"paused\"", Event::Update),
        ("\"<regular>\"", Event::Update),
        ("\"Started\"", Event::Update),
        ("\"started \"", Event::Update),
        ("\"an event that is longer than all others\"", Event::Update),
        ("\"\\u0061n event that is longer than all others\"", Event::Update),
        ("\"\"", Event::Update),
        ("null", Event::Update),
        ("2", Event::Update),
        ("[\"stopped\"]", Event::Update),
    ];
    for (event, expected) in cases {
        let message = least(&format!(r#","event":{event}"#));
        assert_eq!(with(&message, content_of).event, expected, "{event}");
    }
}

#[test]
fn bad_offers_are_skipped() {
    let good = [("{}".to_owned(), b"1".to_vec())];
    let bad_items = [
        "null",
        "1",
        "\"offer\"",
        "[]",
        "{}",
        r#"{"offer":{}}"#,
        r#"{"offer_id":"2"}"#,
        r#"{"offer":null,"offer_id":"2"}"#,
        r#"{"offer":true,"offer_id":"2"}"#,
        r#"{"offer":7,"offer_id":"2"}"#,
        r#"{"offer":[{}],"offer_id":"2"}"#,
        r#"{"offer":{},"offer_id":2}"#,
        r#"{"offer":{},"offer_id":null}"#,
        r#"{"offer":{},"offer_id":"\u0100"}"#,
        r#"{"offer":{},"offer_id":"Ā"}"#,
        r#"{"offer":{},"offer_id":"€"}"#,
        r#"{"offer":{},"offer_id":"2","offer":1}"#,
        r#"{"offer":{},"offer_id":"2","offer_id":1}"#,
        r#"{"Offer":{},"offer_id":"2"}"#,
    ];
    for bad in bad_items {
        let message = least(&format!(r#","offers":[{bad},{{"offer":{{}},"offer_id":"1"}},{bad}]"#));
        assert_eq!(with(&message, content_of).offers, good, "{bad}");
    }
}

#[test]
fn no_offers() {
    for offers in ["null", "[]", "[ ]", "{}", "0", "\"\"", "[null]", "[[],{}]"] {
        let message = least(&format!(r#","offers":{offers}"#));
        assert_eq!(with(&message, content_of).offers, [], "{offers}");
    }
}

#[test]
fn offers_are_passed_on_unchanged() {
    let objects = [
        r#"{"fake_offer":"_0"}"#,
        r#"{ "sdp" : "\u0041\/\ud83d\ude00 \ud800 €😀" , "type":"offer" , "more" : [ 1.50, -0e+00 , {"":{}} ] }"#,
        "{\n\t\"a\"\r:\n1}",
        r#"{"offer":{"offer_id":"not this one"},"offer_id":"nor this one"}"#,
        r#"{"a":1,"a":2}"#,
        "{}",
    ];
    let items: Vec<_> = objects
        .iter()
        .map(|object| format!(r#" {{ "offer_id" : "x" , "offer" :  {object} , "more":1 }} "#))
        .collect();
    let message = least(&format!(r#","offers":[{}]"#, items.join(",")));
    let expected: Vec<_> = objects.iter().map(|&object| (object.to_owned(), b"x".to_vec())).collect();
    assert_eq!(with(&message, content_of).offers, expected);
    for object in objects {
        let message = least_answer(&format!(r#", "answer" :  {object} "#));
        assert_eq!(with(&message, |request| answer(request).answer.to_vec()), object.as_bytes());
    }
}

#[test]
fn objects_up_to_the_limit_go_through() {
    let object = |bytes: usize| format!(r#"{{"sdp":"{}"}}"#, "a".repeat(bytes - r#"{"sdp":""}"#.len()));
    let (largest, larger) = (object(LIMITS.offer_bytes_max), object(LIMITS.offer_bytes_max + 1));
    let item = |object: &str| format!(r#"{{"offer":{object},"offer_id":"x"}}"#);
    let message = least(&format!(r#","offers":[{},{}]"#, item(&larger), item(&largest)));
    assert_eq!(with(&message, content_of).offers, [(largest.clone(), b"x".to_vec())]);

    let message = least_answer(&format!(r#","answer":{largest}"#));
    assert_eq!(with(&message, |request| answer(request).answer.len()), LIMITS.offer_bytes_max);
    assert_eq!(fault(&least_answer(&format!(r#","answer":{larger}"#))), Fault::AnswerTooLarge);
}

#[test]
fn offers_beyond_the_limit_are_left_out() {
    let items: Vec<_> =
        (0..30).map(|index| format!(r#"null,{{"offer":{{}},"offer_id":"{index}"}}"#)).collect();
    let message = least(&format!(r#","offers":[{}]"#, items.join(",")));
    let expected: Vec<_> =
        (0..LIMITS.offers_max).map(|index| ("{}".to_owned(), index.to_string().into_bytes())).collect();
    assert_eq!(with(&message, content_of).offers, expected);
}

#[test]
fn offer_ids_of_any_length_up_to_the_limit() {
    let id_of = |request: Request<'_>| id(&answer(request).offer_id);
    assert_eq!(with(&least_answer(r#","offer_id":"""#), id_of), b"");
    for beyond_latin in ["Ā", "€", "😀", "\\u0100", "\\ud83d"] {
        let message = least_answer(&format!(r#","offer_id":"a{beyond_latin}""#));
        assert_eq!(fault(&message), Fault::OfferId, "{beyond_latin}");
    }
    for character in ["a", "é", "\\u00E9", "\\n"] {
        let written = character.repeat(OFFER_ID_BYTES_MAX);
        let message = least_answer(&format!(r#","offer_id":"{written}""#));
        with(&message, |request| {
            let offer_id = answer(request).offer_id;
            assert_eq!(offer_id.raw(), format!("\"{written}\"").as_bytes());
            assert_eq!(id(&offer_id).len(), OFFER_ID_BYTES_MAX);
        });
        let message = least_answer(&format!(r#","offer_id":"{written}{character}""#));
        assert_eq!(fault(&message), Fault::OfferId, "{character}");
    }
}

#[test]
fn offer_ids_are_the_same_however_they_are_written() {
    let message = |written: &str| least_answer(&format!(r#","offer_id":"{written}""#));
    let plain = message("é/\\n\\u0000");
    with(&plain, |first| {
        let first = answer(first).offer_id;
        for written in ["\\u00E9\\/\\u000a\\u0000", "\\u00e9/\\u000A\\u0000"] {
            with(&message(written), |request| assert_eq!(answer(request).offer_id, first, "{written}"));
        }
        with(&message("e/\\n\\u0000"), |request| assert_ne!(answer(request).offer_id, first));
        with(&message("é/\\n"), |request| assert_ne!(answer(request).offer_id, first));
    });
}

#[test]
fn the_last_of_two_keys_wins() {
    let message = least(
        r#","event":"started","event":"stopped","left":0,"left":null,"numwant":1,"numwant":2,"offers":[{"offer":{},"offer_id":"1"}],"offers":[{"offer":{},"offer_id":"2","offer_id":"3"}]"#,
    );
    let expected = AnnounceContent {
        event: Event::Stopped,
        left_bytes: None,
        numwant: Some(2),
        offers: vec![("{}".to_owned(), b"3".to_vec())],
    };
    assert_eq!(with(&message, content_of), expected);
    assert_eq!(with(&message.replace("\"2\"", "2"), content_of).offers, expected.offers);
    assert_eq!(
        with(&least(r#","offers":[{"offer":{},"offer_id":"1"}],"offers":null"#), content_of).offers,
        []
    );
    // A later answer replaces an earlier one.
    assert_eq!(with(&least_answer(r#","answer":{"a":1}"#), |request| answer(request).answer.len()), 7);
    assert_eq!(fault(&least_answer(r#","answer":7"#)), Fault::Answer);
    // Several info hashes do not add up.
    let scrape = r#"{"action":"announce","info_hash":["01234567890123456789"],"info_hash":"98765432109876543210","action":"scrape"}"#;
    with(scrape, |request| {
        let Request::Scrape(info_hashes) = request else { panic!("{request:?}") };
        assert_eq!(info_hashes, [InfoHash(*b"98765432109876543210")]);
    });
}

#[test]
fn keys_may_be_escaped() {
    let message = r#"{"\u0061ction":"\u0061nnounce","inf\u006f_hash":"01234567890123456789","peer\u005Fid":"-WW0208-ABCDEFGHIJKL","of\u0066ers":[{"offer\u005fid":"1","\u006fffer":{}}],"\u00e4ction":"scrape","action\u0000":1}"#;
    with(message, |request| {
        let announce = announce(request);
        assert_eq!(announce.info_hash, InfoHash(*b"01234567890123456789"));
        let offers: Vec<Offer<'_>> = announce.offers.iter().collect();
        assert_eq!((offers[0].offer, offers[0].offer_id.raw()), (&b"{}"[..], &b"\"1\""[..]));
    });
}

/// As an announce, it would make a leecher of a seeder.
#[test]
fn a_message_with_an_invalid_answer_is_no_announce() {
    for not_an_answer in ["false", "0", "[]", "[{}]"] {
        let message = least_answer(&format!(r#","answer":{not_an_answer}"#));
        assert_eq!(fault(&message), Fault::Answer, "{not_an_answer}");
        assert_eq!(
            fault(&least(&format!(r#","answer":{not_an_answer}"#))),
            Fault::Missing { key: "to_peer_id" }
        );
    }
    assert_eq!(fault(&least_answer(r#","answer":null"#)), Fault::Missing { key: "answer" });
    let to = r#","to_peer_id":"-WW0105-abcdefghijkl""#;
    assert_eq!(fault(&least(to)), Fault::Missing { key: "answer" });
    assert_eq!(fault(&least(r#","to_peer_id":7"#)), Fault::NotTwentyBytes { key: "to_peer_id" });
    // Both null are the same as absent.
    assert_eq!(with(&least(r#","answer":null,"to_peer_id":null"#), content_of).offers, []);
}

#[test]
fn offers_and_answers_may_be_strings() {
    for text in [r#""""#, r#""v=0\r\n""#, r#""eyJ0eXBlIjoib2ZmZXIifQ==""#] {
        let message = least(&format!(r#","offers":[{{"offer":{text},"offer_id":"x"}}]"#));
        assert_eq!(with(&message, content_of).offers, [(text.to_owned(), b"x".to_vec())]);
        let message = least_answer(&format!(r#","answer":{text}"#));
        assert_eq!(with(&message, |request| answer(request).answer.to_vec()), text.as_bytes());
    }
}

#[test]
fn a_storage_forgets_the_message_before() {
    let mut storage = Storage::default();
    let first = least(r#","offers":[{"offer":{},"offer_id":"1"}]"#);
    assert_eq!(announce(decode(first.as_bytes(), &LIMITS, &mut storage).unwrap()).offers.len(), 1);
    assert!(announce(decode(least("").as_bytes(), &LIMITS, &mut storage).unwrap()).offers.is_empty());
    let scrape = decode(br#"{"action":"scrape"}"#, &LIMITS, &mut storage).unwrap();
    assert!(matches!(scrape, Request::Scrape([])), "{scrape:?}");
    let error = decode(br#"{"action":"announce"}"#, &LIMITS, &mut storage).map(drop).unwrap_err();
    assert_eq!(error.info_hash, None);
}
