//! A file is read as it was written, and damage costs only the blocks that are damaged.

use proptest::prelude::*;
use shoal_base::InfoHash;
use shoal_store::snapshot_file::{Block, Event, HEADER_BYTES, Header, Reader, Refused, Summary, Writer};
use shoal_store::{SwarmPart, SwarmSet};

/// A part with its set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    set: SwarmSet,
    id: [u8; 20],
    completed: u32,
    age_s: u32,
    seeders: usize,
    peers: Vec<u8>,
    ages: Vec<u8>,
}

fn header() -> Header {
    Header {
        timeout_s: 2700,
        begun_unix_s: 1_800_000_000,
        keys: 0x1234_5678_9abc_def0,
        swarms: [1, 2, 3, u64::MAX],
        program: "shoal 0.1.0 (test)".to_owned(),
    }
}

fn owned(rng: &mut fastrand::Rng, set: SwarmSet, count: usize) -> Owned {
    let mut random = |length: usize| (0..length).map(|_| rng.u8(..)).collect::<Vec<_>>();
    let (peers, ages) = (random(count * set.peer_bytes()), random(count));
    let mut id = [0; 20];
    rng.fill(&mut id);
    Owned {
        set,
        id,
        completed: rng.u32(..) >> rng.u32(0..32),
        age_s: rng.u32(..),
        seeders: rng.usize(..=count),
        peers,
        ages,
    }
}

/// Writes one block for each list.
fn write(header: &Header, blocks: &[Vec<Owned>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    for (number, block) in blocks.iter().enumerate() {
        for Owned { set, id, completed, age_s, seeders, peers, ages } in block {
            let (id, completed, age_s, seeders) = (InfoHash(*id), *completed, *age_s, *seeders);
            writer.push(*set, &SwarmPart { id, completed, age_s, seeders, peers, ages });
        }
        writer.end_block(1000 + number as u64).unwrap();
    }
    let (bytes, _, length) = writer.finish(2000).unwrap();
    assert_eq!(bytes.len() as u64, length);
    bytes
}

/// The blocks of a file with their times.
type Blocks = Vec<(u64, Vec<Owned>)>;

/// Reads everything: the blocks, and the other events.
fn read(bytes: &[u8]) -> Result<(Blocks, Vec<Event>), Refused> {
    let mut reader = Reader::new(bytes)?;
    let (mut blocks, mut events, mut block) = (Vec::new(), Vec::new(), Block::default());
    while let Some(event) = reader.next(&mut block)? {
        if event != Event::Block {
            events.push(event);
            continue;
        }
        let parts = block.parts().map_while(Result::ok).map(|part| Owned {
            set: block.set().unwrap(),
            id: part.id.0,
            completed: part.completed,
            age_s: part.age_s,
            seeders: part.seeders,
            peers: part.peers.to_vec(),
            ages: part.ages.to_vec(),
        });
        blocks.push((block.at_unix_s, parts.collect()));
    }
    Ok((blocks, events))
}

fn blocks(seed: u64) -> Vec<Vec<Owned>> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let block = |set| {
        let counts: Vec<_> = (0..rng.usize(1..40)).map(|_| rng.usize(0..300)).collect();
        counts.into_iter().map(|count| owned(rng, set, count)).collect()
    };
    SwarmSet::ALL.into_iter().cycle().take(9).map(block).collect()
}

fn summary(blocks: &[Vec<Owned>]) -> Summary {
    let parts = blocks.iter().flatten();
    Summary {
        blocks: u32::try_from(blocks.len()).unwrap(),
        parts: parts.clone().count() as u64,
        peers: parts.map(|part| part.ages.len() as u64).sum(),
    }
}

#[test]
fn everything_is_read_as_it_was_written() {
    for seed in 0..20 {
        let blocks = blocks(seed);
        let bytes = write(&header(), &blocks);
        assert_eq!(*Reader::new(&bytes[..]).unwrap().header(), header());
        let (read, events) = read(&bytes).unwrap();
        let expected: Vec<_> = (1000..).zip(blocks.clone()).collect();
        assert_eq!(read, expected);
        assert_eq!(events, [Event::End(summary(&blocks))]);
    }
}

/// A header of an early version, whose identities may have another size.
fn with_identities_of(bytes: u32) -> Vec<u8> {
    let mut file = write(&header(), &[]);
    file[40..44].copy_from_slice(&bytes.to_le_bytes());
    let crc = crc32fast::hash(&file[..HEADER_BYTES - 4]);
    file[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    file
}

#[test]
fn a_file_of_fingerprints_is_refused_by_name() {
    let refusal = |bytes| Reader::new(&with_identities_of(bytes)[..]).err().map(|error| error.to_string());
    assert_eq!(refusal(20), None);
    let text = "it has fingerprints in place of info hashes, which this version no longer reads";
    assert_eq!(refusal(12).as_deref(), Some(text));
    assert_eq!(refusal(19).as_deref(), Some("its header is damaged"));
}

#[test]
fn a_damaged_byte_costs_one_block() {
    let blocks = blocks(1);
    let bytes = write(&header(), &blocks);
    let whole = read(&bytes).unwrap().0;
    let rng = &mut fastrand::Rng::with_seed(2);
    for _ in 0..500 {
        let mut damaged = bytes.clone();
        let index = rng.usize(HEADER_BYTES..bytes.len());
        damaged[index] ^= 1 << rng.u32(0..8);
        let (read, events) = read(&damaged).unwrap();
        assert!(read.len() + 1 >= whole.len(), "byte {index}: {events:?}");
        assert!(read.iter().all(|block| whole.contains(block)));
        let lengths = events.iter().filter_map(|event| match event {
            Event::Damage(bytes) => Some(*bytes),
            _ => None,
        });
        assert!(lengths.sum::<u64>() > 0, "byte {index}: {events:?}");
    }
}

#[test]
fn a_file_that_ends_early_keeps_its_whole_blocks() {
    let blocks = blocks(3);
    let bytes = write(&header(), &blocks);
    let whole = read(&bytes).unwrap().0;
    for length in (HEADER_BYTES..bytes.len()).step_by(211) {
        let (read, events) = read(&bytes[..length]).unwrap();
        assert_eq!(read[..], whole[..read.len()]);
        assert_eq!(events.last(), Some(&Event::Truncated));
    }
}

#[test]
fn another_file_is_refused_with_the_reason() {
    let refusal = |bytes: &[u8]| Reader::new(bytes).map(drop).unwrap_err().to_string();
    let bytes = write(&header(), &[]);
    assert_eq!(refusal(b""), "it is no snapshot");
    assert_eq!(refusal(&[b'x'; 1000]), "it is no snapshot");
    assert_eq!(refusal(&bytes[..100]), "its header is damaged");
    let mut later = bytes.clone();
    later[16] = 2;
    assert_eq!(refusal(&later), "its format has version 2, and this program reads version 1");
    for index in 20..HEADER_BYTES {
        let mut damaged = bytes.clone();
        damaged[index] ^= 0x10;
        assert_eq!(refusal(&damaged), "its header is damaged", "byte {index}");
    }
}

proptest! {
    /// Any bytes behind a header are read to their end.
    #[test]
    fn any_bytes_come_to_an_end(
        bytes in proptest::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'S'), 1 => Just(b'H')], 0..2000),
        cut in 0_usize..2000,
    ) {
        let mut file = write(&header(), &blocks(4)[..2]);
        file.truncate(HEADER_BYTES + cut);
        file.extend_from_slice(&bytes);
        let (_, events) = read(&file).unwrap();
        prop_assert!(!events.is_empty());
    }
}
