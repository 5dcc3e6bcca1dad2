//! The recently verified tokens, in a fixed amount of memory.
//!
//! An entry says that a token, or a token together with a torrent, was verified, by which key, and when it is valid. It
//! takes 32 bytes. Nothing else enters the cache, so no invalid token can evict a valid one. A secret hash determines
//! an entry's four possible places, two cache lines side by side. A new entry takes an unused place, or the place of an
//! entry that is no longer valid, or else a random one of the four: an order by use would lose all entries if slightly
//! more tokens than places are used in turn.
//!
//! All workers share the cache without a lock. An entry is four words. Two of them are the tag of the token combined
//! with the other two. If two workers write an entry at the same moment, the mixture has another tag, and so is no
//! entry.
//!
//! An entry names its key by a number that no other key gets. So removing a key, or changing the rules about claims,
//! ends its entries without a walk.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::token::hash::{HashKey, Tag};
use crate::token::keys::KeyNumber;

/// Number of places for an entry.
const WAYS: usize = 4;

/// Bits of a word for the number of a key. The rest holds a time in seconds, enough for 34,000 years.
const KEY_BITS: u32 = 24;

/// The greatest time that an entry can hold. Later times count as this.
const TIME_MAX_S: u64 = u64::MAX >> KEY_BITS;

/// A verified token, without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The key of its signature.
    pub key: KeyNumber,
    /// The second, since 1970, before which it is not valid.
    pub not_before_s: u64,
    /// The second, since 1970, from which on it is no longer valid.
    pub expires_s: u64,
}

/// The cache. Shared between threads: all methods take `&self`.
pub struct Cache {
    key: HashKey,
    sets: Box<[Set]>,
}

#[derive(Default)]
#[repr(align(128))]
struct Set([Entry; WAYS]);

#[derive(Default)]
struct Entry([AtomicU64; 4]);

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Cache {
    /// The memory of one entry, in bytes.
    pub const ENTRY_BYTES: usize = size_of::<Entry>();

    /// Creates an empty cache of at most `bytes_max`, but at least four entries.
    pub fn new(key: HashKey, bytes_max: usize) -> Self {
        let sets = (bytes_max / size_of::<Set>()).max(1);
        Self { key, sets: (0..sets).map(|_| Set::default()).collect() }
    }

    /// Returns its memory, which does not change.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// Returns the key of the tags.
    pub const fn key(&self) -> &HashKey {
        &self.key
    }

    /// Returns the cached facts about a token.
    #[inline]
    pub fn find(&self, tag: Tag) -> Option<Verified> {
        let Set(entries) = self.set(tag);
        entries.iter().find_map(|entry| entry.read(tag))
    }

    /// Remembers a token. `is_valid` decides whether other entries still are.
    pub fn insert(&self, tag: Tag, verified: Verified, now_s: u64, is_valid: impl Fn(Verified) -> bool) {
        let Set(entries) = self.set(tag);
        let same = || entries.iter().position(|entry| entry.read(tag).is_some());
        let unused =
            || entries.iter().position(|entry| entry.verified().is_none_or(|found| !is_valid(found)));
        // The low bits of a tag do not determine its set.
        let random = || usize::try_from((tag.0[0] ^ now_s) % WAYS as u64).unwrap_or(0);
        let place = same().or_else(unused).unwrap_or_else(random);
        entries[place].write(tag, verified);
    }

    #[inline]
    fn set(&self, Tag([first, _]): Tag) -> &Set {
        let product = u128::from(first) * self.sets.len() as u128;
        &self.sets[usize::try_from(product >> u64::BITS).unwrap_or(0)]
    }
}

impl Entry {
    fn load(&self) -> [u64; 4] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the entry if it has this tag.
    #[inline]
    fn read(&self, Tag(tag): Tag) -> Option<Verified> {
        let [mixed0, data0, mixed1, data1] = self.load();
        ([mixed0 ^ data0, mixed1 ^ data1] == tag).then(|| Verified::unpack([data0, data1]))
    }

    /// Returns the entry, if the place is used.
    fn verified(&self) -> Option<Verified> {
        let words = self.load();
        (words != [0; 4]).then(|| Verified::unpack([words[1], words[3]]))
    }

