//! The outbound queues: which connections are flushed, what they receive, what is lost, and what it costs.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::ops::RangeInclusive;
use std::sync::Arc;

use shoal_base::transport::stream::Handle;
use shoal_relay::{Address, Dispatcher, Losses, Mailboxes, MessageKind, QueueLimits, WriteError};
use shoal_testkit::allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn handle(index: u32, generation: u32) -> Handle {
    Handle { index, generation }
}

/// Returns the dispatchers of two workers.
fn two(bytes_max: usize) -> [Dispatcher; 2] {
    let mailboxes = Mailboxes::with_bytes_max(2, bytes_max);
    [Dispatcher::new(0, Arc::clone(&mailboxes)), Dispatcher::new(1, mailboxes)]
}

fn one() -> Dispatcher {
    Dispatcher::new(0, Mailboxes::new(1))
}

fn write(dispatcher: &mut Dispatcher, worker: u16, to: Handle, message: &[u8]) -> Result<(), WriteError> {
    write_as(dispatcher, worker, to, MessageKind::Reply, message)
}

fn write_as(
    dispatcher: &mut Dispatcher,
    worker: u16,
    to: Handle,
    kind: MessageKind,
    message: &[u8],
) -> Result<(), WriteError> {
    dispatcher.write(Address { worker, handle: to }, kind, |out| out.extend_from_slice(message))
}

fn wakes(dispatcher: &mut Dispatcher) -> Vec<u16> {
    dispatcher.dispatch().collect()
}

/// Drains all queues. Returns their content in the order in which the connections are flushed.
fn round(dispatcher: &mut Dispatcher) -> Vec<(Handle, Vec<u8>)> {
    core::iter::from_fn(|| {
        let handle = dispatcher.next_to_flush()?;
        let mut out = b"> ".to_vec();
        dispatcher.drain(handle, |bytes| out.extend_from_slice(bytes));
        Some((handle, out.split_off(2)))
    })
    .collect()
}

#[test]
fn all_queues_together_are_bounded() {
    let offer = |dispatcher: &mut Dispatcher, index| {
        let to = Address { worker: 0, handle: handle(index, 0) };
        dispatcher.write(to, MessageKind::Offer(0), |out| out.extend_from_slice(&[7; 100]))
    };
    let mut dispatcher = one().with_bytes_max(1000);
    assert_eq!((0..30).filter(|&index| offer(&mut dispatcher, index).is_ok()).count(), 10);
    let flushed: usize = round(&mut dispatcher).iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(flushed, 1000);
    // Connections with unsent bytes have a limit of their own, which costs others nothing.
    for index in 0..30 {
        dispatcher.set_unsent(handle(index, 0), 1);
    }
    assert_eq!((0..30).filter(|&index| offer(&mut dispatcher, index).is_ok()).count(), 10);
    assert!(offer(&mut dispatcher, 40).is_ok());
    assert!(offer(&mut dispatcher, 5).is_err());
    dispatcher.remove(handle(4, 0));
    assert!(offer(&mut dispatcher, 5).is_ok());
}

#[test]
fn replies_that_one_client_leaves_unread_cost_others_none() {
    let mut dispatcher = one().with_bytes_max(1000);
    let reply = |dispatcher: &mut Dispatcher, index| {
        let to = Address { worker: 0, handle: handle(index, 0) };
        dispatcher.write(to, MessageKind::Reply, |out| out.extend_from_slice(&[7; 100]))
    };
    dispatcher.set_unsent(handle(0, 0), 1);
    let unread = (0..100).take_while(|_| reply(&mut dispatcher, 0).is_ok()).count();
    assert_eq!(unread, 21);
    assert_eq!(reply(&mut dispatcher, 0), Err(WriteError::QueueFull));
    for index in 1..50 {
        assert_eq!(reply(&mut dispatcher, index), Ok(()));
    }
}

#[test]
fn messages_of_other_peers_cost_a_connection_none_of_its_replies() {
    let mut dispatcher = one().with_bytes_max(6000);
    let victim = handle(0, 0);
    dispatcher.set_unsent(victim, 1);
    for _ in 0..30 {
        write_as(&mut dispatcher, 0, victim, MessageKind::Offer(1), &[7; 100]).unwrap();
    }
    // Another connection leaves so much unread that no more fits.
    dispatcher.set_unsent(handle(1, 0), 1);
    while write_as(&mut dispatcher, 0, handle(1, 0), MessageKind::Answer, &[7; 100]).is_ok() {}
    assert_eq!(write_as(&mut dispatcher, 0, victim, MessageKind::Reply, &[7; 100]), Ok(()));
}

