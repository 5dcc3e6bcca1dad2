//! The info hashes and peer ids of the load, each a function of the seed.

use shoal_types::{InfoHash, PeerId};

/// The info hash of torrent `torrent` of a load with this seed: for trackers that want a list of those they serve.
#[must_use]
pub fn info_hash(seed: u64, torrent: u32) -> InfoHash {
    let mut state = mix(seed) ^ u64::from(torrent);
    let mut hash = [0; 20];
    for piece in hash.chunks_mut(8) {
        state = mix(state);
        piece.copy_from_slice(&state.to_be_bytes()[..piece.len()]);
    }
    InfoHash(hash)
}

/// The peer id of the peer with this number, of the client `SL` (BEP 20).
pub(crate) fn peer_id(seed: u64, number: u64) -> PeerId {
    let mut id = *b"-SL0100-............";
    id[8..16].copy_from_slice(&mix(seed ^ mix(number)).to_be_bytes());
    PeerId(id)
}

/// SplitMix64: every input has another output, and each bit of it depends on all of the input.
pub(crate) fn mix(input: u64) -> u64 {
    let state = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_hash_belongs_to_its_torrent_and_seed() {
        let hashes: HashSet<[u8; 20]> =
            (0..10_000).flat_map(|torrent| [info_hash(1, torrent).0, info_hash(2, torrent).0]).collect();
        assert_eq!(hashes.len(), 20_000);
        assert_eq!(info_hash(1, 7), info_hash(1, 7));
    }
}
