//! Ten thousand kills at random moments of writing a snapshot: each leaves a whole one, of the last or the next generation.
//!
//! This program is its own child: with an argument, it writes snapshots of growing content until it is killed. It links nothing
//! but what writes them, so that it starts quickly.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "../src/replace_file.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "a part of a library, without its tests")]
mod replace_file;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use shoal_base::InfoHash;
use shoal_store::snapshot_file::{Block, Event, Header, Reader, Writer};
use shoal_store::{SwarmPart, SwarmSet};

/// Kills of all threads together.
const KILLS: u32 = 10_000;

/// Threads that kill.
const THREADS: u32 = 2;

/// Maximum number of generations that the killer awaits.
const GENERATIONS_MAX: u32 = 3;

/// Maximum number of turns that it spins afterwards: about as long as it takes to write two generations.
const SPINS_MAX: u32 = 20_000;

/// The file of the snapshot in its directory.
const FILE: &str = "swarms";

fn header(generation: u32) -> Header {
    Header {
        timeout_s: 1800,
        begun_unix_s: generation.into(),
        keys: 1,
        swarms: [1, 0, 0, 0],
        program: "kills".to_owned(),
    }
}

/// Writes the content of a generation, block by block: as many swarms as the generation modulo 8, of as many downloads as the
/// generation each.
fn write(file: &Path, generation: u32) {
    let written = replace_file::replace(file, 0o600, |new| {
        let mut writer = Writer::new(new, &header(generation))?;
        for number in 0..generation % 8 {
            let id = InfoHash([u8::try_from(number).unwrap_or(0); 20]);
            let (peers, ages) = ([1; 6 * 40], [0; 40]);
            let part =
                SwarmPart { id, completed: generation, age_s: 0, seeders: 0, peers: &peers, ages: &ages };
            writer.push(SwarmSet::V4, &part);
            writer.end_block(generation.into())?;
        }
        let (file, _, _) = writer.finish(generation.into())?;
        Ok((file, ()))
    });
    written.unwrap();
}

/// Reads a snapshot to its end. Returns its generation.
fn read(file: &Path) -> u32 {
    let mut reader = Reader::new(File::open(file).unwrap()).unwrap();
    let generation = u32::try_from(reader.header().begun_unix_s).unwrap();
    let (mut block, mut swarms, mut is_whole) = (Block::default(), 0, false);
    while let Some(event) = reader.next(&mut block).unwrap() {
        match event {
            Event::Block => {
                for part in block.parts() {
                    let part = part.unwrap();
                    assert_eq!((part.completed, part.ages.len()), (generation, 40));
                    swarms += 1;
                }
            }
            Event::End(summary) => is_whole = summary.parts == u64::from(swarms),
            Event::Damage(_) | Event::Truncated => panic!("{event:?} in generation {generation}"),
        }
    }
    assert!(is_whole && swarms == generation % 8, "generation {generation} has {swarms} swarms");
    generation
}

/// Writes generation after generation, and tells of each before it begins.
fn write_until_killed(file: &Path, mut generation: u32) {
    loop {
        // The pipe takes some thousand, which is more than there is time for.
        println!("{generation}");
        std::io::stdout().flush().unwrap();
        write(file, generation);
        generation += 1;
    }
}

/// Starts the writer, kills it in the middle, and checks what it leaves, again and again. Returns how many kills left a file
/// that was not complete beside the snapshot.
fn kill_writers(directory: &Path, seed: u64, kills: u32) -> u32 {
    let (mut rng, mut last, mut halves) = (fastrand::Rng::with_seed(seed), 1, 0);
    let file = directory.join(FILE);
    write(&file, last);
    for _ in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(&file)
            .arg((last + 1).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut begun = String::new();
        for _ in 0..rng.u32(1..=GENERATIONS_MAX) {
            begun.clear();
            said.read_line(&mut begun).unwrap();
        }
        (0..rng.u32(..SPINS_MAX)).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = said.lines().map_while(Result::ok).last().unwrap_or(begun);
        let begun: u32 = begun.trim().parse().unwrap();
        let found = read(&file);
        assert!(found == begun || found + 1 == begun, "{found} is there, and {begun} was begun");
        halves += u32::from(directory.join(format!("{FILE}.new")).exists());
        last = found;
    }
    halves
}

/// A directory in memory if there is one: otherwise most kills would come while the disk is busy.
fn directory() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    tempfile::tempdir_in(&memory).or_else(|_| tempfile::tempdir()).unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [file, generation] = arguments.as_slice()
        && let Ok(generation) = generation.parse()
    {
        return write_until_killed(Path::new(file), generation);
    }
    // `cargo nextest` asks for a list of tests, and then for each of them.
    if arguments.iter().any(|argument| argument == "--list") {
        if !arguments.iter().any(|argument| argument == "--ignored") {
            println!("ten_thousand_kills_leave_whole_snapshots: test");
        }
        return;
    }
    let halves = thread::scope(|scope| {
        let killers: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || kill_writers(directory().path(), number.into(), KILLS / THREADS))
            })
            .collect();
        killers.into_iter().map(|killer| killer.join().unwrap()).sum::<u32>()
    });
    println!("{KILLS} kills, {halves} of them before a snapshot was complete");
    assert!(halves > KILLS / 100, "the kills come in the middle of writing");
}