#[test]
fn a_connection_is_flushed_once_with_everything_that_is_queued() {
    let mut dispatcher = one();
    let (first, second) = (handle(7, 0), handle(2, 5));
    for (to, message) in [(first, "a"), (second, "b"), (first, "c"), (first, "d"), (second, "e")] {
        write(&mut dispatcher, 0, to, message.as_bytes()).unwrap();
    }
    assert_eq!(round(&mut dispatcher), [(first, b"acd".to_vec()), (second, b"be".to_vec())]);
    assert_eq!(dispatcher.next_to_flush(), None);
    assert_eq!(dispatcher.take_losses(), Losses::default());
}

#[test]
fn a_connection_that_does_not_drain_its_queue_is_assumed_to_be_gone() {
    let mut dispatcher = one();
    write(&mut dispatcher, 0, handle(1, 0), b"never sent").unwrap();
    write(&mut dispatcher, 0, handle(2, 0), b"sent").unwrap();
    assert_eq!(dispatcher.next_to_flush(), Some(handle(1, 0)));
    assert_eq!(round(&mut dispatcher), [(handle(2, 0), b"sent".to_vec())]);
    assert_eq!(dispatcher.take_losses(), Losses { gone: 1, ..Losses::default() });
    let mut out = Vec::new();
    dispatcher.drain(handle(1, 0), |bytes| out.extend_from_slice(bytes));
    assert_eq!(out, b"");
    // It may just have been in the middle of another write. Later messages reach it.
    write(&mut dispatcher, 0, handle(1, 0), b"later").unwrap();
    assert_eq!(round(&mut dispatcher), [(handle(1, 0), b"later".to_vec())]);
}

#[test]
fn a_message_written_after_a_flush_waits_for_the_next_one() {
    let mut dispatcher = one();
    let (me, other) = (handle(7, 0), handle(8, 0));
    for to in [me, other] {
        write(&mut dispatcher, 0, to, b"before").unwrap();
    }
    assert_eq!(dispatcher.next_to_flush(), Some(me));
    assert_eq!(dispatcher.drain(me, <[u8]>::to_vec), Some(b"before".to_vec()));
    // A back end that flushes a limited number at a time handles an input now.
    write(&mut dispatcher, 0, me, b"after").unwrap();
    assert_eq!(round(&mut dispatcher), [(other, b"before".to_vec()), (me, b"after".to_vec())]);
    assert_eq!(dispatcher.take_losses(), Losses::default());
}

#[test]
fn a_connection_does_not_receive_the_messages_of_its_predecessor() {
    let mut dispatcher = one();
    let (old, new) = (handle(3, 8), handle(3, 9));
    write(&mut dispatcher, 0, old, b"old").unwrap();
    write(&mut dispatcher, 0, new, b"new").unwrap();
    assert_eq!(write(&mut dispatcher, 0, old, b"late"), Err(WriteError::Gone));
    assert_eq!(round(&mut dispatcher), [(new, b"new".to_vec())]);
    assert_eq!(dispatcher.take_losses(), Losses { gone: 1, ..Losses::default() });

    // Generations wrap.
    let (last, first) = (handle(3, Handle::GENERATION_MAX), handle(3, 0));
    write(&mut dispatcher, 0, last, b"last").unwrap();
    write(&mut dispatcher, 0, first, b"first").unwrap();
    assert_eq!(write(&mut dispatcher, 0, last, b"late"), Err(WriteError::Gone));
    assert_eq!(round(&mut dispatcher), [(first, b"first".to_vec())]);
}

#[test]
fn the_queue_of_a_connection_that_disconnects_is_discarded() {
    let mut dispatcher = one();
    write(&mut dispatcher, 0, handle(1, 0), b"never sent").unwrap();
    dispatcher.remove(handle(1, 1));
    dispatcher.remove(handle(99, 1));
    dispatcher.remove(handle(1, 0));
    dispatcher.remove(handle(1, 0));
    assert_eq!(round(&mut dispatcher), []);
    write(&mut dispatcher, 0, handle(1, 1), b"new").unwrap();
    assert_eq!(round(&mut dispatcher), [(handle(1, 1), b"new".to_vec())]);
}

#[test]
fn a_connection_drained_early_is_not_flushed_again() {
    let mut dispatcher = one();
    write(&mut dispatcher, 0, handle(1, 0), b"a").unwrap();
    assert_eq!(dispatcher.drain(handle(1, 0), <[u8]>::len), Some(1));
    assert_eq!(dispatcher.drain(handle(1, 0), <[u8]>::len), None);
    write(&mut dispatcher, 0, handle(1, 0), b"bc").unwrap();
    assert_eq!(round(&mut dispatcher), [(handle(1, 0), b"bc".to_vec())]);
}

