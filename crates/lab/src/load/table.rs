//! Formats the measurements of a load for the terminal.

use std::fmt::Write;

use shoal_load::{
    Bottleneck, ConnectionFailures, Connections, Kinds, LatencySummary, Limit, Pace, Plan, Relays, Report,
    WrongRelays, WrongReplies,
};

/// Returns the table of a run.
pub(crate) fn text(pace: Pace, plan: &Plan, fill: Option<&Report>, run: &Report) -> String {
    let mut out = String::new();
    line(&mut out, "tracker", &plan.target.to_string());
    if let Some(fill) = fill {
        fill_lines(&mut out, plan.population.peers, fill);
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
    kind_lines(&mut out, run);
    latency_line(&mut out, "latency", &run.latency);
    if let Some(delay) = &run.send_delay {
        latency_line(&mut out, "sent late by", delay);
    }
    match &run.relays {
        Some(relayed) => relay_lines(&mut out, relayed),
        None => {
            let announces =
                format!("{:.1} peers, {:.0} bytes each", run.peers_per_announce, run.announce_reply_bytes);
            line(&mut out, "announce replies", &announces);
        }
    }
    if let Some(made) = &run.connections {
        connection_lines(&mut out, made);
    }
    fault_lines(&mut out, run);
    let busy = match pace {
        Pace::Closed { .. } => format!("{:.0} % busy", 100.0 * run.generator_busy),
        Pace::Open { .. } => "it polls while it waits".to_owned(),
    };
    line(&mut out, "generator", &format!("{busy}, {:.1} s of CPU time", run.generator_cpu_s));
    conclusion_lines(&mut out, pace, run);
    if let Some(limit) = &run.limit {
        limit_line(&mut out, limit);
    }
    out
}

fn line(out: &mut String, name: &str, value: &str) {
    writeln!(out, "{name:<17} {value}").expect("writing to a string does not fail");
}

fn fill_lines(out: &mut String, peers: u32, fill: &Report) {
    let mut value =
        format!("{} of {peers} peers announced in {:.1} s", fill.responses.announce, fill.elapsed_s);
    for (count, what) in [(fill.errors, "errors"), (fill.wrong.total(), "wrong replies")] {
        if count > 0 {
            value += &format!(", {count} {what}");
        }
    }
    if let Some(first) = &fill.first_error {
        value += &format!(", the first: \"{first}\"");
    }
    line(out, "filled", &value);
    if fill.unregistered > u64::from(peers / 100) {
        let value = format!(
            "{} of them or more, by the counts in the replies: the tracker limits the peers of an address or of a \
             torrent, and the load has few addresses. Raise that limit; in Shoal, add the addresses to limits.exempt",
            fill.unregistered
        );
        line(out, "NOT REGISTERED", &value);
    }
    // WebTorrent connections are opened during the fill.
    if let (Some(made), Some(_)) = (&fill.connections, &fill.relays) {
        connection_lines(out, made);
    }
}

fn kind_lines(out: &mut String, run: &Report) {
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

fn latency_line(out: &mut String, name: &str, latency: &LatencySummary) {
    let LatencySummary { p50_us, p90_us, p99_us, p99_9_us, max_us, .. } = latency;
    let value =
        format!("p50 {p50_us:.0}, p90 {p90_us:.0}, p99 {p99_us:.0}, p99.9 {p99_9_us:.0}, max {max_us:.0} µs");
    line(out, name, &value);
}

/// Writes what the tracker relayed between the peers, and how it treated idle connections and slow readers.
fn relay_lines(out: &mut String, relayed: &Relays) {
    let Relays { messages, messages_per_s, offers_sent, offers_due, offers, .. } = relayed;
    let all = format!("{messages_per_s:.0} messages a second ({messages}), replies included");
    line(out, "from the tracker", &all);
    line(out, "offers relayed", &format!("{offers} of about {offers_due} due, {offers_sent} sent"));
    if *offers > 0 {
        latency_line(out, "  in", &relayed.offer_latency);
    }
    let Relays { answers_sent, answers, .. } = relayed;
    if *answers_sent > 0 {
        line(out, "answers relayed", &format!("{answers} of {answers_sent}"));
        latency_line(out, "  in", &relayed.answer_latency);
    }
    let WrongRelays { damaged, own, misdirected, foreign } = relayed.wrong;
    let wrong = listed(&[
        (damaged, "damaged"),
        (own, "returned to the sender"),
        (misdirected, "with another torrent or peer"),
        (foreign, "not from this generator"),
    ]);
    if !wrong.is_empty() {
        line(out, "wrong relays", &wrong);
    }
    let Relays { held, held_alive, slow_readers, slow_readers_closed, .. } = relayed;
    if *held > 0 {
        line(out, "held", &format!("{held_alive} of {held} alive at the end"));
    }
    if *slow_readers > 0 {
        line(
            out,
            "slow readers",
            &format!("{slow_readers}, {slow_readers_closed} of them closed by the tracker"),
        );
    }
}

fn connection_lines(out: &mut String, made: &Connections) {
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
        latency_line(out, "  set up in", setup);
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

/// Lists the counts that are not 0, with their names.
fn listed(counts: &[(u64, &str)]) -> String {
    let seen = counts.iter().filter(|(count, _)| *count > 0);
    seen.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

fn fault_lines(out: &mut String, run: &Report) {
    let asked = (run.requests.total() + run.unsent).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a display needs no more than 2^53")]
    let percent = 100.0 * run.lost as f64 / asked as f64;
    line(out, "lost", &format!("{} ({percent:.2} %), {} of them answered too late", run.lost, run.late));
    let first = run.first_error.as_ref().map(|text| format!(", the first: \"{text}\"")).unwrap_or_default();
    line(out, "errors", &format!("{}{first}", run.errors));
    line(out, "wrong replies", &wrong(&run.wrong));
    if run.own_address_tolerated > 0 {
        line(out, "tolerated", &format!("{} that handed the announcer to itself", run.own_address_tolerated));
    }
    for (count, name, reason) in [
        (run.send_failures, "not sent", "the kernel of this host refused them"),
        (run.unsent, "not scheduled", "too many others had no reply yet; they count as lost"),
        (run.receive_drops, "dropped here", "the generator's own sockets were full; they count as lost"),
    ] {
        if count > 0 {
            line(out, name, &format!("{count}: {reason}"));
        }
    }
}

/// Formats the number of replies that broke a rule, by rule.
pub(super) fn wrong(wrong: &WrongReplies) -> String {
    let WrongReplies { malformed, action, transaction_id, count, own_address, status, implausible } = *wrong;
    let rules = [
        (malformed, "malformed"),
        (action, "of a different kind"),
        (transaction_id, "without a request"),
        (status, "with a status other than 200"),
        (implausible, "with impossible counts"),
        (count, "with a wrong number of entries"),
        (own_address, "handed the announcer to itself (some trackers do by design: --tolerate-own-address)"),
    ];
    let broken = listed(&rules);
    let broken = if broken.is_empty() { broken } else { format!(": {broken}") };
    format!("{}{broken}", wrong.total())
}

fn limit_line(out: &mut String, limit: &Limit) {
    let Limit { text, share, probably } = limit;
    let value = format!(
        "{:.0} % of the replies refuse with \"{text}\". This shows a limit of the tracker, not its speed: probably {probably}. \
         Lift it for the load; in Shoal, add the addresses of the load to limits.exempt",
        100.0 * share
    );
    line(out, "A LIMIT", &value);
}

fn conclusion_lines(out: &mut String, pace: Pace, run: &Report) {
    let text = match run.verdict {
        _ if run.verdict != Bottleneck::Unanswered && run.responses.total() == 0 => "not one good reply",
        Bottleneck::Tracker => match pace {
            Pace::Closed { .. } => {
                "the tracker's limit with so many in flight; the generator had time to spare"
            }
            Pace::Open { .. } => "the tracker at this rate; requests were sent on time",
        },
        Bottleneck::GeneratorBound => {
            "THE GENERATOR WAS THE BOTTLENECK: give it its own processors (--cpus), or a smaller load (--rate, or fewer in flight)"
        }
        Bottleneck::Unanswered => "the tracker did not answer",
    };
    if run.failure.is_none() {
        line(out, "this shows", text);
    }
    if let Some(failure) = &run.failure {
        line(out, "ended early", failure);
    } else if run.ended_early {
        line(out, "ended early", "as asked");
    }
}
