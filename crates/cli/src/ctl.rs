//! `shoal ctl`: the command line for the API of a running tracker.
//!
//! Every command is one or two requests to the control listener ([`crate::client`]), so its rights only depend on its
//! token. `token` needs no tracker.

pub(crate) mod show;

use std::io::{BufRead, Read};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::client::{ClientError, ControlClient, Endpoint};
use crate::top;
use shoal_control::{Role, is_token_name, token_line};
use shoal_runtime::failure::Failure;
use shoal_runtime::lists::operations::NewDetails;
use shoal_runtime::{output, printable};

/// Time to wait for a snapshot: the maximum time of a connection.
const SNAPSHOT_TIME_MAX: Duration = Duration::from_secs(3600);

/// Time to wait for an upgrade: the maximum time for the new process to read its configuration and to take over.
const UPGRADE_TIME_MAX: Duration = Duration::from_secs(300);

/// Maximum size of an event of the feed of changes.
const EVENT_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Ctl {
    #[command(flatten)]
    endpoint: Endpoint,

    /// Print the reply of the tracker as JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    action: Action,
}

/// The arguments of `shoal upgrade`, which is short for `shoal ctl upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    #[command(flatten)]
    endpoint: Endpoint,

    /// Print the reply of the tracker as JSON
    #[arg(long)]
    json: bool,
}

impl From<Upgrade> for Ctl {
    fn from(Upgrade { endpoint, json }: Upgrade) -> Self {
        Self { endpoint, json, action: Action::Upgrade }
    }
}

/// The text that `shoal ctl --help` prints after the arguments.
const HELP: &str = "\
Examples:
  shoal ctl token --role admin --name kim    make a token for a client
  shoal ctl bans add 192.0.2.0/24 --for 1h --reason floods
  shoal ctl bans remove 192.0.2.7            serve a banned source again
  shoal ctl lists add --deny HASH            refuse a torrent from now on
  shoal ctl drain --wait 30s                 tell the load balancer, then end
  shoal ctl pause udp ipv6 --reason floods --retry-in 30m
  shoal ctl log debug                        until the next reload or restart

Exit codes: 0 done, 1 no reply or the tracker failed, 2 the arguments or the request are invalid, 3 nothing of that name, \
5 the token does not permit it.";

#[derive(Debug, Subcommand)]
enum Action {
    /// Networks that are not served for a time, by an operator or because they have earned it
    Bans {
        #[command(subcommand)]
        action: Option<BanAction>,
    },
    /// The lists of torrents that are refused or served
    Lists {
        #[command(subcommand)]
        action: Option<ListAction>,
    },
    /// The counts of a torrent and the ages of its swarms, and with --peers some of its peers
    Torrent {
        /// The info hash
        info_hash: String,

        /// Maximum number of peers to print; needs the role admin
        #[arg(long, default_value_t = 0)]
        peers: u16,
    },
    /// All statistics of this moment; `shoal top` follows them
    Stats,
    /// The largest swarms
    Top {
        /// Maximum number of torrents
        #[arg(long, default_value_t = 20)]
        max: u16,
    },
    /// Follow the torrents whose counts change: an object for each event, until the connection ends
    Changes {
        /// The cursor of the last event, to go on after it
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show the state of an address in the limits
    Source {
        /// An IPv4 or IPv6 address
        address: std::net::IpAddr,
    },
    /// Read configuration, certificates, lists and tokens again, as SIGHUP does
    Reload,
    /// Write a snapshot of the swarms now, and wait for its end
    Snapshot,
    /// Hand over to the installed program, which may be another version, without losing a request
    Upgrade,
    /// Print the level of the log, or set it until the next reload or restart
    Log {
        /// error, warn, info, debug or trace
        level: Option<String>,
    },
    /// Refuse new announces, tell the load balancer, and end after a time
    ///
    /// Clients are told to try again in a minute, and /health/ready says 503. Without an option it waits for a minute and
    /// ends.
    Drain {
        /// Time until it has drained, such as 30s, 5m or 1h
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = seconds)]
        wait: u64,

