//! The metrics of the XDP data path.

use core::fmt;

use super::page::Page;
use crate::xdp::{DataPathStats, InterfaceStats};

/// Appends what the programs of all interfaces did, if there are any.
pub(super) fn encode(stats: Option<&DataPathStats>, page: &mut Page<'_>) -> fmt::Result {
    let interfaces = stats.map(DataPathStats::interfaces).unwrap_or_default();
    let detached = interfaces.iter().filter(|interface| interface.mode.is_none()).count();
    page.gauge(
        "shoal_xdp_detached",
        "Number of interfaces that have lost their XDP program.",
        None,
        detached as u64,
    )?;
    if interfaces.is_empty() {
        return Ok(());
    }
    let packets = interfaces.iter().flat_map(|interface| {
        let labels = |path| [("interface", interface.name.clone()), ("path", path)];
        paths(interface).map(|(path, count)| (labels(path.to_owned()), count))
    });
    page.counters(
        "shoal_xdp_packets",
        "Packets for the tracker at an interface with an XDP program, by what the program did with them.",
        packets,
    )?;
    let attached = interfaces.iter().map(|interface| {
        let mode = interface.mode.unwrap_or("none").to_owned();
        ([("interface", interface.name.clone()), ("mode", mode)], u64::from(interface.mode.is_some()))
    });
    page.gauges(
        "shoal_xdp_attached",
        "Whether the interface has the XDP program, and whether it runs in the driver (native) or in the kernel (generic).",
        None,
        attached,
    )
}

/// Returns the paths of packets, and how many took each.
fn paths(interface: &InterfaceStats) -> [(&'static str, u64); 12] {
    let counts = &interface.counts;
    [
        ("answered", counts.connects_v4 + counts.connects_v6),
        ("denied", counts.denied),
        ("rate_limited", counts.rate_limited),
        ("unanswerable", counts.unanswerable),
        ("worker", counts.redirected),
        ("no_socket", counts.no_socket),
        ("backlog", counts.backlog_full),
        ("malformed", counts.malformed),
        ("bad_checksum", counts.bad_checksum),
        ("fragment", counts.fragments),
        ("extension_headers", counts.extension_headers),
        ("stale", counts.stale),
    ]
}
