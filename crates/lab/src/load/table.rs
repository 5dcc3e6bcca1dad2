//! What a run measured, for people.

use std::fmt::Write;

use shoal_load::{
    Bottleneck, ConnectionFailures, Connections, Kinds, LatencySummary, Pace, Relays, Report, WrongRelays,
    WrongReplies,
};

/// The table at the end of a run.
pub(crate) fn text(pace: Pace, peers: u32, fill: Option<&Report>, run: &Report) -> String {
    let mut out = String::new();
    if let Some(fill) = fill {
        filled(&mut out, peers, fill);
    }
    let how = match pace {
        Pace::Closed { window } => format!("closed loop, {window} in flight for each worker"),
        Pace::Open { rate } => format!("open loop, {rate} requests a second"),
    };
    line(&mut out, "measured", &format!("{:.2} s, {how}", run.elapsed_s));
    line(
        &mut out,
        "good replies",
        &format!("{:.0} a second ({})", run.responses_per_s, run.responses.total()),
    );
    kinds(&mut out, run);
    latency(&mut out, "latency", &run.latency);
    if let Some(delay) = &run.send_delay {
        latency(&mut out, "sent late by", delay);
    }
    match &run.relays {
        Some(relayed) => relays(&mut out, relayed),
        None => {
            let announces =
                format!("{:.1} peers, {:.0} bytes each", run.peers_per_announce, run.announce_reply_bytes);
            line(&mut out, "announce replies", &announces);
        }
    }
    if let Some(made) = &run.connections {
        connections(&mut out, made);
    }
    faults(&mut out, run);
    let busy = match pace {
        Pace::Closed { .. } => format!("{:.0} % busy", 100.0 * run.generator_busy),
        Pace::Open { .. } => "it spins while it waits".to_owned(),
    };
    line(&mut out, "generator", &format!("{busy}, {:.1} s of CPU time", run.generator_cpu_s));
    conclusion(&mut out, pace, run);
    out
}

fn line(out: &mut String, name: &str, value: &str) {
    writeln!(out, "{name:<17} {value}").expect("a string takes everything");
}

fn filled(out: &mut String, peers: u32, fill: &Report) {
    let mut value =
        format!("{} of {peers} peers announced in {:.1} s", fill.responses.announce, fill.elapsed_s);
    for (count, what) in [(fill.errors, "errors"), (fill.wrong.total(), "wrong replies")] {
        if count > 0 {
            value += &format!(", {count} {what}");
        }
    }
    line(out, "filled", &value);
    // Where connections stand before anything else, it is then that they were opened.
    if let (Some(made), Some(_)) = (&fill.connections, &fill.relays) {
        connections(out, made);
    }
}

fn kinds(out: &mut String, run: &Report) {
    let Kinds { connect, announce, scrape } = run.responses;
    let asked = run.requests;
    for (name, good, asked) in [
        ("connects", connect, asked.connect),
        ("announces", announce, asked.announce),
        ("scrapes", scrape, asked.scrape),
    ] {
        if asked > 0 {
            line(out, &format!("  {name}"), &format!("{good} of {asked}"));
        }
    }
}

fn latency(out: &mut String, name: &str, latency: &LatencySummary) {
    let LatencySummary { p50_us, p90_us, p99_us, p99_9_us, max_us, .. } = latency;
    let value =
        format!("p50 {p50_us:.0}, p90 {p90_us:.0}, p99 {p99_us:.0}, p99.9 {p99_9_us:.0}, max {max_us:.0} µs");
    line(out, name, &value);
}

/// What the tracker passed on between the peers, and what it bore beside.
fn relays(out: &mut String, relayed: &Relays) {
    let Relays { messages, messages_per_s, offers_sent, offers_due, offers, .. } = relayed;
    let all = format!("{messages_per_s:.0} messages a second ({messages}), replies included");
    line(out, "from the tracker", &all);
    line(out, "offers relayed", &format!("{offers} of about {offers_due} that were due, {offers_sent} made"));
    if *offers > 0 {
        latency(out, "  in", &relayed.offer_latency);
    }
    let Relays { answers_sent, answers, .. } = relayed;
    if *answers_sent > 0 {
        line(out, "answers relayed", &format!("{answers} of {answers_sent}"));
        latency(out, "  in", &relayed.answer_latency);
    }
    let WrongRelays { damaged, own, misdirected, foreign } = relayed.wrong;
    let wrong = listed(&[
        (damaged, "damaged"),
        (own, "sent back to who made it"),
        (misdirected, "as of another torrent or peer"),
        (foreign, "by nobody of this generator"),
    ]);
    if !wrong.is_empty() {
        line(out, "wrong relays", &wrong);
    }
    let Relays { held, held_alive, slow_readers, slow_readers_closed, .. } = relayed;
    if *held > 0 {
        line(out, "held", &format!("{held_alive} of {held} alive at the end"));
    }
    if *slow_readers > 0 {
        line(out, "deaf", &format!("{slow_readers}, {slow_readers_closed} of them closed by the tracker"));
    }
}