const QUEUE_BYTES_MAX: usize = 8000;
const OFFER: [u8; 500] = [b'o'; 500];

fn narrow() -> Dispatcher {
    one().with_limits(QueueLimits { queue_bytes_max: QUEUE_BYTES_MAX, reply_bytes_max: 2000 })
}

/// Writes messages of a kind until one is refused. Returns the number of bytes written.
fn fill(dispatcher: &mut Dispatcher, to: Handle, kind: MessageKind) -> usize {
    let mut bytes = 0;
    while write_as(dispatcher, 0, to, kind, &OFFER).is_ok() {
        bytes += OFFER.len();
    }
    bytes
}

#[test]
fn messages_of_other_peers_are_bounded_and_answers_have_more_room_than_offers() {
    let (mut dispatcher, to) = (narrow(), handle(0, 0));
    dispatcher.set_unsent(to, 1);
    // One group of sources may fill a quarter of the queue, all together half of it.
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(1)), QUEUE_BYTES_MAX / 4);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(2)), QUEUE_BYTES_MAX / 8);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(1)), 0);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(3)), QUEUE_BYTES_MAX / 8);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(4)), 0);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Answer), QUEUE_BYTES_MAX / 2);
    assert_eq!(write_as(&mut dispatcher, 0, to, MessageKind::Answer, b"a"), Err(WriteError::QueueFull));
    // Neither takes room from its own replies, nor do these from the others.
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Reply), 2000);
    write_as(&mut dispatcher, 0, handle(1, 0), MessageKind::Offer(1), b"other queues have room").unwrap();
    dispatcher.set_unsent(to, 0);
    assert_eq!(round(&mut dispatcher)[0].1.len(), QUEUE_BYTES_MAX + 2000);
    // If the connection has no unsent bytes, one group may send all offers of a poll round.
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Reply), 2000);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(1)), QUEUE_BYTES_MAX / 2);
}

#[test]
fn an_empty_queue_takes_a_message_of_any_size() {
    for kind in [MessageKind::Offer(0), MessageKind::Answer, MessageKind::Reply] {
        let mut dispatcher = narrow();
        write_as(&mut dispatcher, 0, handle(0, 0), kind, &[b'x'; 3 * QUEUE_BYTES_MAX]).unwrap();
        assert_eq!(write_as(&mut dispatcher, 0, handle(0, 0), kind, b"x"), Err(WriteError::QueueFull));
    }
}

#[test]
fn unsent_bytes_are_part_of_the_queue() {
    let (mut dispatcher, to) = (narrow(), handle(0, 0));
    write(&mut dispatcher, 0, to, b"first").unwrap();
    assert_eq!(round(&mut dispatcher).len(), 1);
    dispatcher.set_unsent(to, QUEUE_BYTES_MAX / 2);
    // It is not flushed before its socket has accepted everything.
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(1)), 0);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Answer), QUEUE_BYTES_MAX / 2);
    write(&mut dispatcher, 0, to, b"reply").unwrap();
    assert_eq!(dispatcher.next_to_flush(), None);
    dispatcher.set_unsent(to, QUEUE_BYTES_MAX / 8);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Answer), 3 * QUEUE_BYTES_MAX / 8);
    assert_eq!(dispatcher.next_to_flush(), None);
    dispatcher.set_unsent(to, 0);
    assert_eq!(round(&mut dispatcher)[0].1.len(), 7 * QUEUE_BYTES_MAX / 8 + "reply".len());
    // A connection with an empty queue is not flushed then.
    dispatcher.set_unsent(to, 1);
    dispatcher.set_unsent(to, 0);
    assert_eq!(dispatcher.next_to_flush(), None);
    assert_eq!(dispatcher.take_losses(), Losses::default());
}

