//! Readers of the control listener that read slowly or not at all, and those that wait.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};

use anyhow::{Context as _, Result};
use serde_json::Value;
use shoal_testkit::client::{is_timeout, tcp_with_small_window};

use super::operator::{self, beside};
use crate::measure::count;
use crate::siege::address::hostile_v4;
use crate::siege::attacks::holding::{Holding, Reading};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::control_request;
use crate::siege::udp::{announce_all, leecher};

/// The number of slow readers, from thirty addresses.
const READERS: u32 = 1000;

/// The maximum number of feeds and of other connections that are open at a time (docs/control.md).
const STREAMS_MAX: usize = 40;
const CONNECTIONS_MAX: usize = 64;

/// Connections of honest clients, and files that the tracker opens for a moment.
const OTHER_FILES_MAX: usize = 40;

fn sources() -> Vec<IpAddr> {
    (1..=30).map(hostile_v4).collect()
}

/// Holds connections that send a request and read the response slowly.
pub(super) fn hold(context: &Context<'_>, request: &[u8]) -> Result<()> {
    hold_with(context, request, b"")
}

/// Holds connections that send these bytes, and then one of `trickle` in each round. Checks how many are open.
pub(super) fn hold_with(context: &Context<'_>, opening: &[u8], trickle: &[u8]) -> Result<()> {
    let open = beside(context, || {
        Holding {
            target: context.tracker.control(),
            sources: sources(),
            connections: READERS,
            opening,
            trickle,
            reading: Reading::Slowly,
        }
        .run(context);
        Ok(())
    })?;
    let held = open <= CONNECTIONS_MAX + OTHER_FILES_MAX;
    context.check("open connections", held, format!("{open} of {READERS}"));
    Ok(())
}

/// Readers of the status page.
pub(super) fn page(context: &Context<'_>) -> Result<()> {
    hold(context, &control_request("GET", "/", "", None))
}

/// Readers of the metrics, which do not fit the buffers of the kernel.
pub(super) fn metrics(context: &Context<'_>) -> Result<()> {
    hold(context, &control_request("GET", "/metrics", "", None))
}

/// Requests that wait for a change, again and again.
pub(super) fn long_polls(context: &Context<'_>) -> Result<()> {
    let cursor = cursor(context)?;
    let target = format!("/api/v1/changes?cursor={cursor}&wait_s=10");
    hold(context, &control_request("GET", &target, "", None))
}

/// Opens feeds that are not read, and changes many torrents.
pub(super) fn stalled_feeds(context: &Context<'_>) -> Result<()> {
    let first = cursor(context)?;
    let mut streams = Vec::new();
    beside(context, || {
        for target in ["/status/events", "/api/v1/changes"] {
            let request = control_request("GET", target, "Accept: text/event-stream\r\n", None);
            for number in 0..READERS / 2 {
                streams.extend(stalled(context, number % 30, &request)?);
            }
        }
        let torrents = context.pick(20_000, 100_000);
        let client = context.udp(hostile_v4(200))?;
        let peers = (0..torrents).map(|number: u32| {
            let mut hash = [1; 20];
            hash[..4].copy_from_slice(&number.wrapping_mul(2_654_435_769).to_be_bytes());
            leecher(hash, 7200)
        });
        context.spend_flow(announce_all(&client, peers, || context.is_over(), |_| {}));
        follow(context, first, u64::from(torrents))
    })?;
    let open = streams.iter_mut().map(is_feed).filter(|is_open| *is_open).count();
    context.check("open feeds", (1..=STREAMS_MAX).contains(&open), format!("{open} of {READERS}"));
    Ok(())
}

/// Follows the changes from `cursor` and checks that they are told, or that the reader is told to start over.
fn follow(context: &Context<'_>, mut cursor: String, torrents: u64) -> Result<()> {
    let mut told = 0;
    let mut starts_over = false;
    while told < torrents && !starts_over && !context.is_over() {
        let target = format!("/api/v1/changes?cursor={cursor}&wait_s=1");
        let changes = operator::document(context, "GET", &target, None)?;
        told += count(changes["torrents"].as_array().map_or(0, Vec::len));
        starts_over = changes["start_over"] == true;
        cursor = text(&changes["cursor"])?;
        // The rate of one client is limited.
        context.sleep_ms(20);
    }
    let found = if starts_over { "told to start over".to_owned() } else { format!("{told} of {torrents}") };
    context.check("a reader of the feed has them all", starts_over || told >= torrents, found);
    Ok(())
}

/// Returns the cursor of a reader that begins.
fn cursor(context: &Context<'_>) -> Result<String> {
    text(&operator::document(context, "GET", "/api/v1/changes", None)?["cursor"])
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().context("no cursor")?.to_owned())
}

/// Opens a connection that sends a request and does not read.
fn stalled(context: &Context<'_>, source: u32, request: &[u8]) -> Result<Option<TcpStream>> {
    let opened = tcp_with_small_window(hostile_v4(source + 1), context.tracker.control(), TIMEOUT);
    let Ok(mut stream) = opened else { return Ok(None) };
    if stream.write_all(request).is_err() {
        return Ok(None);
    }
    context.spend(1, count(request.len()));
    stream.set_nonblocking(true)?;
    Ok(Some(stream))
}

/// Reads the beginning of the response, and returns whether it is a feed that is still open.
fn is_feed(stream: &mut TcpStream) -> bool {
    let mut head = [0; 12];
    let is_ok = stream.read_exact(&mut head).is_ok() && head.ends_with(b" 200");
    let mut piece = [0; 64 << 10];
    is_ok
        && loop {
            match stream.read(&mut piece) {
                Ok(0) => break false,
                Ok(_) => {}
                Err(error) => break is_timeout(&error),
            }
        }
}
