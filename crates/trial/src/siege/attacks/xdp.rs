//! Attacks on the XDP data path, by frames on a wire of its own.
//!
//! Honest clients over loopback are served beside them as ever. Others use the wire, so they share the program, the rings and the worker with
//! the attackers.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::measure::{as_f64, count, now};
use crate::siege::attack::{Attack, Layer, Limits, Mode, Setting};
use crate::siege::cluster::metric;
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::udp::{self, Announce, connect_packet, leecher, random_hash, scrape_packet};
use crate::siege::wire::{
    CLIENT_MAC, Datagram, FORGER_MAC, Frames, HONEST, HOSTILE_NETWORKS, TRACKER_V4, TRACKER_V6, forged,
    repair_ipv4,
};

/// Frames that are sent at a time. The queue of a virtual interface holds 256.
const BURST: usize = 64;

/// Frames without a reply before an attacker waits whose frames are all answered. More could overflow the queues of the interfaces,
/// which also drop what is for honest clients; no tracker can prevent that.
const UNANSWERED_MAX: u64 = 128;

/// How often such an attacker looks for replies, and the pause between, before it counts them as lost.
const REPLY_LOOKS_MAX: u32 = 200;
const REPLY_LOOK: Duration = Duration::from_micros(50);

/// Distinct frames of a flood.
const FRAMES: usize = 4096;

/// The most time of the tracker's processes for a frame that the program answers or drops: the honest clients beside it, and
/// nothing else.
const DRIVER_US_MAX: f64 = 2.0;

/// The most time of the tracker's processes for a frame that a worker refuses.
const WORKER_US_MAX: f64 = 5.0;

/// How often the tracker is stopped, and for how long.
const STOPS: u32 = 3;
const STOP: Duration = Duration::from_millis(250);

/// Frames while it is stopped: twice as many as its ring has places.
const FRAMES_PER_STOP: usize = 4096;

/// How often counters are read before they count as wrong, and the pause between.
const LOOKS_MAX: u32 = 50;
const LOOK_MS: u64 = 100;

const LISTEN: &str =
    "127.0.0.1:TRACKER_PORT,[2001:db8::1]:TRACKER_PORT,198.18.0.1:TRACKER_PORT,[2001:2::1]:TRACKER_PORT";

pub(super) const SETTINGS: &[Setting] =
    &[("udp.listen", LISTEN), ("udp.xdp.interfaces", crate::siege::wire::INTERFACE)];

/// The list of denied networks, in place of which [`deny`] writes a file.
const DENYING: &[Setting] = &[
    ("udp.listen", LISTEN),
    ("udp.xdp.interfaces", crate::siege::wire::INTERFACE),
    ("access.networks_deny", "TRACKER_FOLDER/networks"),
];

/// Distinct frames of the flood above a limit, few enough to use up the burst of each address at once.
const LIMITED_FRAMES: usize = 256;

/// The limit in [`LIMITING`].
const LIMIT_PER_S: u64 = 5;
const LIMIT_BURST_S: u64 = 10;

/// A limit that the honest clients, which ask for a few connection ids, do not reach.
const LIMITING: &[Setting] = &[
    ("udp.listen", LISTEN),
    ("udp.xdp.interfaces", crate::siege::wire::INTERFACE),
    ("limits.udp_connects_per_s", "5"),
    ("limits.burst_s", "10"),
];

