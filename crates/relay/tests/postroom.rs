//! What waits for connections: who is named, what is fetched, what is lost, and what it costs.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::ops::RangeInclusive;
use std::sync::Arc;

use shoal_counting_allocator::CountingAllocator;
use shoal_relay::{Address, Class, Losses, Mailboxes, Postroom, QueueLimits, Unwritten};
use shoal_wire::stream::Handle;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn handle(index: u32, generation: u32) -> Handle {
    Handle { index, generation }
}

/// The rooms of two workers.
fn two(bytes_max: usize) -> [Postroom; 2] {
    let mailboxes = Mailboxes::with_bytes_max(2, bytes_max);
    [Postroom::new(0, Arc::clone(&mailboxes)), Postroom::new(1, mailboxes)]
}

fn one() -> Postroom {
    Postroom::new(0, Mailboxes::new(1))
}

fn write(postroom: &mut Postroom, worker: u16, to: Handle, letter: &[u8]) -> Result<(), Unwritten> {
    write_as(postroom, worker, to, Class::Reply, letter)
}

fn write_as(
    postroom: &mut Postroom,
    worker: u16,
    to: Handle,
    class: Class,
    letter: &[u8],
) -> Result<(), Unwritten> {
    postroom.write(Address { worker, handle: to }, class, |out| out.extend_from_slice(letter))
}

fn wakes(postroom: &mut Postroom) -> Vec<u16> {
    postroom.dispatch().collect()
}

/// What everybody for whom something waits fetches, in the order in which they are named.
fn round(postroom: &mut Postroom) -> Vec<(Handle, Vec<u8>)> {
    core::iter::from_fn(|| {
        let speaker = postroom.speaker()?;
        let mut out = b"> ".to_vec();
        postroom.fetch(speaker, |bytes| out.extend_from_slice(bytes));
        Some((speaker, out.split_off(2)))
    })
    .collect()
}

#[test]
fn no_more_waits_for_all_together_than_may() {
    let offer = |postroom: &mut Postroom, index| {
        let to = Address { worker: 0, handle: handle(index, 0) };
        postroom.write(to, Class::Offer(0), |out| out.extend_from_slice(&[7; 100]))
    };
    let mut postroom = one().with_bytes_max(1000);
    assert_eq!((0..30).filter(|&index| offer(&mut postroom, index).is_ok()).count(), 10);
    let heard: usize = round(&mut postroom).iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(heard, 1000);
    // Sockets that take nothing have as much, and others lose nothing by it.
    for index in 0..30 {
        postroom.set_unsent(handle(index, 0), 1);
    }
    assert_eq!((0..30).filter(|&index| offer(&mut postroom, index).is_ok()).count(), 10);
    assert!(offer(&mut postroom, 40).is_ok());
    assert!(offer(&mut postroom, 5).is_err());
    postroom.forget(handle(4, 0));
    assert!(offer(&mut postroom, 5).is_ok());
}

#[test]
fn replies_that_others_leave_unread_cost_none_of_ones_own() {
    let mut postroom = one().with_bytes_max(1000);
    let reply = |postroom: &mut Postroom, index| {
        let to = Address { worker: 0, handle: handle(index, 0) };
        postroom.write(to, Class::Reply, |out| out.extend_from_slice(&[7; 100]))
    };
    postroom.set_unsent(handle(0, 0), 1);
    let unread = (0..100).take_while(|_| reply(&mut postroom, 0).is_ok()).count();
    assert_eq!(unread, 21);
    assert_eq!(reply(&mut postroom, 0), Err(Unwritten::QueueFull));
    for index in 1..50 {
        assert_eq!(reply(&mut postroom, index), Ok(()));
    }
}

#[test]
fn what_others_have_for_a_connection_costs_it_none_of_its_replies() {
    let mut postroom = one().with_bytes_max(6000);
    let victim = handle(0, 0);
    postroom.set_unsent(victim, 1);
    for _ in 0..30 {
        write_as(&mut postroom, 0, victim, Class::Offer(1), &[7; 100]).unwrap();
    }
    // Another one leaves so much unread that there is room for nothing more.
    postroom.set_unsent(handle(1, 0), 1);
    while write_as(&mut postroom, 0, handle(1, 0), Class::Answer, &[7; 100]).is_ok() {}
    assert_eq!(write_as(&mut postroom, 0, victim, Class::Reply, &[7; 100]), Ok(()));
}

