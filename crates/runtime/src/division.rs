//! How the memory of the process is divided.

use std::num::NonZeroUsize;

use shoal_config::ByteSize;

/// How the memory of the process is divided. Parts are in bytes, for all workers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The whole memory.
    pub max: u64,
    /// The reason for this ceiling.
    pub because: String,
    /// The program, its workers, and all parts of a fixed size.
    pub fixed: u64,
    /// The policy's share of the fixed part, for the requests of sources and for tokens.
    pub policy: u64,
    /// The number of changes that the feed may remember.
    pub changes_max: usize,
    /// The lists of torrents and networks.
    pub lists: u64,
    /// The ceiling of the store, without its lists on the heap.
    pub store: u64,
    /// The swarms of WebTorrent.
    pub swarms: u64,
    /// The memory of connections, including the overhead of the allocator.
    pub connections: u64,
    /// Queues of all workers.
    pub queues: u64,
}

impl Division {
    /// Returns how much memory the connections of one worker may hold, by their own count.
    pub fn held_bytes_max(&self, workers: NonZeroUsize) -> usize {
        as_usize(self.connections / 5 * 4 / workers.get() as u64)
    }

    /// Returns how many bytes may wait in all queues of one worker for its connections. Their buffers may take twice as
    /// much.
    pub fn posts_bytes_max(&self, workers: NonZeroUsize) -> usize {
        as_usize(self.queues / 4 / workers.get() as u64)
    }

    /// Returns how many bytes may wait for one worker in its mailbox. As much again may be in transit in batches, and
    /// as much in delivery. A buffer may take twice the size of its contents.
    pub fn mailbox_bytes_max(&self, workers: NonZeroUsize) -> usize {
        as_usize(self.queues / 12 / workers.get() as u64)
    }

    /// Logs the division.
    pub fn log(&self) {
        let mib = |bytes: u64| ByteSize::mib(bytes >> 20).to_string();
        tracing::info!(
            max = mib(self.max),
            because = self.because,
            program_and_workers = mib(self.fixed),
            lists = mib(self.lists),
            store = mib(self.store),
            webtorrent_swarms = mib(self.swarms),
            connections = mib(self.connections),
            queues = mib(self.queues),
            "memory"
        );
    }
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