/// The part that all these attacks have in common.
pub(super) const ATTACK: Attack = Attack {
    is_on_wire: true,
    settings: SETTINGS,
    limits: Limits::SWARMS_STAY,
    finish: check_frames,
    ..Layer::Xdp.attack("", "", "", |_| Ok(()))
};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "spoofed-connects",
        tries: "connects from 4,096 addresses and ports, as fast as the wire carries the replies",
        promise: "the program answers them with no more bytes than they have, at most 2 µs of the tracker's processes each, and honest clients are answered",
        run: spoofed_connects,
        ..ATTACK
    },
    Attack {
        name: "denied-flood",
        tries: "connects and announces from denied networks, without a pause",
        promise: "none is answered, at most 2 µs of the tracker's processes each, and honest clients are answered",
        settings: DENYING,
        prepare: deny,
        run: denied_flood,
        ..ATTACK
    },
    Attack {
        name: "limited-flood",
        tries: "connects from 256 addresses far above their limit, without a pause",
        promise: "the program answers no more than the limit, no reply is longer than its request, at most 2 µs of the tracker's processes each, and honest clients are answered",
        settings: LIMITING,
        run: limited_flood,
        ..ATTACK
    },
    Attack {
        name: "malformed-frames",
        tries: "frames truncated at every byte, with wrong lengths and checksums, fragments, chains of IPv6 extension headers, jumbo datagrams, random bytes",
        promise: "none harms the tracker or is answered with more bytes than it has, and no frame of the data path is lost",
        run: malformed_frames,
        ..ATTACK
    },
    Attack {
        name: "forged-connection-ids",
        tries: "announces and scrapes with forged connection ids from 4,096 addresses and ports, without a pause",
        promise: "none is answered, each costs the tracker at most 5 µs, and honest clients are answered",
        run: forged_ids,
        ..ATTACK
    },
    Attack {
        name: "forged-sources",
        tries: "a neighbour asks for connection ids with the addresses of others (public, private, link-local, class E, of the segment), and with the tags of VLANs that the tracker's host has no part in, one or two; it announces with those that it gets",
        promise: "it gets no connection id, no other address is registered, and no frame of another VLAN is answered",
        run: forged_sources,
        ..ATTACK
    },
    Attack {
        name: "ring-not-drained",
        tries: "more announces than the ring of the worker holds, while the tracker is stopped (SIGSTOP)",
        promise: "the program leaves to the kernel what finds no place, no frame is dropped at the ring, and the tracker goes on",
        run: ring_not_drained,
        ..ATTACK
    },
];

/// Denies the networks of the attackers.
fn deny(folder: &Path) -> Result<()> {
    fs::write(folder.join("networks"), HOSTILE_NETWORKS.join("\n")).context("cannot write a list")
}

fn port(context: &Context<'_>) -> u16 {
    context.tracker.udp(HONEST[0]).port()
}

/// Returns the frames of a flood, from random addresses.
fn make(context: &Context<'_>, mut payload: impl FnMut() -> Vec<u8>) -> Vec<Vec<u8>> {
    let port = port(context);
    (0..FRAMES).map(|_| Datagram::random(port, payload()).frame()).collect()
}

/// Sends frames over and over until the end of the window. Calls `pause` after each burst.
fn flood(context: &Context<'_>, all: &[Vec<u8>], mut pause: impl FnMut(&mut Frames)) -> Result<Frames> {
    let mut frames = context.wire()?.frames()?;
    'flood: loop {
        for burst in all.chunks(BURST) {
            burst.iter().for_each(|frame| frames.send(frame));
            frames.drain();
            pause(&mut frames);
            if context.is_window_over() {
                break 'flood;
            }
        }
    }
    context.sleep_ms(LOOK_MS);
    frames.drain();
    context.spend(frames.sent, frames.sent_bytes);
    Ok(frames)
}

/// Returns a pause until few frames are without a reply.
pub(super) fn until_answered() -> impl FnMut(&mut Frames) {
    let mut lost = 0;
    move |frames| {
        for _ in 0..REPLY_LOOKS_MAX {
            if frames.sent <= frames.received + lost + UNANSWERED_MAX - count(BURST) {
                return;
            }
            std::thread::sleep(REPLY_LOOK);
            frames.drain();
        }
        lost = frames.sent - frames.received;
    }
}

/// Runs a flood, and checks the time of the tracker's processes for each frame in full mode.
fn flood_within(
    context: &Context<'_>,
    all: &[Vec<u8>],
    us_max: f64,
    pause: impl FnMut(&mut Frames),
) -> Result<Frames> {
    let before_ns = context.tracker.cpu_ns();
    let frames = flood(context, all, pause)?;
    let us = as_f64(context.tracker.cpu_ns().saturating_sub(before_ns)) / 1000.0 / as_f64(frames.sent.max(1));
    if context.mode == Mode::Full {
        context.check("time of the tracker for each frame", us <= us_max, format!("{us:.2} µs"));
    }
    Ok(frames)
}

fn path(context: &Context<'_>, name: &str) -> Result<u64> {
    metric(context.tracker, &format!("shoal_xdp_packets_total{{interface=\"server\",path=\"{name}\"}}"))
}

/// Checks that a path was taken by nearly all frames. The queue of the interface may drop some.
fn check_path(context: &Context<'_>, name: &str, before: u64, frames: &Frames) -> Result<()> {
    let taken = path(context, name)? - before;
    let found = format!("{taken} of {}", frames.sent);
    context.check(format!("frames that took the path {name}"), taken * 10 >= frames.sent * 9, found);
    Ok(())
}

fn check_no_reply(context: &Context<'_>, frames: &Frames) {
    context.check("replies", frames.received == 0, format!("{} to {} frames", frames.received, frames.sent));
}

