//! `shoal state`: examines a snapshot, and converts it from and to lines of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufWriter, IsTerminal, Write, stderr, stdin, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use shoal_base::{InfoHash, PeerV4, PeerV6};
use shoal_store::snapshot_file::{Block, Event, Header, Reader, Summary, Writer};
use shoal_store::{AGE_TICKS, SwarmPart, SwarmSet};

use shoal_runtime::clock;
use shoal_runtime::failure::Failure;
use shoal_runtime::state_directory::{SNAPSHOT, StateDirectory, replace};

/// The commands of `shoal state`.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Print the header of a snapshot
    Info {
        /// A snapshot, or the directory of state.path
        path: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Read a snapshot to its end, and report damage; exit code 1 if there is any
    Verify {
        /// A snapshot, or the directory of state.path
        path: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the swarms of a snapshot as lines of JSON
    ///
    /// A line is a swarm of one address family, or a part of a large one:
    /// {"info_hash":"…","completed":1,"peers":[{"address":"192.0.2.1:6881","seeds":true,"age_s":90}]}.
    /// A line without peers is a torrent that keeps its completed downloads (store.completed_retained_max).
    Export {
        /// A snapshot, or the directory of state.path
        path: PathBuf,
    },
    /// Write a snapshot from lines of JSON, as `export` prints them, on standard input
    ///
    /// The tracker that uses the directory must not be running.
    Import {
        /// The directory of state.path
        directory: PathBuf,
        /// Replace the snapshot that is there
        #[arg(long)]
        replace: bool,
        /// The timeout of peers (announce.peer_timeout_s) in seconds
        #[arg(long, default_value_t = 2700, value_parser = clap::value_parser!(u32).range(1..))]
        timeout_s: u32,
    },
}

/// A swarm of one address family, or a part of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a swarm such as {\"info_hash\": \"…\", \"peers\": […]}")]
struct Line {
    info_hash: String,
    #[serde(default)]
    completed: u32,
    /// The time since the swarm was created, or since its last peer left.
    #[serde(default)]
    age_s: u32,
    #[serde(default)]
    peers: Vec<Peer>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a peer such as {\"address\": \"192.0.2.1:6881\"}")]
struct Peer {
    address: SocketAddr,
    #[serde(default)]
    seeds: bool,
    /// The time since its last announce.
    #[serde(default)]
    age_s: u32,
}

/// The result of `info` and `verify`.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    program: String,
    begun_unix_s: u64,
    age_s: u64,
    timeout_s: u32,
    /// The swarms of each set at the beginning of the snapshot.
    swarms: [u64; SwarmSet::ALL.len()],
    bytes: u64,
    /// The content, for `verify`.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<Read>,
}

#[derive(Debug, Default, Serialize)]
struct Read {
    blocks: u32,
    parts: u64,
    peers: u64,
    damaged_bytes: u64,
    is_truncated: bool,
}

/// Executes the command. Returns its output.
pub fn run(action: &Action, program: &str) -> Result<String, Failure> {
    match action {
        Action::Info { path, json } => {
            let (file, reader) = open(path)?;
            show(&report(&file, reader.header(), None)?, *json)
        }
        Action::Verify { path, json } => verify(path, *json),
        Action::Export { path } => export(path).map(|()| String::new()),
        Action::Import { directory, replace, timeout_s } => import(directory, *replace, *timeout_s, program),
    }
}

/// Opens a snapshot, or the one in a directory.
fn open(path: &Path) -> Result<(PathBuf, Reader<File>), Failure> {
    let file = if path.is_dir() { path.join(SNAPSHOT) } else { path.to_owned() };
    let opened =
        shoal_base::file::open(&file).with_context(|| format!("{} cannot be opened", file.display()))?;
    let reader = Reader::new(opened).with_context(|| format!("{} cannot be read", file.display()))?;
    Ok((file, reader))
}

fn report(file: &Path, header: &Header, read: Option<Read>) -> Result<Report, Failure> {
    let bytes = file.metadata().with_context(|| format!("{} cannot be examined", file.display()))?.len();
    Ok(Report {
        file: file.display().to_string(),
        program: header.program.escape_debug().to_string(),
        begun_unix_s: header.begun_unix_s,
        age_s: clock::unix_s().saturating_sub(header.begun_unix_s),
        timeout_s: header.timeout_s,
        swarms: header.swarms,
        bytes,
        read,
    })
}

