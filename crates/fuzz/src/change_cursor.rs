//! Cursors of the feed of changes, from the query of a reader on.

use shoal_base::InfoHash;
use shoal_engine::insight::{ChangeLog, Changes, Cursor};

/// The epoch and the keys of the log.
const NUMBERS: [u64; 3] = [1, 2, 3];

/// The capacity of the log, and the number of torrents that have changed: it has forgotten some of them.
const CAPACITY: usize = 8;
const TORRENTS: u8 = 12;

const TORRENTS_MAX: usize = 3;

/// Reads the input as a cursor. It is written as it was read, apart from leading zeros and the case of its digits. A reader with
/// it is told what has changed, or to start over, and reaches the end of the log in a bounded number of steps.
pub fn change_cursor(input: &[u8]) {
    let Ok(mut cursor) = String::from_utf8_lossy(input).parse::<Cursor>() else { return };
    assert_eq!(cursor.to_string().parse(), Ok(cursor));
    let mut log = ChangeLog::new(CAPACITY, NUMBERS);
    (0..TORRENTS).for_each(|number| log.append(&InfoHash([number; 20])));
    for _ in 0..=CAPACITY {
        match log.read(Some(cursor), TORRENTS_MAX) {
            Changes::StartOver { cursor: end } => {
                assert_eq!(end, log.end());
                return;
            }
            Changes::Changed { info_hashes, cursor: next, has_more } => {
                assert!(info_hashes.len() <= TORRENTS_MAX && has_more == (next != log.end()));
                cursor = next;
            }
        }
    }
    assert!(cursor == log.end() && !log.is_behind(cursor));
}
