//! Claims: announces of a peer id that belongs to another connection.
//!
//! The other connection may be dead without the tracker's knowledge: a browser that moved to another network is
//! back before the tracker notices. The tracker therefore challenges it with a ping that names the peer, and the
//! announce waits. If no pong arrives in time, the claimant gets the peer; otherwise the claim is refused. The
//! address of the claimant is irrelevant: neighbours share one, and a client that moves has a new one.
//!
//! On a slow connection, the ping may still be behind output for other reasons, such as the offers of an attacker. A
//! challenged connection is therefore suspected only: before its time is over, the kernel is asked whether its peer is
//! still receiving, which a dead one is not.

use core::net::IpAddr;
use std::collections::VecDeque;

use shoal_relay::{CHALLENGE_BYTES, CHALLENGE_S, Source};
use shoal_transport::stream::Handle;
use shoal_types::{Action, Event, InfoHash, PeerId, Transfer};

use super::member::Member;

/// Maximum number of waiting claims of the connections of a worker. Further claims are refused at once.
const CLAIMS_MAX: usize = 1024;

/// Maximum number of waiting claims of one connection.
const CLAIMS_PER_MEMBER_MAX: u8 = 16;

/// Maximum number of waiting claims of the connections of one source, so that one source leaves room for others.
const CLAIMS_PER_SOURCE_MAX: u8 = 64;

/// Number of counters of claims by source, a power of two. Sources that map to the same counter share its limit.
const COUNTERS: usize = 1024;

/// Seconds after which a claim is decided. The challenge may take a moment to reach its worker, and times are
/// whole seconds.
const CLAIM_S: u32 = CHALLENGE_S + 2;

/// A waiting announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) handle: Handle,
    /// The address of the client.
    pub(super) ip: IpAddr,
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
    pub(super) action: Action,
    /// The event of the announce, for the access log, and its statements about transfers.
    pub(super) event: Event,
    pub(super) transfer: Transfer,
}

/// The place of a claim that is not due yet.
#[derive(Debug)]
struct Waiting {
    due_s: u32,
    source: Source,
    /// `None` if the connection has ended. The place stays occupied until it is due, so that connections that come and go
    /// cannot cause more challenges than others.
    claim: Option<Claim>,
}

/// The claims of the connections of a worker.
#[derive(Debug)]
pub(super) struct Claims {
    /// The claims in the order in which they are due.
    waiting: VecDeque<Waiting>,
    /// The due claims whose connections have been woken.
    due: Vec<Claim>,
    /// The number of claims of each source.
    of_sources: Box<[u8; COUNTERS]>,
}

impl Default for Claims {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), due: Vec::new(), of_sources: Box::new([0; COUNTERS]) }
    }
}

impl Claims {
    /// Adds a claim of the client. Returns whether it waits: a claim that already waits is not added twice.
    pub(super) fn add(&mut self, member: &mut Member, claim: Claim, now_s: u32) -> bool {
        let is_same = |other: &Claim| {
            let Claim { action, event, transfer, .. } = claim;
            Claim { action, event, transfer, ..*other } == claim
        };
        let has_room =
            self.waiting.len() + self.due.len() < CLAIMS_MAX && member.claims < CLAIMS_PER_MEMBER_MAX;
        if !has_room
            || *self.of_source(member.source()) >= CLAIMS_PER_SOURCE_MAX
            || member.claims > 0
                && (self.waiting.iter().filter_map(|waiting| waiting.claim.as_ref()).any(is_same)
                    || self.due.iter().any(is_same))
        {
            return false;
        }
        *self.of_source(member.source()) += 1;
        member.claims += 1;
        let due_s = now_s.saturating_add(CLAIM_S);
        self.waiting.push_back(Waiting { due_s, source: member.source(), claim: Some(claim) });
        true
    }

    /// Returns the connection of the next claim that is due. The caller wakes that connection.
    pub(super) fn next_due(&mut self, now_s: u32) -> Option<Handle> {
        while self.waiting.front()?.due_s <= now_s {
            let Waiting { source, claim, .. } = self.waiting.pop_front()?;
            if let Some(claim) = claim {
                self.due.push(claim);
                return Some(claim.handle);
            }
            *self.of_source(source) -= 1;
        }
        None
    }

    /// Takes a claim of the client that is to be decided now.
    pub(super) fn take(&mut self, member: &mut Member) -> Option<Claim> {
        let handle = member.handle();
        let index = self.due.iter().position(|claim| claim.handle == handle)?;
        member.claims -= 1;
        *self.of_source(member.source()) -= 1;
        Some(self.due.swap_remove(index))
    }

    /// Abandons the claims of a client that has disconnected.
    pub(super) fn abandon(&mut self, member: &Member) {
        let is_of_member = |claim: &Claim| claim.handle == member.handle();
        for Waiting { claim, .. } in &mut self.waiting {
            claim.take_if(|claim| is_of_member(claim));
        }
        while let Some(index) = self.due.iter().position(is_of_member) {
            self.due.swap_remove(index);
            *self.of_source(member.source()) -= 1;
        }
    }

    fn of_source(&mut self, source: Source) -> &mut u8 {
        &mut self.of_sources[source.part(COUNTERS)]
    }
}

/// Seconds from a challenge to the question whether the peer is still receiving: the last whole second before a peer
/// can be given away.
const SUSPECT_S: u32 = CHALLENGE_S - 1;

/// A challenged connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspect {
    pub(super) handle: Handle,
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
}

/// Maximum number of suspects that are checked in a poll round. A check takes two system calls.
const SUSPECTS_PER_ROUND_MAX: usize = 128;

/// The challenged connections of a worker. A claim causes at most one challenge and keeps its place among the claims for
/// longer than a suspect waits, so there are at most [`CLAIMS_MAX`] suspects for each worker of the tracker.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// The suspects and the second at which each is due, in that order.
    waiting: VecDeque<(u32, Suspect)>,
}

impl Suspects {
    pub(super) fn add(&mut self, suspect: Suspect, now_s: u32) {
        self.waiting.push_back((now_s.saturating_add(SUSPECT_S), suspect));
    }

    /// Removes the suspects that are due, at most [`SUSPECTS_PER_ROUND_MAX`] of them.
    pub(super) fn take_due(&mut self, now_s: u32) -> impl Iterator<Item = Suspect> {
        let limit = self.waiting.len().min(SUSPECTS_PER_ROUND_MAX);
        let due = self.waiting.iter().take(limit).take_while(|(due_s, _)| *due_s <= now_s).count();
        self.waiting.drain(..due).map(|(_, suspect)| suspect)
    }

    /// Frees memory that is no longer needed.
    pub(super) fn trim(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }
}

/// Returns the payload of a challenge on account of a peer, which is also that of the pong to it.
pub(super) fn payload(info_hash: &InfoHash, peer_id: &PeerId) -> [u8; CHALLENGE_BYTES] {
    let mut payload = [0; CHALLENGE_BYTES];
    let (first, second) = payload.split_at_mut(info_hash.0.len());
    first.copy_from_slice(&info_hash.0);
    second.copy_from_slice(&peer_id.0);
    payload
}

/// Returns the peer that a challenge with this payload is about.
pub(super) fn parse(payload: &[u8]) -> Option<(InfoHash, PeerId)> {
    let (info_hash, rest) = payload.split_first_chunk()?;
    Some((InfoHash(*info_hash), PeerId(rest.try_into().ok()?)))
}
