//! Attacks on observations of clients: public statistics, the software of clients, and the access log.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::net::IpAddr;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::control::operator::{beside, document};
use super::holding::{Holding, Reading};
use crate::measure;
use crate::measure::count;
use crate::siege::address::{honest_v4, hostile_v4, hostile_v6};
use crate::siege::attack::{Attack, Layer, Limits, Setting};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, announce_target, get};
use crate::siege::udp::{Announce, announce_all, leecher};

/// The maximum number of kinds of software that are listed, with `other`.
const SOFTWARE_MAX: usize = 31;

/// The maximum size of a line of the access log.
const LINE_BYTES_MAX: usize = 1024;

/// Seconds until the access log is written to a new file.
const REOPEN_S_MAX: u64 = 5;

/// The number of connections that read public statistics slowly.
const READERS: u32 = 300;

const ALL_STATISTICS: &[Setting] = &[
    ("statistics.page", "true"),
    ("statistics.json", "true"),
    ("statistics.opentracker", "everything,top100"),
    ("http.connections_max", "200"),
    ("http.connections_per_source_max", "100000"),
    ("limits.udp_requests_per_s", "0"),
    ("limits.http_requests_per_s", "0"),
    ("limits.tcp_connects_per_s", "0"),
];

const LOG_TO_FULL_DEVICE: &[Setting] = &[("log.access", "/dev/full"), ("log.access_sample", "1")];
const LOG_TO_FILE: &[Setting] = &[("log.access", "TRACKER_FOLDER/access"), ("log.access_sample", "1")];

const SERVED: &str = "the operator and honest clients are answered, and memory stays within its bound";

const fn insight(
    name: &'static str,
    tries: &'static str,
    settings: &'static [Setting],
    run: fn(&Context<'_>) -> Result<()>,
) -> Attack {
    Attack { settings, limits: Limits::SWARMS_STAY, ..Layer::Insight.attack(name, tries, SERVED, run) }
}

pub(super) const ATTACKS: &[Attack] = &[
    insight(
        "statistics-flood",
        "public statistics are requested without a pause, while the store is large",
        ALL_STATISTICS,
        statistics_flood,
    ),
    insight(
        "statistics-slow-readers",
        "ten addresses hold every slot with public statistics that they read slowly",
        ALL_STATISTICS,
        statistics_readers,
    ),
    Attack {
        promise: "31 names of a fixed list are shown at most, and the operator and honest clients are answered",
        ..insight(
            "random-software",
            "peer ids with random software, versions and markup",
            &[],
            random_software,
        )
    },
    insight(
        "log-to-a-full-device",
        "announces without a pause, all of which are logged to a device that is full",
        LOG_TO_FULL_DEVICE,
        |context| {
            beside(context, || flood(context))?;
            lost(context, "write_failed")
        },
    ),
    insight(
        "log-to-an-unread-pipe",
        "announces without a pause, all of which are logged to a pipe that is full",
        LOG_TO_FILE,
        unread_pipe,
    ),
    Attack {
        promise: "each line of the access log is JSON in printable ASCII without markup",
        finish: check_log,
        ..insight(
            "markup-in-the-log",
            "peer ids and requests with control characters and markup",
            LOG_TO_FILE,
            flood,
        )
    },
];

/// Announces from many addresses with random peer ids until the window is over.
fn flood(context: &Context<'_>) -> Result<()> {
    let sources: Vec<IpAddr> = (0..8).map(hostile_v4).chain((0..8).map(hostile_v6)).collect();
    let mut clients = sources.iter().map(|&source| context.udp(source)).collect::<Result<Vec<_>>>()?;
    while !context.is_window_over() {
        for client in &mut clients {
            let peers =
                (0..256).map(|_| Announce { peer_id: peer_id(), ..leecher([6; 20], fastrand::u16(1..)) });
            context.spend_flow(announce_all(client, peers, || context.is_window_over(), |_| {}));
        }
        let target = announce_target(&[6; 20], 7700, 10).replace("-TT0001-", "%1b]0;%3Cb%3E%00%0a");
        let mut client = HttpClient::open(sources[0], context.http(sources[0]), None, TIMEOUT)?;
        context.spend(1, count(target.len()));
        let _ = client.request(&get(&target));
    }
    Ok(())
}

/// Returns a peer id of random bytes, or of some software with a random version.
fn peer_id() -> [u8; 20] {
    let code = [b'-', fastrand::u8(b'A'..=b'Z'), fastrand::u8(b'A'..=b'Z')];
    let forms: [&[u8]; 6] = [b"", b"-qB", &code, b"-<b>\"&\x1b-", b"\r\n\0", b"M4-20-"];
    let mut peer_id = [0; 20];
    fastrand::fill(&mut peer_id);
    let form = forms[fastrand::usize(..forms.len())];
    peer_id[..form.len()].copy_from_slice(form);
    if form.len() == 3 {
        peer_id[3..7].fill_with(|| u8::try_from(fastrand::alphanumeric()).unwrap_or(b'0'));
        peer_id[7] = b'-';
    }
    peer_id
}

fn random_software(context: &Context<'_>) -> Result<()> {
    beside(context, || flood(context))?;
    let status = document(context, "GET", "/status", None)?;
    let clients = status["clients"].as_array().context("no clients")?;
    let software: Vec<&str> = clients.iter().filter_map(|client| client["software"].as_str()).collect();
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b". -~".contains(&byte));
    let versions = clients.iter().filter_map(|client| client["versions"].as_array()).flatten();
    let are_plain = software.iter().all(|name| is_plain(name))
        && versions.filter_map(|version| version["version"].as_str()).all(is_plain);
    let found = format!("{} names, plain: {are_plain}", software.len());
    let is_bounded = (1..=SOFTWARE_MAX).contains(&software.len());
    context.check("software on the status page", is_bounded && are_plain, found);
    let series = metrics(context)?.lines().filter(|line| line.starts_with("shoal_clients{")).count();
    context.check(
        "software in the metrics",
        (1..=SOFTWARE_MAX).contains(&series),
        format!("{series} series"),
    );
    Ok(())
}

