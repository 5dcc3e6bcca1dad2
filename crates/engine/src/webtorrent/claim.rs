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

use std::collections::VecDeque;

use shoal_relay::{CHALLENGE_BYTES, CHALLENGE_S, Source};
use shoal_transport::stream::Handle;
use shoal_types::{Action, InfoHash, PeerId};

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
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
    pub(super) action: Action,
}

/// The claims of the connections of a worker.
#[derive(Debug)]
pub(super) struct Claims {
    /// The waiting claims and the second at which each is due, in that order.
    waiting: VecDeque<(u32, Claim)>,
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
        let is_same = |other: &Claim| Claim { action: claim.action, ..*other } == claim;
        let has_room =
            self.waiting.len() + self.due.len() < CLAIMS_MAX && member.claims < CLAIMS_PER_MEMBER_MAX;
        if !has_room
            || *self.of_source(member.source()) >= CLAIMS_PER_SOURCE_MAX
            || member.claims > 0
                && (self.waiting.iter().any(|(_, other)| is_same(other)) || self.due.iter().any(is_same))
        {
            return false;
        }
        *self.of_source(member.source()) += 1;
        member.claims += 1;
        self.waiting.push_back((now_s.saturating_add(CLAIM_S), claim));
        true
    }

    /// Returns the connection of the next claim that is due. The caller wakes that connection.
    pub(super) fn next_due(&mut self, now_s: u32) -> Option<Handle> {
        if self.waiting.front()?.0 > now_s {
            return None;
        }
        let (_, claim) = self.waiting.pop_front()?;
        self.due.push(claim);
        Some(claim.handle)
    }

    /// Takes a claim of the client that is to be decided now.
    pub(super) fn take(&mut self, member: &mut Member) -> Option<Claim> {
        let handle = member.handle();
        let index = self.due.iter().position(|claim| claim.handle == handle)?;
        member.claims -= 1;
        *self.of_source(member.source()) -= 1;
        Some(self.due.swap_remove(index))
    }

    /// Removes the claims of a client that has disconnected.
    pub(super) fn forget(&mut self, member: &Member) {
        self.waiting.retain(|(_, claim)| claim.handle != member.handle());
        self.due.retain(|claim| claim.handle != member.handle());
        *self.of_source(member.source()) -= member.claims;
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

/// The challenged connections of a worker. Each waiting claim of any worker has caused at most one challenge, so there
/// are at most [`CLAIMS_MAX`] times as many as workers.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// The suspects and the second at which each is due, in that order.
    waiting: VecDeque<(u32, Suspect)>,
    /// The last suspect that was due.
    last: Option<Suspect>,
}

impl Suspects {
    pub(super) fn add(&mut self, suspect: Suspect, now_s: u32) {
        self.waiting.push_back((now_s.saturating_add(SUSPECT_S), suspect));
    }

    /// Returns the connection of the next suspect that is due.
    pub(super) fn next_due(&mut self, now_s: u32) -> Option<Handle> {
        let is_due = self.waiting.front().is_some_and(|(due_s, _)| *due_s <= now_s);
        self.last = is_due.then(|| self.waiting.pop_front()).flatten().map(|(_, suspect)| suspect);
        self.last.map(|suspect| suspect.handle)
    }

    /// Returns the last suspect that was due.
    pub(super) const fn last(&self) -> Option<Suspect> {
        self.last
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