        /// Refuse announces until the drain is cancelled, and do not end
        #[arg(long)]
        stay: bool,

        /// Serve announces again
        #[arg(long, conflicts_with_all = ["stay", "status"])]
        cancel: bool,

        /// Only print whether it drains
        #[arg(long, conflicts_with = "stay")]
        status: bool,
    },
    /// Refuse the clients of a protocol or an address family for a time
    ///
    /// Announces and scrapes are refused with the reason; clients that leave are served. Without a part, everything is paused.
    /// A reload and an upgrade keep a pause, and a restart with --keep. `shoal ctl resume` ends it.
    Pause {
        /// Protocols and address families: all others are served
        #[arg(value_name = "PART")]
        parts: Vec<Part>,

        /// Why, in words that clients see
        #[arg(long, required_unless_present = "status")]
        reason: Option<String>,

        /// Time after which clients are told to try again, from 1m to 24h
        #[arg(long, value_name = "TIME", default_value = "30m", value_parser = seconds)]
        retry_in: u64,

        /// Keep the pause over a restart, in state.path
        #[arg(long)]
        keep: bool,

        /// Only print what is paused
        #[arg(long, conflicts_with_all = ["parts", "reason", "keep"])]
        status: bool,
    },
    /// Serve paused protocols and address families again, or everything
    Resume {
        /// Protocols and address families
        #[arg(value_name = "PART")]
        parts: Vec<Part>,
    },
    /// Print the description of the API (OpenAPI)
    Openapi,
    /// Make a token, and print it with its line for the file that control.tokens names
    Token {
        /// read: everything but addresses of peers; admin: everything, and changes
        #[arg(long)]
        role: Role,

        /// Whose token it is, for the audit: letters, digits and ._@-
        #[arg(long)]
        name: String,
    },
}

/// A part of the service that can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Udp,
    Http,
    Webtorrent,
    Ipv4,
    Ipv6,
}

#[derive(Debug, Subcommand)]
enum BanAction {
    /// Print all bans
    List,
    /// Ban an address or a network
    Add {
        /// An address, or a network such as 192.0.2.0/24
        network: String,

        /// Why
        #[arg(long)]
        reason: String,

        /// Time until the ban ends, such as 30m, 1h or 7d; without it, the ban does not end
        #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
        duration: Option<u64>,
    },
    /// Lift the ban of a network, or of the source at an address
    Remove {
        /// An address, or a network as `shoal ctl bans` prints it
        network: String,
    },
    /// Lift all bans that sources have earned ("automatic"); those of operators stay
    Clear,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The list of refused torrents
    #[arg(long)]
    deny: bool,

    /// The list of served torrents
    #[arg(long)]
    allow: bool,
}

#[derive(Debug, Subcommand)]
enum ListAction {
    /// Print the sources of all lists
    Sources,
    /// Print the entries of a list whose reason or reference contains a text
    Search {
        #[command(flatten)]
        which: Which,

        /// A text, or nothing for any entry
        text: Option<String>,

        /// Only the entry of this torrent
        #[arg(long, value_name = "HASH", conflicts_with = "text")]
        torrent: Option<String>,

        /// Maximum number of entries
        #[arg(long, default_value_t = 100)]
        max: u16,
    },
    /// Add torrents to a list
    Add {
        #[command(flatten)]
        which: Which,

        /// Info hashes or magnet links
        #[arg(value_name = "TORRENT", required = true)]
        torrents: Vec<String>,

        #[command(flatten)]
        details: NewDetails,
    },
    /// Remove torrents from a list
    Remove {
        #[command(flatten)]
        which: Which,

        /// Info hashes or magnet links
        #[arg(value_name = "TORRENT", required = true)]
        torrents: Vec<String>,
    },
}

impl Which {
    const fn name(&self) -> &'static str {
        if self.deny { "deny" } else { "allow" }
    }
}

