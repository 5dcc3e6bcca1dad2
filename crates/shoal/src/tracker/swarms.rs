//! The swarms of a starting tracker: the place of the store, and the return of the last process's swarms.
//!
//! A store continues in the memory of a running tracker, or in memory that the service manager has kept. Otherwise
//! the store is new, and reads a snapshot: the running tracker's, or the last one of the state.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use shoal_access::torrents::TorrentLists;
use shoal_base::source::Holdings;
use shoal_config::{ByteSize, Config};
use shoal_relay::{Mailboxes, Swarms};
use shoal_store::{MemoryFile, Store};

use super::ROOT;
use crate::hand_over::{Predecessor, Takeover};
use crate::memory;
use crate::service_manager::frozen_swarms::FrozenSwarms;
use crate::settings;
use crate::state::{State, StateKeys};
use crate::worker::pool::WebTorrent;
use shoal_runtime::division::Division;
use shoal_runtime::{advice, machine};

/// Maximum size, for each worker, of the messages that wait for its next poll, some milliseconds.
const MAILBOX_BYTES_MAX: usize = 16 << 20;

/// The swarms of all protocols, before the first worker begins.
pub(super) struct OpenedSwarms {
    pub(super) store: Arc<Store>,
    /// Whether the store comes from another process. Such a store may have swarms that the lists forbid by now.
    pub(super) continues: bool,
    pub(super) webtorrent: Option<WebTorrent>,
    pub(super) holdings: Option<Arc<Holdings>>,
}

impl OpenedSwarms {
    /// Opens the store and restores the last process's swarms, except those that `torrents` forbid. Fails if the kernel
    /// does not provide the memory, or if a running tracker does not hand its swarms over.
    pub(super) async fn open(
        config: &Config,
        division: &Division,
        (state, torrents): (&State, Option<Arc<TorrentLists>>),
        frozen_swarms: Option<FrozenSwarms>,
        predecessor: Option<&mut Predecessor>,
    ) -> anyhow::Result<Self> {
        let holdings = settings::holdings(config, division.max, &state.keys);
        let webtorrent = if config.webtorrent.enabled {
            Some(webtorrent(config, division, holdings.clone(), &state.keys)?)
        } else {
            None
        };
        let open = |memory| open_store(config, division.store, holdings.clone(), &state.keys, memory);
        let timeout_s = config.announce.peer_timeout_s;
        let frozen =
            frozen_swarms.and_then(|swarms| swarms.resume(timeout_s, |memory| Ok(open(Some(memory))?.0)));
        let continues = predecessor.is_some() || frozen.is_some();
        let store = match (predecessor, frozen) {
            (Some(predecessor), _) => {
                Arc::new(take_over(config, state, torrents.as_deref(), predecessor, open)?)
            }
            (None, Some(store)) => Arc::new(store),
            (None, None) => {
                let store = Arc::new(open(None)?.0);
                state.restore(config, &store, torrents).await?;
                store
            }
        };
        Ok(Self { store, continues, webtorrent, holdings })
    }
}

/// Takes over a running tracker's swarms: with their memory if possible, or else as a snapshot.
fn take_over(
    config: &Config,
    state: &State,
    torrents: Option<&TorrentLists>,
    predecessor: &mut Predecessor,
    open: impl Fn(Option<MemoryFile>) -> anyhow::Result<(Store, bool)>,
) -> anyhow::Result<Store> {
    let (mut store, is_in_its_memory) = open(predecessor.memory.take())?;
    match predecessor.take_swarms(&mut store, is_in_its_memory)? {
        Takeover::InMemory => {
            tracing::info!("continuing with the swarms of the running tracker, in its memory");
            Ok(store)
        }
        Takeover::Snapshot(file) => {
            let (store, _) = open(None)?;
            state.restore_from(config, &store, torrents, file)?;
            Ok(store)
        }
    }
}

/// Opens the store in a running tracker's memory, if given, or else in new memory. Returns whether the memory was
/// given.
fn open_store(
    config: &Config,
    memory_bytes_max: u64,
    holdings: Option<Arc<Holdings>>,
    keys: &StateKeys,
    memory: Option<MemoryFile>,
) -> anyhow::Result<(Store, bool)> {
    let huge_pages = machine::huge_pages(Path::new(ROOT));
    let shards = settings::shards(settings::workers(config), memory_bytes_max);
    let settings = settings::store(config, memory_bytes_max, holdings, keys);
    let no_space =
        || format!("the kernel cannot reserve {memory_bytes_max} bytes of address space; lower memory.max");
    let is_taken_over = memory.is_some();
    let store = match memory.map_or_else(MemoryFile::create, Ok) {
        Ok(file) => Store::in_file(&settings, shards, file),
        Err(error) => {
            tracing::info!(%error, "the store is in private memory, so an upgrade has to copy it");
            Store::with_shards(&settings, shards)
        }
    };
    let store = store.with_context(no_space)?;
    settings::apply_to_store(&store, config);
    let nodes = memory::nodes(Path::new(ROOT));
    if nodes.count_ones() > 1
        && let Err(error) = store.interleave(nodes)
    {
        tracing::warn!(%error, "the kernel does not spread the store over the NUMA nodes; one may get all of it");
    }
    let memory_max = ByteSize::mib(memory_bytes_max >> 20);
    tracing::info!(
        %memory_max,
        shards = store.shards(),
        numa_nodes = nodes.count_ones(),
        huge_pages = huge_pages.as_deref().unwrap_or("unknown"),
        "store"
    );
    if huge_pages.as_deref() == Some("never") {
        tracing::warn!(
            "{}; `{}` lets the store ask for them",
            advice::HUGE_PAGES_OFF,
            advice::PERMIT_HUGE_PAGES
        );
    }
    Ok((store, is_taken_over))
}

fn webtorrent(
    config: &Config,
    division: &Division,
    holdings: Option<Arc<Holdings>>,
    keys: &StateKeys,
) -> anyhow::Result<WebTorrent> {
    let swarms = settings::swarms(config, division.swarms, holdings, keys);
    tracing::info!(peers_max = swarms.peers_max, "WebTorrent");
    let workers = settings::workers(config);
    let mailbox_bytes_max = division.mailbox_bytes_max(workers);
    let posts_bytes_max = division.posts_bytes_max(workers);
    let workers = u16::try_from(workers.get()).context("there are too many workers")?;
    let mailbox_bytes_max = mailbox_bytes_max.min(MAILBOX_BYTES_MAX);
    Ok(WebTorrent {
        swarms: Arc::new(Swarms::new(&swarms)),
        mailboxes: if config.is_node() {
            Mailboxes::with_remote(workers, mailbox_bytes_max)
        } else {
            Mailboxes::with_bytes_max(workers, mailbox_bytes_max)
        },
        posts_bytes_max,
    })
}