#[test]
fn a_flush_may_be_postponed() {
    let (mut dispatcher, to) = (narrow(), handle(0, 0));
    write(&mut dispatcher, 0, to, b"first").unwrap();
    assert_eq!(dispatcher.next_to_flush(), Some(to));
    dispatcher.set_unsent(to, 10);
    assert_eq!(dispatcher.next_to_flush(), None);
    dispatcher.set_unsent(to, 0);
    assert_eq!(round(&mut dispatcher), [(to, b"first".to_vec())]);
    assert_eq!(dispatcher.take_losses(), Losses::default());
    // While it is put off, messages come behind the first, and one group may send three eighths of the queue.
    write(&mut dispatcher, 0, to, b"first").unwrap();
    assert_eq!(dispatcher.next_to_flush(), Some(to));
    dispatcher.put_off(to);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(1)), 3 * QUEUE_BYTES_MAX / 8);
    assert_eq!(fill(&mut dispatcher, to, MessageKind::Offer(2)), QUEUE_BYTES_MAX / 8);
    assert_eq!(dispatcher.next_to_flush(), None);
    dispatcher.set_unsent(to, 0);
    let flushed = round(&mut dispatcher);
    assert_eq!((flushed.len(), flushed[0].1.len()), (1, "first".len() + QUEUE_BYTES_MAX / 2));
    assert_eq!(dispatcher.take_losses(), Losses::default());
    // Nothing is left of a connection that disconnects meanwhile.
    dispatcher.set_unsent(to, 10);
    write(&mut dispatcher, 0, to, b"second").unwrap();
    dispatcher.remove(to);
    dispatcher.set_unsent(to, 0);
    assert_eq!(round(&mut dispatcher), []);
}

#[test]
fn a_connection_that_is_to_be_pinged_is_flushed_with_an_empty_queue() {
    let (mut dispatcher, to) = (narrow(), handle(0, 0));
    assert!(!dispatcher.is_ping_requested(to));
    dispatcher.request_ping(Address { worker: dispatcher.worker(), handle: to });
    assert!(dispatcher.is_ping_requested(to));
    assert_eq!(round(&mut dispatcher), [(to, Vec::new())]);
    assert!(!dispatcher.is_ping_requested(to));
    assert_eq!(dispatcher.next_to_flush(), None);
    // One that has unsent bytes has to read them first.
    dispatcher.set_unsent(to, 1);
    dispatcher.request_ping(Address { worker: dispatcher.worker(), handle: to });
    assert_eq!(dispatcher.next_to_flush(), None);
    dispatcher.set_unsent(to, 0);
    assert!(dispatcher.is_ping_requested(to));
    assert_eq!(round(&mut dispatcher), [(to, Vec::new())]);
}

#[test]
fn the_queue_of_a_connection_of_another_worker_is_bounded_too() {
    let [mut ours, theirs] = two(1 << 20);
    let mut theirs = theirs.with_limits(QueueLimits { queue_bytes_max: QUEUE_BYTES_MAX, reply_bytes_max: 0 });
    let to = handle(0, 0);
    for kind in [MessageKind::Offer(7), MessageKind::Answer] {
        for _ in 0..QUEUE_BYTES_MAX / OFFER.len() {
            write_as(&mut ours, 1, to, kind, &OFFER).unwrap();
        }
    }
    assert_eq!(wakes(&mut ours), [1]);
    theirs.collect();
    assert_eq!(round(&mut theirs)[0].1.len(), QUEUE_BYTES_MAX);
    assert_eq!(theirs.take_losses(), Losses { queue_full: 16, ..Losses::default() });
}

#[test]
fn a_request_to_ping_reaches_the_worker_of_the_connection() {
    let [mut ours, mut theirs] = two(1000);
    let to = handle(3, 1);
    ours.request_ping(Address { worker: 1, handle: to });
    assert_eq!(wakes(&mut ours), [1]);
    theirs.collect();
    assert!(theirs.is_ping_requested(to));
    assert_eq!(round(&mut theirs), [(to, Vec::new())]);
}

#[test]
fn a_worker_is_woken_once_for_all_waiting_messages() {
    let [mut ours, mut theirs] = two(1000);
    let to = handle(4, 2);
    assert_eq!(wakes(&mut ours), [0_u16; 0]);
    write(&mut ours, 1, to, b"a").unwrap();
    write(&mut ours, 1, to, b"b").unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    write(&mut ours, 1, to, b"c").unwrap();
    assert_eq!(wakes(&mut ours), [0_u16; 0]);
    assert_eq!(theirs.next_to_flush(), None, "it has not collected yet");
    theirs.collect();
    assert_eq!(round(&mut theirs), [(to, b"abc".to_vec())]);
    write(&mut ours, 1, to, b"d").unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    theirs.collect();
    theirs.collect();
    assert_eq!(round(&mut theirs), [(to, b"d".to_vec())]);
    assert_eq!((ours.take_losses(), theirs.take_losses()), (Losses::default(), Losses::default()));
}

#[test]
fn a_message_to_an_unknown_worker_is_refused() {
    let [mut ours, _] = two(1000);
    assert_eq!(write(&mut ours, 2, handle(0, 0), b"a"), Err(WriteError::Gone));
    assert_eq!(wakes(&mut ours), [0_u16; 0]);
}

