//! The encoding of credit: announces of users in batches, for the program that credits users.
//!
//! A batch is a message: a head, and records to its end. Numbers of the head are little-endian; those of records are
//! LEB128, seven bits a byte, the lowest first. docs/credit.md tells consumers how to read them.
//!
//! | Head | Meaning |
//! |---|---|
//! | 1 byte | the version, 1 |
//! | 8 bytes | the run of the node, which is new after each start |
//! | 8 bytes | the sequence number of the batch in the run, from 1 |
//! | 1 byte and as many as it says | the name of the node |
//!
//! | Record | Meaning |
//! |---|---|
//! | 1 byte | flags: bits 0 and 1 the event (0 update, 1 completed, 2 started, 3 stopped), bits 2 and 3 the protocol (0 UDP, 1 HTTP, 2 WebTorrent), bit 4 a peer id, bits 5 to 7 bytes uploaded, downloaded and left |
//! | a number | milliseconds since 1970 |
//! | 1 byte and as many as it says | the subject of the token |
//! | 20 bytes | the info hash |
//! | 20 bytes | the peer id, if flagged |
//! | up to three numbers | bytes uploaded, downloaded and left, each if flagged |

use shoal_base::{Credit, CreditProtocol, Event, InfoHash, PeerId, SUBJECT_BYTES_MAX, Subject, Transfer};

use crate::protocol::NodeId;
use crate::protocol::message::{Malformed, Reader};

/// Maximum size of a batch in bytes. NATS servers accept messages of 1 MiB by default.
pub const CREDIT_BATCH_BYTES_MAX: usize = 128 << 10;

/// Maximum size of a record in bytes.
pub const CREDIT_BYTES_MAX: usize =
    1 + NUMBER_BYTES_MAX + 1 + SUBJECT_BYTES_MAX + 20 + 20 + 3 * NUMBER_BYTES_MAX;

/// Minimum size of a record in bytes: flags, a time, a user of one byte and the torrent.
pub const CREDIT_BYTES_MIN: usize = 1 + 1 + 2 + 20;

const VERSION: u8 = 1;

/// Maximum length of a number in bytes.
const NUMBER_BYTES_MAX: usize = 10;

const EVENT: u8 = 0b11;
const PROTOCOL_SHIFT: u8 = 2;
const PEER_ID: u8 = 1 << 4;
const UPLOADED: u8 = 1 << 5;
const DOWNLOADED: u8 = 1 << 6;
const LEFT: u8 = 1 << 7;

/// The head of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditHead<'b> {
    /// The run of the node.
    pub run: NodeId,
    /// The number of the batch in its run.
    pub sequence: u64,
    /// The name of the node.
    pub node: &'b str,
}

/// A record: an announce and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditRecord {
    /// The time in milliseconds since 1970, by the clock of the node.
    pub unix_ms: u64,
    /// The announce.
    pub credit: Credit,
}

/// Returns the subject on which the nodes of a cluster publish batches.
pub fn credit_subject(cluster: &str) -> String {
    format!("shoal.{cluster}.credit")
}

/// Appends the head of a batch. A name that is too long is cut off.
pub fn encode_credit_head(head: &CreditHead<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&credit_head_prefix(head.run));
    out.extend_from_slice(&head.sequence.to_le_bytes());
    let end = (0..=head.node.len().min(u8::MAX.into())).rev().find(|&end| head.node.is_char_boundary(end));
    write_text(head.node.get(..end.unwrap_or(0)).unwrap_or_default(), out);
}

/// Returns the first bytes of all batches of a run.
pub(crate) fn credit_head_prefix(run: NodeId) -> [u8; 9] {
    let [a, b, c, d, e, f, g, h] = run.0.to_le_bytes();
    [VERSION, a, b, c, d, e, f, g, h]
}

