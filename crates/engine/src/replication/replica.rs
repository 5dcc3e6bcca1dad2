//! The UDP and HTTP swarms of this node, as the cluster protocol changes and reads them.
//!
//! A block of an export is the content of a snapshot's block with another header: other nodes have other keys, and
//! perhaps another timeout and another clock. All numbers are little-endian.
//!
//! | | |
//! |---|---|
//! | 0..4 | `SHR1` |
//! | 4..8 | CRC-32 of all following bytes |
//! | 8..12 | the timeout of peers in seconds, in sixty-fourths of which ages are counted |
//! | 12 | 4 or 6, the family of all peers |
//! | 13..16 | 0 |
//! | 16.. | parts of swarms, see [`shoal_store::snapshot_file`] |
//!
//! Swarms of private networks are listed under their info hashes. The node that adopts them decides by their
//! addresses.

use core::net::IpAddr;
use core::ops::Range;
use std::collections::VecDeque;

use shoal_base::{Action, Delta, InfoHash, PeerV4, PeerV6};
use shoal_store::snapshot_file::{Parts, encode_part};
use shoal_store::{Adopted, Ages, Export, PrivateNetwork, Store, SwarmPart, SwarmSet};
use zerocopy::FromBytes;

use super::admission::{RefusedPeer, check_peer, check_torrent};
use super::applier::Applier;
use crate::Now;
use crate::address::private_network;

const MAGIC: [u8; 4] = *b"SHR1";

const HEADER_BYTES: usize = 16;

/// Size in bytes at which a block ends. It may exceed this by a segment of a large swarm, some 12 KiB.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum number of export steps in one call. Each locks a shard for at most some hundred swarms.
const STEPS_PER_CALL: usize = 32;

/// Maximum size of a block in bytes.
pub const BLOCK_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(BLOCK_BYTES + (32 << 10) <= BLOCK_BYTES_MAX);

/// The error of a block that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the block is damaged")]
pub struct Damaged;

/// The swarms of this node. One thread owns it.
#[derive(Debug)]
pub struct Replica {
    applier: Applier,
    now: Now,
    sorted: SortedParts,
}

/// The progress of an export.
#[derive(Debug, Default)]
pub struct ReplicaExport {
    export: Export,
    /// The incomplete block, or nothing.
    open: Vec<u8>,
    /// Complete blocks of one step, of which one call returns the first.
    complete: VecDeque<Vec<u8>>,
}

impl Replica {
    /// Creates the replica of an applier and its store.
    pub fn new(applier: Applier) -> Self {
        Self { applier, now: Now::default(), sorted: SortedParts::default() }
    }

    /// Sets the time of all later calls.
    pub const fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    /// Returns the applier.
    pub const fn applier(&self) -> &Applier {
        &self.applier
    }

    /// Returns the applier, to change its policy.
    pub const fn applier_mut(&mut self) -> &mut Applier {
        &mut self.applier
    }

    fn timeout_s(&self) -> u32 {
        self.applier.policy().config().announce.peer_timeout_s
    }

    /// Applies deltas of other nodes, see [`Applier::apply`].
    pub fn apply(&mut self, deltas: &[Delta], age_ms: u64) {
        self.applier.apply(deltas, age_ms, self.now);
    }

    /// Appends the next block of an export to `block`, at most [`BLOCK_BYTES_MAX`], or nothing. Returns whether more
    /// may follow.
    pub fn export(&self, export: &mut ReplicaExport, block: &mut Vec<u8>) -> bool {
        export.next(self.applier.store(), self.timeout_s(), self.now, block)
    }

    /// Merges a block of another node into the swarms. Data of this node that is equally new remains. Returns the
    /// numbers of the block's peers. Fails if the bytes are no valid block. Nothing of them is adopted then.
    pub fn adopt(&mut self, block: &[u8]) -> Result<Adopted, Damaged> {
        let (timeout_s, set, content) = decode_header(block)?;
        let ages = Ages::of_other_store(timeout_s, self.timeout_s());
        let Self { applier, sorted, now } = self;
        sorted.clear();
        for part in Parts::new(content, set) {
            sorted.push(applier, &part.map_err(|_| Damaged)?, set);
        }
        let mut adopted = Adopted::default();
        for set in SwarmSet::ALL {
            let parts: Vec<SwarmPart<'_>> = sorted.parts(set).collect();
            adopted += applier.store().adopt(set, &parts, &ages, now.monotonic_s);
        }
        let counters = applier.counters();
        counters.adopted.add(adopted.added);
        counters.refused.of(RefusedPeer::Memory).add(adopted.refused);
        Ok(adopted)
    }
}

