//! Which sources earn a ban by what they do.
//!
//! Each cause has a bucket for each source among those of the limits ([`SourceRates`]): an IPv4 address, and the IPv6
//! /64, /56 and /48, of which wider ones hold more. Each offence takes a token. A source whose bucket is empty is a
//! suspect, and the thread of the lists bans it. A wider network is the suspect only if several of its sources have
//! emptied its bucket together, so a neighbour in the next /64 is not banned with the source.
//!
//! The caller only reports clients that have proved their address, by a connection id or by a TCP connection: a ban for
//! what a forged address does would be a weapon. Networks without limits, trusted proxies and private addresses are never
//! suspects. A private address on a public tracker is that of a gateway, behind which all clients would be banned.
//!
//! Announces that are served are looked at if they were drawn to count towards limits ([`crate::policy::Gate`]): one counts as
//! often as the announces for which it stands.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shoal_access::networks::{Network, NetworkTable};
use shoal_base::metrics::labels;
use shoal_base::source::Rate;
use shoal_base::{InfoHash, PeerId};
use shoal_config::{Config, Trusted};

use crate::limits::{Activity, SourceRates};
use crate::policy::Gate;
use crate::{Now, address};

labels! {
    /// The reason of a ban.
    pub enum Cause {
        /// The source asks far more often than its limit admits.
        OverLimit = "over_limit",
        /// Its requests cannot be understood.
        Malformed = "malformed",
        /// Its tokens have wrong signatures.
        BadToken = "bad_token",
        /// Its peers enter more swarms than those of many clients do.
        Torrents = "torrents",
        /// Its peers change their ids with each announce.
        PeerIds = "peer_ids",
    }
}

impl Cause {
    /// Returns the reason of a ban, for the operator. Clients do not see it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::OverLimit => "requests beyond its limit (bans.over_limit_s)",
            Self::Malformed => "malformed requests (bans.malformed_per_min)",
            Self::BadToken => "tokens with wrong signatures (bans.bad_tokens_per_min)",
            Self::Torrents => "too many torrents (bans.torrents_per_h)",
            Self::PeerIds => "peer ids that change (bans.peer_ids_per_h)",
        }
    }
}

/// Something that a client does and that may earn a ban.
#[derive(Clone, Copy, Debug)]
pub enum Sighting<'r> {
    /// It was refused because it asks more often than this rate.
    OverLimit(Rate),
    /// Its request could not be understood.
    Malformed,
    /// Its token has a wrong signature.
    BadToken,
    /// It was served an announce.
    Announce {
        /// Whether its peer has entered the swarm by it.
        has_joined: bool,
        /// The torrent, the port and the peer id, over protocols where these name a peer.
        peer: Option<(&'r InfoHash, u16, &'r PeerId)>,
    },
}

/// A source or a network that has earned a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The first address of the network.
    pub ip: IpAddr,
    /// The length of its prefix.
    pub prefix_length: u8,
    /// The reason of the ban.
    pub cause: Cause,
}

impl Suspect {
    /// Creates a suspect from an address and the first `bits` bits of its network.
    pub(crate) fn new(ip: IpAddr, bits: u32, cause: Cause) -> Self {
        let ip = match ip {
            IpAddr::V4(ip) => IpAddr::V4(ip),
            IpAddr::V6(ip) => {
                let host_bits = u128::BITS - bits;
                Ipv6Addr::from(u128::from(ip) >> host_bits << host_bits).into()
            }
        };
        Self { ip, prefix_length: u8::try_from(bits).unwrap_or(u8::MAX), cause }
    }
}

/// Maximum number of suspects that wait for their bans. A source that finds no room is a suspect again half a second later.
const SUSPECTS_MAX: usize = 4096;

/// The suspects on their way to the thread that bans them.
#[derive(Debug, Default)]
pub(crate) struct Suspects(Mutex<Vec<Suspect>>);

