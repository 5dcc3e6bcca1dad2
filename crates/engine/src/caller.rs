//! Announces that need more than one step in the store: announces beyond a limit of their source, and announces from
//! private networks that are kept apart.
//!
//! The stores count, and name the limit that a new peer would exceed. This module then decides, for every protocol,
//! whether to exempt the client, to answer it without registering its peer, or to refuse it. Announces within the
//! limits pay nothing for this.

use core::net::{IpAddr, SocketAddr};

use shoal_base::source::Excess;
use shoal_store::{Announce, Announced, LockedShard, Place, Rejection, Swarms};

use crate::counter::{Family, Tally, Unregistered};
use crate::policy::{self, Policy};
use crate::refusal::Refusal;
use crate::{Now, address};

/// How to serve a client whose peer would exceed a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// The client's network has no limits.
    Exempt,
    /// The client gets a normal reply, but no reply contains its peer.
    Answer,
    /// The client is told the reason.
    Refuse(Refusal),
}

impl Policy {
    pub(crate) fn handle_excess(&self, ip: IpAddr, excess: Excess) -> Handling {
        if self.is_exempt(ip) {
            Handling::Exempt
        } else if self.config().limits.refuse_excess {
            Handling::Refuse(excess.into())
        } else {
            Handling::Answer
        }
    }
}

/// The client of an announce, and the parts of a responder that serve it.
pub(crate) struct Caller<'a> {
    /// The address of the client, which need not be canonical: only a peer beyond its limits, or apart, is looked up by it.
    pub(crate) address: &'a SocketAddr,
    pub(crate) policy: &'a Policy,
    pub(crate) tally: &'a mut Tally,
    pub(crate) now: Now,
    pub(crate) rng: &'a mut fastrand::Rng,
}

impl Caller<'_> {
    /// Returns the canonical address of the client.
    pub(crate) fn ip(&self) -> IpAddr {
        address::canonical(self.address)
    }

    /// Serves an announce whose peer the store has not registered for this reason, from the locked shard of its swarm.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve_rejected<P: shoal_store::Family>(
        &mut self,
        shard: &mut LockedShard<'_, P>,
        place: &Place,
        announce: &Announce<P>,
        rejection: Rejection,
        out: &mut [u8],
    ) -> Result<Announced, Refusal> {
        let Rejection::Excess(excess) = rejection else { return Err(rejection.into()) };
        let ip = self.ip();
        match self.policy.handle_excess(ip, excess) {
            Handling::Exempt => {
                Ok(shard.announce_exempt(place, announce, self.now.monotonic_s, self.rng, out)?)
            }
            Handling::Answer => {
                self.tally.unregistered(Family::of(ip), excess.into());
                let seeds = policy::seeds(announce.action);
                Ok(shard.visit(place, seeds, announce.peers_wanted, self.rng, out))
            }
            Handling::Refuse(refusal) => Err(refusal),
        }
    }

    /// Announces in a swarm of a locked shard, or only reads it if the peer does not register.
    #[inline]
    pub(crate) fn announce_locked<P: shoal_store::Family>(
        &mut self,
        shard: &mut LockedShard<'_, P>,
        place: &Place,
        announce: &Announce<P>,
        registers: bool,
        out: &mut [u8],
    ) -> Result<Announced, Refusal> {
        if !registers {
            let seeds = policy::seeds(announce.action);
            return Ok(shard.visit(place, seeds, announce.peers_wanted, self.rng, out));
        }
        match shard.announce(place, announce, self.now.monotonic_s, self.rng, out) {
            Ok(announced) => Ok(announced),
            Err(rejection) => self.serve_rejected(shard, place, announce, rejection, out),
        }
    }

    /// Announces in a swarm, or only reads it if the peer does not register.
    pub(crate) fn announce<P: shoal_store::Family>(
        &mut self,
        swarms: &Swarms<P>,
        place: &Place,
        announce: &Announce<P>,
        registers: bool,
        out: &mut [u8],
    ) -> Result<Announced, Refusal> {
        if !registers {
            // An empty shard is not worth a lock.
            let seeds = policy::seeds(announce.action);
            return Ok(swarms.visit(place, seeds, announce.peers_wanted, self.rng, out));
        }
        self.announce_locked(&mut swarms.lock(place.shard()), place, announce, registers, out)
    }

    /// Announces in the swarm of a private network that is kept apart. Peers of the public swarm fill up the reply,
    /// and the counts are sums over both.
    pub(crate) fn announce_apart<P: shoal_store::Family>(
        &mut self,
        (private, private_place): (&Swarms<P>, &Place),
        (public, public_place): (&Swarms<P>, &Place),
        announce: &Announce<P>,
        registers: bool,
        out: &mut [u8],
    ) -> Result<Announced, Refusal> {
        let near = self.announce(private, private_place, announce, registers, out)?;
        let missing = announce.peers_wanted.saturating_sub(near.peers);
        let seeds = policy::seeds(announce.action);
        let room = &mut out[near.peers * size_of::<P>()..];
        let far = public.visit(public_place, seeds, missing, self.rng, room);
        Ok(Announced { counts: near.counts.plus(far.counts), peers: near.peers + far.peers, ..near })
    }
}

impl From<Excess> for Unregistered {
    fn from(excess: Excess) -> Self {
        match excess {
            Excess::PeersInSwarm => Self::PeersPerAddress,
            Excess::ShareOfSwarm => Self::SwarmShare,
            Excess::Peers => Self::PeersPerSource,
            Excess::Torrents => Self::TorrentsPerSource,
        }
    }
}

impl From<Excess> for Refusal {
    fn from(excess: Excess) -> Self {
        match excess {
            Excess::PeersInSwarm => Self::PeersPerAddress,
            Excess::ShareOfSwarm => Self::SwarmShare,
            Excess::Peers => Self::PeersPerSource,
            Excess::Torrents => Self::TorrentsPerSource,
        }
    }
}