fn show(report: &Report, json: bool) -> Result<String, Failure> {
    if json {
        let text = serde_json::to_string(report).context("the report cannot be printed")?;
        return Ok(format!("{text}\n"));
    }
    let Report { file, program, age_s, timeout_s, swarms: [v4, v6, private_v4, private_v6], bytes, .. } =
        report;
    let mut text = format!(
        "{file}: {bytes} bytes, written by {program} {age_s} seconds ago\n\
         swarms at its beginning: IPv4 {v4}, IPv6 {v6}, private networks {private}\n\
         peers are forgotten {timeout_s} seconds after their last announce\n",
        private = private_v4.saturating_add(*private_v6)
    );
    if let Some(read) = &report.read {
        let Read { blocks, parts, peers, damaged_bytes, is_truncated } = read;
        text.push_str(&format!("{blocks} blocks, {parts} swarms or parts of swarms, {peers} peers\n"));
        text.push_str(match (damaged_bytes, is_truncated) {
            (0, false) => "no damage\n",
            (0, true) => "the end is missing\n",
            _ => "",
        });
        if *damaged_bytes > 0 {
            text.push_str(&format!("{damaged_bytes} bytes are damaged; the tracker uses the rest\n"));
        }
    }
    Ok(text)
}

fn verify(path: &Path, json: bool) -> Result<String, Failure> {
    let (file, mut reader) = open(path)?;
    let (mut read, mut block) = (Read::default(), Block::default());
    while let Some(event) =
        reader.next(&mut block).with_context(|| format!("{} cannot be read", file.display()))?
    {
        match event {
            Event::Block => {
                read.blocks += 1;
                for part in block.parts() {
                    match part {
                        Ok(part) => {
                            read.parts += 1;
                            read.peers += part.ages.len() as u64;
                        }
                        Err(_) => read.damaged_bytes += 1,
                    }
                }
            }
            Event::Damage(bytes) => read.damaged_bytes += bytes,
            Event::Truncated => read.is_truncated = true,
            Event::End(Summary { parts, peers, .. }) => {
                read.is_truncated |= (parts, peers) != (read.parts, read.peers) && read.damaged_bytes == 0;
            }
        }
    }
    let is_damaged = read.damaged_bytes > 0 || read.is_truncated;
    let text = show(&report(&file, reader.header(), Some(read))?, json)?;
    if is_damaged { Err(Failure::Other(anyhow!("{}", text.trim_end()))) } else { Ok(text) }
}

fn export(path: &Path) -> Result<(), Failure> {
    let (file, mut reader) = open(path)?;
    let header = reader.header().clone();
    let (mut out, mut block) = (BufWriter::new(stdout().lock()), Block::default());
    let mut left_out = 0;
    while let Some(event) =
        reader.next(&mut block).with_context(|| format!("{} cannot be read", file.display()))?
    {
        match (event, block.set()) {
            (Event::Block, Some(set @ (SwarmSet::V4 | SwarmSet::V6))) => {
                for part in block.parts().map_while(Result::ok) {
                    let line = line(set, &part, header.timeout_s);
                    let written = serde_json::to_writer(&mut out, &line).map_err(io::Error::from);
                    written.and_then(|()| out.write_all(b"\n")).context("cannot write to standard output")?;
                }
            }
            (Event::Block, _) => left_out += block.parts().count(),
            (Event::Damage(bytes), _) => {
                eprintln_if_possible(&format!("{bytes} bytes are damaged and left out"))
            }
            (Event::Truncated, _) => eprintln_if_possible("the end of the snapshot is missing"),
            (Event::End(_), _) => {}
        }
    }
    out.flush().context("cannot write to standard output")?;
    if left_out > 0 {
        eprintln_if_possible(&format!("{left_out} swarms of private networks are left out"));
    }
    Ok(())
}

fn line(set: SwarmSet, part: &SwarmPart<'_>, timeout_s: u32) -> Line {
    let tick_s = timeout_s.div_ceil(64).max(1);
    let peers = part.peers.chunks_exact(set.peer_bytes()).zip(part.ages).enumerate();
    let peers = peers.filter_map(|(index, (peer, age))| {
        let address = match set.peer_bytes() {
            6 => PeerV4(*peer.first_chunk()?).addr().into(),
            _ => PeerV6(*peer.first_chunk()?).addr().into(),
        };
        Some(Peer { address, seeds: index < part.seeders, age_s: u32::from(age & AGE_TICKS) * tick_s })
    });
    let info_hash = part.id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Line { info_hash, completed: part.completed, age_s: part.age_s, peers: peers.collect() }
}

