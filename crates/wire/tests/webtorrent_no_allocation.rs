//! No message causes an allocation once the storage and the buffer have grown to the size of their content.
#![allow(clippy::unwrap_used, reason = "a test that cannot decode has failed")]

use shoal_base::{Event, InfoHash, PeerId};
use shoal_testkit::allocator::{CountingAllocator, allocations};
use shoal_wire::webtorrent::received::{self, Received};
use shoal_wire::webtorrent::request::{self, AnnounceRequest, AnswerRequest, OfferRequest, Style};
use shoal_wire::webtorrent::{Limits, Request, Storage, decode, reply};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const LIMITS: Limits = Limits { offers_max: 10, offer_bytes_max: 4096, info_hashes_max: 50 };
const INFO_HASH: InfoHash = InfoHash(*b"\xff\x00\"0123456789abcdef\\");
const PEER_ID: PeerId = PeerId(*b"-WW0208-ABCDEFGHIJKL");

fn messages() -> Vec<Vec<u8>> {
    let sdp = r"a=candidate:1 1 udp 2113937151 192.0.2.1 50000 typ host\r\n".repeat(30);
    let offer = format!(r#"{{"type":"offer","sdp":"v=0\r\n{sdp}"}}"#);
    let offers = [OfferRequest { offer_id: &INFO_HASH.0, offer: offer.as_bytes() }; 12];
    let mut messages = Vec::new();
    for style in [Style::Raw, Style::Escaped] {
        let mut write = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut message = Vec::new();
            write(&mut message);
            messages.push(message);
        };
        let event = Event::Started;
        let announce = AnnounceRequest {
            info_hash: INFO_HASH,
            peer_id: PEER_ID,
            event,
            left_bytes: None,
            numwant: Some(10),
            offers: &offers,
        };
        let answer = AnswerRequest {
            info_hash: INFO_HASH,
            peer_id: PEER_ID,
            to_peer_id: PEER_ID,
            offer_id: &INFO_HASH.0,
            answer: offer.as_bytes(),
        };
        write(&|out| announce.encode(style, out));
        write(&|out| answer.encode(style, out));
        write(&|out| request::scrape(&[INFO_HASH; 60], style, out));
        write(&|out| out.extend_from_slice(b"{\"action\":\"announce\",\"left\":1.5e300"));
    }
    messages
}

/// Processes a message as a tracker does, and the replies as a client does. Returns the number of understood messages.
fn exchange(message: &[u8], storage: &mut Storage, out: &mut Vec<u8>) -> usize {
    let mut understood = 0;
    let mut receive = |out: &mut Vec<u8>| {
        let received = received::decode(out).unwrap();
        understood += if let Received::Scrape(scrape) = received { scrape.files().count() } else { 1 };
        out.clear();
    };
    match decode(message, &LIMITS, storage) {
        Ok(Request::Announce(announce)) => {
            reply::announce(&announce.info_hash, 120, 1, 2, out);
            receive(out);
            for offer in announce.offers.iter() {
                reply::offer(&announce.info_hash, &announce.peer_id, &offer, out);
                receive(out);
            }
        }
        Ok(Request::Answer(answer)) => {
            reply::answer(&answer.info_hash, &answer.peer_id, &answer, out);
            receive(out);
        }
        Ok(Request::Scrape(info_hashes)) => {
            reply::scrape_begin(out);
            info_hashes.iter().for_each(|info_hash| reply::scrape_file(info_hash, 1, 2, 3, out));
            reply::scrape_end(out);
            receive(out);
        }
        Err(error) => {
            reply::failure(error.action, error.info_hash.as_ref(), "the message ends early", out);
            receive(out);
        }
    }
    understood
}

#[test]
fn nothing_is_allocated_per_message() {
    let (mut storage, mut out) = (Storage::default(), Vec::new());
    let messages = messages();
    let mut round =
        || messages.iter().map(|message| exchange(message, &mut storage, &mut out)).sum::<usize>();
    let understood = round();
    assert_eq!(understood, 2 * (11 + 1 + 50 + 1));
    let before = allocations();
    for _ in 0..10 {
        assert_eq!(round(), understood);
    }
    assert_eq!(allocations() - before, 0);
}
