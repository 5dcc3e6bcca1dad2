//! Keeps the programs in step with the tracker: keys and their time slots, lists of networks, limits, and the
//! addresses and VLANs of this host.
//!
//! One thread does all of it, four times a second, by comparison with the policy.
//!
//! A program has a clock without a date, so it is told the present slot and the end of the slot. It enters the next
//! slot by itself. If this thread is later than that, the program leaves connect requests to the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::ensure;
use shoal_engine::connection_id::{ConnectionIds, slot_at};
use shoal_engine::counter::{Family, Kind, Tally};
use shoal_engine::limits::Activity;
use shoal_engine::policy::Protocol;
use shoal_net::QueueLoss;
use shoal_xdp::interface::{Segment, local_addresses, segments};
use shoal_xdp::program::{Counted, Counts, Link, Maps, Mode, Network, NetworkRule, Program, Settings};

use super::rules::{self, Lists, NS_PER_S};
use super::stats::{DataPathStats, Hook, Shared};
use super::{Attached, Attachment, DataPath};
use shoal_runtime::clock;
use shoal_runtime::live::Live;
use shoal_runtime::periodic::PeriodicThread;
use shoal_runtime::published::Published;

/// The period of the thread. Bans and lists take effect in the driver after this time.
const PERIOD: Duration = Duration::from_millis(250);

/// Periods between two reads of this host's addresses and VLANs. Updates that the kernel has refused are then tried
/// again.
const LOOK_PERIODS: u64 = 8;

#[derive(Debug)]
struct Followed {
    shared: Arc<Shared>,
    interface_index: u32,
    maps: Maps,
    /// The program. It must stay loaded until another replaces it.
    program: Program,
    /// The segments that frames of the interface may belong to.
    segments: Vec<Segment>,
    is_native: bool,
    /// Whether the program knows the present endpoints, and the present networks.
    has_endpoints: bool,
    has_networks: bool,
    counts: Counts,
    /// The queues whose sockets are in use, by the last report.
    sockets: Vec<(u32, QueueLoss)>,
    /// The text of the last error, which is not logged twice.
    failure: Option<String>,
}

/// The thread that follows. Dropping this detaches the programs.
pub(crate) struct DataPathThread {
    thread: PeriodicThread,
    stats: Arc<DataPathStats>,
}

#[derive(Debug)]
struct Follower {
    interfaces: Vec<Followed>,
    live: Arc<Published<Live>>,
    /// The values that the programs follow.
    told: Option<Arc<Live>>,
    ids: ConnectionIds,
    /// The secret of the buckets of sources.
    bucket_key: [u64; 2],
    settings: Settings,
    lists: Lists,
    addresses: Vec<IpAddr>,
    endpoints: BTreeSet<SocketAddr>,
    /// The present slot, and its end by the monotonic clock in nanoseconds.
    slot: (u64, u64),
    tally: Tally,
    periods: u64,
}

/// The values that programs are told in a period.
struct News<'f> {
    settings: Settings,
    /// The present slot, and its end by the monotonic clock in nanoseconds.
    slot: (u64, u64),
    endpoints: Option<&'f BTreeSet<SocketAddr>>,
    networks: Option<&'f (Vec<Network>, NetworkRule)>,
}

impl DataPath {
    /// Begins to follow on a separate thread, which starts the service of the programs, if there are any. Fails if the
    /// kernel provides no more threads or no random numbers.
    pub(crate) fn follow(self, live: &Arc<Published<Live>>) -> anyhow::Result<Option<DataPathThread>> {
        if self.interfaces.is_empty() {
            return Ok(None);
        }
        let interfaces: Vec<_> = self.interfaces.into_iter().map(Followed::new).collect();
        let (tally, latest) = (Tally::default(), live.latest());
        let shared = interfaces.iter().map(|followed| Arc::clone(&followed.shared)).collect();
        let stats = DataPathStats { interfaces: shared, requests: tally.counters() };
        let [first, second, ..] = shoal_runtime::random::words()?;
        let mut follower = Follower {
            interfaces,
            live: Arc::clone(live),
            told: None,
            ids: ConnectionIds::new(&latest.connection_key),
            bucket_key: [first, second],
            settings: Settings::default(),
            lists: Lists::default(),
            addresses: Vec::new(),
            endpoints: BTreeSet::new(),
            slot: (0, 0),
            tally,
            periods: 0,
        };
        let thread = PeriodicThread::start("data-path", PERIOD, move || follower.run())?;
        Ok(Some(DataPathThread { thread, stats: Arc::new(stats) }))
    }
}

impl DataPathThread {
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
            interface.hook().link = None;
        }
    }
}

