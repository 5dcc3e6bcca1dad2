//! The format of a segment: a file in which batches of credit wait for their stream.
//!
//! A segment is a head and entries, each with its checksum. An entry is a batch. An empty entry notes that the stream
//! has the batches up to its number. Numbers are little-endian.
//!
//! | Head | Meaning |
//! |---|---|
//! | 8 bytes | `shoalcr1`, the name of the format with its version |
//! | 8 bytes | the run |
//! | 8 bytes | the time of creation in milliseconds since 1970 |
//! | 4 bytes | the CRC-32 of these |
//!
//! | Entry | Meaning |
//! |---|---|
//! | 4 bytes | the length of the batch, or 0 for a note |
//! | 4 bytes | the CRC-32 of the length and of what follows |
//! | 8 bytes | the number of the batch |
//! | 4 bytes | the number of its records |
//! | as many as it says | the batch |

use crate::protocol::NodeId;
use crate::protocol::credit::{CREDIT_BATCH_BYTES_MAX, CREDIT_BYTES_MIN, credit_head_prefix};

const MAGIC: [u8; 8] = *b"shoalcr1";

/// The size of the head in bytes.
pub const SEGMENT_HEAD_BYTES: usize = MAGIC.len() + 8 + 8 + 4;

/// The size of an entry before its batch, in bytes.
pub const SEGMENT_ENTRY_HEAD_BYTES: usize = 4 + 4 + 8 + 4;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEntry<'b> {
    /// The number of the batch, or of the last one that the stream has.
    pub sequence: u64,
    /// The number of records of the batch.
    pub records: u32,
    /// The batch. Empty in a note.
    pub batch: &'b [u8],
}

/// The place of a batch that the stream does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentBatch {
    /// The number of the batch.
    pub sequence: u64,
    /// The number of its records.
    pub records: u32,
    /// The place of its entry in the segment.
    pub offset: usize,
    /// The size of the batch in bytes, without the rest of the entry.
    pub length: usize,
}

/// The content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentContents {
    /// The run that has written it.
    pub run: NodeId,
    /// The time of its creation in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The batches that the stream does not have, in their order.
    pub batches: Vec<SegmentBatch>,
    /// The size of the segment up to its last whole entry. The beginning of an unfinished entry may follow, or zeros in
    /// its place, from the end of the process or the host.
    pub end: usize,
    /// Whether a written entry cannot be read again.
    pub is_damaged: bool,
    /// The approximate number of records in such entries, of batches that the stream does not have.
    pub lost_records: u64,
}

/// Why there is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryFault {
    /// The bytes end before the entry does.
    Short,
    /// The entry's length or checksum is wrong.
    Damaged,
}

/// Returns the head of a segment.
pub fn encode_segment_head(run: NodeId, created_unix_ms: u64) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&run.0.to_le_bytes());
    head.extend_from_slice(&created_unix_ms.to_le_bytes());
    let checksum = crc32fast::hash(&head);
    head.extend_from_slice(&checksum.to_le_bytes());
    head
}

/// Appends an entry. The batch has at most [`CREDIT_BATCH_BYTES_MAX`] bytes.
pub fn encode_segment_entry(entry: &SegmentEntry<'_>, out: &mut Vec<u8>) {
    let SegmentEntry { sequence, records, batch } = *entry;
    let length = u32::try_from(batch.len()).unwrap_or(u32::MAX);
    let begin = out.len();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&records.to_le_bytes());
    out.extend_from_slice(batch);
    let checksum = checksum(length, &out[begin + 8..]);
    out[begin + 4..begin + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads the entry at the beginning of the bytes. Returns `None` if it is missing or damaged.
pub fn decode_segment_entry(bytes: &[u8]) -> Option<SegmentEntry<'_>> {
    read_entry(bytes).ok()
}

/// Reads a segment. Returns `None` if it has no head. A damaged entry is left out. Reading continues where its length
/// says, or else at the next batch of the run.
pub fn decode_segment(bytes: &[u8]) -> Option<SegmentContents> {
    let (run, created_unix_ms) = read_head(bytes)?;
    let mut contents = SegmentContents {
        run,
        created_unix_ms,
        batches: Vec::new(),
        end: SEGMENT_HEAD_BYTES,
        is_damaged: false,
        lost_records: 0,
    };
    let (mut at, mut settled, mut last) = (SEGMENT_HEAD_BYTES, 0, 0_u64);
    let mut lost = Vec::new();
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match read_entry(rest) {
            Ok(SegmentEntry { sequence, records, batch }) => {
                if batch.is_empty() {
                    settled = settled.max(sequence);
                } else {
                    last = sequence;
                    contents.batches.push(SegmentBatch {
                        sequence,
                        records,
                        offset: at,
                        length: batch.len(),
                    });
                }
                at += SEGMENT_ENTRY_HEAD_BYTES + batch.len();
                contents.end = at;
            }
            Err(fault) => {
                let next = next_entry(rest, run);
                if next.is_none() && (fault == EntryFault::Short || rest.iter().all(|&byte| byte == 0)) {
                    break;
                }
                contents.is_damaged = true;
                // Numbers are consecutive, so this is the number of the unreadable batch.
                last = last.saturating_add(1);
                let gap = next.unwrap_or(rest.len());
                lost.push((last, records_in(rest, gap)));
                at += gap;
            }
        }
    }
    contents.batches.retain(|batch| batch.sequence > settled);
    contents.lost_records =
        lost.iter().filter(|(sequence, _)| *sequence > settled).map(|(_, records)| records).sum();
    Some(contents)
}

