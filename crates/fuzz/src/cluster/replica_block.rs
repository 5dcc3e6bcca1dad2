//! Blocks of snapshots of other nodes.

use std::sync::Arc;

use shoal_config::Config;
use shoal_engine::Now;
use shoal_engine::policy::Policy;
use shoal_engine::replication::{Applier, BLOCK_BYTES_MAX, Replica, ReplicaExport};
use shoal_store::{Settings, Store};

const NOW: Now = Now { monotonic_s: 100_000, monotonic_ms: 100_000_000, unix_s: 1_700_000_000 };

/// Reads the input as a block, and as the parts of one with the right magic and checksum, into a small store. A second
/// store reads the blocks that the first exports, and learns nothing when it reads them again.
pub fn replica_block(input: &[u8]) {
    let mut replica = replica(1);
    let _any_bytes = replica.adopt(input);
    if let [timeout_s, family, parts @ ..] = input {
        let _any_parts = replica.adopt(&block(u32::from(*timeout_s) * 100, *family, parts));
    }
    let mut other = self::replica(2);
    for is_first in [true, false] {
        let mut export = ReplicaExport::default();
        loop {
            let mut block = Vec::new();
            let has_more = replica.export(&mut export, &mut block);
            assert!(block.len() <= BLOCK_BYTES_MAX);
            if !block.is_empty() {
                let adopted = other.adopt(&block).expect("a node can read the blocks of another one");
                assert!(is_first || adopted.added == 0, "{adopted:?}");
            }
            if !has_more {
                break;
            }
        }
    }
}

/// Returns a block of these parts. The family is that of the lowest bit.
fn block(timeout_s: u32, family: u8, parts: &[u8]) -> Vec<u8> {
    let mut content = timeout_s.to_le_bytes().to_vec();
    content.extend_from_slice(&[if family & 1 == 0 { 4 } else { 6 }, 0, 0, 0]);
    content.extend_from_slice(parts);
    let mut block = b"SHR1".to_vec();
    block.extend_from_slice(&crc32fast::hash(&content).to_le_bytes());
    block.extend_from_slice(&content);
    block
}

fn replica(secret: u64) -> Replica {
    let settings = Settings::new(8 << 20, 2700, [secret, 2, 3, 4]);
    let store = Arc::new(Store::with_shards(&settings, 1).expect("8 MiB can be reserved"));
    let mut replica = Replica::new(Applier::new(Arc::new(Policy::new(Config::default())), store));
    replica.set_now(NOW);
    replica
}