/// Appends a record.
pub fn encode_credit(record: &CreditRecord, out: &mut Vec<u8>) {
    let Credit { subject, info_hash, peer_id, event, protocol, transfer } = &record.credit;
    let event = match event {
        Event::Update => 0,
        Event::Completed => 1,
        Event::Started => 2,
        Event::Stopped => 3,
    };
    let protocol = match protocol {
        CreditProtocol::Udp => 0,
        CreditProtocol::Http => 1,
        CreditProtocol::WebTorrent => 2,
    };
    let if_some = |flag, is_some| if is_some { flag } else { 0 };
    let &Transfer { uploaded, downloaded, left } = transfer;
    out.push(
        event
            | protocol << PROTOCOL_SHIFT
            | if_some(PEER_ID, peer_id.is_some())
            | if_some(UPLOADED, uploaded.is_some())
            | if_some(DOWNLOADED, downloaded.is_some())
            | if_some(LEFT, left.is_some()),
    );
    write_number(record.unix_ms, out);
    write_text(subject.as_str(), out);
    out.extend_from_slice(&info_hash.0);
    if let Some(peer_id) = peer_id {
        out.extend_from_slice(&peer_id.0);
    }
    [uploaded, downloaded, left].into_iter().flatten().for_each(|number| write_number(number, out));
}

/// Reads a batch. Replaces the content of `records`, and returns the head. Fails if the bytes are no batch of this
/// version. The content of `records` is then unspecified.
pub fn decode_credits<'b>(
    batch: &'b [u8],
    records: &mut Vec<CreditRecord>,
) -> Result<CreditHead<'b>, Malformed> {
    records.clear();
    let mut reader = Reader::new(batch);
    let [version] = reader.array()?;
    if version != VERSION {
        return Err(Malformed);
    }
    let (run, sequence) = (NodeId(reader.u64()?), reader.u64()?);
    let node = read_text(&mut reader)?;
    while !reader.is_empty() {
        records.push(read_record(&mut reader)?);
    }
    Ok(CreditHead { run, sequence, node })
}

fn read_record(reader: &mut Reader<'_>) -> Result<CreditRecord, Malformed> {
    let [flags] = reader.array()?;
    let event = match flags & EVENT {
        0 => Event::Update,
        1 => Event::Completed,
        2 => Event::Started,
        _ => Event::Stopped,
    };
    let protocol = match flags >> PROTOCOL_SHIFT & 0b11 {
        0 => CreditProtocol::Udp,
        1 => CreditProtocol::Http,
        2 => CreditProtocol::WebTorrent,
        _ => return Err(Malformed),
    };
    let unix_ms = read_number(reader)?;
    let subject = Subject::new(read_text(reader)?).ok_or(Malformed)?;
    let info_hash = InfoHash(reader.array()?);
    let peer_id = if flags & PEER_ID == 0 { None } else { Some(PeerId(reader.array()?)) };
    let mut bytes = |flag| if flags & flag == 0 { Ok(None) } else { read_number(reader).map(Some) };
    let transfer =
        Transfer { uploaded: bytes(UPLOADED)?, downloaded: bytes(DOWNLOADED)?, left: bytes(LEFT)? };
    Ok(CreditRecord { unix_ms, credit: Credit { subject, info_hash, peer_id, event, protocol, transfer } })
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(u8::try_from(text.len()).unwrap_or(0));
    out.extend_from_slice(text.as_bytes());
}

fn read_text<'b>(reader: &mut Reader<'b>) -> Result<&'b str, Malformed> {
    let [length] = reader.array()?;
    str::from_utf8(reader.take(length.into())?).map_err(|_| Malformed)
}

fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(0x80 | low_bits(number));
        number >>= 7;
    }
    out.push(low_bits(number));
}

const fn low_bits(number: u64) -> u8 {
    number.to_le_bytes()[0] & 0x7f
}

