//! The metrics of the XDP data path.

use core::fmt;

use shoal_net::XdpCounters;

use super::Sources;
use super::page::Page;
use crate::operations::DataPathFigures;

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
        let labels = move |path: &str| [("interface", interface.name.clone()), ("path", path.to_owned())];
        interface.counts.by_path().into_iter().map(move |(path, count)| (labels(path), count))
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
    let sockets = || sources.workers.iter().map(|worker| &worker.io.xdp);
    let sum = |read: fn(&XdpCounters) -> u64| -> u64 { sockets().map(read).sum() };
    page.sums(sockets())?;
    page.gauge("shoal_xdp_sockets", "Number of AF_XDP sockets in use.", None, sum(|xdp| xdp.sockets.read()))?;
    let frames = sum(|xdp| xdp.frames_total.read());
    page.gauge("shoal_xdp_frames", "Number of frames of all AF_XDP sockets.", None, frames)?;
    page.gauge(
        "shoal_xdp_frames_free",
        "Number of frames that are free or wait for a datagram. The others are being answered or sent.",
        None,
        sum(|xdp| xdp.frames_free.read()),
    )
}
