//! Instructions of a reply over UDP, counted by callgrind. Unlike times, counts are the same in every run, so they show
//! a change of a few per cent on any machine.
//!
//! `cargo bench -p shoal-engine --bench instructions -- [--json] [--filter TEXT] [--accept]` compares every case with the
//! accepted count in `instructions.json`, and fails if one is more than 3 % above it; `--accept` writes that file.
//! Without `--bench` (as under `cargo test`) every case runs once at a tiny size, without callgrind.
//!
//! The load is that of the preset `published` of `shoal-lab compare`, and of its twin with churn, at a twentieth of the
//! size: the number of peers in each swarm is the same, only the swarms are fewer. The limits and bans are the defaults,
//! and the clients have addresses that these do not exempt. The count depends on the compiler, and
//! a little on the C library, whose `memcpy` depends on the processor.
#![forbid(unsafe_code)]

mod clients;
mod counts;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use shoal_access::Access;
use shoal_access::networks::{Network, NetworkTable};
use shoal_access::token::{HashKey, KeyNumber, KeySet};
use shoal_base::source::{HoldingLimits, Holdings};
use shoal_base::transport::datagram::{BATCH_MAX, Exchange, REPLY_BYTES_MAX};
use shoal_config::{Auto, Config, PrivateAddresses};
use shoal_engine::Now;
use shoal_engine::connection_id::ConnectionKey;
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::insight::{SampleRing, Sampler};
use shoal_engine::limits::{Limits, SourceRates};
use shoal_engine::policy::{Policy, Protocol};
use shoal_engine::tokens::{TokenMemory, Tokens};
use shoal_engine::udp::Responder;
use shoal_engine::watch::Watch;
use shoal_store::Store;
use shoal_testkit::tokens::{Issuer, jwks};
use shoal_wire::udp::encode_url_data;

use clients::{Clients, Mix, REQUEST_BYTES_MAX};

const NOW: Now = Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 };

/// The secret of tables. As in production, its bits are random: small numbers would not hash.
const SECRET: [u64; 4] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

const KEY: ConnectionKey = ConnectionKey::new(*b"fedcba9876543210");

/// The rules of the operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// The defaults.
    None,
    /// No limits of sources, no bans, and all addresses are alike: what these cost by default is the difference.
    Unprotected,
    /// 100,000 networks.
    Networks,
    /// Every announce has a token, which is in the cache.
    Tokens,
    /// Announces are sampled as on a busy tracker, and changes are watched.
    Insight,
}

/// A load whose instructions are counted.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    mix: Mix,
    /// Average number of announces in the life of a peer; 0 means that peers never leave.
    announces_per_life: u32,
    /// The rules of the operator.
    rules: Rules,
}

/// An announce with the defaults, and the same without those that protect the tracker.
pub(crate) const PROTECTED: &str = "instructions/announce";
pub(crate) const UNPROTECTED: &str = "instructions/announce-unprotected";

const CASES: [Case; 9] = [
    Case {
        name: "instructions/connect",
        mix: Mix { connect: 1, announce: 0, scrape: 0 },
        announces_per_life: 0,
        rules: Rules::None,
    },
    Case {
        name: PROTECTED,
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        announces_per_life: 0,
        rules: Rules::None,
    },
    Case {
        name: UNPROTECTED,
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        announces_per_life: 0,
        rules: Rules::Unprotected,
    },
    Case {
        name: "instructions/published",
        mix: Mix { connect: 50, announce: 50, scrape: 1 },
        announces_per_life: 0,
        rules: Rules::None,
    },
    Case {
        name: "instructions/published-churn",
        mix: Mix { connect: 50, announce: 50, scrape: 1 },
        announces_per_life: 8,
        rules: Rules::None,
    },
    Case {
        name: "instructions/announce-with-rules",
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        announces_per_life: 0,
        rules: Rules::Networks,
    },
    Case {
        name: "instructions/announce-with-token",
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        announces_per_life: 0,
        rules: Rules::Tokens,
    },
    Case {
        name: "instructions/announce-with-insight",
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        announces_per_life: 0,
        rules: Rules::Insight,
    },
    Case {
        name: "instructions/churn-with-insight",
        mix: Mix { connect: 50, announce: 50, scrape: 1 },
        announces_per_life: 8,
        rules: Rules::Insight,
    },
];

