//! Attacks with signals, and with the files that they make the tracker read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::process::Signal;
use shoal_wire::websocket::frame::Opcode;

use super::control::operator::{beside, document};
use super::holding::{Holding, Reading};
use crate::measure::{self, count};
use crate::siege::address::{honest_v4, hostile_v4};
use crate::siege::attack::{Attack, Layer};
use crate::siege::context::{Context, TIMEOUT};
use crate::siege::http::{HttpClient, announce_target, get};
use crate::siege::websocket::{fragment, upgrade as upgrade_request};

/// The number of connections with requests that arrive before SIGTERM.
const CONNECTIONS_AT_STOP: u32 = 50;

/// The size of a file that is not a certificate.
const HUGE_BYTES: u64 = 600 << 20;

/// Maximum time for which no request is answered during an upgrade.
const GAP_MAX: Duration = Duration::from_millis(50);

/// Maximum time until the ports are free after SIGTERM.
const FREE_TIME_MAX: Duration = Duration::from_secs(1);

/// The time of one look whether they are.
const CHECK_TIME: Duration = Duration::from_millis(100);

pub(super) const ATTACKS: &[Attack] = &[
    Layer::Signals.attack(
        "fifo-as-certificate",
        "SIGHUP while a FIFO is in place of a certificate",
        "health checks, signals and clients are served",
        fifo,
    ),
    Attack {
        settings: &[
            ("access.torrents_deny", "TRACKER_FOLDER/deny,TRACKER_FOLDER/torrents"),
            ("access.networks_deny", "TRACKER_FOLDER/networks"),
        ],
        prepare: |folder| swapped(folder).iter().try_for_each(Swapped::create),
        ..Layer::Signals.attack(
            "fifo-between-look-and-read",
            "each file of a list becomes a FIFO and a file again, thousands of times a second, during SIGHUPs",
            "the operator is answered during and after it, and changes of lists apply",
            swap,
        )
    },
    Layer::Signals.attack(
        "huge-certificate",
        "SIGHUP while a certificate is a file of 600 MiB",
        "health checks, signals and clients are served, and memory stays within its limit",
        huge,
    ),
    Layer::Signals.attack(
        "reload-storm",
        "hundreds of SIGHUPs without a pause",
        "clients are served, including new sessions",
        storm,
    ),
    Attack {
        // No honest connection is closed meanwhile.
        settings: &[("webtorrent.upgrade_close_s", "3600")],
        ..Layer::Signals.attack(
            "upgrade-among-slow-clients",
            "a new process takes over while connections of every kind are in the middle of something",
            "the new process serves at once, also clients whose connections have begun with the old one",
            upgrade,
        )
    },
    Attack {
        finish: |context| stop(context, 0),
        ..Layer::Signals.attack(
            "upgrade-that-hangs",
            "SIGTERM while a program that never does anything is asked to take over",
            "clients are served until SIGTERM, and the ports are free within a second after it",
            |context| {
                // The program that sleeps is one that the new process has started, and has its connection.
                context.tracker.replace_program("sleep 30")?;
                context.tracker.signal(Signal::USR2)?;
                context.tracker.wait_for_log("handing over to a new process")
            },
        )
    },
    Attack {
        finish: |context| {
            context.tracker.signal(Signal::USR2)?;
            stop(context, fastrand::u64(5..20))
        },
        ..Layer::Signals.attack(
            "stop-during-upgrade",
            "SIGTERM some milliseconds after SIGUSR2",
            "a stop that has begun ends the upgrade, and the ports are free within a second",
            |context| {
                context.wait_for_window();
                Ok(())
            },
        )
    },
    Attack {
        finish: term_under_load,
        ..Layer::Signals.attack(
            "stop-under-load",
            "SIGTERM while requests are in progress",
            "requests that have arrived are answered, and the exit code is 0",
            |context| {
                context.wait_for_window();
                Ok(())
            },
        )
    },
];

fn hang_up(context: &Context<'_>) -> Result<()> {
    context.spend(1, 0);
    context.tracker.signal(Signal::HUP)
}

fn fifo(context: &Context<'_>) -> Result<()> {
    let file = &context.tracker.certificate;
    fs::remove_file(file).context("cannot remove the certificate")?;
    let made = Command::new("mkfifo").arg(file).status().context("cannot run mkfifo")?;
    ensure!(made.success(), "cannot create a FIFO");
    hang_up(context)?;
    context.sleep_ms(200);
    hang_up(context)
}

/// A file that changes its place with a FIFO.
struct Swapped {
    file: PathBuf,
    content: Vec<u8>,
}

impl Swapped {
    fn fifo(&self) -> PathBuf {
        self.file.with_added_extension("fifo")
    }

    fn create(&self) -> Result<()> {
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&self.file, &self.content)?;
        mknodat(CWD, self.fifo(), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .context("cannot create a FIFO")
    }

    fn exchange(&self) -> Result<()> {
        renameat_with(CWD, &self.file, CWD, self.fifo(), RenameFlags::EXCHANGE)
            .context("cannot exchange two files")
    }
}

/// Returns the files of every reader that looks again while the tracker runs.
fn swapped(folder: &Path) -> [Swapped; 3] {
    let file = |name: &str, content: &[u8]| Swapped { file: folder.join(name), content: content.to_owned() };
    [
        file("deny", "aa".repeat(20).as_bytes()),
        file("torrents/one.torrent", b"d4:infod4:name3:one6:pieces0:ee"),
        file("networks", b"203.0.113.0/24\n"),
    ]
}

