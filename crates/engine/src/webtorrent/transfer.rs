//! Clients that another process continues.
//!
//! This module owns what one process has to know of a client of the other. Offers that wait for an answer are not part of
//! it: their keys are made of the connections of one process, and their answers would have to find connections that move
//! at another moment. Clients make new offers at their next announce.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use shoal_relay::{Membership, TokenBucket};
use shoal_transport::stream::Handle;
use shoal_types::{InfoHash, PeerId};

use super::member::{Member, Peer};
use super::{Responder, as_usize};
use crate::Now;
use crate::tokens::SocketToken;

/// The state of a client.
#[derive(Debug, Serialize, Deserialize)]
pub struct MemberState {
    peers: Vec<PeerState>,
    /// The state of its relay allowance.
    bucket: u32,
    /// The text of its token.
    token: Option<Vec<u8>>,
}

/// A peer of a client, as [`Membership`].
#[derive(Debug, Serialize, Deserialize)]
struct PeerState {
    info_hash: [u8; 20],
    peer_id: [u8; 20],
    seeds: bool,
    age_s: u32,
    is_download_decided: bool,
    swarm_completed: u32,
    swarm_age_s: u32,
}

impl Responder {
    /// Returns the state of a client, for [`attach`](Self::attach) in another process. Returns `None` if the client has to
    /// stay: an announce of it waits for a decision, or its token is refused for good, and only this process knows why.
    #[must_use]
    pub fn state_of(&self, member: &Member, now: Now) -> Option<MemberState> {
        if member.claims > 0 {
            return None;
        }
        let token = member.token.text().ok()?.map(<[u8]>::to_vec);
        let address = member.address(self.inner.dispatcher.worker());
        let swarms = &self.inner.swarms;
        let state = |&Peer { info_hash, peer_id }: &Peer| {
            let key = swarms.swarm_key(&info_hash);
            let membership = swarms.membership(&key, &peer_id, address, now.monotonic_s)?;
            Some(PeerState::new(info_hash, peer_id, membership))
        };
        let peers = member.peers().iter().filter_map(state).collect();
        Some(MemberState { peers, bucket: member.bucket.to_bits(), token })
    }

    /// Registers a client of another process at `ip`, with its peers: those that the lists permit here, that no other
    /// connection has by now, and for which there is room.
    #[must_use]
    pub fn attach(&mut self, handle: Handle, ip: IpAddr, state: MemberState, now: Now) -> Member {
        let MemberState { peers, bucket, token } = state;
        let inner = &mut self.inner;
        let mut member =
            Member::new(handle, ip, inner.swarms.source(ip), SocketToken::resume(token.as_deref()));
        member.bucket = TokenBucket::from_bits(bucket);
        let connection = (member.address(inner.dispatcher.worker()), member.source());
        let torrents_max = as_usize(inner.policy.config().webtorrent.torrents_per_connection_max);
        for peer in peers.into_iter().take(torrents_max) {
            let (info_hash, peer_id) = (InfoHash(peer.info_hash), PeerId(peer.peer_id));
            let key = inner.swarms.swarm_key(&info_hash);
            let membership = peer.membership();
            if inner.policy.check_lists(ip, &info_hash).is_ok()
                && inner.swarms.resume(&key, &peer_id, connection, &membership, now.monotonic_s).is_ok()
            {
                member.add(Peer { info_hash, peer_id });
            }
        }
        member
    }
}

impl PeerState {
    const fn new(
        InfoHash(info_hash): InfoHash,
        PeerId(peer_id): PeerId,
        Membership { seeds, age_s, is_download_decided, swarm_completed, swarm_age_s }: Membership,
    ) -> Self {
        Self { info_hash, peer_id, seeds, age_s, is_download_decided, swarm_completed, swarm_age_s }
    }

    const fn membership(&self) -> Membership {
        let &Self { seeds, age_s, is_download_decided, swarm_completed, swarm_age_s, .. } = self;
        Membership { seeds, age_s, is_download_decided, swarm_completed, swarm_age_s }
    }
}
