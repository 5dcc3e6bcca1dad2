//! Every encoded value decodes to itself, and no input causes a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_base::{InfoHash, PeerId};
use shoal_wire::udp::{
    Announce, ConnectionId, Options, Peers, Reply, Request, ScrapeEntry, TransactionId, encode_url_data,
};

const PACKET_BYTES_MAX: usize = 4096;

fn announce() -> impl Strategy<Value = Announce> {
    let ids = (any::<[u8; 20]>(), any::<[u8; 20]>());
    let bytes = any::<[i64; 3]>();
    let rest = (any::<u32>(), any::<[u8; 4]>(), any::<u32>(), any::<i32>(), any::<u16>());
    (ids, bytes, rest).prop_map(|(ids, [downloaded, left, uploaded], (event, ip, key, num_want, port))| {
        Announce {
            info_hash: InfoHash(ids.0),
            peer_id: PeerId(ids.1),
            downloaded_bytes: downloaded.into(),
            left_bytes: left.into(),
            uploaded_bytes: uploaded.into(),
            event: event.into(),
            ip,
            key: key.into(),
            num_want: num_want.into(),
            port: port.into(),
        }
    })
}

fn entry() -> impl Strategy<Value = ScrapeEntry> {
    any::<[u32; 3]>().prop_map(|[seeders, completed, leechers]| ScrapeEntry {
        seeders: seeders.into(),
        completed: completed.into(),
        leechers: leechers.into(),
    })
}

fn assert_request_round_trip(request: Request<'_>) {
    let mut out = [0; PACKET_BYTES_MAX];
    let bytes = request.encode(&mut out).expect("room for any packet of this test");
    assert_eq!(Request::decode(&out[..bytes]), Ok(request));
}

fn assert_reply_round_trip(reply: Reply<'_>) {
    let mut out = [0; PACKET_BYTES_MAX];
    let bytes = reply.encode(&mut out).expect("room for any packet of this test");
    assert_eq!(Reply::decode(&out[..bytes]), Ok(reply));
}

proptest! {
    #[test]
    fn requests(
        (connection, transaction) in any::<(u64, u32)>(),
        announce in announce(),
        options in vec(any::<u8>(), 0..64),
        hashes in vec(any::<[u8; 20]>().prop_map(InfoHash), 1..120),
    ) {
        let (connection_id, transaction_id) = (ConnectionId(connection), TransactionId(transaction));
        let (announce, options) = (&announce, Options::new(&options));
        assert_request_round_trip(Request::Connect { transaction_id });
        assert_request_round_trip(Request::Announce { connection_id, transaction_id, announce, options });
        assert_request_round_trip(Request::Scrape { connection_id, transaction_id, info_hashes: &hashes });
    }

    #[test]
    fn replies(
        (connection, transaction) in any::<(u64, u32)>(),
        [interval_s, leechers, seeders] in any::<[u32; 3]>(),
        bytes in vec(any::<u8>(), 0..600),
        entries in vec(entry(), 0..120),
    ) {
        let (connection_id, transaction_id) = (ConnectionId(connection), TransactionId(transaction));
        let peers = Peers::new(&bytes);
        assert_reply_round_trip(Reply::Connect { transaction_id, connection_id });
        assert_reply_round_trip(Reply::Announce { transaction_id, interval_s, leechers, seeders, peers });
        assert_reply_round_trip(Reply::Scrape { transaction_id, entries: &entries });
        assert_reply_round_trip(Reply::Error { transaction_id, message: &bytes });
    }

    #[test]
    fn urls(url in vec(any::<u8>(), 0..2000)) {
        let mut out = [0; PACKET_BYTES_MAX];
        let bytes = encode_url_data(&url, &mut out).unwrap();
        let pieces: Vec<&[u8]> = Options::new(&out[..bytes]).url_data().collect();
        prop_assert_eq!(pieces.concat(), url);
    }

    #[test]
    fn any_bytes(action in 0_u32..6, bytes in vec(any::<u8>(), 0..300)) {
        // Random bytes hardly ever contain a known action, so the test inserts one.
        let with_action = |offset: usize| {
            let mut packet = bytes.clone();
            if let Some(field) = packet.get_mut(offset..offset + 4) {
                field.copy_from_slice(&action.to_be_bytes());
            }
            packet
        };
        if let Ok(Request::Announce { options, .. }) = Request::decode(&with_action(8)) {
            prop_assert!(options.url_data().flatten().count() <= options.as_bytes().len());
        }
        let _ = Reply::decode(&with_action(0));
    }
}
