//! The pictures of the README and the pages: the status page and `shoal top` of a tracker under load, in a network of its own, and the
//! plot of a published comparison.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shoal_testkit::namespace::Namespace;
use shoal_testkit::process::{Process, wait_for};
use shoal_testkit::tools;

use crate::shell::{self, cargo, root, title};

/// The comparison whose plot is shown.
const COMPARISON: &str = "bench-runs/2026-11-23-0635-published";

/// The load, over each protocol.
const LOADS: [&str; 3] = [
    "udp 127.0.0.1:6969 --rate 12000 --torrents 20000 --peers 60000",
    "http 127.0.0.1:6969 --rate 1500 --torrents 2000 --peers 6000",
    "ws 127.0.0.1:6969 --rate 100 --connections 200",
];

/// How long the load goes on before the pictures are taken, which gives the charts some samples.
const LOAD: Duration = Duration::from_secs(60);

/// How long the tracker may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The size of a character of the terminal, and the space around it, in units of SVG.
const CHARACTER_WIDTH: usize = 8;
const LINE_HEIGHT: usize = 17;
const MARGIN: usize = 16;

pub(crate) fn run() -> Result<()> {
    title("screenshots");
    shell::run(&mut cargo(&[
        "build",
        "--locked",
        "--release",
        "--package",
        "shoal",
        "--package",
        "shoal-lab",
    ]))?;
    let programs = tools::target_directory()?.join("release");
    let folder = root().join("target/screenshots");
    // It may not exist yet.
    let _ = fs::remove_dir_all(&folder);
    let images = root().join("docs/images");
    for folder in [&folder, &images] {
        fs::create_dir_all(folder)?;
    }
    let network = Namespace::new()?;
    network.ip("link set lo up\n")?;
    let _running = start(&network, &programs, &folder)?;
    eprintln!("the tracker is under load for {} s", LOAD.as_secs());
    thread::sleep(LOAD);
    let top = network
        .command(&programs.join("shoal"))?
        .args(["top", "--once", "--url", "http://127.0.0.1:6970"])
        .output()?;
    ensure!(top.status.success(), "shoal top: {}", String::from_utf8_lossy(&top.stderr));
    fs::write(images.join("top.svg"), terminal(&String::from_utf8_lossy(&top.stdout)))?;
    browse(&network, &folder)?;
    fs::copy(folder.join("desktop-light.png"), images.join("status.png"))?;
    fs::copy(plot(&programs.join("shoal-lab"), &folder)?, images.join("comparison.svg"))?;
    eprintln!("the pictures are in {}", images.display());
    Ok(())
}

/// Starts a tracker and the load on it.
fn start(network: &Namespace, programs: &Path, folder: &Path) -> Result<Vec<Process>> {
    let mut tracker = network.command(&programs.join("shoal"))?;
    tracker.env("RUNTIME_DIRECTORY", folder).env("SHOAL_STATISTICS_PAGE", "true");
    tracker.env("SHOAL_LIMITS_EXEMPT", "127.0.0.0/8").env("SHOAL_WORKERS_COUNT", "2");
    let tracker = Process::start(tracker, &folder.join("shoal.log"))?;
    wait_for("the tracker should start", PATIENCE, || Ok(tracker.log().contains(" ready").then_some(())))?;
    let mut running = vec![tracker];
    for (number, load) in LOADS.iter().enumerate() {
        let mut command = network.command(&programs.join("shoal-lab"))?;
        command.arg("load").args(load.split_whitespace()).args(["--duration", "10m"]);
        running.push(Process::start(command, &folder.join(format!("load-{number}.log")))?);
    }
    Ok(running)
}

/// Opens the status page as the test of the page does, which takes pictures when it is told a folder.
fn browse(network: &Namespace, folder: &Path) -> Result<()> {
    let state = folder.join("browser");
    fs::create_dir_all(&state)?;
    let mut browser = network.command(&tools::program("node")?)?;
    browser.arg(root().join("crates/testkit/tests/status_page/browser.mjs")).arg(tools::program("chromium")?);
    browser.args(["http://127.0.0.1:6970/", "http://127.0.0.1:6969/stats"]).arg(&state).arg("").arg(folder);
    // It goes on to check the page, and fails: this tracker is under load. The pictures exist by then.
    browser.env("HOME", &state).stdin(Stdio::null()).output().context("cannot run node").map(drop)
}

/// Draws the plots of a published comparison from its raw values, and returns one.
fn plot(lab: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join("comparison");
    fs::create_dir_all(&copy)?;
    let results = root().join(COMPARISON).join("results.json");
    fs::copy(&results, copy.join("results.json"))
        .with_context(|| format!("cannot copy {}", results.display()))?;
    shell::output(Command::new(lab).args(["compare", "--report"]).arg(&copy))?;
    Ok(copy.join("plots/throughput.svg"))
}

/// Draws the lines of a terminal.
fn terminal(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let (width, height) = (columns * CHARACTER_WIDTH + 2 * MARGIN, lines.len() * LINE_HEIGHT + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#14181f\"/>\n\
         <g font-family=\"monospace\" font-size=\"13\" fill=\"#d8dee9\">\n"
    );
    for (number, line) in lines.iter().enumerate() {
        // Blanks in a row become one, unless they are of the kind that does not break.
        let line = line.replace('&', "&amp;").replace('<', "&lt;").replace(' ', "\u{a0}");
        let y = MARGIN + LINE_HEIGHT * (number + 1) - 4;
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\">{line}</text>");
    }
    svg + "</g>\n</svg>\n"
}