fn read_head(bytes: &[u8]) -> Option<(NodeId, u64)> {
    let head = bytes.get(..SEGMENT_HEAD_BYTES)?;
    let (run, created_unix_ms) =
        (NodeId(u64::from_le_bytes(array(head, 8)?)), u64::from_le_bytes(array(head, 16)?));
    (head == encode_segment_head(run, created_unix_ms)).then_some((run, created_unix_ms))
}

fn read_entry(bytes: &[u8]) -> Result<SegmentEntry<'_>, EntryFault> {
    let number = |at| array(bytes, at).map(u32::from_le_bytes).ok_or(EntryFault::Short);
    let (length, sum, records) = (number(0)?, number(4)?, number(16)?);
    let sequence = array(bytes, 8).map(u64::from_le_bytes).ok_or(EntryFault::Short)?;
    if length as usize > CREDIT_BATCH_BYTES_MAX {
        return Err(EntryFault::Damaged);
    }
    let entry = bytes.get(..SEGMENT_ENTRY_HEAD_BYTES + length as usize).ok_or(EntryFault::Short)?;
    if checksum(length, &entry[8..]) != sum {
        return Err(EntryFault::Damaged);
    }
    Ok(SegmentEntry { sequence, records, batch: &entry[SEGMENT_ENTRY_HEAD_BYTES..] })
}

/// Returns where the next entry begins after a damaged one. Clients choose parts of records, but do not know the run,
/// so they cannot forge bytes that begin like the run's batches.
fn next_entry(damaged: &[u8], run: NodeId) -> Option<usize> {
    let is_entry = |at: usize| damaged.get(at..).is_some_and(|bytes| read_entry(bytes).is_ok());
    let length = array(damaged, 0).map(u32::from_le_bytes)? as usize;
    let by_length = SEGMENT_ENTRY_HEAD_BYTES + length;
    if length <= CREDIT_BATCH_BYTES_MAX && is_entry(by_length) {
        return Some(by_length);
    }
    let prefix = credit_head_prefix(run);
    let batches = damaged.windows(prefix.len()).enumerate().skip(SEGMENT_ENTRY_HEAD_BYTES + 1);
    let mut entries =
        batches.filter(|(_, bytes)| **bytes == prefix).map(|(at, _)| at - SEGMENT_ENTRY_HEAD_BYTES);
    entries.find(|&at| is_entry(at))
}

/// Returns the approximate number of records of a damaged entry of `bytes` bytes.
fn records_in(entry: &[u8], bytes: usize) -> u64 {
    let records = array(entry, 16).map_or(0, u32::from_le_bytes);
    // A note has no records, even if its head says otherwise.
    let records_max = bytes.saturating_sub(SEGMENT_ENTRY_HEAD_BYTES) / CREDIT_BYTES_MIN;
    u64::from(records.max(1)).min(records_max as u64)
}