impl ReplicaExport {
    /// Appends the next block, or nothing. Returns whether more may follow.
    fn next(&mut self, store: &Store, timeout_s: u32, now: Now, block: &mut Vec<u8>) -> bool {
        for _ in 0..STEPS_PER_CALL {
            if !self.complete.is_empty() {
                break;
            }
            let Some(set) = self.export.set() else { break };
            let Self { export, open, complete } = self;
            export.next(store, now.monotonic_s, |part| {
                let Some(id) = info_hash(store, set, part) else { return };
                if open.len() >= BLOCK_BYTES {
                    complete.push_back(core::mem::take(open));
                }
                if open.is_empty() {
                    begin_block(set, timeout_s, open);
                }
                encode_part(&SwarmPart { id, ..*part }, open);
            });
            // A block has peers of one family.
            if self.export.set() != Some(set) && !self.open.is_empty() {
                self.complete.push_back(core::mem::take(&mut self.open));
            }
        }
        if let Some(mut next) = self.complete.pop_front() {
            end_block(&mut next);
            block.append(&mut next);
        }
        self.export.set().is_some() || !self.complete.is_empty()
    }
}

/// Returns the info hash of a part. Nothing is known about the network of a torrent without peers.
fn info_hash(store: &Store, set: SwarmSet, part: &SwarmPart<'_>) -> Option<InfoHash> {
    match set {
        SwarmSet::V4 | SwarmSet::V6 => Some(part.id),
        SwarmSet::PrivateV4 | SwarmSet::PrivateV6 => {
            let (ip, _port) = addresses(set, part.peers).next()?;
            store.unmask(&part.id).get(index_of(private_network(ip)?)?).copied()
        }
    }
}

fn index_of(network: PrivateNetwork) -> Option<usize> {
    PrivateNetwork::ALL.into_iter().position(|other| other == network)
}

/// Returns the canonical addresses and the ports of peers.
fn addresses(set: SwarmSet, peers: &[u8]) -> impl Iterator<Item = (IpAddr, u16)> {
    let (v4, v6) = match set {
        SwarmSet::V4 | SwarmSet::PrivateV4 => (peers, &[][..]),
        SwarmSet::V6 | SwarmSet::PrivateV6 => (&[][..], peers),
    };
    let v4 = <[PeerV4]>::ref_from_bytes(v4).unwrap_or_default().iter().map(|peer| peer.addr());
    let v6 = <[PeerV6]>::ref_from_bytes(v6).unwrap_or_default().iter().map(|peer| peer.addr());
    let v4 = v4.map(|address| (IpAddr::V4(*address.ip()), address.port()));
    v4.chain(v6.map(|address| (IpAddr::V6(*address.ip()), address.port())))
}

fn begin_block(set: SwarmSet, timeout_s: u32, block: &mut Vec<u8>) {
    let family = match set {
        SwarmSet::V4 | SwarmSet::PrivateV4 => 4,
        SwarmSet::V6 | SwarmSet::PrivateV6 => 6,
    };
    block.extend_from_slice(&MAGIC);
    block.extend_from_slice(&[0; 4]);
    block.extend_from_slice(&timeout_s.to_le_bytes());
    block.extend_from_slice(&[family, 0, 0, 0]);
}