fn statistics_flood(context: &Context<'_>) -> Result<()> {
    fill(context)?;
    let mut served = 0;
    let mut due = 0;
    beside(context, || {
        thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || request_statistics(context, number));
            }
            while !context.is_window_over() {
                served += u64::from(statistics_served(context));
                due += 1;
                context.sleep_ms(50);
            }
        });
        Ok(())
    })?;
    context.check("statistics for others", served * 10 >= due * 9 && due > 0, format!("{served} of {due}"));
    Ok(())
}

/// Requests all statistics on one connection after the other.
fn request_statistics(context: &Context<'_>, number: u32) {
    let requests =
        ["/stats", "/stats.json", "/stats?mode=everything", "/stats?mode=top100", "/stats?mode=\u{1}"];
    for round in context.rounds() {
        let source = hostile_v4(number * 40 + round % 40);
        let Ok(mut client) = HttpClient::open(source, context.http(source), None, TIMEOUT) else { continue };
        for target in requests.iter().cycle().take(50) {
            let request = get(target);
            context.spend(1, count(request.len()));
            if client.request(&request).is_err() {
                break;
            }
        }
    }
}

fn statistics_readers(context: &Context<'_>) -> Result<()> {
    fill(context)?;
    let opening = get("/stats.json").repeat(100);
    let sources = (1..=10).map(hostile_v4).collect();
    let (target, reading) = (context.http(hostile_v4(1)), Reading::Slowly);
    beside(context, || {
        Holding { target, sources, connections: READERS, opening: &opening, trickle: b"", reading }
            .run(context);
        Ok(())
    })?;
    let is_served = statistics_served(context);
    context.check("statistics for others", is_served, format!("{is_served}"));
    Ok(())
}

