//! `shoal-lab conform`: what a tracker does right and wrong, rule by rule.
//!
//! Owns the arguments, the choice of cases, and where the report goes. The rules are those of `shoal-conform`.

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
use crate::output;

/// The limit of a case, as a multiple of the patience with a reply, where that is longer than the default.
const CASE_REPLIES: u32 = 120;

/// What `--help` adds, a paragraph in a line: clap fits it to the terminal.
const NOTES: &str = "\
Each rule is a \"must\" (the protocol demands it, or clients break without it) or a \"should\" (the protocol \
recommends it, or good trackers do it). A rule that cannot be checked from here is told as \"not supported\" and counts \
neither way. A name that resolves to IPv4 and IPv6 is tested over both. The certificate of an https:// or \
wss:// tracker is not verified.

The suite does no harm to a tracker that serves others: it uses info hashes of its own, and its peers leave. For a \
tracker that serves listed torrents only, list what `--print-info-hashes --seed N` prints, then test with `--seed N`.

Exit codes: 0 if every tracker was there and kept every must, 1 if not, 2 for a command line that makes no sense.";

/// The arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct Conform {
    /// Trackers, as udp://HOST:PORT, http://HOST:PORT/announce, https://HOST:PORT/announce, ws://HOST:PORT/ or
    /// wss://HOST:PORT/
    #[arg(value_name = "URL", required_unless_present_any = ["list", "print_info_hashes"])]
    urls: Vec<TrackerUrl>,
    /// Print the cases and end
    #[arg(long)]
    list: bool,
    /// Run the cases whose name contains PATTERN; * stands for any text. Can be repeated
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Leave out the cases whose name contains PATTERN; * stands for any text. Can be repeated
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,
    /// Run also the cases that wait for minutes
    #[arg(long)]
    slow: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as JUnit XML, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// What the info hashes derive from [default: random]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    seed: Option<u64>,
    /// Print the info hashes that the chosen cases use with --seed, one a line, and end
    #[arg(long, requires = "seed")]
    print_info_hashes: bool,
    /// A local address to ask from; twice for the cases that take two. Towards 127.0.0.0/8 there are two by default
    #[arg(long, value_name = "IP")]
    source: Vec<IpAddr>,
    /// Where the same tracker listens for UDP, for the case of http:// and https:// that asks by both. Can be repeated
    #[arg(long, value_name = "ADDRESS")]
    udp: Vec<SocketAddr>,
    /// Milliseconds to wait for a reply before a request is sent again, three times in all
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    reply_ms: u64,
}

impl Conform {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let all: Vec<&Case> =
            udp::cases().into_iter().chain(http::cases()).chain(webtorrent::cases()).collect();
        let unknown = self.only.iter().chain(&self.skip);
        if let Some(pattern) =
            unknown.into_iter().find(|pattern| !all.iter().any(|case| matches(pattern, case.id)))
        {
            eprintln!(
                "shoal-lab: no case is called {pattern:?}; `shoal-lab conform --list` prints their names"
            );
            return Ok(ExitCode::from(2));
        }
        let cases: Vec<&Case> = all.into_iter().filter(|case| self.chooses(case)).collect();
        if cases.is_empty() {
            eprintln!(
                "shoal-lab: --only, --skip and --slow leave no case; `shoal-lab conform --list` prints them"
            );
            return Ok(ExitCode::from(2));
        }
        if self.list {
            output::print(&table::list(&cases))?;
            return Ok(ExitCode::SUCCESS);
        }
        let seed = self.seed.unwrap_or_else(random_seed);
        if self.print_info_hashes {
            let lines = info_hashes(&cases, seed).into_iter().map(|hash| format!("{hash}\n"));
            output::print(&lines.collect::<String>())?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(url) = self.urls.iter().find(|url| of_scheme(url.scheme, &cases).is_empty()) {
            eprintln!(
                "shoal-lab: --only, --skip and --slow leave no case for {}; `shoal-lab conform --list` prints them",
                url.text
            );
            return Ok(ExitCode::from(2));
        }
        let runs = self.urls.iter().flat_map(|url| self.test(url, &cases, seed)).collect();
        let report = Report::new(format!("shoal-lab {}", env!("CARGO_PKG_VERSION")), seed, runs);
        self.tell(&report)?;
        Ok(if report.is_conforming { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// A list is of all cases, so that nobody overlooks the slow ones.
    fn chooses(&self, case: &Case) -> bool {
        let is_wanted = self.only.is_empty() || self.only.iter().any(|pattern| matches(pattern, case.id));
        let is_unwanted = self.skip.iter().any(|pattern| matches(pattern, case.id));
        is_wanted && !is_unwanted && (self.slow || self.list || self.print_info_hashes || !case.is_slow)
    }

    /// Tests a tracker over each family that it has. One that is not there does not end the others' tests.
    fn test(&self, url: &TrackerUrl, cases: &[&Case], seed: u64) -> Vec<Run> {
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

    fn tell(&self, report: &Report) -> anyhow::Result<()> {
        // The file first: standard output may be closed by whoever has read enough of it.
        if let Some(file) = &self.junit {
            let xml = junit(report).context("cannot write the report as XML")?;
            std::fs::write(file, xml).with_context(|| format!("--junit: cannot write {}", file.display()))?;
        }
        if self.json {
            let json = serde_json::to_string_pretty(report).context("cannot write the report as JSON")?;
            return output::print(&(json + "\n"));
        }
        output::print(&table::report(report, table::is_coloured()))
    }
}

/// The cases of the protocol of a tracker, of all that were chosen.
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
        return Run::unreachable(&url.text, Some(target.address), reason.to_string());
    }
    // Draws on stderr, and only if that is a terminal.
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

/// Whether `name` contains `pattern`, in which `*` stands for any text.
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
