//! The maps of the program, for the thread that controls it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fmt, io};

use aya::Ebpf;
use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray, XskMap};

use super::layout::{self, SETTINGS, SETTINGS_WORDS};
use super::mapped::Mapped;
use super::networks::{Networks, masked, put_in_order};
use super::settings::{Counts, Network, NetworkRule, Settings};
use super::{LoadError, Sizes};
use crate::interface::Segment;

/// Minimum and maximum number of lines of token buckets: 64 KiB to 32 MiB.
const LINES_MIN: u32 = 1 << 10;
const LINES_MAX: u32 = 1 << 19;

/// The error that the kernel refuses to change a map.
#[derive(Debug, thiserror::Error)]
#[error("the kernel refuses to change {map} of the XDP program: {reason}")]
pub struct MapsError {
    map: &'static str,
    reason: MapError,
}

/// The maps of a program, for one thread. Other threads use [`Backlog`].
pub struct Maps {
    control: Mapped,
    backlogs: Arc<Mapped>,
    endpoints: HashMap<MapData, [u8; 20], u32>,
    networks_v4: Networks<4>,
    networks_v6: Networks<16>,
    segments: Array<MapData, [u8; 12]>,
    sockets: XskMap<MapData>,
    counters: Counters,
    /// The buckets, the routes, and the arrays that `control` and `backlogs` map. They live as long as the program.
    _others: Vec<Map>,
    settings: layout::Settings,
    /// The settings that the program knows, and the number of the active copy.
    published: layout::Settings,
    active: usize,
    /// Whether several changes are in progress, which are published together.
    is_held: bool,
    present_endpoints: BTreeMap<[u8; 20], u32>,
    present_segments: BTreeMap<u32, [u8; 12]>,
}

/// The counters of a program, for any thread.
#[derive(Clone)]
pub struct Counters(Arc<PerCpuArray<MapData, [u64; layout::COUNTS]>>);

/// The frames of a queue on their way from the program to its socket. The program passes on only as many as the socket
/// has room for. The kernel serves the others.
#[derive(Clone, Debug)]
pub struct Backlog {
    backlogs: Arc<Mapped>,
    /// The first word of the queue.
    start: usize,
}

/// Returns the number of lines of token buckets. A source takes four cells.
pub(super) fn lines(sizes: &Sizes) -> u32 {
    let cells = u64::from(sizes.sources_max) * 4;
    let lines = cells.div_ceil(layout::LINE_CELLS as u64).next_power_of_two();
    u32::try_from(lines).unwrap_or(LINES_MAX).clamp(LINES_MIN, LINES_MAX)
}

impl fmt::Debug for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maps").field("endpoints", &self.present_endpoints.len()).finish_non_exhaustive()
    }
}

impl Maps {
    pub(super) fn new(ebpf: &mut Ebpf, lines: u32) -> Result<Self, LoadError> {
        let mut take = |name: &str| {
            ebpf.take_map(name).ok_or_else(|| error(MapError::InvalidName { name: name.to_owned() }))
        };
        let error = |reason| LoadError::Rejected(Box::new(reason));
        let sockets = XskMap::try_from(take("sockets")?).map_err(self::error)?;
        let queues = usize::try_from(sockets.len()).unwrap_or(0);
        let (control, backlogs) = (take("controls")?, take("backlogs")?);
        let mapped = |map: &Map, words| match map {
            Map::Array(data) => Mapped::new(data.fd().as_fd(), words).map_err(LoadError::Unmapped),
            _ => Err(error(aya::EbpfError::MapError(MapError::InvalidMapType { map_type: 0 }))),
        };
        let settings = layout::Settings { line_mask: lines - 1, ..layout::Settings::default() };
        let mut maps = Self {
            control: mapped(&control, layout::CONTROL_WORDS + SETTINGS * SETTINGS_WORDS)?,
            backlogs: Arc::new(mapped(&backlogs, queues * layout::BACKLOG_WORDS)?),
            endpoints: HashMap::try_from(take("endpoints")?).map_err(self::error)?,
            networks_v4: Networks::new(LpmTrie::try_from(take("networks_v4")?).map_err(self::error)?),
            networks_v6: Networks::new(LpmTrie::try_from(take("networks_v6")?).map_err(self::error)?),
            segments: Array::try_from(take("segments")?).map_err(self::error)?,
            sockets,
            counters: Counters(Arc::new(PerCpuArray::try_from(take("counters")?).map_err(self::error)?)),
            _others: vec![take("buckets")?, take("routes")?, control, backlogs],
            settings,
            published: layout::Settings::default(),
            active: 0,
            is_held: false,
            present_endpoints: BTreeMap::new(),
            present_segments: BTreeMap::new(),
        };
        maps.publish();
        Ok(maps)
    }

    /// Makes several changes and publishes their settings together: at the end, or before [`Self::set_networks`]
    /// removes networks. If that removes the last network of a family, the settings are published twice.
    pub fn change<T>(&mut self, changes: impl FnOnce(&mut Self) -> T) -> T {
        self.is_held = true;
        let result = changes(self);
        self.is_held = false;
        self.publish();
        result
    }

