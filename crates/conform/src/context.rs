//! What a case is handed: the tracker, the addresses to ask from, patience, and info hashes of its own.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::case::{Case, Checked, Unmet};
use crate::deadline::Deadline;
use crate::trace::Trace;

/// How long the suite waits for what.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// For a reply, before the request is sent again.
    pub reply: Duration,
    /// For a reply that should not come, after a later request has been answered.
    pub quiet: Duration,
    /// A minute in the life of a connection id. Shorter only where the suite itself is tested.
    pub minute: Duration,
    /// For a whole case, however often the tracker sends something. A slow case has four minutes of a connection id in
    /// addition.
    pub case: Duration,
}

/// Minutes of a connection id that a slow case may take in addition.
const SLOW_CASE_MINUTES: u32 = 4;

impl Timing {
    /// What suits a tracker at this address.
    #[must_use]
    pub const fn towards(address: &SocketAddr) -> Self {
        let quiet_ms = if address.ip().is_loopback() { 50 } else { 500 };
        Self {
            reply: Duration::from_secs(1),
            quiet: Duration::from_millis(quiet_ms),
            minute: Duration::from_secs(60),
            case: Duration::from_secs(120),
        }
    }
}

/// Which protocol a tracker is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// BEP 15.
    Udp,
    /// BEP 3 over TCP.
    Http,
    /// BEP 3 over TLS. The certificate is not verified: whom it names is no rule of the protocol.
    Https,
    /// WebTorrent: JSON over WebSocket (RFC 6455).
    Ws,
    /// The same over TLS. The certificate is not verified.
    Wss,
}

impl Scheme {
    /// Whether the connection is sealed.
    pub(crate) const fn is_tls(self) -> bool {
        match self {
            Self::Udp | Self::Http | Self::Ws => false,
            Self::Https | Self::Wss => true,
        }
    }
}

/// A tracker under test, over one family.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which protocol is spoken there.
    pub scheme: Scheme,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where the same tracker listens over the other family, if it does.
    pub other_family: Option<SocketAddr>,
    /// Where the same tracker listens for UDP, if it does and is asked by HTTP.
    pub udp: Option<SocketAddr>,
    /// What a client of HTTP or WebTorrent calls the host, with its port: the value of `Host`. The name in it is asked for by TLS.
    pub host: String,
    /// The path of announces over HTTP, or of the upgrade to WebSocket, as it is written in the URL of the tracker.
    pub path: String,
    /// Local addresses to ask from, the usual one first. Empty leaves the choice to the kernel.
    pub sources: Vec<IpAddr>,
    /// All info hashes derive from it.
    pub seed: u64,
    /// How long to wait.
    pub timing: Timing,
}

impl Target {
    /// A UDP tracker at this address, with what is known to work towards it. A host has all of 127.0.0.0/8, so there
    /// are two sources towards a tracker on it.
    #[must_use]
    pub fn new(address: SocketAddr, seed: u64) -> Self {
        let sources = match address.ip() {
            IpAddr::V4(ip) if ip.is_loopback() => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 2).into()]
            }
            _ => Vec::new(),
        };
        Self {
            scheme: Scheme::Udp,
            address,
            other_family: None,
            udp: None,
            host: address.to_string(),
            path: "/announce".to_owned(),
            sources,
            seed,
            timing: Timing::towards(&address),
        }
    }

    /// The same for an HTTP tracker, over TLS if `is_tls`.
    #[must_use]
    pub fn http(address: SocketAddr, is_tls: bool, seed: u64) -> Self {
        let scheme = if is_tls { Scheme::Https } else { Scheme::Http };
        Self { scheme, ..Self::new(address, seed) }
    }

    /// The same for a WebTorrent tracker, over TLS if `is_tls`.
    #[must_use]
    pub fn webtorrent(address: SocketAddr, is_tls: bool, seed: u64) -> Self {
        let scheme = if is_tls { Scheme::Wss } else { Scheme::Ws };
        Self { scheme, ..Self::new(address, seed) }
    }
}

/// A name of a torrent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InfoHash(pub [u8; 20]);

impl fmt::Display for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A seed for a run that nobody needs to repeat. Short enough to be copied, and exact in any reader of JSON.
#[must_use]
pub fn random_seed() -> u64 {
    fastrand::u32(..).into()
}