impl Follower {
    fn run(&mut self) {
        let live = self.live.latest();
        let is_new = !self.told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &live));
        if is_new {
            self.take(&live);
        }
        let looks = is_new || self.periods.is_multiple_of(LOOK_PERIODS);
        if looks {
            self.look(&live);
        }
        self.update_slot();
        let lacks_networks = self.interfaces.iter().any(|followed| !followed.has_networks);
        let networks = (looks && lacks_networks).then(|| rules::networks(&live));
        let news = News {
            settings: self.settings,
            slot: self.slot,
            endpoints: looks.then_some(&self.endpoints),
            networks: networks.as_ref(),
        };
        for followed in &mut self.interfaces {
            // A program that replaces another one knows everything by then.
            let outcome = followed.tell(&news);
            let outcome = followed.follow_link().and(outcome);
            followed.report(outcome);
            followed.report_losses();
            followed.count(&mut self.tally);
        }
        self.told = Some(live);
        self.periods += 1;
    }

    /// Adopts new values of the configuration.
    fn take(&mut self, live: &Live) {
        let config = live.policy.config();
        self.ids.replace_key(&live.connection_key, clock::unix_s());
        self.settings = Settings {
            ids: Some(rules::ids(&self.ids.share(), rules::now_ms())),
            bucket_key: self.bucket_key,
            connects: rules::rate(&config.limits, Activity::UdpConnect),
            // Unless the limit is silent, a worker owes each of these requests a reply.
            requests: rules::rate(&config.limits, Activity::Request(Protocol::Udp))
                .filter(|_| config.limits.udp_silent),
            ..Settings::default()
        };
        let lists = Lists::of(live);
        if self.told.is_none() || !lists.are(&self.lists) {
            self.lists = lists;
            self.interfaces.iter_mut().for_each(|followed| followed.has_networks = false);
        }
    }

    /// Reads the addresses and VLANs of this host.
    fn look(&mut self, live: &Live) {
        // The last known addresses are the best guess.
        if let Ok(addresses) = local_addresses() {
            self.addresses = addresses;
        }
        let endpoints = rules::endpoints(live.endpoints.datagram_addresses(), &self.addresses);
        let has_changed = self.endpoints != endpoints;
        self.endpoints = endpoints;
        for followed in &mut self.interfaces {
            followed.has_endpoints &= !has_changed;
            followed.segments =
                segments(followed.interface_index).unwrap_or(std::mem::take(&mut followed.segments));
        }
    }

    /// Updates the present slot and its end. The end stays the same while the clocks agree: the two clocks are read
    /// one after the other.
    fn update_slot(&mut self) {
        let now = rules::now_ms();
        let (slot, end_s) = slot_at(now.0 / 1000);
        let end_ns = rules::monotonic_ns_at(end_s, now);
        if self.slot.0 != slot || self.slot.1.abs_diff(end_ns) > NS_PER_S {
            self.slot = (slot, end_ns);
        }
    }
}

impl Followed {
    fn new(attached: Attached) -> Self {
        let Attached { interface, program, maps, link, losses, .. } = attached;
        // A link of another process holds that process's program.
        let is_attached = matches!(link, Attachment::Own(_));
        let hook = Mutex::new(Hook { link: Some(link), is_attached });
        Self {
            shared: Arc::new(Shared { name: interface.name, counters: maps.counters(), hook }),
            interface_index: interface.index,
            maps,
            program,
            segments: Vec::new(),
            is_native: false,
            has_endpoints: false,
            has_networks: false,
            counts: Counts::default(),
            sockets: losses,
            failure: None,
        }
    }

    /// Tells the program the settings, and the endpoints and networks if it does not know them.
    fn tell(&mut self, news: &News<'_>) -> anyhow::Result<()> {
        let is_native = self.is_native;
        let Self { maps, segments, has_endpoints, has_networks, .. } = self;
        maps.change(|maps| {
            maps.set_slot(news.slot.0, news.slot.1);
            maps.set_settings(&Settings { is_native, ..news.settings });
            let mut failures = Vec::new();
            failures.extend(maps.set_segments(segments).err());
            if let Some(endpoints) = news.endpoints.filter(|_| !*has_endpoints) {
                let endpoints: Vec<SocketAddr> = endpoints.iter().copied().collect();
                let told = maps.set_endpoints(&endpoints);
                *has_endpoints = told.is_ok();
                failures.extend(told.err());
            }
            // Endpoints that do not fit are no reason to serve denied networks.
            if let Some((networks, otherwise)) = news.networks.filter(|_| !*has_networks) {
                let told = maps.set_networks(networks, *otherwise);
                *has_networks = told.is_ok();
                failures.extend(told.err());
            }
            let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
            ensure!(failures.is_empty(), "{}", failures.join("; "));
            Ok(())
        })
    }

    /// Takes over the link of another process, and checks whether the program is still attached.
    fn follow_link(&mut self) -> anyhow::Result<()> {
        let mut hook = self.shared.hook();
        let hook = &mut *hook;
        let Some(attachment) = &mut hook.link else { return Ok(()) };
        let index = attachment.own(&self.program).and_then(|link| Ok(link.interface_index()?));
        self.is_native = attachment.mode() == Mode::Native;
        let is_attached = matches!(index, Ok(Some(_)));
        let was_attached = std::mem::replace(&mut hook.is_attached, is_attached);
        if was_attached && !is_attached {
            tracing::error!(
                interface = self.shared.name,
                "the interface is gone, and with it its XDP data path; the sockets serve on. `shoal upgrade` attaches it again"
            );
        }
        index.map(drop)
    }

