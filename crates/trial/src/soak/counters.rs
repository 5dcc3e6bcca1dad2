//! The counters of a moment: those of the tracker, of the kernel on its side, and of the drivers at both ends.

use std::collections::BTreeMap;

/// The paths of the program on which a packet ends and that the tracker does not count itself: it does count those beyond the
/// limits.
const ENDS: [&str; 2] = ["denied", "unanswerable"];

/// Counters that tell of dropped datagrams, and the number of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Counters that begin anew with each process of the tracker.
    process: BTreeMap<String, u64>,
    /// Counters that go on: those of the kernel and of the drivers.
    host: BTreeMap<String, u64>,
    pub(super) frames: u64,
    pub(super) frames_free: u64,
}

/// The changes of counters in a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Datagrams that were dropped, by reason.
    pub(super) drops: BTreeMap<String, u64>,
    /// Requests that the driver of the load's interface has put into the queue of the tracker's, and those for which there was no
    /// space.
    pub(super) queued: u64,
    pub(super) frames: u64,
    pub(super) frames_free: u64,
}

/// The requests that the driver of the load's interface has passed on. It is no drop.
const QUEUED: &str = "queued";

/// Redirects that have failed at the driver.
const REDIRECTS_FAILED: &str = "driver/redirects-failed";

/// Replies that a socket had no route for.
const WITHOUT_ROUTE: &str = "kernel/ip-replies-without-route";

/// Replies that the driver of the tracker's interface has not sent, because the queue of the other end was full.
const REPLIES_DROPPED: &str = "driver/replies-dropped";

/// Counters that contain what others have counted. A full AF_XDP socket fails a redirect, and a reply without a route fails the call
/// that sends it. The drops of veth that a program (`xdp_tx_err` in drivers/net/veth.c) or IP learns of are among all of
/// its drops.
const COUNTED_TWICE: [(&str, &[&str]); 3] = [
    (REDIRECTS_FAILED, &["socket/kernel_ring_full", "socket/kernel_other"]),
    (WITHOUT_ROUTE, &["reply/unreachable"]),
    (REPLIES_DROPPED, &[QUEUE_FULL, "kernel/ip-replies-discarded"]),
];

/// Those of them that the program has answered.
const QUEUE_FULL: &str = "driver/reply-queue-full";

impl Counters {
    /// Reads the metrics of a tracker.
    pub(super) fn of_tracker(metrics: &str) -> Self {
        let mut counters = Self::default();
        for (name, labels, value) in metrics.lines().filter_map(series) {
            let label = |key: &str| {
                labels
                    .split(',')
                    .find_map(|label| label.strip_prefix(key)?.strip_prefix("=\"")?.strip_suffix('"'))
            };
            let kind = match name {
                "shoal_drops_total" => "tracker",
                "shoal_reply_drops_total" => "reply",
                // These replies are among the ones above.
                "shoal_xdp_drops_total" if label("reason") != Some("transmit_full") => "socket",
                "shoal_xdp_packets_total" if label("path").is_some_and(|path| ENDS.contains(&path)) => {
                    "program"
                }
                "shoal_xdp_frames" => {
                    counters.frames = value;
                    continue;
                }
                "shoal_xdp_frames_free" => {
                    counters.frames_free = value;
                    continue;
                }
                _ => continue,
            };
            if let Some(reason) = label("reason").or_else(|| label("path")) {
                *counters.process.entry(format!("{kind}/{reason}")).or_default() += value;
            }
        }
        counters
    }