impl Suspects {
    /// Adds a suspect. Loses it if there is no room, or if another thread has the lock: a worker does not wait.
    pub(crate) fn add(&self, suspect: Suspect) {
        if let Ok(mut suspects) = self.0.try_lock()
            && suspects.len() < SUSPECTS_MAX
        {
            suspects.push(suspect);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn take(&self) -> Vec<Suspect> {
        core::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Number of remembered peer ids, as a power of two. With 100,000 announces a second, of which one in 32 is looked at, an
/// id is remembered for 40 seconds.
const PEER_IDS_BITS: u32 = 17;

/// The last peer ids of clients in torrents: a table of fingerprints, in which a new one takes the place of another.
pub(crate) struct PeerIds(Box<[AtomicU32]>);

impl PeerIds {
    /// The memory of the table in bytes.
    pub(crate) const BYTES: usize = size_of::<AtomicU32>() << PEER_IDS_BITS;

    /// Records the peer id with the hash `of_id` for the client and torrent with the hash `key`. Returns whether it takes
    /// the place of another id of the same client and torrent. A client is mistaken for another one with a probability
    /// of 2⁻¹⁶.
    pub(crate) fn replace(&self, key: u64, of_id: u64) -> bool {
        const ID_BITS: u32 = 16;
        let place = usize::try_from(key & ((1 << PEER_IDS_BITS) - 1)).unwrap_or(0);
        #[expect(clippy::cast_possible_truncation, reason = "a fingerprint has some bits of a hash")]
        let (tag, id) = ((key >> 48) as u32, of_id as u32 & 0xffff);
        let before = self.0[place].swap(tag << ID_BITS | id, Ordering::Relaxed);
        before != 0 && before >> ID_BITS == tag && before & 0xffff != id
    }
}

impl Default for PeerIds {
    fn default() -> Self {
        Self((0..1 << PEER_IDS_BITS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl fmt::Debug for PeerIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerIds").finish_non_exhaustive()
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// The smallest number of announces in a period that samples still count well: a sum of samples is wrong by 3 %, as a
/// standard deviation.
const SAMPLED_MIN: u32 = 32_768;

/// The operator's rules about what earns a ban.
#[derive(Clone, Debug)]
pub struct Watch {
    sources: Arc<SourceRates>,
    over_limit_s: u32,
    malformed: Option<Rate>,
    bad_tokens: Option<Rate>,
    torrents: Option<Rate>,
    peer_ids: Option<Rate>,
    /// The mean number of announces for which a looked-at one stands: 1 or that of the gate, or 0 if none is looked at.
    distance: u32,
    /// Serves the networks that are never banned.
    spared: Arc<NetworkTable>,
}

impl Watch {
    /// Returns the rules of a configuration on the shared `sources`, or `None` if nothing earns a ban.
    pub fn of(config: &Config, sources: &Arc<SourceRates>) -> Option<Self> {
        let bans = &config.bans;
        let per = |count: u32, period_s: u64| (count > 0).then(|| Rate::per(count, period_s * NS_PER_S));
        let counts = [bans.torrents_per_h, bans.peer_ids_per_h];
        let distance = match counts.into_iter().filter(|count| *count > 0).min() {
            None => 0,
            Some(..SAMPLED_MIN) => 1,
            Some(_) => Gate::WEIGHT,
        };
        bans.automatic.then(|| Self {
            sources: Arc::clone(sources),
            over_limit_s: bans.over_limit_s,
            malformed: per(bans.malformed_per_min, 60),
            bad_tokens: per(bans.bad_tokens_per_min, 60),
            torrents: per(bans.torrents_per_h, 3600),
            peer_ids: per(bans.peer_ids_per_h, 3600),
            distance,
            spared: Arc::new(NetworkTable::new(Some(&spared(config)), &[])),
        })
    }

    /// Returns the recent activity of the sources.
    pub const fn sources(&self) -> &Arc<SourceRates> {
        &self.sources
    }

    /// Returns whether all announces are looked at.
    pub(crate) const fn looks_at_all(&self) -> bool {
        self.distance == 1
    }

    /// Returns the number of announces that one counts as, 0 if it is not looked at. The gate has `drawn` this number for it.
    pub(crate) const fn weight(&self, drawn: u32) -> u32 {
        match self.distance {
            distance @ (0 | 1) => distance,
            _ => drawn,
        }
    }

    /// Counts what the client at a canonical address does, `weight` times. The client must have proved its address.
    #[inline(never)]
    pub fn observe(&self, ip: IpAddr, sighting: Sighting<'_>, weight: u32, now: Now) {
        if self.spared.serves(ip) {
            return;
        }
        match sighting {
            Sighting::OverLimit(limit) => {
                self.count(ip, Cause::OverLimit, self.excess(limit), weight, now);
            }
            Sighting::Malformed => self.count(ip, Cause::Malformed, self.malformed, weight, now),
            Sighting::BadToken => self.count(ip, Cause::BadToken, self.bad_tokens, weight, now),
            Sighting::Announce { has_joined, peer } => {
                if has_joined {
                    self.count(ip, Cause::Torrents, self.torrents, weight, now);
                }
                if let (Some(rate), Some((info_hash, port, peer_id))) = (self.peer_ids, peer)
                    && self.sources.changes_peer_id((ip, port), info_hash, peer_id)
                {
                    self.count(ip, Cause::PeerIds, Some(rate), weight, now);
                }
            }
        }
    }

    /// Returns the rate of requests beyond a limit: a quarter of the limit is forgiven, and a source that sends as much
    /// again as its limit empties its bucket within `over_limit_s`.
    fn excess(&self, limit: Rate) -> Option<Rate> {
        const FORGIVEN: u64 = 4;
        let token_ns = limit.token_ns().saturating_mul(FORGIVEN);
        let full_ns = u64::from(self.over_limit_s) * NS_PER_S * (FORGIVEN - 1);
        let count = u32::try_from(full_ns / token_ns.max(1)).unwrap_or(u32::MAX);
        (self.over_limit_s > 0).then(|| Rate::per(count, full_ns))
    }

    fn count(&self, ip: IpAddr, cause: Cause, rate: Option<Rate>, weight: u32, now: Now) {
        let Some(rate) = rate else { return };
        if !self.sources.take_several(ip, Activity::Earns(cause), rate, weight, now).is_admitted {
            self.sources.suspect(ip, cause, (rate, weight), now);
        }
    }
}

/// Networks behind whose addresses are others: translators of IPv4 (RFC 6052, RFC 8215) and servers of Teredo (RFC 4380).
const SHARED_V6: [([u16; 8], u8); 3] = [
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32),
];

/// Returns the networks that are never banned: networks without limits, trusted proxies, private addresses, and addresses of
/// translators.
pub fn spared(config: &Config) -> Vec<Network> {
    let trusted = config.proxy.trusted.iter().filter_map(|trusted| match trusted {
        Trusted::Network(network) => Some(network),
        Trusted::Unix => None,
    });
    let configured = config.limits.exempt.iter().chain(trusted);
    let configured = configured.filter_map(|network| Network::new(network.addr(), network.prefix_len()));
    let private = address::PRIVATE_V4.map(|(octets, length)| (Ipv4Addr::from(octets).into(), length));
    let private_v6 = address::PRIVATE_V6
        .into_iter()
        .chain(SHARED_V6)
        .map(|(segments, length)| (Ipv6Addr::from(segments).into(), length));
    let private: Vec<(IpAddr, u8)> = private.into_iter().chain(private_v6).collect();
    configured.chain(private.into_iter().filter_map(|(ip, length)| Network::new(ip, length))).collect()
}

#[cfg(test)]
mod tests;
