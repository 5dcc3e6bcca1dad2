//! Stamps: twenty characters in each offer and answer that tell which connection sent it, when, and for which torrent.
//!
//! With a stamp, the thread that receives an offer or an answer can check it without a table of those in flight.

use crate::population::mix;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The time on the clock of the session, rounded down to 128 ns.
    pub(super) sent_ns: u64,
    pub(super) worker: usize,
    /// The slot of the connection within its worker.
    pub(super) slot: usize,
    pub(super) index: usize,
    pub(super) torrent: u32,
}

/// The length of a stamp. Each character holds six bits.
pub(super) const STAMP_BYTES: usize = 20;

/// Characters that no JSON encoder escapes.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const TIME_SHIFT: u32 = 7;
const TIME_BITS: u32 = 40;
const WORKER_BITS: u32 = 10;
const SLOT_BITS: u32 = 20;
const INDEX_BITS: u32 = 8;
const TORRENT_BITS: u32 = 26;
const CHECK_BITS: u32 = 16;

const _: () = assert!(TIME_BITS + WORKER_BITS + SLOT_BITS + INDEX_BITS + TORRENT_BITS + CHECK_BITS == 6 * 20);

/// The ranges of a stamp. The time wraps around after a day and a half.
pub(super) const WORKERS_MAX: usize = 1 << WORKER_BITS;
pub(super) const SLOTS_MAX: usize = 1 << SLOT_BITS;
pub(super) const OFFERS_MAX: usize = 1 << INDEX_BITS;
pub(super) const TORRENTS_MAX: u32 = 1 << TORRENT_BITS;

impl Stamp {
    /// Returns the text of a stamp, with a checksum that depends on the seed.
    pub(super) fn write(&self, seed: u64) -> [u8; STAMP_BYTES] {
        let mut bits = 0_u128;
        for (value, width) in [
            (self.sent_ns >> TIME_SHIFT, TIME_BITS),
            (self.worker as u64, WORKER_BITS),
            (self.slot as u64, SLOT_BITS),
            (self.index as u64, INDEX_BITS),
            (self.torrent.into(), TORRENT_BITS),
        ] {
            bits = bits << width | u128::from(value & ((1 << width) - 1));
        }
        bits = bits << CHECK_BITS | u128::from(checksum_of(seed, bits));
        std::array::from_fn(|digit| {
            let [low, ..] = (bits >> (6 * (STAMP_BYTES - 1 - digit))).to_le_bytes();
            DIGITS[usize::from(low & 63)]
        })
    }

    /// Reads a stamp. Returns `None` if the text is no stamp of this seed.
    pub(super) fn read(text: &[u8], seed: u64) -> Option<Self> {
        let text: &[u8; STAMP_BYTES] = text.try_into().ok()?;
        let mut bits = 0_u128;
        for digit in text {
            bits = bits << 6 | u128::from(value(*digit)?);
        }
        let checksum = bits & ((1 << CHECK_BITS) - 1);
        bits >>= CHECK_BITS;
        if checksum != u128::from(checksum_of(seed, bits)) {
            return None;
        }
        let mut take = |width: u32| {
            let value = bits & ((1 << width) - 1);
            bits >>= width;
            u64::try_from(value).ok()
        };
        let torrent = u32::try_from(take(TORRENT_BITS)?).ok()?;
        let index = usize::try_from(take(INDEX_BITS)?).ok()?;
        let slot = usize::try_from(take(SLOT_BITS)?).ok()?;
        let worker = usize::try_from(take(WORKER_BITS)?).ok()?;
        Some(Self { sent_ns: take(TIME_BITS)? << TIME_SHIFT, worker, slot, index, torrent })
    }
}

fn checksum_of(seed: u64, bits: u128) -> u16 {
    let [a, b, c, d, e, f, g, h, rest @ ..] = bits.to_le_bytes();
    let hash = mix(mix(seed ^ u64::from_le_bytes([a, b, c, d, e, f, g, h])) ^ u64::from_le_bytes(rest));
    let [first, second, ..] = hash.to_le_bytes();
    u16::from_le_bytes([first, second])
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_only_with_its_seed() {
        for stamp in [
            Stamp { sent_ns: 0, worker: 0, slot: 0, index: 0, torrent: 0 },
            Stamp { sent_ns: 128 * 77_000_000, worker: 3, slot: 40_001, index: 9, torrent: 9_999 },
            Stamp {
                sent_ns: ((1 << TIME_BITS) - 1) << TIME_SHIFT,
                worker: WORKERS_MAX - 1,
                slot: SLOTS_MAX - 1,
                index: OFFERS_MAX - 1,
                torrent: TORRENTS_MAX - 1,
            },
        ] {
            let text = stamp.write(5);
            assert_eq!(Stamp::read(&text, 5), Some(stamp));
            assert_eq!(Stamp::read(&text, 6), None);
            for place in 0..STAMP_BYTES {
                let mut spoilt = text;
                spoilt[place] = if text[place] == b'A' { b'B' } else { b'A' };
                assert_eq!(Stamp::read(&spoilt, 5), None, "{place}");
            }
        }
        assert_eq!(Stamp::read(b"too short", 5), None);
        assert_eq!(Stamp::read(&[b'"'; STAMP_BYTES], 5), None);
    }
}
