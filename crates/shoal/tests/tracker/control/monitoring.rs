//! The dashboard and the alert rules of `monitoring/`, checked by promtool, and by a Prometheus that scrapes a tracker
//! under load. That tracker has an XDP data path, which needs root.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use shoal_testkit::nats::{Options, Server};
use shoal_testkit::network::between_two;
use shoal_testkit::process::{Process, wait_for};
use shoal_testkit::tools::PROMETHEUS;
use tempfile::TempDir;

use crate::cluster;
use crate::http::{Way, self_signed};
use crate::kit::browser::{self, Browser};
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::page::send;
use crate::kit::web;

/// The range of all rates: long enough for some scrapes.
const RATE_INTERVAL: &str = "1m";

/// A pause between two looks at Prometheus, and how often it is looked at before the test gives up.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: u16 = 900;

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    for arguments in [["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]] {
        let output = promtool().args(arguments).current_dir(monitoring("")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_alert_has_a_test() {
    let [rules, tests] =
        ["alerts.yml", "alerts_test.yml"].map(|file| fs::read_to_string(monitoring(file)).unwrap());
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert} has no test");
    }
}

#[test]
fn promtool_finds_no_fault_with_the_metrics() {
    let loaded = Loaded::start();
    loaded.announce_everywhere(1);
    let scrape =
        format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nAccept: text/plain\r\n\r\n", loaded.tracker.control);
    // The nodes were asked until they knew each other, and the listener limits how often.
    let page = eventually("the listener replies", || {
        Some(send(loaded.tracker.control, scrape.as_bytes())).filter(|page| page.status != 429)
    });
    assert!(page.head.contains("content-type: text/plain; version=0.0.4"), "{}", page.head);
    let mut check = promtool();
    let check =
        check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(page.body.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let findings = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && findings.is_empty(), "{findings}");
}

#[test]
fn a_prometheus_answers_every_query_of_the_dashboard_and_of_the_rules() {
    between_two(|server, _| {
        server.command("ip link set server up");
        server.run(ask_every_query);
    });
}

/// Asks for every series, beside an interface for the data path.
fn ask_every_query() {
    let loaded = Loaded::start_with(&[("SHOAL_UDP_XDP_INTERFACES", "server")]);
    let prometheus = Prometheus::start(loaded.tracker.control);
    prometheus.wait_for_scrapes(&loaded);
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(monitoring("grafana-dashboard.json")).unwrap()).unwrap();
    let queries = dashboard_queries(&dashboard);
    assert!(queries.len() > 40, "{}", queries.len());
    let mut metrics = BTreeSet::new();
    for query in &queries {
        metrics.extend(metric_names(query));
        assert!(!prometheus.ask(query).is_empty(), "no series: {query}");
    }
    let rules = prometheus.get("/api/v1/rules");
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() > 10, "{rules:?}");
    for rule in &rules {
        let query = rule["query"].as_str().unwrap();
        metrics.extend(metric_names(query));
        assert_eq!(prometheus.ask(query), Vec::<Value>::new(), "the tracker is well: {query}");
        assert_eq!(rule["lastError"], Value::Null, "{rule}");
    }
    // A tracker that credits users needs tokens, and would refuse the announces of this test. `cluster_credit` reads these.
    let is_of_credit = |metric: &String| metric.starts_with("shoal_cluster_credit_");
    assert_eq!(metrics.iter().filter(|metric| is_of_credit(metric)).count(), 3);
    for metric in metrics.iter().filter(|metric| !is_of_credit(metric)) {
        assert!(!prometheus.ask(&format!("count({metric})")).is_empty(), "no series: {metric}");
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the end of a certificate is compared with the clock of this host"
)]
fn the_end_of_a_certificate_is_told_and_its_file_is_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let quoted = folder.path().join("a\"b");
    fs::create_dir(&quoted).unwrap();
    let (certificate, key) = self_signed(&quoted, "localhost");
    let settings = [
        ("SHOAL_TLS_LISTEN", "127.0.0.1:0"),
        ("SHOAL_TLS_CERTIFICATES", &*certificate),
        ("SHOAL_TLS_KEYS", &*key),
    ];
    let tracker = Tracker::start(&settings);
    let label = format!("file=\"{}\"", certificate.replace('"', "\\\""));
    let ends_unix_s = tracker.metric("shoal_certificate_expiry_timestamp_seconds", &[&label]);
    let now_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let days = (ends_unix_s - now_unix_s) / 86_400;
    assert!((363..=365).contains(&days), "{days}");
}

