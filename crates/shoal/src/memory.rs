//! How the memory of the process is divided, based on the configuration or on the memory of the machine.
//!
//! This module owns the division: one ceiling for the whole process, and the part of each consumer. Others enforce
//! the parts: the store by its arena, the WebTorrent swarms by a number of peers, and each worker for its connections
//! and queues. This module must not allocate the parts itself.
//!
//! `memory.max` is the sum of
//! - a fixed part: [`PROGRAM_BYTES`], [`WORKER_BYTES`] for each worker, the bans that sources earn, as far as they take
//!   more than [`PROGRAM_BANS_BYTES`], and, if they are set, the limits of sources,
//!   the cache of tokens, the rings of the access log, the rings, messages and shared state of a cluster node, and
//!   the frames of an XDP data path. A reload can set some of these, but only within the memory reserved at start.
//!   That is enough for all of them if it is a small part of the whole;
//! - the feed of changed torrents, up to a small part of the whole; with less memory, it remembers fewer changes;
//! - the lists of torrents and networks: a quarter if some are configured, or else a 32nd, so that a reload can add a
//!   small list. They take less if the other parts would not get their minimum;
//! - the store, with a tenth of its part reserved for its lists on the heap (`shoal_store::Settings`);
//! - the swarms of WebTorrent;
//! - the memory of connections, with a fifth of it reserved for the overhead of the allocator;
//! - queues: the messages that one poll round of a worker collects for its connections and for other workers.
//!
//! The accounts can be wrong: the allocator adds overhead, and memory is fragmented. The memory thread sees the
//! difference in the resident memory, and lowers the budgets of the workers.

pub(crate) mod allocator;
pub(crate) mod thread;

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use shoal_config::{AccessConfig, Auto, ByteSize, Config};
use shoal_relay::Swarms;
use shoal_store::Store;

use crate::settings;
use shoal_runtime::division::Division;
use shoal_runtime::machine;

/// The ceiling if the memory of the machine cannot be determined.
const FALLBACK: ByteSize = ByteSize::gib(1);

/// The memory of the program itself: touched code and read-only data, the control listener, the log,
/// certificates, tables of sources. 6 MiB were measured when idle.
const PROGRAM_BYTES: u64 = 16 << 20;

/// The part of it for bans that sources earn: all of them if the ceiling is 128 MiB or less.
const PROGRAM_BANS_BYTES: u64 = 4 << 20;

/// The memory of a worker itself: its stack, and the receive buffers and texts of its back ends. Up to 3 MiB were
/// measured with io_uring, 1 MiB without.
const WORKER_BYTES: u64 = 4 << 20;

/// Memory for settings that a reload can add is reserved if it is at most this part of the ceiling.
const RESERVED_PART: u64 = 26;

/// The feed of changes takes at most this part of the ceiling.
const FEED_PART: u64 = 32;

/// The lists take at most this part of the ceiling if some are configured, and the smaller part below otherwise.
const LISTS_PART: u64 = 4;
const NO_LISTS_PART: u64 = 32;

/// Maximum memory of one change in the feed.
const CHANGE_BYTES: u64 = 51;

/// Number of changed torrents that the feed remembers: some seconds of changes on the largest trackers. The feed
/// takes memory only while it has a reader.
const CHANGES_MAX: u64 = 262_144;

/// With less memory, the feed remembers this many changes. No memory is reserved for them.
const CHANGES_MIN: u64 = 4096;

/// The smallest useful parts: the store's as a ceiling, the others' for each worker.
const STORE_BYTES_MIN: u64 = 8 << 20;
const CONNECTIONS_BYTES_MIN: u64 = 1 << 20;

// The connections of a worker may hold two of the longest messages of WebTorrent.
const _: () = assert!(CONNECTIONS_BYTES_MIN / 5 * 4 / 2 >= shoal_session::MESSAGE_BYTES_MAX as u64);
const QUEUES_BYTES_MIN: u64 = 1 << 20;
const SWARMS_BYTES_MIN: u64 = 1 << 19;

