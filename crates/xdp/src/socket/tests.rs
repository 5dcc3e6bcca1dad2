//! The rings on plain memory, and the memory of frames without a socket.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::mapping::Descriptor;
use super::plain_ring::PlainRing;
use super::ring::{Consumer, Corrupt, Producer};
use super::sync::Ordering;
use super::umem::{REPLY_SPACE_BYTES, Sizes, Taken, Umem, Unusable};

const ENTRIES: u32 = 8;

type Plain = PlainRing<{ ENTRIES as usize }>;

fn ring(start: u32) -> (Producer<Arc<Plain>>, Consumer<Arc<Plain>>, Arc<Plain>) {
    let memory = Plain::new(start);
    (Producer::new(Arc::clone(&memory)), Consumer::new(Arc::clone(&memory)), memory)
}

#[test]
fn a_ring_passes_entries_on_in_order() {
    let mut rng = fastrand::Rng::with_seed(7);
    // The indices pass their maximum on the way.
    let (mut producer, mut consumer, _) = ring(u32::MAX - 1000);
    let (mut unpublished, mut waiting) = (VecDeque::new(), VecDeque::new());
    let (mut next, mut unreleased) = (0, 0);
    for _ in 0..20_000 {
        match rng.u8(..4) {
            0 => {
                let wanted = rng.u32(..ENTRIES + 2);
                let occupied = unpublished.len() + waiting.len() + unreleased;
                let room = producer.room(wanted).unwrap();
                assert!(room as usize <= ENTRIES as usize - occupied);
                assert!(room >= wanted.min(ENTRIES - u32::try_from(occupied).unwrap()));
                for _ in 0..wanted.min(room) {
                    producer.push(next);
                    unpublished.push_back(next);
                    next += 1;
                }
            }
            1 => {
                producer.publish();
                waiting.append(&mut unpublished);
            }
            2 => {
                let wanted = rng.u32(..ENTRIES + 2);
                let available = consumer.available(wanted).unwrap() as usize;
                assert!(available >= waiting.len().min(wanted as usize) && available <= waiting.len());
                for _ in 0..rng.usize(..=available) {
                    assert_eq!(consumer.pop(), waiting.pop_front());
                    unreleased += 1;
                }
            }
            _ => {
                consumer.release();
                unreleased = 0;
            }
        }
    }
    assert!(next > 2000, "{next}");
}

#[test]
fn an_index_out_of_range_is_an_error() {
    for wrong in [ENTRIES + 1, 1 << 31, u32::MAX] {
        let (mut producer, mut consumer, memory) = ring(5);
        memory.producer.store(5_u32.wrapping_add(wrong), Ordering::Relaxed);
        assert_eq!(consumer.available(1), Err(Corrupt), "{wrong}");
        assert_eq!(consumer.pop(), None);
        memory.consumer.store(5_u32.wrapping_sub(wrong), Ordering::Relaxed);
        assert_eq!(producer.room(ENTRIES), Ok(ENTRIES), "it is not read while there is room by the last one");
        assert_eq!(producer.pending(), Err(Corrupt), "{wrong}");
        assert_eq!(producer.room(1), Err(Corrupt), "{wrong}");
    }
}

#[test]
fn entries_are_not_taken_back() {
    let (mut producer, mut consumer, memory) = ring(0);
    producer.push(1);
    producer.push(2);
    producer.publish();
    assert_eq!(consumer.available(1), Ok(2));
    memory.producer.store(1, Ordering::Relaxed);
    assert_eq!(consumer.available(3), Err(Corrupt));
}

#[test]
fn both_sides_continue_where_others_have_stopped() {
    let (mut producer, mut consumer, memory) = ring(0);
    (1..=5).for_each(|entry| producer.push(entry));
    producer.publish();
    assert_eq!(consumer.available(2), Ok(5));
    assert_eq!((consumer.pop(), consumer.pop()), (Some(1), Some(2)));
    consumer.release();
    let (mut producer, mut consumer) = (Producer::new(Arc::clone(&memory)), Consumer::new(memory));
    assert_eq!(producer.room(ENTRIES), Ok(ENTRIES - 3));
    assert_eq!(consumer.available(1), Ok(3));
    assert_eq!(consumer.pop(), Some(3));
}

const FRAMES: u32 = 64;

fn sizes() -> Sizes {
    let half = FRAMES / 2;
    Sizes {
        frames: FRAMES,
        fill: half,
        completion: FRAMES,
        receive: half,
        transmit: half,
        interface_index: 3,
        queue: 4,
    }
}

/// Gives a frame to be received into, and takes what was received.
fn receive(umem: &mut Umem, bytes: u32) -> Result<Taken, Unusable> {
    let address = umem.give_to_receive().unwrap() + 256;
    umem.take(Descriptor { address, bytes, options: 0 })
}

