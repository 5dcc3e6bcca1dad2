//! Attacks by the lists of an operator: files and contents of URLs that need more memory than there is.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::Signal;
use shoal_testkit::web_server::{Handler, TestServer, paths, reply};

use crate::siege::attack::{Attack, Layer, Limits};
use crate::siege::context::Context;

/// The memory that the tracker may take.
const MEMORY_MAX: &str = "64MiB";
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// Where the server of lists listens. Each network namespace has this address.
const SERVER: &str = "127.0.77.1:8077";

/// Lines of the large list, 186 MiB of them in full mode.
const LINES_SHORT: u32 = 3_000_000;
const LINES_FULL: u32 = 13_000_000;

const SETTINGS: &[(&str, &str)] = &[("memory.max", MEMORY_MAX), ("store.memory_max", "auto")];

const LIMITS: Limits = Limits { resident_bytes_max: MEMORY_BYTES_MAX, ..Limits::USUAL };

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        settings: &[SETTINGS[0], SETTINGS[1], ("access.networks_deny", "TRACKER_FOLDER/deny")],
        limits: LIMITS,
        prepare: |folder| Ok(fs::write(folder.join("deny"), "203.0.113.0/24\n")?),
        ..Layer::Lists.attack(
            "huge-file",
            "a file with millions of networks takes the place of a list, at a memory.max of 64 MiB",
            "the process stays within memory.max at every moment, the list keeps its entries, and the fault names the size",
            huge_file,
        )
    },
    Attack {
        settings: &[
            SETTINGS[0],
            SETTINGS[1],
            ("access.networks_deny", "http://127.0.77.1:8077/networks"),
            ("fetch.folder", "TRACKER_FOLDER/fetched"),
        ],
        limits: LIMITS,
        prepare: serve,
        ..Layer::Lists.attack(
            "huge-url",
            "a URL replies with millions of networks, at a memory.max of 64 MiB",
            "the process stays within memory.max at every moment, and the fault names the size",
            |context| wait_for_faults(context, 1, "MiB of memory"),
        )
    },
    Attack {
        settings: &[
            SETTINGS[0],
            SETTINGS[1],
            ("access.torrents_deny", "http://127.0.77.1:8077/names.json,http://127.0.77.1:8077/links.xml"),
            ("fetch.folder", "TRACKER_FOLDER/fetched"),
        ],
        limits: LIMITS,
        prepare: serve,
        ..Layer::Lists.attack(
            "bombs",
            "small compressed contents with an item of 12 million names, and with 5.6 million links",
            "the process stays within memory.max at every moment, and the lists have faults",
            |context| wait_for_faults(context, 2, ""),
        )
    },
];

fn huge_file(context: &Context<'_>) -> Result<()> {
    let (list, new) = (context.tracker.folder.join("deny"), context.tracker.folder.join("new"));
    write_networks(&new, context.pick(LINES_SHORT, LINES_FULL))?;
    fs::rename(new, list)?;
    context.spend(1, 0);
    context.tracker.signal(Signal::HUP)?;
    wait_for_faults(context, 1, "MiB of memory")?;
    let sources = sources(context)?;
    let entries = sources[0]["entries"].as_u64();
    context.check("entries of the list", entries == Some(1), format!("{entries:?}"));
    Ok(())
}

/// Writes addresses, no two of which make up a network.
fn write_networks(path: &Path, lines: u32) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for number in 0..lines {
        writeln!(file, "{}", Ipv4Addr::from(number.wrapping_mul(330)))?;
    }
    Ok(file.flush()?)
}

/// Starts the server of lists, which runs as long as this program.
fn serve(_: &Path) -> Result<()> {
    static STARTED: OnceLock<TestServer> = OnceLock::new();
    let (names, links) = (
        bomb(b"[{", br#""hash":"a","#, 12_000_000, br#""hash":"a"}]"#)?,
        bomb(b"<rss><item>", b"<link>a.torrent</link>", 5_600_000, b"</item></rss>")?,
    );
    STARTED.get_or_init(|| {
        let handlers = vec![
            ("/networks", networks()),
            ("/names.json", reply("Content-Type: application/json\r\n", names)),
            ("/links.xml", reply("Content-Type: text/xml\r\n", links)),
        ];
        TestServer::start_at(SERVER, paths(handlers))
    });
    Ok(())
}

/// Replies with a list of networks that has no end before it has 186 MiB.
fn networks() -> std::sync::Arc<Handler> {
    std::sync::Arc::new(|_, stream| {
        let mut stream = BufWriter::new(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        let mut line = |number: u32| writeln!(stream, "{}", Ipv4Addr::from(number.wrapping_mul(330)));
        let _ = (0..LINES_FULL).try_for_each(&mut line);
    })
}

/// Compresses a text in which a piece is repeated, without compressing each of them.
fn bomb(begin: &[u8], piece: &[u8], times: usize, end: &[u8]) -> Result<Vec<u8>> {
    const AT_ONCE: usize = 100_000;
    let member = |text: &[u8]| -> Result<Vec<u8>> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(text)?;
        Ok(gzip.finish()?)
    };
    Ok([member(begin)?, member(&piece.repeat(AT_ONCE))?.repeat(times / AT_ONCE), member(end)?].concat())
}

/// Waits until this number of sources have a fault that contains a text, and checks the memory of the process meanwhile.
fn wait_for_faults(context: &Context<'_>, wanted: usize, text: &str) -> Result<()> {
    let mut faults = Vec::new();
    while !context.is_over() {
        let told = sources(context)?;
        faults = told.iter().filter_map(|source| source["fault"].as_str().map(str::to_owned)).collect();
        // A tracker that takes the lists is done as well.
        if faults.len() >= wanted || told.iter().all(|source| source["entries"].as_u64() > Some(1000)) {
            break;
        }
        context.sleep_ms(50);
    }
    let peak = context.tracker.resident_peak_bytes();
    context.check("peak of the memory", peak <= MEMORY_BYTES_MAX, format!("{} MiB", peak >> 20));
    let are_named = faults.len() == wanted && faults.iter().all(|fault| fault.contains(text));
    context.check("faults of the lists", are_named, faults.join(" | "));
    context.wait_for_window();
    Ok(())
}

/// Returns what the tracker tells of its sources.
fn sources(context: &Context<'_>) -> Result<Vec<serde_json::Value>> {
    let reply = context.tracker.request_control("/access", Duration::from_secs(20))?;
    let told: serde_json::Value = serde_json::from_slice(&reply.body)?;
    Ok(told["sources"].as_array().context("the tracker tells no sources")?.clone())
}
