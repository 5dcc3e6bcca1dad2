//! Messages between the clients of different nodes of a cluster.

use std::sync::Arc;

use shoal_base::transport::stream::Handle;
use shoal_base::{Action, InfoHash, PeerId};
use shoal_engine::webtorrent::{Content, ForwardedMessage, Nodes, RemoteMessage};
use shoal_relay::{Address, Announce, Mailboxes, OfferKey, Settings, Swarms};

/// The peer that is connected to the node, and its torrent.
const PEER: PeerId = PeerId([b'p'; 20]);
const TORRENT: InfoHash = InfoHash([b't'; 20]);

/// The id of the offer that the peer has made.
const OFFER_ID: &[u8] = b"o";

const NOW_S: u32 = 1000;

/// Reads the input as messages of another node. They are written as the same bytes, and can be divided and delivered.
pub fn remote_messages(input: &[u8]) {
    let mut again = Vec::new();
    for message in RemoteMessage::decode_all(input).map_while(|message| message) {
        message.encode(&mut again, |out| match message.content {
            Content::Offer { frame, .. } | Content::Answer { frame, .. } => out.extend_from_slice(frame),
        });
    }
    assert_eq!(again, input[..again.len()]);
    let bytes_max = input.first().map_or(0, |&byte| usize::from(byte) * 4);
    for piece in Nodes::split(&again, bytes_max) {
        assert!(
            piece.len() <= bytes_max && RemoteMessage::decode_all(piece).all(|message| message.is_some())
        );
    }
    deliver(input);
}

fn deliver(messages: &[u8]) {
    let settings = Settings { memory_bytes_max: 1 << 20, ..Settings::new(100, 400, [1, 2]) };
    let (swarms, mailboxes) = (Arc::new(Swarms::new(&settings)), Mailboxes::with_remote(1, 1 << 20));
    let offers: [OfferKey; 1] = [swarms.offer_key(OFFER_ID)];
    let announce = Announce {
        address: Address { worker: 0, handle: Handle { index: 0, generation: 0 } },
        source: swarms.source([192, 0, 2, 1].into()),
        peer_id: PEER,
        action: Action::Leech,
        may_join: true,
        is_exempt: false,
        offers: &offers,
    };
    let key = swarms.swarm_key(&TORRENT);
    let mut targets = Vec::new();
    swarms
        .announce(&key, &announce, NOW_S, &mut fastrand::Rng::with_seed(1), &mut targets)
        .expect("there is room for a peer");
    let mut nodes = Nodes::new(swarms, mailboxes);
    nodes.deliver(5, messages, NOW_S);
    for _ in 0..2 {
        nodes.exchange(
            |to, messages| {
                assert_eq!(to, 5, "there is no other node");
                assert!(RemoteMessage::decode_all(messages).all(|message| message.is_some()));
            },
            |worker| assert_eq!(worker, 0),
        );
    }
    let counted: u64 =
        ForwardedMessage::ALL.iter().map(|&outcome| nodes.counters().messages.of(outcome).read()).sum();
    assert!(counted <= RemoteMessage::decode_all(messages).count() as u64);
}
