//! The counters of a moment: those of the tracker, of the kernel on its side, and of the drivers at both ends.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shoal_compare::network::VethPair;
use shoal_testkit::client::http::Client;
use shoal_testkit::process::wait_for;

use crate::chaos::socket_drops::counter;
use crate::chaos::tracker::Tracker;

/// How long a tracker may take to tell its counters: it may ask to be asked less often.
const PATIENCE: Duration = Duration::from_secs(30);
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// Counters that tell of dropped datagrams, and the number of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Counters that begin anew with each process of the tracker.
    process: BTreeMap<String, u64>,
    /// Counters that go on: those of the kernel and of the drivers.
    host: BTreeMap<String, u64>,
    pub(crate) frames: u64,
    pub(crate) frames_free: u64,
}

/// Requests that the driver of the load's interface has put into the queue of the tracker's. It is no drop.
pub(crate) const QUEUED: &str = "queued";

/// Requests for which there was no space in that queue.
pub(crate) const QUEUE_FULL: &str = "driver/queue-full";

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
    (REPLIES_DROPPED, &[REPLY_QUEUE_FULL, "kernel/ip-replies-discarded"]),
];

/// Those of them that the program has answered.
const REPLY_QUEUE_FULL: &str = "driver/reply-queue-full";

impl Counters {
    /// Reads the counters of a tracker that serves, and those of the kernel and the drivers around it.
    pub(crate) fn read(tracker: &Tracker) -> Result<Self> {
        let pair = tracker.pair()?;
        let [load, of_tracker] = pair.driver_counts()?;
        let read = || Ok(Self::on_tracker_side(tracker, pair).ok().filter(|counters| counters.frames > 0));
        let counters = wait_for("the tracker should have a data path and metrics", PATIENCE, read);
        let mut counters =
            counters.with_context(|| format!("there are no counters{}", tracker.last_words()))?;
        counters.add_drivers(&load, &of_tracker);
        Ok(counters)
    }

    fn on_tracker_side(tracker: &Tracker, pair: &VethPair) -> Result<Self> {
        pair.on_tracker_side(|| {
            let mut client = Client::open(
                None,
                (Ipv4Addr::LOCALHOST, tracker.control_port).into(),
                None,
                CONTROL_TIMEOUT,
            )?;
            let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n";
            let response = client.request(request)?;
            ensure!(response.status == 200, "the reply is {}", response.status);
            let mut counters = Self::of_tracker(std::str::from_utf8(&response.body)?);
            let [snmp, devices] =
                ["snmp", "dev"].map(|name| fs::read_to_string(format!("/proc/thread-self/net/{name}")));
            counters.add_kernel(&snmp?, &devices?, pair.tracker_interface());
            Ok(counters)
        })?
    }

    /// Parses the metrics of a tracker.
    fn of_tracker(metrics: &str) -> Self {
        let mut counters = Self::default();
        for (name, labels, value) in metrics.lines().filter_map(series) {
            let of_key = |key: &&str| {
                let mut labels = labels.split(',');
                labels.find_map(|label| label.strip_prefix(*key)?.strip_prefix("=\"")?.strip_suffix('"'))
            };
            let reason = ["reason", "path"].iter().find_map(of_key).unwrap_or_default();
            let kind = match (name, reason) {
                ("shoal_xdp_frames", _) => {
                    counters.frames = value;
                    continue;
                }
                ("shoal_xdp_frames_free", _) => {
                    counters.frames_free = value;
                    continue;
                }
                ("shoal_drops_total", _) => "tracker",
                ("shoal_reply_drops_total", _) => "reply",
                // Replies without a place in the ring are among the ones above.
                ("shoal_xdp_drops_total", reason) if reason != "transmit_full" => "socket",
                // The tracker does not count these itself: it does count those beyond the limits.
                ("shoal_xdp_packets_total", "denied" | "unanswerable") => "program",
                _ => continue,
            };
            *counters.process.entry(format!("{kind}/{reason}")).or_default() += value;
        }
        counters
    }