#[test]
fn a_frame_passes_from_owner_to_owner() {
    let mut umem = Umem::create(&sizes()).unwrap();
    assert_eq!(umem.owned().free, FRAMES);
    let mut addresses = BTreeSet::new();
    for _ in 0..10 * FRAMES {
        let taken = receive(&mut umem, 98).unwrap();
        assert_eq!(umem.owned().in_service, 1);
        let sent = umem.give_to_transmit(taken, 28, 100);
        addresses.insert(sent.address / 4096);
        assert_eq!((umem.owned().transmitting, umem.owned().total()), (1, FRAMES));
        assert!(umem.complete(sent.address));
        assert!(umem.is_consistent());
    }
    assert!(addresses.iter().all(|frame| *frame < u64::from(FRAMES)), "{addresses:?}");
    let taken = receive(&mut umem, 0).unwrap();
    umem.release(taken);
    assert_eq!(umem.owned().free, FRAMES);
}

#[test]
fn what_the_kernel_supplies_is_checked() {
    let mut umem = Umem::create(&sizes()).unwrap();
    let take =
        |umem: &mut Umem, address, bytes| umem.take(Descriptor { address, bytes, options: 0 }).unwrap_err();
    let end = u64::from(FRAMES) * 4096;
    for address in [end, end + 1, u64::MAX, 1 << 32 << 12] {
        assert_eq!(take(&mut umem, address, 1), Unusable::Bad);
        assert!(!umem.complete(address));
    }
    assert_eq!(take(&mut umem, 0, 1), Unusable::Bad, "the kernel has not been given it");
    assert!(!umem.complete(0));
    assert_eq!(umem.owned().free, FRAMES);
    for (bytes, expected) in [
        (4096, Unusable::Bad),
        (u32::MAX, Unusable::Bad),
        (3840, Unusable::TooLong),
        (2323, Unusable::TooLong),
    ] {
        assert_eq!(receive(&mut umem, bytes).unwrap_err(), expected, "{bytes}");
    }
    let longest = receive(&mut umem, 2322).unwrap();
    umem.release(longest);
    // The same descriptor once more.
    let address = umem.give_to_receive().unwrap();
    let taken = umem.take(Descriptor { address, bytes: 60, options: 0 }).unwrap();
    assert_eq!(take(&mut umem, address, 60), Unusable::Bad);
    let sent = umem.give_to_transmit(taken, 0, REPLY_SPACE_BYTES);
    assert!(umem.complete(sent.address) && !umem.complete(sent.address));
    assert!(umem.is_consistent());
    assert_eq!(umem.owned().free, FRAMES);
}

#[test]
fn frames_in_service_do_not_overlap() {
    let mut umem = Umem::create(&sizes()).unwrap();
    let taken: Vec<_> = (0..FRAMES).map(|bytes| receive(&mut umem, bytes).unwrap()).collect();
    let mut frames: Vec<_> = umem.frames(&taken).collect();
    for (number, frame) in (0_u8..).zip(&mut frames) {
        frame.reply.fill(number);
    }
    for (number, frame) in (0_u8..).zip(&frames) {
        assert_eq!(frame.received.len(), usize::from(number));
        assert!(frame.received.iter().all(|byte| *byte == 0));
        assert!(frame.reply.iter().all(|byte| *byte == number));
    }
}

#[test]
fn another_process_finds_the_owners() {
    let mut umem = Umem::create(&sizes()).unwrap();
    let unanswered = receive(&mut umem, 9).unwrap();
    let taken = receive(&mut umem, 9).unwrap();
    let sent = umem.give_to_transmit(taken, 0, 60);
    let received_into = umem.give_to_receive().unwrap();
    let file = umem.file().try_clone_to_owned().unwrap();
    let (mut other, found) = Umem::adopt(file).unwrap();
    assert_eq!(found, sizes());
    let owned = other.owned();
    assert_eq!((owned.free, owned.receiving, owned.in_service, owned.transmitting), (FRAMES - 2, 1, 0, 1));
    // The first process still answers a frame that it has in service.
    let answered = umem.give_to_transmit(unanswered, 0, 60);
    assert!(umem.complete(answered.address));
    other.recount();
    assert!(other.is_consistent() && other.complete(sent.address));
    let taken = other.take(Descriptor { address: received_into, bytes: 9, options: 0 }).unwrap();
    other.release(taken);
    assert_eq!(other.owned().free, FRAMES);
}

#[test]
fn other_files_are_refused() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    for bytes in [0, 100, 4096, 1 << 20] {
        let file = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        assert!(Umem::adopt(file).is_err(), "{bytes}");
    }
}