    /// Logs an error unless it repeats the last one.
    fn report(&mut self, outcome: anyhow::Result<()>) {
        match outcome.map_err(|error| format!("{error:#}")) {
            Ok(()) if self.has_endpoints && self.has_networks => self.failure = None,
            // The update is tried again later.
            Ok(()) => {}
            Err(error) if self.failure.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::error!(interface = self.shared.name, error, "the XDP data path cannot be updated");
                self.failure = Some(error);
            }
        }
    }

    /// Logs the sockets that workers have given up since the last time: one line for each reason, for any number of
    /// queues.
    fn report_losses(&mut self) {
        for (reason, queues) in self.take_losses() {
            tracing::error!(
                interface = self.shared.name,
                reason,
                ?queues,
                sockets = self.sockets.len(),
                "AF_XDP sockets are given up; what arrives at their queues goes to the ordinary sockets. a restart opens new \
                 ones, and if the interface was gone, `shoal upgrade` as well"
            );
        }
    }

    /// Takes the queues whose sockets were given up, by reason.
    fn take_losses(&mut self) -> BTreeMap<String, Vec<u32>> {
        let mut lost = BTreeMap::<String, Vec<u32>>::new();
        self.sockets.retain(|(queue, loss)| {
            let Some(reason) = loss.reason() else { return true };
            lost.entry(reason.to_string()).or_default().push(*queue);
            false
        });
        lost
    }

    /// Counts the requests that the program has answered or dropped since the last time.
    fn count(&mut self, tally: &mut Tally) {
        let Ok(counts) = self.maps.counts() else { return };
        let before = std::mem::replace(&mut self.counts, counts);
        let added = |counted| counts.of(counted).saturating_sub(before.of(counted));
        for (family, connects) in [(Family::V4, Counted::ConnectsV4), (Family::V6, Counted::ConnectsV6)] {
            tally.add_connects(family, added(connects));
            for (action, kind) in (0..).zip([Kind::Connect, Kind::Announce, Kind::Scrape]) {
                tally.add_limited(family, kind, added(Counted::limited(action, family == Family::V6)));
            }
        }
    }
}

impl Attachment {
    /// Returns the link of this process. Takes over the other process's link first.
    fn own(&mut self, program: &Program) -> anyhow::Result<&Link> {
        let link = match self {
            Self::Own(link) => return Ok(link),
            Self::Handed(link, mode) => program.replace(link.try_clone()?, *mode)?,
        };
        *self = Self::Own(link);
        self.own(program)
    }

    pub(super) fn mode(&self) -> Mode {
        match self {
            Self::Own(link) => link.mode(),
            Self::Handed(_, mode) => *mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use shoal_xdp::program::Sizes;

    use super::*;

    /// Returns a program that is not attached, and knows two endpoints at most. It needs root.
    fn followed() -> Followed {
        let sizes = Sizes { queues: 1, networks_max: 2, sources_max: 1, endpoints_max: 2 };
        let (program, maps) = Program::load(&sizes).unwrap();
        let link = Attachment::Handed(File::open("/dev/null").unwrap().into(), Mode::Native);
        let hook = Mutex::new(Hook { link: Some(link), is_attached: true });
        Followed {
            shared: Arc::new(Shared { name: "eth0".to_owned(), counters: maps.counters(), hook }),
            interface_index: 1,
            maps,
            program,
            segments: Vec::new(),
            is_native: false,
            has_endpoints: false,
            has_networks: false,
            counts: Counts::default(),
            sockets: Vec::new(),
            failure: None,
        }
    }

    fn addresses(hosts: std::ops::Range<u8>) -> BTreeSet<SocketAddr> {
        hosts.map(|host| SocketAddr::from(([192, 0, 2, host], 6969))).collect()
    }

    #[test]
    fn a_hand_over_that_fails_is_not_attached() {
        let mut followed = followed();
        assert_eq!(followed.shared.stats().mode, Some("native"));
        followed.follow_link().unwrap_err();
        assert_eq!(followed.shared.stats().mode, None);
    }

    #[test]
    fn what_the_kernel_has_refused_is_tried_again() {
        let mut followed = followed();
        let networks = (Vec::new(), NetworkRule::default());
        let tell = |followed: &mut Followed, endpoints: &BTreeSet<SocketAddr>| {
            let (settings, slot) = (Settings::default(), (1, 2));
            let networks = Some(&networks);
            followed.tell(&News { settings, slot, endpoints: Some(endpoints), networks })
        };
        let outcome = tell(&mut followed, &addresses(0..9));
        assert!(outcome.is_err() && !followed.has_endpoints && followed.has_networks);
        followed.report(outcome);
        followed.report(Ok(()));
        assert!(followed.failure.is_some(), "it is not logged each time that it is tried");
        tell(&mut followed, &addresses(0..2)).unwrap();
        assert!(followed.has_endpoints && followed.has_networks);
        followed.report(Ok(()));
        assert_eq!(followed.failure, None);
    }
}