    fn write(&self, Tag([tag0, tag1]): Tag, verified: Verified) {
        let [data0, data1] = verified.pack();
        for (word, value) in self.0.iter().zip([tag0 ^ data0, data0, tag1 ^ data1, data1]) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Verified {
    fn pack(self) -> [u64; 2] {
        let time = |seconds: u64| seconds.min(TIME_MAX_S) << KEY_BITS;
        [time(self.expires_s) | u64::from(self.key.0), time(self.not_before_s)]
    }

    #[inline]
    fn unpack([first, second]: [u64; 2]) -> Self {
        let key = KeyNumber(u32::try_from(first & ((1 << KEY_BITS) - 1)).unwrap_or(0));
        Self { key, not_before_s: second >> KEY_BITS, expires_s: first >> KEY_BITS }
    }
}

const _: () = assert!(KeyNumber::MAX == (1 << KEY_BITS) - 1);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn cache(bytes: usize) -> Cache {
        let mut random = [0; HashKey::BYTES];
        fastrand::Rng::with_seed(1).fill(&mut random);
        Cache::new(HashKey::new(&random), bytes)
    }

    fn tag(cache: &Cache, number: u32) -> Tag {
        cache.key().tag(&number.to_le_bytes()).unwrap()
    }

    const VERIFIED: Verified = Verified { key: KeyNumber(7), not_before_s: 10, expires_s: 1000 };

    #[test]
    fn an_entry_is_returned_as_it_was_inserted() {
        let cache = cache(1 << 16);
        let extreme =
            Verified { key: KeyNumber(KeyNumber::MAX), not_before_s: TIME_MAX_S, expires_s: u64::MAX };
        for (number, verified) in [(1, VERIFIED), (2, extreme), (1, Verified { expires_s: 2000, ..VERIFIED })]
        {
            assert_ne!(cache.find(tag(&cache, number)), Some(verified));
            cache.insert(tag(&cache, number), verified, 0, |_| true);
            let stored = Verified { expires_s: verified.expires_s.min(TIME_MAX_S), ..verified };
            assert_eq!(cache.find(tag(&cache, number)), Some(stored));
        }
        assert_eq!(cache.find(tag(&cache, 3)), None);
    }

    #[test]
    fn it_answers_like_a_map_except_for_what_it_has_forgotten() {
        let (cache, mut rng) = (cache(200 * 128), fastrand::Rng::with_seed(2));
        let (mut map, mut known, mut asked) = (HashMap::new(), 0_u32, 0_u32);
        for step in 0..200_000_u64 {
            let number = rng.u32(0..1000);
            if rng.bool() {
                let verified = Verified {
                    key: KeyNumber(rng.u32(..KeyNumber::MAX)),
                    not_before_s: rng.u64(..1 << 40),
                    expires_s: rng.u64(..1 << 40),
                };
                cache.insert(tag(&cache, number), verified, step, |_| true);
                assert_eq!(cache.find(tag(&cache, number)), Some(verified), "the last one is known");
                map.insert(number, verified);
            } else if let Some(expected) = map.get(&number) {
                asked += 1;
                if let Some(found) = cache.find(tag(&cache, number)) {
                    assert_eq!(found, *expected);
                    known += 1;
                }
            } else {
                assert_eq!(cache.find(tag(&cache, number)), None);
            }
        }
        // 800 places for 1000 tokens.
        assert!(known > asked / 2, "{known} of {asked}");
    }

    #[test]
    fn a_million_tokens_stay_within_the_memory_and_half_of_it_holds_nearly_all() {
        let cache = cache(32 << 20);
        assert_eq!(cache.bytes(), 32 << 20);
        let known =
            |count: u32| (0..count).filter(|number| cache.find(tag(&cache, *number)).is_some()).count();
        (0..500_000).for_each(|number| cache.insert(tag(&cache, number), VERIFIED, 0, |_| true));
        assert!(known(500_000) > 480_000);
        (500_000..1_000_000).for_each(|number| cache.insert(tag(&cache, number), VERIFIED, 0, |_| true));
        assert!(known(1_000_000) > 750_000);
        assert_eq!(cache.bytes(), 32 << 20);
    }

    #[test]
    fn entries_that_are_no_longer_valid_make_room_first() {
        let cache = cache(1);
        assert_eq!(cache.bytes(), 128);
        for number in 0..4 {
            let verified = Verified { expires_s: 100 + u64::from(number), ..VERIFIED };
            cache.insert(tag(&cache, number), verified, 0, |_| true);
        }
        cache.insert(tag(&cache, 4), VERIFIED, 0, |verified| verified.expires_s != 102);
        let known = [0, 1, 2, 3, 4].map(|number| cache.find(tag(&cache, number)).is_some());
        assert_eq!(known, [true, true, false, true, true]);
    }

    #[test]
    fn a_mixture_of_two_entries_is_none() {
        let cache = cache(1);
        let Set(entries) = &cache.sets[0];
        let others = Verified { key: KeyNumber(8), not_before_s: 20, expires_s: 2000 };
        for mixture in 1..15 {
            entries[0].write(tag(&cache, 1), VERIFIED);
            let words = entries[0].load();
            entries[0].write(tag(&cache, 2), others);
            for (bit, word) in words.into_iter().enumerate().filter(|(bit, _)| mixture >> bit & 1 == 1) {
                entries[0].0[bit].store(word, Ordering::Relaxed);
            }
            for number in 1..=2 {
                assert_eq!(cache.find(tag(&cache, number)), None, "{mixture:04b}");
            }
        }
    }

    #[test]
    fn threads_find_what_they_insert_or_nothing() {
        let cache = &cache(4 * 128);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    for step in 0..50_000 {
                        let number = rng.u32(..64);
                        let verified =
                            Verified { key: KeyNumber(number), expires_s: number.into(), ..VERIFIED };
                        if rng.bool() {
                            cache.insert(tag(cache, number), verified, step, |_| true);
                        } else {
                            let found = cache.find(tag(cache, number));
                            assert!(found.is_none_or(|found| found == verified));
                        }
                    }
                });
            }
        });
    }
}
