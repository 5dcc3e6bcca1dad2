//! Messages between the nodes of a cluster, the deltas in them, and batches of credit.

use shoal_cluster::message::{Decoded, decode, encode};
use shoal_cluster::{
    Deltas, decode_credits, decode_deltas, encode_credit, encode_credit_head, encode_delta, encode_presence,
};

/// Reads the input as a message, and as the kind and the body of one whose version, sender and checksum are right: a fuzzer
/// cannot guess checksums. A message that is read is also read after it was written again, and is then the same.
///
/// # Panics
/// Panics if a property does not hold.
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

/// Reads the input as the deltas of a batch. Those that are read are also read after they were written again, and are then the
/// same.
///
/// # Panics
/// Panics if a property does not hold.
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

/// Reads the input as a batch of credit. One that is read has the same bytes when it is written again: each record has one
/// encoding.
///
/// # Panics
/// Panics if a property does not hold.
pub fn cluster_credit(input: &[u8]) {
    let mut records = Vec::new();
    let Ok(head) = decode_credits(input, &mut records) else { return };
    let mut again = Vec::new();
    encode_credit_head(&head, &mut again);
    records.iter().for_each(|record| encode_credit(record, &mut again));
    assert_eq!(again, input);
}