#[test]
fn a_mailbox_is_bounded_and_accepts_the_messages_that_still_fit() {
    let [mut ours, mut theirs] = two(100);
    let to = handle(0, 0);
    // Thirteen bytes of each message are its header.
    write(&mut ours, 1, to, &[b'a'; 40]).unwrap();
    assert_eq!(write(&mut ours, 1, to, &[b'b'; 40]), Err(WriteError::MailboxFull));
    write(&mut ours, 1, to, &[b'c'; 10]).unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    write(&mut ours, 1, to, &[b'd'; 20]).unwrap();
    write(&mut ours, 1, to, &[b'e'; 10]).unwrap();
    write(&mut ours, 1, to, &[b'f'; 10]).unwrap();
    assert_eq!(wakes(&mut ours), [0_u16; 0]);
    assert_eq!(ours.take_losses(), Losses { mailbox_full: 2, ..Losses::default() });
    theirs.collect();
    let expected = [vec![b'a'; 40], vec![b'c'; 10], vec![b'e'; 10]].concat();
    assert_eq!(round(&mut theirs), [(to, expected)]);
    write(&mut ours, 1, to, &[b'g'; 80]).unwrap();
    assert_eq!(wakes(&mut ours), [1]);
}

#[test]
fn messages_to_a_disconnected_client_are_counted_on_arrival() {
    let [mut ours, mut theirs] = two(1000);
    write(&mut ours, 1, handle(0, 4), b"late").unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    write(&mut theirs, 1, handle(0, 5), b"new").unwrap();
    theirs.collect();
    assert_eq!(theirs.take_losses(), Losses { gone: 1, ..Losses::default() });
    assert_eq!(round(&mut theirs), [(handle(0, 5), b"new".to_vec())]);
}

#[test]
fn the_settled_state_allocates_nothing() {
    let mut dispatchers = two(1 << 20);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut out = Vec::with_capacity(1 << 20);
    let mut run = |rounds: u32, bytes: RangeInclusive<usize>| {
        let before = shoal_testkit::allocator::allocations();
        for _ in 0..rounds {
            for dispatcher in &mut dispatchers {
                dispatcher.collect();
                for (worker, index) in (0..2).flat_map(|worker| (0..50).map(move |index| (worker, index))) {
                    let bytes = rng.usize(bytes.clone());
                    let address = Address { worker, handle: handle(index, 0) };
                    dispatcher
                        .write(address, MessageKind::Reply, |out| out.extend((0..bytes).map(|_| b'x')))
                        .unwrap();
                }
                while let Some(handle) = dispatcher.next_to_flush() {
                    out.clear();
                    dispatcher.drain(handle, |bytes| out.extend_from_slice(bytes));
                }
                assert!(dispatcher.dispatch().count() <= 1);
            }
        }
        shoal_testkit::allocator::allocations() - before
    };
    // Let the buffers grow to the maximum.
    run(10, 3000..=3000);
    assert_eq!(run(1000, 1..=3000), 0);
}

#[test]
fn a_burst_does_not_hold_memory_for_good() {
    let mut dispatcher = one();
    let message = vec![b'x'; 256 * 1024];
    for index in 0..50 {
        write(&mut dispatcher, 0, handle(index, 0), &message).unwrap();
    }
    assert_eq!(round(&mut dispatcher).len(), 50);
    // Their buffers have been freed, so new ones are needed.
    let before = shoal_testkit::allocator::allocations();
    write(&mut dispatcher, 0, handle(0, 0), b"x").unwrap();
    assert!(shoal_testkit::allocator::allocations() > before);
}

#[test]
fn buffers_that_are_unused_for_a_while_are_freed() {
    let mut dispatcher = one();
    let mut run = |rounds: u32, connections: u32| {
        let before = shoal_testkit::allocator::allocations();
        let mut out = Vec::with_capacity(100);
        for _ in 0..rounds {
            for index in 0..connections {
                write(&mut dispatcher, 0, handle(index, 0), &[b'x'; 100]).unwrap();
            }
            while let Some(handle) = dispatcher.next_to_flush() {
                out.clear();
                dispatcher.drain(handle, |bytes| out.extend_from_slice(bytes));
            }
            assert_eq!(wakes(&mut dispatcher), [0_u16; 0]);
        }
        // Not counting that of `out`.
        shoal_testkit::allocator::allocations() - before - 1
    };
    run(1, 50);
    assert_eq!(run(1, 50), 0);
    run(3000, 10);
    assert_eq!(run(1000, 10), 0, "those in use stay");
    assert_eq!(run(1, 50), 40, "the others are allocated again");
}
