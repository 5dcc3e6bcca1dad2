//! `shoal health`: whether the running tracker serves, for containers and scripts.
//!
//! It asks the pages of the control listener that need no token, and finds the listener as the tracker itself does:
//! by the configuration, which in a container is often the environment alone.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::client::{ClientError, ControlClient, Endpoint};
use crate::finding::{Finding, Findings};
use shoal_runtime::config_file;
use shoal_runtime::failure::Failure;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Health {
    #[command(flatten)]
    endpoint: Endpoint,

    /// Configuration of the tracker, whose control.listen says where to ask
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// The text that `shoal health --help` prints after the arguments.
const HELP: &str = "\
Exit codes: 0 every worker responds, 1 one does not or there is no tracker, 2 the arguments are invalid. A tracker that \
drains, joins a cluster or has a pause is healthy, and a line says so.

Examples:
  shoal health
  shoal health --config /etc/shoal/shoal.toml
  HEALTHCHECK CMD [\"/shoal\", \"health\"]       in a Dockerfile";

/// Executes the command, and returns its output and its exit code.
pub fn run(Health { endpoint, config, json }: &Health) -> Result<(String, ExitCode), Failure> {
    let endpoint = match config {
        Some(file) => endpoint.or(Endpoint::of(&config_file::read(Some(file))?)?),
        // The environment alone may contradict itself where a file completes it. The tracker is then at its default place.
        None => match config_file::read(None) {
            Ok(config) => endpoint.or(Endpoint::of(&config)?),
            Err(_) => endpoint.clone(),
        },
    };
    let client = ControlClient::new(&endpoint)?;
    let findings = Findings::new(findings(&client)?);
    Ok((findings.shown(*json), findings.exit_code()))
}

fn findings(client: &ControlClient) -> Result<Vec<Finding>, ClientError> {
    let health = match state(client, "/health") {
        Ok(health) => health,
        Err(ClientError::Transport(text)) => {
            let action = "start it (systemctl start shoal), or say where it is: --config FILE or --url URL";
            return Ok(vec![Finding::problem("tracker", text, action)]);
        }
        Err(error) => return Err(error),
    };
    let numbers = |name: &str| health[name].as_array().into_iter().flatten();
    let mut findings = Vec::new();
    for worker in numbers("silent_workers") {
        findings.push(Finding::problem(
            "worker",
            format!("worker {worker} does not respond"),
            "restart the tracker (systemctl restart shoal), and report the fault with its log",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("workers", format!("all {} respond", health["workers"])));
    }
    for reader in numbers("silent_readers") {
        findings.push(Finding::advice(
            "files",
            format!("{} are being read for more than a minute", reader.as_str().unwrap_or_default()),
            "look at the disk or the network file system of the files; clients are served meanwhile",
        ));
    }
    findings.extend(pause(&health));
    findings.extend(unready(&state(client, "/health/ready")?));
    Ok(findings)
}

/// Returns what is paused, if anything is. Earlier versions do not tell.
fn pause(health: &Value) -> Option<Finding> {
    let paused: Vec<&str> = health["paused"].as_array()?.iter().filter_map(Value::as_str).collect();
    let found = format!("paused, so that their clients are refused: {}", paused.join(", "));
    let action = "see why: shoal ctl pause --status; serve them again: shoal ctl resume";
    (!paused.is_empty()).then(|| Finding::advice("pause", found, action))
}

/// Returns why the tracker wants no new clients, if it is so.
fn unready(ready: &Value) -> Option<Finding> {
    if ready["draining"] == true {
        let action = "wait for its end, or let it serve announces again: shoal ctl drain --cancel";
        Some(Finding::advice("drain", "the tracker drains and refuses announces", action))
    } else if ready["joining"] == true {
        let action = "wait; `shoal cluster status` shows the nodes";
        Some(Finding::advice("cluster", "the tracker still joins its cluster", action))
    } else {
        None
    }
}

/// Returns the document of a page that has it with status 200 and with 503.
fn state(client: &ControlClient, path: &str) -> Result<Value, ClientError> {
    match client.get(path) {
        Err(ClientError::Refused { status: 503, error }) => {
            serde_json::from_str(&error).map_err(|_| ClientError::Refused { status: 503, error })
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_pause_is_named_and_the_tracker_is_healthy() {
        assert!(pause(&json!({ "healthy": true })).is_none() && pause(&json!({ "paused": [] })).is_none());
        let finding = pause(&json!({ "paused": ["udp v6", "http v6"] })).unwrap();
        assert_eq!((finding.level, finding.subject), (Level::Advice, "pause"));
        assert!(finding.found.ends_with(": udp v6, http v6"), "{}", finding.found);
    }

    #[test]
    fn a_tracker_that_wants_no_new_clients_is_named() {
        assert!(unready(&json!({ "healthy": true })).is_none());
        for (state, subject) in [
            (json!({ "ready": false, "draining": true, "joining": true }), "drain"),
            (json!({ "ready": false, "draining": false, "joining": true }), "cluster"),
        ] {
            let finding = unready(&state).unwrap();
            assert_eq!((finding.level, finding.subject), (Level::Advice, subject));
        }
    }
}
