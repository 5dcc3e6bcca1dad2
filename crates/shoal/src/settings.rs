//! Converts the operator's configuration to the settings of the crates.

use std::num::NonZeroUsize;
use std::sync::Arc;

use shoal_access::HashKey;
use shoal_access::token::KeySet;
use shoal_base::source::{HoldingLimits, Holdings};
use shoal_config::{AccessLogTarget, Auto, Config, DatagramBackend};
use shoal_engine::connection_id::ConnectionKey;
use shoal_engine::limits::{Limits, SourceRates};
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::replication;
use shoal_engine::tokens::{TokenMemory, Tokens};
use shoal_engine::watch::Watch;
use shoal_net::stream::{ListenAddress, SourceLimits, StreamLimits};
use shoal_net::{Backend, REQUEST_BYTES_MAX, SOCKETS_MAX, SocketSettings};
use shoal_relay::PEER_BYTES;
use shoal_runtime::lists::bans::EARNED_BAN_BYTES;
use shoal_runtime::random;
use shoal_store::Store;

use crate::cluster;
use crate::state::StateKeys;
use crate::worker::processors;

// The buffers can hold everything that the configuration accepts.
const _: () = {
    assert!(shoal_config::LISTEN_ADDRESSES_MAX <= SOCKETS_MAX);
    assert!(COMPLETED_RETAINED_HOURS <= shoal_store::RETAINED_HOURS_MAX);
    assert!(16 + 20 * shoal_engine::udp::SCRAPE_HASHES_MAX <= REQUEST_BYTES_MAX, "BEP 15, \"scrape\"");
};

pub(crate) fn workers(config: &Config) -> NonZeroUsize {
    let count = match config.workers.count {
        Auto::Auto => processors::count(),
        Auto::Set(count) => count as usize,
    };
    NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN)
}

pub(crate) fn backend(config: &Config) -> Option<Backend> {
    match config.udp.io {
        DatagramBackend::Auto => None,
        DatagramBackend::Uring => Some(Backend::Uring),
        DatagramBackend::Mmsg => Some(Backend::Mmsg),
    }
}

pub(crate) fn sockets(config: &Config) -> Vec<SocketSettings> {
    let socket = |&addr| SocketSettings {
        addr,
        recv_buffer_bytes: bytes(config.udp.receive_buffer),
        send_buffer_bytes: SocketSettings::SEND_BUFFER_BYTES,
    };
    config.udp.listen.iter().map(socket).collect()
}

/// Returns the addresses of all listeners, in the order of their numbers.
pub(crate) fn listen_addresses(config: &Config) -> Vec<ListenAddress> {
    shoal_session::listeners(config).map(|(listen, _)| listen.address.clone()).collect()
}

/// Returns the limits of a worker's connections. All workers together may have `connections_max`.
pub(crate) fn stream_limits(config: &Config, connections_max: u64) -> StreamLimits {
    let share = connections_max.div_ceil(workers(config).get() as u64).max(1);
    let connections_max = usize::try_from(share).unwrap_or(usize::MAX);
    let ms = |seconds: u32| u64::from(seconds) * 1000;
    StreamLimits {
        connections_max,
        per_source: SourceLimits {
            http_max: config.http.connections_per_source_max as usize,
            websockets_max: config.webtorrent.connections_per_source_max as usize,
        },
        idle_ms_max: ms(config.http.idle_timeout_s),
        request_ms_max: ms(config.http.request_timeout_s),
        send_ms_max: ms(config.http.send_timeout_s),
        answer_ms_max: ms(config.http.full_scrape_timeout_s),
        silent_ms_max: ms(config.webtorrent.ping_interval_s),
    }
}

/// Returns the key of connection ids: the operator's, or else the key of the state.
pub(crate) fn connection_key(config: &Config, keys: &StateKeys) -> ConnectionKey {
    ConnectionKey::new(config.connection_id.key.0.unwrap_or_else(|| keys.connections()))
}

