//! The settings of the program, and its counts.
//!
//! Settings change as a whole. Several copies lie in an array that is mapped into the process, and one of them is
//! active. The thread writes an inactive copy and then its number. So an update takes no system call, and no packet
//! sees half of one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use shoal_base::metrics::labels;

use super::layout;

/// How the program answers connect requests, and how many it admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Secrets to create and check connection ids. Without them, connect requests go to user space.
    pub ids: Option<Ids>,
    /// How many connection ids a source gets.
    pub connects: Option<Rate>,
    /// How many verified requests of a source reach user space. More are dropped without a reply.
    pub requests: Option<Rate>,
    /// The secret for the hashes of sources, so that an attacker cannot choose a source that shares its bucket with
    /// another.
    pub bucket_key: [u64; 2],
    /// Whether the program runs in the driver, which serves the frames of a queue one at a time.
    pub is_native: bool,
}

/// The secrets for connection ids. Anyone who knows them can forge a source address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// SipHash-2-4 under the key: its state before the message.
    pub keyed: [u64; 4],
    /// The same state for the former key, and the end of the validity of its ids by `CLOCK_MONOTONIC`, in nanoseconds.
    pub former: Option<([u64; 4], u64)>,
    /// How long an id is accepted after the end of its slot, in nanoseconds.
    pub valid_ns: u64,
}

/// A rate, and the size of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time after which one token returns.
    pub token_ns: u64,
    /// The time after which an empty bucket is full.
    pub full_ns: u64,
}

/// A network, and the rule for its addresses. A smaller network within it takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// An address of it.
    pub ip: IpAddr,
    /// The length of its prefix.
    pub bits: u8,
    /// The rule.
    pub rule: NetworkRule,
}

/// The rule for a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkRule {
    /// Its datagrams are dropped.
    pub denied: bool,
    /// It has no limits.
    pub exempt: bool,
}

labels! {
    /// The fate of a frame, by the path that it takes. In the order of `enum outcome` of `bpf/maps.h`.
    #[derive(PartialOrd, Ord)]
    pub enum Counted {
        /// A connect request over IPv4 that was answered.
        ConnectsV4 = "answered",
        /// A connect request over IPv6 that was answered.
        ConnectsV6 = "answered",
        /// A datagram of a denied network, dropped.
        Denied = "denied",
        /// A datagram that no reply can reach, dropped.
        Unanswerable = "unanswerable",
        /// A datagram on its way to a socket.
        Redirected = "worker",
        /// A datagram left to the kernel because the queue has no socket.
        NoSocket = "no_socket",
        /// A datagram left to the kernel because the socket does not keep up.
        BacklogFull = "backlog",
        /// A frame left to the kernel because its lengths or addresses are wrong.
        Malformed = "malformed",
        /// A frame left to the kernel because a checksum is wrong.
        BadChecksum = "bad_checksum",
        /// A fragment left to the kernel.
        Fragments = "fragment",
        /// A frame left to the kernel because of IPv6 extension headers.
        ExtensionHeaders = "extension_headers",
        /// A frame left to the kernel because it is too long for a socket.
        TooLong = "too_long",
        /// A frame left to the kernel because it is in a VLAN that is none of the host.
        OtherVlan = "other_vlan",
        /// A frame left to the kernel because it would not send the reply by the interface that it came from, to the
        /// MAC address that it came from; or does not know yet.
        NoRouteBack = "no_route_back",
        /// A connect request handed to user space because the slot was not renewed in time.
        Stale = "stale",
        /// A connect request over a limit, over IPv4, dropped.
        LimitedConnectsV4 = "rate_limited",
        /// The same over IPv6.
        LimitedConnectsV6 = "rate_limited",
        /// An announce over a limit, over IPv4, dropped.
        LimitedAnnouncesV4 = "rate_limited",
        /// The same over IPv6.
        LimitedAnnouncesV6 = "rate_limited",
        /// A scrape over a limit, over IPv4, dropped.
        LimitedScrapesV4 = "rate_limited",
        /// The same over IPv6.
        LimitedScrapesV6 = "rate_limited",
    }
}

/// The counts of the program since it was loaded, one for each [`Counted`] and some unused ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [u64; layout::COUNTS]);

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ids").field("valid_ns", &self.valid_ns).finish_non_exhaustive()
    }
}

impl Rate {
    /// Creates a rate of `per_s` requests a second, of which `burst` may come at once. Both are at least 1.
    pub fn new(per_s: u32, burst: u32) -> Self {
        let token_ns = 1_000_000_000_u64.div_ceil(per_s.max(1).into());
        Self { token_ns, full_ns: token_ns.saturating_mul(burst.max(1).into()) }
    }
}

impl NetworkRule {
    pub(super) fn flags(self) -> u32 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.denied, layout::NETWORK_DENIED) | flag(self.exempt, layout::NETWORK_EXEMPT)
    }
}

impl Settings {
    /// Writes the settings in the layout of the program.
    pub(super) fn write(&self, out: &mut layout::Settings) {
        let rate = |rate: Option<Rate>| {
            let Rate { token_ns, full_ns } = rate.unwrap_or(Rate { token_ns: 0, full_ns: 0 });
            layout::Rate { token_ns, full_ns }
        };
        let former = self.ids.and_then(|ids| ids.former);
        for (is_set, flag) in [
            (self.ids.is_some(), layout::ANSWERS_CONNECTS),
            (self.connects.is_some(), layout::LIMITS_CONNECTS),
            // Without ids no request is verified.
            (self.requests.is_some() && self.ids.is_some(), layout::LIMITS_REQUESTS),
            (former.is_some(), layout::HAS_FORMER),
            (self.is_native, layout::IS_NATIVE),
        ] {
            out.flags = if is_set { out.flags | flag } else { out.flags & !flag };
        }
        out.keyed = self.ids.map_or([0; 4], |ids| ids.keyed);
        out.valid_ns = self.ids.map_or(0, |ids| ids.valid_ns);
        (out.former, out.former_end_ns) = former.unwrap_or_default();
        (out.connects, out.requests) = (rate(self.connects), rate(self.requests));
        out.bucket_key = self.bucket_key;
    }
}

impl Counted {
    /// Returns the counter of requests over a limit, by their action (BEP 15) and family.
    pub fn limited(action: u32, is_v6: bool) -> Self {
        Self::ALL[Self::LimitedConnectsV4 as usize + 2 * action as usize + usize::from(is_v6)]
    }
}

impl Counts {
    /// Returns a count.
    pub const fn of(&self, counted: Counted) -> u64 {
        self.0[counted as usize]
    }

    /// Returns the number of packets that took each path.
    pub fn by_path(&self) -> BTreeMap<&'static str, u64> {
        let mut paths = BTreeMap::new();
        for counted in Counted::ALL {
            *paths.entry(counted.name()).or_default() += self.of(counted);
        }
        paths
    }
}
