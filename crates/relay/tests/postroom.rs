//! What waits for connections: who is named, what is fetched, what is lost, and what it costs.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::ops::RangeInclusive;
use std::sync::Arc;

use shoal_counting::Counting;
use shoal_relay::{Address, Losses, Mailboxes, POST_BYTES_MAX, Postroom, Unwritten};
use shoal_wire::stream::Handle;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    postroom.write(Address { worker, handle: to }, |out| out.extend_from_slice(letter))
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
    let mut postroom = one().with_bytes_max(1000);
    let written =
        (0..20).filter(|index| write(&mut postroom, 0, handle(*index, 0), &[7; 100]).is_ok()).count();
    assert_eq!(written, 10);
    let heard: usize = round(&mut postroom).iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(heard, 1000);
    write(&mut postroom, 0, handle(1, 0), &[7; 100]).unwrap();
    postroom.forget(handle(1, 0));
    assert_eq!(
        (0..10).filter(|index| write(&mut postroom, 0, handle(*index, 1), &[7; 100]).is_ok()).count(),
        10
    );
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
    assert_eq!(postroom.losses(), Losses { gone: 1, full: 0 });
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
    assert_eq!(postroom.losses(), Losses { gone: 1, full: 0 });

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

#[test]
fn what_waits_for_one_connection_is_bounded() {
    let mut postroom = one();
    let to = handle(0, 0);
    let half = vec![b'x'; POST_BYTES_MAX / 2];
    write(&mut postroom, 0, to, &half).unwrap();
    write(&mut postroom, 0, to, &half[1..]).unwrap();
    assert_eq!(write(&mut postroom, 0, to, b"two"), Err(Unwritten::Full));
    write(&mut postroom, 0, to, b"1").unwrap();
    assert_eq!(write(&mut postroom, 0, to, b"1"), Err(Unwritten::Full));
    write(&mut postroom, 0, handle(1, 0), b"others have room").unwrap();
    let round = round(&mut postroom);
    assert_eq!((round[0].1.len(), round.len()), (POST_BYTES_MAX, 2));
    write(&mut postroom, 0, to, b"again").unwrap();
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
    // Twelve bytes of each letter are its head.
    write(&mut ours, 1, to, &[b'a'; 40]).unwrap();
    assert_eq!(write(&mut ours, 1, to, &[b'b'; 40]), Err(Unwritten::Full));
    write(&mut ours, 1, to, &[b'c'; 10]).unwrap();
    assert_eq!(wakes(&mut ours), [1]);
    write(&mut ours, 1, to, &[b'd'; 20]).unwrap();
    write(&mut ours, 1, to, &[b'e'; 10]).unwrap();
    write(&mut ours, 1, to, &[b'f'; 10]).unwrap();
    assert_eq!(wakes(&mut ours), []);
    assert_eq!(ours.losses(), Losses { gone: 0, full: 2 });
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
    assert_eq!(theirs.losses(), Losses { gone: 1, full: 0 });
    assert_eq!(round(&mut theirs), [(handle(0, 5), b"new".to_vec())]);
}

#[test]
fn the_settled_state_allocates_nothing() {
    let mut rooms = two(1 << 20);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut out = Vec::with_capacity(1 << 20);
    let mut turns = |turns: u32, bytes: RangeInclusive<usize>| {
        let before = shoal_counting::allocations();
        for _ in 0..turns {
            for postroom in &mut rooms {
                postroom.collect();
                for (worker, index) in (0..2).flat_map(|worker| (0..50).map(move |index| (worker, index))) {
                    let bytes = rng.usize(bytes.clone());
                    let address = Address { worker, handle: handle(index, 0) };
                    postroom.write(address, |out| out.extend((0..bytes).map(|_| b'x'))).unwrap();
                }
                while let Some(speaker) = postroom.speaker() {
                    out.clear();
                    postroom.fetch(speaker, |bytes| out.extend_from_slice(bytes));
                }
                assert!(postroom.dispatch().count() <= 1);
            }
        }
        shoal_counting::allocations() - before
    };
    // Buffers have grown to the most that there is to say.
    turns(10, 3000..=3000);
    assert_eq!(turns(1000, 1..=3000), 0);
}

#[test]
fn a_moment_of_much_to_say_does_not_take_memory_for_good() {
    let mut postroom = one();
    let letter = vec![b'x'; POST_BYTES_MAX / 4];
    for index in 0..50 {
        write(&mut postroom, 0, handle(index, 0), &letter).unwrap();
    }
    assert_eq!(round(&mut postroom).len(), 50);
    // Their buffers have been given back, so that new ones are needed.
    let before = shoal_counting::allocations();
    write(&mut postroom, 0, handle(0, 0), b"x").unwrap();
    assert!(shoal_counting::allocations() > before);
}

#[test]
fn buffers_that_are_not_needed_for_a_while_are_given_back() {
    let mut postroom = one();
    let mut turns = |count: u32, connections: u32| {
        let before = shoal_counting::allocations();
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
        shoal_counting::allocations() - before - 1
    };
    turns(1, 50);
    assert_eq!(turns(1, 50), 0);
    turns(3000, 10);
    assert_eq!(turns(1000, 10), 0, "those that are needed stay");
    assert_eq!(turns(1, 50), 40, "the others have to be made anew");
}
