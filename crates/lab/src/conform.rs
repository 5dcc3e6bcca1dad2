//! `shoal-lab conform`: checks what a tracker does right and wrong, rule by rule.
//!
//! This module owns the options, the choice of cases, and the output of the report. `shoal-conform` owns the rules.

mod rules;
mod table;
mod url;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use shoal_conform::{
    Case, Report, Run, Scheme, Target, http, info_hashes, junit, probe, random_seed, run, udp, webtorrent,
};

use self::url::TrackerUrl;
use crate::process::USAGE;
use crate::terminal;

/// The minimum of the time limit of a case, as a multiple of the timeout of a reply.
const CASE_REPLIES: u32 = 120;

/// The end of the help, with a paragraph per line: clap wraps it to the terminal.
const NOTES: &str = "\
Each rule is a \"must\" (the protocol demands it, or clients break without it) or a \"should\" (the protocol \
recommends it, or good trackers do it). A rule that cannot be checked from here is reported as \"not supported\" and counts \
neither way. A name that resolves to IPv4 and IPv6 is tested over both. The certificate of an https:// or \
wss:// tracker is not verified.

The cases about rules of the operator (lists, limits) run only if an option names the rule, and are reported as \
\"not configured\" otherwise.

The suite does no harm to a tracker in use: it uses its own info hashes, and its peers leave. For a tracker that serves \
listed torrents only, list the output of `--print-info-hashes --seed N URL...`, then test with `--seed N URL...`.

Exit codes: 0 if every tracker answered to the end and kept every must, 1 if not, 2 for an invalid command line.";

/// The options of `conform`.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct ConformArgs {
    /// Trackers, as udp://HOST:PORT, http://HOST:PORT/announce, https://HOST:PORT/announce, ws://HOST:PORT/ or
    /// wss://HOST:PORT/
    #[arg(value_name = "URL", required_unless_present_any = ["list", "print_info_hashes"])]
    urls: Vec<TrackerUrl>,
    /// Print the cases and exit
    #[arg(long)]
    list: bool,
    /// Run only the cases whose name contains PATTERN; * stands for any text. Can be repeated
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Skip the cases whose name contains PATTERN; * stands for any text. Can be repeated
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,
    /// Also run the cases that wait for minutes
    #[arg(long)]
    slow: bool,
    /// Print the verdicts without the messages of the cases that failed
    #[arg(long, conflicts_with = "json")]
    summary: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Also write the report as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// The seed of the info hashes of the first URL; the next URL has the next seed [default: random]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    seed: Option<u64>,
    /// Print the info hashes that the chosen cases use with --seed for the URLs, one per line, and exit
    #[arg(long, requires = "seed")]
    print_info_hashes: bool,
    /// A local source address; twice for the cases that need two. Towards 127.0.0.0/8 there are two by default
    #[arg(long, value_name = "IP")]
    source: Vec<IpAddr>,
    /// The UDP address of the same tracker, for the http:// and https:// case that uses both. Can be repeated
    #[arg(long, value_name = "ADDRESS")]
    udp: Vec<SocketAddr>,
    #[command(flatten)]
    rules: rules::RuleArgs,
    /// Milliseconds to wait for a reply before a request is repeated, up to three times in all
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    reply_ms: u64,
}

