//! Instructions of an announce over HTTP without rules, and with rules and host names that it meets. Callgrind counts them, so
//! that they are the same in every run.
//!
//! `cargo bench -p shoal-session --bench rules` prints both counts and their ratio; without `--bench` (as under `cargo
//! test`) both cases run once at a tiny size, without callgrind. Limits and bans are the defaults.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark may fail by panicking, and it prints"
)]

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use shoal_access::Access;
use shoal_access::rules::{Rule, RuleCounter, RuleSet};
use shoal_base::transport::stream::{Handle, Next, Remote, StreamService};
use shoal_config::Config;
use shoal_engine::Now;
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::http::Responder;
use shoal_engine::limits::{Limits, SourceRates};
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::processing::Stopwatch;
use shoal_engine::watch::Watch;
use shoal_session::{ListenerProtocols, Service, Session, SessionSettings};
use shoal_store::Store;
use shoal_testkit::callgrind;

const NOW: Now = Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 };

/// The secret of tables, whose bits are random as in production.
const SECRET: [u64; 4] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

const TORRENTS: u32 = 1000;

/// Number of announces of a case, after as many that fill the store.
const ANNOUNCES: u32 = 50_000;

const NAMES: [&str; 2] = ["none", "rules"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if has("--child") {
        // This process runs in callgrind.
        run(arguments.last().unwrap(), ANNOUNCES);
        println!("{ANNOUNCES}");
    } else if has("--bench") {
        let [none, rules] = NAMES.map(|name| callgrind::count(name, "measured_receive").unwrap());
        println!("announce/http/none  {none:8.1} instructions");
        println!("announce/http/rules {rules:8.1} instructions, {:.4} times as many", rules / none);
    } else {
        NAMES.iter().for_each(|name| run(name, 100));
    }
}

/// Serves announces, with rules or without.
fn run(name: &str, announces: u32) {
    let mut service = service(policy(name == "rules"));
    let mut session = open(&mut service);
    let (mut input, mut output) = (Vec::with_capacity(4096), Vec::with_capacity(64 << 10));
    for peer in 0..2 * announces {
        input.clear();
        output.clear();
        put_announce(peer, &mut input);
        let next = if peer < announces {
            service.receive(&mut session, &mut input, &mut output)
        } else {
            measured_receive(&mut service, &mut session, &mut input, &mut output)
        };
        assert!(next == Next::Idle && output.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(output.windows(8).any(|window| window == b"interval"), "it is served");
    }
}

/// The function whose instructions are counted.
#[inline(never)]
fn measured_receive(
    service: &mut Service,
    session: &mut Session,
    input: &mut [u8],
    output: &mut Vec<u8>,
) -> Next {
    service.receive(session, input, output)
}

fn put_announce(peer: u32, out: &mut Vec<u8>) {
    let (torrent, port) = (peer % TORRENTS, 1024 + peer / TORRENTS % 50_000);
    let target = "/announce?compact=1&peer_id=-TE0001-abcdefghijkl&uploaded=0&downloaded=0&left=1&numwant=30";
    let fields = "Host: tracker.example:6969\r\nUser-Agent: Transmission/4.0.6\r\nAccept-Encoding: gzip";
    write!(out, "GET {target}&info_hash={torrent:020}&port={port} HTTP/1.1\r\n{fields}\r\n\r\n").unwrap();
}

/// Returns the default policy. With rules, none of them matches the announces, and their host is served.
fn policy(has_rules: bool) -> Policy {
    let mut config = Config::default();
    config.announce.peers_per_address_max = 0;
    let sources = Arc::new(SourceRates::new(SECRET));
    let (limits, watch) = (Limits::of(&config.limits, &sources), Watch::of(&config, &sources));
    let policy = Policy::new(config).with_limits(limits).with_watch(watch);
    if !has_rules {
        return policy;
    }
    let rules = ["user-agent MonitorBot/* drop", "host *.old.example refuse use tracker.example"];
    let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let hosts = ["tracker.example", "tracker.example.org"];
    let set = RuleSet::new(&rules, hosts.into_iter(), |text| Arc::new(RuleCounter::new(text)));
    policy.with_access(Access { rules: Some(Arc::new(set)), ..Access::default() })
}

fn service(policy: Policy) -> Service {
    let listeners = vec![ListenerProtocols { tls: false, proxy_protocol: false }];
    let settings = SessionSettings { listeners, ..SessionSettings::default() };
    let store = Arc::new(Store::new(&shoal_store::Settings::new(256 << 20, 2700, SECRET)).unwrap());
    let rng = fastrand::Rng::with_seed(1);
    let context = Context::new(Protocol::Http, Arc::new(policy), Tally::default(), rng);
    let stopwatch = Stopwatch::new(Arc::default(), fastrand::Rng::with_seed(1), || 0);
    let mut service = Service::new(Arc::new(settings), Responder::new(context, store), None, None, stopwatch);
    service.begin_round(NOW);
    service
}

fn open(service: &mut Service) -> Session {
    let peer = Some(SocketAddr::from(([192, 0, 2, 1], 40_000)));
    service.open(&Remote { listener: 0, peer }, Handle { index: 0, generation: 0 })
}
