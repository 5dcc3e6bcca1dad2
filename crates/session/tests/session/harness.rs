//! A tracker without sockets, and connections to it.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use shoal_base::transport::stream::{Handle, Next, Remote, StreamService};
use shoal_config::Config;
use shoal_engine::Now;
use shoal_engine::context::Context;
use shoal_engine::counter::{Counters, Tally};
use shoal_engine::http::Responder;
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::processing::Stopwatch;
use shoal_session::{ListenerProtocols, Service, Session, SessionSettings};
use shoal_store::Store;

use crate::response::{self, Response};
use crate::webtorrent;

pub(crate) const NOW: Now = Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 };

/// Maximum number of bytes that a back end passes at a time.
pub(crate) const INPUT_BYTES_MAX: usize = 16 * 1024;

/// The listeners of every tracker here.
pub(crate) const PLAIN: usize = 0;
pub(crate) const PROXIED: usize = 1;
pub(crate) const SECURE: usize = 2;
pub(crate) const SECURE_PROXIED: usize = 3;

pub(crate) struct Tracker {
    pub(crate) service: Service,
    pub(crate) counters: Arc<Counters>,
    pub(crate) opened: Cell<u32>,
}

/// The result of some input.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) output: Vec<u8>,
    pub(crate) next: Next,
}

impl Tracker {
    /// Creates a tracker with the defaults and without TLS.
    pub(crate) fn new() -> Self {
        Self::with(|_| {}, |_| {}, None)
    }

    /// Creates a tracker with the defaults, for requests only.
    pub(crate) fn without_webtorrent() -> Self {
        Self::assemble(|_| {}, |_| {}, None, None)
    }

    pub(crate) fn with(
        decide: impl FnOnce(&mut SessionSettings),
        configure: impl FnOnce(&mut Config),
        tls: Option<shoal_session::tls::Server>,
    ) -> Self {
        let responder = webtorrent::responder(Config::default());
        Self::assemble(decide, configure, Some(responder), tls)
    }

    pub(crate) fn assemble(
        decide: impl FnOnce(&mut SessionSettings),
        configure: impl FnOnce(&mut Config),
        webtorrent: Option<shoal_engine::webtorrent::Responder>,
        tls: Option<shoal_session::tls::Server>,
    ) -> Self {
        let listener = |tls, proxy_protocol| ListenerProtocols { tls, proxy_protocol };
        let listeners =
            vec![listener(false, false), listener(false, true), listener(true, false), listener(true, true)];
        let mut settings = SessionSettings { listeners, ..SessionSettings::default() };
        decide(&mut settings);
        let mut config = Config::default();
        configure(&mut config);
        let store = shoal_store::Settings {
            peers_per_source_max: 64,
            ..shoal_store::Settings::new(64 << 20, 2700, [1, 2, 3, 4])
        };
        let store = Arc::new(Store::new(&store).unwrap());
        let tally = Tally::default();
        let counters = tally.counters();
        let responder = Responder::new(
            Context::new(
                Protocol::Http,
                Arc::new(Policy::new(config).with_private_host(true)),
                tally,
                fastrand::Rng::with_seed(1),
            ),
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
        Self { service, counters, opened: Cell::new(0) }
    }

    pub(crate) fn open(&mut self, listener: usize, ip: &str) -> Session {
        let handle = self.handle();
        self.service.open(&remote(listener, ip), handle)
    }

    /// Returns the handle of a connection that is to be opened.
    pub(crate) fn handle(&self) -> Handle {
        let index = self.opened.replace(self.opened.get() + 1);
        Handle { index, generation: index / 2 }
    }

    /// Passes all bytes at once, and continues as long as there is more.
    pub(crate) fn send(&mut self, session: &mut Session, bytes: &[u8]) -> Received {
        let (mut output, mut input) = (Vec::new(), bytes.to_vec());
        let mut next = self.service.receive(session, &mut input, &mut output);
        while next == Next::More {
            let mut more = Vec::new();
            next = self.service.receive(session, &mut [], &mut more);
            output.append(&mut more);
        }
        Received { output, next }
    }

    /// Runs a whole plain connection of a client that sends these bytes at once.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> Received {
        self.ask_from(PLAIN, "192.0.2.1", bytes)
    }

    pub(crate) fn ask_from(&mut self, listener: usize, ip: &str, bytes: &[u8]) -> Received {
        let mut session = self.open(listener, ip);
        let received = self.send(&mut session, bytes);
        self.service.close(session);
        received
    }

    /// Returns whether a client at `ip` is in the swarm of [`announce`].
    pub(crate) fn has(&mut self, ip: &str) -> bool {
        let bytes = match ip.parse().unwrap() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let observer = if bytes.len() == 4 { "198.51.100.200" } else { "2001:db8::200" };
        let received = self.ask_from(PLAIN, observer, &announce(""));
        let needle = [&bytes[..], &6881_u16.to_be_bytes()].concat();
        received.output.windows(needle.len()).any(|window| window == needle)
    }
}

impl Received {
    /// Returns the responses, none of which is to a HEAD.
    pub(crate) fn responses(&self) -> Vec<Response> {
        response::parse_all(&self.output, matches!(self.next, Next::Close | Next::Linger))
    }

    pub(crate) fn statuses(&self) -> Vec<u16> {
        self.responses().iter().map(|response| response.status).collect()
    }
}

/// Returns an remote. An empty `ip` stands for a Unix socket.
pub(crate) fn remote(listener: usize, ip: &str) -> Remote {
    let peer = (!ip.is_empty()).then(|| SocketAddr::new(ip.parse().unwrap(), 40000));
    Remote { listener, peer }
}

/// Returns an announce, with further header fields if wanted.
pub(crate) fn announce(fields: &str) -> Vec<u8> {
    request("GET", &announce_target(), "HTTP/1.1", fields)
}

pub(crate) fn announce_target() -> String {
    "/announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=-TE0001-abcdefghijkl&port=6881&uploaded=0&downloaded=0&left=1\
     &compact=1"
        .to_owned()
}

pub(crate) fn request(method: &str, target: &str, version: &str, fields: &str) -> Vec<u8> {
    format!("{method} {target} {version}\r\nHost: tracker.example\r\n{fields}\r\n").into_bytes()
}