fn check_amplification(context: &Context<'_>, frames: &Frames) {
    let found = format!("{} bytes back for {} bytes", frames.received_bytes, frames.sent_bytes);
    context.check("bytes sent back", frames.received_bytes <= frames.sent_bytes, found);
}

/// Checks that all frames of the data path are free.
fn check_frames(context: &Context<'_>) -> Result<()> {
    let total = metric(context.tracker, "shoal_xdp_frames ")?;
    let mut free = 0;
    for _ in 0..LOOKS_MAX {
        free = metric(context.tracker, "shoal_xdp_frames_free ")?;
        if free == total {
            break;
        }
        context.sleep_ms(LOOK_MS);
    }
    context.check("free frames", total > 0 && free == total, format!("{free} of {total}"));
    Ok(())
}

fn spoofed_connects(context: &Context<'_>) -> Result<()> {
    let before = path(context, "answered")?;
    let frames = flood_within(context, &make(context, connect_packet), DRIVER_US_MAX, until_answered())?;
    check_path(context, "answered", before, &frames)?;
    context.check("replies", frames.received > 0, format!("{} to {} frames", frames.received, frames.sent));
    check_amplification(context, &frames);
    Ok(())
}

fn denied_flood(context: &Context<'_>) -> Result<()> {
    let before = path(context, "denied")?;
    let payload = || if fastrand::bool() { connect_packet() } else { forged_request() };
    let frames = flood_within(context, &make(context, payload), DRIVER_US_MAX, |_| {})?;
    check_path(context, "denied", before, &frames)?;
    check_no_reply(context, &frames);
    Ok(())
}

fn limited_flood(context: &Context<'_>) -> Result<()> {
    let (before, start) = (path(context, "rate_limited")?, now());
    let mut all = make(context, connect_packet);
    all.truncate(LIMITED_FRAMES);
    let frames = flood_within(context, &all, DRIVER_US_MAX, |_| {})?;
    let dropped = path(context, "rate_limited")? - before;
    let found = format!("{dropped} of {}", frames.sent);
    context.check("frames over the limit", dropped + frames.received >= frames.sent / 10 * 9, found);
    let seconds = LIMIT_BURST_S + (now() - start).as_secs() + 1;
    let replies_max = count(LIMITED_FRAMES) * LIMIT_PER_S * seconds;
    ensure!(frames.sent > 2 * replies_max, "{} frames are too few to go far beyond the limit", frames.sent);
    let found = format!("{}, at most {replies_max}", frames.received);
    context.check("replies", frames.received <= replies_max, found);
    check_amplification(context, &frames);
    let longest = all.iter().map(Vec::len).max().unwrap_or(0);
    let found = format!("{} bytes, requests up to {longest}", frames.longest_received);
    context.check("the longest reply", frames.longest_received <= longest, found);
    Ok(())
}

/// Returns an announce or a scrape with a random connection id.
fn forged_request() -> Vec<u8> {
    match fastrand::bool() {
        true => Announce { numwant: 200, ..leecher([3; 20], 9000) }.packet(fastrand::u64(..), 1),
        false => scrape_packet(fastrand::u64(..), 2, &[[3; 20]; 74]),
    }
}

fn forged_ids(context: &Context<'_>) -> Result<()> {
    let before = path(context, "worker")? + path(context, "backlog")?;
    let frames = flood_within(context, &make(context, forged_request), WORKER_US_MAX, |_| {})?;
    let taken = path(context, "worker")? + path(context, "backlog")? - before;
    let found = format!("{taken} of {}", frames.sent);
    context.check("frames that were passed on", taken * 10 >= frames.sent * 9, found);
    check_no_reply(context, &frames);
    Ok(())
}

/// Addresses that a neighbour has no right to, with a port each.
const FORGED_SOURCES: [&str; 14] = [
    "8.8.8.8:53",
    "10.1.2.3:6881",
    "192.168.1.1:6881",
    "100.64.0.9:6881",
    "169.254.7.7:6881",
    "240.0.0.1:6881",
    // The honest client, another address of the segment that no host has, and one of the attackers' network.
    "198.18.0.2:7001",
    "198.18.7.7:6881",
    "198.19.0.7:6881",
    "[2001:4860:4860::8888]:53",
    "[fd00::7]:6881",
    "[fe80::7]:6881",
    "[2001:2::2]:7001",
    "[2001:2::77]:6881",
];

/// Tags of no VLAN, of one, of two, and of one with a priority before it. The tracker's host has no VLAN.
const TAGS: [&[[u8; 4]]; 6] = [
    &[],
    &[[0x81, 0, 0, 0]],
    &[[0x81, 0, 0, 7]],
    &[[0x88, 0xa8, 0, 7]],
    &[[0x88, 0xa8, 0, 7], [0x81, 0, 0, 7]],
    &[[0x81, 0, 0, 0], [0x81, 0, 0, 7]],
];

