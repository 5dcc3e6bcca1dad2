//! Nothing is allocated per announce or message in the steady state. A binary of its own, since it replaces the
//! allocator.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod requests;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_base::transport::stream::{Handle, Remote, StreamService};
use shoal_config::ClientHeader;
use shoal_engine::Now;
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::http::Responder;
use shoal_engine::policy::Protocol;
use shoal_engine::processing::Stopwatch;
use shoal_engine::webtorrent;
use shoal_session::{ListenerProtocols, Service, Session, SessionSettings};
use shoal_store::Store;
use shoal_testkit::allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NOW: Now = Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 };

fn service(webtorrent: Option<webtorrent::Responder>, tls: Option<shoal_session::tls::Server>) -> Service {
    let mut settings = SessionSettings {
        listeners: vec![
            ListenerProtocols { tls: false, proxy_protocol: false },
            ListenerProtocols { tls: false, proxy_protocol: true },
            ListenerProtocols { tls: true, proxy_protocol: false },
        ],
        ..SessionSettings::default()
    };
    settings.proxy.networks = vec!["10.0.0.0/8".parse().unwrap()];
    settings.proxy.header = ClientHeader::XForwardedFor;
    let store = shoal_store::Settings {
        peers_per_source_max: 64,
        ..shoal_store::Settings::new(64 << 20, 2700, [1, 2, 3, 4])
    };
    let store = Arc::new(Store::new(&store).unwrap());
    let responder = Responder::new(
        Context::new(Protocol::Http, Arc::default(), Tally::default(), fastrand::Rng::with_seed(1)),
        store,
    );
    let mut service = Service::new(
        Arc::new(settings),
        responder,
        webtorrent,
        tls,
        Stopwatch::new(Arc::default(), fastrand::Rng::with_seed(1), || 0),
    );
    service.begin_round(NOW);
    service
}

fn open(service: &mut Service, listener: usize, ip: [u8; 4], index: u32) -> Session {
    let peer = Some(SocketAddr::from((ip, 40000)));
    service.open(&Remote { listener, peer }, Handle { index, generation: 0 })
}