    /// Adds the counts of UDP and IP (proc_net_snmp), and those of the interface (proc_net_dev).
    fn add_kernel(&mut self, snmp: &str, devices: &str, interface: &str) {
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
            self.host.insert(name.to_owned(), counter(snmp, protocol, field).unwrap_or(0));
        }
        let line = devices.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
        // Eight numbers of what was received, then bytes, packets, errors and drops of what was sent.
        let dropped = line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok());
        self.host.insert(REPLIES_DROPPED.to_owned(), dropped.unwrap_or(0));
    }

    /// Adds the counts of the drivers at both ends, as `ethtool -S` prints them.
    fn add_drivers(&mut self, load: &str, tracker: &str) {
        let wanted = [
            (QUEUED, load, "tx_queue_0_xdp_xmit"),
            (QUEUE_FULL, load, "tx_queue_0_xdp_xmit_errors"),
            (REPLY_QUEUE_FULL, tracker, "rx_queue_0_xdp_tx_errors"),
            (REDIRECTS_FAILED, tracker, "rx_queue_0_drops"),
        ];
        for (name, text, field) in wanted {
            let value = text.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(':'));
            self.host.insert(name.to_owned(), value.and_then(|value| value.trim().parse().ok()).unwrap_or(0));
        }
    }

    /// Makes these the counters before a round in which a process has ended, whose last counters are `last`: the next one
    /// counts from 0.
    pub(crate) fn begin_anew(&mut self, last: &Self) {
        for (name, value) in &mut self.process {
            // The counts of the process in this round are added to those of the next one.
            *value = value.wrapping_sub(last.process.get(name).copied().unwrap_or(0));
        }
    }

    /// Returns what was counted since `before`, each datagram once, by counter. [`QUEUED`] is among the counters.
    pub(crate) fn since(&self, before: &Self) -> BTreeMap<String, u64> {
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
        for (name, counted) in COUNTED_TWICE {
            let counted: u64 = counted.iter().filter_map(|name| drops.get(*name)).sum();
            if let Some(all) = drops.get_mut(name) {
                *all = all.saturating_sub(counted);
            }
        }
        drops.retain(|_, value| *value > 0);
        drops
    }

    pub(crate) fn are_all_frames_free(&self) -> bool {
        self.frames > 0 && self.frames_free == self.frames
    }
}

/// Returns the name, the labels and the value of a line of metrics, if it is a whole number.
fn series(line: &str) -> Option<(&str, &str, u64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    Some((name, labels.strip_suffix('}')?, value.parse().ok()?))
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
        let expected = [
            ("driver/queue-full", 2),
            // Six of these are those of the socket.
            ("driver/redirects-failed", 2),
            ("program/denied", 7),
            (QUEUED, 900),
            ("reply/buffer_full", 5),
            ("socket/kernel_ring_full", 6),
            ("tracker/malformed", 7),
        ];
        assert_eq!(counters.since(&Counters::default()), drops(expected));
        assert_eq!((counters.frames, counters.frames_free), (4096, 4000));
        assert!(!counters.are_all_frames_free() && !Counters::default().are_all_frames_free());
    }

    #[test]
    fn replies_without_a_route_are_counted_once() {
        let of = |unreachable: u64, without_route: u64| {
            let metrics = format!("shoal_reply_drops_total{{reason=\"unreachable\"}} {unreachable}\n");
            let mut counters = Counters::of_tracker(&metrics);
            counters.add_kernel(&format!("Ip: OutNoRoutes\nIp: {without_route}\n"), "", "trk1");
            counters.since(&Counters::default())
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
        let expected = [
            (REPLY_QUEUE_FULL, 371),
            (REPLIES_DROPPED, 2512 - 371 - 427),
            ("kernel/ip-replies-discarded", 427),
        ];
        assert_eq!(counters.since(&Counters::default()), drops(expected));
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
        assert_eq!(counters.since(&Counters::default()), drops(expected));
    }

    #[test]
    fn a_new_process_goes_on_where_the_last_one_has_ended() {
        let of = |malformed: u64| {
            Counters::of_tracker(&format!("shoal_drops_total{{reason=\"malformed\"}} {malformed}\n"))
        };
        let mut before = of(10);
        before.begin_anew(&of(13));
        assert_eq!(of(2).since(&before), drops([("tracker/malformed", 5)]));
    }
}
