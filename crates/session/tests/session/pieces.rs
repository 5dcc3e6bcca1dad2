//! Bytes come in any pieces; requests come in any number.

use shoal_base::transport::stream::{Next, StreamService};

use crate::harness::{INPUT_BYTES_MAX, PLAIN, Tracker, announce};

#[test]
fn a_request_may_be_cut_anywhere() {
    let bytes = announce("X-Filler: some\r\nAccept: */*\r\n");
    let whole = Tracker::new().ask(&bytes).output;
    for cut in 1..bytes.len() {
        let mut tracker = Tracker::new();
        let mut session = tracker.open(PLAIN, "192.0.2.1");
        let first = tracker.send(&mut session, &bytes[..cut]);
        assert_eq!((first.output.len(), first.next), (0, Next::Busy), "{cut}");
        assert!(session.buffered_bytes() >= cut, "{cut}");
        let second = tracker.send(&mut session, &bytes[cut..]);
        assert_eq!((second.output, second.next), (whole.clone(), Next::Idle), "{cut}");
        assert_eq!(session.buffered_bytes(), 0, "an idle connection holds nothing");
    }
}

#[test]
fn a_head_without_an_end_is_not_kept_for_ever() {
    let mut tracker = Tracker::new();
    let mut session = tracker.open(PLAIN, "192.0.2.1");
    let mut next = tracker.send(&mut session, b"GET /announce HTTP/1.1\r\n").next;
    for sent in (0..).step_by(10) {
        if next != Next::Busy {
            break;
        }
        assert!(sent < 8 * 1024);
        assert!(session.buffered_bytes() <= 16 * 1024);
        next = tracker.send(&mut session, b"X: 45678\r\n").next;
    }
    assert_eq!((next, session.buffered_bytes()), (Next::Linger, 0));
}

#[test]
fn output_that_becomes_long_is_sent_before_the_next_request_is_looked_at() {
    let one = b"GET / HTTP/1.1\r\nHost:\r\n\r\n";
    let mut bytes = one.repeat(INPUT_BYTES_MAX / one.len());
    let requests = bytes.len() / one.len();
    // The last request is incomplete.
    bytes.extend_from_slice(b"GET");
    let mut tracker = Tracker::new();
    let mut session = tracker.open(PLAIN, "192.0.2.1");
    let (mut total, mut input) = (Vec::new(), bytes);
    let mut rounds = 0;
    loop {
        let mut output = Vec::new();
        let next = tracker.service.receive(&mut session, &mut input, &mut output);
        assert!(output.len() < 64 * 1024 + 1024, "{}", output.len());
        assert!(session.buffered_bytes() <= INPUT_BYTES_MAX, "{}", session.buffered_bytes());
        total.append(&mut output);
        input.clear();
        rounds += 1;
        if next != Next::More {
            assert_eq!(next, Next::Busy);
            break;
        }
    }
    assert!(rounds > 1, "the test must reach the limit");
    assert_eq!(crate::response::parse_all(&total, false).len(), requests);
    assert!(session.buffered_bytes() < 100, "{}", session.buffered_bytes());
}

#[test]
fn input_behind_unsent_responses_is_bounded() {
    let one = b"GET / HTTP/1.1\r\nHost:\r\n\r\n";
    let bytes = one.repeat(INPUT_BYTES_MAX / one.len());
    let mut tracker = Tracker::new();
    let mut session = tracker.open(PLAIN, "192.0.2.1");
    let mut output = vec![0; 64 * 1024];
    for _ in 0..100 {
        // The output is full: nothing can be answered.
        output.truncate(64 * 1024);
        let next = tracker.service.receive(&mut session, &mut bytes.clone(), &mut output);
        if next == Next::Linger {
            assert_eq!(session.buffered_bytes(), 0);
            return;
        }
        assert!(session.buffered_bytes() <= 128 * 1024, "{}", session.buffered_bytes());
    }
    panic!("it was received for ever");
}