#[test]
fn the_panels_of_the_dashboard_are_whole() {
    let text = fs::read_to_string(monitoring("grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(!panel["title"].as_str().unwrap().is_empty(), "{panel}");
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{panel}");
        for (x, y) in (place("x")..place("x") + place("w"))
            .flat_map(|x| (place("y")..place("y") + place("h")).map(move |y| (x, y)))
        {
            assert!(places.insert((x, y)), "it overlaps another: {panel}");
        }
        if panel["type"] != "row" {
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{panel}");
            assert!(!panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap().is_empty(), "{panel}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
}

/// A tracker with a list and a certificate that is a node of a cluster with another one, which makes series of all kinds.
struct Loaded {
    tracker: Tracker,
    _other: Tracker,
    _nats: Server,
    _folder: TempDir,
}

impl Loaded {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(further: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let deny = folder.path().join("deny");
        fs::write(&deny, format!("{}\n", "02".repeat(20))).unwrap();
        let nats = Server::start(&Options::default()).unwrap();
        let settings = [
            ("SHOAL_ACCESS_TORRENTS_DENY", deny.to_str().unwrap()),
            ("SHOAL_CLUSTER_SERVERS", &nats.url()),
            ("SHOAL_CLUSTER_NODE", "a"),
        ];
        let tracker = Way::new(false, true).start(&[&settings, further].concat());
        let other = cluster::start("b", &nats.url(), &[]);
        for (node, other) in [(&tracker, "b"), (&other, "a")] {
            cluster::wait_for_nodes(node, &[other], "ready");
        }
        Self { tracker, _other: other, _nats: nats, _folder: folder }
    }

    /// Announces over every protocol and family. A few requests are refused.
    fn announce_everywhere(&self, round: u16) {
        for v6 in [false, true] {
            let client = Client::new(self.tracker.udp[usize::from(v6)]);
            client.announce_all((0..50).map(|port| Announce::leecher([1; 20], 1000 + port)));
            client.refusal(&Announce::leecher([2; 20], 1).packet(client.connect(), 1));
            let mut web = Way::new(v6, false).connect(&self.tracker);
            for port in 0..10 {
                web.get(&web::announce([1; 20], 1000 + port, ""));
            }
            let peer = char::from(b'a' + u8::try_from(round % 26).unwrap());
            Browser::open(Way::new(v6, false), &self.tracker).ask(&browser::announce('t', peer, 0));
        }
    }
}

/// How long Prometheus may take to start, on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// A running Prometheus. Killed on drop.
struct Prometheus {
    _process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes `target` each second and evaluates the rules.
    fn start(target: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prometheus.yml");
        let configuration = json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
            "rule_files": [monitoring("alerts.yml")],
            "scrape_configs": [{ "job_name": "shoal", "static_configs": [{ "targets": [target.to_string()] }] }],
        });
        // JSON is YAML.
        fs::write(&file, configuration.to_string()).unwrap();
        let mut command = PROMETHEUS.command().unwrap();
        command.arg("--config.file").arg(&file).arg("--storage.tsdb.path").arg(folder.path().join("data"));
        command.args(["--web.listen-address", "127.0.0.1:0", "--log.format", "json"]);
        let process = Process::start(command, &folder.path().join("prometheus.log")).unwrap();
        let listening = wait_for("Prometheus should listen", START_TIME_MAX, || {
            let log = process.log();
            let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            Ok(lines.find(|line| line["msg"] == "Listening on"))
        });
        let listening = listening.unwrap_or_else(|error| panic!("{error}\n{}", process.log()));
        let address = listening["address"].as_str().unwrap().parse().unwrap();
        Self { _process: process, address, _folder: folder }
    }

    /// Waits until it has scraped the tracker, which is under load, often enough for rates.
    fn wait_for_scrapes(&self, loaded: &Loaded) {
        for round in 0..LOOKS_MAX {
            loaded.announce_everywhere(round);
            let page = self.try_get("/api/v1/query?query=sum_over_time(up%5B1m%5D)");
            let count = page.as_ref().and_then(|page| page["data"]["result"][0]["value"][1].as_str());
            if count.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count >= 3) {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
        panic!("Prometheus does not scrape the tracker: {}", self.get("/api/v1/targets"));
    }

    /// Returns the series of a query.
    fn ask(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let page = self.get(&format!("/api/v1/query?query={encoded}"));
        assert_eq!(page["status"], "success", "{query}: {page}");
        assert!(page["warnings"].is_null(), "{query}: {page}");
        page["data"]["result"].as_array().unwrap().clone()
    }

    fn get(&self, target: &str) -> Value {
        self.try_get(target).unwrap_or_else(|| panic!("no JSON at {target}"))
    }

    fn try_get(&self, target: &str) -> Option<Value> {
        // A reply to HTTP/1.0 comes as a whole.
        let request = format!("GET {target} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        serde_json::from_str(&send(self.address, request.as_bytes()).body).ok()
    }
}

/// Returns every query of the dashboard, as Grafana would send it with all instances selected.
fn dashboard_queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let replaced = |query: &str| {
        let query = query.replace("$__rate_interval", RATE_INTERVAL);
        query.replace("$job", ".*").replace("$instance", ".*")
    };
    expressions.map(replaced).collect()
}

/// Returns the names of metrics in a query.
fn metric_names(query: &str) -> impl Iterator<Item = String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_metric = |word: &&str| *word == "up" || word.starts_with("shoal_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned)
}

fn promtool() -> Command {
    Command::new(PROMETHEUS.path().unwrap().with_file_name("promtool"))
}

/// The path of a file in `monitoring/`.
fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring").join(file)
}
