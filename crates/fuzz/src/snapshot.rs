//! The file of a snapshot, and swarms that return from it.

use shoal_store::snapshot_file::{Block, Event, HEADER_BYTES, Header, Reader, Writer};
use shoal_store::{Ages, Settings, Store, SwarmSet};

const TIMEOUT_S: u32 = 2700;

/// Reads the input as what follows a header, and as the content of a block with right checksums, into a store.
pub fn snapshot(input: &[u8]) {
    let header = Header {
        timeout_s: TIMEOUT_S,
        begun_unix_s: 0,
        keys: 0,
        swarms: [0; SwarmSet::ALL.len()],
        program: String::new(),
    };
    let mut file = Writer::new(Vec::new(), &header)
        .and_then(|writer| writer.finish(0))
        .map_or(Vec::new(), |file| file.0);
    let end = file.split_off(HEADER_BYTES);
    file.extend_from_slice(input);
    file.extend_from_slice(&end);
    read(&file);
    for set in SwarmSet::ALL {
        take(&Block::of(set, input));
    }
}

fn read(file: &[u8]) {
    let mut reader = Reader::new(file).expect("the header is right");
    let (mut block, mut bytes) = (Block::default(), 0);
    while let Some(event) = reader.next(&mut block).expect("memory can be read") {
        match event {
            Event::Block => take(&block),
            Event::Damage(damaged) => bytes += damaged,
            Event::End(_) | Event::Truncated => {}
        }
    }
    assert!(bytes <= file.len() as u64, "no byte is damaged twice");
}

fn take(block: &Block) {
    let Some(set) = block.set() else { return };
    let parts: Vec<_> = block.parts().map_while(Result::ok).collect();
    let peers: usize = parts.iter().map(|part| part.ages.len()).sum();
    for part in &parts {
        assert_eq!(part.peers.len(), part.ages.len() * set.peer_bytes());
        assert!(part.seeders <= part.ages.len());
    }
    let settings = Settings {
        peers_per_source_max: 16,
        swarm_share_max: 50,
        ..Settings::new(8 << 20, TIMEOUT_S, [1, 2, 3, 4])
    };
    let store = Store::with_shards(&settings, 1).expect("8 MiB can be reserved");
    let restored = store.restore(set, &parts, &Ages::new(TIMEOUT_S, TIMEOUT_S, 100), 5);
    assert_eq!(restored.peers + restored.overdue + restored.refused, peers as u64);
}