/// Returns the limits of the WebTorrent swarms, which may take `memory_bytes_max`.
pub(crate) fn swarms(
    config: &Config,
    memory_bytes_max: u64,
    holdings: Option<Arc<Holdings>>,
    keys: &StateKeys,
) -> shoal_relay::Settings {
    let peers_max = match config.webtorrent.peers_max {
        Auto::Auto => memory_bytes_max / PEER_BYTES,
        Auto::Set(peers_max) => peers_max.into(),
    };
    shoal_relay::Settings {
        peers_max,
        memory_bytes_max,
        relay_rate_max: u32::try_from(config.webtorrent.relay_rate_max.0).unwrap_or(u32::MAX),
        swarm_share_max: config.limits.swarm_share_max,
        holdings,
        peer_lifetime_s: config.webtorrent.peer_timeout_s,
        hash_key: keys.relay(),
    }
}

/// Completed downloads are retained for a year. Their maximum number bounds the memory.
const COMPLETED_RETAINED_HOURS: u16 = 365 * 24;

/// Applies the keys of the store that a reload changes: at the start, and at each reload.
pub(crate) fn apply_to_store(store: &Store, config: &Config) {
    store.retain_completed(config.store.completed_retained_max, COMPLETED_RETAINED_HOURS);
}

pub(crate) const fn holding_limits(config: &Config) -> HoldingLimits {
    HoldingLimits {
        peers_max: config.limits.peers_per_source_max,
        torrents_max: config.limits.torrents_per_source_max,
    }
}

/// Returns the counts of each source's peers and torrents in all swarms, if these are limited, in a process that may take
/// `memory_bytes_max`.
pub(crate) fn holdings(config: &Config, memory_bytes_max: u64, keys: &StateKeys) -> Option<Arc<Holdings>> {
    Holdings::within(holding_limits(config), memory_bytes_max, keys.holdings()).map(Arc::new)
}

/// Returns the memory of the bans that sources earn, in a process that may take `memory_bytes_max`: of all that are
/// configured, or a 32nd of the process if that is less.
pub(crate) fn bans_bytes(config: &Config, memory_bytes_max: u64) -> u64 {
    const PART: u64 = 32;
    (u64::from(config.bans.sources_max) * EARNED_BAN_BYTES).min(memory_bytes_max / PART)
}

/// Returns the memory of the rings of the access log: one for each protocol and worker.
pub(crate) fn access_log_bytes(config: &Config) -> u64 {
    if config.log.access == AccessLogTarget::Off {
        return 0;
    }
    let rings = Protocol::ALL.len() * workers(config).get();
    (rings * shoal_engine::access_log::RING_BYTES) as u64
}

/// Returns the memory of a cluster node: its workers' rings, and the node itself.
pub(crate) fn cluster_bytes(config: &Config) -> u64 {
    if !config.is_node() {
        return 0;
    }
    let of_worker = 2 * replication::RING_BYTES + replication::PRESENCE_RING_BYTES;
    let rings = Protocol::ALL.len() * workers(config).get();
    // Sorting takes as much memory again.
    let of_credit = 2 * rings * shoal_engine::credit::RING_BYTES;
    let of_credit = if config.cluster.credit_stream.is_some() { of_credit } else { 0 };
    (of_worker * workers(config).get() + of_credit + cluster::bytes(config)) as u64
}

/// Maximum number of signatures that a worker verifies each second. One takes 20 to 100 µs, so they take a third of a
/// processor at most. Beyond the limit, clients with new tokens are told to try again later. Tokens in the cache need
/// no verification.
const SIGNATURES_PER_S: u32 = 3000;

/// Returns the policy of a configuration, with the keys of tokens, if any. Takes over the recent activity of sources
/// and the verified tokens of the `running` policy. The process may take `memory_bytes_max`.
pub(crate) fn policy(
    config: Config,
    keys: Option<KeySet>,
    running: Option<&Policy>,
    memory_bytes_max: u64,
) -> anyhow::Result<Policy> {
    if !needs_sources(&config) {
        return Ok(Policy::new(config));
    }
    let sources = match running.and_then(Policy::sources) {
        Some(sources) => Arc::clone(sources),
        None => Arc::new(SourceRates::with_bytes(random::words()?, Limits::bytes(memory_bytes_max))),
    };
    let limits = Limits::of(&config.limits, &sources);
    let tokens = match keys {
        Some(keys) => {
            let memory = token_memory(running)?;
            let workers = u32::try_from(workers(&config).get()).unwrap_or(u32::MAX);
            let signatures_per_s = SIGNATURES_PER_S.saturating_mul(workers);
            Some(Tokens::new(&config.tokens, keys, signatures_per_s, memory, Arc::clone(&sources)))
        }
        None => None,
    };
    let watch = Watch::of(&config, &sources);
    Ok(Policy::new(config).with_limits(limits).with_tokens(tokens).with_watch(watch))
}

