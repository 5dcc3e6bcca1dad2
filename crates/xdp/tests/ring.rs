//! All interleavings of both sides of a ring, as loom explores them. The source file is compiled here once more, with the
//! types of loom.
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the model uses a part of the ring")]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

#[path = "../src/socket/ring.rs"]
mod ring;

#[path = "../src/socket/plain_ring.rs"]
mod plain_ring;

use std::sync::Arc;

use plain_ring::PlainRing;
use ring::{Consumer, Producer};
use sync::Ordering;

const START: u32 = u32::MAX;

type Shared = PlainRing<2>;

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
        let memory = Shared::new(START);
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
        let memory = Shared::new(START);
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