    /// Replaces the settings, for all frames that arrive from now on.
    pub fn set_settings(&mut self, settings: &Settings) {
        settings.write(&mut self.settings);
        self.publish();
    }

    /// Tells the program the current time slot of connection ids, and its end by `CLOCK_MONOTONIC` in nanoseconds.
    /// After that end the program uses the next slot. After the end of the next slot it leaves connect requests to user
    /// space.
    pub fn set_slot(&mut self, slot: u64, end_ns: u64) {
        (self.settings.slot, self.settings.slot_end_ns) = (slot, end_ns);
        self.publish();
    }

    /// Replaces the addresses and ports of the tracker. None may be unspecified: the program compares them with the
    /// destination of a frame. Fails if there are too many.
    pub fn set_endpoints(&mut self, addresses: &[SocketAddr]) -> Result<(), MapsError> {
        let mut wanted = BTreeMap::new();
        for address in addresses {
            // A frame without ports, such as a fragment, is counted if its destination is an address of the tracker.
            wanted.insert(layout::endpoint(SocketAddr::new(address.ip(), 0)), 0);
        }
        wanted.extend(addresses.iter().filter(|a| a.port() != 0).map(|a| (layout::endpoint(*a), 1)));
        let map = &mut self.endpoints;
        let failed = |reason| MapsError { map: "the endpoints", reason };
        let gone: Vec<[u8; 20]> =
            self.present_endpoints.keys().filter(|key| !wanted.contains_key(*key)).copied().collect();
        for key in &gone {
            map.remove(key).map_err(failed)?;
            self.present_endpoints.remove(key);
        }
        self.forget_near(&gone);
        let map = &mut self.endpoints;
        for (key, value) in wanted {
            if self.present_endpoints.get(&key) != Some(&value) {
                map.insert(key, value, 0).map_err(failed)?;
                self.present_endpoints.insert(key, value);
            }
        }
        let with_port = self.present_endpoints.iter().filter(|(_, has_port)| **has_port == 1);
        self.settings.near = layout::near(with_port.map(|(endpoint, _)| endpoint));
        self.settings.own_addresses =
            addresses.iter().fold(0, |bits, address| bits | layout::bit_of(address.ip()));
        self.publish();
        Ok(())
    }

    /// Replaces the segments of the frames of the interface. Without segments, all frames are left to the kernel. Fails
    /// with the error of the kernel.
    pub fn set_segments(&mut self, segments: &[Segment]) -> Result<(), MapsError> {
        let entry =
            |segment: &Segment| Some((layout::segment_index(segment.vlan)?, layout::segment(segment)));
        let wanted: BTreeMap<_, _> = segments.iter().filter_map(entry).collect();
        let is_gone = |index: &u32| !wanted.contains_key(index);
        let gone: Vec<u32> = self.present_segments.keys().copied().filter(is_gone).collect();
        let changes = gone.iter().map(|index| (*index, layout::NO_SEGMENT)).chain(wanted);
        for (index, segment) in changes {
            if self.present_segments.get(&index) != Some(&segment) {
                let failed = |reason| MapsError { map: "the segments", reason };
                self.segments.set(index, segment, 0).map_err(failed)?;
                self.present_segments.insert(index, segment);
            }
        }
        self.present_segments.retain(|index, _| !gone.contains(index));
        Ok(())
    }

