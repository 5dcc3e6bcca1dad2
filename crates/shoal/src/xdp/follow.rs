//! Keeps the programs in step with the tracker: keys and their time slots, lists of networks, limits, and the addresses of this
//! host.
//!
//! One thread does all of it, several times a second. A program takes the next time slot by itself, and leaves connect requests to the
//! workers if this thread is late for longer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shoal_access::networks::{NetworkTable, prefixes};
use shoal_config::LimitsConfig;
use shoal_engine::connection_id::{ConnectionIds, SharedIds, slot_at};
use shoal_engine::counter::{Counters, Family, Tally};
use shoal_engine::limits;
use shoal_xdp::interface::local_addresses;
use shoal_xdp::program::{Counts, Ids, Link, Maps, Network, NetworkRule, Program, Rate, Settings};

use super::handed::mode_name;
use super::{Attached, Attachment, DataPath};
use crate::periodic::PeriodicThread;
use crate::published::Published;
use crate::reload::Live;
use crate::{clock, settings};

/// The period of the thread. Bans and lists hold in the driver after this time.
const PERIOD: Duration = Duration::from_millis(250);

/// Periods between two looks at the addresses of this host.
const ADDRESS_PERIODS: u64 = 8;

const NS_PER_S: u64 = 1_000_000_000;

/// The figures of the data path, which are read while the tracker runs.
#[derive(Debug)]
pub(crate) struct DataPathStats {
    interfaces: Vec<Arc<Mutex<Followed>>>,
    /// The connect requests that the programs have answered, as far as the thread has seen them.
    connects: Arc<Counters>,
}

/// The work of the program of an interface.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceStats {
    pub(crate) name: String,
    /// `native` or `generic`; `None` if the program is attached no more.
    pub(crate) mode: Option<&'static str>,
    pub(crate) counts: Counts,
}

/// An interface with its program.
#[derive(Debug)]
struct Followed {
    name: String,
    maps: Maps,
    /// The program, which must stay loaded until its place was taken.
    program: Program,
    /// None once it is detached for good.
    link: Option<Attachment>,
    /// Whether the interface still has the program.
    is_attached: bool,
    counts: Counts,
    /// The text of the last error, which is not logged again.
    failure: Option<String>,
}

/// The thread that follows. The programs are detached when this is dropped.
pub(crate) struct DataPathThread {
    thread: PeriodicThread,
    stats: Arc<DataPathStats>,
}

/// The work of the thread.
#[derive(Debug)]
struct Follower {
    interfaces: Vec<Arc<Mutex<Followed>>>,
    live: Arc<Published<Live>>,
    /// The values that the programs were told last.
    told: Option<Arc<Live>>,
    ids: ConnectionIds,
    /// The secret of the buckets of sources.
    bucket_key: [u64; 2],
    tally: Tally,
    periods: u64,
    addresses: BTreeSet<SocketAddr>,
}

impl DataPath {
    /// Begins to follow, on a thread of its own, and with it the service of the programs, if there are any.
    ///
    /// # Errors
    /// Fails if the kernel provides no more threads or no random numbers.
    pub(crate) fn follow(self, live: &Arc<Published<Live>>) -> anyhow::Result<Option<DataPathThread>> {
        if self.interfaces.is_empty() {
            return Ok(None);
        }
        let follow = |attached: Attached| {
            let Attached { interface, program, maps, link, .. } = attached;
            Arc::new(Mutex::new(Followed {
                name: interface.name,
                maps,
                program,
                link: Some(link),
                is_attached: true,
                counts: Counts::default(),
                failure: None,
            }))
        };
        let interfaces: Vec<_> = self.interfaces.into_iter().map(follow).collect();
        let (tally, latest) = (Tally::default(), live.latest());
        let stats = DataPathStats { interfaces: interfaces.clone(), connects: tally.counters() };
        let [first, second, ..] = settings::random_words()?;
        let mut follower = Follower {
            interfaces,
            live: Arc::clone(live),
            told: None,
            ids: ConnectionIds::new(&latest.connection_key, latest.policy.config().connection_id.grace_s),
            bucket_key: [first, second],
            tally,
            periods: 0,
            addresses: BTreeSet::new(),
        };
        let thread = PeriodicThread::start("data-path", PERIOD, move || follower.run())?;
        Ok(Some(DataPathThread { thread, stats: Arc::new(stats) }))
    }
}

