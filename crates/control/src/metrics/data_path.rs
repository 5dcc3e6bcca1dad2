//! The metrics of the XDP data path.

use core::fmt;

use shoal_net::XdpCounters;

use super::Sources;
use super::page::Page;
use crate::operations::{DataPathFigures, InterfaceStats};

/// Appends the work of all interfaces' programs and of the AF_XDP sockets, if there are any.
pub(super) fn encode(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let stats = sources.data_path.as_deref();
    let interfaces = stats.map(DataPathFigures::interfaces).unwrap_or_default();
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
    )?;
    encode_sockets(sources, page)
}

/// Appends the frames of the AF_XDP sockets of all workers.
fn encode_sockets(sources: &Sources, page: &mut Page<'_>) -> fmt::Result {
    let sum = |read: fn(&XdpCounters) -> u64| -> u64 {
        sources.workers.iter().map(|worker| read(&worker.io.xdp)).sum()
    };
    let drops = [
        ("malformed", sum(|xdp| xdp.malformed.read())),
        ("bad_checksum", sum(|xdp| xdp.bad_checksum.read())),
        ("transmit_full", sum(|xdp| xdp.transmit_full.read())),
        ("bad_descriptor", sum(|xdp| xdp.bad_descriptors.read())),
        ("kernel_ring_full", sum(|xdp| xdp.kernel_ring_full.read())),
        ("kernel_other", sum(|xdp| xdp.kernel_dropped.read())),
        ("kernel_invalid", sum(|xdp| xdp.kernel_invalid.read())),
    ];
    page.counters(
        "shoal_xdp_drops",
        "Frames and replies that were dropped at AF_XDP sockets, by reason.",
        drops.map(|(reason, count)| ([("reason", reason)], count)),
    )?;
    page.gauge("shoal_xdp_sockets", "Number of AF_XDP sockets in use.", None, sum(|xdp| xdp.sockets.read()))?;
    page.counter(
        "shoal_xdp_sockets_lost",
        "AF_XDP sockets that were given up, because their interface was removed or its rings were of no use.",
        sum(|xdp| xdp.lost.read()),
    )?;
    let frames = sum(|xdp| xdp.frames_total.read());
    page.gauge("shoal_xdp_frames", "Number of frames of all AF_XDP sockets.", None, frames)?;
    page.gauge(
        "shoal_xdp_frames_free",
        "Number of frames that are free or wait for a datagram. The others are being answered or sent.",
        None,
        sum(|xdp| xdp.frames_free.read()),
    )
}

/// Returns the paths of packets, and how many took each.
fn paths(interface: &InterfaceStats) -> [(&'static str, u64); 15] {
    let counts = &interface.counts;
    [
        ("answered", counts.connects_v4 + counts.connects_v6),
        ("denied", counts.denied),
        ("rate_limited", counts.rate_limited()),
        ("unanswerable", counts.unanswerable),
        ("worker", counts.redirected),
        ("no_socket", counts.no_socket),
        ("backlog", counts.backlog_full),
        ("malformed", counts.malformed),
        ("bad_checksum", counts.bad_checksum),
        ("fragment", counts.fragments),
        ("extension_headers", counts.extension_headers),
        ("too_long", counts.too_long),
        ("other_vlan", counts.other_vlan),
        ("no_route_back", counts.no_route_back),
        ("stale", counts.stale),
    ]
}