#[test]
fn what_waits_together_is_fetched_together_and_each_is_named_once() {
    let mut postroom = one();
    let (first, second) = (handle(7, 0), handle(2, 5));
    for (to, letter) in [(first, "a"), (second, "b"), (first, "c"), (first, "d"), (second, "e")] {
        write(&mut postroom, 0, to, letter.as_bytes()).unwrap();
    }
    assert_eq!(round(&mut postroom), [(first, b"acd".to_vec()), (second, b"be".to_vec())]);
    assert_eq!(postroom.speaker(), None);
    assert_eq!(postroom.losses(), Losses::default());
}

#[test]
fn who_does_not_fetch_is_taken_for_gone() {
    let mut postroom = one();
    write(&mut postroom, 0, handle(1, 0), b"never heard").unwrap();
    write(&mut postroom, 0, handle(2, 0), b"heard").unwrap();
    assert_eq!(postroom.speaker(), Some(handle(1, 0)));
    assert_eq!(round(&mut postroom), [(handle(2, 0), b"heard".to_vec())]);
    assert_eq!(postroom.losses(), Losses { gone: 1, ..Losses::default() });
    let mut out = Vec::new();
    postroom.fetch(handle(1, 0), |bytes| out.extend_from_slice(bytes));
    assert_eq!(out, b"");
    // It may have been within something else, and is spoken to later.
    write(&mut postroom, 0, handle(1, 0), b"later").unwrap();
    assert_eq!(round(&mut postroom), [(handle(1, 0), b"later".to_vec())]);
}

#[test]
fn what_is_written_after_a_fetch_waits_for_the_next_turn() {
    let mut postroom = one();
    let (me, other) = (handle(7, 0), handle(8, 0));
    for to in [me, other] {
        write(&mut postroom, 0, to, b"before").unwrap();
    }
    assert_eq!(postroom.speaker(), Some(me));
    assert_eq!(postroom.fetch(me, <[u8]>::to_vec), Some(b"before".to_vec()));
    // A back end that names only so many at a time hears somebody else now.
    write(&mut postroom, 0, me, b"after").unwrap();
    assert_eq!(round(&mut postroom), [(other, b"before".to_vec()), (me, b"after".to_vec())]);
    assert_eq!(postroom.losses(), Losses::default());
}

#[test]
fn nobody_hears_what_was_for_who_had_its_place_before() {
    let mut postroom = one();
    let (old, new) = (handle(3, 8), handle(3, 9));
    write(&mut postroom, 0, old, b"old").unwrap();
    write(&mut postroom, 0, new, b"new").unwrap();
    assert_eq!(write(&mut postroom, 0, old, b"late"), Err(Unwritten::Gone));
    assert_eq!(round(&mut postroom), [(new, b"new".to_vec())]);
    assert_eq!(postroom.losses(), Losses { gone: 1, ..Losses::default() });

    // Generations begin anew.
    let (last, first) = (handle(3, Handle::GENERATION_MAX), handle(3, 0));
    write(&mut postroom, 0, last, b"last").unwrap();
    write(&mut postroom, 0, first, b"first").unwrap();
    assert_eq!(write(&mut postroom, 0, last, b"late"), Err(Unwritten::Gone));
    assert_eq!(round(&mut postroom), [(first, b"first".to_vec())]);
}

#[test]
fn what_waits_for_one_that_goes_is_thrown_away() {
    let mut postroom = one();
    write(&mut postroom, 0, handle(1, 0), b"never heard").unwrap();
    postroom.forget(handle(1, 1));
    postroom.forget(handle(99, 1));
    postroom.forget(handle(1, 0));
    postroom.forget(handle(1, 0));
    assert_eq!(round(&mut postroom), []);
    write(&mut postroom, 0, handle(1, 1), b"new").unwrap();
    assert_eq!(round(&mut postroom), [(handle(1, 1), b"new".to_vec())]);
}

#[test]
fn fetched_out_of_turn_is_not_named_again() {
    let mut postroom = one();
    write(&mut postroom, 0, handle(1, 0), b"a").unwrap();
    assert_eq!(postroom.fetch(handle(1, 0), <[u8]>::len), Some(1));
    assert_eq!(postroom.fetch(handle(1, 0), <[u8]>::len), None);
    write(&mut postroom, 0, handle(1, 0), b"bc").unwrap();
    assert_eq!(round(&mut postroom), [(handle(1, 0), b"bc".to_vec())]);
}