/// The maximum that a worker can use for queues: a poll round never collects more.
const QUEUES_BYTES_MAX: u64 = 192 << 20;

/// The keys that determine the division, and values that other keys imply.
struct DivisionInput {
    max: Auto<ByteSize>,
    store: Auto<ByteSize>,
    workers: u64,
    /// The memory of the policy at start: requests of sources, and verified tokens.
    policy: u64,
    /// The memory of the limits on requests, if a reload adds the first one.
    limits_max: u64,
    /// The policy's memory if a reload adds every such setting, with the sizes of the start.
    policy_max: u64,
    /// The memory of the limits on peers and torrents.
    holdings: u64,
    /// The memory of the bans that sources earn, beyond the part of the program.
    bans: u64,
    access_log: u64,
    cluster: u64,
    data_path: u64,
    has_lists: bool,
    /// Maximum memory of the swarms of WebTorrent; `Set(0)` if it is not served.
    swarms: Auto<u64>,
    has_webtorrent: bool,
}

/// Divides the memory that the operator allows. Without a setting, this is three quarters of the memory that `root`
/// reports (the root directory, in production). The last quarter is left for the kernel's socket buffers and the rest
/// of the machine. The frames of the XDP data path take `data_path_bytes`. The error says which keys are invalid, and
/// the values that would be accepted.
pub(crate) fn divide(
    config: &Config,
    workers: NonZeroUsize,
    data_path_bytes: u64,
    root: &Path,
) -> Result<Division, String> {
    let webtorrent = &config.webtorrent;
    // The tables of limits are smaller in a small process.
    let within = |max: u64| DivisionInput {
        max: config.memory.max,
        store: config.store.memory_max,
        workers: workers.get() as u64,
        policy: settings::policy_bytes(config, max),
        limits_max: settings::limits_bytes(max),
        policy_max: settings::policy_bytes_max(max),
        holdings: settings::holding_limits(config).bytes(max) as u64,
        bans: settings::bans_bytes(config, max).saturating_sub(PROGRAM_BANS_BYTES),
        access_log: settings::access_log_bytes(config),
        cluster: settings::cluster_bytes(config),
        data_path: data_path_bytes,
        has_lists: has_lists(&config.access),
        swarms: match webtorrent.peers_max {
            _ if !webtorrent.enabled => Auto::Set(0),
            Auto::Auto => Auto::Auto,
            Auto::Set(peers_max) => Auto::Set(u64::from(peers_max) * shoal_relay::PEER_BYTES_MAX),
        },
        has_webtorrent: webtorrent.enabled,
    };
    let (max, because) = within(u64::MAX).ceiling(root);
    let input = within(max);
    if max < input.least_without_store() {
        return Err(input.refuse_max(max, &because, least(within)));
    }
    input.divide(max, because)
}

/// Returns a ceiling that the input accepts, like every larger one, in whole mebibytes.
fn least(within: impl Fn(u64) -> DivisionInput) -> u64 {
    // A larger ceiling makes tables larger in steps, at powers of two.
    let steps = (20..=31).map(|bits| 1 << bits);
    steps.fold(0, |least: u64, step| {
        let mut least = if within(step).least_bytes() > step { step.max(least) } else { least };
        while within(least).least_bytes() > least {
            least = within(least).least_bytes().next_multiple_of(1 << 20);
        }
        least
    })
}

