//! Clients that another process continues.
//!
//! This module owns the state of a client that moves between two processes. Offers that wait for an answer move with
//! the client that made them. Their keys contain the connections of the old process, so a moved client also keeps its
//! former connection, until those offers have expired.
//!
//! A WebSocket takes its peers along: it leaves the swarms of the old process and joins those of the new one with its
//! role, age and download. The limits of its source count it in the new process, but do not refuse it. Room and lists
//! may refuse it. The rule about the head of its opening request stays behind. The image already counts the sources of its peers, so the old process names them before its first
//! connection, and the new process subtracts them.

use core::net::IpAddr;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use shoal_access::rules::HeaderMatch;
use shoal_base::transport::stream::Handle;
use shoal_base::{InfoHash, PeerId};
use shoal_relay::{Address, Membership, PENDING_OFFER_S, PendingOfferState, TokenBucket};

use super::member::{Member, Peer};
use super::{Responder, as_usize};
use crate::Now;
use crate::tokens::SocketToken;

/// Maximum number of pending offers that move with a client.
const PENDING_OFFERS_MAX: usize = 1024;

/// The state of a client.
#[derive(Debug, Serialize, Deserialize)]
pub struct MemberState {
    peers: Vec<PeerState>,
    /// The worker and the handle of the client's connection in the old process.
    former: (u16, u32, u32),
    bucket: u32,
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
    /// The keys of the peer's pending offers, and the seconds for which their answers are accepted.
    pending_offers: Vec<([u32; 2], u32)>,
}

/// The connections that clients had in the old process.
///
/// An answer to an offer of the old process goes to the connection that has replaced the offerer's. In practice, a
/// former connection never matches an offer of this process: the answer would have to name the id of an offer that
/// its client has not received.
#[derive(Debug, Default)]
pub(super) struct FormerConnections {
    addresses: HashMap<Handle, Address>,
    until_s: u32,
}

impl FormerConnections {
    fn insert(&mut self, handle: Handle, former: Address, now_s: u32) {
        self.addresses.insert(handle, former);
        self.until_s = now_s.saturating_add(PENDING_OFFER_S);
    }

    /// Returns the connection that this client had in the old process.
    pub(super) fn find(&self, handle: Handle) -> Option<Address> {
        self.addresses.get(&handle).copied()
    }

    /// Forgets all connections when no offer of the old process is pending any more.
    pub(super) fn trim(&mut self, now_s: u32) {
        if self.until_s < now_s && !self.addresses.is_empty() {
            self.addresses = HashMap::new();
        }
    }
}

impl Responder {
    /// Maximum memory of a client's pending offers in its encoded state.
    pub const PENDING_OFFERS_BYTES_MAX: usize = 12 * PENDING_OFFERS_MAX;

    /// Returns the state of a client, for [`attach`](Self::attach) in another process. Returns `None` if the client
    /// has to stay: its token is refused for good, and only this process knows why.
    pub fn state_of(&self, member: &Member, now: Now) -> Option<MemberState> {
        let token = member.token.text().ok()?.map(<[u8]>::to_vec);
        let address = member.address(self.inner.dispatcher.worker());
        let swarms = &self.inner.swarms;
        let mut offers_left = PENDING_OFFERS_MAX;
        let state = |&Peer { info_hash, peer_id }: &Peer| {
            let key = swarms.swarm_key(&info_hash);
            let mut membership = swarms.membership(&key, &peer_id, address, now.monotonic_s)?;
            membership.pending_offers.truncate(offers_left);
            offers_left -= membership.pending_offers.len();
            Some(PeerState::new(info_hash, peer_id, membership))
        };
        let peers = member.peers().iter().filter_map(state).collect();
        let former = (address.worker, address.handle.index, address.handle.generation);
        Some(MemberState { peers, former, bucket: member.bucket.to_bits(), token })
    }

    /// Registers a client of another process at `ip`, with the peers that the lists permit and that fit.
    pub fn attach(&mut self, handle: Handle, ip: IpAddr, state: MemberState, now: Now) -> Member {
        let MemberState { peers, former: (worker, index, generation), bucket, token } = state;
        let inner = &mut self.inner;
        let former = Address { worker, handle: Handle { index, generation } };
        inner.former.insert(handle, former, now.monotonic_s);
        let (source, token) = (inner.swarms.source(ip), SocketToken::resume(token.as_deref()));
        let mut member = Member::new(handle, ip, source, token, HeaderMatch::default());
        member.bucket = TokenBucket::from_bits(bucket);
        let connection = (member.address(inner.dispatcher.worker()), member.source());
        let torrents_max = as_usize(inner.context.policy.config().webtorrent.torrents_per_connection_max);
        for peer in peers.into_iter().take(torrents_max) {
            let (info_hash, peer_id) = (InfoHash(peer.info_hash), PeerId(peer.peer_id));
            let key = inner.swarms.swarm_key(&info_hash);
            let membership = peer.membership();
            if inner.context.policy.check_lists(ip, &info_hash).is_ok()
                && inner.swarms.resume(&key, &peer_id, connection, &membership, now.monotonic_s).is_ok()
            {
                member.add(Peer { info_hash, peer_id });
            }
        }
        member
    }
}

impl PeerState {
    fn new(InfoHash(info_hash): InfoHash, PeerId(peer_id): PeerId, membership: Membership) -> Self {
        let Membership { seeds, age_s, is_download_decided, swarm_completed, swarm_age_s, pending_offers } =
            membership;
        let pending_offers = pending_offers.into_iter().map(|offer| (offer.key, offer.left_s)).collect();
        Self {
            info_hash,
            peer_id,
            seeds,
            age_s,
            is_download_decided,
            swarm_completed,
            swarm_age_s,
            pending_offers,
        }
    }

    fn membership(self) -> Membership {
        let Self { seeds, age_s, is_download_decided, swarm_completed, swarm_age_s, pending_offers, .. } =
            self;
        let pending_offers = pending_offers.into_iter();
        let pending_offers = pending_offers.map(|(key, left_s)| PendingOfferState { key, left_s }).collect();
        Membership { seeds, age_s, is_download_decided, swarm_completed, swarm_age_s, pending_offers }
    }
}