fn eprintln_if_possible(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// Number of swarms that are collected before they become blocks.
const COLLECTED: usize = 4096;

/// Swarms of one set that are not yet written.
struct Collected {
    set: SwarmSet,
    swarms: Vec<Swarm>,
}

/// Like [`SwarmPart`], with its own memory.
struct Swarm {
    id: InfoHash,
    completed: u32,
    age_s: u32,
    seeders: usize,
    peers: Vec<u8>,
    ages: Vec<u8>,
}

impl Collected {
    fn write(&mut self, writer: &mut Writer<BufWriter<File>>, at_unix_s: u64) -> io::Result<()> {
        for swarm in self.swarms.drain(..) {
            let Swarm { id, completed, age_s, seeders, ref peers, ref ages } = swarm;
            writer.push(self.set, &SwarmPart { id, completed, age_s, seeders, peers, ages });
            if writer.is_block_full() {
                writer.end_block(at_unix_s)?;
            }
        }
        writer.end_block(at_unix_s)
    }
}

fn import(directory: &Path, replaces: bool, timeout_s: u32, program: &str) -> Result<String, Failure> {
    if stdin().is_terminal() {
        eprintln_if_possible("reading lines of JSON from the terminal; Ctrl-D ends them");
    }
    let directory = StateDirectory::open(directory).map_err(Failure::Configuration)?;
    let file = directory.snapshot();
    if file.exists() && !replaces {
        let text = format!("{} exists; --replace replaces it", file.display());
        return Err(Failure::Configuration(text));
    }
    let header = Header {
        timeout_s,
        begun_unix_s: clock::unix_s(),
        keys: 0,
        swarms: [0; SwarmSet::ALL.len()],
        program: program.to_owned(),
    };
    let mut fault = None;
    let written = replace(&file, |new| {
        let (file, summary) =
            convert(stdin().lock(), BufWriter::new(new), &header).map_err(|error| match error {
                ImportError::Io(error) => error,
                ImportError::Line(text) => {
                    fault = Some(text);
                    io::Error::from(io::ErrorKind::InvalidData)
                }
            })?;
        Ok((file.into_inner().map_err(io::IntoInnerError::into_error)?, summary))
    });
    if let Some(fault) = fault {
        return Err(Failure::Configuration(fault));
    }
    let summary = written.with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(format!("{}: {} swarms, {} peers\n", file.display(), summary.parts, summary.peers))
}

enum ImportError {
    Io(io::Error),
    /// The number of a line, and its fault.
    Line(String),
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn convert(
    mut input: impl BufRead,
    out: BufWriter<File>,
    header: &Header,
) -> Result<(BufWriter<File>, Summary), ImportError> {
    let at_unix_s = header.begun_unix_s;
    let mut writer = Writer::new(out, header)?;
    let mut sets = [SwarmSet::V4, SwarmSet::V6].map(|set| Collected { set, swarms: Vec::new() });
    let (mut text, mut number) = (String::new(), 0_u64);
    while {
        text.clear();
        input.read_line(&mut text)? > 0
    } {
        number += 1;
        if text.trim().is_empty() {
            continue;
        }
        let fault = |fault: &str| ImportError::Line(format!("line {number}: {fault}"));
        let line: Line = serde_json::from_str(&text).map_err(|error| fault(&error.to_string()))?;
        collect(&line, header.timeout_s, &mut sets).map_err(|text| fault(&text))?;
        for set in sets.iter_mut().filter(|set| set.swarms.len() >= COLLECTED) {
            set.write(&mut writer, at_unix_s)?;
        }
    }
    for set in &mut sets {
        set.write(&mut writer, at_unix_s)?;
    }
    let (out, summary, _) = writer.finish(at_unix_s)?;
    Ok((out, summary))
}

/// Adds the peers of a line to the set of their family. The completed downloads go to the first family with peers, or
/// to IPv4 if there are none.
fn collect(line: &Line, timeout_s: u32, sets: &mut [Collected; 2]) -> Result<(), String> {
    let info_hash = shoal_access::torrents::parse_hash(line.info_hash.as_bytes());
    let info_hash = info_hash
        .ok_or_else(|| format!("{:?} is no info hash: expected 40 hexadecimal digits", line.info_hash))?;
    let tick_s = timeout_s.div_ceil(64).max(1);
    let mut completed = line.completed;
    for set in sets {
        let is_v4 = set.set == SwarmSet::V4;
        let mut of_set: Vec<&Peer> =
            line.peers.iter().filter(|peer| peer.address.ip().to_canonical().is_ipv4() == is_v4).collect();
        of_set.retain(|peer| peer.age_s <= timeout_s && peer.address.port() != 0);
        of_set.sort_by_key(|peer| !peer.seeds);
        let is_count = is_v4 && line.peers.is_empty() && completed > 0;
        if of_set.is_empty() && !is_count {
            continue;
        }
        let seeders = of_set.iter().filter(|peer| peer.seeds).count();
        let (mut peers, mut ages) = (Vec::new(), Vec::new());
        for peer in of_set {
            match peer.address.ip().to_canonical() {
                std::net::IpAddr::V4(ip) => peers.extend(PeerV4::new(ip, peer.address.port()).0),
                std::net::IpAddr::V6(ip) => peers.extend(PeerV6::new(ip, peer.address.port()).0),
            }
            ages.push(u8::try_from(peer.age_s / tick_s).unwrap_or(AGE_TICKS).min(AGE_TICKS));
        }
        let completed = core::mem::take(&mut completed);
        set.swarms.push(Swarm { id: info_hash, completed, age_s: line.age_s, seeders, peers, ages });
    }
    Ok(())
}