impl DivisionInput {
    /// Divides a ceiling of at least [`least_without_store`](Self::least_without_store).
    fn divide(&self, max: u64, because: String) -> Result<Division, String> {
        let policy = self.policy_bytes(max);
        let (changes_max, feed) = self.feed(max, policy);
        let fixed = self.fixed_bytes() - self.policy + policy + feed;
        let lists = self.lists(max, max - fixed);
        let rest = max - fixed - lists;
        let store = match self.store {
            Auto::Set(store) => store.0,
            Auto::Auto => {
                let others_bytes_max = rest - with_lists(STORE_BYTES_MIN);
                let Others { swarms, connections, queues } =
                    self.others((rest / 2).max(self.others_min()).min(others_bytes_max));
                without_lists(rest - swarms - connections - queues)
            }
        };
        let Some(left) = rest.checked_sub(with_lists(store)).filter(|left| *left >= self.others_min()) else {
            let most = without_lists(rest - self.others_min());
            return Err(format!(
                "store.memory_max = {}: that leaves too little of memory.max ({}) for everything else; it accepts at \
                 most {}, or \"auto\"",
                ByteSize::mib(store >> 20),
                ByteSize::mib(max >> 20),
                ByteSize::mib(most >> 20)
            ));
        };
        let Others { swarms, connections, queues } = self.others(left);
        let changes_max = as_usize(changes_max);
        let division =
            Division { max, because, fixed, policy, changes_max, lists, store, swarms, connections, queues };
        Ok(division)
    }

    /// Returns the ceiling and its reason.
    fn ceiling(&self, root: &Path) -> (u64, String) {
        if let Auto::Set(max) = self.max {
            return (max.0, "memory.max".to_owned());
        }
        let limits = [
            machine::memory_bytes(root).map(|bytes| (bytes, "the memory of this machine")),
            machine::cgroup_bytes(root, "self").map(|bytes| (bytes, "the memory limit of the cgroup")),
        ];
        let (max, because) = match limits.into_iter().flatten().min() {
            Some((bytes, whose)) => (bytes / 4 * 3, format!("three quarters of {whose}")),
            None => (FALLBACK.0, "/proc/meminfo cannot be read".to_owned()),
        };
        // If the operator has set a part, the ceiling follows from that part.
        let least = self.least_bytes();
        if max < least && (self.store != Auto::Auto || self.swarms != Auto::Auto) {
            return (least, "the minimum for this store.memory_max and webtorrent.peers_max".to_owned());
        }
        (max, because)
    }

    /// Returns the memory reserved for the policy: its maximum, unless the ceiling is too low.
    fn policy_bytes(&self, max: u64) -> u64 {
        let reserve = [self.policy_max, self.limits_max];
        let is_affordable = |reserve: &u64| {
            max / RESERVED_PART >= *reserve && max - *reserve >= self.least_bytes() - self.policy
        };
        reserve.into_iter().find(is_affordable).unwrap_or(0).max(self.policy)
    }

    /// Returns how many changes the feed may remember, and the memory reserved for them.
    fn feed(&self, max: u64, policy: u64) -> (u64, u64) {
        let workers = NonZeroUsize::new(as_usize(self.workers)).unwrap_or(NonZeroUsize::MIN);
        let watch = Store::watch_bytes(settings::shards(workers, u64::MAX)) + Swarms::watch_bytes();
        let left = max.saturating_sub(self.least_bytes() - self.policy + policy);
        let affordable = (max / FEED_PART).min(left).saturating_sub(watch as u64) / CHANGE_BYTES;
        if affordable < CHANGES_MIN {
            return (CHANGES_MIN, 0);
        }
        let changes_max = affordable.min(CHANGES_MAX);
        (changes_max, watch as u64 + changes_max * CHANGE_BYTES)
    }

    /// Returns the part of lists, if the fixed part leaves `rest`.
    fn lists(&self, max: u64, rest: u64) -> u64 {
        let part = max / if self.has_lists { LISTS_PART } else { NO_LISTS_PART };
        let least_without_fixed = self.least_bytes() - self.fixed_bytes();
        part.min(rest.saturating_sub(least_without_fixed) / 2)
    }

    const fn fixed_bytes(&self) -> u64 {
        PROGRAM_BYTES
            + self.workers * WORKER_BYTES
            + self.policy
            + self.holdings
            + self.bans
            + self.access_log
            + self.cluster
            + self.data_path
    }

