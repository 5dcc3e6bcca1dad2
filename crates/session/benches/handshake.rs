//! The CPU time of the server's side of a handshake, without sockets.
//!
//! Client and server run in one thread and exchange their records in memory. Only the calls of the server are measured.
//! Variants alternate, so that the drift of a machine affects all of them. `--only TEXT` chooses variants, and
//! `--handshakes N` the number of each round.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark may fail by panicking, and it prints"
)]

#[path = "../tests/sessions/identity.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod identity;
#[path = "../tests/sessions/peer.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod peer;

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use rustls::ClientConfig;
use rustls::client::Resumption;
use shoal_session::tls::{Server, Session};

use identity::{Folder, Identity, Kind};
use peer::{Client, TLS_1_3, trusting};

const NAME: &str = "tracker.example";

const ROUNDS: usize = 9;

/// The common properties of the handshakes of a round.
struct Variant {
    name: &'static str,
    server: Server,
    resumed: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let handshakes = value("--handshakes").map_or(1000, |text| text.parse().unwrap());
    let folder = Folder::new();
    let identity = Identity::new(Kind::P256, &[NAME]);
    let loaded = Server::load(&[folder.files("one", &identity)]).unwrap();
    let variant = |name, resumed| Variant { name, server: loaded.for_worker(), resumed };
    let variants = [variant("full", false), variant("resumed", true)];
    let chosen = |variant: &&Variant| value("--only").is_none_or(|text| variant.name == text);
    let chosen: Vec<&Variant> = variants.iter().filter(chosen).collect();
    let mut times_us: Vec<Vec<f64>> = vec![Vec::new(); chosen.len()];
    for _ in 0..ROUNDS.min(handshakes) {
        for (variant, times_us) in chosen.iter().zip(&mut times_us) {
            times_us.push(variant.measure(&identity, handshakes));
        }
    }
    for (variant, times_us) in chosen.iter().zip(&mut times_us) {
        times_us.sort_by(f64::total_cmp);
        let (least, median, most) = (times_us[0], times_us[times_us.len() / 2], times_us[times_us.len() - 1]);
        println!("{:28} {median:6.1} µs ({least:.1} to {most:.1})", variant.name);
    }
}

impl Variant {
    /// Returns the mean CPU time of the server in microseconds.
    fn measure(&self, identity: &Identity, handshakes: usize) -> f64 {
        let mut config = trusting(&[&identity.der], TLS_1_3);
        if !self.resumed {
            config.resumption = Resumption::disabled();
        }
        let config = Arc::new(config);
        // The first connection of a client that resumes brings its first ticket.
        handshake(&self.server, &config);
        let spent_ns: u64 = (0..handshakes).map(|_| handshake(&self.server, &config)).sum();
        #[expect(clippy::cast_precision_loss, reason = "both are far below 2^53")]
        let mean_us = spent_ns as f64 / 1e3 / handshakes as f64;
        mean_us
    }
}

/// Makes a handshake. Returns the CPU time of the server.
fn handshake(server: &Server, config: &Arc<ClientConfig>) -> u64 {
    let mut client = Client::new(config, NAME);
    let mut spent_ns = 0;
    let mut session = None;
    loop {
        let mut sent = client.sent();
        if sent.is_empty() {
            return spent_ns;
        }
        let mut output = Vec::new();
        let began_ns = thread_ns();
        let session = session.get_or_insert_with(|| Session::new(server));
        serve(session, &mut sent, &mut output);
        spent_ns += thread_ns() - began_ns;
        client.read(&output).unwrap();
    }
}

/// Serves a flight of the client. A profiler can count this function alone (`--toggle-collect=*serve*`).
#[inline(never)]
fn serve(session: &mut Session, sent: &mut [u8], output: &mut Vec<u8>) {
    session.open(sent, &mut Vec::new(), output).unwrap();
}

/// Returns the CPU time of this thread.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}