/// Returns whether the policy of a configuration remembers what sources do.
fn needs_sources(config: &Config) -> bool {
    Limits::are_set(&config.limits) || config.tokens.jwks.is_some()
}

/// Memory for recently verified tokens, whose signatures are not verified again. Each token takes 32 bytes, or 32 for
/// each of its torrents. Twice the memory of all tokens in use suffices, so this suits half a million users.
const TOKENS_BYTES: u64 = 32 << 20;

/// Returns the memory of tokens. Reuses the memory of the `running` policy, if it has some.
fn token_memory(running: Option<&Policy>) -> anyhow::Result<Arc<TokenMemory>> {
    Ok(match running.and_then(Policy::tokens) {
        Some(tokens) => Arc::clone(tokens.memory()),
        None => {
            let bytes = usize::try_from(TOKENS_BYTES).unwrap_or(usize::MAX);
            Arc::new(TokenMemory::new(shoal_access::token::HashKey::new(&random::bytes()?), bytes))
        }
    })
}

/// Returns the memory for the recent activity of sources in a process that may take `memory_bytes_max`.
pub(crate) const fn limits_bytes(memory_bytes_max: u64) -> u64 {
    Limits::bytes(memory_bytes_max) as u64
}

/// Returns the memory that the policy of a configuration needs for sources and tokens.
pub(crate) fn policy_bytes(config: &Config, memory_bytes_max: u64) -> u64 {
    let sources = if needs_sources(config) { limits_bytes(memory_bytes_max) } else { 0 };
    let tokens = if config.tokens.jwks.is_some() { TOKENS_BYTES } else { 0 };
    sources + tokens
}

/// Returns the policy's memory if a configuration needs all of it.
pub(crate) const fn policy_bytes_max(memory_bytes_max: u64) -> u64 {
    limits_bytes(memory_bytes_max) + TOKENS_BYTES
}

pub(crate) fn store(
    config: &Config,
    memory_bytes_max: u64,
    holdings: Option<Arc<Holdings>>,
    keys: &StateKeys,
) -> shoal_store::Settings {
    shoal_store::Settings {
        memory_bytes_max,
        peer_timeout_s: config.announce.peer_timeout_s,
        peers_per_source_max: config.announce.peers_per_address_max,
        swarm_share_max: config.limits.swarm_share_max,
        holdings,
        hash_key: keys.store(),
    }
}

/// Returns the number of shards of a family in a store with this ceiling. With four shards for each worker, a worker
/// seldom finds a shard locked. More shards would leave more pages of memory partly filled, and fewer requests of a
/// batch would share a lock.
pub(crate) fn shards(workers: NonZeroUsize, memory_bytes_max: u64) -> usize {
    const SHARDS_MIN: usize = 8;
    const SHARDS_PER_WORKER: usize = 4;
    /// Each shard reserves up to four pages of each family: a thirty-second of a part of this size.
    const BYTES_MIN: u64 = 2 << 20;
    let affordable = usize::try_from(memory_bytes_max / BYTES_MIN).unwrap_or(usize::MAX);
    let wanted = workers.get().saturating_mul(SHARDS_PER_WORKER).min(affordable);
    wanted.clamp(SHARDS_MIN, shoal_store::SHARDS_MAX)
}

pub(crate) fn list_key() -> anyhow::Result<HashKey> {
    random::words().map(HashKey::new)
}

fn bytes(size: shoal_config::ByteSize) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_unless_set() {
        let mut config = Config::default();
        let [keys, others] = [StateKeys::random().unwrap(), StateKeys::random().unwrap()];
        assert_ne!(connection_key(&config, &keys), connection_key(&config, &others));
        config.connection_id.key = shoal_config::SecretKey(Some([7; 16]));
        assert_eq!(connection_key(&config, &keys), ConnectionKey::new([7; 16]));
        let hash_key = |keys| store(&config, 1 << 20, None, keys).hash_key;
        assert_ne!(hash_key(&keys), hash_key(&others));
    }
}
