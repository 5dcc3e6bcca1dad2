//! The keys of the swarms, in memory and on disk.

use std::path::PathBuf;

use crate::declare::settings;
use crate::values::{Auto, ByteSize};

settings! {
    /// The memory that holds swarms and peers.
    section store: StoreConfig {
        /// Memory limit for swarms and peers, a part of memory.max. At the limit, new peers are refused with a reason,
        /// and nothing else changes. "auto" is the part of memory.max that connections and queues leave, half of it or
        /// more; the log tells the size. A million torrents with one peer each take about 40 MiB.
        memory_max: Auto<ByteSize> = Auto::Auto, in ByteSize::mib(8)..=ByteSize::gib(16_384) => Restart;

        /// Number of torrents that keep their count of completed downloads when their last peer leaves, for IPv4 and for IPv6
        /// each. Scrapes then answer with the count, and it returns with the next peer. Only torrents with at least one
        /// download count. In excess of the number, those with the fewest downloads go first, and the oldest among these. Each takes
        /// up to 32 bytes of memory_max, for a year. 0 keeps none.
        completed_retained_max: u32 = 0, in 0..=1_000_000_000 => Reload;
    }

    /// The state that outlives a run: swarms with their peers, and secret keys.
    section state: StateConfig {
        /// Directory of the state, which the tracker creates for its own user; "" keeps none. The tracker reads it before
        /// it serves, so that a restart loses no peers, and writes a snapshot when it stops. It takes about as much
        /// space as the swarms take memory, twice that while a snapshot is being written. One tracker uses it at a time.
        path: Option<PathBuf> = None => Restart, essential;

        /// Time between two snapshots that are written beside the traffic, in seconds. A crash loses what changed since
        /// the last one. 0 writes one only on request (shoal ctl snapshot) and when the tracker stops.
        interval_s: u32 = 300, in 0..=86_400 => Restart;

        /// Keep the secret keys there too, in a file that only the owner may read. Connection ids then stay valid over a
        /// restart, and swarms of private networks return. If false, the tracker has
        /// new keys at each start.
        keys: bool = true => Restart;
    }
}
