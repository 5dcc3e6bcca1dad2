//! Lists of torrents in JSON and in XML.

use serde_json::Value;
use shoal_access::HashKey;
use shoal_access::faults::Faults;
use shoal_access::torrents::{
    Entry, Format, LINK_BYTES_MAX, Links, TableBuilder, TorrentTable, read_feed, read_json,
};

const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

/// Reads the input as JSON, and compares the table with the document as a whole.
pub fn torrent_json(document: &[u8]) {
    let (mut builder, mut faults, mut text) = (TableBuilder::default(), Faults::default(), document);
    let outcome = read_json(&mut text, &mut builder, &mut faults);
    let table = builder.build(&KEY);
    assert!(table.len() <= document.len() / 32, "a hash takes 32 bytes at least");
    // Of values that are skipped, the reader checks less, and texts that are too long lose their end.
    let Ok(value) = serde_json::from_slice::<Value>(document) else { return };
    if outcome.is_err() || faults.faulty > 0 {
        return;
    }
    assert_eq!(Format::of(document, None), Format::Json);
    match &value {
        Value::Array(items) => check_items(items, &table),
        Value::Object(fields) => {
            if let Some(Value::Array(items)) = fields.get("torrents") {
                check_items(items, &table);
            }
        }
        _ => panic!("a list is an array or an object"),
    }
}

fn check_items(items: &[Value], table: &TorrentTable) {
    for item in items {
        let name = match item {
            Value::Object(fields) => fields.get("info_hash").unwrap_or(&Value::Null),
            other => other,
        };
        if let Value::String(text) = name {
            let entry = Entry::parse(text).expect("the list was read").expect("it names a torrent");
            assert!(entry.info_hashes.iter().all(|info_hash| table.contains(&KEY, info_hash)));
        }
    }
}

/// Reads the input as a feed, and checks the bounds of what it names.
pub fn torrent_feed(document: &[u8]) {
    let (mut builder, mut links, mut faults) = (TableBuilder::default(), Links::default(), Faults::default());
    let mut text = document;
    let outcome = read_feed(&mut text, &mut builder, &mut links, &mut faults);
    let table = builder.build(&KEY);
    assert!(table.len() <= document.len() / 32, "a hash takes 32 bytes at least");
    let urls = &links.urls;
    assert!(urls.iter().all(|link| link.len() <= LINK_BYTES_MAX && !link.contains(char::is_control)));
    assert!(urls.iter().map(String::len).sum::<usize>() <= document.len().saturating_mul(3));
    if let Err(error) = outcome {
        let lines = 1 + document.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert!((1..=lines).contains(&error.line), "{error}");
    }
}