/// Executes a command, and returns its output.
pub fn run(ctl: &Ctl) -> Result<String, Failure> {
    if let Action::Token { role, name } = &ctl.action {
        return make_token(*role, name, ctl.json);
    }
    let client = ControlClient::new(&ctl.endpoint)?;
    if let Action::Changes { cursor } = &ctl.action {
        return follow(&client, cursor.as_deref());
    }
    let reply = ask(&client, &ctl.action)?;
    if ctl.json || matches!(ctl.action, Action::Openapi) {
        return Ok(printable::json(&reply.to_string()) + "\n");
    }
    if matches!(ctl.action, Action::Stats) {
        let stats = serde_json::from_value(reply).context("the reply has no statistics")?;
        return Ok(top::text(client.shown(), &stats));
    }
    Ok(show::show(&ctl.action, &reply))
}

/// Prints the events of the feed of changes as they come, until the reader of the output is gone.
fn follow(client: &ControlClient, cursor: Option<&str>) -> Result<String, Failure> {
    let cursor = cursor.map_or_else(String::new, |cursor| format!("?cursor={}", encode(cursor)));
    let mut events = client.events(&format!("/api/v1/changes{cursor}"))?;
    let mut line = String::new();
    loop {
        line.clear();
        let read = events.by_ref().take(EVENT_BYTES_MAX).read_line(&mut line);
        let read = read.context("the feed has ended")?;
        let has_ended = read == 0 || read as u64 == EVENT_BYTES_MAX;
        if has_ended {
            return Err(Failure::Other(anyhow!("the feed has ended; --cursor with the last cursor goes on")));
        }
        // Without changes, other lines show that the feed works.
        let is_closed = match line.strip_prefix("data: ") {
            Some(event) => output::print(&(printable::json(event) + "\n"))?,
            None => output::is_closed(),
        };
        if is_closed {
            return Ok(String::new());
        }
    }
}

fn ask(client: &ControlClient, action: &Action) -> Result<Value, ClientError> {
    let send = |method: &str, path: &str, body: &Value| client.request(method, path, Some(body));
    match action {
        Action::Bans { action: None | Some(BanAction::List) } => client.get("/api/v1/bans"),
        Action::Bans { action: Some(BanAction::Add { network, reason, duration }) } => {
            let ban = json!({ "network": network, "reason": reason, "duration_s": duration });
            send("POST", "/api/v1/bans", &ban)
        }
        Action::Bans { action: Some(BanAction::Remove { network }) } => {
            client.request("DELETE", &format!("/api/v1/bans/{}", encode(network)), None)
        }
        Action::Bans { action: Some(BanAction::Clear) } => client.request("DELETE", "/api/v1/bans", None),
        Action::Lists { action: None | Some(ListAction::Sources) } => client.get("/api/v1/lists"),
        Action::Lists { action: Some(action) } => ask_of_list(client, action),
        Action::Torrent { info_hash, peers } => {
            client.get(&format!("/api/v1/torrents/{}?peers={peers}", encode(info_hash)))
        }
        Action::Stats => client.get(top::STATS_PATH),
        Action::Top { max } => client.get(&format!("/api/v1/top?max={max}")),
        Action::Source { address } => client.get(&format!("/api/v1/sources/{address}")),
        Action::Reload => send("POST", "/api/v1/reload", &json!({})),
        Action::Snapshot => {
            client.request_within(SNAPSHOT_TIME_MAX, "POST", "/api/v1/snapshot", Some(&json!({})))
        }
        Action::Upgrade => {
            client.request_within(UPGRADE_TIME_MAX, "POST", "/api/v1/upgrade", Some(&json!({})))
        }
        Action::Log { level: None } => client.get("/api/v1/log"),
        Action::Log { level: Some(level) } => send("PUT", "/api/v1/log", &json!({ "level": level })),
        Action::Drain { status: true, .. } => client.get("/api/v1/drain"),
        Action::Drain { cancel: true, .. } => client.request("DELETE", "/api/v1/drain", None),
        Action::Drain { wait, stay, .. } => {
            let then = if *stay { "stay" } else { "exit" };
            send("PUT", "/api/v1/drain", &json!({ "wait_s": wait, "then": then }))
        }
        Action::Pause { status: true, .. } => client.get("/api/v1/pauses"),
        Action::Pause { parts, reason, retry_in, keep, .. } => {
            let mut pause = json_of(parts);
            pause["reason"] = json!(reason);
            pause["retry_in_s"] = json!(retry_in);
            pause["keep"] = json!(keep);
            send("POST", "/api/v1/pauses", &pause)
        }
        Action::Resume { parts } => send("POST", "/api/v1/pauses/resume", &json_of(parts)),
        Action::Openapi => client.get("/api/v1/openapi.json"),
        Action::Changes { .. } | Action::Token { .. } => Ok(Value::Null),
    }
}