    /// Adds the counts of UDP and IP (proc_net_snmp), and those of the interface (proc_net_dev).
    pub(super) fn add_kernel(&mut self, snmp: &str, devices: &str, interface: &str) {
        let wanted = [
            ("Udp", "NoPorts", "kernel/udp-no-ports"),
            ("Udp", "InErrors", "kernel/udp-errors"),
            ("Ip", "InHdrErrors", "kernel/ip-header-errors"),
            ("Ip", "InAddrErrors", "kernel/ip-address-errors"),
            ("Ip", "InDiscards", "kernel/ip-discards"),
            ("Ip", "OutDiscards", "kernel/ip-replies-discarded"),
            ("Ip", "OutNoRoutes", WITHOUT_ROUTE),
        ];
        for (protocol, field, name) in wanted {
            self.host.insert(name.to_owned(), snmp_field(snmp, protocol, field).unwrap_or(0));
        }
        let line = devices.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
        // Eight numbers of what was received, then bytes, packets, errors and drops of what was sent.
        let dropped = line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok());
        self.host.insert(REPLIES_DROPPED.to_owned(), dropped.unwrap_or(0));
    }

    /// Adds the counts of the drivers at both ends, as `ethtool -S` prints them.
    pub(super) fn add_drivers(&mut self, load: &str, tracker: &str) {
        let wanted = [
            (QUEUED, load, "tx_queue_0_xdp_xmit"),
            ("driver/queue-full", load, "tx_queue_0_xdp_xmit_errors"),
            (QUEUE_FULL, tracker, "rx_queue_0_xdp_tx_errors"),
            (REDIRECTS_FAILED, tracker, "rx_queue_0_drops"),
        ];
        for (name, text, field) in wanted {
            let value = text.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(':'));
            self.host.insert(name.to_owned(), value.and_then(|value| value.trim().parse().ok()).unwrap_or(0));
        }
    }

    /// Makes these the counters before a round in which a process has ended, whose last counters are `last`: the next one
    /// counts from 0.
    pub(super) fn begin_anew(&mut self, last: &Self) {
        for (name, value) in &mut self.process {
            // The counts of the process in this round are added to those of the next one.
            *value = value.wrapping_sub(last.process.get(name).copied().unwrap_or(0));
        }
    }

    /// Returns the changes since `before`.
    pub(super) fn since(&self, before: &Self) -> Changes {
        let difference =
            |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| -> BTreeMap<String, u64> {
                let since = |(name, value): (&String, &u64)| {
                    let value = value.wrapping_sub(then.get(name).copied().unwrap_or(0));
                    (name.clone(), value)
                };
                now.iter().map(since).collect()
            };
        let mut drops = difference(&self.host, &before.host);
        drops.extend(difference(&self.process, &before.process));
        let queued = drops.remove(QUEUED).unwrap_or(0);
        for (name, counted) in COUNTED_TWICE {
            let counted: u64 = counted.iter().filter_map(|name| drops.get(*name)).sum();
            if let Some(all) = drops.get_mut(name) {
                *all = all.saturating_sub(counted);
            }
        }
        drops.retain(|_, value| *value > 0);
        Changes { drops, queued, frames: self.frames, frames_free: self.frames_free }
    }

    pub(super) fn are_all_frames_free(&self) -> bool {
        self.frames > 0 && self.frames_free == self.frames
    }

    pub(super) fn has_same_drops(&self, other: &Self) -> bool {
        self.process == other.process && self.host == other.host
    }
}

/// Returns the name, the labels and the value of a line of metrics, if it is a whole number.
fn series(line: &str) -> Option<(&str, &str, u64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    Some((name, labels.strip_suffix('}')?, value.parse().ok()?))
}

