//! Micro-benchmarks, which are the `cargo bench` targets of the crates that they measure.

use anyhow::Result;
use clap::{Args, Subcommand};
use shoal_testkit::tools;

use crate::shell::{build_dist, cargo, run};

/// The arguments of a benchmark.
#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Arguments of the benchmark
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The benchmarks.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Measure time, memory and pauses of the store: `--json` prints lines of JSON, `--filter TEXT` chooses cases
    Store(BenchArguments),
    /// Measure the feed of changes at 100,000 changed torrents a second, and the look-up of the largest of ten million
    /// swarms: `--json` prints lines of JSON
    Insight(BenchArguments),
    /// Measure the export of ten million torrents with 21 million peers, and their return into an empty store: `--json`
    /// prints lines of JSON
    Snapshot(BenchArguments),
    /// Measure how announces per second grow from one worker to two, and predict them for up to 128: `--json` prints
    /// lines of JSON
    Cores(BenchArguments),
    /// Measure the mean time and the longest call of the swarms of WebTorrent: `--json` prints lines of JSON,
    /// `--filter TEXT` chooses cases
    Relay(BenchArguments),
    /// Measure the time to read a list of ten million torrents, its memory, and the time of a look-up there and in a table
    /// of 100,000 networks: `--json` prints lines of JSON
    Lists(BenchArguments),
    /// Measure the time from `shoal access add --deny` to the last reply of the torrent, under load over every protocol,
    /// and the replies without and with reloads of a list of ten million torrents: `--json` prints lines of JSON,
    /// `--filter TEXT` chooses between takedown and reload, `--scale N` multiplies the load of the former, `--rate N` sets
    /// the requests per second of the latter
    Takedown(BenchArguments),
    /// Flood the limits of sources from eleven million addresses, and measure their memory, the CPU time of a flooded
    /// request, and the share of honest requests that are refused: `--json` prints lines of JSON
    ///
    /// Exit code 1 if the limits take more memory than they state, or more than one honest request in 10,000 is refused.
    Limits(BenchArguments),
    /// Measure the CPU time of a change of another node that is applied to ten million peers, and of recording an announce for
    /// other nodes: `--json` prints lines of JSON
    ///
    /// Exit code 1 if applying a change takes more than 150 ns.
    Replication(BenchArguments),
    /// Measure a cluster of three nodes and three NATS servers: how soon peers are handed out by other nodes, the traffic and
    /// the CPU time of a change, the time of offers across nodes, and requests that stay unanswered when nodes and servers are
    /// killed: `--json` prints lines of JSON, `--filter TEXT` chooses cases
    ///
    /// Exit code 1 if a figure is above its bar.
    Cluster(BenchArguments),
    /// Compare the XDP data path with trackers behind sockets and with an echo, over a pair of virtual Ethernet interfaces,
    /// as root: responses per second, time of the whole core for each, and the slack of the generator: `--json` prints
    /// lines of JSON, `--filter TEXT` chooses cases, `--rounds N`, `--duration TIME` and `--trackers NAMES` change them
    ///
    /// Exit code 1 if a figure misses its bar.
    Xdp(BenchArguments),
    /// Measure the CPU time of the I/O back ends over loopback, for each datagram and then for each response over
    /// TCP: `--only BACKEND` chooses one
    Net(BenchArguments),
    /// Count the instructions of a reply over UDP by callgrind, and compare them with the accepted counts: `--json` prints
    /// lines of JSON, `--filter TEXT` chooses cases, `--accept` accepts the new counts
    ///
    /// Exit code 1 if a case is more than 3 % above its accepted count.
    Instructions(BenchArguments),
}

impl Bench {
    /// Returns the comparison with the accepted instructions, without any options.
    pub(crate) fn instructions() -> Self {
        Self::Instructions(BenchArguments { arguments: Vec::new() })
    }

    pub(crate) fn run(self) -> Result<()> {
        let (package, benches, arguments) = match self {
            Self::Store(BenchArguments { arguments }) => ("shoal-store", &["store"][..], arguments),
            Self::Insight(BenchArguments { arguments }) => ("shoal-engine", &["insight"][..], arguments),
            Self::Snapshot(BenchArguments { arguments }) => ("shoal-store", &["snapshot"][..], arguments),
            Self::Cores(BenchArguments { arguments }) => ("shoal-store", &["cores"][..], arguments),
            Self::Relay(BenchArguments { arguments }) => ("shoal-relay", &["relay"][..], arguments),
            Self::Lists(BenchArguments { arguments }) => ("shoal-access", &["lists"][..], arguments),
            Self::Takedown(BenchArguments { arguments }) => {
                ("shoal", &["takedown"][..], with_lab(arguments)?)
            }
            Self::Cluster(BenchArguments { arguments }) => ("shoal", &["cluster"][..], with_lab(arguments)?),
            Self::Xdp(BenchArguments { arguments }) => {
                build_dist("shoal")?;
                ("shoal-compare", &["xdp"][..], with_lab(arguments)?)
            }
            Self::Limits(BenchArguments { arguments }) => ("shoal-engine", &["limits"][..], arguments),
            Self::Replication(BenchArguments { arguments }) => {
                ("shoal-engine", &["replication"][..], arguments)
            }
            Self::Net(BenchArguments { arguments }) => ("shoal-net", &["echo", "respond"][..], arguments),
            Self::Instructions(BenchArguments { arguments }) => {
                ("shoal-engine", &["instructions"][..], arguments)
            }
        };
        for bench in benches {
            run(cargo(&["bench", "--locked", "--package", package, "--bench", bench, "--"]).args(&arguments))?;
        }
        Ok(())
    }
}

/// Builds `shoal-lab`, which puts load on a tracker, and adds its path to the arguments of a benchmark.
fn with_lab(arguments: Vec<String>) -> Result<Vec<String>> {
    build_dist("shoal-lab")?;
    let lab = tools::target_directory()?.join("dist/shoal-lab");
    Ok([vec!["--lab".to_owned(), lab.display().to_string()], arguments].concat())
}