/// The extent of a run.
#[derive(Clone, Copy)]
struct Size {
    torrents: u32,
    peers: u32,
    /// Number of batches, each of `BATCH_MAX` requests.
    batches: u32,
}

const FULL: Size = Size { torrents: 50_000, peers: 100_000, batches: 500 };
const TINY: Size = Size { torrents: 500, peers: 1000, batches: 5 };

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    if let Some(name) = value("--child") {
        // This process runs in callgrind.
        let case = CASES.into_iter().find(|case| case.name == name);
        return case.map_or(ExitCode::FAILURE, |case| {
            println!("{}", run(case, FULL));
            ExitCode::SUCCESS
        });
    }
    let filter = value("--filter").unwrap_or_default();
    let chosen = CASES.into_iter().filter(|case| case.name.contains(&filter));
    if !flag("--bench") {
        chosen.for_each(|case| assert!(run(case, TINY) > 0, "{}: there are replies", case.name));
        return ExitCode::SUCCESS;
    }
    let result = counts::compare(chosen.map(|case| case.name), flag("--json"), flag("--accept"));
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

/// Fills a tracker and puts load on it. Returns the number of replies to the load.
fn run(case: Case, size: Size) -> u64 {
    let mut config = Config::default();
    // As in comparisons, whose load comes from a few addresses.
    config.announce.peers_per_address_max = 0;
    if case.rules == Rules::Unprotected {
        unprotect(&mut config);
    }
    let mut settings = shoal_store::Settings::new(256 << 20, 2700, SECRET);
    let peers_max = config.limits.peers_per_source_max;
    let holdings = HoldingLimits { peers_max, torrents_max: 0 };
    settings.holdings = Holdings::new(holdings, [SECRET[0], SECRET[1]]).map(Arc::new);
    let store = Arc::new(Store::new(&settings).expect("address space"));
    let rng = fastrand::Rng::with_seed(3);
    let issuer = Issuer::ed25519("2026-11");
    let sources = Arc::new(SourceRates::new(SECRET));
    let (limits, watch) = (Limits::of(&config.limits, &sources), Watch::of(&config, &sources));
    let (policy, options) = match case.rules {
        Rules::None | Rules::Unprotected | Rules::Insight => (Policy::new(config), vec![Vec::new()]),
        Rules::Networks => (with_networks(config), vec![Vec::new()]),
        Rules::Tokens => {
            (with_tokens(config, &issuer), (0..TOKENS).map(|user| options(&issuer, user)).collect())
        }
    };
    let policy = Arc::new(policy.with_limits(limits).with_watch(watch));
    let mut context = Context::new(Protocol::Udp, policy, Tally::default(), rng);
    let ring = Arc::new(SampleRing::default());
    if case.rules == Rules::Insight {
        ring.adapt(u64::MAX);
        context.sampler = Sampler::new(Arc::clone(&ring), fastrand::Rng::with_seed(7));
        store.watch_changes();
    }
    let mut responder = Responder::new(context, &KEY, Arc::clone(&store));
    let mut spare = Vec::new();
    let mut clients = Clients::new(size.torrents, size.peers, case.announces_per_life, NOW.unix_s, options);
    let mut first = 0;
    while first < size.peers {
        let count = (size.peers - first).min(64);
        serve(
            &mut responder,
            count,
            |responder, batch| responder.serve(batch, NOW),
            |number, out| clients.start(first + number, out),
        );
        first += count;
    }
    let batch = u32::try_from(BATCH_MAX).expect("a batch is small");
    let replies = (0..size.batches).map(|_| {
        ring.drain(|_| {});
        store.take_changes(&mut spare, |_| {});
        serve(&mut responder, batch, measured_serve, |_, out| clients.request(case.mix, out))
    });
    replies.sum()
}

