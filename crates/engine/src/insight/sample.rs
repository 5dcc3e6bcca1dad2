//! Samples of announces, from the worker that serves them to the thread that evaluates them.
//!
//! A worker with few announces samples each of them, so that small trackers are seen exactly. With more announces, it
//! samples down to one in 64, at random distances that no client can predict. Each sample carries the number of
//! announces that it represents.
//!
//! Samples go through a queue of atomics between two threads, 96 KiB for each worker. A worker takes about a thousand
//! samples a second. Distances are uniform between one and twice the mean. Their generator serves nothing else, so
//! clients see none of its output.

use core::array;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use shoal_base::{Counts, InfoHash, PeerId};

/// The largest mean distance between two samples.
const DISTANCE_MAX: u32 = 64;

/// The number of samples in a second that a worker should take. It determines the distance.
const SAMPLES_PER_S: u64 = 1000;

/// Number of samples that wait for the thread. At the smallest distance, they cover a tenth of a second with 20,000
/// announces a second; at the largest, with more than a million.
const SLOTS: usize = 2048;

/// An announce that represents several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer id; all zeros if the client has sent none.
    pub peer_id: PeerId,
    /// The peers of the swarm after the announce.
    pub peers: u32,
    /// The number of announces that the sample represents.
    pub weight: u32,
}

const WORDS: usize = 6;

impl Sample {
    fn encode(&self) -> [u64; WORDS] {
        let mut bytes = [0; WORDS * size_of::<u64>()];
        bytes[..20].copy_from_slice(&self.info_hash.0);
        bytes[20..40].copy_from_slice(&self.peer_id.0);
        bytes[40..44].copy_from_slice(&self.peers.to_le_bytes());
        bytes[44..].copy_from_slice(&self.weight.to_le_bytes());
        let (words, _) = bytes.as_chunks();
        array::from_fn(|index| u64::from_le_bytes(words[index]))
    }

    fn decode(words: [u64; WORDS]) -> Self {
        let mut bytes = [0; WORDS * size_of::<u64>()];
        let (chunks, _) = bytes.as_chunks_mut();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        let (mut info_hash, mut peer_id) = ([0; 20], [0; 20]);
        info_hash.copy_from_slice(&bytes[..20]);
        peer_id.copy_from_slice(&bytes[20..40]);
        let number = |at: usize| u32::from_le_bytes(array::from_fn(|index| bytes[at + index]));
        Self {
            info_hash: InfoHash(info_hash),
            peer_id: PeerId(peer_id),
            peers: number(40),
            weight: number(44),
        }
    }
}

/// The samples of one worker on their way to the evaluating thread: a queue of a fixed size between two threads. A
/// full queue loses samples.
#[derive(Debug)]
pub struct SampleRing {
    slots: Box<[[AtomicU64; WORDS]]>,
    written: Written,
    /// The number of samples ever read.
    read: AtomicU64,
    /// The mean distance between two samples.
    distance: AtomicU32,
}

/// The number of samples ever written. It has its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Written(AtomicU64);

impl Default for SampleRing {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| array::from_fn(|_| AtomicU64::new(0))).collect(),
            written: Written::default(),
            read: AtomicU64::new(0),
            distance: AtomicU32::new(1),
        }
    }
}

impl SampleRing {
    /// The memory of a ring in bytes.
    pub const BYTES: usize = SLOTS * WORDS * size_of::<u64>();

    /// Takes all waiting samples. Only one thread may do so.
    pub fn drain(&self, mut visit: impl FnMut(Sample)) -> usize {
        let (mut read, written) = (self.read.load(Ordering::Relaxed), self.written.0.load(Ordering::Acquire));
        let taken = written.wrapping_sub(read);
        while read != written {
            let slot = &self.slots[slot(read)];
            visit(Sample::decode(array::from_fn(|index| slot[index].load(Ordering::Relaxed))));
            read = read.wrapping_add(1);
        }
        self.read.store(read, Ordering::Release);
        usize::try_from(taken).unwrap_or(usize::MAX)
    }

    /// Sets the distance between samples so that a worker with this rate of announces takes about a thousand samples
    /// a second.
    pub fn adapt(&self, announces_per_s: u64) {
        let distance = u32::try_from(announces_per_s / SAMPLES_PER_S).unwrap_or(DISTANCE_MAX);
        self.distance.store(distance.clamp(1, DISTANCE_MAX), Ordering::Relaxed);
    }

    /// Appends a sample, unless the ring is full. Only the ring's worker may do so.
    fn push(&self, sample: &Sample) {
        let written = self.written.0.load(Ordering::Relaxed);
        if written.wrapping_sub(self.read.load(Ordering::Acquire)) >= SLOTS as u64 {
            return;
        }
        for (slot, word) in self.slots[slot(written)].iter().zip(sample.encode()) {
            slot.store(word, Ordering::Relaxed);
        }
        self.written.0.store(written.wrapping_add(1), Ordering::Release);
    }

    /// Returns the mean distance to the next sample: the largest one if the thread falls behind.
    fn distance(&self) -> u32 {
        let waiting = self.written.0.load(Ordering::Relaxed).wrapping_sub(self.read.load(Ordering::Relaxed));
        if waiting > SLOTS as u64 / 2 { DISTANCE_MAX } else { self.distance.load(Ordering::Relaxed) }
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).unwrap_or(0)
}

