//! The input of a case: the tracker, local addresses to connect from, timeouts, and the info hashes of the case.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::case::{Case, Checked, Unmet};
use crate::deadline::Deadline;
use crate::rules::operator::OperatorRules;
use crate::trace::Trace;

/// The timeouts of a run.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time to wait for a reply before the request is sent again.
    pub reply: Duration,
    /// Time to wait for a reply that should not come, after a later request has been answered.
    pub quiet: Duration,
    /// One minute of the lifetime of a connection id; shorter only in tests of the suite itself.
    pub minute: Duration,
    /// The limit of a whole case, whatever the tracker sends. A slow case has four more minutes of a connection id.
    pub case: Duration,
}

/// The additional minutes of a connection id that a slow case may take.
const SLOW_CASE_MINUTES: u32 = 4;

impl Timing {
    /// Returns timeouts suitable for a tracker at this address.
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

/// The protocol of a tracker URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// BEP 15.
    Udp,
    /// BEP 3 over TCP.
    Http,
    /// BEP 3 over TLS. The certificate is not verified: no rule of the protocol concerns its name.
    Https,
    /// WebTorrent: JSON over WebSocket (RFC 6455).
    Ws,
    /// The same over TLS. The certificate is not verified.
    Wss,
}

impl Scheme {
    pub(crate) const fn is_tls(self) -> bool {
        match self {
            Self::Udp | Self::Http | Self::Ws => false,
            Self::Https | Self::Wss => true,
        }
    }
}

/// The tracker under test, and the ways to reach it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The protocol.
    pub scheme: Scheme,
    /// The address of the tracker.
    pub address: SocketAddr,
    /// The address of the same tracker in the other family, if it has one.
    pub other_family: Option<SocketAddr>,
    /// The UDP address of the same HTTP tracker, if it has one.
    pub udp: Option<SocketAddr>,
    /// The value of the `Host` header, with the port. TLS uses its name for SNI.
    pub host: String,
    /// The path of HTTP announces, or of the WebSocket upgrade, as written in the tracker URL.
    pub path: String,
    /// Local addresses to connect from, the default one first. If empty, the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Chooses the info hashes, so that a run can be repeated.
    pub seed: u64,
    /// The rules of the operator that are to be checked.
    pub rules: OperatorRules,
    /// The timeouts.
    pub timing: Timing,
}

impl Target {
    /// Returns a UDP tracker. On loopback it can be reached from two sources, since a host has all of 127.0.0.0/8.
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
            rules: OperatorRules::default(),
            timing: Timing::towards(&address),
        }
    }

    /// Returns an HTTP tracker, over TLS or not.
    pub fn http(address: SocketAddr, is_tls: bool, seed: u64) -> Self {
        let scheme = if is_tls { Scheme::Https } else { Scheme::Http };
        Self { scheme, ..Self::new(address, seed) }
    }

    /// Returns a WebTorrent tracker, over TLS or not.
    pub fn webtorrent(address: SocketAddr, is_tls: bool, seed: u64) -> Self {
        let scheme = if is_tls { Scheme::Wss } else { Scheme::Ws };
        Self { scheme, ..Self::new(address, seed) }
    }
}

/// The info hash of a torrent.
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

/// Returns a random seed, short enough to copy and exact in any JSON parser.
pub fn random_seed() -> u64 {
    fastrand::u32(..).into()
}

/// Returns the info hashes of these cases over both families. A tracker that serves only listed torrents lists them.
pub fn info_hashes(cases: &[&Case], seed: u64) -> Vec<InfoHash> {
    let of_case = |case: &Case| {
        let family = |is_v4| (0..case.info_hashes).map(move |index| derive(seed, case, is_v4, index));
        family(true).chain(family(false)).collect::<Vec<_>>()
    };
    cases.iter().flat_map(|case| of_case(case)).collect()
}

/// Derives info hash `index` of a case. Each family has its own, so that their swarms stay separate.
fn derive(seed: u64, case: &Case, is_v4: bool, index: usize) -> InfoHash {
    if case.has_every_byte {
        // 20 bytes of an endless repetition of all byte values in a random order.
        let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
        fastrand::Rng::with_seed(mix(seed, case.id, &[u8::from(is_v4)])).shuffle(&mut bytes);
        return InfoHash(std::array::from_fn(|at| bytes[(20 * index + at) % bytes.len()]));
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

pub(crate) struct Context<'t> {
    pub(crate) target: &'t Target,
    pub(crate) trace: RefCell<Trace>,
    /// The number of times that a request is sent before it counts as unanswered.
    pub(crate) tries: u32,
    /// The number of requests that got no answer at all.
    pub(crate) unanswered: Cell<u32>,
    pub(crate) deadline: Deadline,
    case: &'t Case,
    rng: RefCell<fastrand::Rng>,
}

impl<'t> Context<'t> {
    pub(crate) fn new(target: &'t Target, case: &'t Case, tries: u32) -> Self {
        let rng = RefCell::new(fastrand::Rng::new());
        let slow = if case.is_slow { target.timing.minute * SLOW_CASE_MINUTES } else { Duration::ZERO };
        let deadline = Deadline::after(target.timing.case + slow);
        Self { target, case, rng, tries, unanswered: Cell::new(0), deadline, trace: RefCell::default() }
    }

    pub(crate) fn with_target<'o>(&self, target: &'o Target) -> Context<'o>
    where
        't: 'o,
    {
        Context { deadline: self.deadline, ..Context::new(target, self.case, self.tries) }
    }

    pub(crate) fn hash(&self, index: usize) -> [u8; 20] {
        derive(self.target.seed, self.case, self.target.address.is_ipv4(), index).0
    }

    pub(crate) fn hashes(&self, count: usize) -> Vec<[u8; 20]> {
        (0..count).map(|index| self.hash(index)).collect()
    }

    pub(crate) fn random(&self) -> u32 {
        self.rng.borrow_mut().u32(..)
    }

    pub(crate) fn random_bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.rng.borrow_mut().fill(&mut bytes);
        bytes
    }

    pub(crate) fn source(&self, index: usize) -> Checked<IpAddr> {
        let missing = || {
            Unmet::NotSupported(
                "this case needs two local addresses that reach the tracker: pass them with --source"
                    .to_owned(),
            )
        };
        self.target.sources.get(index).copied().ok_or_else(missing)
    }

    pub(crate) fn other_family(&self) -> Checked<SocketAddr> {
        let missing = || Unmet::NotSupported("the tracker is known in one address family only".to_owned());
        self.target.other_family.ok_or_else(missing)
    }

    /// Returns the size of a peer in a reply (BEP 15, "IPv6").
    pub(crate) fn peer_bytes(&self) -> usize {
        if self.target.address.is_ipv4() { 6 } else { 18 }
    }
}
