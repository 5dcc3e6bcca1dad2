//! The peers in the reply to an announce. Peers of the client's own family come first, because the client can surely
//! reach them. Peers of the other family fill the rest.

use core::net::SocketAddr;

use shoal_base::{Counts, InfoHash, PeerV4, PeerV6};
use shoal_store::{Announce, PeerChange, Place, Store, Swarms};
use zerocopy::{FromZeros, IntoBytes};

use crate::caller::Caller;
use crate::policy::{self, Decision};
use crate::refusal::Refusal;

/// Maximum number of peers in a reply. Such a list takes 18 KiB in compact form, and 60 as dictionaries.
const PEERS_MAX: usize = 1000;

/// Buffers for the peers of one reply.
#[derive(Debug)]
pub(super) struct PeerList {
    v4: Box<[PeerV4]>,
    v6: Box<[PeerV6]>,
}

#[derive(Debug)]
pub(super) struct Given<'h> {
    /// The sums over the swarms of both families, after the announce.
    pub(super) counts: Counts,
    /// The change of the peer in its family's swarm.
    pub(super) change: PeerChange,
    pub(super) peers_v4: &'h [PeerV4],
    pub(super) peers_v6: &'h [PeerV6],
}

/// The result of an announce, with separate numbers of peers for the client's family and the other.
struct Joined {
    counts: Counts,
    change: PeerChange,
    own: usize,
    other: usize,
}

impl PeerList {
    pub(super) fn new() -> Self {
        Self {
            v4: vec![PeerV4::new_zeroed(); PEERS_MAX].into(),
            v6: vec![PeerV6::new_zeroed(); PEERS_MAX].into(),
        }
    }

    /// Executes an admitted announce of the caller.
    pub(super) fn announce(
        &mut self,
        store: &Store,
        info_hash: &InfoHash,
        decision: Decision,
        caller: &mut Caller<'_>,
    ) -> Result<Given<'_>, Refusal> {
        let Decision { action, peers_wanted, registers, .. } = decision;
        let network = caller.policy.network_apart(caller.ip());
        let private_place = network.map(|network| store.private.locate(info_hash, network));
        let (out_v4, out_v6) = (self.v4.as_mut_bytes(), self.v6.as_mut_bytes());
        let (counts, change, peers_v4, peers_v6) = match caller.address {
            SocketAddr::V4(address) => {
                let peer = PeerV4::new(*address.ip(), address.port());
                let announce = Announce { peer, action, peers_wanted };
                let (own, other) = ((&store.v4, out_v4), (&store.v6, out_v6));
                let apart = private_place.map(|place| (&store.private.v4, place));
                let joined = join(own, other, (info_hash, apart), &announce, registers, caller)?;
                (joined.counts, joined.change, joined.own, joined.other)
            }
            SocketAddr::V6(address) => {
                let peer = PeerV6::new(*address.ip(), address.port());
                let announce = Announce { peer, action, peers_wanted };
                let (own, other) = ((&store.v6, out_v6), (&store.v4, out_v4));
                let apart = private_place.map(|place| (&store.private.v6, place));
                let joined = join(own, other, (info_hash, apart), &announce, registers, caller)?;
                (joined.counts, joined.change, joined.other, joined.own)
            }
        };
        Ok(Given { counts, change, peers_v4: &self.v4[..peers_v4], peers_v6: &self.v6[..peers_v6] })
    }
}

/// The swarms of private networks, and the client's place among them.
type Apart<'s, P> = (&'s Swarms<P>, Place);

/// Announces in the swarm of the client's own family, or only reads it if the client does not register, and reads the
/// swarm of the other family. Each family comes with the buffer for its peers. If the client's network is kept apart,
/// its swarm comes with the info hash.
fn join<P: shoal_store::Family, Q: shoal_store::Family>(
    (own, own_out): (&Swarms<P>, &mut [u8]),
    (other, other_out): (&Swarms<Q>, &mut [u8]),
    (info_hash, apart): (&InfoHash, Option<Apart<'_, P>>),
    announce: &Announce<P>,
    registers: bool,
    caller: &mut Caller<'_>,
) -> Result<Joined, Refusal> {
    let place = own.locate(info_hash);
    // The other swarm loads while this one is processed.
    other.prefetch_swarm(&place);
    let seeds = policy::seeds(announce.action);
    let joined = match apart {
        None => caller.announce(own, &place, announce, registers, own_out)?,
        Some((private, private_place)) => {
            caller.announce_apart((private, &private_place), (own, &place), announce, registers, own_out)?
        }
    };
    let missing = announce.peers_wanted.saturating_sub(joined.peers);
    let visited = other.visit(&place, seeds, missing, caller.rng, other_out);
    let counts = joined.counts.plus(visited.counts);
    Ok(Joined { counts, change: joined.change, own: joined.peers, other: visited.peers })
}