/// Every info hash that these cases use with this seed, over both families: what a tracker that serves listed
/// torrents only has to list.
pub fn info_hashes(cases: &[&Case], seed: u64) -> Vec<InfoHash> {
    let of_case = |case: &Case| {
        let family = |is_v4| (0..case.info_hashes).map(move |index| derive(seed, case, is_v4, index));
        family(true).chain(family(false)).collect::<Vec<_>>()
    };
    cases.iter().flat_map(|case| of_case(case)).collect()
}

/// The info hash number `index` of a case. Families have their own, so that they do not meet by accident.
fn derive(seed: u64, case: &Case, is_v4: bool, index: usize) -> InfoHash {
    if case.has_every_byte {
        return every_byte(mix(seed, case.id, &[u8::from(is_v4)]), index);
    }
    let state = mix(seed, case.id, &[u8::from(is_v4), u8::try_from(index).unwrap_or(u8::MAX)]);
    let mut hash = [0; 20];
    fastrand::Rng::with_seed(state).fill(&mut hash);
    InfoHash(hash)
}

fn mix(seed: u64, case_id: &str, more: &[u8]) -> u64 {
    let bytes = case_id.bytes().chain(more.iter().copied());
    bytes.fold(seed, |state, byte| fastrand::Rng::with_seed(state.rotate_left(8) ^ u64::from(byte)).u64(..))
}

/// The 20 bytes from `20 * index` of all bytes in a random order, over and over.
fn every_byte(state: u64, index: usize) -> InfoHash {
    let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
    fastrand::Rng::with_seed(state).shuffle(&mut bytes);
    InfoHash(std::array::from_fn(|at| bytes[(20 * index + at) % bytes.len()]))
}

/// What a case works with.
pub(crate) struct Context<'t> {
    pub(crate) target: &'t Target,
    pub(crate) trace: RefCell<Trace>,
    /// Times that a request is sent before silence counts as the answer.
    pub(crate) tries: u32,
    /// How many requests got no answer at all.
    pub(crate) silences: Cell<u32>,
    pub(crate) deadline: Deadline,
    case: &'t Case,
    rng: RefCell<fastrand::Rng>,
}

impl<'t> Context<'t> {
    pub(crate) fn new(target: &'t Target, case: &'t Case, tries: u32) -> Self {
        let rng = RefCell::new(fastrand::Rng::new());
        let slow = if case.is_slow { target.timing.minute * SLOW_CASE_MINUTES } else { Duration::ZERO };
        let deadline = Deadline::after(target.timing.case + slow);
        Self { target, case, rng, tries, silences: Cell::new(0), deadline, trace: RefCell::default() }
    }

    /// The same case with another target.
    pub(crate) fn towards<'o>(&self, target: &'o Target) -> Context<'o>
    where
        't: 'o,
    {
        Context { deadline: self.deadline, ..Context::new(target, self.case, self.tries) }
    }

    /// An info hash of this case.
    pub(crate) fn hash(&self, index: usize) -> [u8; 20] {
        derive(self.target.seed, self.case, self.target.address.is_ipv4(), index).0
    }

    /// The first `count` info hashes of this case.
    pub(crate) fn hashes(&self, count: usize) -> Vec<[u8; 20]> {
        (0..count).map(|index| self.hash(index)).collect()
    }

    /// A number that nobody can foresee, for transaction ids and the like.
    pub(crate) fn random(&self) -> u32 {
        self.rng.borrow_mut().u32(..)
    }

    /// That many random bytes.
    pub(crate) fn random_bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.rng.borrow_mut().fill(&mut bytes);
        bytes
    }

    /// The local address number `index`.
    pub(crate) fn source(&self, index: usize) -> Checked<IpAddr> {
        let missing = || {
            Unmet::NotSupported(
                "this takes two local addresses that reach the tracker: give them by --source".to_owned(),
            )
        };
        self.target.sources.get(index).copied().ok_or_else(missing)
    }

    /// How many bytes a peer takes in a reply (BEP 15, "IPv6").
    pub(crate) fn peer_bytes(&self) -> usize {
        if self.target.address.is_ipv4() { 6 } else { 18 }
    }
}
