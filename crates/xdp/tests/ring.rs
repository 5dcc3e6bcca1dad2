//! All interleavings of both sides of a ring, as loom explores them. The source file is compiled here once more, with the
//! types of loom.
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the model uses a part of the ring")]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
}

#[path = "../src/socket/ring.rs"]
mod ring;

use std::sync::Arc;

use loom::sync::atomic::AtomicU64;
use ring::{Consumer, Memory, Producer};
use sync::{AtomicU32, Ordering};

const ENTRIES: u32 = 2;
const START: u32 = u32::MAX;

/// The memory of a ring. Entries are relaxed, so that only the indices order them.
struct Shared {
    producer: AtomicU32,
    consumer: AtomicU32,
    entries: [AtomicU64; ENTRIES as usize],
}

impl Memory for Arc<Shared> {
    type Entry = u64;

    fn producer(&self) -> &AtomicU32 {
        &self.producer
    }

    fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }

    fn needs_wakeup(&self) -> bool {
        false
    }

    fn entries(&self) -> u32 {
        ENTRIES
    }

    fn read(&self, index: u32) -> u64 {
        self.entries[(index % ENTRIES) as usize].load(Ordering::Relaxed)
    }

    fn write(&self, index: u32, entry: u64) {
        self.entries[(index % ENTRIES) as usize].store(entry, Ordering::Relaxed);
    }
}

fn memory() -> Arc<Shared> {
    let [producer, consumer] = [START; 2].map(AtomicU32::new);
    Arc::new(Shared { producer, consumer, entries: Default::default() })
}

/// Fills in up to `count` entries, as far as there is room. Returns how many.
fn produce(producer: &mut Producer<Arc<Shared>>, count: u64) -> u64 {
    let mut produced = 0;
    for _ in 0..count {
        if producer.room(1).expect("the other side is right") > 0 {
            produced += 1;
            producer.push(produced);
            producer.publish();
        }
    }
    produced
}

#[test]
fn entries_arrive_complete_and_in_order() {
    loom::model(|| {
        let memory = memory();
        let mut producer = Producer::new(Arc::clone(&memory));
        let mut consumer = Consumer::new(memory);
        let other = loom::thread::spawn(move || produce(&mut producer, 3));
        let mut taken = Vec::new();
        let mut take = |consumer: &mut Consumer<_>| {
            consumer.available(1).expect("the other side is right");
            while let Some(entry) = consumer.pop() {
                taken.push(entry);
            }
            consumer.release();
        };
        take(&mut consumer);
        take(&mut consumer);
        let produced = other.join().expect("the thread ends");
        take(&mut consumer);
        assert_eq!(taken, (1..=produced).collect::<Vec<_>>());
    });
}

/// The model finds the error that the order of the indices prevents.
#[test]
#[should_panic(expected = "an entry was overwritten")]
fn room_that_is_given_back_too_early_is_overwritten() {
    loom::model(|| {
        let memory = memory();
        let mut producer = Producer::new(Arc::clone(&memory));
        (1..=2).for_each(|entry| producer.push(entry));
        producer.publish();
        let other = loom::thread::spawn(move || {
            if producer.room(1).expect("the other side is right") > 0 {
                producer.push(99);
                producer.publish();
            }
        });
        let mut consumer = Consumer::new(Arc::clone(&memory));
        consumer.available(1).expect("the other side is right");
        // Before it has read the entry.
        memory.consumer.store(START.wrapping_add(1), Ordering::Release);
        assert_eq!(consumer.pop(), Some(1), "an entry was overwritten");
        other.join().expect("the thread ends");
    });
}