    /// Returns the minimum of everything except the store and the fixed part.
    fn others_min(&self) -> u64 {
        let queues = if self.has_webtorrent { QUEUES_BYTES_MIN } else { 0 };
        let swarms = match self.swarms {
            Auto::Auto => SWARMS_BYTES_MIN,
            Auto::Set(bytes) => bytes,
        };
        swarms + self.workers * (CONNECTIONS_BYTES_MIN + queues)
    }

    /// Returns the minimum ceiling for these keys, whatever the maximum of the store.
    fn least_without_store(&self) -> u64 {
        self.fixed_bytes() + with_lists(STORE_BYTES_MIN) + self.others_min()
    }

    /// Returns the minimum ceiling for these keys.
    fn least_bytes(&self) -> u64 {
        let store = match self.store {
            Auto::Auto => STORE_BYTES_MIN,
            Auto::Set(store) => store.0,
        };
        self.fixed_bytes() + with_lists(store) + self.others_min()
    }

    /// Divides the memory that the store leaves. Each part gets its minimum. Of the rest, connections get half, and
    /// swarms and queues a quarter each. Memory that queues cannot use stays free.
    fn others(&self, bytes: u64) -> Others {
        let extra = bytes.saturating_sub(self.others_min());
        let (extra, swarms) = match self.swarms {
            Auto::Auto => (extra / 4 * 3, SWARMS_BYTES_MIN + extra / 4),
            Auto::Set(bytes) => (extra, bytes),
        };
        let queues = if self.has_webtorrent {
            self.workers * (QUEUES_BYTES_MIN + (extra / 3 / self.workers).min(QUEUES_BYTES_MAX))
        } else {
            0
        };
        Others { swarms, queues, connections: self.workers * CONNECTIONS_BYTES_MIN + extra / 3 * 2 }
    }

    fn refuse_max(&self, max: u64, because: &str, least: u64) -> String {
        let least = ByteSize::mib(least.div_ceil(1 << 20));
        let (max, workers) = (ByteSize::mib(max >> 20), self.workers);
        format!(
            "memory.max = {max} ({because}): that is too little for {workers} workers and the other settings; it \
             accepts {least} or more. Fewer workers (workers.count) take {} less each",
            ByteSize::mib((WORKER_BYTES + CONNECTIONS_BYTES_MIN + QUEUES_BYTES_MIN) >> 20)
        )
    }
}

fn has_lists(access: &AccessConfig) -> bool {
    [&access.torrents_allow, &access.torrents_deny, &access.networks_allow, &access.networks_deny]
        .into_iter()
        .chain([&access.geoip])
        .any(|list| !list.is_empty())
}

struct Others {
    swarms: u64,
    connections: u64,
    queues: u64,
}

/// Returns the memory of a store with this ceiling, including its lists.
const fn with_lists(store: u64) -> u64 {
    store + store / 10
}