/// Returns the parts as the API names them.
fn json_of(parts: &[Part]) -> Value {
    let named = |names: &[(Part, &'static str)]| -> Vec<&'static str> {
        names.iter().filter(|(part, _)| parts.contains(part)).map(|(_, name)| *name).collect()
    };
    json!({
        "protocols": named(&[(Part::Udp, "udp"), (Part::Http, "http"), (Part::Webtorrent, "webtorrent")]),
        "families": named(&[(Part::Ipv4, "v4"), (Part::Ipv6, "v6")]),
    })
}

fn ask_of_list(client: &ControlClient, action: &ListAction) -> Result<Value, ClientError> {
    match action {
        ListAction::Sources => client.get("/api/v1/lists"),
        ListAction::Search { which, text, torrent, max } => {
            let mut path = format!("/api/v1/lists/{}/torrents?max={max}", which.name());
            for (name, value) in [("text", text), ("info_hash", torrent)] {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", encode(value)));
                }
            }
            client.get(&path)
        }
        ListAction::Add { which, torrents, details: NewDetails { reason, reference, date } } => {
            let body =
                json!({ "torrents": torrents, "reason": reason, "reference": reference, "date": date });
            client.request("POST", &format!("/api/v1/lists/{}/add", which.name()), Some(&body))
        }
        ListAction::Remove { which, torrents } => {
            let body = json!({ "torrents": torrents });
            client.request("POST", &format!("/api/v1/lists/{}/remove", which.name()), Some(&body))
        }
    }
}

fn make_token(role: Role, name: &str, as_json: bool) -> Result<String, Failure> {
    if !is_token_name(name) {
        return Err(Failure::Configuration(format!(
            "{name:?} is no name for a token: it has up to 64 letters, digits and ._@-"
        )));
    }
    let token: String =
        shoal_runtime::random::bytes::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = token_line(role, name, &token);
    if as_json {
        return Ok(format!("{}\n", json!({ "token": token, "line": line })));
    }
    Ok(format!(
        "\
Token, for the client. It is shown only once:
{token}

Line for the file that control.tokens names, which is read at the start and at a reload:
{line}
"
    ))
}

/// Reads a time such as `90`, `30s`, `5m`, `1h` or `7d`, in seconds.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("write a number with s, m, h or d, such as 30s, 5m, 1h or 7d".to_owned()),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.ok_or_else(|| "write a number with s, m, h or d, such as 30s, 5m, 1h or 7d".to_owned())
}

/// Encodes a part of a URL.
fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encoded).collect()
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Options(text) => Self::Configuration(text),
            ClientError::Refused { status: 401 | 403, .. } => Self::NotPermitted(error.to_string()),
            ClientError::Refused { status: 404, .. } => Self::NothingFound(error.to_string()),
            ClientError::Refused { status: 400..500, .. } => Self::Configuration(error.to_string()),
            error => Self::Other(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, expected) in [("90", 90), ("30s", 30), ("5m", 300), ("1h", 3600), ("7d", 604_800)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "1w", "-1s", "1.5h", "18446744073709551615d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_url_cannot_contain_is_encoded() {
        assert_eq!(encode("192.0.2.0/24"), "192.0.2.0%2F24");
        assert_eq!(encode("a b&c=é"), "a%20b%26c%3D%C3%A9");
    }
}