/// Exchanges files for FIFOs while the tracker reads them, so that some are files when it looks and FIFOs when it opens them.
fn swap(context: &Context<'_>) -> Result<()> {
    let files = swapped(&context.tracker.folder);
    // Long enough for a hit: the tracker looks at a file some hundred times a second.
    let end = measure::now() + context.pick(Duration::from_secs(4), Duration::from_secs(10));
    let rounds = || (0..).take_while(|_: &u32| measure::now() < end);
    beside(context, || {
        thread::scope(|scope| {
            let swapping = files.each_ref().map(|file| {
                scope.spawn(move || {
                    // An even number, so that the file has its name again.
                    for _ in rounds() {
                        file.exchange()?;
                        file.exchange()?;
                    }
                    Ok(())
                })
            });
            for _ in rounds() {
                hang_up(context)?;
                context.sleep_ms(1);
            }
            swapping
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
        })
    })?;
    for file in &files {
        fs::write(&file.file, &file.content)?;
    }
    fs::write(&files[0].file, format!("{}\n{}\n", "aa".repeat(20), "bb".repeat(20)))?;
    hang_up(context)?;
    // A tracker that still waits for a writer does not even answer.
    let mut lists = String::new();
    let all_apply = (0..50).take_while(|_| !context.is_over()).any(|_| {
        context.sleep_ms(50);
        lists = document(context, "GET", "/api/v1/lists", None)
            .map_or_else(|error| error.to_string(), |is| is.to_string());
        lists.contains("\"entries\":2") && !lists.contains("\"fault\":\"")
    });
    context.check("the lists afterwards", all_apply, lists);
    Ok(())
}

fn huge(context: &Context<'_>) -> Result<()> {
    let file = &context.tracker.certificate;
    fs::remove_file(file).context("cannot remove the certificate")?;
    // The file is sparse and finite, so that the machine survives a tracker that reads all of it.
    File::create(file)?.set_len(HUGE_BYTES).context("cannot create a sparse file")?;
    hang_up(context)
}

fn storm(context: &Context<'_>) -> Result<()> {
    while !context.is_window_over() {
        hang_up(context)?;
        context.sleep_ms(2);
    }
    Ok(())
}

/// Lets new processes take over, one after another, while connections hold whatever a connection can hold.
fn upgrade(context: &Context<'_>) -> Result<()> {
    let (plain, tls) = (context.http(hostile_v4(0)), context.tracker.tls(hostile_v4(0)));
    let mut frame = upgrade_request("dGhlIHNhbXBsZSBub25jZQ==");
    frame.extend(fragment(Opcode::Text, false, &[b'['; 40_000]));
    let hello = context.tls.hello()?;
    let kinds: [(_, &[u8], &[u8], _); 5] = [
        (plain, b"GET /announce HTTP/1.1\r\nX: ", b"slow", Reading::Everything),
        (plain, &get(&announce_target(&[2; 20], 7600, 50)).repeat(20), b"", Reading::Nothing),
        (plain, &frame, b"", Reading::Slowly),
        (tls, &hello[..hello.len() / 2], b"", Reading::Everything),
        (tls, &hello, b"", Reading::Nothing),
    ];
    let mut gaps = Vec::new();
    thread::scope(|scope| {
        for (target, opening, trickle, reading) in kinds {
            let sources = (0..4).map(hostile_v4).collect();
            let holding = Holding { target, sources, connections: 40, opening, trickle, reading };
            scope.spawn(move || holding.run(context));
        }
        context.sleep_ms(400);
        for _ in 0..context.pick(1, 3) {
            gaps.push(context.tracker.upgrade()?);
            context.sleep_ms(300);
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let longest = gaps.iter().max().copied().unwrap_or_default();
    // In short mode on a busy machine, time is no verdict.
    let is_short = context.pick(true, longest <= GAP_MAX);
    context.check("the longest gap of an upgrade", is_short, format!("{longest:?}"));
    Ok(())
}

/// Sends SIGTERM and checks that nothing holds the port, now and a second later.
fn stop(context: &Context<'_>, delay_ms: u64) -> Result<()> {
    context.sleep_ms(delay_ms);
    context.spend(1, 0);
    context.tracker.signal(Signal::TERM)?;
    // In short mode on a busy machine, time is no verdict.
    let freed = context.tracker.wait_until_free(context.pick(Duration::from_secs(8), FREE_TIME_MAX));
    context.sleep_ms(1000);
    if context.tracker.has_logged("stopping after queued requests") {
        let is_free = freed.is_some() && context.tracker.wait_until_free(CHECK_TIME).is_some();
        context.check("the port is free after SIGTERM", is_free, format!("{freed:?}"));
    }
    context.tracker.follow_successor();
    Ok(())
}

/// Sends requests on many connections, then SIGTERM, then reads the responses.
fn term_under_load(context: &Context<'_>) -> Result<()> {
    let request = get(&announce_target(&[2; 20], 7500, 10));
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS_AT_STOP {
        let source = if number.is_multiple_of(2) { honest_v4(500 + number) } else { hostile_v4(number) };
        let mut client = HttpClient::open(source, context.http(source), None, TIMEOUT)?;
        client.request(&request)?;
        clients.push(client);
    }
    for client in &mut clients {
        client.send(&request)?;
        context.spend(1, count(request.len()));
    }
    context.tracker.signal(Signal::TERM)?;
    let answered = clients
        .iter_mut()
        .filter_map(|client| client.receive().ok().flatten())
        .filter(|response| response.status == 200)
        .count();
    let found = format!("{answered} of {CONNECTIONS_AT_STOP}");
    context.check("requests that had arrived", count(answered) == u64::from(CONNECTIONS_AT_STOP), found);
    Ok(())
}