fn checksum(length: u32, content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::credit::{CreditHead, encode_credit_head};

    const RUN: NodeId = NodeId(3);

    /// A batch of this number with two records of 30 bytes, in the view of a segment.
    fn batch(sequence: u64) -> Vec<u8> {
        let mut batch = Vec::new();
        encode_credit_head(&CreditHead { run: RUN, sequence, node: "a" }, &mut batch);
        batch.extend_from_slice(&[5; 60]);
        batch
    }

    fn append(sequence: u64, segment: &mut Vec<u8>) {
        let batch = batch(sequence);
        encode_segment_entry(&SegmentEntry { sequence, records: 2, batch: &batch }, segment);
    }

    fn settle(sequence: u64, segment: &mut Vec<u8>) {
        encode_segment_entry(&SegmentEntry { sequence, records: 0, batch: &[] }, segment);
    }

    /// A segment with the batches 1 to 4, and where each begins and the last one ends.
    fn four() -> (Vec<u8>, Vec<usize>) {
        let mut segment = encode_segment_head(RUN, 4);
        let mut ends = vec![segment.len()];
        for sequence in 1..=4 {
            append(sequence, &mut segment);
            ends.push(segment.len());
        }
        (segment, ends)
    }

    fn sequences(contents: &SegmentContents) -> Vec<u64> {
        contents.batches.iter().map(|batch| batch.sequence).collect()
    }

    #[test]
    fn batches_are_read_back_unless_the_stream_has_them() {
        let (mut segment, ends) = four();
        settle(2, &mut segment);
        let contents = decode_segment(&segment).unwrap();
        assert_eq!((contents.run, contents.created_unix_ms, contents.end), (RUN, 4, segment.len()));
        assert_eq!((sequences(&contents), contents.is_damaged), (vec![3, 4], false));
        for (found, &offset) in contents.batches.iter().zip(&ends[2..]) {
            let entry = decode_segment_entry(&segment[found.offset..]).unwrap();
            assert_eq!((found.offset, found.length, found.records), (offset, entry.batch.len(), 2));
            assert_eq!((entry.sequence, entry.batch), (found.sequence, &*batch(found.sequence)));
        }
    }

    #[test]
    fn a_segment_that_ends_early_has_the_batches_before() {
        let (segment, ends) = four();
        for length in SEGMENT_HEAD_BYTES..=segment.len() {
            let contents = decode_segment(&segment[..length]).unwrap();
            let whole = ends.iter().filter(|&&end| end <= length).count() - 1;
            assert_eq!((contents.batches.len(), contents.is_damaged), (whole, false), "{length} bytes");
            assert_eq!(contents.end, ends[whole], "{length} bytes");
        }
        for zeros in 1..100 {
            let with_zeros = [&*segment, &vec![0; zeros]].concat();
            let contents = decode_segment(&with_zeros).unwrap();
            assert_eq!((contents.batches.len(), contents.is_damaged), (4, false), "{zeros} zeros");
            assert_eq!(contents.end, segment.len(), "{zeros} zeros");
        }
    }

    #[test]
    fn a_damaged_byte_costs_one_batch() {
        let (segment, ends) = four();
        for at in SEGMENT_HEAD_BYTES..segment.len() {
            let damaged = ends.iter().filter(|&&end| end <= at).count() as u64;
            for bit in 0..8 {
                let mut segment = segment.clone();
                segment[at] ^= 1 << bit;
                let contents = decode_segment(&segment).unwrap();
                let others: Vec<u64> = (1..=4).filter(|&sequence| sequence != damaged).collect();
                assert_eq!(sequences(&contents), others, "byte {at}, bit {bit}");
                // A length that reaches beyond the end is one of a batch that was being written.
                if damaged < 4 || at >= ends[3] + 4 {
                    assert!(contents.is_damaged, "byte {at}, bit {bit}");
                    assert!((1..=4).contains(&contents.lost_records), "{contents:?}");
                }
            }
        }
    }

    #[test]
    fn damage_of_what_the_stream_has_loses_nothing() {
        let (mut segment, ends) = four();
        settle(3, &mut segment);
        segment[ends[2] + 40] ^= 1;
        let contents = decode_segment(&segment).unwrap();
        assert_eq!((sequences(&contents), contents.is_damaged, contents.lost_records), (vec![4], true, 0));
        segment[ends[2] + 40] ^= 1;
        segment[ends[3] + 40] ^= 1;
        let contents = decode_segment(&segment).unwrap();
        assert_eq!((sequences(&contents), contents.is_damaged, contents.lost_records), (vec![], true, 2));
        // A note is no batch.
        let (mut segment, _) = four();
        settle(1, &mut segment);
        let last = segment.len() - 1;
        segment[last] ^= 1;
        let contents = decode_segment(&segment).unwrap();
        assert_eq!((contents.batches.len(), contents.is_damaged, contents.lost_records), (4, true, 0));
    }

    #[test]
    fn what_clients_choose_is_no_entry() {
        let mut segment = encode_segment_head(RUN, 4);
        let mut forged = Vec::new();
        encode_segment_entry(&SegmentEntry { sequence: 9, records: 1, batch: &[1; 20] }, &mut forged);
        let content = [batch(1), forged].concat();
        encode_segment_entry(&SegmentEntry { sequence: 1, records: 2, batch: &content }, &mut segment);
        append(2, &mut segment);
        segment[SEGMENT_HEAD_BYTES + 3] ^= 1;
        assert_eq!(sequences(&decode_segment(&segment).unwrap()), [2]);
    }

    #[test]
    fn garbage_never_panics() {
        let mut rng = fastrand::Rng::with_seed(17);
        for round in 0..20_000 {
            let mut bytes = if rng.bool() { encode_segment_head(RUN, 2) } else { Vec::new() };
            if rng.bool() {
                append(1, &mut bytes);
            }
            bytes.extend(std::iter::repeat_with(|| rng.u8(..)).take(round % 60));
            if !bytes.is_empty() && rng.bool() {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u8(..8);
            }
            if let Some(contents) = decode_segment(&bytes) {
                assert!(contents.end <= bytes.len());
                assert!(contents.batches.iter().all(|found| {
                    decode_segment_entry(&bytes[found.offset..])
                        .is_some_and(|entry| entry.batch.len() == found.length)
                }));
            }
        }
    }
}