    /// Replaces the networks, and the rule for addresses in none of them. Meanwhile the program may see some of the old
    /// and some of the new networks. The new ones are inserted before the rule for all other addresses changes. So an
    /// allow list refuses none of its networks, and a failure leaves that rule unchanged. Fails if there are too many
    /// networks.
    pub fn set_networks(&mut self, networks: &[Network], otherwise: NetworkRule) -> Result<(), MapsError> {
        let failed = |reason| MapsError { map: "the networks", reason };
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            let flags = network.rule.flags();
            match network.ip {
                IpAddr::V4(ip) => {
                    let bits = network.bits.min(32);
                    v4.push((masked(ip.octets(), bits), bits, flags));
                }
                IpAddr::V6(ip) => {
                    let bits = network.bits.min(128);
                    v6.push((masked(ip.octets(), bits), bits, flags));
                }
            }
        }
        put_in_order(&mut v4);
        put_in_order(&mut v6);
        self.networks_v4.insert(&v4).map_err(failed)?;
        self.networks_v6.insert(&v6).map_err(failed)?;
        self.settings.network_default = otherwise.flags();
        self.note_families();
        self.publish_now();
        self.networks_v4.remove_others(&v4).map_err(failed)?;
        self.networks_v6.remove_others(&v6).map_err(failed)?;
        self.note_families();
        self.publish();
        Ok(())
    }

    /// Records in the settings which families have networks.
    fn note_families(&mut self) {
        for (is_empty, flag) in [
            (self.networks_v4.is_empty(), layout::HAS_NETWORKS_V4),
            (self.networks_v6.is_empty(), layout::HAS_NETWORKS_V6),
        ] {
            let flags = self.settings.flags;
            self.settings.flags = if is_empty { flags & !flag } else { flags | flag };
        }
    }

    /// Redirects the datagrams of a queue to an AF_XDP socket, which must be bound to that queue of the interface, or
    /// to no socket. The limit of the queue's [`Backlog`] applies. Fails if there is no such queue, or if the
    /// descriptor does not refer to such a socket.
    pub fn set_socket(&mut self, queue: u32, socket: Option<BorrowedFd<'_>>) -> Result<(), MapsError> {
        let result = match socket {
            Some(fd) => self.sockets.set(queue, fd.as_raw_fd(), 0),
            None => match self.sockets.unset(queue) {
                // It had no socket.
                Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {
                    Ok(())
                }
                other => other,
            },
        };
        result.map_err(|reason| MapsError { map: "the sockets", reason })
    }

    /// Returns the backlog of a queue, if there is such a queue.
    pub fn backlog(&self, queue: u32) -> Option<Backlog> {
        let start = usize::try_from(queue).ok()?.checked_mul(layout::BACKLOG_WORDS)?;
        let end = start.checked_add(layout::BACKLOG_WORDS)?;
        (end <= self.backlogs.words().len()).then(|| Backlog { backlogs: Arc::clone(&self.backlogs), start })
    }

    /// Returns the counts of the program. Fails with the error of the kernel.
    pub fn counts(&self) -> Result<Counts, MapsError> {
        self.counters.read()
    }

    /// Returns the counters, for another thread.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// Removes endpoints from the active settings at once, even if other changes are held back or fail.
    fn forget_near(&mut self, gone: &[[u8; 20]]) {
        let forget = |near: &mut [[u8; 20]]| {
            near.iter_mut().filter(|near| gone.contains(near)).for_each(|near| *near = [0; 20]);
        };
        forget(&mut self.settings.near);
        let mut active = self.published;
        forget(&mut active.near);
        self.activate(active);
    }

    /// Activates the settings, unless more changes follow.
    fn publish(&mut self) {
        if !self.is_held {
            self.publish_now();
        }
    }

    fn publish_now(&mut self) {
        self.activate(self.settings);
    }

    /// Activates settings, if they differ from the active ones. They are written to a copy that no frame uses. A frame
    /// in progress uses the copy that was active when it arrived, and that copy is written again only after all others.
    fn activate(&mut self, settings: layout::Settings) {
        if settings == self.published {
            return;
        }
        self.published = settings;
        self.active = (self.active + 1) % SETTINGS;
        let words: [u64; SETTINGS_WORDS] = zerocopy::transmute!(settings);
        let memory = self.control.words();
        let start = layout::CONTROL_WORDS + self.active * SETTINGS_WORDS;
        for (place, word) in memory[start..].iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        memory[0].store(self.active as u64, Ordering::Release);
    }
}

impl Counters {
    /// Returns the counts of the program. Fails with the error of the kernel.
    pub fn read(&self) -> Result<Counts, MapsError> {
        let failed = |reason| MapsError { map: "the counters", reason };
        let per_cpu = self.0.get(&0, 0).map_err(failed)?;
        let mut sums = [0_u64; layout::COUNTS];
        for of_cpu in per_cpu.iter() {
            for (sum, count) in sums.iter_mut().zip(of_cpu) {
                *sum = sum.wrapping_add(*count);
            }
        }
        Ok(Counts(sums))
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}

impl Backlog {
    /// Returns how many frames the program has redirected.
    pub fn redirected(&self) -> u64 {
        self.word(layout::BACKLOG_REDIRECTED).load(Ordering::Acquire)
    }

    /// Tells the program how many redirected frames have been received, or were dropped because the socket had no room.
    pub fn publish(&self, consumed: u64) {
        self.word(layout::BACKLOG_CONSUMED).store(consumed, Ordering::Release);
    }

    /// Returns the maximum number of frames on their way.
    pub fn frames_max(&self) -> u64 {
        self.word(layout::BACKLOG_FRAMES_MAX).load(Ordering::Acquire)
    }

    /// Sets the maximum number of frames on their way. It is 0 at first: all frames go to the kernel.
    pub fn set_frames_max(&self, frames: u64) {
        self.word(layout::BACKLOG_FRAMES_MAX).store(frames, Ordering::Release);
    }

    fn word(&self, word: usize) -> &std::sync::atomic::AtomicU64 {
        &self.backlogs.words()[self.start + word]
    }
}

fn error(reason: MapError) -> LoadError {
    LoadError::Rejected(Box::new(reason.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_a_power_of_two() {
        let lines = |sources_max| lines(&Sizes { queues: 1, networks_max: 1, sources_max, endpoints_max: 1 });
        assert_eq!([0, 1 << 16, (1 << 16) + 1, u32::MAX].map(lines), [1 << 10, 1 << 15, 1 << 16, 1 << 19]);
    }
}
