//! Messages between cluster nodes, the deltas in them, batches of credit, and the journal in which credit waits.

use shoal_cluster::protocol::message::{Decoded, decode, encode};
use shoal_cluster::protocol::{
    Deltas, NodeId, SegmentContents, SegmentEntry, decode_credits, decode_deltas, decode_segment,
    decode_segment_entry, encode_credit, encode_credit_head, encode_delta, encode_presence,
    encode_segment_entry, encode_segment_head,
};

/// Reads the input as a message, and as the body of one with the right version, sender and checksum, which a fuzzer
/// cannot guess. A message is the same after it was written and read again.
pub fn cluster_message(input: &[u8]) {
    check(input);
    if let [kind, body @ ..] = input {
        check(&seal(*kind, 7, body));
    }
}

/// Returns a message of the current version with this kind, sender and body.
pub(crate) fn seal(kind: u8, from: u64, body: &[u8]) -> Vec<u8> {
    let mut message = vec![1, kind];
    message.extend_from_slice(&from.to_le_bytes());
    message.extend_from_slice(body);
    let checksum = crc32fast::hash(&message);
    message.extend_from_slice(&checksum.to_le_bytes());
    message
}

fn check(bytes: &[u8]) {
    let Ok(Decoded::Message { from, message }) = decode(bytes) else { return };
    let again = encode(from, &message);
    assert_eq!(again.len(), bytes.len());
    assert_eq!(decode(&again), Ok(Decoded::Message { from, message }));
}

/// Reads the input as the deltas of a batch, which are the same after they were written and read again.
pub fn cluster_deltas(input: &[u8]) {
    let (mut deltas, mut again) = (Deltas::default(), Deltas::default());
    if decode_deltas(input, &mut deltas).is_err() {
        return;
    }
    let (mut bytes, mut before) = (Vec::new(), None);
    for delta in &deltas.addresses {
        encode_delta(delta, before, &mut bytes);
        before = Some(&delta.info_hash);
    }
    for presence in &deltas.presences {
        encode_presence(presence, before, &mut bytes);
        before = Some(&presence.info_hash);
    }
    assert_eq!(decode_deltas(&bytes, &mut again), Ok(()));
    assert_eq!(again, deltas);
}

/// Reads the input as a batch of credit, which is written as the same bytes: each record has one encoding.
pub fn cluster_credit(input: &[u8]) {
    let mut records = Vec::new();
    let Ok(head) = decode_credits(input, &mut records) else { return };
    let mut again = Vec::new();
    encode_credit_head(&head, &mut again);
    records.iter().for_each(|record| encode_credit(record, &mut again));
    assert_eq!(again, input);
}

/// Reads the input as a segment of the journal of credit, and as what follows a valid head and entry.
pub fn cluster_segment(input: &[u8]) {
    check_segment(input);
    let mut segment = encode_segment_head(NodeId(7), 8);
    check_segment(&[&segment, input].concat());
    let (batch, rest) = input.split_at(input.len() / 2);
    encode_segment_entry(&SegmentEntry { sequence: 1, records: 1, batch }, &mut segment);
    check_segment(&[&segment, rest].concat());
}

/// A segment without its damage and what is behind its end has the same batches.
fn check_segment(segment: &[u8]) {
    let Some(contents) = decode_segment(segment) else { return };
    let mut repaired = encode_segment_head(contents.run, contents.created_unix_ms);
    for batch in &contents.batches {
        let entry = decode_segment_entry(&segment[batch.offset..]).expect("a batch is in its entry");
        assert_eq!((entry.sequence, entry.records), (batch.sequence, batch.records));
        assert_eq!(entry.batch.len(), batch.length);
        encode_segment_entry(&entry, &mut repaired);
    }
    let again = decode_segment(&repaired).expect("it has a head");
    assert!(!again.is_damaged && again.end == repaired.len());
    let numbers = |contents: &SegmentContents| -> Vec<_> {
        contents.batches.iter().map(|batch| (batch.sequence, batch.length)).collect()
    };
    assert_eq!(numbers(&again), numbers(&contents));
    if !contents.is_damaged {
        let cut = decode_segment(&segment[..contents.end]);
        assert_eq!(cut.as_ref(), Some(&contents));
    }
}