impl ConformArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        const LIST: &str = "`shoal-lab conform --list`";
        let refuse = |reason: &str| {
            eprintln!("shoal-lab: {reason}");
            Ok(ExitCode::from(USAGE))
        };
        let all: Vec<&Case> =
            udp::cases().into_iter().chain(http::cases()).chain(webtorrent::cases()).collect();
        let unknown = self.only.iter().chain(&self.skip);
        if let Some(pattern) =
            unknown.into_iter().find(|pattern| !all.iter().any(|case| matches(pattern, case.id)))
        {
            return refuse(&format!("no case is called {pattern:?}; {LIST} prints their names"));
        }
        // Lists include slow cases, so that they are not overlooked.
        let with_slow = self.slow || self.list || self.print_info_hashes;
        let is_chosen = |case: &&Case| {
            let is_named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, case.id));
            (self.only.is_empty() || is_named(&self.only))
                && !is_named(&self.skip)
                && (with_slow || !case.is_slow)
        };
        let cases: Vec<&Case> = all.into_iter().filter(is_chosen).collect();
        if cases.is_empty() {
            return refuse(&format!("--only, --skip and --slow leave no case; {LIST} prints them"));
        }
        if self.list {
            terminal::print(&table::list(&cases))?;
            return Ok(ExitCode::SUCCESS);
        }
        let seed = self.seed.unwrap_or_else(random_seed);
        // Each URL has torrents of its own: two URLs may lead to one tracker, or to one cluster.
        let seeds = seed..;
        if self.print_info_hashes {
            let hashes = seeds.take(self.urls.len().max(1)).flat_map(|seed| info_hashes(&cases, seed));
            terminal::print(&hashes.map(|hash| format!("{hash}\n")).collect::<String>())?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(url) = self.urls.iter().find(|url| of_scheme(url.scheme, &cases).is_empty()) {
            let url = &url.text;
            return refuse(&format!("--only, --skip and --slow leave no case for {url}; {LIST} prints them"));
        }
        let runs = self
            .urls
            .iter()
            .zip(seeds)
            .flat_map(|(url, seed)| self.test_tracker(url, &cases, seed))
            .collect();
        let report = Report::new(format!("shoal-lab {}", env!("CARGO_PKG_VERSION")), seed, runs);
        self.print(&report)?;
        Ok(if report.is_conforming { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Tests a tracker over each of its address families. An unreachable tracker does not affect the others.
    fn test_tracker(&self, url: &TrackerUrl, cases: &[&Case], seed: u64) -> Vec<Run> {
        let addresses = match url.addresses() {
            Ok(addresses) => addresses,
            Err(reason) => return vec![Run::unreachable(&url.text, None, reason)],
        };
        let targets = addresses.iter().map(|&address| {
            let mut target = Target { scheme: url.scheme, ..Target::new(address, seed) };
            target.host.clone_from(&url.authority);
            target.path.clone_from(&url.path);
            target.udp = self.udp.iter().copied().find(|udp| udp.is_ipv4() == address.is_ipv4());
            target.other_family =
                addresses.iter().copied().find(|other| other.is_ipv4() != address.is_ipv4());
            target.rules = self.rules.of_family(address.is_ipv4());
            target.timing.reply = Duration::from_millis(self.reply_ms);
            target.timing.case = target.timing.case.max(CASE_REPLIES * target.timing.reply);
            let is_of_family = |source: &&IpAddr| source.is_ipv4() == address.is_ipv4();
            let sources: Vec<IpAddr> = self.source.iter().filter(is_of_family).copied().collect();
            if !sources.is_empty() {
                target.sources = sources;
            }
            target
        });
        let cases = of_scheme(url.scheme, cases);
        targets.map(|target| test_over_family(url, &cases, &target)).collect()
    }

    fn print(&self, report: &Report) -> anyhow::Result<()> {
        // The file comes first, because the reader of standard output may close it early.
        if let Some(file) = &self.junit {
            let xml = junit(report).context("cannot write the report as XML")?;
            std::fs::write(file, xml).with_context(|| format!("--junit: cannot write {}", file.display()))?;
        }
        if self.json {
            let json = serde_json::to_string_pretty(report).context("cannot write the report as JSON")?;
            return terminal::print(&(json + "\n"));
        }
        terminal::print(&table::report(report, !self.summary, table::is_coloured()))
    }
}

/// Returns the chosen cases of a scheme's protocol.
fn of_scheme<'c>(scheme: Scheme, cases: &[&'c Case]) -> Vec<&'c Case> {
    let protocol = match scheme {
        Scheme::Udp => "udp-",
        Scheme::Http | Scheme::Https => "http-",
        Scheme::Ws | Scheme::Wss => "ws-",
    };
    cases.iter().copied().filter(|case| case.id.starts_with(protocol)).collect()
}

fn test_over_family(url: &TrackerUrl, cases: &[&Case], target: &Target) -> Run {
    if let Err(reason) = probe(target) {
        return Run::unreachable(&url.text, Some(target.address), reason);
    }
    // Draws on stderr, but only on a terminal.
    let style =
        ProgressStyle::with_template("{prefix} {pos}/{len} {msg}").expect("the template is a valid one");
    let progress =
        ProgressBar::new(cases.len() as u64).with_style(style).with_prefix(target.address.to_string());
    let findings = run(cases, target, |finding| {
        progress.set_message(finding.id.clone());
        progress.inc(1);
    });
    progress.finish_and_clear();
    Run::done(&url.text, target.address, findings)
}

/// Returns whether `name` contains `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut rest = name;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_anywhere_and_stars_any_text() {
        for pattern in ["udp-scrape-layout", "scrape", "udp-*-layout", "*", "scrape*"] {
            assert!(matches(pattern, "udp-scrape-layout"), "{pattern}");
        }
        for pattern in ["announce", "layout*scrape", "udp-scrape-layout-"] {
            assert!(!matches(pattern, "udp-scrape-layout"), "{pattern}");
        }
    }
}