const QUEUE_BYTES_MAX: usize = 8000;
const OFFER: [u8; 500] = [b'o'; 500];

fn narrow() -> Postroom {
    one().with_limits(QueueLimits { queue_bytes_max: QUEUE_BYTES_MAX, reply_bytes_max: 2000 })
}

/// Writes as much of a class as there is room for. Returns how many bytes that are.
fn fill(postroom: &mut Postroom, to: Handle, class: Class) -> usize {
    let mut bytes = 0;
    while write_as(postroom, 0, to, class, &OFFER).is_ok() {
        bytes += OFFER.len();
    }
    bytes
}

#[test]
fn what_others_have_for_a_connection_is_bounded_and_answers_come_before_offers() {
    let (mut postroom, to) = (narrow(), handle(0, 0));
    postroom.set_unsent(to, 1);
    // One group of sources has a quarter of the queue, all together half of it.
    assert_eq!(fill(&mut postroom, to, Class::Offer(1)), QUEUE_BYTES_MAX / 4);
    assert_eq!(fill(&mut postroom, to, Class::Offer(2)), QUEUE_BYTES_MAX / 8);
    assert_eq!(fill(&mut postroom, to, Class::Offer(1)), 0);
    assert_eq!(fill(&mut postroom, to, Class::Offer(3)), QUEUE_BYTES_MAX / 8);
    assert_eq!(fill(&mut postroom, to, Class::Offer(4)), 0);
    assert_eq!(fill(&mut postroom, to, Class::Answer), QUEUE_BYTES_MAX / 2);
    assert_eq!(write_as(&mut postroom, 0, to, Class::Answer, b"a"), Err(Unwritten::QueueFull));
    // Nothing of that is at the expense of its own replies, nor the other way round.
    assert_eq!(fill(&mut postroom, to, Class::Reply), 2000);
    write_as(&mut postroom, 0, handle(1, 0), Class::Offer(1), b"others have room").unwrap();
    postroom.set_unsent(to, 0);
    assert_eq!(round(&mut postroom)[0].1.len(), QUEUE_BYTES_MAX + 2000);
    // Of one that takes all that it is told, a group may have the offers of a turn.
    assert_eq!(fill(&mut postroom, to, Class::Reply), 2000);
    assert_eq!(fill(&mut postroom, to, Class::Offer(1)), QUEUE_BYTES_MAX / 2);
}

#[test]
fn an_empty_queue_takes_a_message_of_any_size() {
    for class in [Class::Offer(0), Class::Answer, Class::Reply] {
        let mut postroom = narrow();
        write_as(&mut postroom, 0, handle(0, 0), class, &[b'x'; 3 * QUEUE_BYTES_MAX]).unwrap();
        assert_eq!(write_as(&mut postroom, 0, handle(0, 0), class, b"x"), Err(Unwritten::QueueFull));
    }
}

#[test]
fn what_the_socket_has_not_taken_is_part_of_the_queue() {
    let (mut postroom, to) = (narrow(), handle(0, 0));
    write(&mut postroom, 0, to, b"first").unwrap();
    assert_eq!(round(&mut postroom).len(), 1);
    postroom.set_unsent(to, QUEUE_BYTES_MAX / 2);
    assert!(postroom.has_unsent(to) && !postroom.has_unsent(handle(1, 0)));
    // It is not called before it has taken all.
    assert_eq!(fill(&mut postroom, to, Class::Offer(1)), 0);
    assert_eq!(fill(&mut postroom, to, Class::Answer), QUEUE_BYTES_MAX / 2);
    write(&mut postroom, 0, to, b"reply").unwrap();
    assert_eq!(postroom.speaker(), None);
    postroom.set_unsent(to, QUEUE_BYTES_MAX / 8);
    assert_eq!(fill(&mut postroom, to, Class::Answer), 3 * QUEUE_BYTES_MAX / 8);
    assert_eq!(postroom.speaker(), None);
    postroom.set_unsent(to, 0);
    assert_eq!(round(&mut postroom)[0].1.len(), 7 * QUEUE_BYTES_MAX / 8 + "reply".len());
    // One for which nothing waits then is not named.
    postroom.set_unsent(to, 1);
    postroom.set_unsent(to, 0);
    assert_eq!(postroom.speaker(), None);
    assert_eq!(postroom.losses(), Losses::default());
}

