//! The store operations of an accepted request, step by step, and the reply to it.

use core::net::SocketAddr;

use shoal_store::{Announce, Announced, Place, Store, Swarms};
use shoal_types::{Counts, InfoHash, PeerV4, PeerV6};
use shoal_wire::udp::{AnnounceHead, ScrapeEntry, ScrapeHead, TransactionId};

use crate::Now;
use crate::counter::Family;
use crate::policy::{self, Decision};
use crate::refusal::Refusal;

/// The request, for the family of its source.
#[derive(Debug)]
pub(super) enum Lookup<'b> {
    V4(Step<'b, PeerV4>),
    V6(Step<'b, PeerV6>),
}

/// The request to the swarms of one family.
#[derive(Debug)]
pub(super) enum Step<'b, P> {
    /// If the peer does not register, the swarm is only read.
    Announce {
        place: Place,
        announce: Announce<P>,
        registers: bool,
    },
    Scrape {
        info_hashes: &'b [InfoHash],
    },
}

/// The parts of a reply that do not come from the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) transaction_id: TransactionId,
    pub(super) interval_s: u32,
}

impl<'b> Lookup<'b> {
    /// Creates the lookup of an admitted announce by the peer at `address`.
    pub(super) fn announce(
        store: &Store,
        info_hash: &InfoHash,
        address: SocketAddr,
        decision: Decision,
    ) -> Self {
        match address {
            SocketAddr::V4(address) => {
                let peer = PeerV4::new(*address.ip(), address.port());
                Self::V4(Step::announce(&store.v4, info_hash, peer, decision))
            }
            SocketAddr::V6(address) => {
                let peer = PeerV6::new(*address.ip(), address.port());
                Self::V6(Step::announce(&store.v6, info_hash, peer, decision))
            }
        }
    }

    /// Creates the lookup of a scrape of no more torrents than fit the reply.
    pub(super) const fn scrape(family: Family, info_hashes: &'b [InfoHash]) -> Self {
        match family {
            Family::V4 => Self::V4(Step::Scrape { info_hashes }),
            Family::V6 => Self::V6(Step::Scrape { info_hashes }),
        }
    }

    /// Starts to load the swarms.
    pub(super) fn prefetch_swarms(&self, store: &Store) {
        match self {
            Self::V4(step) => step.prefetch_swarms(&store.v4),
            Self::V6(step) => step.prefetch_swarms(&store.v6),
        }
    }

    /// Starts to load the parts of the swarm, now that its entry is loaded.
    pub(super) fn prefetch_large(&self, store: &Store) {
        match self {
            Self::V4(step) => step.prefetch_large(&store.v4),
            Self::V6(step) => step.prefetch_large(&store.v6),
        }
    }

    /// Starts to load the announcing peer, and the peers that `answer` will hand out if it is given an equal
    /// `rng`.
    pub(super) fn prefetch_peers(&self, store: &Store, rng: fastrand::Rng) {
        match self {
            Self::V4(step) => step.prefetch_peers(&store.v4, rng),
            Self::V6(step) => step.prefetch_peers(&store.v6, rng),
        }
    }

    /// Executes the request, writes the reply to the front of `out` and returns its length.
    pub(super) fn answer(
        &self,
        store: &Store,
        terms: Terms,
        now: Now,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> Result<usize, Refusal> {
        match self {
            Self::V4(step) => step.answer(&store.v4, terms, now, rng, out),
            Self::V6(step) => step.answer(&store.v6, terms, now, rng, out),
        }
    }
}

impl<P: shoal_store::Family> Step<'_, P> {
    fn announce(swarms: &Swarms<P>, info_hash: &InfoHash, peer: P, decision: Decision) -> Self {
        let Decision { action, peers_wanted, registers } = decision;
        let announce = Announce { peer, action, peers_wanted };
        Self::Announce { place: swarms.locate(info_hash), announce, registers }
    }

    fn prefetch_swarms(&self, swarms: &Swarms<P>) {
        match self {
            Self::Announce { place, .. } => swarms.prefetch_swarm(place),
            Self::Scrape { info_hashes } => {
                for info_hash in *info_hashes {
                    swarms.prefetch_swarm(&swarms.locate(info_hash));
                }
            }
        }
    }

    fn prefetch_large(&self, swarms: &Swarms<P>) {
        if let Self::Announce { place, .. } = self {
            swarms.prefetch_large(place);
        }
    }

    fn prefetch_peers(&self, swarms: &Swarms<P>, rng: fastrand::Rng) {
        if let Self::Announce { place, announce, registers: true } = self {
            swarms.prefetch_peers(place, announce, rng);
        }
    }

    fn answer(
        &self,
        swarms: &Swarms<P>,
        terms: Terms,
        now: Now,
        rng: &mut fastrand::Rng,
        out: &mut [u8],
    ) -> Result<usize, Refusal> {
        match self {
            Self::Announce { place, announce, registers } => {
                let (head, room) =
                    AnnounceHead::split(out).expect("every reply limit leaves room for a head");
                let Announced { counts, peers } = if *registers {
                    swarms.announce(place, announce, now.monotonic_s, rng, room)?
                } else {
                    swarms.visit(place, policy::seeds(announce.action), announce.peers_wanted, rng, room)
                };
                *head = AnnounceHead::new(
                    terms.transaction_id,
                    terms.interval_s,
                    counts.leechers,
                    counts.seeders,
                );
                Ok(size_of::<AnnounceHead>() + peers * size_of::<P>())
            }
            Self::Scrape { info_hashes } => {
                let (head, room) = ScrapeHead::split(out).expect("every reply limit leaves room for a head");
                *head = ScrapeHead::new(terms.transaction_id);
                for (info_hash, entry) in info_hashes.iter().zip(room) {
                    let Counts { seeders, leechers, completed } = swarms.scrape(&swarms.locate(info_hash));
                    let (seeders, leechers) = (seeders.into(), leechers.into());
                    *entry = ScrapeEntry { seeders, completed: completed.into(), leechers };
                }
                Ok(size_of::<ScrapeHead>() + info_hashes.len() * size_of::<ScrapeEntry>())
            }
        }
    }
}
