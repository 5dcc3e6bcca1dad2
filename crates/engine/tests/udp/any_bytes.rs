//! Random datagrams: nothing panics, and no source gets more bytes than it sent before it has proved its address.

use proptest::collection::vec;
use proptest::prelude::*;
use shoal_config::Config;
use shoal_wire::udp::{PROTOCOL_ID, Reply};

use crate::harness::{Tracker, client_v4, client_v6, configured};

/// Generates the head of a request: some fields are valid, the rest is random.
#[derive(Clone, Debug)]
struct Datagram {
    client: u32,
    v6: bool,
    connection: Connection,
    action: u32,
    tail: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Connection {
    Protocol,
    Valid,
    OfAnother,
    Random(u64),
}

fn datagram() -> impl Strategy<Value = Datagram> {
    let connection = prop_oneof![
        Just(Connection::Protocol),
        Just(Connection::Valid),
        Just(Connection::OfAnother),
        any::<u64>().prop_map(Connection::Random),
    ];
    let action = prop_oneof![9 => 0_u32..5, 1 => any::<u32>()];
    (0_u32..4, any::<bool>(), connection, action, vec(any::<u8>(), 0..300))
        .prop_map(|(client, v6, connection, action, tail)| Datagram { client, v6, connection, action, tail })
}

fn assert_modest(request: &[u8], verified: bool, reply: &[u8]) {
    assert!(reply.len() <= 1232);
    assert!(verified || reply.len() <= request.len(), "amplification");
    if !reply.is_empty() {
        let decoded = Reply::decode(reply).expect("a well-formed reply");
        assert_eq!(&reply[4..8], &request[12..16], "{decoded:?}");
    }
}

proptest! {
    #[test]
    fn random_requests(datagrams in vec(datagram(), 0..70), error in any::<bool>()) {
        let mut tracker = Tracker::new(&configured(|config| config.connection_id.answer_wrong = error));
        let batch: Vec<_> = datagrams
            .iter()
            .map(|datagram| {
                let client = if datagram.v6 { client_v6 } else { client_v4 };
                let connection_id = match datagram.connection {
                    Connection::Protocol => PROTOCOL_ID,
                    Connection::Valid => tracker.connect(client(datagram.client)).0,
                    Connection::OfAnother => tracker.connect(client(datagram.client + 1)).0,
                    Connection::Random(id) => id,
                };
                let head = [&connection_id.to_be_bytes()[..], &datagram.action.to_be_bytes()].concat();
                (client(datagram.client), [head, datagram.tail.clone()].concat())
            })
            .collect();
        let replies = tracker.batch(&batch);
        for ((datagram, (_, request)), reply) in datagrams.iter().zip(&batch).zip(&replies) {
            assert_modest(request, matches!(datagram.connection, Connection::Valid), reply);
        }
    }

    #[test]
    fn random_bytes(requests in vec(vec(any::<u8>(), 0..200), 0..70)) {
        let mut tracker = Tracker::new(&Config::default());
        let batch: Vec<_> = requests.into_iter().map(|request| (client_v4(1), request)).collect();
        let replies = tracker.batch(&batch);
        for ((_, request), reply) in batch.iter().zip(&replies) {
            assert_modest(request, false, reply);
        }
    }
}
