//! Every message that one side encodes is decoded by the other.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::webtorrent::received::{
    self, AnnounceReply, Failure, Received, RelayedAnswer, RelayedOffer, ScrapeFile,
};
use shoal_wire::webtorrent::request::{self, AnnounceRequest, AnswerRequest, OfferRequest, Style};
use shoal_wire::webtorrent::{
    Action, Limits, OFFER_ID_BYTES_MAX, Offer, OfferId, Request, Storage, decode, reply,
};

const LIMITS: Limits = Limits { offers_max: 10, offer_bytes_max: 16 << 10, info_hashes_max: 100 };

/// Offers of browsers, and invalid ones that pass the checks.
const OBJECTS: [&str; 4] = [
    r#"{"type":"offer","sdp":"v=0\r\no=- 6516274127563498346 2 IN IP4 127.0.0.1\r\ns=-\r\n"}"#,
    r#"{"fake_offer":[1,{"a":null}]}"#,
    "{}",
    r#"{ "type" : "offer" , "sdp" : "Zürich \u00fc \ud83d" }"#,
];

fn style() -> impl Strategy<Value = Style> {
    prop_oneof![Just(Style::Raw), Just(Style::Escaped)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![Just(Event::Update), Just(Event::Started), Just(Event::Completed), Just(Event::Stopped)]
}

fn object() -> impl Strategy<Value = &'static [u8]> {
    (0..OBJECTS.len()).prop_map(|index| OBJECTS[index].as_bytes())
}

fn offer_id() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 20), vec(any::<u8>(), 0..=OFFER_ID_BYTES_MAX)]
}

proptest! {
    #[test]
    fn announces(
        info_hash: [u8; 20],
        peer_id: [u8; 20],
        event in event(),
        left_bytes in proptest::option::of(0..=i64::MAX.unsigned_abs()),
        numwant: Option<u32>,
        offers in vec((offer_id(), object()), 0..12),
        style in style(),
    ) {
        let offers: Vec<_> = offers.iter().map(|(offer_id, offer)| OfferRequest { offer_id, offer }).collect();
        let (info_hash, peer_id) = (InfoHash(info_hash), PeerId(peer_id));
        let mut out = b"before".to_vec();
        AnnounceRequest { info_hash, peer_id, event, left_bytes, numwant, offers: &offers }.encode(style, &mut out);
        let mut storage = Storage::default();
        let Ok(Request::Announce(announce)) = decode(&out[6..], &LIMITS, &mut storage) else {
            panic!("{}", out.escape_ascii());
        };
        prop_assert_eq!((announce.info_hash, announce.peer_id, announce.event), (info_hash, peer_id, event));
        prop_assert_eq!(announce.left_bytes.map(i64::unsigned_abs), left_bytes);
        prop_assert_eq!(announce.numwant, numwant.map(i64::from));
        prop_assert_eq!(announce.offers.len(), offers.len().min(LIMITS.offers_max));
        for (read, written) in announce.offers.iter().zip(&offers) {
            prop_assert_eq!(read.offer, written.offer);
            prop_assert_eq!(bytes(&read.offer_id), written.offer_id);
            check_relayed_offer(info_hash, peer_id, &read)?;
        }
    }

    #[test]
    fn answers(
        info_hash: [u8; 20],
        peer_id: [u8; 20],
        to_peer_id: [u8; 20],
        offer_id in offer_id(),
        answer in object(),
        style in style(),
    ) {
        let (info_hash, peer_id, to_peer_id) = (InfoHash(info_hash), PeerId(peer_id), PeerId(to_peer_id));
        let mut out = Vec::new();
        AnswerRequest { info_hash, peer_id, to_peer_id, offer_id: &offer_id, answer }.encode(style, &mut out);
        let mut storage = Storage::default();
        let Ok(Request::Answer(read)) = decode(&out, &LIMITS, &mut storage) else {
            panic!("{}", out.escape_ascii());
        };
        prop_assert_eq!((read.info_hash, read.peer_id, read.to_peer_id), (info_hash, peer_id, to_peer_id));
        prop_assert_eq!(read.answer, answer);
        prop_assert_eq!(bytes(&read.offer_id), offer_id);

        let mut relayed = Vec::new();
        reply::answer(&info_hash, &peer_id, &read, &mut relayed);
        let expected = RelayedAnswer { info_hash, peer_id, offer_id: read.offer_id, answer };
        prop_assert_eq!(received::decode(&relayed), Ok(Received::Answer(expected)));
    }

    #[test]
    fn scrapes(info_hashes: Vec<[u8; 20]>, counts: [u32; 3], style in style()) {
        let info_hashes: Vec<_> = info_hashes.into_iter().map(InfoHash).collect();
        let mut out = Vec::new();
        request::scrape(&info_hashes, style, &mut out);
        let mut storage = Storage::default();
        let Ok(Request::Scrape(read)) = decode(&out, &LIMITS, &mut storage) else {
            panic!("{}", out.escape_ascii());
        };
        prop_assert_eq!(read, &info_hashes[..info_hashes.len().min(LIMITS.info_hashes_max)]);

        let [complete, incomplete, downloaded] = counts;
        let mut out = Vec::new();
        reply::scrape_begin(&mut out);
        for info_hash in &info_hashes {
            reply::scrape_file(info_hash, complete, incomplete, downloaded, &mut out);
        }
        reply::scrape_end(&mut out);
        let Ok(Received::Scrape(scrape)) = received::decode(&out) else { panic!("{}", out.escape_ascii()) };
        let file = ScrapeFile { complete, incomplete, downloaded };
        prop_assert!(scrape.files().eq(info_hashes.iter().map(|&info_hash| (info_hash, file))));
        prop_assert_eq!(scrape.file(InfoHash([7; 20])).is_some(), info_hashes.contains(&InfoHash([7; 20])));
    }

    #[test]
    fn announce_replies(info_hash: [u8; 20], interval_s: u32, complete: u32, incomplete: u32) {
        let expected = AnnounceReply { info_hash: InfoHash(info_hash), interval_s, complete, incomplete };
        let mut out = Vec::new();
        reply::announce(&expected.info_hash, interval_s, complete, incomplete, &mut out);
        prop_assert_eq!(received::decode(&out), Ok(Received::Announce(expected)));
    }

    #[test]
    fn failures(info_hash: Option<[u8; 20]>, action in 0..3_u8, reason in "\\PC*|.*|[\0-\x7f]*") {
        let action = [None, Some(Action::Announce), Some(Action::Scrape)][usize::from(action)];
        let info_hash = info_hash.map(InfoHash);
        let mut out = Vec::new();
        reply::failure(action, info_hash.as_ref(), &reason, &mut out);
        let action = action.filter(|&action| action == Action::Scrape || info_hash.is_some());
        let expected = Failure { action, info_hash, reason: reason.into() };
        prop_assert_eq!(received::decode(&out), Ok(Received::Failure(expected)));
    }
}

fn bytes(offer_id: &OfferId<'_>) -> Vec<u8> {
    offer_id.bytes(&mut [0; OFFER_ID_BYTES_MAX]).to_vec()
}

fn check_relayed_offer(info_hash: InfoHash, peer_id: PeerId, offer: &Offer<'_>) -> Result<(), TestCaseError> {
    let mut relayed = Vec::new();
    reply::offer(&info_hash, &peer_id, offer, &mut relayed);
    let expected = RelayedOffer { info_hash, peer_id, offer_id: offer.offer_id, offer: offer.offer };
    prop_assert_eq!(received::decode(&relayed), Ok(Received::Offer(expected)));
    Ok(())
}