fn connections(out: &mut String, made: &Connections) {
    let Connections { opened, handshakes_full, handshakes_resumed, setup, closed_idle, open_at_end, .. } =
        made;
    let mut value = format!("{opened} opened");
    if handshakes_full + handshakes_resumed > 0 {
        value += &format!(", with {handshakes_full} full and {handshakes_resumed} resumed handshakes");
    }
    if *closed_idle > 0 {
        value += &format!(", {closed_idle} closed by the tracker while they were idle");
    }
    line(out, "connections", &format!("{value}, {open_at_end} open at the end"));
    if *opened > 0 {
        latency(out, "  set up in", setup);
    }
    let ConnectionFailures { refused, reset, closed, timeout, tls, websocket, other } = made.failures;
    let kinds = [
        (refused, "refused"),
        (reset, "reset"),
        (closed, "closed before a reply was whole"),
        (timeout, "timed out"),
        (tls, "failed at TLS"),
        (websocket, "failed at WebSocket"),
        (other, "failed on this host"),
    ];
    let failed = listed(&kinds);
    if !failed.is_empty() {
        line(out, "  failed", &failed);
    }
    if let Some(fault) = &made.first_fault {
        line(out, "  the first fault", fault);
    }
}

/// The counts that are not 0, with their names.
fn listed(counts: &[(u64, &str)]) -> String {
    let seen = counts.iter().filter(|(count, _)| *count > 0);
    seen.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

fn faults(out: &mut String, run: &Report) {
    let asked = (run.requests.total() + run.unsent).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a display needs no more than 2^53")]
    let percent = 100.0 * run.lost as f64 / asked as f64;
    line(out, "lost", &format!("{} ({percent:.2} %), {} of them answered too late", run.lost, run.late));
    let first = run.first_error.as_ref().map(|words| format!(", the first: \"{words}\"")).unwrap_or_default();
    line(out, "errors", &format!("{}{first}", run.errors));
    line(out, "wrong replies", &wrong(&run.wrong));
    if run.own_address_tolerated > 0 {
        line(out, "tolerated", &format!("{} that handed the announcer to itself", run.own_address_tolerated));
    }
    for (count, name, why) in [
        (run.send_failures, "not sent", "this host's kernel did not take them"),
        (run.unsent, "not even sent", "too many others were without an answer; they count as lost"),
        (run.receive_drops, "dropped here", "the generator's own sockets were full; they count as lost"),
    ] {
        if count > 0 {
            line(out, name, &format!("{count}: {why}"));
        }
    }
}

/// How many replies broke a rule, and which.
pub(super) fn wrong(wrong: &WrongReplies) -> String {
    let WrongReplies { malformed, action, transaction_id, count, own_address, status, implausible } = *wrong;
    let rules = [
        (malformed, "malformed"),
        (action, "of another kind"),
        (transaction_id, "to no request"),
        (status, "with a status other than 200"),
        (implausible, "with counts that cannot be"),
        (count, "with a wrong number of entries"),
        (own_address, "handed the announcer to itself (some trackers do by design: --tolerate-own-address)"),
    ];
    let broken = listed(&rules);
    let broken = if broken.is_empty() { broken } else { format!(": {broken}") };
    format!("{}{broken}", wrong.total())
}

fn conclusion(out: &mut String, pace: Pace, run: &Report) {
    let words = match run.verdict {
        _ if run.verdict != Bottleneck::Unanswered && run.responses.total() == 0 => "not one good reply",
        Bottleneck::Tracker => match pace {
            Pace::Closed { .. } => {
                "what the tracker answers with so many in flight; the generator had time to spare"
            }
            Pace::Open { .. } => "the tracker at this rate; requests left in time",
        },
        Bottleneck::GeneratorBound => {
            "THE GENERATOR WAS THE BOTTLENECK: give it processors of its own (--cpus), or ask for less (--rate, or fewer in flight)"
        }
        Bottleneck::Unanswered => "the tracker did not answer",
    };
    if run.failure.is_none() {
        line(out, "this shows", words);
    }
    if let Some(failure) = &run.failure {
        line(out, "ended early", failure);
    } else if run.ended_early {
        line(out, "ended early", "as asked");
    }
}