fn forged_sources(context: &Context<'_>) -> Result<()> {
    let (port, hash, mut frames) = (port(context), random_hash(), context.wire()?.frames()?);
    let sources = FORGED_SOURCES.iter().map(|source| Ok(source.parse::<SocketAddr>()?));
    let sources = sources.collect::<Result<Vec<_>>>()?;
    let mut stolen = 0;
    while !context.is_window_over() {
        for tags in TAGS {
            for source in &sources {
                frames.send(&forged(*source, FORGER_MAC, tags, port, &connect_packet())?);
            }
        }
        context.sleep_ms(LOOK_MS / 10);
        for (source, id) in frames.take_ids(FORGER_MAC) {
            stolen += 1;
            let announce = leecher(hash, source.port()).packet(id, 1);
            frames.send(&forged(source, FORGER_MAC, &[], port, &announce)?);
        }
    }
    context.check("connection ids of others", stolen == 0, format!("{stolen} of {}", frames.sent));
    if stolen == 0 {
        let left = path(context, "no_route_back")? + path(context, "other_vlan")?;
        let found = format!("{left} of {}", frames.sent);
        context.check("frames that were left to the kernel", left * 2 >= frames.sent, found);
    }
    check_other_vlans(context, &mut frames)?;
    for (own, tracker) in HONEST.into_iter().zip([IpAddr::from(TRACKER_V4), TRACKER_V6.into()]) {
        let target = SocketAddr::new(tracker, port);
        let scrape = || udp::open(own, target, TIMEOUT)?.scrape(&[hash]);
        let members = context.wire()?.on_client_side(scrape)?[0].members();
        let family = if own.is_ipv4() { "IPv4" } else { "IPv6" };
        context.check(format!("addresses registered over {family}"), members == 0, members.to_string());
    }
    context.spend(frames.sent, frames.sent_bytes);
    Ok(())
}

/// Checks that frames with tags of other VLANs get no reply, even if all else about them is right.
fn check_other_vlans(context: &Context<'_>, frames: &mut Frames) -> Result<()> {
    frames.drain();
    let before = frames.received;
    for tags in TAGS.into_iter().filter(|tags| tags.iter().any(|tag| tag[3] != 0)) {
        let source = SocketAddr::from(([198, 19, 0, 9], 6881));
        frames.send(&forged(source, CLIENT_MAC, tags, port(context), &connect_packet())?);
    }
    context.sleep_ms(LOOK_MS);
    frames.drain();
    let replies = frames.received - before;
    context.check("replies to other VLANs", replies == 0, replies.to_string());
    Ok(())
}

fn malformed_frames(context: &Context<'_>) -> Result<()> {
    let names = ["malformed", "bad_checksum", "fragment", "extension_headers", "too_long"];
    let read = || names.into_iter().map(|name| path(context, name)).collect::<Result<Vec<u64>>>();
    let before = read()?;
    let mut all: Vec<Vec<u8>> = (0..FRAMES).map(|_| malformed(port(context))).collect();
    fastrand::shuffle(&mut all);
    let frames = flood(context, &all, |_| {})?;
    check_amplification(context, &frames);
    for ((name, before), after) in names.into_iter().zip(before).zip(read()?) {
        context.check(
            format!("frames that are counted as {name}"),
            after > before,
            (after - before).to_string(),
        );
    }
    Ok(())
}

/// Returns a frame with something wrong, or at least unusual.
fn malformed(port: u16) -> Vec<u8> {
    let payload = if fastrand::bool() { connect_packet() } else { forged_request() };
    let mut datagram = Datagram::random(port, payload);
    match fastrand::u8(..8) {
        0 => {
            let mut frame = datagram.frame();
            frame.truncate(fastrand::usize(14..frame.len()));
            frame
        }
        1 => with_wrong_length(&datagram),
        2 => with_wrong_byte(&datagram),
        3 => as_fragment(&mut datagram),
        4 => with_extensions(datagram),
        5 => jumbo(datagram),
        6 => with_options(&mut datagram),
        _ => with_random_headers(&datagram),
    }
}

/// Returns a frame with another length of IP or UDP, and a right checksum of the header.
fn with_wrong_length(datagram: &Datagram) -> Vec<u8> {
    let mut frame = datagram.frame();
    let places: [usize; 2] = if datagram.is_v6 { [18, 58] } else { [16, 38] };
    let place = places[fastrand::usize(..2)];
    let length = [0, 7, fastrand::u16(..), u16::MAX][fastrand::usize(..4)];
    frame[place..place + 2].copy_from_slice(&length.to_be_bytes());
    if !datagram.is_v6 {
        repair_ipv4(&mut frame);
    }
    frame
}