/// Returns a field of a protocol, whose names and values are two lines.
fn snmp_field(snmp: &str, protocol: &str, field: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
    let place = lines.next()?.split(' ').position(|name| name == field)?;
    lines.next()?.split(' ').nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# TYPE shoal_drops counter
shoal_drops_total{protocol=\"udp\",family=\"v4\",reason=\"malformed\"} 3
shoal_drops_total{protocol=\"udp\",family=\"v6\",reason=\"malformed\"} 4
shoal_reply_drops_total{protocol=\"udp\",family=\"v4\",reason=\"buffer_full\"} 5
shoal_xdp_drops_total{reason=\"transmit_full\"} 5
shoal_xdp_drops_total{reason=\"kernel_ring_full\"} 6
shoal_xdp_packets_total{interface=\"eth0\",path=\"worker\"} 1000
shoal_xdp_packets_total{interface=\"eth0\",path=\"denied\"} 7
shoal_xdp_frames 4096
shoal_xdp_frames_free 4000
shoal_worker_heartbeat_age_seconds{worker=\"0\"} 0.001
";

    fn drops<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
        expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn each_drop_is_counted_once() {
        let mut counters = Counters::of_tracker(METRICS);
        counters.add_drivers(
            "     tx_queue_0_xdp_xmit: 900\n     tx_queue_0_xdp_xmit_errors: 2\n",
            "     rx_queue_0_drops: 8\n",
        );
        let changes = counters.since(&Counters::default());
        let expected = [
            ("driver/queue-full", 2),
            // Six of these are those of the socket.
            ("driver/redirects-failed", 2),
            ("program/denied", 7),
            ("reply/buffer_full", 5),
            ("socket/kernel_ring_full", 6),
            ("tracker/malformed", 7),
        ];
        assert_eq!((changes.drops, changes.queued), (drops(expected), 900));
        assert_eq!((counters.frames, counters.frames_free), (4096, 4000));
        assert!(!counters.are_all_frames_free() && !Counters::default().are_all_frames_free());
    }

    #[test]
    fn replies_without_a_route_are_counted_once() {
        let of = |unreachable: u64, without_route: u64| {
            let metrics = format!("shoal_reply_drops_total{{reason=\"unreachable\"}} {unreachable}\n");
            let mut counters = Counters::of_tracker(&metrics);
            counters.add_kernel(&format!("Ip: OutNoRoutes\nIp: {without_route}\n"), "", "trk1");
            counters.since(&Counters::default()).drops
        };
        assert_eq!(of(14, 14), drops([("reply/unreachable", 14)]));
        // Errors of ICMP to the load, and replies that the kernel refuses for another reason.
        assert_eq!(of(14, 16), drops([("reply/unreachable", 14), (WITHOUT_ROUTE, 2)]));
        assert_eq!(of(14, 3), drops([("reply/unreachable", 14)]));
    }

    #[test]
    fn replies_that_the_driver_drops_are_counted_once() {
        let mut counters = Counters::default();
        let devices = "  trk1: 1 2 3 4 5 6 7 8 9 10 11 2512 13 14 15 16\n";
        counters.add_kernel("Ip: OutDiscards\nIp: 427\n", devices, "trk1");
        counters.add_drivers("", "     rx_queue_0_xdp_tx_errors: 371\n");
        let expected =
            [(QUEUE_FULL, 371), (REPLIES_DROPPED, 2512 - 371 - 427), ("kernel/ip-replies-discarded", 427)];
        assert_eq!(counters.since(&Counters::default()).drops, drops(expected));
    }

    #[test]
    fn the_counters_of_the_kernel_are_found_by_name() {
        let snmp = "Ip: Forwarding InDiscards\nIp: 1 11\nUdp: InDatagrams NoPorts InErrors\nUdp: 100 5 6\n";
        let devices = "Inter-|   Receive\n  trk1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let mut counters = Counters::default();
        counters.add_kernel(snmp, devices, "trk1");
        let expected = [
            ("driver/replies-dropped", 12),
            ("kernel/ip-discards", 11),
            ("kernel/udp-errors", 6),
            ("kernel/udp-no-ports", 5),
        ];
        assert_eq!(counters.since(&Counters::default()).drops, drops(expected));
    }

    #[test]
    fn a_new_process_goes_on_where_the_last_one_has_ended() {
        let of = |malformed: u64| {
            Counters::of_tracker(&format!("shoal_drops_total{{reason=\"malformed\"}} {malformed}\n"))
        };
        let mut before = of(10);
        before.begin_anew(&of(13));
        assert_eq!(of(2).since(&before).drops, drops([("tracker/malformed", 5)]));
    }
}