/// Turns off what protects the tracker by default, as far as UDP has it. The peers of an address are not limited in any case here.
fn unprotect(config: &mut Config) {
    config.limits.udp_requests_per_s = 0;
    config.limits.http_requests_per_s = 0;
    config.limits.webtorrent_requests_per_s = 0;
    config.limits.tcp_connects_per_s = 0;
    config.limits.peers_per_source_max = 0;
    config.bans.automatic = false;
    config.address.private = Auto::Set(PrivateAddresses::Serve);
}

/// Returns a policy with 100,000 networks that refuse no client here.
fn with_networks(config: Config) -> Policy {
    let mut rng = fastrand::Rng::with_seed(5);
    // The clients have higher addresses.
    let denied: Vec<Network> = (0..100_000)
        .filter_map(|_| Network::new(Ipv4Addr::from_bits(rng.u32(..0x7f00_0000)).into(), rng.u8(16..=32)))
        .collect();
    let networks = Some(Arc::new(NetworkTable::new(None, &denied)));
    Policy::new(config).with_access(Access { networks, ..Access::default() })
}

/// Number of different tokens.
const TOKENS: u32 = 1000;

/// Returns a policy that demands a token of this issuer.
fn with_tokens(mut config: Config, issuer: &Issuer) -> Policy {
    config.tokens.issuer = shoal_config::Name::parse(ISSUER);
    let keys = KeySet::parse(jwks(&[issuer.jwk()]).as_bytes()).expect("the issuer has a key");
    let keys = keys.following(None, &mut KeyNumber::default());
    let mut random = [0; HashKey::BYTES];
    fastrand::Rng::with_seed(6).fill(&mut random);
    let memory = Arc::new(TokenMemory::new(HashKey::new(&random), 1 << 20));
    let sources = Arc::new(SourceRates::new(SECRET));
    let tokens = Tokens::new(&config.tokens, keys, u32::MAX, memory, sources);
    Policy::new(config).with_tokens(Some(tokens))
}

const ISSUER: &str = "https://site.example/";

/// Returns the options of an announce with the token of a user (BEP 41). They are about as long as libtorrent sends them,
/// which is one option.
fn options(issuer: &Issuer, user: u32) -> Vec<u8> {
    let claims = json!({ "iss": ISSUER, "sub": user, "exp": NOW.unix_s + 86_400 });
    let header = json!({ "alg": "EdDSA", "kid": "2026-11" });
    let url = format!("/announce?jwt={}", issuer.token_with_header(&header, &claims));
    assert!((200..=255).contains(&url.len()), "{url}");
    let mut options = vec![0; url.len() + 8];
    let bytes = encode_url_data(url.as_bytes(), &mut options).expect("there is room");
    options.truncate(bytes);
    options
}

/// The function whose instructions are counted, see `counts`.
#[inline(never)]
fn measured_serve(responder: &mut Responder, batch: &mut [Exchange<'_>]) {
    responder.serve(batch, NOW);
}

/// Serves a batch of requests, which `write` writes. Returns the number of replies.
fn serve(
    responder: &mut Responder,
    count: u32,
    serve: fn(&mut Responder, &mut [Exchange<'_>]),
    mut write: impl FnMut(u32, &mut [u8]) -> (std::net::SocketAddr, usize),
) -> u64 {
    let mut requests = [[0; REQUEST_BYTES_MAX]; BATCH_MAX];
    let mut replies = [[0; REPLY_BYTES_MAX]; BATCH_MAX];
    let mut batch: Vec<Exchange<'_>> = requests
        .iter_mut()
        .zip(&mut replies)
        .zip(0..count)
        .map(|((request, reply), number)| {
            let (source, bytes) = write(number, request);
            Exchange { source, request: &request[..bytes], reply, reply_len: 0 }
        })
        .collect();
    serve(responder, &mut batch);
    // An error message would begin with action 3 (BEP 15).
    let is_good = |exchange: &&Exchange<'_>| exchange.reply_len > 8 && exchange.reply[..4] != [0, 0, 0, 3];
    let good = batch.iter().filter(is_good).count();
    assert_eq!(good, batch.len(), "every request has a good reply");
    good as u64
}