/// Returns a frame of which one bit behind the lengths is flipped, so that a checksum is wrong.
fn with_wrong_byte(datagram: &Datagram) -> Vec<u8> {
    let mut frame = datagram.frame();
    let place = fastrand::usize(if datagram.is_v6 { 62 } else { 42 }..frame.len());
    frame[place] ^= 1 << fastrand::u8(..8);
    frame
}

/// Returns a fragment of which the others never come.
fn as_fragment(datagram: &mut Datagram) -> Vec<u8> {
    if datagram.is_v6 {
        let (offset, identification) = ((fastrand::u16(..) & 0xfff8) | 1, fastrand::u32(..));
        let header = [&[17, 0][..], &offset.to_be_bytes(), &identification.to_be_bytes()].concat();
        datagram.extensions = Some((44, header));
        return datagram.frame();
    }
    let mut frame = datagram.frame();
    frame[18..20].copy_from_slice(&fastrand::u16(..).to_be_bytes());
    let more_and_offset = 0x2000 | fastrand::u16(..0x1fff);
    frame[20..22].copy_from_slice(&more_and_offset.to_be_bytes());
    repair_ipv4(&mut frame);
    frame
}

/// Returns a datagram behind a chain of extension headers, which are padding.
fn with_extensions(datagram: Datagram) -> Vec<u8> {
    let headers = fastrand::usize(1..60);
    let mut chain = Vec::new();
    for number in 1..=headers {
        let next = if number == headers { 17 } else { 60 };
        // Options for the destination: one of padding, six bytes long.
        chain.extend_from_slice(&[next, 0, 1, 4, 0, 0, 0, 0]);
    }
    Datagram { is_v6: true, extensions: Some((60, chain)), ..datagram }.frame()
}

/// Returns a datagram that is longer than any request.
fn jumbo(datagram: Datagram) -> Vec<u8> {
    let mut payload = datagram.payload.clone();
    payload.resize(fastrand::usize(2000..3300), 1);
    Datagram { payload, ..datagram }.frame()
}

/// Returns a datagram behind options of IPv4, which are no operation.
fn with_options(datagram: &mut Datagram) -> Vec<u8> {
    datagram.is_v6 = false;
    let mut frame = datagram.frame();
    let words = fastrand::u8(1..=10);
    frame.splice(34..34, std::iter::repeat_n(1, usize::from(words) * 4));
    frame[14] = 0x45 + words;
    // The checksum covers the first 20 bytes only, so it is wrong.
    repair_ipv4(&mut frame);
    frame
}

/// Returns a frame with random bytes in place of some of the headers.
fn with_random_headers(datagram: &Datagram) -> Vec<u8> {
    let mut frame = datagram.frame();
    let start = fastrand::usize(12..42);
    fastrand::fill(&mut frame[start..42]);
    frame
}

fn ring_not_drained(context: &Context<'_>) -> Result<()> {
    let read = |metric_name: &str| metric(context.tracker, metric_name);
    let full = "shoal_xdp_drops_total{reason=\"kernel_ring_full\"}";
    let before = (path(context, "worker")?, path(context, "backlog")?, read(full)?);
    let all = make(context, forged_request);
    let mut frames = context.wire()?.frames()?;
    for _ in 0..STOPS {
        context.tracker.signal(Signal::STOP)?;
        for burst in all.chunks(BURST).take(FRAMES_PER_STOP / BURST) {
            burst.iter().for_each(|frame| frames.send(frame));
        }
        std::thread::sleep(STOP);
        context.tracker.signal(Signal::CONT)?;
        context.sleep_ms(LOOK_MS * 5);
    }
    frames.drain();
    context.spend(frames.sent, frames.sent_bytes);
    let left = path(context, "backlog")? - before.1;
    context.check("frames that were left to the kernel", left > 0, format!("{left} of {}", frames.sent));
    let passed = path(context, "worker")? - before.0 + left;
    ensure!(frames.sent >= count(FRAMES_PER_STOP), "the frames were not sent");
    let found = format!("{passed} of {}", frames.sent);
    context.check("frames that were passed on", passed * 10 >= frames.sent * 9, found);
    let dropped = read(full)? - before.2;
    context.check("frames dropped at the ring", dropped == 0, dropped.to_string());
    check_no_reply(context, &frames);
    Ok(())
}
