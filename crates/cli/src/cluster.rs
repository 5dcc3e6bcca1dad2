//! `shoal cluster`: the cluster from the view of a running tracker, by the statistics of its control listener.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{ControlClient, Endpoint};
use crate::ctl::show::{lines, table};
use crate::top::STATS_PATH;
use crate::top::numbers::{UNKNOWN, bytes, count, rate, time};
use shoal_control::stats::{self, ClusterNode, CreditStats, SharedStateStats};
use shoal_runtime::failure::Failure;
use shoal_runtime::printable;

/// The exit code for a node that is not connected to NATS.
const ALONE: u8 = 4;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Cluster {
    #[command(flatten)]
    endpoint: Endpoint,

    /// Print the reply of the tracker as JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the state of the node, its connection to NATS, and the other nodes
    Status,
    /// Set keys of the configuration at all nodes: those of limits, and the intervals of announces
    Set {
        /// A key and its value, such as announce.interval_s=900
        #[arg(value_name = "KEY=VALUE", required = true)]
        values: Vec<String>,
    },
    /// Let each node have its own values of keys again
    Unset {
        /// A key, such as announce.interval_s
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<String>,
    },
    /// Print the keys that are set at all nodes
    Show,
}

/// The text that `shoal cluster --help` prints after the arguments.
const HELP: &str = "\
Exit codes: 0 connected to NATS, 1 no reply or the tracker failed, 2 the arguments are invalid, 3 the tracker is not part of \
a cluster, 4 NATS is away, 5 the token does not permit it.

Examples:
  shoal cluster status
  shoal cluster set announce.interval_s=900 limits.udp_requests_per_s=50
  shoal cluster unset announce.interval_s
  shoal cluster show";

/// The path of the values that all nodes share.
const VALUES_PATH: &str = "/api/v1/cluster/values";

/// Executes the command, and returns its output and its exit code.
pub fn run(Cluster { endpoint, json, action }: &Cluster) -> Result<(String, ExitCode), Failure> {
    let client = ControlClient::new(endpoint)?;
    match action {
        Action::Status => return run_status(&client, *json),
        Action::Show => {}
        Action::Set { values } => {
            for pair in values {
                let (key, value) = pair.split_once('=').ok_or_else(|| {
                    Failure::Configuration(format!(
                        "{pair:?} is no KEY=VALUE, such as announce.interval_s=900"
                    ))
                })?;
                let (path, body) = (value_path(key)?, json!({ "value": value }));
                client.request("PUT", &path, Some(&body))?;
            }
        }
        Action::Unset { keys } => {
            for key in keys {
                client.request("DELETE", &value_path(key)?, None)?;
            }
        }
    }
    let reply = client.get(VALUES_PATH)?;
    let text = if *json { printable::json(&reply.to_string()) + "\n" } else { values_text(&reply) };
    Ok((text, ExitCode::SUCCESS))
}

fn value_path(key: &str) -> Result<String, Failure> {
    let is_key =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte));
    if !is_key {
        return Err(Failure::Configuration(format!("{key:?} is no key, such as announce.interval_s")));
    }
    Ok(format!("{VALUES_PATH}/{key}"))
}

/// Returns the values that all nodes share as text for people.
fn values_text(reply: &Value) -> String {
    let row = |value: &Value| {
        ["key", "value", "by"].map(|part| printable::line(value[part].as_str().unwrap_or_default()))
    };
    let rows = reply["values"].as_array().into_iter().flatten().map(row).collect();
    table(["key", "value", "by"], rows, "no values; each node has its own")
}

fn run_status(client: &ControlClient, json: bool) -> Result<(String, ExitCode), Failure> {
    let reply = client.get(STATS_PATH)?;
    let node = match &reply["cluster"] {
        Value::Null => {
            let fault = "the tracker is not part of a cluster: cluster.servers is []";
            return Err(Failure::NothingFound(format!("{}: {fault}", client.shown())));
        }
        node => node,
    };
    let status: stats::Cluster = serde_json::from_value(node.clone())
        .map_err(|error| anyhow!("the reply has no status of a cluster: {error}"))?;
    let code = if status.connected { ExitCode::SUCCESS } else { ExitCode::from(ALONE) };
    let text = if json { printable::json(&node.to_string()) + "\n" } else { text(&status) };
    Ok((text, code))
}

