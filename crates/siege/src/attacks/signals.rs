//! Attacks with signals, and with the files that they make the tracker read.

use std::fs::{self, File};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::address::{honest_v4, hostile_v4};
use crate::attack::{Attack, Layer};
use crate::context::{Context, TIMEOUT};
use crate::http::{HttpClient, announce_target, get};
use crate::measure::count;

/// The number of connections with requests that arrive before SIGTERM.
const CONNECTIONS_AT_STOP: u32 = 50;

/// The size of a file that is not a certificate.
const HUGE_BYTES: u64 = 600 << 20;

pub(super) const ATTACKS: &[Attack] = &[
    Layer::Signals.attack(
        "fifo-as-certificate",
        "SIGHUP while a FIFO is in place of a certificate",
        "health checks, signals and clients are served",
        fifo,
    ),
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
