//! Messages to WebTorrent clients, as a client decodes them.

use shoal_base::PeerId;
use shoal_wire::webtorrent::received::{self, Received, ReceivedError};
use shoal_wire::webtorrent::{Answer, Offer, reply};

use crate::webtorrent::message::check_json;

/// Decodes the input as a message of a tracker, and encodes the result as a tracker would.
pub fn webtorrent_received(message: &[u8]) {
    let decoded = received::decode(message);
    check_json(message, if let Err(ReceivedError::Json(json)) = decoded { Some(json) } else { None });
    let Ok(received) = decoded else { return };
    let mut out = Vec::new();
    match &received {
        Received::Announce(read) => {
            reply::announce(&read.info_hash, read.interval_s, read.complete, read.incomplete, &mut out);
        }
        Received::Offer(read) => {
            let offer = Offer { offer: read.offer, offer_id: read.offer_id };
            reply::offer(&read.info_hash, &read.peer_id, &offer, &mut out);
        }
        Received::Answer(read) => {
            let answer = Answer {
                info_hash: read.info_hash,
                peer_id: read.peer_id,
                to_peer_id: PeerId([0; 20]),
                answer: read.answer,
                offer_id: read.offer_id,
            };
            reply::answer(&read.info_hash, &read.peer_id, &answer, &mut out);
        }
        Received::Scrape(read) => {
            reply::scrape_begin(&mut out);
            for (info_hash, file) in read.files() {
                assert!(read.file(info_hash).is_some());
                reply::scrape_file(&info_hash, file.complete, file.incomplete, file.downloaded, &mut out);
            }
            reply::scrape_end(&mut out);
            let Ok(Received::Scrape(again)) = received::decode(&out) else { panic!("a scrape") };
            return assert!(again.files().eq(read.files()));
        }
        Received::Failure(read) => {
            reply::failure(read.action, read.info_hash.as_ref(), &read.reason, &mut out);
            let Ok(Received::Failure(again)) = received::decode(&out) else { panic!("a failure") };
            assert_eq!((again.info_hash, &again.reason), (read.info_hash, &read.reason));
            return;
        }
    }
    assert_eq!(received::decode(&out), Ok(received));
}