/// Returns the ceiling of a store that takes this much memory including its lists.
const fn without_lists(bytes: u64) -> u64 {
    bytes / 11 * 10
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the NUMA nodes with memory, as a bit for each of the first 64. Returns 0 if the kernel does not know.
pub(crate) fn nodes(root: &Path) -> u64 {
    let list = fs::read_to_string(root.join("sys/devices/system/node/has_memory")).unwrap_or_default();
    let mut nodes = 0_u64;
    // The list is one of numbers and ranges, such as "0-1,4".
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            (first..=last.min(u64::BITS - 1)).for_each(|node| nodes |= 1 << node);
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    /// Creates a machine with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       2097152 kB\nMemFree:  17 kB\n");

    /// Returns the division on a machine with this configuration.
    fn divided(root: &tempfile::TempDir, workers: usize, keys: &[(&str, &str)]) -> Result<Division, String> {
        let variables = keys.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let config = shoal_config::read(None, variables).unwrap();
        divide(&config, NonZeroUsize::new(workers).unwrap(), 0, root.path())
    }

    /// Returns the sum of all parts.
    fn sum(division: &Division) -> u64 {
        let Division { fixed, lists, store, swarms, connections, queues, .. } = division;
        fixed + lists + with_lists(*store) + swarms + connections + queues
    }

    #[test]
    fn the_parts_fit_the_whole_at_every_size() {
        let root = machine(&[MEMINFO]);
        for workers in [1, 2, 8, 64] {
            for max_mib in [24, 32, 64, 100, 256, 1024, 20_000] {
                let max = format!("{max_mib}MiB");
                for webtorrent in ["true", "false"] {
                    let keys = [("SHOAL_MEMORY_MAX", &*max), ("SHOAL_WEBTORRENT_ENABLED", webtorrent)];
                    match divided(&root, workers, &keys) {
                        Ok(division) => {
                            assert!(sum(&division) <= max_mib << 20, "{workers} {division:?}");
                            assert!(division.store >= STORE_BYTES_MIN / 11 * 10, "{workers} {division:?}");
                        }
                        Err(refusal) => assert!(refusal.contains("memory.max"), "{refusal}"),
                    }
                }
            }
        }
    }

    #[test]
    fn sixty_four_mib_are_enough_for_two_workers_and_not_for_sixteen() {
        let root = machine(&[MEMINFO]);
        let division = divided(&root, 2, &[("SHOAL_MEMORY_MAX", "64MiB")]).unwrap();
        assert!(division.store >= 15 << 20 && division.connections >= 8 << 20, "{division:?}");
        let refusal = divided(&root, 16, &[("SHOAL_MEMORY_MAX", "64MiB")]).unwrap_err();
        assert!(refusal.starts_with("memory.max = 64MiB (memory.max): that is too little for 16 workers"));
        assert!(refusal.contains("it accepts 129MiB or more"), "{refusal}");
        assert!(divided(&root, 16, &[("SHOAL_MEMORY_MAX", "129MiB")]).is_ok());
    }

    #[test]
    fn lists_have_a_part_and_leave_the_others_their_minimum() {
        let root = machine(&[MEMINFO]);
        let lists = |keys: &[(&str, &str)]| divided(&root, 2, keys).unwrap().lists;
        let deny = ("SHOAL_ACCESS_NETWORKS_DENY", "/a");
        assert_eq!(lists(&[("SHOAL_MEMORY_MAX", "1GiB")]), 32 << 20);
        assert_eq!(lists(&[("SHOAL_MEMORY_MAX", "1GiB"), deny]), 256 << 20);
        let little = lists(&[("SHOAL_MEMORY_MAX", "64MiB"), deny]);
        assert!((8 << 20..=16 << 20).contains(&little), "{little}");
        let least = ("SHOAL_STORE_MEMORY_MAX", "82MiB");
        assert!(lists(&[("SHOAL_MEMORY_MAX", "128MiB"), least, deny]) <= 8 << 20);
    }

    #[test]
    #[cfg(feature = "cluster")]
    fn a_node_of_a_cluster_has_a_part_for_what_it_shares() {
        let root = machine(&[MEMINFO]);
        let fixed = |shares: &str| {
            let servers = ("SHOAL_CLUSTER_SERVERS", "nats://127.0.0.1:4222");
            let keys = [servers, ("SHOAL_CLUSTER_SHARED_STATE", shares), ("SHOAL_MEMORY_MAX", "1GiB")];
            divided(&root, 2, &keys).unwrap().fixed
        };
        assert_eq!(fixed("true") - fixed("false"), shoal_cluster::shared::BYTES_MAX as u64);
        let alone = divided(&root, 2, &[("SHOAL_MEMORY_MAX", "1GiB")]).unwrap().fixed;
        assert!((60 << 20..80 << 20).contains(&(fixed("false") - alone)), "{} {alone}", fixed("false"));
    }

    #[test]
    fn frames_of_the_data_path_are_within_the_whole() {
        let root = machine(&[MEMINFO]);
        let config = shoal_config::read(None, [("SHOAL_MEMORY_MAX".into(), "256MiB".into())]).unwrap();
        let with_frames = |bytes| divide(&config, NonZeroUsize::MIN, bytes, root.path()).unwrap();
        let (without, with) = (with_frames(0), with_frames(64 << 20));
        assert_eq!(with.fixed - without.fixed, 64 << 20);
        assert!(with.store < without.store && sum(&with) <= 256 << 20, "{without:?} {with:?}");
    }

    #[test]
    fn bans_that_sources_earn_have_a_part() {
        let root = machine(&[MEMINFO]);
        let fixed = |max: &str, sources_max: &str| {
            let keys = [("SHOAL_MEMORY_MAX", max), ("SHOAL_BANS_SOURCES_MAX", sources_max)];
            divided(&root, 2, &keys).unwrap().fixed
        };
        assert_eq!(fixed("1GiB", "65536") - fixed("1GiB", "1"), 28 << 20);
        assert_eq!(fixed("1GiB", "1000000"), fixed("1GiB", "65536"));
        assert_eq!(fixed("128MiB", "65536"), fixed("128MiB", "1"));
    }

    #[test]
    fn the_feed_remembers_fewer_changes_with_little_memory() {
        let root = machine(&[MEMINFO]);
        let changes_max = |max| divided(&root, 2, &[("SHOAL_MEMORY_MAX", max)]).unwrap().changes_max;
        assert_eq!(changes_max("64MiB"), 4096);
        assert_eq!(changes_max("2GiB"), 262_144);
        assert!((10_000..262_144).contains(&changes_max("256MiB")));
    }

    #[test]
    fn a_store_that_leaves_too_little_is_refused_with_what_would_do() {
        let root = machine(&[MEMINFO]);
        let keys = |store| [("SHOAL_MEMORY_MAX", "128MiB"), ("SHOAL_STORE_MEMORY_MAX", store)];
        let refusal = divided(&root, 2, &keys("127MiB")).unwrap_err();
        assert!(refusal.starts_with("store.memory_max = 127MiB"), "{refusal}");
        let refusal = divided(&root, 2, &keys("120MiB")).unwrap_err();
        assert!(refusal.contains("it accepts"), "{refusal}");
        assert_eq!(divided(&root, 2, &keys("64MiB")).unwrap().store, 64 << 20);
    }

    #[test]
    fn three_quarters_of_the_machine_are_the_default() {
        let division = divided(&machine(&[MEMINFO]), 2, &[]).unwrap();
        assert_eq!(division.max, 3 << 29);
        assert_eq!(division.because, "three quarters of the memory of this machine");
    }

    #[test]
    fn a_store_that_was_chosen_raises_the_default() {
        let division = divided(&machine(&[MEMINFO]), 2, &[("SHOAL_STORE_MEMORY_MAX", "4GiB")]).unwrap();
        assert_eq!(division.store, 4 << 30);
        assert!(division.max > 4 << 30);
    }

    #[test]
    fn the_lowest_limit_of_the_cgroups_counts() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/system.slice/shoal.service\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "268435456\n"),
            ("sys/fs/cgroup/system.slice/shoal.service/memory.max", "max\n"),
        ]);
        let division = divided(&root, 2, &[]).unwrap();
        assert_eq!(division.max, 192 << 20);
        assert_eq!(division.because, "three quarters of the memory limit of the cgroup");
    }

    #[test]
    fn cgroups_of_version_1_count_too() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "104857600\n"),
        ]);
        assert_eq!(divided(&root, 2, &[]).unwrap().max, 75 << 20);
    }

    #[test]
    fn a_machine_that_tells_nothing_gets_the_fallback() {
        assert_eq!(divided(&machine(&[]), 2, &[]).unwrap().max, FALLBACK.0);
    }

    #[test]
    fn nodes_are_read_from_numbers_and_ranges() {
        let of = |list| nodes(machine(&[("sys/devices/system/node/has_memory", list)]).path());
        assert_eq!(of("0\n"), 1);
        assert_eq!(of("0-3\n"), 0b1111);
        assert_eq!(of("0,2-3,63,64-70\n"), 0b1101 | 1 << 63);
        assert_eq!(of("\n"), 0);
        assert_eq!(nodes(machine(&[]).path()), 0);
    }
}