#[test]
fn one_that_is_named_may_be_put_off() {
    let (mut postroom, to) = (narrow(), handle(0, 0));
    write(&mut postroom, 0, to, b"first").unwrap();
    assert_eq!(postroom.speaker(), Some(to));
    postroom.set_unsent(to, 10);
    assert_eq!(postroom.speaker(), None);
    postroom.set_unsent(to, 0);
    assert_eq!(round(&mut postroom), [(to, b"first".to_vec())]);
    assert_eq!(postroom.losses(), Losses::default());
    // Nothing is left of one that goes meanwhile.
    postroom.set_unsent(to, 10);
    write(&mut postroom, 0, to, b"second").unwrap();
    postroom.forget(to);
    assert!(!postroom.has_unsent(to));
    postroom.set_unsent(to, 0);
    assert_eq!(round(&mut postroom), []);
}

#[test]
fn one_is_named_when_it_is_called() {
    let (mut postroom, to) = (narrow(), handle(0, 0));
    postroom.call(to);
    assert_eq!(round(&mut postroom), [(to, Vec::new())]);
    assert_eq!(postroom.speaker(), None);
    postroom.set_unsent(to, 1);
    postroom.call(to);
    assert_eq!(postroom.speaker(), None);
    postroom.set_unsent(to, 0);
    assert_eq!(round(&mut postroom), [(to, Vec::new())]);
}

#[test]
fn the_queue_of_a_connection_of_another_worker_is_bounded_too() {
    let [mut ours, theirs] = two(1 << 20);
    let mut theirs = theirs.with_limits(QueueLimits { queue_bytes_max: QUEUE_BYTES_MAX, reply_bytes_max: 0 });
    let to = handle(0, 0);
    for class in [Class::Offer(7), Class::Answer] {
        for _ in 0..QUEUE_BYTES_MAX / OFFER.len() {
            write_as(&mut ours, 1, to, class, &OFFER).unwrap();
        }
    }
    assert_eq!(wakes(&mut ours), [1]);
    theirs.collect();
    assert_eq!(round(&mut theirs)[0].1.len(), QUEUE_BYTES_MAX);
    assert_eq!(theirs.losses(), Losses { queue_full: 16, ..Losses::default() });
}

#[test]
fn a_challenge_is_handed_over_and_not_told() {
    let [mut ours, mut theirs] = two(1000);
    let to = handle(3, 1);
    write_as(&mut ours, 1, to, Class::Challenge, &[b'c'; 40]).unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    theirs.collect();
    assert_eq!((theirs.challenge(), theirs.challenge()), (Some((to, [b'c'; 40])), None));
    assert_eq!(theirs.speaker(), None);
}

#[test]
fn a_worker_is_woken_once_for_what_waits_for_it() {
    let [mut ours, mut theirs] = two(1000);
    let to = handle(4, 2);
    assert_eq!(wakes(&mut ours), []);
    write(&mut ours, 1, to, b"a").unwrap();
    write(&mut ours, 1, to, b"b").unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    write(&mut ours, 1, to, b"c").unwrap();
    assert_eq!(wakes(&mut ours), []);
    assert_eq!(theirs.speaker(), None, "it has not looked yet");
    theirs.collect();
    assert_eq!(round(&mut theirs), [(to, b"abc".to_vec())]);
    write(&mut ours, 1, to, b"d").unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    theirs.collect();
    theirs.collect();
    assert_eq!(round(&mut theirs), [(to, b"d".to_vec())]);
    assert_eq!((ours.losses(), theirs.losses()), (Losses::default(), Losses::default()));
}

#[test]
fn nobody_can_write_to_a_worker_that_is_not_there() {
    let [mut ours, _] = two(1000);
    assert_eq!(write(&mut ours, 2, handle(0, 0), b"a"), Err(Unwritten::Gone));
    assert_eq!(wakes(&mut ours), []);
}