impl DataPathThread {
    /// Returns what is read of the data path.
    pub(crate) fn stats(&self) -> Arc<DataPathStats> {
        Arc::clone(&self.stats)
    }

    /// Waits until the thread fails, and returns the reason.
    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        self.thread.failure().await
    }
}

impl Drop for DataPathThread {
    fn drop(&mut self) {
        for interface in &self.stats.interfaces {
            lock(interface).link = None;
        }
    }
}

impl DataPathStats {
    /// Returns the connect requests that the programs have answered.
    pub(crate) fn connects(&self) -> &Counters {
        &self.connects
    }

    /// Returns what each program did.
    pub(crate) fn interfaces(&self) -> Vec<InterfaceStats> {
        let read = |followed: &Arc<Mutex<Followed>>| {
            let followed = lock(followed);
            let link = followed.link.as_ref().filter(|_| followed.is_attached);
            let mode = link.map(Attachment::mode_name);
            // A kernel that does not tell them now has told them before.
            let counts = followed.maps.counts().unwrap_or(followed.counts);
            InterfaceStats { name: followed.name.clone(), mode, counts }
        };
        self.interfaces.iter().map(read).collect()
    }
}

impl Follower {
    fn run(&mut self) {
        let live = self.live.latest();
        let is_new = !self.told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &live));
        let now = (clock::unix_s(), clock::monotonic_ms());
        if is_new {
            let config = live.policy.config();
            self.ids.set_grace_s(config.connection_id.grace_s);
            self.ids.replace_key(&live.connection_key, now.0);
        }
        let (slot, end_s) = slot_at(now.0);
        let slot_end_ns = monotonic_ns_at(end_s, now);
        let addresses = self.local_endpoints(&live, is_new);
        let program_settings = Settings {
            ids: Some(ids(&self.ids.share(), now)),
            bucket_key: self.bucket_key,
            ..rates(&live.policy.config().limits)
        };
        let networks = is_new.then(|| networks(&live));
        for interface in &self.interfaces {
            let mut followed = lock(interface);
            followed.maps.set_slot(slot, slot_end_ns);
            if is_new {
                followed.maps.set_settings(&program_settings);
            }
            let outcome = followed.update(addresses.as_ref(), networks.as_deref());
            followed.report(outcome);
            followed.count(&mut self.tally);
        }
        if let Some(addresses) = addresses {
            self.addresses = addresses;
        }
        self.told = Some(live);
        self.periods += 1;
    }

    /// Returns the addresses of the tracker on this host with their ports, if they may have changed.
    fn local_endpoints(&self, live: &Live, is_new: bool) -> Option<BTreeSet<SocketAddr>> {
        if !is_new && !self.periods.is_multiple_of(ADDRESS_PERIODS) {
            return None;
        }
        let bound = live.endpoints.datagram_addresses();
        let locals = if bound.iter().any(|address| address.ip().is_unspecified()) {
            // Those that were there a moment ago are the best guess.
            local_addresses().ok()?
        } else {
            Vec::new()
        };
        let expand = |address: SocketAddr| {
            let of_family = locals.iter().filter(move |ip| ip.is_ipv4() == address.is_ipv4());
            let all: Vec<IpAddr> = match address.ip().is_unspecified() {
                true => of_family.copied().collect(),
                false => vec![address.ip()],
            };
            all.into_iter().map(move |ip| SocketAddr::new(ip, address.port()))
        };
        let endpoints: BTreeSet<SocketAddr> = bound.into_iter().flat_map(expand).collect();
        (is_new || endpoints != self.addresses).then_some(endpoints)
    }
}

impl Followed {
    fn update(
        &mut self,
        addresses: Option<&BTreeSet<SocketAddr>>,
        networks: Option<&[Network]>,
    ) -> anyhow::Result<()> {
        if let Some(addresses) = addresses {
            let addresses: Vec<SocketAddr> = addresses.iter().copied().collect();
            self.maps.set_endpoints(&addresses)?;
        }
        if let Some(networks) = networks {
            self.maps.set_networks(networks, NetworkRule::default())?;
        }
        let Some(link) = &mut self.link else { return Ok(()) };
        let link = link.own(&self.program)?;
        let was_attached = std::mem::replace(&mut self.is_attached, link.interface_index()?.is_some());
        if was_attached && !self.is_attached {
            tracing::error!(
                interface = self.name,
                "the interface is gone, and with it its XDP data path; the sockets serve on. `shoal upgrade` attaches it again"
            );
        }
        Ok(())
    }

