//! Nothing is allocated per datagram.

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_base::transport::datagram::{BATCH_MAX, Exchange, REPLY_BYTES_MAX};
use shoal_base::{Event, InfoHash, PeerId};
use shoal_config::Config;
use shoal_engine::connection_id::ConnectionIds;
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::udp::Responder;
use shoal_wire::udp::{Announce, ConnectionId, Options, Request, TransactionId};

use crate::{HOSTS, KEY, NOW, TORRENTS, all_have_joined, store};

/// The behaviour of clients during a phase.
#[derive(Clone, Copy)]
enum Phase {
    /// Clients keep their state.
    Settled,
    /// Clients leave, return, complete, and lose their data.
    Churn,
}

/// The tracker, and the random numbers that its clients are drawn with.
struct World {
    rng: fastrand::Rng,
    responder: Responder,
}

impl World {
    /// Sends this many mixed batches, and counts the allocations while they are served.
    fn run(&mut self, phase: Phase, batches: u32) -> u64 {
        let mut requests = [[0; 512]; BATCH_MAX];
        let mut replies = [[0; REPLY_BYTES_MAX]; BATCH_MAX];
        let mut allocations = 0;
        for _ in 0..batches {
            let mut batch: Vec<Exchange<'_>> = requests
                .iter_mut()
                .zip(&mut replies)
                .map(|(buffer, reply)| {
                    let host = self.rng.u8(0..HOSTS);
                    let source = source(host, self.rng.bool());
                    let bytes = request(&mut self.rng, phase, host, source, buffer);
                    Exchange { source, request: &buffer[..bytes], reply, reply_len: 0 }
                })
                .collect();
            let before = shoal_testkit::allocator::allocations();
            self.responder.serve(&mut batch, NOW);
            allocations += shoal_testkit::allocator::allocations() - before;
        }
        allocations
    }
}

fn source(host: u8, v6: bool) -> SocketAddr {
    if v6 {
        SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, host.into()], 6881))
    } else {
        SocketAddr::from(([10, 0, 0, host], 6881))
    }
}

/// Writes a random request: any kind, some with a wrong connection id, some truncated.
fn request(rng: &mut fastrand::Rng, phase: Phase, host: u8, source: SocketAddr, out: &mut [u8]) -> usize {
    let transaction_id = TransactionId(rng.u32(..));
    let connection_id = match rng.u32(0..10) {
        0 => ConnectionId(rng.u64(..)),
        _ => ConnectionIds::new(&KEY).issue(source.ip(), NOW.unix_s),
    };
    let info_hashes = [(); 8].map(|()| InfoHash([rng.u8(0..TORRENTS); 20]));
    let (seeds, event) = match phase {
        Phase::Settled => (host < HOSTS / 2, Event::Update),
        Phase::Churn => (rng.bool(), [Event::Update, Event::Completed, Event::Stopped][rng.usize(0..3)]),
    };
    let announce = Announce {
        info_hash: info_hashes[0],
        peer_id: PeerId([b'-'; 20]),
        downloaded_bytes: 0.into(),
        left_bytes: i64::from(!seeds).into(),
        uploaded_bytes: 0.into(),
        event: Announce::event_number(event),
        ip: [0; 4],
        key: 0.into(),
        num_want: rng.i32(-1..100).into(),
        port: 6881.into(),
    };
    let options = Options::default();
    let request = match rng.u32(0..10) {
        0 => Request::Connect { transaction_id },
        1 => Request::Scrape { connection_id, transaction_id, info_hashes: &info_hashes },
        _ => Request::Announce { connection_id, transaction_id, announce: &announce, options },
    };
    let bytes = request.encode(out).expect("room for any of these");
    if rng.u32(0..20) == 0 { rng.usize(0..bytes) } else { bytes }
}

#[test]
fn the_steady_state_allocates_nothing() {
    let store = store();
    let mut config = Config::default();
    config.connection_id.answer_wrong = true;
    let mut rng = fastrand::Rng::with_seed(5);
    let responder = Responder::new(
        Context::new(
            Protocol::Udp,
            Arc::new(Policy::new(config).with_private_host(true)),
            Tally::default(),
            rng.fork(),
        ),
        &KEY,
        Arc::clone(&store),
    );
    let mut world = World { rng, responder };

    world.run(Phase::Settled, 8000);
    assert!(all_have_joined(&store));
    assert_eq!(world.run(Phase::Settled, 1000), 0);

    // Swarms may allocate when they change their representation, but single datagrams may not.
    world.run(Phase::Churn, 2000);
    let allocations = world.run(Phase::Churn, 1000);
    assert!(allocations < 64, "{allocations} in 64000 datagrams");
}