/// Returns whether an honest client gets the statistics.
fn statistics_served(context: &Context<'_>) -> bool {
    let source = honest_v4(40);
    let client = HttpClient::open(source, context.http(source), None, TIMEOUT);
    let response = client.and_then(|mut client| client.request(&get("/stats.json")));
    response.is_ok_and(|response| {
        let document: Option<Value> = serde_json::from_slice(&response.body).ok();
        response.status == 200 && document.is_some_and(|document| document["torrents"]["v4"].is_u64())
    })
}

/// Announces many torrents.
fn fill(context: &Context<'_>) -> Result<()> {
    let torrents = context.pick(20_000, 300_000_u32);
    let client = context.udp(hostile_v4(200))?;
    let peers = (0..torrents).map(|number| {
        let mut hash = [1; 20];
        hash[..4].copy_from_slice(&number.wrapping_mul(2_654_435_769).to_be_bytes());
        leecher(hash, 7200)
    });
    context.spend_flow(announce_all(&client, peers, || context.is_over(), |_| {}));
    Ok(())
}

/// Replaces the file of the access log by a pipe that is not read.
fn unread_pipe(context: &Context<'_>) -> Result<()> {
    let path = context.tracker.folder.join("access");
    let made =
        Command::new("mkfifo").arg(path.with_extension("pipe")).status().context("cannot run mkfifo")?;
    ensure!(made.success(), "cannot create a FIFO");
    // A pipe without a reader could not be opened for writing.
    let pipe = OpenOptions::new().read(true).write(true).open(path.with_extension("pipe"))?;
    fs::rename(path.with_extension("pipe"), &path).context("cannot replace the access log")?;
    context.tracker.signal(Signal::USR1)?;
    beside(context, || flood(context))?;
    lost(context, "write_failed")?;
    // The log goes on in a file, although the pipe is still full.
    fs::remove_file(&path).context("cannot remove the pipe")?;
    context.tracker.signal(Signal::USR1)?;
    let client = context.udp(hostile_v4(1))?;
    let (began, mut is_written) = (measure::now(), false);
    while !is_written && (measure::now() - began).as_secs() < REOPEN_S_MAX {
        client.announce(&leecher([6; 20], 7800))?;
        context.sleep_ms(50);
        is_written = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
    }
    context.check("records in a new file", is_written, format!("{is_written}"));
    drop(pipe);
    Ok(())
}

/// Checks that records of the access log were lost in this way: the attack has had its effect.
fn lost(context: &Context<'_>, outcome: &str) -> Result<()> {
    let start = format!("shoal_access_log_records_total{{outcome=\"{outcome}\"}} ");
    let text = metrics(context)?;
    let lost = text.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok()).unwrap_or(0);
    context.check("records lost", lost > 0, format!("{lost}"));
    Ok(())
}

fn metrics(context: &Context<'_>) -> Result<String> {
    let response = context.tracker.request_control("/metrics", TIMEOUT)?;
    ensure!(response.status == 200, "/metrics: status {}", response.status);
    Ok(String::from_utf8_lossy(&response.body).into_owned())
}

/// Checks the lines that were written so far, but for the last one, which may be incomplete.
fn check_log(context: &Context<'_>) -> Result<()> {
    let path = context.tracker.folder.join("access");
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let end = bytes.iter().rposition(|&byte| byte == b'\n').context("the access log has no line")?;
    let mut protocols = BTreeSet::new();
    let mut bad = None;
    for line in bytes[..end].split(|&byte| byte == b'\n') {
        let is_plain = line.iter().all(|byte| matches!(byte, b' '..=b'~') && !b"<>&'".contains(byte));
        match serde_json::from_slice::<Value>(line) {
            Ok(record) if is_plain && line.len() <= LINE_BYTES_MAX => {
                protocols.insert(record["protocol"].to_string());
            }
            _ => bad = Some(String::from_utf8_lossy(line).escape_debug().to_string()),
        }
    }
    let found = bad.clone().unwrap_or_else(|| format!("{protocols:?}"));
    context.check("lines of the access log", bad.is_none() && protocols.len() == 3, found);
    Ok(())
}