    /// Logs an error that was not logged before.
    fn report(&mut self, outcome: anyhow::Result<()>) {
        let failure = outcome.err().map(|error| format!("{error:#}"));
        if let Some(error) = &failure
            && self.failure != failure
        {
            tracing::error!(interface = self.name, error, "the XDP data path cannot be updated");
        }
        self.failure = failure;
    }

    /// Counts the requests that the program has answered since the last time.
    fn count(&mut self, tally: &mut Tally) {
        let Ok(counts) = self.maps.counts() else { return };
        let before = std::mem::replace(&mut self.counts, counts);
        tally.add_connects(Family::V4, counts.connects_v4.saturating_sub(before.connects_v4), 0);
        tally.add_connects(Family::V6, counts.connects_v6.saturating_sub(before.connects_v6), 0);
    }
}

impl Attachment {
    /// Returns the link of this process. Takes over that of another one, if this has not happened yet.
    fn own(&mut self, program: &Program) -> anyhow::Result<&Link> {
        let link = match self {
            Self::Own(link) => return Ok(link),
            Self::Handed(link, mode) => program.replace(link.try_clone()?, *mode)?,
        };
        *self = Self::Own(link);
        self.own(program)
    }

    pub(super) fn mode_name(&self) -> &'static str {
        mode_name(match self {
            Self::Own(link) => link.mode(),
            Self::Handed(_, mode) => *mode,
        })
    }
}

/// Returns what programs need to make and check connection ids.
fn ids(shared: &SharedIds, now: (u64, u64)) -> Ids {
    let former = shared.former.map(|(keyed, until_s)| (keyed, monotonic_ns_at(until_s, now)));
    Ids { keyed: shared.keyed, former, valid_ns: shared.valid_s.saturating_mul(NS_PER_S) }
}

/// Returns a time by the wall clock as one by the monotonic clock, in nanoseconds. `now` is the present by both, in seconds and
/// milliseconds.
fn monotonic_ns_at(unix_s: u64, (now_unix_s, now_ms): (u64, u64)) -> u64 {
    let now_ns = now_ms.saturating_mul(NS_PER_S / 1000);
    let later = unix_s.saturating_sub(now_unix_s).saturating_mul(NS_PER_S);
    let earlier = now_unix_s.saturating_sub(unix_s).saturating_mul(NS_PER_S);
    now_ns.saturating_add(later).saturating_sub(earlier)
}

/// Returns the limits that programs keep.
fn rates(config: &LimitsConfig) -> Settings {
    let rate = |per_s: u32| (per_s > 0).then(|| Rate::new(per_s, per_s.saturating_mul(config.burst_s)));
    Settings {
        connects: rate(config.udp_connects_per_s),
        // Otherwise, a worker owes each of these requests a reply.
        requests: rate(if config.udp_silent { config.udp_requests_per_s } else { 0 }),
        ..Settings::default()
    }
}

/// Returns the networks for which something holds.
fn networks(live: &Live) -> Vec<Network> {
    let all = Arc::new(NetworkTable::default());
    let access = live.policy.access().and_then(|access| access.networks.as_ref());
    let none = Arc::new(NetworkTable::new(Some(&[]), &[]));
    let exempt = limits::exempt(&live.policy.config().limits).unwrap_or(none);
    let networks = prefixes([access.unwrap_or(&all), &exempt], [true, false]);
    let network = |(network, [is_served, exempt]): (shoal_access::networks::Network, [bool; 2])| Network {
        ip: network.first(),
        bits: network.prefix_length(),
        rule: NetworkRule { denied: !is_served, exempt },
    };
    networks.into_iter().map(network).collect()
}

fn lock(followed: &Mutex<Followed>) -> MutexGuard<'_, Followed> {
    followed.lock().unwrap_or_else(PoisonError::into_inner)
}