#[test]
fn what_waits_in_a_mailbox_is_bounded_and_what_still_fits_is_taken() {
    let [mut ours, mut theirs] = two(100);
    let to = handle(0, 0);
    // Thirteen bytes of each letter are its head.
    write(&mut ours, 1, to, &[b'a'; 40]).unwrap();
    assert_eq!(write(&mut ours, 1, to, &[b'b'; 40]), Err(Unwritten::MailboxFull));
    write(&mut ours, 1, to, &[b'c'; 10]).unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    write(&mut ours, 1, to, &[b'd'; 20]).unwrap();
    write(&mut ours, 1, to, &[b'e'; 10]).unwrap();
    write(&mut ours, 1, to, &[b'f'; 10]).unwrap();
    assert_eq!(wakes(&mut ours), []);
    assert_eq!(ours.losses(), Losses { mailbox_full: 2, ..Losses::default() });
    theirs.collect();
    let expected = [vec![b'a'; 40], vec![b'c'; 10], vec![b'e'; 10]].concat();
    assert_eq!(round(&mut theirs), [(to, expected)]);
    write(&mut ours, 1, to, &[b'g'; 80]).unwrap();
    assert_eq!(wakes(&mut ours), [1]);
}

#[test]
fn letters_for_who_has_gone_are_counted_when_they_come() {
    let [mut ours, mut theirs] = two(1000);
    write(&mut ours, 1, handle(0, 4), b"late").unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    write(&mut theirs, 1, handle(0, 5), b"new").unwrap();
    theirs.collect();
    assert_eq!(theirs.losses(), Losses { gone: 1, ..Losses::default() });
    assert_eq!(round(&mut theirs), [(handle(0, 5), b"new".to_vec())]);
}

#[test]
fn the_settled_state_allocates_nothing() {
    let mut rooms = two(1 << 20);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut out = Vec::with_capacity(1 << 20);
    let mut turns = |turns: u32, bytes: RangeInclusive<usize>| {
        let before = shoal_counting_allocator::allocations();
        for _ in 0..turns {
            for postroom in &mut rooms {
                postroom.collect();
                for (worker, index) in (0..2).flat_map(|worker| (0..50).map(move |index| (worker, index))) {
                    let bytes = rng.usize(bytes.clone());
                    let address = Address { worker, handle: handle(index, 0) };
                    postroom
                        .write(address, Class::Reply, |out| out.extend((0..bytes).map(|_| b'x')))
                        .unwrap();
                }
                while let Some(speaker) = postroom.speaker() {
                    out.clear();
                    postroom.fetch(speaker, |bytes| out.extend_from_slice(bytes));
                }
                assert!(postroom.dispatch().count() <= 1);
            }
        }
        shoal_counting_allocator::allocations() - before
    };
    // Buffers have grown to the most that there is to say.
    turns(10, 3000..=3000);
    assert_eq!(turns(1000, 1..=3000), 0);
}

#[test]
fn a_moment_of_much_to_say_does_not_take_memory_for_good() {
    let mut postroom = one();
    let letter = vec![b'x'; 256 * 1024];
    for index in 0..50 {
        write(&mut postroom, 0, handle(index, 0), &letter).unwrap();
    }
    assert_eq!(round(&mut postroom).len(), 50);
    // Their buffers have been given back, so that new ones are needed.
    let before = shoal_counting_allocator::allocations();
    write(&mut postroom, 0, handle(0, 0), b"x").unwrap();
    assert!(shoal_counting_allocator::allocations() > before);
}

#[test]
fn buffers_that_are_not_needed_for_a_while_are_given_back() {
    let mut postroom = one();
    let mut turns = |count: u32, connections: u32| {
        let before = shoal_counting_allocator::allocations();
        let mut out = Vec::with_capacity(100);
        for _ in 0..count {
            for index in 0..connections {
                write(&mut postroom, 0, handle(index, 0), &[b'x'; 100]).unwrap();
            }
            while let Some(speaker) = postroom.speaker() {
                out.clear();
                postroom.fetch(speaker, |bytes| out.extend_from_slice(bytes));
            }
            assert_eq!(wakes(&mut postroom), []);
        }
        // All but that of `out`.
        shoal_counting_allocator::allocations() - before - 1
    };
    turns(1, 50);
    assert_eq!(turns(1, 50), 0);
    turns(3000, 10);
    assert_eq!(turns(1000, 10), 0, "those that are needed stay");
    assert_eq!(turns(1, 50), 40, "the others have to be made anew");
}