/// Returns a status as text for people.
fn text(status: &stats::Cluster) -> String {
    let shown = |text: &str| printable::line(text);
    let nats = match (status.connected, &status.server, &status.fault) {
        (true, Some(server), None) => format!("connected to {}", shown(server)),
        (true, Some(server), Some(fault)) => format!("connected to {}; {}", shown(server), shown(fault)),
        (true, None, _) => "connected".to_owned(),
        (false, _, Some(fault)) => format!("away: {}", shown(fault)),
        (false, _, None) => "away".to_owned(),
    };
    let of = |counts: &stats::CountMap, name: &str| counts.get(name).copied().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "it is shown with few digits")]
    let traffic = |direction: &str| {
        let (messages, size) = (of(&status.messages, direction), of(&status.bytes, direction));
        let deltas = of(&status.counters, &format!("deltas_{direction}"));
        format!("{} messages ({}), {} deltas", count(messages), bytes(size as f64), count(deltas))
    };
    let dropped: Vec<String> = status
        .dropped
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(reason, dropped)| format!("{} {}", count(*dropped), shown(reason)))
        .collect();
    let shared = match &status.shared {
        None => "off".to_owned(),
        Some(shared) => shared_text(shared),
    };
    let credit = status.credit.as_ref().map_or_else(|| "off".to_owned(), credit_text);
    let facts = [
        ("cluster", shown(&status.name)),
        ("node", format!("{} ({})", shown(&status.node), shown(&status.id))),
        ("state", shown(&status.state)),
        ("NATS", nats),
        ("shared state", shared),
        ("credit", credit),
        ("in", traffic("in")),
        ("out", traffic("out")),
        ("batches lost", count(of(&status.counters, "lost"))),
        ("dropped", if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") }),
    ];
    let head = ["other node", "state", "seen", "round trip", "lag", "behind", "deltas"];
    lines(&facts) + "\n" + &table(head, status.nodes.iter().map(row).collect(), "no other nodes")
}

/// Returns the state that all nodes share, as one line.
fn shared_text(shared: &SharedStateStats) -> String {
    let kinds =
        shared.entries.iter().map(|(kind, entries)| format!("{} {}", count(*entries), printable::line(kind)));
    let entries = kinds.collect::<Vec<_>>().join(", ");
    let faults = [&shared.fault, &shared.values_fault].into_iter().flatten();
    let faults: String = faults.map(|fault| format!("; {}", printable::line(fault))).collect();
    let ignored = shared.ignored.iter().filter(|(_, ignored)| **ignored > 0);
    let ignored: String = ignored
        .map(|(reason, ignored)| format!(", {} ignored: {}", count(*ignored), printable::line(reason)))
        .collect();
    let unwritten = match shared.unwritten {
        0 => String::new(),
        unwritten => format!(", {} not in the bucket yet", count(unwritten)),
    };
    format!("{} ({entries}{ignored}{unwritten}){faults}", printable::line(&shared.state))
}

/// Returns the credit of users, as one line.
fn credit_text(credit: &CreditStats) -> String {
    let fault =
        credit.fault.as_ref().map(|fault| format!("; {}", printable::line(fault))).unwrap_or_default();
    let lost = credit.lost.iter().filter(|(_, lost)| **lost > 0);
    let lost: String =
        lost.map(|(reason, lost)| format!(", {} lost: {}", count(*lost), printable::line(reason))).collect();
    let (state, stored, waiting) =
        (printable::line(&credit.state), count(credit.stored), count(credit.waiting));
    format!("{state} ({stored} stored, {waiting} waiting{lost}){fault}")
}

fn row(node: &ClusterNode) -> [String; 7] {
    #[expect(clippy::cast_precision_loss, reason = "it is shown with few digits")]
    let ms = |ms: u64| time(ms as f64 / 1000.0);
    let optional = |value: Option<u64>| value.map_or_else(|| UNKNOWN.to_owned(), ms);
    // The name of a node with another version is unknown.
    let name = if node.name.is_empty() { &node.id } else { &node.name };
    [
        printable::line(name),
        printable::line(&node.state),
        ms(node.seen_ms_ago) + " ago",
        optional(node.round_trip_ms),
        optional(node.lag_ms),
        count(node.behind),
        rate(node.deltas_per_s),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_the_nodes_and_what_was_dropped() {
        let other = ClusterNode {
            name: "b".to_owned(),
            state: "ready".to_owned(),
            seen_ms_ago: 300,
            round_trip_ms: Some(2),
            deltas_per_s: 12.0,
            ..ClusterNode::default()
        };
        let status = stats::Cluster {
            name: "eu".to_owned(),
            node: "a\u{1b}".to_owned(),
            id: "0123".to_owned(),
            connected: true,
            server: Some("n1".to_owned()),
            dropped: [("overflow".to_owned(), 3), ("unsent".to_owned(), 0)].into(),
            nodes: vec![other],
            ..stats::Cluster::default()
        };
        let shown = text(&status);
        for part in
            ["cluster: eu\n", "NATS: connected to n1\n", "dropped: 3 overflow\n", "300 ms ago", "12/s"]
        {
            assert!(shown.contains(part), "{part:?} is not in\n{shown}");
        }
        assert!(!shown.contains('\u{1b}'));
        let alone = stats::Cluster { fault: Some("DNS error".to_owned()), ..stats::Cluster::default() };
        assert!(text(&alone).contains("NATS: away: DNS error\n") && text(&alone).contains("no other nodes"));
    }
}