/// Decides which announces of a responder are samples.
#[derive(Debug)]
pub struct Sampler {
    /// The number of announces up to the next sample.
    left: u32,
    /// The number of announces that the next sample will represent.
    weight: u32,
    rng: fastrand::Rng,
    /// The ring of the worker. `None` if nothing is sampled.
    ring: Option<Arc<SampleRing>>,
}

impl Sampler {
    /// Creates a sampler that samples nothing.
    pub fn off() -> Self {
        Self { left: 0, weight: 0, rng: fastrand::Rng::with_seed(0), ring: None }
    }

    /// Creates the sampler of a worker. Nothing else may draw from `rng`, since clients may see other draws.
    pub fn new(ring: Arc<SampleRing>, rng: fastrand::Rng) -> Self {
        Self { left: 1, weight: 1, rng, ring: Some(ring) }
    }

    /// Counts an announce. Returns whether the caller must [`take`](Self::take) it as a sample.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.left = self.left.wrapping_sub(1);
        self.left == 0
    }

    /// Takes an announce as a sample, with the counts after it.
    #[cold]
    #[inline(never)]
    pub fn take(&mut self, info_hash: &InfoHash, peer_id: Option<&PeerId>, counts: Counts) {
        let Some(ring) = &self.ring else { return };
        let peer_id = peer_id.copied().unwrap_or(PeerId([0; 20]));
        let peers = counts.seeders.saturating_add(counts.leechers);
        ring.push(&Sample { info_hash: *info_hash, peer_id, peers, weight: self.weight });
        // Distances are uniform between 1 and twice the mean.
        self.weight = ring.distance();
        self.left = self.rng.u32(1..=2 * self.weight - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u32) -> Sample {
        let (mut info_hash, mut peer_id) = ([1; 20], [2; 20]);
        info_hash[16..].copy_from_slice(&number.to_be_bytes());
        peer_id[..4].copy_from_slice(&number.to_be_bytes());
        Sample { info_hash: InfoHash(info_hash), peer_id: PeerId(peer_id), peers: number, weight: 7 }
    }

    fn drained(ring: &SampleRing) -> Vec<Sample> {
        let mut samples = Vec::new();
        ring.drain(|sample| samples.push(sample));
        samples
    }

    #[test]
    fn samples_arrive_as_they_were_written() {
        let ring = SampleRing::default();
        for round in 0..3 {
            let written: Vec<_> = (0..1500).map(|number| sample(round * 10_000 + number)).collect();
            written.iter().for_each(|sample| ring.push(sample));
            assert_eq!(drained(&ring), written);
        }
    }

    #[test]
    fn a_full_ring_loses_samples_and_recovers() {
        let ring = SampleRing::default();
        (0..5000).for_each(|number| ring.push(&sample(number)));
        let drained_samples = drained(&ring);
        assert_eq!((drained_samples.len(), drained_samples[SLOTS - 1]), (SLOTS, sample(2047)));
        ring.push(&sample(1));
        assert_eq!(drained(&ring), [sample(1)]);
    }

    #[test]
    fn samples_cross_threads_whole() {
        let ring = Arc::new(SampleRing::default());
        let writer = Arc::clone(&ring);
        let thread = std::thread::spawn(move || (0..200_000).for_each(|number| writer.push(&sample(number))));
        let mut last = None;
        loop {
            let is_finished = thread.is_finished();
            ring.drain(|read| {
                assert_eq!(read, sample(read.peers));
                assert!(last < Some(read.peers));
                last = Some(read.peers);
            });
            if is_finished {
                break;
            }
        }
        thread.join().unwrap();
    }

    #[test]
    fn the_weights_of_samples_add_up_to_the_announces() {
        let ring = Arc::new(SampleRing::default());
        let mut sampler = Sampler::new(Arc::clone(&ring), fastrand::Rng::with_seed(1));
        for (announces_per_s, samples_at_most) in [(0, 1_000_000), (10_000, 105_000), (u64::MAX, 17_000)] {
            ring.adapt(announces_per_s);
            let (mut weight, mut samples) = (0, 0);
            for _ in 0..1000 {
                for _ in 0..1000 {
                    if sampler.is_due() {
                        sampler.take(&InfoHash([1; 20]), None, Counts::default());
                    }
                }
                samples += ring.drain(|sample| weight += sample.weight);
            }
            assert!((980_000..1_020_000).contains(&weight), "{weight} with {announces_per_s} a second");
            assert!(samples <= samples_at_most, "{samples}");
        }
    }

    #[test]
    fn a_sampler_that_is_off_takes_nothing() {
        let mut sampler = Sampler::off();
        assert!((0..100_000).all(|_| !sampler.is_due()));
        sampler.take(&InfoHash([1; 20]), None, Counts::default());
    }

    #[test]
    fn a_thread_that_falls_behind_gets_fewer_samples() {
        let ring = SampleRing::default();
        assert_eq!(ring.distance(), 1);
        (0..1100).for_each(|number| ring.push(&sample(number)));
        assert_eq!(ring.distance(), DISTANCE_MAX);
        drained(&ring);
        assert_eq!(ring.distance(), 1);
    }
}