fn end_block(block: &mut [u8]) {
    let crc = crc32fast::hash(&block[8..]);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the timeout in seconds, the set of public swarms of the family, and the parts.
fn decode_header(block: &[u8]) -> Result<(u32, SwarmSet, &[u8]), Damaged> {
    let (header, content) = block.split_first_chunk::<HEADER_BYTES>().ok_or(Damaged)?;
    if block.len() > BLOCK_BYTES_MAX {
        return Err(Damaged);
    }
    let [m0, m1, m2, m3, c0, c1, c2, c3, t0, t1, t2, t3, family, ..] = *header;
    let timeout_s = u32::from_le_bytes([t0, t1, t2, t3]);
    let is_whole = u32::from_le_bytes([c0, c1, c2, c3]) == crc32fast::hash(&block[8..]);
    let set = match family {
        4 => SwarmSet::V4,
        6 => SwarmSet::V6,
        _ => return Err(Damaged),
    };
    if [m0, m1, m2, m3] == MAGIC && is_whole && timeout_s > 0 {
        Ok((timeout_s, set, content))
    } else {
        Err(Damaged)
    }
}

/// The admitted peers of a block, sorted by their set at this node.
#[derive(Debug, Default)]
struct SortedParts {
    parts: Vec<(SwarmSet, SortedPart)>,
    peers: Vec<u8>,
    ages: Vec<u8>,
    /// The networks of the current part's peers. `None` if the peer is refused.
    networks: Vec<Option<Option<PrivateNetwork>>>,
}

/// A part whose peers and ages lie in common buffers.
#[derive(Debug)]
struct SortedPart {
    /// The identity in this store.
    id: InfoHash,
    completed: u32,
    age_s: u32,
    seeders: usize,
    peers: Range<usize>,
    ages: Range<usize>,
}

impl SortedParts {
    fn clear(&mut self) {
        self.parts.clear();
        self.peers.clear();
        self.ages.clear();
    }

    fn parts(&self, set: SwarmSet) -> impl Iterator<Item = SwarmPart<'_>> {
        self.parts.iter().filter(move |(other, _)| *other == set).map(|(_, part)| SwarmPart {
            id: part.id,
            completed: part.completed,
            age_s: part.age_s,
            seeders: part.seeders,
            peers: &self.peers[part.peers.clone()],
            ages: &self.ages[part.ages.clone()],
        })
    }

    /// Appends the admitted peers of a part, which belongs to public swarms at the other node, and counts the others.
    fn push(&mut self, applier: &Applier, part: &SwarmPart<'_>, set: SwarmSet) {
        let (policy, refused) = (applier.policy(), &applier.counters().refused);
        if let Err(reason) = check_torrent(policy, &part.id) {
            return refused.of(reason).add(part.ages.len() as u64);
        }
        self.networks.clear();
        self.networks.extend(addresses(set, part.peers).map(|(ip, port)| {
            // No peer of a snapshot leaves.
            check_peer(policy, ip.to_canonical(), port, Action::Leech)
                .inspect_err(|reason| refused.of(*reason).increment())
                .ok()
        }));
        // The downloads belong to one of the swarms into which the part is divided.
        let mut completed = part.completed;
        if part.ages.is_empty() || self.networks.contains(&Some(None)) {
            self.push_network(applier.store(), SwarmPart { completed, ..*part }, set, None);
            completed = 0;
        }
        if self.networks.iter().any(|network| matches!(network, Some(Some(_)))) {
            for network in PrivateNetwork::ALL {
                if self.networks.contains(&Some(Some(network))) {
                    let part = SwarmPart { completed: core::mem::take(&mut completed), ..*part };
                    self.push_network(applier.store(), part, set, Some(network));
                }
            }
        }
    }

    /// Appends the peers of a part that are in one network.
    fn push_network(
        &mut self,
        store: &Store,
        part: SwarmPart<'_>,
        set: SwarmSet,
        network: Option<PrivateNetwork>,
    ) {
        let (peers, ages) = (self.peers.len(), self.ages.len());
        let mut seeders = 0;
        let chunks = part.peers.chunks_exact(set.peer_bytes());
        for (index, ((peer, age), other)) in chunks.zip(part.ages).zip(&self.networks).enumerate() {
            if *other == Some(network) {
                self.peers.extend_from_slice(peer);
                self.ages.push(*age);
                seeders += usize::from(index < part.seeders);
            }
        }
        let (set, id) = match (network, set) {
            (None, _) => (set, part.id),
            (Some(network), SwarmSet::V4) => (SwarmSet::PrivateV4, store.private_id(&part.id, network)),
            (Some(network), _) => (SwarmSet::PrivateV6, store.private_id(&part.id, network)),
        };
        let (peers, ages) = (peers..self.peers.len(), ages..self.ages.len());
        let SwarmPart { completed, age_s, .. } = part;
        self.parts.push((set, SortedPart { id, completed, age_s, seeders, peers, ages }));
    }
}
