//! The lists of an operator: lines that name torrents, and .torrent files.

use std::collections::BTreeMap;
use std::io::Read;

use shoal_access::HashKey;
use shoal_access::text::Text;
use shoal_access::torrents::{
    Details, Entry, LINE_BYTES_MAX, ListReader, REASON_BYTES_MAX, REFERENCE_BYTES_MAX, info_hashes,
};
use shoal_base::InfoHash;
use shoal_wire::http::bencode;

const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

/// Reads the input as a list, as a whole and in pieces, and compares the table with the lines.
pub fn torrent_list(list: &[u8]) {
    let mut source = list;
    let mut bytes = Vec::new();
    let front = Text::new(&mut source, 1 << 20).map(|mut text| text.read_to_end(&mut bytes));
    if !matches!(front, Ok(Ok(_))) {
        return;
    }
    let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    let is_utf8 = core::str::from_utf8(&bytes).is_ok();
    let mut expected = BTreeMap::<InfoHash, Details<'_>>::new();
    let mut faulty_lines = 0;
    for line in text.split(['\n', '\r']) {
        match Entry::parse(line.trim_end_matches(['\0', '\u{1a}'])) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                check_entry(&entry, line);
                for info_hash in &entry.info_hashes {
                    let details = expected.entry(*info_hash).or_default();
                    if details.is_empty() {
                        *details = entry.details();
                    }
                }
            }
            Err(_) => faulty_lines += 1,
        }
    }
    for piece_bytes in [bytes.len().max(1), 1 + bytes.len() % 7] {
        let mut reader = ListReader::default();
        assert!(bytes.chunks(piece_bytes).all(|piece| reader.read(piece)));
        let (table, faults) = reader.finish(&KEY).expect("there is memory for it");
        if !is_utf8 {
            // Lines that are not UTF-8 are decoded in another way here.
            continue;
        }
        let entries: BTreeMap<_, _> =
            table.iter().map(|(info_hash, details)| (*info_hash, details)).collect();
        assert_eq!(entries, expected);
        assert_eq!(table.len(), expected.len());
        assert_eq!(faults.faulty, faulty_lines);
        assert!(expected.keys().all(|info_hash| table.contains(&KEY, info_hash)));
    }
}

/// Checks the bounds of an entry, and that it is read back as it is written.
fn check_entry(entry: &Entry<'_>, line: &str) {
    assert!(line.len() <= LINE_BYTES_MAX && !entry.info_hashes.is_empty());
    assert!(entry.reason.is_none_or(|reason| (1..=REASON_BYTES_MAX).contains(&reason.len())));
    assert!(entry.reference.is_none_or(|text| (1..=REFERENCE_BYTES_MAX).contains(&text.len())));
    let written = entry.to_string();
    let again: Vec<_> =
        written.lines().map(|line| Entry::parse(line).expect("it was written").expect("an entry")).collect();
    let hashes: Vec<_> = again.iter().flat_map(|entry| entry.info_hashes.iter().copied()).collect();
    assert_eq!(hashes, *entry.info_hashes);
}

/// Reads the input as a .torrent file, and compares the outcome with the reader of bencoded replies.
pub fn torrent_file(file: &[u8]) {
    let Ok(hashes) = info_hashes(file) else { return };
    assert!(!hashes.is_empty());
    // That reader is stricter about integers and nesting, and refuses keys that occur twice.
    // It refuses bytes behind the dictionary as well.
    if let Ok(bencode::Value::Dictionary(dictionary)) = bencode::decode(file) {
        assert!(dictionary.get(b"info").is_some(), "there is an info dictionary");
    }
}