/// Reads a number, which has one valid encoding: the shortest.
fn read_number(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let [byte] = reader.array()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits || byte == 0 && shift > 0 {
            return Err(Malformed);
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = Vec<CreditRecord>> {
        let event = prop_oneof![
            Just(Event::Update),
            Just(Event::Completed),
            Just(Event::Started),
            Just(Event::Stopped)
        ];
        let protocol = prop_oneof![
            Just(CreditProtocol::Udp),
            Just(CreditProtocol::Http),
            Just(CreditProtocol::WebTorrent)
        ];
        let bytes = || any::<Option<u64>>();
        let transfer = (bytes(), bytes(), bytes());
        let named = ("[a-zü]{1,32}", any::<[u8; 20]>(), any::<Option<[u8; 20]>>());
        let record = (any::<u64>(), named, event, protocol, transfer).prop_map(
            |(unix_ms, (subject, info_hash, peer_id), event, protocol, (uploaded, downloaded, left))| {
                CreditRecord {
                    unix_ms,
                    credit: Credit {
                        subject: Subject::new(&subject).expect("it is short"),
                        info_hash: InfoHash(info_hash),
                        peer_id: peer_id.map(PeerId),
                        event,
                        protocol,
                        transfer: Transfer { uploaded, downloaded, left },
                    },
                }
            },
        );
        prop::collection::vec(record, 0..20)
    }

    proptest! {
        #[test]
        fn batches_are_read_back(records in records(), run: u64, sequence: u64, node in "\\PC{0,40}") {
            let (mut batch, mut read) = (Vec::new(), Vec::new());
            let head = CreditHead { run: NodeId(run), sequence, node: &node };
            encode_credit_head(&head, &mut batch);
            for record in &records {
                let before = batch.len();
                encode_credit(record, &mut batch);
                prop_assert!(batch.len() - before <= CREDIT_BYTES_MAX);
            }
            prop_assert_eq!(decode_credits(&batch, &mut read), Ok(head));
            prop_assert_eq!(&read, &records);
            // A batch that ends early is none, unless it ends between two records.
            if let Some(last) = records.last() {
                let mut encoded = Vec::new();
                encode_credit(last, &mut encoded);
                for missing in 1..encoded.len() {
                    prop_assert_eq!(decode_credits(&batch[..batch.len() - missing], &mut read), Err(Malformed));
                }
            }
        }

        #[test]
        fn garbage_is_refused_or_read_exactly(bytes: Vec<u8>) {
            let mut records = Vec::new();
            if let Ok(head) = decode_credits(&bytes, &mut records) {
                let mut again = Vec::new();
                encode_credit_head(&head, &mut again);
                records.iter().for_each(|record| encode_credit(record, &mut again));
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn a_usual_record_is_compact() {
        let credit = Credit {
            subject: Subject::new("user-1234567").expect("it is short"),
            info_hash: InfoHash([1; 20]),
            peer_id: Some(PeerId([2; 20])),
            event: Event::Update,
            protocol: CreditProtocol::Udp,
            transfer: Transfer { uploaded: Some(3 << 30), downloaded: Some(5 << 30), left: Some(0) },
        };
        let mut out = Vec::new();
        encode_credit(&CreditRecord { unix_ms: 1_790_000_000_000, credit }, &mut out);
        assert_eq!(out.len(), 71);
    }

    #[test]
    fn numbers_have_one_encoding() {
        let read = |bytes: &[u8]| read_number(&mut Reader::new(bytes));
        assert_eq!(read(&[0]), Ok(0));
        assert_eq!(read(&[0x80, 1]), Ok(128));
        assert_eq!(read(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]), Ok(u64::MAX));
        for wrong in
            [&[0x80_u8, 0][..], &[0x80], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2], &[0x80; 11]]
        {
            assert_eq!(read(wrong), Err(Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let name = "ü".repeat(200);
        let (mut batch, mut records) = (Vec::new(), Vec::new());
        encode_credit_head(&CreditHead { run: NodeId(1), sequence: 2, node: &name }, &mut batch);
        let head = decode_credits(&batch, &mut records).expect("it is a batch");
        assert_eq!(head.node, "ü".repeat(127));
    }
}
